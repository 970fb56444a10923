// The instructions of a hit: those of a call with a probe less those of the same call without one, handlers included
// (they increment a counter).
#include <fprobe/fprobe.h>
#include <gtest/gtest.h>

#include <cstdio>

#include "stepper.h"

namespace golden {
long step(long value);
}

namespace {

fprobe g_probes[2]{};
unsigned long g_entries = 0, g_exits = 0;

int count_entry(fprobe*, unsigned long, unsigned long, ftrace_regs*, void*) {
  ++g_entries;
  return 0;
}
void count_exit(fprobe*, unsigned long, unsigned long, ftrace_regs*, void*) {
  ++g_exits;
}

bool attach(int count, fprobe_entry_cb entry, fprobe_exit_cb exit, unsigned flags = 0) {
  for (int i = 0; i < count; ++i) {
    g_probes[i].entry_handler = entry;
    g_probes[i].exit_handler = exit;
    g_probes[i].flags = flags;
    if (register_fprobe(&g_probes[i], "golden::step", nullptr) != 0) return false;
  }
  return golden::step(0) == 1;  // the thread's first hit is another matter
}

constexpr long kCalls = 16;

bool call() {
  long value = 0;
  for (long i = 0; i < kCalls; ++i) value = golden::step(value);
  return value == kCalls;
}

unsigned long steps_of(bool (*prepare)()) {
  const StepReport report = step_through(prepare, call);
  EXPECT_TRUE(report.completed);
  return report.steps;
}

// Instructions of one hit.
unsigned long cost_of(bool (*prepare)()) {
  static const unsigned long bare = steps_of([] { return true; });
  const unsigned long cost = (steps_of(prepare) - bare) / kCalls;
  std::printf("%lu instructions\n", cost);
  return cost;
}

}  // namespace

TEST(InstructionsOfAHit, WithAnEntryHandler) {
  EXPECT_LE(cost_of([] { return attach(1, count_entry, nullptr); }), 175u);
}
TEST(InstructionsOfAHit, WithBothHandlers) {
  EXPECT_LE(cost_of([] { return attach(1, count_entry, count_exit); }), 425u);
}
TEST(InstructionsOfAHit, WithTwoProbesOfBothHandlers) {
  EXPECT_LE(cost_of([] { return attach(2, count_entry, count_exit); }), 600u);
}
TEST(InstructionsOfAHit, WithHandlersOfGeneralRegisters) {
  EXPECT_LE(cost_of([] { return attach(1, count_entry, count_exit, FPROBE_FL_GENERAL_REGS); }), 405u);
}
