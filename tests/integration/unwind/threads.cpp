// Threads that end inside probed frames: pthread_exit and pthread_cancel.
#include <pthread.h>
#include <sched.h>

#include <atomic>
#include <cstdint>

#include "blocking.h"
#include "scenario.h"

namespace {

void* const kJoinValue = reinterpret_cast<void*>(std::uintptr_t{0x1234});

std::atomic<bool> g_spinning{false};

}  // namespace

namespace victim {

VICTIM long add(long a, long b) {
  CALLED();
  RETURNED();
  return a + b;
}

VICTIM void clean_up(void* argument) {
  CALLED();
  std::printf("cleaned up %s, sum %ld\n", static_cast<const char*>(argument), add(1, 2));
  RETURNED();
}

struct Traced {
  VICTIM explicit Traced(const char* n) : name(n) {
    CALLED();
    RETURNED();
  }
  Traced(const Traced&) = delete;
  Traced& operator=(const Traced&) = delete;
  VICTIM ~Traced() {
    CALLED();
    std::printf("destroyed %s\n", name);
    RETURNED();
  }
  const char* name;
};

// n frames without a clean-up, then the end of the thread.
VICTIM void exit_from(int n) {
  CALLED();
  if (n > 1) exit_from(n - 1);
  if (n <= 1) pthread_exit(kJoinValue);
  RETURNED();
}

VICTIM void exit_with_clean_up(int n) {
  CALLED();
  pthread_cleanup_push(clean_up, const_cast<char*>("a frame"));
  const Traced object("an object");
  if (n > 1) exit_with_clean_up(n - 1);
  if (n <= 1) pthread_exit(kJoinValue);
  pthread_cleanup_pop(0);
  RETURNED();
}

VICTIM void block(int n) {
  CALLED();
  if (n > 1) block(n - 1);
  if (n <= 1) wait_for_a_byte();
  RETURNED();
}

VICTIM void block_with_clean_up(int n) {
  CALLED();
  pthread_cleanup_push(clean_up, const_cast<char*>("a frame"));
  const Traced object("an object");
  if (n > 1) block_with_clean_up(n - 1);
  if (n <= 1) wait_for_a_byte();
  pthread_cleanup_pop(0);
  RETURNED();
}

// A function that a sanitizer adds clean-ups to must not be cancelled just anywhere in it.
VICTIM __attribute__((no_sanitize("thread"))) void spin(int n) {
  CALLED();
  if (n > 1) spin(n - 1);
  g_spinning.store(true, std::memory_order_release);
  for (;;) {
    asm volatile("" ::: "memory");
    if (!g_spinning.load(std::memory_order_relaxed)) break;
  }
  RETURNED();
}

VICTIM void catch_all_and_rethrow(void (*body)(int), int n) {
  CALLED();
  try {
    body(n);
  } catch (...) {
    std::printf("caught and on\n");
    throw;
  }
  RETURNED();
}

}  // namespace victim

namespace {

void* cancel_once_blocked(pthread_t thread) {
  wait_until_blocked();
  CHECK(pthread_cancel(thread) == 0);
  return join(thread);
}

template <void (*Body)(int)>
void* run(void* frames) {
  announce();
  Body(static_cast<int>(reinterpret_cast<std::uintptr_t>(frames)));
  return nullptr;
}

void* frames(int n) {
  return reinterpret_cast<void*>(static_cast<std::uintptr_t>(n));
}

}  // namespace

SCENARIO(PthreadExitLeavesOneThreeAndSixtyFourFrames, kUnwinding) {
  for (const int n : {1, 3, 64}) CHECK(join(start(run<victim::exit_from>, frames(n))) == kJoinValue);
  CHECK(victim::add(2, 3) == 5);
}

SCENARIO(PthreadCancelLeavesFramesBlockedInRead, kUnwinding) {
  CHECK(pipe(g_pipe) == 0);
  for (const int n : {1, 3, 64}) CHECK(cancel_once_blocked(start(run<victim::block>, frames(n))) == PTHREAD_CANCELED);
  CHECK(victim::add(2, 3) == 5);
}

CLEAN_UP_SCENARIO(PthreadExitRunsCleanUpsOnItsWay, kUnwinding) {
  for (const int n : {1, 3, 64}) CHECK(join(start(run<victim::exit_with_clean_up>, frames(n))) == kJoinValue);
}

CLEAN_UP_SCENARIO(PthreadCancelRunsCleanUpsOnItsWay, kUnwinding) {
  CHECK(pipe(g_pipe) == 0);
  for (const int n : {1, 3, 64}) {
    CHECK(cancel_once_blocked(start(run<victim::block_with_clean_up>, frames(n))) == PTHREAD_CANCELED);
  }
}

CLEAN_UP_SCENARIO(PthreadCancelPassesCatchAllBlocks, kUnwinding) {
  CHECK(pipe(g_pipe) == 0);
  const auto body = [](void*) -> void* {
    announce();
    victim::catch_all_and_rethrow(victim::block_with_clean_up, 3);
    return nullptr;
  };
  CHECK(cancel_once_blocked(start(body)) == PTHREAD_CANCELED);
}

SCENARIO(AsynchronousCancellationLeavesABusyFrame, kUnwinding) {
  const auto body = [](void*) -> void* {
    pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, nullptr);
    victim::spin(3);
    return nullptr;
  };
  for (int i = 0; i < 10; ++i) {
    g_spinning.store(false, std::memory_order_relaxed);
    const pthread_t thread = start(body);
    while (!g_spinning.load(std::memory_order_acquire)) sched_yield();
    CHECK(pthread_cancel(thread) == 0);
    CHECK(join(thread) == PTHREAD_CANCELED);
  }
}
