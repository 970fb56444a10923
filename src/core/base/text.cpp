// See text.h.
#include "base/text.h"

#include <cstdarg>
#include <cstdio>

namespace libfprobe::detail {

void append(std::string& text, const char* format, ...) {
  va_list arguments, again;
  va_start(arguments, format);
  va_copy(again, arguments);
  char buffer[256];
  const int size = std::vsnprintf(buffer, sizeof buffer, format, arguments);
  va_end(arguments);
  if (size > 0 && static_cast<std::size_t>(size) < sizeof buffer) {
    text.append(buffer, static_cast<std::size_t>(size));
  } else if (size > 0) {
    const std::size_t before = text.size();
    try {
      text.resize(before + static_cast<std::size_t>(size) + 1);
    } catch (...) {
      va_end(again);
      throw;
    }
    std::vsnprintf(text.data() + before, static_cast<std::size_t>(size) + 1, format, again);
    text.resize(before + static_cast<std::size_t>(size));
  }
  va_end(again);
}

}  // namespace libfprobe::detail
