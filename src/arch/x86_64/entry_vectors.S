// Moves of the widest vector registers that carry arguments, for WideVectors (vectors.h).
//
//     rdi        eight places of 64 bytes each
//
// In assembly, between two labels, so that a scan for code of wide vectors can leave our own out: a static libfprobe is
// part of the program.
#include "asm.h"

.macro move_wide instruction, register, load
        .irpc   n, 01234567
        .ifnb   \load
        \instruction 64*\n(%rdi), %\register\n
        .else
        \instruction %\register\n, 64*\n(%rdi)
        .endif
        .endr
        ret
.endm

        .globl  fprobe_wide_code, fprobe_wide_code_end
        .hidden fprobe_wide_code, fprobe_wide_code_end
fprobe_wide_code:

fprobe_function fprobe_save_ymm
        .cfi_startproc
        move_wide vmovdqu, ymm
        .cfi_endproc
fprobe_end fprobe_save_ymm

fprobe_function fprobe_restore_ymm
        .cfi_startproc
        move_wide vmovdqu, ymm, load
        .cfi_endproc
fprobe_end fprobe_restore_ymm

fprobe_function fprobe_save_zmm
        .cfi_startproc
        move_wide vmovdqu64, zmm
        .cfi_endproc
fprobe_end fprobe_save_zmm

fprobe_function fprobe_restore_zmm
        .cfi_startproc
        move_wide vmovdqu64, zmm, load
        .cfi_endproc
fprobe_end fprobe_restore_zmm

fprobe_wide_code_end:
