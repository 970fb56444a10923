// The system calls of the library: raw, errno untouched, 0/value or -errno.
//
// One place, because tests drive the fault paths from here (fail a call, count calls) and because several callers run
// where libc must not be entered: inside a first hit, inside malloc, in a signal handler.
#ifndef FPROBE_SRC_CORE_BASE_SYSCALLS_H_
#define FPROBE_SRC_CORE_BASE_SYSCALLS_H_

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace libfprobe::detail::sys {

enum class Call : unsigned {
  kMmap,
  kMunmap,
  kMprotect,
  kMadvise,
  kMembarrier,
  kTgkill,
  kOpen,
  kRead,
  kWriteAt,
  kTaskFile,
  kAllocate,
  kAffinity,
  kCount
};

// What tests may do to a kind of call: `fail_after` calls succeed, then each gives -`error` until disarmed (error 0).
// kAllocate is the library's own heap use (see `allocation_allowed`).  Relaxed everywhere: armed before the call under
// test.
struct Fault {
  std::atomic<long> fail_after{0};
  std::atomic<int> error{0};
  std::atomic<unsigned long> calls{0};  // counted always, read by tests only
};
Fault& fault(Call call) noexcept;
// As an error of kWriteAt: success is told, but nothing is written.
inline constexpr int kSwallowed = -1;

// Negative results are -errno; pointers come back as uintptr_t and are checked with `is_error`.
[[nodiscard]] constexpr bool is_error(std::uintptr_t result) noexcept {
  return result > static_cast<std::uintptr_t>(-4096L);
}

std::uintptr_t mmap(std::uintptr_t address, std::size_t size, int protection, int flags) noexcept;  // always anonymous
std::uintptr_t map_file(int fd, std::size_t size) noexcept;  // from its start, to read, private
int munmap(std::uintptr_t address, std::size_t size) noexcept;
int move_mapping(std::uintptr_t from, std::size_t size, std::uintptr_t to) noexcept;  // replaces what is there
int mprotect(std::uintptr_t address, std::size_t size, int protection) noexcept;
int madvise(std::uintptr_t address, std::size_t size, int advice) noexcept;
enum class Barrier { kMemory, kSyncCore, kRegisterMemory, kRegisterSyncCore };
int membarrier(Barrier kind) noexcept;
// Of this thread; `get` returns the bytes written.
long get_affinity(void* mask, std::size_t size) noexcept;
int set_affinity(const void* mask, std::size_t size) noexcept;
std::uintptr_t program_break() noexcept;  // the end of the heap that brk() moves
pid_t getpid() noexcept;
pid_t gettid() noexcept;
int tgkill(pid_t pid, pid_t tid, int signal) noexcept;
int open_readonly(const char* path) noexcept;
int open_task_file(const char* path) noexcept;  // likewise, of one of this process's threads
int open_directory(const char* path) noexcept;
int open_to_change(const char* path) noexcept;  // to read and write; never makes a file
long file_size(int fd) noexcept;                // -EINVAL: not a regular file
ssize_t read(int fd, void* buffer, std::size_t size) noexcept;
ssize_t getdents(int fd, void* buffer, std::size_t size) noexcept;
ssize_t write(int fd, const void* buffer, std::size_t size) noexcept;
ssize_t write_at(int fd, const void* buffer, std::size_t size, std::uintptr_t offset) noexcept;
void close(int fd) noexcept;
void yield() noexcept;
void sleep_nanoseconds(long nanoseconds) noexcept;

// Asked before a fallible allocation of the library's own; false makes the caller report -ENOMEM.
[[nodiscard]] bool allocation_allowed() noexcept;

}  // namespace libfprobe::detail::sys

#endif  // FPROBE_SRC_CORE_BASE_SYSCALLS_H_
