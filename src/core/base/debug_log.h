// FPROBE_DEBUG=1: what the library does, one line per event on standard error.
//
// A line is one write(2), without stdio: it may be written with locks held, in a fork child, and inside dlopen.  Never
// from a hit.  errno stays.
#ifndef FPROBE_SRC_CORE_BASE_DEBUG_LOG_H_
#define FPROBE_SRC_CORE_BASE_DEBUG_LOG_H_

#include <cstdint>

namespace libfprobe::detail::debug_log {

// At load, with the value of FPROBE_DEBUG (null: not set): anything but "" and "0" switches it on.
void initialise(const char* value) noexcept;
[[nodiscard]] bool is_on() noexcept;

// "libfprobe[pid]: ..." and a newline; cut when it is very long.  Nothing when switched off.
__attribute__((format(printf, 1, 2))) void say(const char* format, ...) noexcept;

// Microseconds since it was made; 0 when switched off.
class Stopwatch {
 public:
  Stopwatch() noexcept;
  [[nodiscard]] long microseconds() const noexcept;

 private:
  std::int64_t start_;
};

}  // namespace libfprobe::detail::debug_log

#endif  // FPROBE_SRC_CORE_BASE_DEBUG_LOG_H_
