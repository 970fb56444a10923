// The exit half of a hit: return stubs, the exit code they lead to, and the landing of an exception.
#include "asm.h"

#define STUB_PAGES 32
#define STUBS_PER_PAGE 255
#define FRAME_SIZE (REGS_SIZE + 16)

// --- Return stubs ------------------------------------------------------------------------------------------------------
//
//   page:   0     distance from the page to (its part of fprobe_thread_table) - 8, a link-time constant
//           16*i  stub of thread page*255 + i-1:   call *%r11       plants: writes its own return address into the slot
//                                                  mov  $t, %r11d   ◄─ where the function returns to
//                                                  jmp  fprobe_return_code
//
// A zero-size frame: CFA = rsp.  Its return address is found by an expression (DWARF 5, 6.4.2.3 DW_CFA_expression: gives
// the address where the register is saved), which every consumer evaluates from pc and CFA alone:
//     key = CFA - 8, the slot;   header = thread_table[stub of pc];
//     header.hint if its slot is key, else the first record from header.top by prev whose slot is key or 0.
// No DW_OP_nop (LLVM lacks it); DW_OP_pick always has a spare element below (libgcc asserts it).
        .balign 4096
        .globl  fprobe_stubs
        .hidden fprobe_stubs
        .type   fprobe_stubs, @function
fprobe_stubs:
        .cfi_startproc
        .cfi_personality 0x1b, fprobe_stub_personality
        .cfi_def_cfa %rsp, 0
        .cfi_escape 0x10, 16, 57                // DW_CFA_expression r16, 57 bytes      CFA
        .cfi_escape 0x12, 0x38, 0x1c            // dup lit8 minus                       CFA key
        .cfi_escape 0x80, 0x00, 0x12            // breg16+0 dup                         CFA key pc pc
        .cfi_escape 0x0a, 0xf0, 0x0f, 0x1a      // const2u 0xff0 and
        .cfi_escape 0x31, 0x25, 0x16            // lit1 shr swap                        CFA key 8*i pc
        .cfi_escape 0x0b, 0x00, 0xf0, 0x1a      // const2s -4096 and                    CFA key 8*i page
        .cfi_escape 0x12, 0x06, 0x22, 0x22, 0x06  // dup deref plus plus deref          CFA key header
        .cfi_escape 0x12, 0x23, 24, 0x06        // dup plus_uconst 24 deref             CFA key header hint
        .cfi_escape 0x12, 0x23, 8, 0x06         // dup plus_uconst 8 deref
        .cfi_escape 0x15, 3, 0x29               // pick 3 eq
        .cfi_escape 0x28, 21, 0                 // bra END
        .cfi_escape 0x13                        // drop                                 CFA key header
        .cfi_escape 0x23, 16, 0x06              // LOOP: plus_uconst 16 deref           CFA key record
        .cfi_escape 0x12, 0x23, 8, 0x06         // dup plus_uconst 8 deref
        .cfi_escape 0x15, 2, 0x29               // pick 2 eq
        .cfi_escape 0x28, 7, 0                  // bra END
        .cfi_escape 0x12, 0x23, 8, 0x06         // dup plus_uconst 8 deref
        .cfi_escape 0x28, 0xec, 0xff            // bra LOOP
                                                // END: the top is the address of the return address
        .set    page, 0
        .rept   STUB_PAGES
        .quad   fprobe_thread_table + 8 * (page * STUBS_PER_PAGE - 1) - .
        .quad   0
        .set    stub, 0
        .rept   STUBS_PER_PAGE
        call    *%r11
        movl    $(page * STUBS_PER_PAGE + stub), %r11d
        jmp     fprobe_return_code
        .balign 16
        .set    stub, stub + 1
        .endr
        .set    page, page + 1
        .endr
        .cfi_endproc
        .size   fprobe_stubs, . - fprobe_stubs

// --- The exit code -----------------------------------------------------------------------------------------------------
//
// On arrival (jmp from a stub):
//     r11d       the stub's thread
//     rsp        as after the function's return: slot + 8; the slot still holds the stub
//     live       rax rdx, xmm0-1 (return values: saved by dispatch if a handler needs it), x87 st0-1, everything
//                callee-saved; once a site is armed whose callers rely on it, every register but r11
//
// CFA = rsp+8 with the slot at CFA-8: an unwinder goes from here to the stub, and by its expression to the caller; once
// fprobe_leave wrote the true address into the slot, straight to the caller.  `ret` pops what the caller's call pushed on
// the return predictor; where the slot had been overwritten instead of planted, the function's own return popped that.
fprobe_function fprobe_return_code
        .cfi_startproc
        .cfi_def_cfa_offset 0
        leaq    -8(%rsp), %rsp
        .cfi_def_cfa_offset 8
        pushq   %rbp
        .cfi_adjust_cfa_offset 8
        .cfi_rel_offset %rbp, 0
        movq    %rsp, %rbp
        .cfi_def_cfa_register %rbp
        subq    $FRAME_SIZE, %rsp
        andq    $-16, %rsp
        movq    %rax, REGS_AX(%rsp)
        movq    %rdx, REGS_DX(%rsp)
        movq    (%rbp), %rax
        movq    %rax, REGS_BP(%rsp)
        leaq    16(%rbp), %rax
        movq    %rax, REGS_SP(%rsp)
        cmpb    $0, fprobe_exits_keep_all(%rip)
        jne     .Lkeep_all
        movl    %r11d, %edi                     // edi: thread of the stub
        movq    %rsp, %rsi                      // rsi: regs
        call    fprobe_leave                    // writes the true return address into the slot; al: it was planted
.Lleave:
        testb   %al, %al
        movq    REGS_DX(%rsp), %rdx
        movq    REGS_AX(%rsp), %rax
        .cfi_remember_state
        movq    %rbp, %rsp
        .cfi_def_cfa_register %rsp
        popq    %rbp
        .cfi_adjust_cfa_offset -8
        .cfi_restore %rbp
        jz      .Loverwritten
        ret
.Loverwritten:
        leaq    8(%rsp), %rsp
        .cfi_def_cfa_offset 0
        jmp     *-8(%rsp)
.Lkeep_all:
        .cfi_restore_state
        movq    %rdi, REGS_DI(%rsp)
        movq    %rsi, REGS_SI(%rsp)
        movq    %rcx, REGS_CX(%rsp)
        movq    %r8, REGS_R8(%rsp)
        movq    %r9, REGS_R9(%rsp)
        movq    %r10, REGS_R10(%rsp)
        movl    %r11d, %edi
        movq    %rsp, %rsi
        call    fprobe_leave_keeping_all        // and fills in the caller's r11
        movq    REGS_DI(%rsp), %rdi
        movq    REGS_SI(%rsp), %rsi
        movq    REGS_CX(%rsp), %rcx
        movq    REGS_R8(%rsp), %r8
        movq    REGS_R9(%rsp), %r9
        movq    REGS_R10(%rsp), %r10
        movq    REGS_SCRATCH(%rsp), %r11
        jmp     .Lleave
        .cfi_endproc
fprobe_end fprobe_return_code

// Never back to 0: frames may be on their way.
        .bss
        .globl  fprobe_exits_keep_all
        .hidden fprobe_exits_keep_all
        .type   fprobe_exits_keep_all, @object
        .size   fprobe_exits_keep_all, 1
fprobe_exits_keep_all:
        .zero   1
        .text

// --- The landing of an exception ---------------------------------------------------------------------------------------
//
// Where the stub's personality sends an unwinding whose handler frame is the hijacked function's caller (a zero-size frame
// has its caller's identity, so the unwinder takes the stub for the handler).  Goes on with the unwinding as if the caller's
// call instruction had called _Unwind_Resume.
//     rax        the exception object
//     rdx        the true return address
//     rsp        slot + 8
        .globl  fprobe_landing
        .hidden fprobe_landing
        .type   fprobe_landing, @function
        .balign 16
fprobe_landing:
        .cfi_startproc
        .cfi_def_cfa_offset 0
        .cfi_undefined %rip
        pushq   %rdx
        .cfi_def_cfa_offset 8
        .cfi_offset %rip, -8
        movq    %rax, %rdi                      // rdi: exception
        jmp     _Unwind_Resume@PLT
        .cfi_endproc
fprobe_end fprobe_landing
