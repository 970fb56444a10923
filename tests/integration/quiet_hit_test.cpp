// What a hit does not do after a thread's first one: no memory is allocated, no lock is taken, no system call is made.
//
// The first two are seen here, in the program's own definitions of the allocator's and the locks' functions, which the
// library linked into it calls too.  The last one is the kernel's to see: it ends a thread that makes any call but
// read, write, exit and sigreturn.
#include <dlfcn.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

#include "integration/support.h"

namespace {

// Of this thread.
thread_local unsigned long t_allocations = 0, t_locks = 0;

}  // namespace

extern "C" {
void* __libc_malloc(std::size_t size);
void* __libc_calloc(std::size_t count, std::size_t size);
void* __libc_realloc(void* memory, std::size_t size);
void __libc_free(void* memory);

void* malloc(std::size_t size) {
  ++t_allocations;
  return __libc_malloc(size);
}
void* calloc(std::size_t count, std::size_t size) {
  ++t_allocations;
  return __libc_calloc(count, size);
}
void* realloc(void* memory, std::size_t size) {
  ++t_allocations;
  return __libc_realloc(memory, size);
}
void free(void* memory) {
  ++t_allocations;
  __libc_free(memory);
}

int pthread_mutex_lock(pthread_mutex_t* mutex) {
  static const auto next = reinterpret_cast<int (*)(pthread_mutex_t*)>(dlsym(RTLD_NEXT, "pthread_mutex_lock"));
  ++t_locks;
  return next(mutex);
}
}

namespace contract {
namespace {

// Hits of every kind that is not rare: both ends, entry data, recursion, a cancelled exit, a disabled probe, tail calls,
// frames within frames, misses.
struct Probes {
  Probe plain, data, cancelling, disabled{kBoth};
  Probes() {
    data.entry_data_size = MAX_FPROBE_DATA_SIZE;
    data.on_entry = [](const Hit&) { return static_cast<int>(twice(0)); };
    cancelling.on_entry = [](const Hit&) { return 1; };
    for (Probe* const probe : {&plain, &data, &cancelling, &disabled})
      EXPECT_EQ(probe->attach({"twice", "tail_first", "tail_second", "deep"}), 0) << fprobe_last_error();
    disable_fprobe(&disabled);
  }
};

bool make_hits() {
  bool right = true;
  for (long i = 0; i < 100; ++i) right = right && twice(i) == 2 * i && tail_first(i) == i + 3 && deep(i) == i;
  return right;
}

TEST(QuietHit, TheCountersSeeTheLibrarysOwnAllocationsAndLocks) {
  t_allocations = t_locks = 0;
  Probe probe;
  ATTACH(probe, "twice");
  EXPECT_GT(t_allocations, 10u);
  EXPECT_GT(t_locks, 0u);
}

TEST(QuietHit, AllocatesNothingAndTakesNoLockAfterTheThreadsFirst) {
  const Probes probes;
  std::thread([] {
    twice(1);
    t_allocations = t_locks = 0;
    EXPECT_TRUE(make_hits());
    EXPECT_EQ(t_allocations, 0u);
    EXPECT_EQ(t_locks, 0u);
  }).join();
  EXPECT_GT(probes.plain.exits, 5000u);
}

// A thread that is there when probes are registered.
void on_a_thread_from_before(const std::function<void()>& body) {
  std::atomic<bool> is_ready{false}, go{false};
  std::thread thread([&] {
    is_ready = true;
    while (!go.load(std::memory_order_acquire)) std::this_thread::yield();
    body();
  });
  while (!is_ready) std::this_thread::yield();
  const Probes probes;
  go.store(true, std::memory_order_release);
  thread.join();
  EXPECT_GT(probes.plain.exits, 5000u);
}

TEST(QuietHit, AllocatesNothingAndTakesNoLockFromTheFirstOnOfAThreadThatExisted) {
  on_a_thread_from_before([] {
    t_allocations = t_locks = 0;
    EXPECT_TRUE(make_hits());
    EXPECT_EQ(t_allocations, 0u);
    EXPECT_EQ(t_locks, 0u);
  });
}

// Whether hits of this thread are made without a system call: then their result is right and the thread ends, by the
// one call it may still make.  (Without: the kernel ends it.)
void make_hits_without_system_calls(std::atomic<bool>& were_right) {
  if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT) != 0) return;
  were_right = make_hits();
  syscall(SYS_exit, 0);
}

TEST(QuietHit, MakesNoSystemCallAfterTheThreadsFirst) {
  const Probes probes;
  std::atomic<bool> were_right{false};
  std::thread([&] {
    twice(1);
    make_hits_without_system_calls(were_right);
  }).join();
  EXPECT_TRUE(were_right);
  EXPECT_GT(probes.plain.exits, 5000u);
}

TEST(QuietHit, MakesNoSystemCallFromTheFirstOnOfAThreadThatExisted) {
  std::atomic<bool> were_right{false};
  on_a_thread_from_before([&] { make_hits_without_system_calls(were_right); });
  EXPECT_TRUE(were_right);
}

TEST(QuietHit, TheKernelEndsAThreadThatMakesOne) {
  std::atomic<bool> went_on{false};
  std::thread([&] {
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT) != 0) return;
    syscall(SYS_getpid);
    went_on = true;
    syscall(SYS_exit, 0);
  }).join();
  EXPECT_FALSE(went_on);
}

}  // namespace
}  // namespace contract
