// Every `ret` around a probe hit is matched by the `call` that pushed its address: return predictors and hardware shadow
// stacks see an ordinary program.
#include <fprobe/fprobe.h>
#include <gtest/gtest.h>

#include "stepper.h"
#include "victims.h"

namespace {

constexpr long kHits = 300;

fprobe g_probe{};
long g_entries = 0;
long g_exits = 0;

int count_entry(fprobe*, unsigned long, unsigned long, ftrace_regs*, void*) {
  ++g_entries;
  return 0;
}

void count_exit(fprobe*, unsigned long, unsigned long, ftrace_regs*, void*) {
  ++g_exits;
}

bool register_probe(fprobe_entry_cb entry, fprobe_exit_cb exit) {
  g_probe.entry_handler = entry;
  g_probe.exit_handler = exit;
  return register_fprobe(&g_probe, "victim::*", nullptr) == 0;
}

bool with_entry() {
  return register_probe(count_entry, nullptr);
}

bool with_both() {
  return register_probe(count_entry, count_exit);
}

bool without_probe() {
  return true;
}

bool call_leaf() {
  bool right = true;
  for (long i = 0; i < kHits; ++i) right &= victim::leaf(i) == i + 1;
  return right;
}

bool call_chain() {
  bool right = true;
  for (long i = 0; i < kHits / 10; ++i) right &= victim::chain(9) == 11;
  return right;
}

bool call_tail() {
  bool right = true;
  for (long i = 0; i < kHits; ++i) right &= victim::tail(i) == 2 * i + 1;
  return right;
}

// Runs `body` step by step; nothing may be unmatched in more than a thousand returns.
StepReport expect_balanced(bool (*prepare)(), bool (*body)()) {
  const StepReport report = step_through(prepare, body);
  EXPECT_TRUE(report.completed);
  EXPECT_GE(report.rets, 1000u);
  EXPECT_EQ(report.unmatched, 0u) << std::hex << "the ret at " << report.first_unmatched_ip << " went to "
                                  << report.first_unmatched_to << " instead of " << report.first_unmatched_own;
  std::printf("%lu steps, %lu calls (%lu planting), %lu rets, %lu unmatched\n", report.steps, report.calls,
              report.planting_calls, report.rets, report.unmatched);
  return report;
}

}  // namespace

TEST(SingleStep, EntryProbesKeepCallsAndReturnsBalanced) {
  const StepReport report = expect_balanced(with_entry, [] { return call_leaf() && g_entries == kHits; });
  EXPECT_EQ(report.planting_calls, 0u);
}

TEST(SingleStep, EntryAndExitProbesKeepCallsAndReturnsBalanced) {
  const StepReport report =
      expect_balanced(with_both, [] { return call_leaf() && g_entries == kHits && g_exits == kHits; });
  EXPECT_EQ(report.planting_calls, static_cast<unsigned long>(kHits));
}

TEST(SingleStep, NestedProbedCallsKeepCallsAndReturnsBalanced) {
  const StepReport report = expect_balanced(with_both, [] { return call_chain() && g_exits == kHits / 10 * 11; });
  EXPECT_EQ(report.planting_calls, static_cast<unsigned long>(kHits / 10 * 11));
}

// The tail-called function finds the slot planted: one planting call, and both exits at the one return.
TEST(SingleStep, ProbedTailCallsKeepCallsAndReturnsBalanced) {
  const StepReport report =
      expect_balanced(with_both, [] { return call_tail() && g_entries == 2 * kHits && g_exits == 2 * kHits; });
  EXPECT_EQ(report.planting_calls, static_cast<unsigned long>(kHits));
}

TEST(SingleStep, AProbeUnregisteredInFlightKeepsCallsAndReturnsBalanced) {
  const StepReport report = expect_balanced(with_both, [] {
    static int result = -1;
    bool right = call_leaf();
    right &= victim::calls_back([] { result = unregister_fprobe(&g_probe); }, 5) == 6;
    right &= call_leaf();
    return right && result == 0 && g_entries == kHits + 1 && g_exits == kHits;
  });
  EXPECT_EQ(report.planting_calls, static_cast<unsigned long>(kHits + 1));
}

TEST(SingleStep, ASkippedBodyKeepsCallsAndReturnsBalanced) {
  const auto prepare = [] {
    return register_probe(
        [](fprobe*, unsigned long, unsigned long, ftrace_regs* regs, void*) {
          ftrace_regs_set_return_value(regs, 77);
          ftrace_override_function_with_return(regs);
          return 0;
        },
        count_exit);
  };
  expect_balanced(prepare, [] {
    bool right = true;
    for (long i = 0; i < kHits; ++i) right &= victim::leaf(i) == 77;
    return right && g_exits == kHits;
  });
}

// Two functions that change their return address: the checker must see it.
asm(R"(
        .pushsection .text
overwrites_return_address:
        movq    (%rsp), %rcx
        leaq    1f(%rip), %rax
        movq    %rax, (%rsp)
        ret
1:      movq    %rdi, %rax
        jmp     *%rcx
        .popsection
)");
extern "C" long overwrites_return_address(long n);

TEST(SingleStep, TheCheckerReportsAnOverwrittenReturnAddress) {
  const StepReport report = step_through(without_probe, [] {
    bool right = true;
    for (long i = 0; i < 10; ++i) right &= overwrites_return_address(i) == i;
    return right;
  });
  EXPECT_TRUE(report.completed);
  EXPECT_EQ(report.unmatched, 10u);
}
