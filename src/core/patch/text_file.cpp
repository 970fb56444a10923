// See text_file.h.
#include "patch/text_file.h"

#include <errno.h>
#include <sys/syscall.h>

#include "base/arch.h"
#include "base/syscalls.h"
#include "patch/text_writer.h"

namespace libfprobe::detail {
TextFile TextFile::open() noexcept {
  TextFile file;
  const int result = sys::open_to_change("/proc/self/mem");
  if (result >= 0)
    file.fd_ = result;
  else
    file.error_ = -result;
  return file;
}

TextFile& TextFile::operator=(TextFile&& other) noexcept {
  std::swap(fd_, other.fd_);
  error_ = other.error_;
  return *this;
}

TextFile::~TextFile() {
  if (is_open()) sys::close(fd_);
}

int TextFile::write(std::uintptr_t address, const std::uint8_t* bytes, std::size_t size) const noexcept {
  for (std::size_t done = 0; done < size;) {
    const ssize_t written = sys::write_at(fd_, bytes + done, size - done, address + done);
    if (written < 0) return static_cast<int>(-written);
    if (written == 0) return EACCES;
    done += static_cast<std::size_t>(written);
  }
  return text_holds(address, bytes, size) ? 0 : EACCES;
}

int TextFile::write_bytewise(std::uintptr_t address, const std::uint8_t* bytes, std::size_t size) const noexcept {
  for (std::size_t i = 0; i < size; ++i) {
    if (const int error = write(address + i, bytes + i, 1)) return error;
  }
  return 0;
}

// Past sys::write_at: a fault injected there must not leave a site half changed.
void TextFile::put_back(std::uintptr_t address, const std::uint8_t* bytes, std::size_t size) const noexcept {
  for (std::size_t i = 0; i < size; ++i) {
    (void)arch::syscall(SYS_pwrite64, fd_, reinterpret_cast<long>(bytes + i), 1, static_cast<long>(address + i), 0, 0);
  }
}

}  // namespace libfprobe::detail
