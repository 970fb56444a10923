// Function attributes of the library, in one place.
//
// Code that runs on a probe hit must not be probed, sanitized or profiled itself: it runs between the target's
// instructions, and a site or a sanitizer call inside it would recurse.  Everything marked FPROBE_HOT lives in the
// files listed once as FPROBE_HOT_SOURCES in CMakeLists.txt.
#ifndef FPROBE_SRC_CORE_BASE_ATTRIBUTES_H_
#define FPROBE_SRC_CORE_BASE_ATTRIBUTES_H_

#define FPROBE_UNPROBED __attribute__((no_instrument_function, patchable_function_entry(0, 0)))

#if defined(__clang__)
#define FPROBE_UNSANITIZED __attribute__((no_sanitize("address", "thread", "undefined")))
#else
#define FPROBE_UNSANITIZED __attribute__((no_sanitize_address, no_sanitize_thread, no_sanitize_undefined))
#endif

#define FPROBE_HOT __attribute__((hot)) FPROBE_UNPROBED FPROBE_UNSANITIZED
// For pieces of a hit that have one place in it, and another in a rare copy of the whole.
#define FPROBE_HOT_INLINE FPROBE_HOT inline __attribute__((always_inline))
// For pieces that few hits need, but those every time.
#define FPROBE_HOT_APART FPROBE_HOT __attribute__((noinline))
#define FPROBE_COLD __attribute__((cold, noinline)) FPROBE_UNPROBED FPROBE_UNSANITIZED

#endif  // FPROBE_SRC_CORE_BASE_ATTRIBUTES_H_
