// Whether a hit that finds the guard open comes from a signal handler that interrupted the handler (a context of its
// own) or from the handler itself (recursion).
#ifndef FPROBE_SRC_CORE_HOT_SIGNAL_CONTEXT_H_
#define FPROBE_SRC_CORE_HOT_SIGNAL_CONTEXT_H_

#include <cstdint>

#include "base/attributes.h"

namespace libfprobe::detail::signal_context {

// Finds the signal trampolines of libc, once, at load.
void initialise() noexcept;

// Whether a signal frame lies between stack position `sp` (lower) and `guard_sp`, where the guard was opened.
// `same_stack`: both lie on one stack, so the words between them can be read.
[[nodiscard]] FPROBE_COLD bool is_between(std::uintptr_t sp, std::uintptr_t guard_sp, bool same_stack) noexcept;

// Whether the hit at hand runs in a signal handler that interrupted code at or below `guard_sp`, whatever stack the signal
// handler runs on (an alternate stack may lie above the guard on the thread's own one).
[[nodiscard]] FPROBE_COLD bool has_interrupted_below(std::uintptr_t guard_sp) noexcept;

}  // namespace libfprobe::detail::signal_context

#endif  // FPROBE_SRC_CORE_HOT_SIGNAL_CONTEXT_H_
