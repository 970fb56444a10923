// Functions whose sites lie at every offset of a cache line, in each form that compilers and linkers leave; and at the
// end of a page, so that the site crosses it.
//
//   call        e8 rel32             call __fentry__
//   got         ff 15 disp32         call *__fentry__@GOTPCREL(%rip); a linker may relax it to 67 e8 or 90 e8
//   gcc_nops    90 90 90 90 90       recorded in __patchable_function_entries
//   clang_nop   0f 1f 44 00 08       likewise
//   tail        e8 rel32             and then a jump to the `call` function of the same offset: two sites, one return
//   page        e8 rel32             at the offsets 4092 ... 4095 of a page; others of the 64 are at 4032 ... 4091
//
// Each returns constant + rdi + 2 rsi + rdx + rcx + r8 + r9, constant = 64 * family + offset (`tail`: of its target), so
// that a lost argument or a wrong function shows in the result.
        .altmacro

        .macro  record_patchable
        .pushsection __patchable_function_entries, "awo", @progbits, .text
        .balign 8
        .quad   1f
        .popsection
1:
        .endm

        .macro  site_call
        call    __fentry__
        .endm
        .macro  site_got
        call    *__fentry__@GOTPCREL(%rip)
        .endm
        .macro  site_gcc_nops
        record_patchable
        .byte   0x90, 0x90, 0x90, 0x90, 0x90
        .endm
        .macro  site_clang_nop
        record_patchable
        .byte   0x0f, 0x1f, 0x44, 0x00, 0x08
        .endm

        .macro  body constant
        leaq    \constant(%rdi,%rsi,2), %rax
        addq    %rdx, %rax
        addq    %rcx, %rax
        addq    %r8, %rax
        addq    %r9, %rax
        ret
        .endm

        // One function with its site at `skip` behind an `align` boundary; the table in .data.rel.ro gets its address.
        .macro  begin_function name, offset, align, skip
        .balign \align, 0xcc
        .fill   \skip, 1, 0xcc
        .globl  storm_\name\()_\offset
        .type   storm_\name\()_\offset, @function
storm_\name\()_\offset:
        .cfi_startproc
        .pushsection .data.rel.ro.storm, "aw", @progbits
        .quad   storm_\name\()_\offset
        .popsection
        .endm
        .macro  end_function name, offset
        .cfi_endproc
        .size   storm_\name\()_\offset, . - storm_\name\()_\offset
        .endm

        .macro  function name, site, family, offset, align, skip
        begin_function \name, \offset, \align, \skip
        site_\site
        body    (64*\family+\offset)
        end_function \name, \offset
        .endm
        .macro  tail_function offset
        begin_function tail, \offset, 64, \offset
        site_call
        jmp     storm_call_\offset
        end_function tail, \offset
        .endm
        // A page for each would be 256 KiB: only the last five have one, sites of the others lie inside a line.
        .macro  page_function offset
        .if     \offset > 58
        function page, call, 5, \offset, 4096, (4032+\offset)
        .else
        function page, call, 5, \offset, 64, \offset
        .endif
        .endm

        .pushsection .data.rel.ro.storm, "aw", @progbits
        .globl  storm_functions
        .type   storm_functions, @object
        .balign 8
storm_functions:
        .popsection

        .text
        .globl  storm_text
storm_text:
        .set    family, 0
        .irp    name, call, got, gcc_nops, clang_nop
        .set    offset, 0
        .rept   64
        function \name, \name, %family, %offset, 64, %offset
        .set    offset, offset + 1
        .endr
        .set    family, family + 1
        .endr
        .set    offset, 0
        .rept   64
        tail_function %offset
        .set    offset, offset + 1
        .endr
        .set    offset, 0
        .rept   64
        page_function %offset
        .set    offset, offset + 1
        .endr
        .globl  storm_text_end
storm_text_end:

        .section .note.GNU-stack, "", @progbits
