// The entry half of a hit that comes from a live call of __fentry__ or mcount: where text cannot be written, sites stay
// the calls that the compiler made of them.
//
// On arrival (jmp from mcount.S):
//     (%rsp)     site + length: our own return address
//     8(%rsp)    __fentry__: the return slot (a nested function's lies at 16(%rsp), its static chain at 8(%rsp));
//                mcount: anything, the function's frame is found through rbp
//     live       as in entry.S, r11 too: where every register is kept its function relies on it
//
// The frame is that of entry.S, whose word "where the function goes on" the call has pushed already:
//
//     rsp        on arrival             ◄─ our return address
//     rsp-8      rbp on arrival         ◄─ rbp
//     rsp-16     for regs_continue_at()
//     rsp-24     the CFA, rsp+8; a nested function's chain is lifted out of it during the hit
//     rsp-32     where the hit goes on instead, 48 bytes below the CFA: here for a nested function,
//     rsp-40     ... and here for others
//     ...        ftrace_regs            ◄─ rsp, 16-byte aligned
//
// A hit can only overwrite the return slot: the call must be returned from.
#include "asm.h"

#define FRAME_SIZE (REGS_SIZE + 32)

// Everything but rbp and the stack pointer.
.macro restore_hit
        movq    REGS_SCRATCH(%rsp), %r11
        movq    REGS_R10(%rsp), %r10
        movq    REGS_AX(%rsp), %rax
        movq    REGS_R9(%rsp), %r9
        movq    REGS_R8(%rsp), %r8
        movq    REGS_CX(%rsp), %rcx
        movq    REGS_DX(%rsp), %rdx
        movq    REGS_SI(%rsp), %rsi
        movq    REGS_DI(%rsp), %rdi
.endm

.macro live_call name, next, behind_prologue
fprobe_function \name
        .cfi_startproc
        pushq   %rbp
        .cfi_adjust_cfa_offset 8
        .cfi_rel_offset %rbp, 0
        movq    %rsp, %rbp
        .cfi_def_cfa_register %rbp
        subq    $FRAME_SIZE, %rsp
        andq    $-16, %rsp
        movq    %rdi, REGS_DI(%rsp)
        movq    %rsi, REGS_SI(%rsp)
        movq    %rdx, REGS_DX(%rsp)
        movq    %rcx, REGS_CX(%rsp)
        movq    %r8, REGS_R8(%rsp)
        movq    %r9, REGS_R9(%rsp)
        movq    %rax, REGS_AX(%rsp)
        movq    %r10, REGS_R10(%rsp)
        movq    %r11, REGS_SCRATCH(%rsp)
        movq    (%rbp), %rax
        movq    %rax, REGS_BP(%rsp)
        leaq    16(%rbp), %rax
        movq    %rax, REGS_SP(%rsp)
        movq    %rax, -16(%rbp)
        .cfi_remember_state
        .cfi_escape 0x0f, 3, 0x76, 0x70, 0x06   // DW_CFA_def_cfa_expression: breg6 -16 deref
        .cfi_escape 0x10, 6, 2, 0x76, 0x00      // DW_CFA_expression: rbp is saved at (%rbp)
        movq    %rsp, %rdi                      // rdi: regs
        leaq    -16(%rbp), %rsi                 // rsi: the CFA's word
        call    fprobe_enter_live               // rax: 0 or where to go on instead
        .cfi_restore_state
        testq   %rax, %rax
        jnz     1f
        restore_hit
        .cfi_remember_state
        movq    %rbp, %rsp
        .cfi_def_cfa_register %rsp
        popq    %rbp
        .cfi_adjust_cfa_offset -8
        .cfi_restore %rbp
        cmpq    $0, \next(%rip)
        jne     2f
        ret
2:      jmp     *\next(%rip)
1:      .cfi_restore_state
        // The call is never returned from: a hardware shadow stack forgets it.  (rdsspq leaves its operand alone where
        // there is none.)
        xorl    %ecx, %ecx
        rdsspq  %rcx
        testq   %rcx, %rcx
        jz      3f
        movl    $1, %ecx
        incsspq %rcx
3:      movq    -16(%rbp), %rcx
        movq    %rax, -48(%rcx)
        restore_hit
        // What is read below rsp from here on lies in the red zone, which signal handlers leave alone.
        movq    -16(%rbp), %rsp
        movq    (%rbp), %rbp
        .if     \behind_prologue
        .cfi_def_cfa %rbp, 16
        .else
        .cfi_def_cfa %rsp, 8
        .cfi_restore %rbp
        .endif
        jmp     *-48(%rsp)
        .cfi_endproc
fprobe_end \name
.endm

live_call fprobe_live_entry, fprobe_next_fentry, 0
live_call fprobe_live_behind_prologue, fprobe_next_mcount, 1
