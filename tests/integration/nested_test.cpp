// GNU C's nested functions: the static chain in r10 survives, and the site's push and pop do not confuse the slot.
#include "integration/support.h"

namespace contract {
namespace {

TEST(NestedFunction, KeepsItsStaticChain) {
  Probe probe;
  unsigned long first = 0;
  probe.on_entry = [&](const Hit& hit) {
    if (ftrace_regs_get_argument(hit.regs, 0) == 0) first = hit.ret_ip;
    EXPECT_EQ(hit.ret_ip, first);
    asm volatile("movq $-1, %%r10" : : : "r10");
    return 0;
  };
  unsigned long sum = 0;
  probe.on_exit = [&](const Hit& hit) { sum += ftrace_regs_get_return_value(hit.regs); };
  ATTACH(probe, "inner");
  EXPECT_EQ(nested_sum(1000, 5), 5010);
  EXPECT_EQ(probe.entries, 5u);
  EXPECT_EQ(sum, 5010u);
  // ret_ip lies in the function that contains it.
  EXPECT_GT(first, address_of(&nested_sum));
  EXPECT_LT(first, address_of(&nested_sum) + 300);
}

TEST(NestedFunction, WithAnEntryProbeAloneKeepsItsStaticChain) {
  Probe probe(kEntry);
  ATTACH(probe, "inner");
  EXPECT_EQ(nested_sum(1000, 5), 5010);
  EXPECT_EQ(probe.entries, 5u);
}

TEST(NestedFunction, CanBeSkipped) {
  Probe probe;
  probe.on_entry = [](const Hit& hit) {
    ftrace_regs_set_return_value(hit.regs, 1);
    ftrace_override_function_with_return(hit.regs);
    return 0;
  };
  ATTACH(probe, "inner");
  EXPECT_EQ(nested_sum(1000, 5), 5);
  EXPECT_EQ(probe.exits, 5u);
}

TEST(NestedFunction, AndItsParentMayBothBeProbed) {
  Probe probe;
  ATTACH(probe, "inner", "nested_sum");
  EXPECT_EQ(nested_sum(1000, 5), 5010);
  EXPECT_EQ(probe.exits, 6u);
}

}  // namespace
}  // namespace contract
