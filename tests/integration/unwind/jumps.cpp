// Probed frames left by longjmp and its relatives: exits do not run, the misses are counted, later exits are right.
//
// Also compiled with _FORTIFY_SOURCE, whose longjmp checks that it goes up the stack.
#include <setjmp.h>
#include <signal.h>

#include <atomic>
#include <cerrno>
#include <stdexcept>

#include "hot/thread_state.h"
#include "scenario.h"

namespace {

jmp_buf g_jump;
sigjmp_buf g_signal_jump;
void* g_builtin_jump[5];

constexpr int kManyTimes = 100000;
constexpr int kDepth = 7;

void jump() {
  longjmp(g_jump, 1);
}

// Records on this thread's shadow stack; 0 without probes.
unsigned linked_records() {
  const libfprobe::detail::ThreadState* state = libfprobe::detail::current_state();
  if (state == nullptr) return 0;
  unsigned count = 0;
  for (auto* record = state->shadow.top(); record != state->shadow.bottom(); record = record->prev) ++count;
  return count;
}

}  // namespace

namespace victim {

VICTIM long add(long a, long b) {
  CALLED();
  RETURNED();
  return a + b;
}

VICTIM void descend_and(void (*leave)(), int n) {
  CALLED();
  if (n > 1) descend_and(leave, n - 1);
  if (n <= 1) leave();
  RETURNED();
}

// Frames so large that nothing overwrites what a jump has left of them but calls that go as deep again.
VICTIM void descend_in_large_frames(int n) {
  CALLED();
  char large[4096];
  asm volatile("" : : "r"(large) : "memory");
  if (n > 1) descend_in_large_frames(n - 1);
  if (n <= 1) longjmp(g_jump, 1);
  RETURNED();
}

VICTIM void on_signal(int number) {
  CALLED();
  if (number == SIGUSR1) siglongjmp(g_signal_jump, 1);
  RETURNED();
}

VICTIM void throw_from(int n) {
  CALLED();
  if (n > 1) throw_from(n - 1);
  if (n <= 1) throw std::runtime_error("thrown");
  RETURNED();
}

// A probed function that is jumped to, and goes on.
VICTIM int sets_and_returns(int times) {
  CALLED();
  volatile int jumps = 0;
  if (setjmp(g_jump) != 0) jumps = jumps + 1;
  if (jumps < times) descend_and(jump, kDepth);
  RETURNED();
  return jumps;
}

}  // namespace victim

namespace {

void jump_with_mask() {
  siglongjmp(g_signal_jump, 1);
}

void jump_by_builtin() {
  __builtin_longjmp(g_builtin_jump, 1);
}

void raise_signal() {
  raise(SIGUSR1);
}

VICTIM void set_and_descend(int n) {
  if (setjmp(g_jump) == 0) victim::descend_and(jump, n);
}

VICTIM void set_mask_and_descend(void (*leave)(), int n) {
  if (sigsetjmp(g_signal_jump, 1) == 0) victim::descend_and(leave, n);
}

VICTIM void set_builtin_and_descend(int n) {
  if (__builtin_setjmp(g_builtin_jump) == 0) victim::descend_and(jump_by_builtin, n);
}

// n times out of kDepth frames, each time followed by a call that returns; nothing piles up.
template <class Leave>
void leave_many_times(Leave leave) {
  for (int i = 0; i < kManyTimes; ++i) {
    leave();
    if (victim::add(i, 1) != i + 1) std::abort();
    CHECK(linked_records() <= 2 * kDepth);
  }
  std::printf("%d jumps\n", kManyTimes);
}

}  // namespace

SCENARIO(LongjmpLeavesSevenFramesManyTimes, kJumping) {
  leave_many_times([] { set_and_descend(kDepth); });
}

SCENARIO(LongjmpLeavesLargeFramesManyTimes, kJumping) {
  leave_many_times([] {
    if (setjmp(g_jump) == 0) victim::descend_in_large_frames(kDepth);
  });
}

SCENARIO(SiglongjmpLeavesSevenFramesManyTimes, kJumping) {
  leave_many_times([] { set_mask_and_descend(jump_with_mask, kDepth); });
}

GNU_SCENARIO(BuiltinLongjmpLeavesSevenFramesManyTimes, kJumping) {
  leave_many_times([] { set_builtin_and_descend(kDepth); });
}

SCENARIO(SiglongjmpLeavesAProbedSignalHandler, kJumping) {
  struct sigaction action = {};
  action.sa_handler = victim::on_signal;
  CHECK(sigaction(SIGUSR1, &action, nullptr) == 0);
  for (int i = 0; i < 1000; ++i) {
    set_mask_and_descend(raise_signal, kDepth);
    CHECK(victim::add(i, i) == 2 * i);
  }
  std::printf("1000 signals\n");
}

SCENARIO(LongjmpFromChangingDepths, kJumping) {
  for (int i = 0; i < 1000; ++i) {
    set_and_descend(1 + i * 7 % 50);
    CHECK(victim::add(i, i) == 2 * i);
    CHECK(linked_records() <= 100);
  }
}

SCENARIO(AProbedFunctionIsJumpedToAndReturns, kJumping) {
  for (int i = 0; i < 100; ++i) CHECK(victim::sets_and_returns(i) == i);
}

// The exception's frames lie where those left by the jump lay.
SCENARIO(AnExceptionFollowsALongjmp, kOwnChecks) {
  static std::atomic<int> returned;
  static std::atomic<int> unwound;
  static fprobe probe{};
  probe.exit_handler = [](fprobe*, unsigned long, unsigned long, ftrace_regs* regs, void*) {
    ++(fprobe_exit_reason(regs) == FPROBE_EXIT_UNWOUND ? unwound : returned);
  };
  if (scenario::is_probed) CHECK(register_fprobe(&probe, "victim::*", nullptr) == 0);
  for (int i = 1; i <= 100; ++i) {
    set_and_descend(i % 20 + 1);
    try {
      victim::throw_from(i % 10 + 1);
    } catch (const std::runtime_error& error) {
      if (i == 100) std::printf("%s\n", error.what());
    }
    CHECK(victim::add(i, i) == 2 * i);
  }
  if (!scenario::is_probed) return;
  CHECK(unregister_fprobe(&probe) == 0);
  CHECK(returned == 100);
  CHECK(unwound == 550);
}
