// The functions that compiled-in profiling calls lead to: __fentry__ (-pg -mfentry), mcount and _mcount (-pg).
//
// All three in one object, so that a linker that needs one of them takes all from here and none from libc.  They are met
// only at sites that are not in their idle form: before the library is loaded, where text cannot be written, or while
// gmon runs; then gmon's own function goes on from here.
//
//     live      every argument register, al, r10 (static chain); only r11 may change (a PLT slot changes it too)
//     (%rsp)    site + length, inside the profiled function
#include "asm.h"

.macro profiling_function name, next
        .globl  \name
        .type   \name, @function
        .balign 32
\name:
        .cfi_startproc
        endbr64                                 // reached through a GOT word
        movq    \next(%rip), %r11
        testq   %r11, %r11
        jnz     1f
        ret
1:      jmp     *%r11
        .cfi_endproc
        .size   \name, . - \name
.endm

profiling_function __fentry__, fprobe_next_fentry
profiling_function mcount, fprobe_next_mcount
profiling_function _mcount, fprobe_next_mcount

// gmon's functions, set at load when it runs, else 0.
        .bss
        .balign 8
        .globl  fprobe_next_fentry, fprobe_next_mcount
        .hidden fprobe_next_fentry, fprobe_next_mcount
        .type   fprobe_next_fentry, @object
        .type   fprobe_next_mcount, @object
        .size   fprobe_next_fentry, 8
        .size   fprobe_next_mcount, 8
fprobe_next_fentry:
        .zero   8
fprobe_next_mcount:
        .zero   8
