// Calls left by longjmp: often, at depth, with memory flat and later exits right.
#include <vector>

#include "integration/support.h"

namespace contract {
namespace {

TEST(Longjmp, AHundredThousandTimesFromDepthSevenLeavesMemoryFlatAndLaterExitsRight) {
  constexpr unsigned long kRounds = 100'000;
  Probe jumping, around, later;
  jumping.entry_data_size = MAX_FPROBE_DATA_SIZE;
  ATTACH(jumping, "jump_out");
  ATTACH(around, "jump_round");
  ATTACH(later, "calls_twice");
  for (int round = 0; round < 100; ++round) jump_round(7);
  const long before = resident_kib();
  for (unsigned long round = 100; round < kRounds; ++round) {
    ASSERT_EQ(jump_round(7), 7);
    ASSERT_EQ(calls_twice(2), 5);
  }
  EXPECT_LT(resident_kib() - before, 4096);
  EXPECT_EQ(jumping.entries, 7 * kRounds);
  EXPECT_EQ(jumping.exits, 0u);
  EXPECT_EQ(around.exits, kRounds);
  EXPECT_EQ(later.exits, kRounds - 100);
  EXPECT_EQ(later.nmissed + around.nmissed, 0u);
  // Frames whose slots were used anew are counted; the last round's may still lie there.
  EXPECT_EQ(jumping.nmissed, jumping.missed(FPROBE_MISS_DROPPED));
  EXPECT_LE(jumping.nmissed, 7 * kRounds);
  EXPECT_GE(jumping.nmissed, 7 * (kRounds - 1));
}

// Nothing but the calls themselves writes to the stack between two rounds: the words of dead frames stay what they were
// until a new call uses the very slot.
void expect_flat_memory_in_a_tight_loop(int depth, unsigned long rounds) {
  Probe probe;
  ATTACH(probe, "jump_out");
  std::thread([&] {
    for (unsigned long round = 0; round < 100; ++round) jump_round(depth);
    const long before = resident_kib();
    for (unsigned long round = 100; round < rounds; ++round) jump_round(depth);
    EXPECT_LT(resident_kib() - before, 4096);
  }).join();
  const unsigned long frames = static_cast<unsigned long>(depth) * rounds;
  EXPECT_EQ(probe.entries, frames);
  EXPECT_EQ(probe.missed(FPROBE_MISS_DROPPED), frames);
}

TEST(Longjmp, InATightLoopLeavesMemoryFlat) {
  expect_flat_memory_in_a_tight_loop(7, 100'000);
}
TEST(Longjmp, InATightLoopFromFarDownLeavesMemoryFlat) {
  expect_flat_memory_in_a_tight_loop(500, 2'000);
}

TEST(Longjmp, OverAProbedFunctionIntoAProbedFunctionKeepsTheLatter) {
  Probe probe;
  std::vector<unsigned long> results;
  probe.on_exit = [&](const Hit& hit) { results.push_back(ftrace_regs_get_return_value(hit.regs)); };
  ATTACH(probe, "jump_round", "jump_out");
  EXPECT_EQ(jump_round(3), 3);
  EXPECT_EQ(jump_round(5), 5);
  EXPECT_EQ(results, (std::vector<unsigned long>{3, 5}));
}

TEST(Longjmp, AtManyDepthsIsCountedExactlyWhenTheThreadIsGone) {
  Probe probe;
  ATTACH(probe, "jump_out");
  unsigned long frames = 0;
  for (int depth = 1; depth <= 50; ++depth) frames += static_cast<unsigned long>(depth);
  std::thread([] {
    for (int depth = 1; depth <= 50; ++depth) jump_round(depth);
  }).join();
  EXPECT_EQ(probe.entries, frames);
  EXPECT_EQ(probe.missed(FPROBE_MISS_DROPPED), frames);
}

TEST(Longjmp, AFrameLeftAboveAnotherDoesNotSwallowItsExit) {
  // A call that stays, then one that is left from deeper down, then the first returns.
  Probe probe;
  ATTACH(probe, "call_back", "jump_out");
  EXPECT_EQ(call_back([](void*) { return static_cast<long>(jump_round(7)); }, nullptr), 8);
  EXPECT_EQ(probe.exits, 1u);
  EXPECT_EQ(probe.entries, 8u);
}

}  // namespace
}  // namespace contract
