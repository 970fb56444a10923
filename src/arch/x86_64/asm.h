// Macros of the assembly files.  Lower case, one instruction a line, CFI after every stack move.
#ifndef FPROBE_SRC_ARCH_X86_64_ASM_H_
#define FPROBE_SRC_ARCH_X86_64_ASM_H_

#include "regs_offsets.h"

// A hidden function with call frame information.
.macro fprobe_function name
        .globl  \name
        .hidden \name
        .type   \name, @function
        .balign 64
\name:
.endm

.macro fprobe_end name
        .size   \name, . - \name
.endm

        .section .note.GNU-stack, "", @progbits
        .text

#endif  // FPROBE_SRC_ARCH_X86_64_ASM_H_
