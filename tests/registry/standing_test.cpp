// What happens to others while a registration is under way: a thread stands inside one, with the library's lock, until
// the others cannot go on any more.
//
// It stands at an allocation. The program's allocator has one lock, taken before a fork by a handler that is installed
// before main, as those of real allocators are.
#include <errno.h>
#include <fcntl.h>
#include <fprobe/fprobe.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <new>
#include <thread>
#include <utility>
#include <vector>

#include "registry/victims.h"

namespace {

thread_local std::function<void()> t_at_allocation;  // runs at this thread's next one
std::atomic<bool> g_fork_has_allocator{false};       // between the allocator's fork handlers

// Of the kernel, whether a thread sleeps.
bool is_asleep(pid_t thread) {
  char path[64], text[256] = "";
  std::snprintf(path, sizeof path, "/proc/self/task/%d/stat", thread);
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  const ssize_t size = read(fd, text, sizeof text - 1);
  close(fd);
  const char* const name_end = size > 0 ? std::strrchr(text, ')') : nullptr;  // "tid (name) S ..."
  return name_end != nullptr && std::strncmp(name_end, ") S", 3) == 0;
}

void wait_until_asleep(const std::atomic<pid_t>& thread) {
  while (thread.load(std::memory_order_acquire) == 0 || !is_asleep(thread)) std::this_thread::yield();
}

void* allocate(std::size_t size) {
  if (t_at_allocation) std::exchange(t_at_allocation, nullptr)();
  void* const memory = std::malloc(size);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

[[gnu::constructor]] void install_allocator() {
  pthread_atfork([] { g_fork_has_allocator.store(true, std::memory_order_release); },
                 [] { g_fork_has_allocator.store(false, std::memory_order_release); },
                 [] { g_fork_has_allocator.store(false, std::memory_order_release); });
}

}  // namespace

// Not inlined, or the compiler takes malloc and free for the mismatch of a new and a delete.
[[gnu::noinline]] void* operator new(std::size_t size) {
  return allocate(size);
}
[[gnu::noinline]] void* operator new[](std::size_t size) {
  return allocate(size);
}
[[gnu::noinline]] void operator delete(void* memory) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete[](void* memory) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete[](void* memory, std::size_t) noexcept {
  std::free(memory);
}

namespace {

using Registering = int (*)(fprobe*);
constexpr Registering kWays[] = {
    [](fprobe* fp) {
      const char* names[] = {"first_victim"};
      return register_fprobe_syms(fp, names, 1);
    },
    [](fprobe* fp) { return register_fprobe(fp, "first_victim", nullptr); },
    [](fprobe* fp) {
      unsigned long addresses[] = {reinterpret_cast<unsigned long>(&first_victim)};
      return register_fprobe_ips(fp, addresses, 1);
    },
};

// A thread inside `registering(probe)`, which goes on when `may_go_on` has returned, called by that thread.
class StandingRegistration {
 public:
  StandingRegistration(Registering registering, fprobe& probe, std::function<void()> may_go_on)
      : thread_([=, this, &probe] {
          t_at_allocation = [this, may_go_on] {
            stands_.store(true, std::memory_order_release);
            may_go_on();
          };
          code_ = registering(&probe);
          EXPECT_FALSE(t_at_allocation) << "a registration allocates nothing: this test tests nothing";
        }) {
    while (!stands_.load(std::memory_order_acquire)) std::this_thread::yield();
  }
  StandingRegistration(const StandingRegistration&) = delete;
  StandingRegistration& operator=(const StandingRegistration&) = delete;
  int finish() {
    thread_.join();
    return code_;
  }

 private:
  std::atomic<bool> stands_{false};
  int code_ = 1;
  std::thread thread_;
};

// Two threads that call `act` while a registration stands until they sleep; their codes, the larger first.
template <class Act>
std::array<int, 2> codes_of_rivals(Registering registering, fprobe& registered, const Act& act) {
  std::atomic<pid_t> ids[2] = {};
  std::array<int, 2> codes{};
  StandingRegistration standing(registering, registered, [&] {
    for (const auto& id : ids) wait_until_asleep(id);
  });
  std::vector<std::thread> rivals;
  for (int i = 0; i < 2; ++i)
    rivals.emplace_back([&, i] {
      ids[i].store(gettid(), std::memory_order_release);
      codes[static_cast<std::size_t>(i)] = act();
    });
  for (std::thread& rival : rivals) rival.join();
  EXPECT_EQ(standing.finish(), 0) << fprobe_last_error();
  if (codes[0] < codes[1]) std::swap(codes[0], codes[1]);
  return codes;
}

TEST(Rivals, WhoRegisterAStructThatIsBeingRegisteredAreLate) {
  for (const Registering registering : kWays) {
    fprobe probe{};
    const auto codes = codes_of_rivals(kWays[0], probe, [&] { return registering(&probe); });
    EXPECT_EQ(codes, (std::array<int, 2>{-EEXIST, -EEXIST}));
    EXPECT_EQ(unregister_fprobe(&probe), 0);
  }
}

TEST(Rivals, WhoUnregisterOneStructAreOneInTimeAndOneLate) {
  for (int (*const unregister)(fprobe*) : {&unregister_fprobe, &unregister_fprobe_async}) {
    fprobe probe{}, other{};
    ASSERT_EQ(kWays[0](&probe), 0) << fprobe_last_error();
    const auto codes = codes_of_rivals(kWays[0], other, [&] { return unregister(&probe); });
    EXPECT_EQ(codes, (std::array<int, 2>{0, -EINVAL}));
    EXPECT_FALSE(fprobe_is_registered(&probe));
    EXPECT_EQ(unregister_fprobe(&other), 0);
  }
}

// Whoever holds the library's lock may need memory before it gives it back: if a fork had the allocator's lock first and
// then waited for the library's, both would wait for ever.
TEST(ForkHandlers, WaitForAnOperationUnderWayBeforeAnAllocatorsTakeItsLock) {
  fprobe probe{};
  std::atomic<pid_t> forker{0};
  bool is_deadlock = false;
  StandingRegistration standing(kWays[0], probe, [&] {
    wait_until_asleep(forker);
    is_deadlock = g_fork_has_allocator.load(std::memory_order_acquire);  // which this thread would wait for now
  });
  forker.store(gettid(), std::memory_order_release);
  const pid_t child = fork();
  // By the system call: ThreadSanitizer would miss a join of the thread that the child does not have.
  if (child == 0) syscall(SYS_exit_group, first_victim(1) == 2 && unregister_fprobe(&probe) == 0 ? 0 : 1);
  EXPECT_EQ(standing.finish(), 0) << fprobe_last_error();
  int status = -1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_FALSE(is_deadlock);
  EXPECT_EQ(unregister_fprobe(&probe), 0);
}

}  // namespace
