// printf into a string.
#ifndef FPROBE_SRC_CORE_BASE_TEXT_H_
#define FPROBE_SRC_CORE_BASE_TEXT_H_

#include <string>

namespace libfprobe::detail {

// Appends.  Throws std::bad_alloc.
__attribute__((format(printf, 2, 3))) void append(std::string& text, const char* format, ...);

}  // namespace libfprobe::detail

#endif  // FPROBE_SRC_CORE_BASE_TEXT_H_
