// fprobe_dump(): the registry's text, the threads', and how it is written.
#ifndef FPROBE_SRC_CORE_API_DUMP_H_
#define FPROBE_SRC_CORE_API_DUMP_H_

#include "base/result.h"

namespace libfprobe::detail {

// No lock is held while it writes.
[[nodiscard]] Result<void> dump(int fd);

}  // namespace libfprobe::detail

#endif  // FPROBE_SRC_CORE_API_DUMP_H_
