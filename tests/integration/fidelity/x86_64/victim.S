// A function with a site and no body of its own: it goes on in the program that loaded it.
//
//     SITE_ONE_BYTE_NOPS    as gcc's attribute leaves them, else one long nop, as clang does
//     SITE_CALL             as gcc -pg -mfentry leaves it
//     WIDE                  the module has code that moves wide vectors (never run)
//     WIDE_ARITHMETIC       it has code that only computes with them
        .text
        .globl  victim
        .type   victim, @function
        .balign 16
victim:
        .cfi_startproc
#if defined(SITE_CALL)
        call    *__fentry__@GOTPCREL(%rip)
#elif defined(SITE_ONE_BYTE_NOPS)
        .rept   5
        nop
        .endr
#else
        .byte   0x0f, 0x1f, 0x44, 0x00, 0x08    // nopl 8(%rax,%rax)
#endif
        jmp     *machine_body@GOTPCREL(%rip)
        .cfi_endproc
        .size   victim, . - victim

#ifdef WIDE
        .globl  wide
        .type   wide, @function
        .balign 16
wide:
        .cfi_startproc
        movb    $0xc5, %al                      // an opcode byte that starts no instruction here
        vmovups (%rdi), %ymm0
        vmovups %ymm0, (%rsi)
        vzeroupper
        ret
        .cfi_endproc
        .size   wide, . - wide
#endif
#ifdef WIDE_ARITHMETIC
        .globl  wide
        .type   wide, @function
        .balign 16
wide:
        .cfi_startproc
        vfmadd132pd %ymm1, %ymm2, %ymm0
        ret
        .cfi_endproc
        .size   wide, . - wide
#endif
        .section .note.GNU-stack, "", @progbits
