// See syscalls.h.  The instruction itself is the CPU's business: arch::syscall.
#include "base/syscalls.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/membarrier.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/arch.h"
#include "base/attributes.h"

namespace libfprobe::detail::sys {
namespace {

constinit Fault g_faults[static_cast<unsigned>(Call::kCount)];

// 0, or the -errno a test asked for.
FPROBE_UNPROBED FPROBE_UNSANITIZED int injected(Call call) noexcept {
  Fault& fault = g_faults[static_cast<unsigned>(call)];
  fault.calls.fetch_add(1, std::memory_order_relaxed);  // counter, read by tests only
  const int error = fault.error.load(std::memory_order_relaxed);
  if (error == 0) [[likely]]
    return 0;
  return fault.fail_after.fetch_sub(1, std::memory_order_relaxed) > 0 ? 0 : -error;
}

template <class... Arguments>
FPROBE_UNPROBED FPROBE_UNSANITIZED long raw(long number, Arguments... arguments) noexcept {
  const long padded[6] = {(long)(arguments)...};
  return arch::syscall(number, padded[0], padded[1], padded[2], padded[3], padded[4], padded[5]);
}

}  // namespace

Fault& fault(Call call) noexcept {
  return g_faults[static_cast<unsigned>(call)];
}

FPROBE_UNPROBED FPROBE_UNSANITIZED std::uintptr_t mmap(std::uintptr_t address, std::size_t size, int protection,
                                                       int flags) noexcept {
  if (const int error = injected(Call::kMmap)) return static_cast<std::uintptr_t>(static_cast<long>(error));
  return static_cast<std::uintptr_t>(
      raw(SYS_mmap, address, size, protection, flags | MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
}

FPROBE_UNPROBED FPROBE_UNSANITIZED std::uintptr_t map_file(int fd, std::size_t size) noexcept {
  if (const int error = injected(Call::kMmap)) return static_cast<std::uintptr_t>(static_cast<long>(error));
  return static_cast<std::uintptr_t>(raw(SYS_mmap, 0, size, PROT_READ, MAP_PRIVATE, fd, 0));
}

FPROBE_UNPROBED FPROBE_UNSANITIZED int munmap(std::uintptr_t address, std::size_t size) noexcept {
  if (const int error = injected(Call::kMunmap)) return error;
  return static_cast<int>(raw(SYS_munmap, address, size));
}

FPROBE_UNPROBED FPROBE_UNSANITIZED int move_mapping(std::uintptr_t from, std::size_t size, std::uintptr_t to) noexcept {
  if (const int error = injected(Call::kMmap)) return error;
  const long result = raw(SYS_mremap, from, size, size, MREMAP_MAYMOVE | MREMAP_FIXED, to);
  return result < 0 && result > -4096 ? static_cast<int>(result) : 0;
}

FPROBE_UNPROBED FPROBE_UNSANITIZED int mprotect(std::uintptr_t address, std::size_t size, int protection) noexcept {
  if (const int error = injected(Call::kMprotect)) return error;
  return static_cast<int>(raw(SYS_mprotect, address, size, protection));
}

FPROBE_UNPROBED FPROBE_UNSANITIZED int madvise(std::uintptr_t address, std::size_t size, int advice) noexcept {
  if (const int error = injected(Call::kMadvise)) return error;
  return static_cast<int>(raw(SYS_madvise, address, size, advice));
}

FPROBE_UNPROBED FPROBE_UNSANITIZED int membarrier(Barrier kind) noexcept {
  if (const int error = injected(Call::kMembarrier)) return error;
  constexpr int kCommands[] = {MEMBARRIER_CMD_PRIVATE_EXPEDITED, MEMBARRIER_CMD_PRIVATE_EXPEDITED_SYNC_CORE,
                               MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED,
                               MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED_SYNC_CORE};
  return static_cast<int>(raw(SYS_membarrier, kCommands[static_cast<unsigned>(kind)], 0, 0));
}

FPROBE_UNPROBED FPROBE_UNSANITIZED long get_affinity(void* mask, std::size_t size) noexcept {
  if (const int error = injected(Call::kAffinity)) return error;
  return raw(SYS_sched_getaffinity, 0, size, mask);
}

FPROBE_UNPROBED FPROBE_UNSANITIZED int set_affinity(const void* mask, std::size_t size) noexcept {
  if (const int error = injected(Call::kAffinity)) return error;
  return static_cast<int>(raw(SYS_sched_setaffinity, 0, size, mask));
}

FPROBE_UNPROBED FPROBE_UNSANITIZED std::uintptr_t program_break() noexcept {
  return static_cast<std::uintptr_t>(raw(SYS_brk, 0));
}

FPROBE_UNPROBED FPROBE_UNSANITIZED pid_t getpid() noexcept {
  return static_cast<pid_t>(raw(SYS_getpid));
}
FPROBE_UNPROBED FPROBE_UNSANITIZED pid_t gettid() noexcept {
  return static_cast<pid_t>(raw(SYS_gettid));
}

FPROBE_UNPROBED FPROBE_UNSANITIZED int tgkill(pid_t pid, pid_t tid, int signal) noexcept {
  if (const int error = injected(Call::kTgkill)) return error;
  return static_cast<int>(raw(SYS_tgkill, pid, tid, signal));
}

FPROBE_UNPROBED FPROBE_UNSANITIZED int open_readonly(const char* path) noexcept {
  if (const int error = injected(Call::kOpen)) return error;
  return static_cast<int>(raw(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC | O_NONBLOCK, 0));
}

FPROBE_UNPROBED FPROBE_UNSANITIZED int open_task_file(const char* path) noexcept {
  if (const int error = injected(Call::kTaskFile)) return error;
  return open_readonly(path);
}

FPROBE_UNPROBED FPROBE_UNSANITIZED int open_directory(const char* path) noexcept {
  if (const int error = injected(Call::kOpen)) return error;
  return static_cast<int>(raw(SYS_openat, AT_FDCWD, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0));
}

FPROBE_UNPROBED FPROBE_UNSANITIZED int open_to_change(const char* path) noexcept {
  if (const int error = injected(Call::kOpen)) return error;
  return static_cast<int>(raw(SYS_openat, AT_FDCWD, path, O_RDWR | O_CLOEXEC, 0));
}

FPROBE_UNPROBED FPROBE_UNSANITIZED long file_size(int fd) noexcept {
  struct stat status;
  const long error = raw(SYS_fstat, fd, &status);
  if (error != 0) return error;
  return S_ISREG(status.st_mode) ? static_cast<long>(status.st_size) : -EINVAL;
}

FPROBE_UNPROBED FPROBE_UNSANITIZED ssize_t read(int fd, void* buffer, std::size_t size) noexcept {
  if (const int error = injected(Call::kRead)) return error;
  return raw(SYS_read, fd, buffer, size);
}

FPROBE_UNPROBED FPROBE_UNSANITIZED ssize_t getdents(int fd, void* buffer, std::size_t size) noexcept {
  return raw(SYS_getdents64, fd, buffer, size);
}

FPROBE_UNPROBED FPROBE_UNSANITIZED ssize_t write(int fd, const void* buffer, std::size_t size) noexcept {
  return raw(SYS_write, fd, buffer, size);
}

FPROBE_UNPROBED FPROBE_UNSANITIZED ssize_t write_at(int fd, const void* buffer, std::size_t size,
                                                    std::uintptr_t offset) noexcept {
  if (const int error = injected(Call::kWriteAt)) return error == -kSwallowed ? static_cast<ssize_t>(size) : error;
  return raw(SYS_pwrite64, fd, buffer, size, offset);
}

FPROBE_UNPROBED FPROBE_UNSANITIZED void close(int fd) noexcept {
  raw(SYS_close, fd);
}
FPROBE_UNPROBED FPROBE_UNSANITIZED void yield() noexcept {
  raw(SYS_sched_yield);
}

FPROBE_UNPROBED FPROBE_UNSANITIZED void sleep_nanoseconds(long nanoseconds) noexcept {
  const timespec duration{0, nanoseconds};
  raw(SYS_nanosleep, &duration, nullptr);
}

bool allocation_allowed() noexcept {
  return injected(Call::kAllocate) == 0;
}

}  // namespace libfprobe::detail::sys
