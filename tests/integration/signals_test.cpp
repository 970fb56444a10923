// Signal handlers that call probed functions: over user code, over the library's handlers, on an alternate stack, and
// those that are left by siglongjmp.
#include <cerrno>
#include <csetjmp>
#include <csignal>
#include <memory>
#include <utility>

#include <fprobe/kprobes.h>

#include "integration/support.h"

namespace contract {
namespace {

// Installs a handler for SIGUSR1 while it lives.
class SignalHandler {
 public:
  explicit SignalHandler(void (*handler)(int), int flags = 0) {
    struct sigaction action {};
    action.sa_handler = handler;
    action.sa_flags = flags;
    sigaction(SIGUSR1, &action, &before_);
  }
  ~SignalHandler() { sigaction(SIGUSR1, &before_, nullptr); }
  SignalHandler(const SignalHandler&) = delete;
  SignalHandler& operator=(const SignalHandler&) = delete;

 private:
  struct sigaction before_ {};
};

volatile long g_result;

void call_thrice(int) {
  g_result = thrice(5);
}

long raise_signal(void*) {
  raise(SIGUSR1);
  return 0;
}

TEST(SignalOverUserCode, ProbesFireInIt) {
  const SignalHandler handler(&call_thrice);
  Probe outer, inner;
  ATTACH(outer, "call_back");
  ATTACH(inner, "thrice");
  g_result = 0;
  EXPECT_EQ(call_back(&raise_signal, nullptr), 1);
  EXPECT_EQ(g_result, 15);
  EXPECT_EQ(outer.exits, 1u);
  EXPECT_EQ(inner.entries, 1u);
  EXPECT_EQ(inner.exits, 1u);
  EXPECT_EQ(inner.nmissed, 0u);
}

// A signal is raised inside the handler at one end; its handler calls a probed function.
void expect_own_context(Ends end) {
  const SignalHandler handler(&call_thrice);
  Probe outer(end), inner;
  outer.on_entry = [](const Hit&) { return raise(SIGUSR1); };
  outer.on_exit = [](const Hit&) { raise(SIGUSR1); };
  ATTACH(outer, "twice");
  ATTACH(inner, "thrice");
  g_result = 0;
  EXPECT_EQ(twice(4), 8);
  EXPECT_EQ(g_result, 15);
  EXPECT_EQ(outer.entries + outer.exits, 1u);
  EXPECT_EQ(inner.entries, 1u);
  EXPECT_EQ(inner.exits, 1u);
  EXPECT_EQ(inner.nmissed, 0u);
  EXPECT_EQ(outer.nmissed, 0u);
}

TEST(SignalOverAnEntryHandler, IsAContextOfItsOwn) {
  expect_own_context(kEntry);
}
TEST(SignalOverAnExitHandler, IsAContextOfItsOwn) {
  expect_own_context(kExit);
}

void call_twice(int) {
  g_result = twice(5);
}

TEST(SignalOverAHandler, ProbesOfTheInterruptedFunctionFireInIt) {
  const SignalHandler handler(&call_twice);
  Probe probe;
  bool first = true;
  probe.on_entry = [&](const Hit&) {
    if (std::exchange(first, false)) raise(SIGUSR1);
    return 0;
  };
  ATTACH(probe, "twice");
  EXPECT_EQ(twice(4), 8);
  EXPECT_EQ(g_result, 10);
  EXPECT_EQ(probe.entries, 2u);
  EXPECT_EQ(probe.exits, 2u);
  EXPECT_EQ(probe.nmissed, 0u);
}

TEST(SignalOverAHandler, RecursionInsideTheSignalsHandlersIsStillAMiss) {
  const SignalHandler handler(&call_thrice);
  Probe outer(kEntry), inner;
  outer.on_entry = [](const Hit&) { return raise(SIGUSR1); };
  inner.on_entry = [](const Hit&) { return static_cast<int>(thrice(0)); };
  ATTACH(outer, "twice");
  ATTACH(inner, "thrice");
  EXPECT_EQ(twice(4), 8);
  EXPECT_EQ(inner.entries, 1u);
  EXPECT_EQ(inner.exits, 1u);
  EXPECT_EQ(inner.missed(FPROBE_MISS_RECURSION), 1u);
  // The guard is whole: the handler's own calls are recursion again, later calls are not.
  outer.on_entry = nullptr;
  EXPECT_EQ(thrice(1), 3);
  EXPECT_EQ(inner.entries, 2u);
}

TEST(SignalOverAHandler, AfterItTheHandlersOwnCallsAreRecursion) {
  const SignalHandler handler(&call_thrice);
  Probe probe;
  probe.on_entry = [](const Hit& hit) {
    if (ftrace_regs_get_argument(hit.regs, 0) != 4) return 0;
    raise(SIGUSR1);
    return static_cast<int>(thrice(0));
  };
  ATTACH(probe, "twice", "thrice");
  EXPECT_EQ(twice(4), 8);
  EXPECT_EQ(probe.entries, 2u);
  EXPECT_EQ(probe.missed(FPROBE_MISS_RECURSION), 1u);
}

TEST(SignalOverAHandler, SharedProbesDoNotFireOverASharedProbesHandler) {
  const SignalHandler handler(&call_thrice);
  Probe outer(kEntry), inner;
  outer.flags = inner.flags = FPROBE_FL_KPROBE_SHARED;
  outer.on_entry = [](const Hit&) { return raise(SIGUSR1); };
  ATTACH(outer, "twice");
  ATTACH(inner, "thrice");
  EXPECT_EQ(twice(4), 8);
  EXPECT_EQ(inner.entries, 0u);
  EXPECT_EQ(inner.missed(FPROBE_MISS_KPROBE), 1u);
}

Probe* g_probe;
volatile int g_code;
void try_unregister(int) {
  g_code = unregister_fprobe(g_probe);
}

void expect_unregister_is_refused(int flags) {
  const SignalHandler handler(&try_unregister, flags);
  for (const Ends end : {kEntry, kExit}) {
    Probe outer(end), other;
    outer.on_entry = [](const Hit&) { return raise(SIGUSR1); };
    outer.on_exit = [](const Hit&) { raise(SIGUSR1); };
    ATTACH(outer, "twice");
    ATTACH(other, "thrice");
    for (Probe* const probe : {&other, &outer}) {
      g_probe = probe;
      g_code = 0;
      twice(1);
      EXPECT_EQ(g_code, -EDEADLK);
      EXPECT_TRUE(fprobe_is_registered(probe));
    }
  }
}

TEST(SignalOverAHandler, UnregisterIsRefusedThereAtBothEnds) {
  expect_unregister_is_refused(0);
}

// (unregister allocates: ThreadSanitizer objects to that in any signal handler, even one that interrupts nothing.)
#if !defined(__SANITIZE_THREAD__)
TEST(SignalOverUserCode, InsideAProbedFunctionUnregisterWorks) {
  const SignalHandler handler(&try_unregister);
  Probe outer, other;
  ATTACH(outer, "call_back");
  ATTACH(other, "thrice");
  g_probe = &other;
  g_code = -1;
  call_back(&raise_signal, nullptr);
  EXPECT_EQ(g_code, 0);
}
#endif

// An alternate signal stack of the calling thread.
class AlternateStack {
 public:
  AlternateStack() : memory_(new char[kSize]) { install(memory_.get()); }
  explicit AlternateStack(char* memory) { install(memory); }
  ~AlternateStack() { sigaltstack(&before_, nullptr); }
  AlternateStack(const AlternateStack&) = delete;
  AlternateStack& operator=(const AlternateStack&) = delete;
  static constexpr std::size_t kSize = 256 * 1024;

 private:
  void install(char* memory) {
    stack_t stack{};
    stack.ss_sp = memory;
    stack.ss_size = kSize;
    sigaltstack(&stack, &before_);
  }
  std::unique_ptr<char[]> memory_;
  stack_t before_{};
};

TEST(SignalOnAnAlternateStack, ProbesFireOverUserCode) {
  const AlternateStack stack;
  const SignalHandler handler(&call_thrice, SA_ONSTACK);
  Probe outer, inner;
  ATTACH(outer, "call_back");
  ATTACH(inner, "thrice");
  for (int round = 0; round < 3; ++round) EXPECT_EQ(call_back(&raise_signal, nullptr), 1);
  EXPECT_EQ(outer.exits, 3u);
  EXPECT_EQ(inner.exits, 3u);
  EXPECT_EQ(inner.nmissed + outer.nmissed, 0u);
}

// The alternate stack lies on the thread's own one, above the hit: not "further up because the handler was left".
TEST(SignalOnAnAlternateStack, ThatIsALocalArrayFurtherUpLeavesTheInterruptedHandlersGuardAlone) {
  char memory[AlternateStack::kSize];
  const AlternateStack stack(memory);
  const SignalHandler handler(&call_thrice, SA_ONSTACK);
  Probe outer, inner;
  outer.entry_data_size = sizeof(long);
  outer.on_entry = [](const Hit& hit) {
    *static_cast<long*>(hit.data) = 77;
    raise(SIGUSR1);
    return unregister_fprobe(hit.probe) != -EDEADLK;  // the guard is still this handler's
  };
  long kept = 0;
  outer.on_exit = [&](const Hit& hit) { kept = *static_cast<long*>(hit.data); };
  ATTACH(outer, "twice");
  ATTACH(inner, "thrice");
  EXPECT_EQ(twice(4), 8);
  EXPECT_EQ(kept, 77);
  EXPECT_EQ(inner.exits, 1u);
  EXPECT_EQ(inner.nmissed + outer.nmissed, 0u);
}

TEST(SignalOnAnAlternateStack, UnregisterIsRefusedOverAHandler) {
  const AlternateStack stack;
  expect_unregister_is_refused(SA_ONSTACK);
}

TEST(SignalOnAnAlternateStack, ProbesFireOverAHandler) {
  const AlternateStack stack;
  const SignalHandler handler(&call_thrice, SA_ONSTACK);
  for (const Ends end : {kEntry, kExit}) {
    Probe outer(end), inner;
    outer.on_entry = [](const Hit&) { return raise(SIGUSR1); };
    outer.on_exit = [](const Hit&) { raise(SIGUSR1); };
    ATTACH(outer, "twice");
    ATTACH(inner, "thrice");
    EXPECT_EQ(twice(4), 8);
    EXPECT_EQ(inner.entries, 1u);
    EXPECT_EQ(inner.exits, 1u);
    EXPECT_EQ(inner.nmissed, 0u);
  }
}

// The buffer is a local array: hits there lie below live frames, and must not make them look left behind.
TEST(SignalOnAnAlternateStack, InsideTheThreadsOwnStackDropsNoLiveFrame) {
  const SignalHandler handler(&call_thrice, SA_ONSTACK);
  Probe outer, inner;
  ATTACH(outer, "call_back");
  ATTACH(inner, "thrice");
  std::thread([&] {
    char memory[AlternateStack::kSize];
    const AlternateStack stack(memory);
    for (int round = 0; round < 5; ++round) EXPECT_EQ(call_back(&raise_signal, nullptr), 1);
  }).join();
  EXPECT_EQ(outer.exits, 5u);
  EXPECT_EQ(inner.exits, 5u);
  EXPECT_EQ(inner.nmissed + outer.nmissed, 0u);
}

sigjmp_buf g_target;

long raise_and_leave(void*) {
  raise(SIGUSR1);
  return 0;
}

void leave_by_siglongjmp(int) {
  thrice(5);
  siglongjmp(g_target, 1);
}

// Calls `function`, which the signal handler is to leave; false: it returned.
[[gnu::noinline]] bool is_left(void (*function)()) {
  if (sigsetjmp(g_target, 1) != 0) return true;
  function();
  return false;
}

TEST(SignalHandlerLeftBySiglongjmp, LaterHitsAndExitsAreRight) {
  const SignalHandler handler(&leave_by_siglongjmp);
  Probe outer, inner, later;
  ATTACH(outer, "call_back");
  ATTACH(inner, "thrice");
  ATTACH(later, "calls_twice");
  constexpr unsigned long kRounds = 1000;
  for (unsigned long round = 0; round < kRounds; ++round) {
    ASSERT_TRUE(is_left([] { call_back(&raise_and_leave, nullptr); }));
    ASSERT_EQ(calls_twice(2), 5);
  }
  EXPECT_EQ(outer.entries, kRounds);
  EXPECT_EQ(outer.exits, 0u);
  EXPECT_EQ(inner.exits, kRounds);
  EXPECT_EQ(later.exits, kRounds);
  EXPECT_EQ(outer.missed(FPROBE_MISS_RECURSION) + later.nmissed + inner.nmissed, 0u);
}

// Not allowed, but it repairs itself: a handler is left by a signal handler that interrupts it.
TEST(HandlerLeftBySiglongjmp, TheNextHitFurtherUpTheStackRepairsTheGuard) {
  const SignalHandler handler(&leave_by_siglongjmp);
  Probe left(kEntry), other;
  left.on_entry = [](const Hit&) { return raise(SIGUSR1); };
  ATTACH(left, "twice");
  ATTACH(other, "quadruple");
  for (int round = 0; round < 100; ++round) {
    ASSERT_TRUE(is_left([] { twice(4); }));
    ASSERT_EQ(quadruple(1), 4);
  }
  EXPECT_EQ(other.exits, 100u);
  EXPECT_EQ(unregister_fprobe(&left), 0);
}

}  // namespace
}  // namespace contract
