// See memory_map.h.  A line: `start-end rwxp offset device inode   name`.
#include "patch/memory_map.h"

#include <sys/mman.h>

#include <cstring>

#include "base/syscalls.h"

namespace libfprobe::detail {
namespace {

constexpr int kEndOfFile = -1;

}  // namespace

MemoryMap::MemoryMap() noexcept : fd_(sys::open_readonly("/proc/self/maps")) {
  if (fd_ < 0) error_ = -fd_;
}

MemoryMap::~MemoryMap() {
  if (fd_ >= 0) sys::close(fd_);
}

int MemoryMap::take() noexcept {
  if (used_ < filled_) return static_cast<unsigned char>(buffer_[used_++]);
  if (fd_ < 0 || error_ != 0) return kEndOfFile;
  const ssize_t count = sys::read(fd_, buffer_, sizeof buffer_);
  if (count < 0) error_ = static_cast<int>(-count);
  if (count <= 0) return kEndOfFile;
  filled_ = static_cast<std::size_t>(count);
  used_ = 1;
  return static_cast<unsigned char>(buffer_[0]);
}

std::uintptr_t MemoryMap::take_hex(int& delimiter) noexcept {
  std::uintptr_t value = 0;
  for (;;) {
    delimiter = take();
    if (delimiter >= '0' && delimiter <= '9') {
      value = value * 16 + static_cast<std::uintptr_t>(delimiter - '0');
    } else if (delimiter >= 'a' && delimiter <= 'f') {
      value = value * 16 + static_cast<std::uintptr_t>(delimiter - 'a' + 10);
    } else {
      return value;
    }
  }
}

bool MemoryMap::next(Mapping& mapping) noexcept {
  int character = 0;
  mapping.start = take_hex(character);
  if (character != '-') return false;
  mapping.end = take_hex(character);
  mapping.protection = 0;
  if (take() == 'r') mapping.protection |= PROT_READ;
  if (take() == 'w') mapping.protection |= PROT_WRITE;
  if (take() == 'x') mapping.protection |= PROT_EXEC;

  // The line's last characters, newest last: enough to know one name.
  static constexpr char kStack[] = " [stack]";
  char tail[sizeof kStack - 1] = {};
  while ((character = take()) != '\n' && character != kEndOfFile) {
    std::memmove(tail, tail + 1, sizeof tail - 1);
    tail[sizeof tail - 1] = static_cast<char>(character);
  }
  mapping.is_stack = std::memcmp(tail, kStack, sizeof tail) == 0;
  return character == '\n';
}

}  // namespace libfprobe::detail
