// What a throw through probed frames costs, counted in instructions: the machine's load does not matter.
#include <fprobe/fprobe.h>
#include <gtest/gtest.h>

#include "stepper.h"
#include "victims.h"

namespace {

bool with_probe() {
  static fprobe probe{};
  probe.exit_handler = [](fprobe*, unsigned long, unsigned long, ftrace_regs*, void*) {};
  return register_fprobe(&probe, "victim::*", nullptr) == 0;
}

template <int Frames>
bool throw_once() {
  try {
    victim::throw_through(Frames);
  } catch (int) {
    return true;
  }
  return false;
}

template <int Frames>
unsigned long steps_of_throw() {
  const auto prepare = [] { return with_probe() && throw_once<Frames>(); };  // the first throw fills caches
  const StepReport report = step_through(prepare, throw_once<Frames>);
  EXPECT_TRUE(report.completed);
  return report.steps;
}

}  // namespace

TEST(ThrowCost, IsLinearInTheProbedFramesAThrowPasses) {
  // The walk over the records would be quadratic without the personality's place in it.
  const unsigned long few = steps_of_throw<6>();
  const unsigned long twice = steps_of_throw<12>();
  const unsigned long four_times = steps_of_throw<24>();
  std::printf("%lu, %lu, %lu instructions through 6, 12, 24 frames\n", few, twice, four_times);
  EXPECT_LT((four_times - twice) * 10, (twice - few) * 2 * 11);
}
