// See debug_log.h.
#include "base/debug_log.h"

#include <errno.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdarg>
#include <cstdio>
#include <cstring>

#include "base/syscalls.h"

namespace libfprobe::detail::debug_log {
namespace {

constinit std::atomic<bool> g_is_on{false};  // relaxed: written once, at load

std::int64_t now() noexcept {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return std::int64_t{time.tv_sec} * 1'000'000 + time.tv_nsec / 1'000;
}

}  // namespace

void initialise(const char* value) noexcept {
  g_is_on.store(value != nullptr && value[0] != '\0' && std::strcmp(value, "0") != 0, std::memory_order_relaxed);
}

bool is_on() noexcept {
  return g_is_on.load(std::memory_order_relaxed);
}

void say(const char* format, ...) noexcept {
  if (!is_on()) return;
  const int saved = errno;
  char line[1024];
  const int head = std::snprintf(line, sizeof line, "libfprobe[%d]: ", static_cast<int>(sys::getpid()));
  const std::size_t room = sizeof line - static_cast<std::size_t>(head) - 1;
  va_list arguments;
  va_start(arguments, format);
  const int said = std::vsnprintf(line + head, room, format, arguments);
  va_end(arguments);
  std::size_t size = static_cast<std::size_t>(head) + std::min(static_cast<std::size_t>(std::max(said, 0)), room - 1);
  line[size++] = '\n';
  (void)sys::write(STDERR_FILENO, line, size);
  errno = saved;
}

Stopwatch::Stopwatch() noexcept : start_(is_on() ? now() : 0) {}

long Stopwatch::microseconds() const noexcept {
  return start_ != 0 ? static_cast<long>(now() - start_) : 0;
}

}  // namespace libfprobe::detail::debug_log
