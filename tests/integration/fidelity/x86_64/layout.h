/* struct machine for assembly and C++: every register that a call passes on, and none that it cannot. */
#ifndef FPROBE_TESTS_INTEGRATION_FIDELITY_X86_64_LAYOUT_H_
#define FPROBE_TESTS_INTEGRATION_FIDELITY_X86_64_LAYOUT_H_

#define MACHINE_VECTOR 0     /* 32 registers of 64 bytes; a narrow CPU fills the front of each */
#define MACHINE_MASK 2048    /* k0-7 */
#define MACHINE_GENERAL 2112 /* rax rbx rcx rdx rsi rdi rbp r8 ... r15 */
#define MACHINE_MXCSR 2232
#define MACHINE_X87_CONTROL 2236
#define MACHINE_FLAGS 2240
#define MACHINE_SIZE 2304

#endif
