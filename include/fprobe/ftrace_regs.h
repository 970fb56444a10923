/* SPDX-License-Identifier: MIT */
/*
 * ftrace_regs.h - what a handler can read and change of a probed call.
 *
 * A `struct ftrace_regs` is handed to every handler and is valid only until that handler returns. It is opaque: its
 * layout belongs to the processor and may change between versions.
 *
 *   at entry: the arguments as the caller passed them; instruction pointer = entry_ip; the stack pointer as the call
 *             instruction left it (on x86-64 it points at the return address).
 *   at exit:  the return values; instruction pointer = ret_ip; the stack pointer as it is after the return.
 *
 * Changes of arguments made at entry and of return values made at exit take effect when the handlers are done. Names
 * and meanings follow <linux/ftrace_regs.h>; the floating-point, second-value and return-address accessors are
 * additions of userspace. Register assignment is that of the processor's psABI: `n` counts integer and pointer
 * arguments apart from floating-point ones, each from 0.
 *
 * Every function here is thread-safe and async-signal-safe, takes no lock, allocates nothing and cannot fail otherwise
 * than stated. `fregs` must not be NULL.
 */
#ifndef FPROBE_FTRACE_REGS_H
#define FPROBE_FTRACE_REGS_H

#include <stdbool.h>

#ifndef FPROBE_API
#define FPROBE_API __attribute__((visibility("default")))
#endif

#ifdef __cplusplus
extern "C" {
#endif

struct ftrace_regs;

/* For <fprobe/fprobe.hpp>: the file that assigns C++ arguments and results to this processor's registers. */
#if defined(__x86_64__)
/* NOLINTNEXTLINE(bugprone-macro-parentheses): the name of a file */
#define FPROBE_PSABI_HEADER <fprobe/detail/psabi_x86_64.hpp>
#endif

/*
 * True when integer or pointer argument `n` can be read: at entry for every argument in a register, and for those on
 * the stack. False at exit, for an `n` no call can have, and at sites whose prologue has moved the arguments already.
 */
FPROBE_API bool ftrace_regs_has_argument(const struct ftrace_regs* fregs, unsigned int n);

/*
 * The `n`-th integer or pointer argument. Those beyond the argument registers are read from the caller's stack; the
 * library cannot know how many were passed, so an `n` the callee does not have reads whatever lies there. 0 when not
 * available (see ftrace_regs_has_argument). An argument narrower than `long` has undefined upper bits, as the psABI
 * says.
 */
FPROBE_API unsigned long ftrace_regs_get_argument(const struct ftrace_regs* fregs, unsigned int n);

/* Sets argument `n`, registers and stack alike, for later entry handlers and the function itself. Ignored where
 * ftrace_regs_has_argument() is false. */
FPROBE_API void ftrace_regs_set_argument(struct ftrace_regs* fregs, unsigned int n, unsigned long value);

/*
 * The integer or pointer return value (rax / x0). At exit: what the function returned; 0 when it was left by unwinding.
 * At entry: what an override by an earlier handler has set. A type narrower than `long` has undefined upper bits.
 */
FPROBE_API unsigned long ftrace_regs_get_return_value(const struct ftrace_regs* fregs);

/* Sets the return value; the last setter wins. At entry it matters only together with
 * ftrace_override_function_with_return(). */
FPROBE_API void ftrace_regs_set_return_value(struct ftrace_regs* fregs, unsigned long value);

/* The second integer return register (rdx / x1), for 16-byte structures and __int128. Otherwise as above. */
FPROBE_API unsigned long ftrace_regs_get_return_value2(const struct ftrace_regs* fregs);
FPROBE_API void ftrace_regs_set_return_value2(struct ftrace_regs* fregs, unsigned long value);

/* The `n`-th floating-point argument as a double (n = 0..7: xmm0..7 / d0..7). 0.0 when not available, and setting it is
 * ignored: at exit, at sites whose prologue has moved the arguments already, or if every probe of the function has
 * FPROBE_FL_GENERAL_REGS. From n = 8 on: the stack, as for a function of no other arguments there. */
FPROBE_API double ftrace_regs_get_fp_argument(const struct ftrace_regs* fregs, unsigned int n);
FPROBE_API void ftrace_regs_set_fp_argument(struct ftrace_regs* fregs, unsigned int n, double value);

/* The same register read as a float. A `float` argument must be read with this one: the two formats differ. Setting it
 * leaves the register's other bits as they were. */
FPROBE_API float ftrace_regs_get_fp_argument_float(const struct ftrace_regs* fregs, unsigned int n);
FPROBE_API void ftrace_regs_set_fp_argument_float(struct ftrace_regs* fregs, unsigned int n, float value);

/* The floating-point return value (xmm0 / d0), with the rules of ftrace_regs_get_return_value(). At exit 0.0, and setting
 * it is ignored, if every exit probe of the function has FPROBE_FL_GENERAL_REGS. The same goes for the four below. */
FPROBE_API double ftrace_regs_get_fp_return_value(const struct ftrace_regs* fregs);
FPROBE_API void ftrace_regs_set_fp_return_value(struct ftrace_regs* fregs, double value);

/* The same register as a float, for functions that return `float`. */
FPROBE_API float ftrace_regs_get_fp_return_value_float(const struct ftrace_regs* fregs);
FPROBE_API void ftrace_regs_set_fp_return_value_float(struct ftrace_regs* fregs, float value);

/* The second floating-point return register (xmm1 / d1), for structures of two doubles and complex numbers. */
FPROBE_API double ftrace_regs_get_fp_return_value2(const struct ftrace_regs* fregs);
FPROBE_API void ftrace_regs_set_fp_return_value2(struct ftrace_regs* fregs, double value);

/* entry_ip at entry, ret_ip at exit. */
FPROBE_API unsigned long ftrace_regs_get_instruction_pointer(const struct ftrace_regs* fregs);

/* At entry: once all entry handlers are done the thread goes on at `ip` instead of in the function, with the registers
 * and the stack as a call would leave them (so `ip` is a function that takes the same arguments). No effect at exit, nor
 * at a site whose prologue has moved the arguments already (clang's -pg). */
FPROBE_API void ftrace_regs_set_instruction_pointer(struct ftrace_regs* fregs, unsigned long ip);

/* The stack pointer at the call (entry) or after the return (exit). */
FPROBE_API unsigned long ftrace_regs_get_stack_pointer(const struct ftrace_regs* fregs);

/* The frame-pointer register (rbp / x29) as it was. Whether it holds a frame's address is up to the caller's code. */
FPROBE_API unsigned long ftrace_regs_get_frame_pointer(const struct ftrace_regs* fregs);

/* The true return address in the caller (= ret_ip) at both ends, never one of the library's stubs. */
FPROBE_API unsigned long ftrace_regs_get_return_address(const struct ftrace_regs* fregs);

/*
 * Byte offset of a register's 8-byte value from `fregs`, or -EINVAL for NULL and unknown names. On x86-64 both "di" (as
 * the kernel has it) and "rdi" are known.
 */
FPROBE_API int ftrace_regs_query_register_offset(const char* name);

/*
 * At entry: skip the function's body. The remaining entry handlers and all exit handlers run, and the caller receives
 * the values set by ftrace_regs_set_return_value() and its relatives (0 if nobody sets one). No effect at exit. Behind
 * clang's -pg prologue the caller's registers are found by unwinding: without unwind tables the body runs.
 */
FPROBE_API void ftrace_override_function_with_return(struct ftrace_regs* fregs);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* FPROBE_FTRACE_REGS_H */
