// The cases that the kernel's own tests of fprobe have, and the order of handlers.
#include <string>

#include "integration/support.h"

namespace contract {
namespace {

TEST(KernelCases, EntryHandlerAloneRunsOncePerCall) {
  Probe probe(kEntry);
  ATTACH(probe, "twice");
  EXPECT_EQ(twice(4), 8);
  EXPECT_EQ(twice(5), 10);
  EXPECT_EQ(probe.entries, 2u);
  ASSERT_EQ(unregister_fprobe(&probe), 0);
  EXPECT_EQ(twice(6), 12);
  EXPECT_EQ(probe.entries, 2u);
  EXPECT_EQ(probe.nmissed, 0u);
}

TEST(KernelCases, ExitHandlerAloneRunsOncePerCall) {
  Probe probe(kExit);
  unsigned long value = 0;
  probe.on_exit = [&](const Hit& hit) { value = ftrace_regs_get_return_value(hit.regs); };
  ATTACH(probe, "twice");
  EXPECT_EQ(twice(4), 8);
  EXPECT_EQ(probe.exits, 1u);
  EXPECT_EQ(value, 8u);
}

TEST(KernelCases, BothHandlersRunByFilter) {
  Probe probe;
  const std::string filter = std::string(kVictimModule) + ":func*";
  ASSERT_EQ(register_fprobe(&probe, filter.c_str(), "func2"), 0) << fprobe_last_error();
  EXPECT_EQ(func1(1) + func2(1) + func3(1) + func_other(1), 2 + 3 + 4 + 5);
  EXPECT_EQ(probe.entries, 3u);
  EXPECT_EQ(probe.exits, 3u);
}

TEST(KernelCases, BothHandlersRunBySymbols) {
  Probe probe;
  ATTACH(probe, "twice", "thrice");
  EXPECT_EQ(twice(1) + thrice(1) + quadruple(1), 9);
  EXPECT_EQ(probe.entries, 2u);
  EXPECT_EQ(probe.exits, 2u);
}

TEST(KernelCases, BothHandlersRunByAddresses) {
  Probe probe;
  unsigned long addresses[] = {address_of(&twice), site_of("thrice")};
  ASSERT_EQ(register_fprobe_ips(&probe, addresses, 2), 0) << fprobe_last_error();
  EXPECT_EQ(twice(1) + thrice(1) + quadruple(1), 9);
  EXPECT_EQ(probe.entries, 2u);
  EXPECT_EQ(probe.exits, 2u);
}

TEST(KernelCases, EntryRunsBeforeTheBodyAndExitAfterIt) {
  static std::string order;
  Probe probe;
  probe.on_entry = [](const Hit&) {
    order += "entry ";
    return 0;
  };
  probe.on_exit = [](const Hit&) { order += "exit"; };
  ATTACH(probe, "call_back");
  call_back(
      [](void*) {
        order += "body ";
        return 0L;
      },
      nullptr);
  EXPECT_EQ(order, "entry body exit");
}

TEST(KernelCases, EntryDataReachesTheExit) {
  Probe probe;
  probe.entry_data_size = sizeof(long);
  long seen = 0;
  probe.on_entry = [](const Hit& hit) {
    *static_cast<long*>(hit.data) = static_cast<long>(ftrace_regs_get_argument(hit.regs, 0)) + 1000;
    return 0;
  };
  probe.on_exit = [&](const Hit& hit) { seen = *static_cast<long*>(hit.data); };
  ATTACH(probe, "twice");
  twice(4);
  EXPECT_EQ(seen, 1004);
}

TEST(KernelCases, EntryReturningNonZeroSkipsTheExitOfThatCallOnly) {
  Probe probe;
  probe.on_entry = [](const Hit& hit) { return ftrace_regs_get_argument(hit.regs, 0) == 2 ? 1 : 0; };
  ATTACH(probe, "twice");
  for (long x = 1; x <= 3; ++x) EXPECT_EQ(twice(x), 2 * x);
  EXPECT_EQ(probe.entries, 3u);
  EXPECT_EQ(probe.exits, 2u);
  EXPECT_EQ(probe.nmissed, 0u);
}

TEST(KernelCases, EntryReturningANegativeNumberSkipsTheExitToo) {
  Probe probe;
  probe.on_entry = [](const Hit&) { return -1; };
  ATTACH(probe, "twice");
  EXPECT_EQ(twice(4), 8);
  EXPECT_EQ(probe.exits, 0u);
}

TEST(KernelCases, SkippingAnExitTakesNothingFromOtherProbes) {
  Probe skipping, other;
  skipping.on_entry = [](const Hit&) { return 1; };
  ATTACH(other, "twice");
  ATTACH(skipping, "twice");
  twice(4);
  EXPECT_EQ(skipping.exits, 0u);
  EXPECT_EQ(other.exits, 1u);
}

// Registers probe `first` and then `second` on the same function and unregisters them in either order.
void two_probes_on_one_function(bool first_goes_first) {
  Probe first, second(kEntry);
  ATTACH(first, "twice");
  ATTACH(second, "twice", "thrice");
  EXPECT_EQ(twice(1), 2);
  EXPECT_EQ(first.entries, 1u);
  EXPECT_EQ(second.entries, 1u);
  EXPECT_EQ(first.exits, 1u);
  Probe& leaver = first_goes_first ? first : second;
  Probe& stayer = first_goes_first ? second : first;
  ASSERT_EQ(unregister_fprobe(&leaver), 0);
  EXPECT_EQ(twice(1), 2);
  EXPECT_EQ(leaver.entries, 1u);
  EXPECT_EQ(stayer.entries, 2u);
}

TEST(KernelCases, TwoProbesOnOneFunctionTheFirstLeaves) {
  two_probes_on_one_function(true);
}
TEST(KernelCases, TwoProbesOnOneFunctionTheSecondLeaves) {
  two_probes_on_one_function(false);
}

TEST(KernelCases, AProbeRegisteredAgainAtOnceFires) {
  Probe probe;
  for (unsigned long round = 1; round <= 100; ++round) {
    ATTACH(probe, "twice");
    EXPECT_EQ(twice(1), 2);
    ASSERT_EQ(unregister_fprobe(&probe), 0);
    ASSERT_EQ(probe.entries, round);
    ASSERT_EQ(probe.exits, round);
  }
}

TEST(KernelCases, BothHandlersNullIsAccepted) {
  fprobe probe{};
  const char* names[] = {"twice"};
  ASSERT_EQ(register_fprobe_syms(&probe, names, 1), 0) << fprobe_last_error();
  EXPECT_TRUE(fprobe_is_registered(&probe));
  EXPECT_EQ(twice(4), 8);
  EXPECT_EQ(unregister_fprobe(&probe), 0);
}

// Three probes that write down who runs.
struct Ordered {
  Probe probes[3];
  std::string order;
  Ordered() {
    for (int i = 0; i < 3; ++i) {
      probes[i].on_entry = [this, i](const Hit&) {
        order += static_cast<char>('a' + i);
        return 0;
      };
      probes[i].on_exit = [this, i](const Hit&) { order += static_cast<char>('A' + i); };
    }
  }
};

TEST(HandlerOrder, EntryHandlersRunNewestFirstAndExitHandlersInTheSameOrder) {
  Ordered ordered;
  for (Probe& probe : ordered.probes) ATTACH(probe, "twice");
  twice(1);
  EXPECT_EQ(ordered.order, "cbaCBA");
}

TEST(HandlerOrder, FollowsRegistrationNotTheStructs) {
  Ordered ordered;
  for (const int i : {2, 0, 1}) ATTACH(ordered.probes[i], "twice");
  twice(1);
  EXPECT_EQ(ordered.order, "bacBAC");
}

TEST(HandlerOrder, AProbeRegisteredAnewIsTheNewest) {
  Ordered ordered;
  for (Probe& probe : ordered.probes) ATTACH(probe, "twice");
  ASSERT_EQ(unregister_fprobe(&ordered.probes[0]), 0);
  ATTACH(ordered.probes[0], "twice");
  twice(1);
  EXPECT_EQ(ordered.order, "acbACB");
}

TEST(HandlerOrder, IsKeptWhenOneInTheMiddleLeaves) {
  Ordered ordered;
  for (Probe& probe : ordered.probes) ATTACH(probe, "twice");
  ASSERT_EQ(unregister_fprobe(&ordered.probes[1]), 0);
  twice(1);
  EXPECT_EQ(ordered.order, "caCA");
}

TEST(MissedCounter, IsSetToZeroByRegistrationAndStaysReadableAfterIt) {
  Probe probe;
  probe.nmissed = 77;
  probe.on_entry = [](const Hit&) { return static_cast<int>(twice(0)); };  // recursion
  ATTACH(probe, "twice");
  EXPECT_EQ(probe.nmissed, 0u);
  twice(1);
  ASSERT_EQ(unregister_fprobe(&probe), 0);
  EXPECT_EQ(probe.nmissed, 1u);
  EXPECT_EQ(probe.missed(FPROBE_MISS_RECURSION), 1u);
  probe.on_entry = nullptr;
  ATTACH(probe, "twice");
  EXPECT_EQ(probe.nmissed, 0u);
  EXPECT_EQ(probe.missed(FPROBE_MISS_RECURSION), 0u);
}

TEST(Flags, AreLeftAloneByRegistration) {
  Probe probe;
  probe.flags = FPROBE_FL_KPROBE_SHARED | FPROBE_FL_DISABLED;
  probe.ops.flags = FTRACE_OPS_FL_RCU;
  ATTACH(probe, "twice");
  EXPECT_EQ(probe.flags, FPROBE_FL_KPROBE_SHARED | FPROBE_FL_DISABLED);
  EXPECT_EQ(probe.ops.flags, FTRACE_OPS_FL_RCU);
  EXPECT_TRUE(fprobe_disabled(&probe));
  EXPECT_TRUE(fprobe_shared_with_kprobes(&probe));
  ASSERT_EQ(unregister_fprobe(&probe), 0);
  EXPECT_EQ(probe.flags, FPROBE_FL_KPROBE_SHARED | FPROBE_FL_DISABLED);
}

TEST(Disable, StopsBothHandlersUntilEnabled) {
  Probe probe;
  ATTACH(probe, "twice");
  disable_fprobe(&probe);
  EXPECT_TRUE(fprobe_disabled(&probe));
  EXPECT_EQ(twice(1), 2);
  EXPECT_EQ(probe.entries + probe.exits, 0u);
  enable_fprobe(&probe);
  EXPECT_FALSE(fprobe_disabled(&probe));
  EXPECT_EQ(twice(1), 2);
  EXPECT_EQ(probe.entries, 1u);
  EXPECT_EQ(probe.exits, 1u);
  EXPECT_EQ(probe.nmissed, 0u);
}

TEST(Disable, OfAnUnregisteredStructLastsThroughRegistration) {
  Probe probe;
  disable_fprobe(&probe);
  ATTACH(probe, "twice");
  twice(1);
  EXPECT_EQ(probe.entries + probe.exits, 0u);
  EXPECT_TRUE(fprobe_is_registered(&probe));
}

TEST(Disable, LeavesOtherProbesOnTheFunctionAlone) {
  Probe disabled, other;
  ATTACH(other, "twice");
  ATTACH(disabled, "twice");
  disable_fprobe(&disabled);
  twice(1);
  EXPECT_EQ(disabled.entries + disabled.exits, 0u);
  EXPECT_EQ(other.entries, 1u);
  EXPECT_EQ(other.exits, 1u);
}

}  // namespace
}  // namespace contract
