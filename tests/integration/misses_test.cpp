// Every reason for a miss, provoked, and counted exactly.
#include <fprobe/kprobes.h>

#include <barrier>
#include <cerrno>

#include "base/syscalls.h"
#include "hot/thread_state.h"
#include "integration/support.h"

namespace contract {
namespace {

namespace sys = libfprobe::detail::sys;

// nmissed is the sum of its reasons, and all of them are `reason`.
void expect_misses(const Probe& probe, fprobe_miss_reason reason, unsigned long count) {
  for (const auto each :
       {FPROBE_MISS_RECURSION, FPROBE_MISS_NO_FRAME, FPROBE_MISS_KPROBE, FPROBE_MISS_DROPPED, FPROBE_MISS_THREAD})
    EXPECT_EQ(probe.missed(each), each == reason ? count : 0u) << each;
  EXPECT_EQ(probe.nmissed, count);
}

TEST(Missed, OfAnUnknownReasonOrNullIsZero) {
  Probe probe;
  EXPECT_EQ(fprobe_missed(nullptr, FPROBE_MISS_RECURSION), 0u);
  EXPECT_EQ(fprobe_missed(&probe, static_cast<fprobe_miss_reason>(5)), 0u);
  EXPECT_EQ(fprobe_missed(&probe, static_cast<fprobe_miss_reason>(-1)), 0u);
}

TEST(Recursion, AProbedFunctionCalledByAnEntryHandlerRunsUnprobed) {
  Probe probe;
  long inner = 0;
  probe.on_entry = [&](const Hit&) {
    inner = twice(10);
    return 0;
  };
  ATTACH(probe, "twice");
  EXPECT_EQ(twice(1), 2);
  EXPECT_EQ(inner, 20);
  EXPECT_EQ(probe.entries, 1u);
  EXPECT_EQ(probe.exits, 1u);
  expect_misses(probe, FPROBE_MISS_RECURSION, 1);
}

TEST(Recursion, AProbedFunctionCalledByAnExitHandlerRunsUnprobed) {
  Probe probe;
  long inner = 0;
  probe.on_exit = [&](const Hit&) { inner = twice(10); };
  ATTACH(probe, "twice");
  EXPECT_EQ(twice(1), 2);
  EXPECT_EQ(inner, 20);
  EXPECT_EQ(probe.entries, 1u);
  EXPECT_EQ(probe.exits, 1u);
  expect_misses(probe, FPROBE_MISS_RECURSION, 1);
}

TEST(Recursion, IsAMissForEachProbeOnTheFunctionAndForNoOther) {
  Probe caller, first, second, elsewhere;
  caller.on_entry = [](const Hit&) { return thrice(1) == 3 ? 0 : 1; };
  ATTACH(caller, "twice");
  ATTACH(first, "thrice");
  ATTACH(second, "thrice");
  ATTACH(elsewhere, "quadruple");
  EXPECT_EQ(twice(1), 2);
  expect_misses(caller, FPROBE_MISS_RECURSION, 0);
  expect_misses(first, FPROBE_MISS_RECURSION, 1);
  expect_misses(second, FPROBE_MISS_RECURSION, 1);
  expect_misses(elsewhere, FPROBE_MISS_RECURSION, 0);
  EXPECT_EQ(first.entries + second.entries, 0u);
  EXPECT_EQ(caller.exits, 1u);
}

TEST(Recursion, DeepInsideAHandlerIsCountedForEachCall) {
  Probe probe(kEntry);
  Probe deep_probe;
  probe.on_entry = [](const Hit&) { return deep(9) == 9 ? 0 : 1; };
  ATTACH(probe, "twice");
  ATTACH(deep_probe, "deep");
  EXPECT_EQ(twice(1), 2);
  expect_misses(deep_probe, FPROBE_MISS_RECURSION, 10);
}

TEST(Recursion, ADisabledProbeMissesNothing) {
  Probe caller, disabled;
  caller.on_entry = [](const Hit&) { return static_cast<int>(thrice(0)); };
  ATTACH(caller, "twice");
  ATTACH(disabled, "thrice");
  disable_fprobe(&disabled);
  twice(1);
  expect_misses(disabled, FPROBE_MISS_RECURSION, 0);
}

TEST(Recursion, IsNotCountedWithEitherOfTheKernelsFlags) {
  for (const unsigned long flag : {FTRACE_OPS_FL_RECURSION, FTRACE_OPS_FL_RCU}) {
    Probe probe, counted;
    probe.ops.flags = flag;
    probe.on_entry = [](const Hit&) { return static_cast<int>(twice(0)); };
    probe.on_exit = [](const Hit&) { twice(0); };
    ATTACH(probe, "twice");
    ATTACH(counted, "twice");
    twice(1);
    EXPECT_EQ(probe.entries, 1u);
    expect_misses(probe, FPROBE_MISS_RECURSION, 0);
    expect_misses(counted, FPROBE_MISS_RECURSION, 2);
  }
}

TEST(Recursion, TheKernelsFlagsLeaveOtherReasonsCounted) {
  Probe probe;
  probe.ops.flags = FTRACE_OPS_FL_RECURSION | FTRACE_OPS_FL_RCU;
  probe.flags = FPROBE_FL_KPROBE_SHARED;
  ATTACH(probe, "twice");
  kprobe_busy_begin();
  twice(1);
  kprobe_busy_end();
  expect_misses(probe, FPROBE_MISS_KPROBE, 1);
}

TEST(Recursion, OfManyThreadsIsSummedExactly) {
  constexpr int kThreads = 8;
  constexpr long kCalls = 5000;
  Probe probe(kEntry);
  probe.on_entry = [](const Hit&) { return static_cast<int>(twice(0)); };
  ATTACH(probe, "twice");
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i)
    threads.emplace_back([] {
      for (long call = 0; call < kCalls; ++call) twice(1);
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(probe.entries, static_cast<unsigned long>(kThreads * kCalls));
  expect_misses(probe, FPROBE_MISS_RECURSION, kThreads * kCalls);
}

TEST(NoFrame, TheEntryRunsTheExitDoesNotAndEachIsCounted) {
  if (!in_process_with("FPROBE_SHADOW_STACK_FRAMES=8")) return;
  Probe probe;
  int wrong = 0;
  probe.entry_data_size = MAX_FPROBE_DATA_SIZE;
  probe.on_entry = [&](const Hit& hit) {
    if (hit.data == nullptr) {
      ++wrong;
      return 0;
    }
    for (int w = 0; w < 15; ++w) {
      wrong += static_cast<long*>(hit.data)[w] != 0;  // scratch memory is zeroed as well
      static_cast<long*>(hit.data)[w] = 1;
    }
    return 0;
  };
  probe.on_exit = [&](const Hit& hit) {
    for (int w = 0; w < 15; ++w) wrong += static_cast<long*>(hit.data)[w] != 1;
  };
  ATTACH(probe, "deep");
  EXPECT_EQ(deep(19), 19);
  EXPECT_EQ(probe.entries, 20u);
  EXPECT_EQ(probe.exits, 8u);
  expect_misses(probe, FPROBE_MISS_NO_FRAME, 12);
  EXPECT_EQ(wrong, 0);
  // Room again.
  EXPECT_EQ(deep(4), 4);
  EXPECT_EQ(probe.exits, 13u);
  expect_misses(probe, FPROBE_MISS_NO_FRAME, 12);
}

TEST(NoFrame, ACancelledExitIsNotMissed) {
  if (!in_process_with("FPROBE_SHADOW_STACK_FRAMES=8")) return;
  Probe probe, cancelling;
  cancelling.on_entry = [](const Hit&) { return 1; };
  ATTACH(probe, "deep");
  ATTACH(cancelling, "deep");
  EXPECT_EQ(deep(19), 19);
  EXPECT_EQ(cancelling.entries, 20u);
  expect_misses(cancelling, FPROBE_MISS_NO_FRAME, 0);
  expect_misses(probe, FPROBE_MISS_NO_FRAME, 12);
}

// More than the address space, more than a long, negative, no number at all.
TEST(NoFrame, AnAbsurdLimitIsTakenForAPossibleOne) {
  for (const char* const limit :
       {"FPROBE_SHADOW_STACK_FRAMES=18446744073709551615", "FPROBE_SHADOW_STACK_FRAMES=0x7fffffffffffffff",
        "FPROBE_SHADOW_STACK_FRAMES=99999999999999999999999", "FPROBE_SHADOW_STACK_FRAMES=-1",
        "FPROBE_SHADOW_STACK_FRAMES=many", "FPROBE_SHADOW_STACK_FRAMES=0", "FPROBE_SHADOW_STACK_FRAMES="}) {
    if (!in_process_with(limit)) continue;
    Probe probe;
    ATTACH(probe, "deep");
    EXPECT_EQ(deep(1000), 1000);
    EXPECT_EQ(probe.exits, 1001u);
    expect_misses(probe, FPROBE_MISS_NO_FRAME, 0);
    return;
  }
}

TEST(NoFrame, AnEntryProbeNeedsNoFrame) {
  if (!in_process_with("FPROBE_SHADOW_STACK_FRAMES=1")) return;
  Probe probe(kEntry);
  ATTACH(probe, "deep");
  EXPECT_EQ(deep(99), 99);
  EXPECT_EQ(probe.entries, 100u);
  expect_misses(probe, FPROBE_MISS_NO_FRAME, 0);
}

TEST(Kprobe, ASharedProbeDoesNotFireWhileOneRuns) {
  Probe shared, ordinary;
  shared.flags = FPROBE_FL_KPROBE_SHARED;
  ATTACH(shared, "twice");
  ATTACH(ordinary, "twice");
  kprobe_busy_begin();
  EXPECT_TRUE(kprobe_running());
  EXPECT_EQ(twice(1), 2);
  kprobe_busy_end();
  EXPECT_FALSE(kprobe_running());
  EXPECT_EQ(shared.entries, 0u);
  EXPECT_EQ(shared.exits, 0u);  // entry skipped: exit skipped
  expect_misses(shared, FPROBE_MISS_KPROBE, 1);
  EXPECT_EQ(ordinary.entries, 1u);
  EXPECT_EQ(ordinary.exits, 1u);
  EXPECT_EQ(twice(1), 2);
  EXPECT_EQ(shared.exits, 1u);
}

long busy_from_here(void*) {
  kprobe_busy_begin();
  return 0;
}

TEST(Kprobe, OneThatRunsAtTheReturnIsAMissOfTheExit) {
  Probe shared;
  shared.flags = FPROBE_FL_KPROBE_SHARED;
  ATTACH(shared, "call_back");
  EXPECT_EQ(call_back(&busy_from_here, nullptr), 1);
  kprobe_busy_end();
  EXPECT_EQ(shared.entries, 1u);
  EXPECT_EQ(shared.exits, 0u);
  expect_misses(shared, FPROBE_MISS_KPROBE, 1);
}

TEST(Kprobe, IsRunningInsideTheHandlersOfASharedProbeOnly) {
  Probe shared, ordinary;
  shared.flags = FPROBE_FL_KPROBE_SHARED;
  const auto expect = [](bool running) {
    return [running](const Hit&) {
      EXPECT_EQ(kprobe_running(), running);
      return 0;
    };
  };
  shared.on_entry = expect(true);
  shared.on_exit = [check = expect(true)](const Hit& hit) { check(hit); };
  ordinary.on_entry = expect(false);
  ordinary.on_exit = [check = expect(false)](const Hit& hit) { check(hit); };
  ATTACH(shared, "twice");
  ATTACH(ordinary, "twice");
  twice(1);
  EXPECT_EQ(shared.exits, 1u);
  EXPECT_EQ(ordinary.exits, 1u);
  EXPECT_FALSE(kprobe_running());
}

TEST(Kprobe, BusyNestsAndASurplusEndIsIgnored) {
  kprobe_busy_end();
  kprobe_busy_end();
  EXPECT_FALSE(kprobe_running());
  kprobe_busy_begin();
  kprobe_busy_begin();
  kprobe_busy_end();
  EXPECT_TRUE(kprobe_running());
  kprobe_busy_end();
  EXPECT_FALSE(kprobe_running());
}

TEST(Kprobe, BusyIsThatOfTheThread) {
  kprobe_busy_begin();
  std::thread([] { EXPECT_FALSE(kprobe_running()); }).join();
  kprobe_busy_end();
}

TEST(Kprobe, ADisabledSharedProbeMissesNothing) {
  Probe shared;
  shared.flags = FPROBE_FL_KPROBE_SHARED | FPROBE_FL_DISABLED;
  ATTACH(shared, "twice");
  kprobe_busy_begin();
  twice(1);
  kprobe_busy_end();
  expect_misses(shared, FPROBE_MISS_KPROBE, 0);
}

TEST(Dropped, IsCountedForEachFrameLeftByLongjmpWhenItsSlotIsUsedAnew) {
  Probe probe;
  ATTACH(probe, "jump_out");
  EXPECT_EQ(jump_round(7), 7);
  EXPECT_EQ(probe.entries, 7u);
  EXPECT_EQ(probe.exits, 0u);
  EXPECT_EQ(jump_round(7), 7);  // the same slots
  expect_misses(probe, FPROBE_MISS_DROPPED, 7);
  EXPECT_EQ(jump_round(7), 7);
  expect_misses(probe, FPROBE_MISS_DROPPED, 14);
}

TEST(Dropped, IsCountedAtTheThreadsExitAtTheLatest) {
  Probe probe;
  ATTACH(probe, "jump_out");
  std::thread([] { EXPECT_EQ(jump_round(7), 7); }).join();
  EXPECT_EQ(probe.entries, 7u);
  expect_misses(probe, FPROBE_MISS_DROPPED, 7);
}

TEST(Dropped, IsNotCountedForAnExitThatWasCancelled) {
  Probe probe;
  probe.on_entry = [](const Hit&) { return 1; };
  ATTACH(probe, "jump_out");
  std::thread([] { jump_round(7); }).join();
  EXPECT_EQ(probe.entries, 7u);
  expect_misses(probe, FPROBE_MISS_DROPPED, 0);
}

TEST(Dropped, IsNotCountedForAnEntryProbe) {
  Probe probe(kEntry);
  ATTACH(probe, "jump_out");
  std::thread([] { jump_round(7); }).join();
  expect_misses(probe, FPROBE_MISS_DROPPED, 0);
}

TEST(Dropped, IsNotCountedForAProbeUnregisteredMeanwhile) {
  Probe probe;
  ATTACH(probe, "jump_out");
  std::thread([&] {
    jump_round(7);
    EXPECT_EQ(unregister_fprobe(&probe), 0);
    jump_round(7);
  }).join();
  expect_misses(probe, FPROBE_MISS_DROPPED, 0);
}

// Threads that live at the same time, more than there are states, with memory refused for the rest.
TEST(NoThreadState, EveryHitOfAThreadWithoutAStateIsCountedForEachProbe) {
  constexpr unsigned long kCalls = 3;
  Probe probe, second(kEntry);
  ATTACH(probe, "twice");
  ATTACH(second, "twice");
  const unsigned long count = libfprobe::detail::threads::count() + 4;
  sys::fault(sys::Call::kMmap).fail_after = 0;
  sys::fault(sys::Call::kMmap).error = ENOMEM;
  std::barrier<> all_have_called(static_cast<std::ptrdiff_t>(count));
  std::vector<std::thread> threads;
  for (unsigned long i = 0; i < count; ++i)
    threads.emplace_back([&] {
      for (unsigned long call = 0; call < kCalls; ++call) EXPECT_EQ(twice(2), 4);
      all_have_called.arrive_and_wait();
    });
  for (std::thread& thread : threads) thread.join();
  sys::fault(sys::Call::kMmap).error = 0;
  const unsigned long missed = probe.missed(FPROBE_MISS_THREAD);
  EXPECT_GE(missed, 4 * kCalls);
  EXPECT_EQ(missed % kCalls, 0u);
  expect_misses(probe, FPROBE_MISS_THREAD, missed);
  expect_misses(second, FPROBE_MISS_THREAD, missed);
  EXPECT_EQ(probe.entries + missed, count * kCalls);
  EXPECT_EQ(probe.exits, probe.entries);
  EXPECT_EQ(second.entries, probe.entries);
  // With memory every thread gets a state.
  std::thread([] { twice(1); }).join();
  expect_misses(probe, FPROBE_MISS_THREAD, missed);
}

}  // namespace
}  // namespace contract
