// The functions that compiled-in profiling calls lead to: __fentry__ (-pg -mfentry), mcount and _mcount (-pg).
//
// All three in one object, so that a linker that needs one of them takes all from here and none from libc.  They are met
// only at sites that are not in their idle form: before the library is loaded, where text cannot be written, or while
// gmon runs; then gmon's own function goes on from here.  Where text cannot be written at all, probes are dispatched from
// these calls (live_call.S).
//
//     live      every argument register, al, r10 (static chain): nothing changes, no more than at a jump to a thunk
//     (%rsp)    site + length, inside the profiled function
#include "asm.h"

.macro profiling_function name, live, next
        .globl  \name
        .type   \name, @function
        .balign 32
\name:
        .cfi_startproc
        endbr64                                 // reached through a GOT word
        cmpl    $0, fprobe_live_sites(%rip)
        jne     \live
        cmpq    $0, \next(%rip)
        jne     1f
        ret
1:      jmp     *\next(%rip)
        .cfi_endproc
        .size   \name, . - \name
.endm

        // From here to there, for is_own_profiling_function().
        .globl  fprobe_profiling_functions, fprobe_profiling_functions_end
        .hidden fprobe_profiling_functions, fprobe_profiling_functions_end
fprobe_profiling_functions:
profiling_function __fentry__, fprobe_live_entry, fprobe_next_fentry
profiling_function mcount, fprobe_live_behind_prologue, fprobe_next_mcount
profiling_function _mcount, fprobe_live_behind_prologue, fprobe_next_mcount
fprobe_profiling_functions_end:

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

// How many sites are dispatched from their live calls.
        .balign 4
        .globl  fprobe_live_sites
        .hidden fprobe_live_sites
        .type   fprobe_live_sites, @object
        .size   fprobe_live_sites, 4
fprobe_live_sites:
        .zero   4
