// The process's mappings in address order, read from /proc/self/maps.
//
// Raw system calls and one fixed buffer: callers hold locks under which libc's allocator is not wanted, and mappings
// may come and go meanwhile.  One pass is one reading of the file.
#ifndef FPROBE_SRC_CORE_PATCH_MEMORY_MAP_H_
#define FPROBE_SRC_CORE_PATCH_MEMORY_MAP_H_

#include <cstddef>
#include <cstdint>

namespace libfprobe::detail {

struct Mapping {
  std::uintptr_t start = 0, end = 0;
  int protection = 0;     // PROT_*
  bool is_stack = false;  // "[stack]": the main thread's, which grows
};

class MemoryMap {
 public:
  MemoryMap() noexcept;
  ~MemoryMap();
  MemoryMap(const MemoryMap&) = delete;
  MemoryMap& operator=(const MemoryMap&) = delete;

  // The next mapping; false at the end, or when the file cannot be read (then `error` tells).
  [[nodiscard]] bool next(Mapping& mapping) noexcept;
  [[nodiscard]] int error() const noexcept { return error_; }  // a positive errno value, 0 if all is well

 private:
  // The next character, or -1.
  [[nodiscard]] int take() noexcept;
  [[nodiscard]] std::uintptr_t take_hex(int& delimiter) noexcept;

  int fd_ = -1, error_ = 0;
  std::size_t used_ = 0, filled_ = 0;
  char buffer_[4096];
};

}  // namespace libfprobe::detail

#endif  // FPROBE_SRC_CORE_PATCH_MEMORY_MAP_H_
