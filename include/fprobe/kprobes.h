/* SPDX-License-Identifier: MIT */
/*
 * kprobes.h - the guard shared with FPROBE_FL_KPROBE_SHARED probes.
 *
 * In the kernel a callback shared between an fprobe and a kprobe must not nest, and `kprobe_running()` tells whether
 * one runs on this CPU. Here "this CPU" is "this thread": a probe with FPROBE_FL_KPROBE_SHARED does not fire while
 * kprobe_running() is true on its thread (counted as FPROBE_MISS_KPROBE), and it is true inside such a probe's
 * handlers.
 *
 * All three functions are thread-safe and async-signal-safe and cannot fail.
 */
#ifndef FPROBE_KPROBES_H
#define FPROBE_KPROBES_H

#include <stdbool.h>

#ifndef FPROBE_API
#define FPROBE_API __attribute__((visibility("default")))
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* True between kprobe_busy_begin() and its end on the calling thread, and inside a handler of a shared probe. */
FPROBE_API bool kprobe_running(void);

/* Makes kprobe_running() true on the calling thread until the matching kprobe_busy_end(). Nests. */
FPROBE_API void kprobe_busy_begin(void);

/* Ends the innermost kprobe_busy_begin(). One without a beginning is ignored. */
FPROBE_API void kprobe_busy_end(void);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* FPROBE_KPROBES_H */
