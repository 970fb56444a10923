# Code that looks like sites and is none, and sites that look odd.  Names tell what a scan must make of them; every name
# that starts with site_ has a site of its own, at the label ip_<name> where that is not the function's first byte.
	.text
	.macro function name
	.globl	\name
	.type	\name, @function
\name:
	.cfi_startproc
	.endm
	.macro end name
	ret
	.cfi_endproc
	.size	\name, . - \name
	.endm

	.hidden	__fentry__, mcount
	function __fentry__
	end	__fentry__
	function mcount
	end	mcount

# mold relaxes ff 15 to 90 e8: the nop belongs to the site.
	function site_mold
	nop
	call	__fentry__
	end	site_mold

# The same bytes, but the nop is padding in front of the function.
	.p2align 4
	ret
	.p2align 4,,15
	.fill	15, 1, 0x90
	.byte	0x90
	function site_behind_padding
	call	__fentry__
	end	site_behind_padding

# The same with 67, which ends something else here.
	.byte	0x67
	function site_behind_67
	call	__fentry__
	end	site_behind_67

	function site_mold_endbr
	endbr64
ip_site_mold_endbr:
	nop
	call	__fentry__
	end	site_mold_endbr

	function site_mold_nested
	push	%r10
ip_site_mold_nested:
	nop
	call	__fentry__
	pop	%r10
	end	site_mold_nested

	function site_nested_endbr
	push	%r10
	endbr64
ip_site_nested_endbr:
	.byte	0x67
	call	__fentry__
	pop	%r10
	end	site_nested_endbr

# A push that no pop follows is the function's own: its call is no entry's.
	function elsewhere_push
	push	%r10
	call	__fentry__
	add	$8, %rsp
	end	elsewhere_push

	function elsewhere_call
	xor	%eax, %eax
	call	__fentry__
	end	elsewhere_call

# -pg calls: behind a frame's set-up; in front of it, where no return slot can be found; behind a store whose last byte
# is no prefix of the call.
	function site_pg
	push	%rbp
	mov	%rsp, %rbp
ip_site_pg:
	call	mcount
	pop	%rbp
	end	site_pg
	function frameless_call
	sub	$8, %rsp
	call	mcount
	add	$8, %rsp
	end	frameless_call
	function popped_call
	push	%rbp
	mov	%rsp, %rbp
	push	%rbx
	test	%edi, %edi
	je	1f
	pop	%rbx
	pop	%rbp
	ret
1:	pop	%rbx
	pop	%rbp
	call	mcount
	end	popped_call
	function site_pg_behind_90
	push	%rbp
	mov	%rsp, %rbp
	mov	%rbx, -0x70(%rbp)
ip_site_pg_behind_90:
	call	mcount
	pop	%rbp
	end	site_pg_behind_90
	function site_pg_mold
	push	%rbp
	mov	%rsp, %rbp
	push	%rbx
ip_site_pg_mold:
	nop
	call	mcount
	pop	%rbx
	pop	%rbp
	end	site_pg_mold
	function site_pg_realigned
	lea	8(%rsp), %r10
	and	$-64, %rsp
	push	-8(%r10)
	push	%rbp
	mov	%rsp, %rbp
	push	%r15
	push	%r10
	sub	$64, %rsp
ip_site_pg_realigned:
	call	mcount
	mov	-16(%rbp), %r10
	leave
	lea	-8(%r10), %rsp
	end	site_pg_realigned

# Data between functions, and inside one.
	.type	data_in_text, @object
data_in_text:
	.byte	0x67, 0xe8
	.long	__fentry__ - . - 4
	.byte	0xff, 0x15
	.long	__fentry__ - . - 4
	.size	data_in_text, . - data_in_text
	function data_in_function
	lea	1f(%rip), %rax
	jmp	*%rax
	.byte	0xe8
	.long	__fentry__ - . - 4
1:
	end	data_in_function

# A call one byte into another instruction's immediate.
	function call_in_immediate
	mov	$0xe8, %al
	.byte	0xb8			# mov $imm32, %eax
	.long	0
	end	call_in_immediate

# Nops.
	function site_nops
	.fill	5, 1, 0x90
	xor	%eax, %eax
	end	site_nops

# The sixth nop aligns the loop behind the site: the site is the first five.
	function site_nops_then_loop
	.fill	5, 1, 0x90
1:	nop
	dec	%edi
	jnz	1b
	end	site_nops_then_loop

	function jumped_into
	.fill	2, 1, 0x90
1:	.fill	4, 1, 0x90
	dec	%edi
	jnz	1b
	end	jumped_into

# Bytes of a jump into the nops, but inside an immediate.
	function site_looks_jumped_into
	.fill	5, 1, 0x90
	mov	$0xfbeb, %eax		# b8 eb fb: a jump to site + 3, were it one
	end	site_looks_jumped_into

	function site_clang
	.byte	0x0f, 0x1f, 0x44, 0x00, 0x08
	end	site_clang

	function site_nop_mcount
	endbr64
ip_site_nop_mcount:
	.byte	0x0f, 0x1f, 0x44, 0x00, 0x00
	end	site_nop_mcount

	function site_nop_mcount_nested
	push	%r10
ip_site_nop_mcount_nested:
	.byte	0x0f, 0x1f, 0x44, 0x00, 0x00
	pop	%r10
	end	site_nop_mcount_nested

# A long nop as an assembler aligns a loop with, in a module without a section for such places.
	function padding_nop
	.byte	0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0
	end	padding_nop

	function short_nops
	.fill	4, 1, 0x90
	xor	%eax, %eax
	end	short_nops

	.section .note.GNU-stack, "", @progbits
