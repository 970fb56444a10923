// The order of fork handlers: the library's waits for its own lock before the handlers of an allocator take theirs, since
// whoever holds the library's lock may need memory before it gives it back.
//
// The program has such an allocator: one lock, taken by a fork handler that is installed before main.  A thread stands
// inside a registration, at an allocation, until another thread that forks cannot go on any more.  Then the first one
// needs the allocator's lock; if the forking thread has it and waits for the first one, both wait for ever.
#include <errno.h>
#include <fcntl.h>
#include <fprobe/fprobe.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <thread>

#include "base/syscalls.h"
#include "registry/victims.h"

namespace {

std::atomic<bool> g_fork_has_allocator{false};  // between the allocator's handlers
std::atomic<bool> g_is_registering{false};      // the registering thread has reached its allocation
std::atomic<bool> g_was_deadlock{false};
std::atomic<pid_t> g_forker{0};
thread_local bool t_stops_at_allocation = false;

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

// The first allocation that a registration makes with the library's lock held.
void stand_in_the_registration() {
  t_stops_at_allocation = false;
  g_is_registering.store(true, std::memory_order_release);
  const pid_t forker = [] {
    for (;;)
      if (const pid_t tid = g_forker.load(std::memory_order_acquire)) return tid;
  }();
  while (!is_asleep(forker)) std::this_thread::yield();
  // Here the lock would be taken.
  if (g_fork_has_allocator.load(std::memory_order_acquire)) g_was_deadlock = true;
}

void* allocate(std::size_t size) {
  if (t_stops_at_allocation) stand_in_the_registration();
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

void* operator new(std::size_t size) {
  return allocate(size);
}
void* operator new[](std::size_t size) {
  return allocate(size);
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}
void operator delete[](void* memory) noexcept {
  std::free(memory);
}
void operator delete[](void* memory, std::size_t) noexcept {
  std::free(memory);
}

namespace {

TEST(ForkHandlers, WaitForAnOperationUnderWayBeforeAnAllocatorsTakeItsLock) {
  fprobe probe{};
  const char* names[] = {"first_victim"};
  std::thread registering([&] {
    t_stops_at_allocation = true;
    EXPECT_EQ(register_fprobe_syms(&probe, names, 1), 0) << fprobe_last_error();
    EXPECT_FALSE(t_stops_at_allocation) << "a registration allocates nothing: this test tests nothing";
  });
  while (!g_is_registering.load(std::memory_order_acquire)) std::this_thread::yield();
  g_forker.store(gettid(), std::memory_order_release);
  const pid_t child = fork();
  if (child == 0) _exit(first_victim(1) == 2 && unregister_fprobe(&probe) == 0 ? 0 : 1);
  registering.join();
  int status = -1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_FALSE(g_was_deadlock) << "fork holds the allocator and waits for a registration that needs it";
  EXPECT_EQ(unregister_fprobe(&probe), 0);
}

}  // namespace
