// Unregistering, disabling and registering anew while calls and handlers are in flight.
#include <sys/mman.h>

#include <cerrno>
#include <memory>

#include "integration/waiting.h"

namespace contract {
namespace {

TEST(Unregister, DoesNotWaitForTheProbedFunctionItself) {
  Probe probe;
  ATTACH(probe, "call_back");
  BlockedCall call;
  ASSERT_EQ(probe.entries, 1u);
  ASSERT_EQ(unregister_fprobe(&probe), 0);  // returns although the function is on another thread's stack
  EXPECT_EQ(call.finish(), BlockedCall::kExpected);
  EXPECT_EQ(probe.exits, 0u);
  EXPECT_EQ(probe.nmissed, 0u);
}

// Whoever looks at a struct that was freed takes a fault.
struct UnmapProbe {
  void operator()(Probe* probe) const {
    probe->~Probe();
    munmap(probe, sizeof *probe);
  }
};
using MappedProbe = std::unique_ptr<Probe, UnmapProbe>;
MappedProbe map_probe() {
  void* const memory = mmap(nullptr, sizeof(Probe), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return MappedProbe(new (memory) Probe);
}

// Ends the probe of two calls in flight by `end`, frees it, and lets them return.
void expect_the_struct_may_be_freed_after(int (*end)(fprobe*)) {
  MappedProbe probe = map_probe();
  probe->entry_data_size = 15 * sizeof(long);
  ATTACH(*probe, "call_back");
  BlockedCall first, second;
  ASSERT_EQ(end(probe.get()), 0);
  probe.reset();
  EXPECT_EQ(first.finish(), BlockedCall::kExpected);
  EXPECT_EQ(call_back([](void*) { return 0L; }, nullptr), 1);
  EXPECT_EQ(second.finish(), BlockedCall::kExpected);
}

TEST(Unregister, TheStructMayBeFreedWhileFramesAreInFlight) {
  expect_the_struct_may_be_freed_after(&unregister_fprobe);
}
TEST(UnregisterAsync, TheStructMayBeFreedAfterSynchronizeWhileFramesAreInFlight) {
  expect_the_struct_may_be_freed_after(
      [](fprobe* probe) { return unregister_fprobe_async(probe) + fprobe_synchronize(); });
}

TEST(Unregister, FromTheSameThreadInsideTheFunctionLetsItReturnRight) {
  static Probe* probe;
  Probe own;
  probe = &own;
  ATTACH(own, "call_back");
  const long result = call_back([](void*) { return static_cast<long>(unregister_fprobe(probe)); }, nullptr);
  EXPECT_EQ(result, 1);
  EXPECT_EQ(own.exits, 0u);
}

// While a handler runs, unregister_fprobe on another thread has not returned; when it has, the handler is over.
void expect_unregister_waits(BlockedHandler::Where where) {
  Probe probe;
  BlockedHandler handler(probe, where);
  ATTACH(probe, "twice");
  handler.start();
  bool handler_was_over = false;
  Waiter unregisterer([&] {
    EXPECT_EQ(unregister_fprobe(&probe), 0);
    handler_was_over = handler.has_left();
  });
  unregisterer.wait_until_it_sleeps_or_returns();
  EXPECT_FALSE(fprobe_is_registered(&probe));  // the registration ends at once, the wait follows it
  EXPECT_FALSE(unregisterer.has_returned());
  EXPECT_EQ(handler.finish(), 2);
  unregisterer.join();
  EXPECT_TRUE(handler_was_over);
}

TEST(Unregister, WaitsForARunningEntryHandler) {
  expect_unregister_waits(BlockedHandler::kAtEntry);
}
TEST(Unregister, WaitsForARunningExitHandler) {
  expect_unregister_waits(BlockedHandler::kAtExit);
}

// Many threads in and out of a handler that uses memory which is freed as soon as unregister returns.
TEST(Unregister, NoHandlerRunsAfterItReturns) {
  std::atomic<bool> stop{false};
  std::atomic<long> wrong{0};
  std::vector<std::thread> callers;
  for (int i = 0; i < 4; ++i)
    callers.emplace_back([&] {
      while (!stop.load(std::memory_order_relaxed)) wrong += twice(3) != 6;
    });
  constexpr int kRounds = 100;
  std::atomic<long> bad{0};
  for (int round = 0; round < kRounds; ++round) {
    auto alive = std::make_unique<std::atomic<int>>(1);
    std::atomic<int>* flag = alive.get();
    Probe probe;
    const auto check = [flag, &bad](const Hit&) {
      if (flag->load(std::memory_order_relaxed) != 1) ++bad;
      return 0;
    };
    probe.on_entry = check;
    probe.on_exit = [check](const Hit& hit) { check(hit); };
    ATTACH(probe, "twice");
    while (probe.exits < 3) std::this_thread::yield();
    ASSERT_EQ(unregister_fprobe(&probe), 0);
    flag->store(0, std::memory_order_relaxed);
    const unsigned long entries = probe.entries, exits = probe.exits;
    std::this_thread::yield();
    EXPECT_EQ(probe.entries, entries);
    EXPECT_EQ(probe.exits, exits);
  }
  stop = true;
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(bad, 0);
}

TEST(Unregister, AHandlerBlockedInOneProbeDoesNotDelayAProbeOnOtherFunctions) {
  Probe blocked(kEntry), other;
  BlockedHandler handler(blocked, BlockedHandler::kAtEntry);
  ATTACH(blocked, "twice");
  ATTACH(other, "thrice");
  handler.start();
  thrice(1);
  EXPECT_EQ(unregister_fprobe(&other), 0);  // would hang
  EXPECT_EQ(handler.finish(), 2);
}

TEST(Unregister, HoldsNoLockWhileItWaits) {
  Probe blocked(kEntry), other;
  BlockedHandler handler(blocked, BlockedHandler::kAtEntry);
  ATTACH(blocked, "twice");
  handler.start();
  std::thread waiting([&] { EXPECT_EQ(unregister_fprobe(&blocked), 0); });
  while (fprobe_is_registered(&blocked)) std::this_thread::yield();
  // The waiting one keeps nobody from anything.
  ATTACH(other, "thrice");
  EXPECT_EQ(thrice(1), 3);
  EXPECT_EQ(other.exits, 1u);
  EXPECT_EQ(unregister_fprobe(&other), 0);
  EXPECT_EQ(fprobe_count_ips_from_filter("no_such_function", nullptr), -ENOENT);
  EXPECT_EQ(handler.finish(), 2);
  waiting.join();
}

TEST(Register, HoldsNoLockWhileHandlersRun) {
  Probe blocked(kEntry), other;
  BlockedHandler handler(blocked, BlockedHandler::kAtEntry);
  ATTACH(blocked, "twice");
  handler.start();
  ATTACH(other, "twice", "thrice");
  EXPECT_EQ(thrice(1), 3);
  EXPECT_EQ(other.exits, 1u);
  EXPECT_EQ(handler.finish(), 2);
}

TEST(Unregister, OfAStructThatIsNotRegisteredIsRefused) {
  Probe probe;
  EXPECT_EQ(unregister_fprobe(&probe), -EINVAL);
  EXPECT_EQ(unregister_fprobe_async(&probe), -EINVAL);
  ATTACH(probe, "twice");
  EXPECT_EQ(unregister_fprobe(&probe), 0);
  EXPECT_EQ(unregister_fprobe(&probe), -EINVAL);
  EXPECT_EQ(unregister_fprobe_async(&probe), -EINVAL);
  EXPECT_EQ(unregister_fprobe(nullptr), -EINVAL);
  EXPECT_EQ(unregister_fprobe_async(nullptr), -EINVAL);
}

TEST(Register, OfARegisteredStructIsRefused) {
  Probe probe;
  ATTACH(probe, "twice");
  EXPECT_EQ(probe.attach({"thrice"}), -EEXIST);
  EXPECT_EQ(register_fprobe(&probe, "thrice", nullptr), -EEXIST);
  unsigned long addresses[] = {site_of("thrice")};
  EXPECT_EQ(register_fprobe_ips(&probe, addresses, 1), -EEXIST);
  thrice(1);
  EXPECT_EQ(probe.entries, 0u);
  twice(1);
  EXPECT_EQ(probe.entries, 1u);
}

TEST(Disable, InFlightMeansNoExitAndIsNotAMiss) {
  Probe probe;
  ATTACH(probe, "call_back");
  BlockedCall call;
  disable_fprobe(&probe);
  EXPECT_EQ(call.finish(), BlockedCall::kExpected);
  EXPECT_EQ(probe.entries, 1u);
  EXPECT_EQ(probe.exits, 0u);
  EXPECT_EQ(probe.nmissed, 0u);
}

TEST(Disable, AndEnableInFlightGivesTheExit) {
  Probe probe;
  ATTACH(probe, "call_back");
  BlockedCall call;
  disable_fprobe(&probe);
  enable_fprobe(&probe);
  EXPECT_EQ(call.finish(), BlockedCall::kExpected);
  EXPECT_EQ(probe.exits, 1u);
}

TEST(Disable, AtEntryAndEnabledInFlightGivesNoExit) {
  Probe probe;
  disable_fprobe(&probe);
  ATTACH(probe, "call_back");
  BlockedCall call;
  enable_fprobe(&probe);
  EXPECT_EQ(call.finish(), BlockedCall::kExpected);
  EXPECT_EQ(probe.entries, 0u);
  EXPECT_EQ(probe.exits, 0u);
  EXPECT_EQ(probe.nmissed, 0u);
}

TEST(RegisteredAnew, OldFramesOfTheSameStructGetNoHandler) {
  Probe probe;
  probe.entry_data_size = sizeof(long);
  ATTACH(probe, "call_back");
  BlockedCall old_call;
  ASSERT_EQ(probe.entries, 1u);
  ASSERT_EQ(unregister_fprobe(&probe), 0);
  ATTACH(probe, "call_back");
  {
    BlockedCall new_call;
    EXPECT_EQ(probe.entries, 2u);
    EXPECT_EQ(old_call.finish(), BlockedCall::kExpected);
    EXPECT_EQ(probe.exits, 0u);  // the old frame's exit belongs to a registration that is gone
    EXPECT_EQ(new_call.finish(), BlockedCall::kExpected);
  }
  EXPECT_EQ(probe.exits, 1u);
  EXPECT_EQ(probe.nmissed, 0u);
}

TEST(RegisteredAnew, ManyTimesWithAnOldFrameInFlight) {
  Probe probe;
  ATTACH(probe, "call_back");
  BlockedCall call;
  for (int round = 0; round < 50; ++round) {
    ASSERT_EQ(unregister_fprobe(&probe), 0);
    ATTACH(probe, "call_back");
  }
  EXPECT_EQ(call.finish(), BlockedCall::kExpected);
  EXPECT_EQ(probe.exits, 0u);
}

TEST(RegisteredAnew, AfterAnAsynchronousUnregisterAtOnce) {
  Probe probe;
  ATTACH(probe, "call_back");
  BlockedCall call;
  ASSERT_EQ(unregister_fprobe_async(&probe), 0);
  EXPECT_FALSE(fprobe_is_registered(&probe));
  ATTACH(probe, "call_back");
  EXPECT_EQ(call.finish(), BlockedCall::kExpected);
  EXPECT_EQ(probe.exits, 0u);
  EXPECT_EQ(call_back([](void*) { return 0L; }, nullptr), 1);
  EXPECT_EQ(probe.exits, 1u);
}

TEST(UnregisterAsync, DoesNotWaitForARunningHandlerAndSynchronizeDoes) {
  Probe probe(kEntry);
  BlockedHandler handler(probe, BlockedHandler::kAtEntry);
  ATTACH(probe, "twice");
  handler.start();
  ASSERT_EQ(unregister_fprobe_async(&probe), 0);  // returns although the handler runs
  EXPECT_FALSE(handler.has_left());
  bool handler_was_over = false;
  Waiter synchronizer([&] {
    EXPECT_EQ(fprobe_synchronize(), 0);
    handler_was_over = handler.has_left();
  });
  synchronizer.wait_until_it_sleeps_or_returns();
  EXPECT_FALSE(synchronizer.has_returned());
  EXPECT_EQ(handler.finish(), 2);
  synchronizer.join();
  EXPECT_TRUE(handler_was_over);
}

TEST(UnregisterAsync, NoHandlerStartsAfterIt) {
  Probe probe;
  ATTACH(probe, "twice");
  twice(1);
  ASSERT_EQ(unregister_fprobe_async(&probe), 0);
  twice(1);
  EXPECT_EQ(probe.entries, 1u);
  EXPECT_EQ(probe.exits, 1u);
}

TEST(Synchronize, WithNothingUnregisteredReturnsAtOnce) {
  EXPECT_EQ(fprobe_synchronize(), 0);
}

TEST(Synchronize, DoesNotWaitForHandlersOfRegisteredProbes) {
  Probe probe(kEntry), other(kEntry);
  BlockedHandler handler(probe, BlockedHandler::kAtEntry);
  ATTACH(probe, "twice");
  ATTACH(other, "thrice");
  handler.start();
  ASSERT_EQ(unregister_fprobe_async(&other), 0);
  EXPECT_EQ(fprobe_synchronize(), 0);  // would hang
  EXPECT_EQ(handler.finish(), 2);
}

TEST(IsRegistered, FollowsRegistrationAndIsFalseForNull) {
  Probe probe;
  EXPECT_FALSE(fprobe_is_registered(nullptr));
  EXPECT_FALSE(fprobe_is_registered(&probe));
  ATTACH(probe, "twice");
  EXPECT_TRUE(fprobe_is_registered(&probe));
  fprobe copy = probe;
  EXPECT_FALSE(fprobe_is_registered(&copy));
  ASSERT_EQ(unregister_fprobe(&probe), 0);
  EXPECT_FALSE(fprobe_is_registered(&probe));
}

TEST(Misses, AreSetToZeroWhenRegisteredAnewAndReadableAfterUnregister) {
  Probe probe;
  probe.on_entry = [](const Hit&) { return static_cast<int>(twice(0)); };
  ATTACH(probe, "twice");
  twice(1);
  ASSERT_EQ(unregister_fprobe(&probe), 0);
  EXPECT_EQ(probe.nmissed, 1u);
  ATTACH(probe, "twice");
  EXPECT_EQ(probe.nmissed, 0u);
}

}  // namespace
}  // namespace contract
