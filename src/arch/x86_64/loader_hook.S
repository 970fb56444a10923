// Reached by a jump in place of the `ret` of the loader's empty function (loader_hook.cpp), on the thread that loads or
// unloads a module.
//
// On arrival:
//     (%rsp)     the return address into the loader; rsp is 8 mod 16 as in any function, but that is not relied on
//     live       whatever the loader's compiler knew to survive an empty function: every register is kept
//
// After saving:
//     rbp        the caller's rbp; above it the return address
//     ...        rax rcx rdx rsi rdi r8-r11
//     rsp        xmm0-15, 16-byte aligned
#include "asm.h"

#define VECTORS_SIZE 256
#define HOOK_FRAME_SIZE (VECTORS_SIZE + 80)

.macro move_general saving
        .irp    register, rax, rcx, rdx, rsi, rdi, r8, r9, r10, r11
        .if     \saving
        movq    %\register, VECTORS_SIZE+8*hook_word(%rsp)
        .else
        movq    VECTORS_SIZE+8*hook_word(%rsp), %\register
        .endif
        .set    hook_word, hook_word + 1
        .endr
.endm

.macro move_vectors saving
        .irp    n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15
        .if     \saving
        movaps  %xmm\n, 16*\n(%rsp)
        .else
        movaps  16*\n(%rsp), %xmm\n
        .endif
        .endr
.endm

fprobe_function fprobe_loader_hook
        .cfi_startproc
        pushq   %rbp
        .cfi_adjust_cfa_offset 8
        .cfi_rel_offset %rbp, 0
        movq    %rsp, %rbp
        .cfi_def_cfa_register %rbp
        subq    $HOOK_FRAME_SIZE, %rsp
        andq    $-16, %rsp
        .set    hook_word, 0
        move_general 1
        move_vectors 1
        call    fprobe_loader_changed
        move_vectors 0
        .set    hook_word, 0
        move_general 0
        movq    %rbp, %rsp
        .cfi_def_cfa_register %rsp
        popq    %rbp
        .cfi_adjust_cfa_offset -8
        .cfi_restore %rbp
        ret
        .cfi_endproc
fprobe_end fprobe_loader_hook
