// Calls a function with every register set, and stands for that function's body: see machine.h.
//
// All states are globals that are addressed rip-relative, so that no register is needed to reach them.
#include "layout.h"

// xmm0-15, ymm0-15 or zmm0-31 with k0-7, as machine_width says; the flags are not kept.
.macro move_vectors direction, state
        cmpb    $32, machine_width(%rip)
        ja      3f
        je      2f
        .irp    n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15
        move_\direction movdqu, %xmm\n, \state+MACHINE_VECTOR+64*\n
        .endr
        jmp     4f
2:      .irp    n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15
        move_\direction vmovdqu, %ymm\n, \state+MACHINE_VECTOR+64*\n
        .endr
        jmp     4f
3:      .irp    n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31
        move_\direction vmovdqu64, %zmm\n, \state+MACHINE_VECTOR+64*\n
        .endr
        .irp    n, 0, 1, 2, 3, 4, 5, 6, 7
        move_\direction kmovw, %k\n, \state+MACHINE_MASK+8*\n
        .endr
4:
.endm

.macro move_load instruction, register, place
        \instruction \place(%rip), \register
.endm
.macro move_store instruction, register, place
        \instruction \register, \place(%rip)
.endm

.macro move_caller_saved direction, state
        move_\direction movq, %rax, \state+MACHINE_GENERAL+0
        move_\direction movq, %rcx, \state+MACHINE_GENERAL+16
        move_\direction movq, %rdx, \state+MACHINE_GENERAL+24
        move_\direction movq, %rsi, \state+MACHINE_GENERAL+32
        move_\direction movq, %rdi, \state+MACHINE_GENERAL+40
        move_\direction movq, %r8, \state+MACHINE_GENERAL+56
        move_\direction movq, %r9, \state+MACHINE_GENERAL+64
        move_\direction movq, %r10, \state+MACHINE_GENERAL+72
        move_\direction movq, %r11, \state+MACHINE_GENERAL+80
.endm

.macro move_callee_saved direction, state
        move_\direction movq, %rbx, \state+MACHINE_GENERAL+8
        move_\direction movq, %rbp, \state+MACHINE_GENERAL+48
        move_\direction movq, %r12, \state+MACHINE_GENERAL+88
        move_\direction movq, %r13, \state+MACHINE_GENERAL+96
        move_\direction movq, %r14, \state+MACHINE_GENERAL+104
        move_\direction movq, %r15, \state+MACHINE_GENERAL+112
.endm

.macro store_control state
        pushfq
        popq    \state+MACHINE_FLAGS(%rip)
        stmxcsr \state+MACHINE_MXCSR(%rip)
        fnstcw  \state+MACHINE_X87_CONTROL(%rip)
.endm

        .text
// void machine_call(void): calls machine_callee with machine_before, and stores what came back in machine_after.
        .globl  machine_call
        .type   machine_call, @function
machine_call:
        .cfi_startproc
        .irp    r, rbx, rbp, r12, r13, r14, r15
        pushq   %\r
        .cfi_adjust_cfa_offset 8
        .endr
        subq    $8, %rsp                        // aligned as the psABI wants it before a call
        .cfi_adjust_cfa_offset 8
        move_vectors load, machine_before
        move_caller_saved load, machine_before
        move_callee_saved load, machine_before
        call    *machine_callee(%rip)
        move_caller_saved store, machine_after
        move_callee_saved store, machine_after
        store_control machine_after
        move_vectors store, machine_after
        addq    $8, %rsp
        .cfi_adjust_cfa_offset -8
        .irp    r, r15, r14, r13, r12, rbp, rbx
        popq    %\r
        .cfi_adjust_cfa_offset -8
        .endr
        ret
        .cfi_endproc
        .size   machine_call, . - machine_call

// The body of every victim: stores what it finds in machine_inside, and returns with what machine_result has for the
// caller-saved registers.
        .globl  machine_body
        .type   machine_body, @function
machine_body:
        .cfi_startproc
        move_caller_saved store, machine_inside
        move_callee_saved store, machine_inside
        store_control machine_inside
        move_vectors store, machine_inside
        move_vectors load, machine_result
        move_caller_saved load, machine_result
        ret
        .cfi_endproc
        .size   machine_body, . - machine_body

        .bss
        .balign 64
        .irp    name, before, inside, result, after
        .globl  machine_\name
        .type   machine_\name, @object
        .size   machine_\name, MACHINE_SIZE
machine_\name:
        .zero   MACHINE_SIZE
        .endr
        .globl  machine_callee, machine_width
        .type   machine_callee, @object
        .type   machine_width, @object
        .size   machine_callee, 8
        .size   machine_width, 1
machine_callee:
        .zero   8
machine_width:
        .zero   1
        .section .note.GNU-stack, "", @progbits
