// How bytes get into text pages that may not be made writable: through /proc/self/mem, where the kernel itself writes
// into this process as a debugger does.
//
// The kernel copies byte by byte at its own pace: whatever threads may be decoding must change by single bytes.  Some
// kernels and sandboxes refuse such a write, or swallow it: each one is read back.
#ifndef FPROBE_SRC_CORE_PATCH_TEXT_FILE_H_
#define FPROBE_SRC_CORE_PATCH_TEXT_FILE_H_

#include <cstddef>
#include <cstdint>
#include <utility>

namespace libfprobe::detail {

// RAII: the file is open while it lives (a batch), never longer: it would be of use to whoever inherits it.
class TextFile {
 public:
  TextFile() noexcept = default;  // not open
  [[nodiscard]] static TextFile open() noexcept;
  TextFile(TextFile&& other) noexcept : fd_(std::exchange(other.fd_, -1)), error_(other.error_) {}
  TextFile& operator=(TextFile&& other) noexcept;
  ~TextFile();

  [[nodiscard]] bool is_open() const noexcept { return fd_ >= 0; }
  [[nodiscard]] int error() const noexcept { return error_; }  // a positive errno value: why it is not open

  // In one call: a lone thread's signal handlers see all of it or nothing.  0, or the errno; EACCES when the bytes are
  // not there afterwards.
  [[nodiscard]] int write(std::uintptr_t address, const std::uint8_t* bytes, std::size_t size) const noexcept;
  // One call for each byte.
  [[nodiscard]] int write_bytewise(std::uintptr_t address, const std::uint8_t* bytes, std::size_t size) const noexcept;
  // To undo what `write` did: as far as it goes.
  void put_back(std::uintptr_t address, const std::uint8_t* bytes, std::size_t size) const noexcept;

 private:
  int fd_ = -1, error_ = 0;
};

}  // namespace libfprobe::detail

#endif  // FPROBE_SRC_CORE_PATCH_TEXT_FILE_H_
