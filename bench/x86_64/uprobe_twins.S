// Twins of the probed function without a site of ours: what a uprobe costs depends on the instruction it replaces.
//
//   uprobe_twin_nop5    a five-byte nop, as -mnop-mcount or a USDT probe leaves it: newer kernels put a call there
//   uprobe_twin_push    push %rbp, what most functions without -fomit-frame-pointer begin with: emulated by the kernel
//   uprobe_twin_plain   an ordinary instruction: executed out of line, with a second trap
        .text

        .macro  step_body
        sarq    $3, %rsi
        xorq    %rsi, %rdi
        leaq    (%rdi,%rdi,2), %rax
        addq    %rdx, %rax
        .endm

        .macro  twin name
        .globl  \name
        .type   \name, @function
        .balign 64
\name:
        .cfi_startproc
        .endm

        .macro  twin_end name
        .cfi_endproc
        .size   \name, . - \name
        .endm

twin uprobe_twin_nop5
        .byte   0x0f, 0x1f, 0x44, 0x00, 0x00    // nopl 0(%rax,%rax,1)
        movq    %rsi, %rdx
        step_body
        ret
twin_end uprobe_twin_nop5

twin uprobe_twin_push
        pushq   %rbp
        .cfi_adjust_cfa_offset 8
        movq    %rsi, %rdx
        step_body
        popq    %rbp
        .cfi_adjust_cfa_offset -8
        ret
twin_end uprobe_twin_push

twin uprobe_twin_plain
        movq    %rsi, %rdx
        step_body
        ret
twin_end uprobe_twin_plain

        .section .note.GNU-stack, "", @progbits
