// The entry half of a hit, between a thunk's head and its tail.
//
// On arrival (jmp from a thunk):
//     r11        the Site
//     (%rsp)     the return slot: the true return address into the caller (a thunk popped a nested function's chain)
//     live       rdi rsi rdx rcx r8 r9, al (varargs), r10 (static chain), xmm0-7, and everything callee-saved
//
// The stack after saving; CFA is the slot's address and "our return address" is the function itself, so a backtrace from
// a handler shows the function, then its caller, and never a thunk:
//
//     slot       true return address        (dispatch replaces it by the stub when an exit is due)
//     slot-8     site.resume                ◄─ return address of this frame in the eyes of an unwinder
//     slot-16    caller's rbp               ◄─ rbp
//     slot-24    the stub to plant
//     ...        ftrace_regs                ◄─ rsp, 16-byte aligned
#include "asm.h"

#define FRAME_SIZE (REGS_SIZE + 16)

fprobe_function fprobe_entry_code
        .cfi_startproc
        // Before the push CFA = rsp+8 names the caller; after it the same rule names the function.
        pushq   SITE_RESUME(%r11)
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
        save_vectors 0, 7
        movq    (%rbp), %rax
        movq    %rax, REGS_BP(%rsp)
        leaq    16(%rbp), %rax
        movq    %rax, REGS_SP(%rsp)
        movq    %r11, %rdi                      // rdi: site
        movq    %rsp, %rsi                      // rsi: regs
        call    fprobe_enter                    // rax: where to go on, rdx: stub to plant or 0
        movq    %rax, %r11
        movq    %rdx, -8(%rbp)
        restore_vectors 0, 7
        movq    REGS_R10(%rsp), %r10
        movq    REGS_AX(%rsp), %rax
        movq    REGS_R9(%rsp), %r9
        movq    REGS_R8(%rsp), %r8
        movq    REGS_CX(%rsp), %rcx
        movq    REGS_SI(%rsp), %rsi
        movq    REGS_DI(%rsp), %rdi
        testq   %rdx, %rdx
        movq    REGS_DX(%rsp), %rdx
        movq    %rbp, %rsp
        .cfi_def_cfa_register %rsp
        popq    %rbp
        .cfi_adjust_cfa_offset -8
        .cfi_restore %rbp
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

// Where a hit goes on whose body is skipped: the return values are in place, the slot holds the true return address.
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
