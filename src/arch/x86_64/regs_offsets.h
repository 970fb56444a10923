// Offsets shared by C++ and assembly.  C++ checks them against the structs (regs.cpp).
//
//   ftrace_regs, built by entry.S and return.S on the target's stack, 16-byte aligned:
//     0 xmm0 ... 112 xmm7 | 128 di si dx cx r8 r9 ax r10 | 192 bp ip sp return_address | 224 flags entry_ip | 240 staged stack | 280 scratch
#ifndef FPROBE_SRC_ARCH_X86_64_REGS_OFFSETS_H_
#define FPROBE_SRC_ARCH_X86_64_REGS_OFFSETS_H_

#define REGS_XMM 0
#define REGS_DI 128
#define REGS_SI 136
#define REGS_DX 144
#define REGS_CX 152
#define REGS_R8 160
#define REGS_R9 168
#define REGS_AX 176
#define REGS_R10 184
#define REGS_BP 192
#define REGS_IP 200
#define REGS_SP 208
#define REGS_RETURN_ADDRESS 216
#define REGS_FLAGS 224
#define REGS_ENTRY_IP 232
#define REGS_SCRATCH 280
#define REGS_SIZE 288

#define SITE_IP 8
#define SITE_RESUME 16

#endif  // FPROBE_SRC_ARCH_X86_64_REGS_OFFSETS_H_
