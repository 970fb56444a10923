// See bystanders.h.
//
//   /proc/self/task/<tid>/syscall      "running"           on a CPU or waiting for one: its processor time tells
//                                      "7 0x... sp pc"     blocked in system call 7
//                                      "-1 sp pc"          blocked elsewhere (a page fault, a debugger), at pc
//   /proc/self/task/<tid>/schedstat    "nanoseconds ..."   on a CPU; counted at its ticks and switches
//
// A first growth of the processor time may count what ran before; what is added to it later has run since.
#include "patch/bystanders.h"

#include <errno.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "base/syscalls.h"

namespace libfprobe::detail {
namespace {

constexpr unsigned kManyThreads = 2;  // what count_threads() tells of more than one
constexpr std::size_t kMostThreads = 65536;
constexpr unsigned kListings = 3;  // a listing ends early when the thread that it stands at exits
constexpr unsigned kRounds = 1500;
constexpr long kRoundNanoseconds = 1'000'000;
constexpr unsigned long long kEnoughNanoseconds = 1'000'000;  // more than an interrupt or a page fault takes

// Until `visit` returns false.  False: that, or there is no list.
template <class Visit>
bool for_each_thread(const Visit& visit) noexcept {
  const int directory = sys::open_directory("/proc/self/task");
  if (directory < 0) return false;
  struct Entry {  // struct linux_dirent64 without its name
    std::uint64_t inode;
    std::int64_t offset;
    std::uint16_t length;
    unsigned char type;
    char name[1];
  };
  alignas(Entry) char buffer[4096];
  bool goes_on = true;
  ssize_t size = 0;
  while (goes_on && (size = sys::getdents(directory, buffer, sizeof buffer)) > 0) {
    for (ssize_t position = 0; goes_on && position < size;) {
      const auto* const entry = reinterpret_cast<const Entry*>(buffer + position);
      const long tid = std::strtol(entry->name, nullptr, 10);  // 0: "." and ".."
      goes_on = tid == 0 || visit(static_cast<pid_t>(tid));
      position += entry->length;
    }
  }
  sys::close(directory);
  return goes_on && size == 0;
}

// The contents of one file of a thread, as text.
class ThreadFile {
 public:
  ThreadFile(pid_t tid, const char* name) noexcept {
    char path[64];
    (void)std::snprintf(path, sizeof path, "/proc/self/task/%d/%s", static_cast<int>(tid), name);
    const int file = sys::open_task_file(path);
    error_ = file < 0 ? -file : 0;
    if (file < 0) return;
    const ssize_t size = sys::read(file, text_, sizeof text_ - 1);
    sys::close(file);
    error_ = size < 0 ? static_cast<int>(-size) : 0;
    text_[std::max<ssize_t>(size, 0)] = '\0';
  }
  [[nodiscard]] bool is_read() const noexcept { return error_ == 0 && text_[0] != '\0'; }
  [[nodiscard]] bool is_gone() const noexcept { return error_ == ENOENT || error_ == ESRCH; }
  [[nodiscard]] const char* text() const noexcept { return text_; }

 private:
  int error_ = 0;
  char text_[256]{};
};

// Blocked where it is in nobody's way.
bool is_blocked_outside(const char* state, IsInside is_inside, const void* argument) noexcept {
  if (state[0] >= '0' && state[0] <= '9') return true;
  if (std::strncmp(state, "-1 ", 3) != 0) return false;
  const char* const pc = std::strchr(state + 3, ' ');
  return pc != nullptr && !is_inside(std::strtoul(pc, nullptr, 16), argument);
}

}  // namespace

struct Bystanders::Thread {
  pid_t tid;
  bool has_left, has_grown;
  unsigned long long time;  // when the wait began; from the first growth on, then

  // Processor time since then is enough.
  bool ran(unsigned long long now) noexcept {
    if (has_grown) return now - time >= kEnoughNanoseconds;
    has_grown = now != time;
    time = now;
    return false;
  }
  void look(IsInside is_inside, const void* argument) noexcept {
    const ThreadFile state(tid, "syscall"), time_used(tid, "schedstat");
    has_left = (state.is_read() && is_blocked_outside(state.text(), is_inside, argument)) || time_used.is_gone() ||
               (time_used.is_read() && ran(std::strtoull(time_used.text(), nullptr, 10)));
  }
};

Bystanders::Bystanders() noexcept {
  const std::uintptr_t memory = sys::mmap(0, kMostThreads * sizeof(Thread), PROT_READ | PROT_WRITE, MAP_NORESERVE);
  if (!sys::is_error(memory)) threads_ = reinterpret_cast<Thread*>(memory);
}

Bystanders::~Bystanders() {
  if (threads_ != nullptr) (void)sys::munmap(reinterpret_cast<std::uintptr_t>(threads_), kMostThreads * sizeof(Thread));
}

bool Bystanders::have_left(IsInside is_inside, const void* argument) noexcept {
  for (unsigned i = 0; i < kListings; ++i) {
    if (!list()) return false;
  }
  for (unsigned round = 0; round < kRounds; ++round) {
    suspect_ = 0;
    for (Thread* thread = threads_; thread != threads_ + count_; ++thread) {
      if (!thread->has_left) thread->look(is_inside, argument);
      if (!thread->has_left) suspect_ = thread->tid;
    }
    if (suspect_ == 0) return true;
    sys::sleep_nanoseconds(kRoundNanoseconds);
  }
  return false;
}

// Adds the threads that are not listed yet, but for this one.
bool Bystanders::list() noexcept {
  const pid_t self = sys::gettid();
  return threads_ != nullptr && for_each_thread([&](pid_t tid) { return tid == self || add(tid); });
}

bool Bystanders::add(pid_t tid) noexcept {
  if (std::any_of(threads_, threads_ + count_, [tid](const Thread& thread) { return thread.tid == tid; })) return true;
  if (count_ == kMostThreads) return false;
  const ThreadFile time(tid, "schedstat");
  threads_[count_++] = {tid, false, false, std::strtoull(time.text(), nullptr, 10)};
  return true;
}

unsigned count_threads() noexcept {
  unsigned threads = 0;
  const bool is_listed = for_each_thread([&](pid_t) { return ++threads < kManyThreads; });
  return is_listed && threads == 1 ? 1 : kManyThreads;
}

}  // namespace libfprobe::detail
