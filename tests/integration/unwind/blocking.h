// Threads that block for ever in read(), and how another thread knows that they do.
#ifndef FPROBE_TESTS_INTEGRATION_UNWIND_BLOCKING_H_
#define FPROBE_TESTS_INTEGRATION_UNWIND_BLOCKING_H_

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstring>

#include "scenario.h"

inline std::atomic<pid_t> g_tid{0};  // of the thread to be cancelled, once it runs
inline int g_pipe[2];                // nobody ever writes to it

// The byte is no local variable: AddressSanitizer knows nothing of a frame left by a cancellation, whose variables would
// stay poisoned.
inline char g_byte;

VICTIM inline void wait_for_a_byte() {
  (void)!read(g_pipe[0], &g_byte, 1);
}

// Whether the thread sleeps in read(): the kernel tells the number of the system call.
inline bool is_blocked_in_read(pid_t tid) {
  char path[64];
  std::snprintf(path, sizeof path, "/proc/self/task/%d/syscall", tid);
  const int file = open(path, O_RDONLY);
  if (file < 0) return false;
  char text[32] = {};
  const bool got = read(file, text, sizeof text - 1) > 0;
  close(file);
  return got && std::strncmp(text, "0 ", 2) == 0;
}

inline void wait_until_blocked() {
  while (g_tid.load(std::memory_order_acquire) == 0) sched_yield();
  while (!is_blocked_in_read(g_tid.load(std::memory_order_acquire))) sched_yield();
}

inline void announce() {
  g_tid.store(static_cast<pid_t>(syscall(SYS_gettid)), std::memory_order_release);
}

inline void* join(pthread_t thread) {
  void* value = nullptr;
  CHECK(pthread_join(thread, &value) == 0);
  return value;
}

inline pthread_t start(void* (*body)(void*), void* argument = nullptr) {
  pthread_t thread;
  g_tid.store(0, std::memory_order_relaxed);
  CHECK(pthread_create(&thread, nullptr, body, argument) == 0);
  return thread;
}

#endif  // FPROBE_TESTS_INTEGRATION_UNWIND_BLOCKING_H_
