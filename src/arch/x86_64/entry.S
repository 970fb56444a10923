// The entry half of a hit, between a thunk's head and its tail.  Two doors: for sites that are a function's first
// instruction, and for sites behind a prologue (-pg); and for each another one where every register is kept (r11 too).
//
// On arrival (jmp from a thunk):
//     r11        the Site
//     (%rsp)     first door: the return slot, the true return address into the caller (a thunk popped a nested
//                function's chain); second door: anything, the function's frame is found through rbp.
//                Where every register is kept the caller's r11 lies below it: that door pops it
//     live       rdi rsi rdx rcx r8 r9, al (varargs), r10 (static chain), vector registers (saved by dispatch if a
//                handler needs it: vectors.h), and everything callee-saved
//
// The stack after saving; CFA is rsp on arrival and "our return address" is the function itself, so a backtrace from a
// handler shows the function, then its caller, and never a thunk:
//
//     rsp        on arrival             (first door: the slot; dispatch replaces it by the stub when an exit is due)
//     rsp-8      site.resume            ◄─ return address of this frame in the eyes of an unwinder
//     rsp-16     rbp on arrival         ◄─ rbp
//     rsp-24     on the way in the caller's r11, on the way out the stub to plant or where to go on
//     ...        ftrace_regs            ◄─ rsp, 16-byte aligned
#include "asm.h"

#define FRAME_SIZE (REGS_SIZE + 16)

// Everything that both doors save, behind the push of site.resume; rdi: site, rsi: regs, rdx: rsp on arrival.
.macro save_hit
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
        movq    (%rbp), %rax
        movq    %rax, REGS_BP(%rsp)
        leaq    16(%rbp), %rdx
        movq    %rdx, REGS_SP(%rsp)
        movq    %r11, %rdi
        movq    %rsp, %rsi
.endm

// Everything but rdx and the stack pointer; r11: where to go on.
.macro restore_hit
        movq    REGS_R10(%rsp), %r10
        movq    REGS_AX(%rsp), %rax
        movq    REGS_R9(%rsp), %r9
        movq    REGS_R8(%rsp), %r8
        movq    REGS_CX(%rsp), %rcx
        movq    REGS_SI(%rsp), %rsi
        movq    REGS_DI(%rsp), %rdi
.endm

.macro leave_hit
        movq    %rbp, %rsp
        .cfi_def_cfa_register %rsp
        popq    %rbp
        .cfi_adjust_cfa_offset -8
        .cfi_restore %rbp
.endm

fprobe_function fprobe_entry_code
        .cfi_startproc
        // Before the push CFA = rsp+8 names the caller; after it the same rule names the function.
        pushq   SITE_RESUME(%r11)
        save_hit
        call    fprobe_enter                    // rax: where to go on, rdx: stub to plant or 0
        movq    %rax, %r11
        movq    %rdx, -8(%rbp)
        restore_hit
        testq   %rdx, %rdx
        movq    REGS_DX(%rsp), %rdx
        leave_hit
        jnz     .Lplant
        leaq    8(%rsp), %rsp                   // CFA = rsp+8 again names the caller
        jmp     *%r11
.Lplant:
        // Pop the return slot; the stub's call writes it anew: onto the stack, the return predictor and a hardware
        // shadow stack.  The stub's address lies below rsp, inside the red zone that signal handlers leave alone.
        leaq    16(%rsp), %rsp
        .cfi_def_cfa_offset 0
        jmp     *-32(%rsp)
        .cfi_endproc
fprobe_end fprobe_entry_code

fprobe_function fprobe_entry_keeping_all
        .cfi_startproc
        .cfi_def_cfa_offset 16
        popq    -24(%rsp)                       // counted from rsp after it
        .cfi_def_cfa_offset 8
        pushq   SITE_RESUME(%r11)
        save_hit
        movq    -8(%rbp), %rax
        movq    %rax, REGS_SCRATCH(%rsp)
        call    fprobe_enter                    // rax: where to go on, rdx: stub to plant or 0
        movq    %rdx, -8(%rbp)
        movq    %rax, %r11
        testq   %rdx, %rdx
        jnz     .Lplant_keeping_all
        movq    %rax, -8(%rbp)
        movq    REGS_SCRATCH(%rsp), %r11
        restore_hit
        movq    REGS_DX(%rsp), %rdx
        leave_hit
        leaq    8(%rsp), %rsp
        jmp     *-24(%rsp)
.Lplant_keeping_all:
        .cfi_def_cfa %rbp, 16                   // as before leave_hit
        .cfi_offset %rbp, -16
        // The stub's call needs r11 for the tail; the exit gives the caller its own back.
        restore_hit
        movq    REGS_DX(%rsp), %rdx
        leave_hit
        leaq    16(%rsp), %rsp
        .cfi_def_cfa_offset 0
        jmp     *-32(%rsp)
        .cfi_endproc
fprobe_end fprobe_entry_keeping_all

// The frame stays as it is: a return slot there can only be overwritten.
fprobe_function fprobe_entry_behind_prologue
        .cfi_startproc
        // Before the push the frame pointer leads to the caller.
        .cfi_def_cfa %rbp, 16
        .cfi_offset %rbp, -16
        pushq   SITE_RESUME(%r11)
        .cfi_def_cfa %rsp, 8
        .cfi_restore %rbp
        save_hit
        call    fprobe_enter_behind_prologue    // rax: where to go on
        movq    %rax, %r11
        restore_hit
        movq    REGS_DX(%rsp), %rdx
        leave_hit
        leaq    8(%rsp), %rsp
        .cfi_def_cfa %rbp, 16
        .cfi_offset %rbp, -16
        jmp     *%r11
        .cfi_endproc
fprobe_end fprobe_entry_behind_prologue

fprobe_function fprobe_entry_behind_prologue_keeping_all
        .cfi_startproc
        .cfi_def_cfa %rbp, 16
        .cfi_offset %rbp, -16
        popq    -24(%rsp)
        pushq   SITE_RESUME(%r11)
        .cfi_def_cfa %rsp, 8
        .cfi_restore %rbp
        save_hit
        movq    -8(%rbp), %rax
        movq    %rax, REGS_SCRATCH(%rsp)
        call    fprobe_enter_behind_prologue    // rax: where to go on
        movq    %rax, -8(%rbp)
        movq    REGS_SCRATCH(%rsp), %r11
        restore_hit
        movq    REGS_DX(%rsp), %rdx
        leave_hit
        leaq    8(%rsp), %rsp
        .cfi_def_cfa %rbp, 16
        .cfi_offset %rbp, -16
        jmp     *-24(%rsp)
        .cfi_endproc
fprobe_end fprobe_entry_behind_prologue_keeping_all

// --- Where a hit goes on whose body is skipped -------------------------------------------------------------------------
//
// The return values are in place, the slot holds the true return address.
fprobe_function fprobe_skip_body
        .cfi_startproc
        ret
        // As a return address (never executed): stands for the function in an unwinding that leaves an entry handler.
        .globl  fprobe_unentered
        .hidden fprobe_unentered
fprobe_unentered:
        int3
        .cfi_endproc
fprobe_end fprobe_skip_body

// Behind a prologue that changed no callee-saved register but rbp; r10: the slot.
fprobe_function fprobe_skip_behind_prologue
        .cfi_startproc
        .cfi_def_cfa %rbp, 16
        .cfi_offset %rbp, -16
        movq    (%rbp), %rbp
        .cfi_def_cfa %r10, 8
        .cfi_restore %rbp
        movq    %r10, %rsp
        .cfi_def_cfa %rsp, 8
        ret
        .cfi_def_cfa %rbp, 16
        .cfi_offset %rbp, -16
        // The same in place of a function behind its prologue; an unwinder looks at the byte in front of the label.
        .globl  fprobe_unentered_behind_prologue
        .hidden fprobe_unentered_behind_prologue
        int3
fprobe_unentered_behind_prologue:
        int3
        .cfi_endproc
fprobe_end fprobe_skip_behind_prologue

// The same for a hit that goes on in another function, as if that had been called, static chain included.  Below rsp, where
// the entry code's frame was: at -8 where to go on, at -24 the slot.
fprobe_function fprobe_continue_elsewhere
        .cfi_startproc
        .cfi_escape 0x0f, 5, 0x77, 0x68, 0x06, 0x23, 8  // DW_CFA_def_cfa_expression: breg7 -24 deref plus_uconst 8
        .cfi_escape 0x10, 6, 2, 0x76, 0x00              // DW_CFA_expression: rbp is saved at (%rbp)
        movq    (%rbp), %rbp                            // while the frame is still above rsp: signals
        .cfi_restore %rbp
        movq    -8(%rsp), %r11
        movq    -24(%rsp), %rsp
        .cfi_def_cfa %rsp, 8
        jmp     *%r11
        .cfi_endproc
fprobe_end fprobe_continue_elsewhere

// Stand for a function behind a realigning prologue, whose caller's stack pointer was saved `word` words below rbp: two
// bytes each, see hide_function().
fprobe_function fprobe_unentered_realigned
        .cfi_startproc
        .irp    word, 1, 2, 3, 4, 5, 6
        .cfi_escape 0x0f, 3, 0x76, 128 - 8 * \word, 0x06       // DW_CFA_def_cfa_expression: breg6 -8*word deref
        .cfi_escape 0x10, 6, 2, 0x76, 0x00                     // DW_CFA_expression: rbp is saved at (%rbp)
        int3
        int3
        .endr
        .cfi_endproc
fprobe_end fprobe_unentered_realigned

// Behind code that may have changed them: the caller's lie in argument registers; r10: the slot.
fprobe_function fprobe_skip_unwound
        .cfi_startproc
        .cfi_def_cfa %r10, 8
        .cfi_offset %rbp, -16
        .cfi_register %rbx, %rdi
        .cfi_register %r12, %rsi
        .cfi_register %r13, %rcx
        .cfi_register %r14, %r8
        .cfi_register %r15, %r9
        movq    %rdi, %rbx
        movq    %rsi, %r12
        movq    %rcx, %r13
        movq    %r8, %r14
        movq    %r9, %r15
        movq    (%rbp), %rbp
        .cfi_restore %rbp
        movq    %r10, %rsp
        ret
        .cfi_endproc
fprobe_end fprobe_skip_unwound
