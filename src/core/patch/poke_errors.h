// The sentences of text_poke: each names the place, and what to do.
#ifndef FPROBE_SRC_CORE_PATCH_POKE_ERRORS_H_
#define FPROBE_SRC_CORE_PATCH_POKE_ERRORS_H_

#include <sys/types.h>

#include "base/result.h"
#include "patch/text_poke.h"

namespace libfprobe::detail::poke_errors {

[[nodiscard]] const char* module_of(const TextEdit& edit) noexcept;

[[nodiscard]] Error foreign(const TextEdit& edit) noexcept;
[[nodiscard]] Error unmapped(const TextEdit& edit) noexcept;
[[nodiscard]] Error unreadable_map(int code) noexcept;
[[nodiscard]] Error no_barriers() noexcept;
[[nodiscard]] Error no_safe_way(const TextEdit& edit) noexcept;   // with threads alive
[[nodiscard]] Error not_bytewise(const TextEdit& edit) noexcept;  // with threads alive, through the file
// `refusal`: what mprotect gave; `code`: what the file gives.
[[nodiscard]] Error not_written(const TextEdit& edit, int refusal, int code) noexcept;
// `suspect`: the thread that cannot be told to have left, 0: the threads cannot be listed.
[[nodiscard]] Error not_left(const TextEdit& edit, pid_t suspect) noexcept;

}  // namespace libfprobe::detail::poke_errors

#endif  // FPROBE_SRC_CORE_PATCH_POKE_ERRORS_H_
