// A cancellation that acts inside a handler unwinds through the handler and the probed function, as it would through the
// function alone.  Without probes the function itself blocks where the handler does with them.
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>

#include "blocking.h"
#include "scenario.h"

// An exception that a cancellation interrupts is nobody's any more.
extern "C" const char* __lsan_default_suppressions() {
  return "leak:__cxa_allocate_exception";
}
extern "C" const char* __lsan_default_options() {
  return "print_suppressions=0";
}

namespace {

enum class Where { kEntry, kExit, kUnwoundExit };
Where g_where;
thread_local bool t_blocks = false;  // on the thread to be cancelled, until it was

std::atomic<int> g_entries{0};
std::atomic<int> g_exits{0};
std::atomic<int> g_unwound{0};

// Blocks once if this is the place.
void block_here(Where where) {
  if (!t_blocks || g_where != where) return;
  t_blocks = false;
  wait_for_a_byte();
}

}  // namespace

namespace victim {

VICTIM void fail() {
  throw 1;  // never caught: the cancellation comes first
}

// Without probes the function's own body blocks where the handlers would.
void block_in_body() {
  if (scenario::is_probed) return;
  block_here(Where::kEntry);
  block_here(Where::kExit);
  block_here(Where::kUnwoundExit);
}

VICTIM void target() {
  CALLED();
  block_in_body();
  RETURNED();
}

struct Cleaned {
  ~Cleaned() { asm volatile(""); }
};

// Its exception tables say that nothing is thrown where the entry handler runs.
VICTIM void target_with_clean_up(bool throws) {
  CALLED();
  const Cleaned object;
  block_in_body();
  if (throws) fail();
  RETURNED();
}

// The same in a frame that is realigned and movable: with -pg its return slot is found in a word below the frame pointer.
VICTIM void realigned_target_with_clean_up(bool throws) {
  CALLED();
  alignas(64) char aligned[64];
  char* const movable = static_cast<char*>(__builtin_alloca(throws ? 100u : 50u));
  asm volatile("" : : "r"(aligned), "r"(movable) : "memory");
  const Cleaned object;
  block_in_body();
  if (throws) fail();
  RETURNED();
}

VICTIM void caller() {
  CALLED();
  target();
  RETURNED();
}

VICTIM void caller_with_clean_up(bool throws) {
  CALLED();
  const Cleaned object;
  target_with_clean_up(throws);
  RETURNED();
}

VICTIM void caller_of_realigned(bool throws) {
  CALLED();
  const Cleaned object;
  realigned_target_with_clean_up(throws);
  RETURNED();
}

}  // namespace victim

namespace {

int on_entry(fprobe*, unsigned long, unsigned long, ftrace_regs*, void*) {
  ++g_entries;
  block_here(Where::kEntry);
  return 0;
}

void on_exit(fprobe*, unsigned long, unsigned long, ftrace_regs* regs, void*) {
  ++g_exits;
  const bool unwound = fprobe_exit_reason(regs) == FPROBE_EXIT_UNWOUND;
  g_unwound += unwound;
  block_here(unwound ? Where::kUnwoundExit : Where::kExit);
}

fprobe g_probe{};

void register_probe() {
  if (!scenario::is_probed) return;
  g_probe.entry_handler = on_entry;
  g_probe.exit_handler = on_exit;
  const char* names[] = {"victim::target", "victim::target_with_clean_up", "victim::realigned_target_with_clean_up"};
  CHECK(register_fprobe_syms(&g_probe, names, 3) == 0);
}

void expect(int entries, int exits, int unwound) {
  if (!scenario::is_probed) return;
  if (g_entries != entries || g_exits != exits || g_unwound != unwound) {
    std::fprintf(stderr, "%d entries, %d exits, %d unwound; expected %d, %d, %d\n", g_entries.load(), g_exits.load(),
                 g_unwound.load(), entries, exits, unwound);
    std::abort();
  }
}

void clean_up(void*) {
  std::printf("clean-up\n");
  victim::target();  // a hit of the thread that is being cancelled
}

// Frames without a clean-up of their own: any C++ library's threads can be cancelled in them.
void* run_without_clean_up(void*) {
  t_blocks = true;
  announce();
  victim::caller();
  return nullptr;
}

template <void (*kCaller)(bool)>
void* run_with_clean_up_in(void* throws) {
  t_blocks = true;
  announce();
  pthread_cleanup_push(clean_up, nullptr);
  try {
    kCaller(throws != nullptr);
  } catch (int) {
    std::printf("not reached\n");
  }
  pthread_cleanup_pop(0);
  return nullptr;
}
constexpr auto run_with_clean_up = &run_with_clean_up_in<&victim::caller_with_clean_up>;
constexpr auto run_realigned = &run_with_clean_up_in<&victim::caller_of_realigned>;

std::atomic<bool> g_is_cleaning_up{false};
std::atomic<bool> g_may_end{false};

void* run_with_long_clean_up(void*) {
  pthread_cleanup_push(
      [](void*) {
        g_is_cleaning_up.store(true, std::memory_order_release);
        while (!g_may_end.load(std::memory_order_acquire)) sched_yield();
      },
      nullptr);
  run_without_clean_up(nullptr);
  pthread_cleanup_pop(0);
  return nullptr;
}

void* run_target(void*) {
  victim::target();
  return nullptr;
}

// Cancels a thread that blocks at `where`.  While it blocks and after it is gone, hits of other threads fire, and their
// number is exact; unregister_fprobe returns.
void cancel_at(Where where, void* (*body)(void*), int entries, int exits, int unwound) {
  CHECK(pipe(g_pipe) == 0);
  g_where = where;
  register_probe();
  const pthread_t thread = start(body, where == Where::kUnwoundExit ? &g_where : nullptr);
  wait_until_blocked();
  victim::target();
  CHECK(pthread_cancel(thread) == 0);
  CHECK(join(thread) == PTHREAD_CANCELED);
  expect(entries + 1, exits + 1, unwound);
  victim::target();
  CHECK(join(start(run_target)) == nullptr);
  expect(entries + 3, exits + 3, unwound);
  if (scenario::is_probed) CHECK(unregister_fprobe(&g_probe) == 0);
  victim::target();
  expect(entries + 3, exits + 3, unwound);
  if (scenario::is_probed) CHECK(g_probe.nmissed == 0);
}

}  // namespace

SCENARIO(CancellationActsInsideAnEntryHandler, kOwnChecks) {
  cancel_at(Where::kEntry, run_without_clean_up, 1, 0, 0);
}

SCENARIO(CancellationActsInsideAnExitHandler, kOwnChecks) {
  cancel_at(Where::kExit, run_without_clean_up, 1, 1, 0);
}

CLEAN_UP_SCENARIO(CancellationActsInsideAnEntryHandlerAndCleanUpsRun, kOwnChecks) {
  cancel_at(Where::kEntry, run_with_clean_up, 2, 1, 0);
}

CLEAN_UP_SCENARIO(CancellationActsInsideAnEntryHandlerOfARealignedFrame, kOwnChecks) {
  cancel_at(Where::kEntry, run_realigned, 2, 1, 0);
}

CLEAN_UP_SCENARIO(CancellationActsInsideAnExitHandlerAndCleanUpsRun, kOwnChecks) {
  cancel_at(Where::kExit, run_with_clean_up, 2, 2, 0);
}

CLEAN_UP_SCENARIO(CancellationActsInsideTheExitHandlerOfAnUnwoundCall, kOwnChecks) {
  cancel_at(Where::kUnwoundExit, run_with_clean_up, 2, 2, 1);
}

// The handler is over when the cancellation has left it, not when the thread ends or hits again.
CLEAN_UP_SCENARIO(UnregisteringDoesNotWaitForTheRestOfACancelledThread, kOwnChecks) {
  CHECK(pipe(g_pipe) == 0);
  for (const Where where : {Where::kEntry, Where::kExit}) {
    g_where = where;
    g_is_cleaning_up = g_may_end = false;
    register_probe();
    const pthread_t thread = start(run_with_long_clean_up);
    wait_until_blocked();
    CHECK(pthread_cancel(thread) == 0);
    while (!g_is_cleaning_up.load(std::memory_order_acquire)) sched_yield();
    if (scenario::is_probed) CHECK(unregister_fprobe(&g_probe) == 0);
    g_may_end.store(true, std::memory_order_release);
    CHECK(join(thread) == PTHREAD_CANCELED);
  }
}
