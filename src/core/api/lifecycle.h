// When the library acts without being asked: at load, around fork; and what every call of the API begins with.
#ifndef FPROBE_SRC_CORE_API_LIFECYCLE_H_
#define FPROBE_SRC_CORE_API_LIFECYCLE_H_

#include "base/result.h"

namespace libfprobe::detail::lifecycle {

// Notices a fork that ran no atfork handlers, gives the calling thread its state, and fails when another copy of the
// library owns the process.
[[nodiscard]] Result<void> enter() noexcept;

}  // namespace libfprobe::detail::lifecycle

#endif  // FPROBE_SRC_CORE_API_LIFECYCLE_H_
