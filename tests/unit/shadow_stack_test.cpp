// The shadow stack as a data structure: order, reuse, limits.
#include "hot/shadow_stack.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <set>
#include <vector>

namespace libfprobe::detail {
namespace {

class ShadowStackTest : public ::testing::Test {
 protected:
  static constexpr std::size_t kFrames = 8;
  static constexpr std::size_t kBlockBytes = 4096;

  ShadowStackTest() {
    const auto base = reinterpret_cast<std::uintptr_t>(memory_.data());
    const std::uintptr_t blocks = base + kFrames * sizeof(FrameRecord);
    stack_.prepare(base, kFrames, blocks, blocks + kBlockBytes);
  }
  FrameRecord* push(std::uintptr_t slot) {
    FrameRecord* record = stack_.allocate(1, 0);
    if (record != nullptr) stack_.push(record, slot);
    return record;
  }
  void pop(FrameRecord* record) {
    stack_.unlink(record);
    stack_.release(record);
  }

  std::vector<FrameRecord> memory_ = std::vector<FrameRecord>(kFrames + kBlockBytes / sizeof(FrameRecord));
  ShadowStack stack_;
};

TEST_F(ShadowStackTest, EmptyStackEndsInASentinelThatNoSlotEquals) {
  EXPECT_TRUE(stack_.is_empty());
  EXPECT_EQ(stack_.top()->slot.load(), kBottomSlot);
  EXPECT_EQ(stack_.top()->return_address, 0u);
  EXPECT_EQ(stack_.find(0x1000), nullptr);
}

TEST_F(ShadowStackTest, TheNewestRecordOfASlotIsFoundFirst) {
  FrameRecord* older = push(0x1000);
  FrameRecord* newer = push(0x1000);
  EXPECT_EQ(stack_.find(0x1000), newer);
  pop(newer);
  EXPECT_EQ(stack_.find(0x1000), older);
}

TEST_F(ShadowStackTest, ARecordInTheMiddleCanBeUnlinked) {
  push(0x3000);
  FrameRecord* middle = push(0x2000);
  FrameRecord* newest = push(0x1000);
  pop(middle);
  EXPECT_EQ(stack_.find(0x2000), nullptr);
  EXPECT_EQ(stack_.top(), newest);
  EXPECT_NE(stack_.find(0x3000), nullptr);
}

TEST_F(ShadowStackTest, AsManyFramesAsPromisedAndNoMore) {
  std::vector<FrameRecord*> records;
  for (std::size_t i = 0; i < kFrames; ++i) records.push_back(push(0x10000 - 16 * i));
  EXPECT_EQ(std::set<FrameRecord*>(records.begin(), records.end()).size(), kFrames);
  EXPECT_EQ(records.front() == nullptr, false);
  EXPECT_EQ(stack_.allocate(1, 0), nullptr);
  pop(records.back());
  EXPECT_EQ(stack_.allocate(1, 0), records.back());
}

TEST_F(ShadowStackTest, TwoFibersThatPushYieldAndPopNeedNoMoreThanTheyHold) {
  FrameRecord* a = push(0x1000);
  for (int i = 0; i < 1000; ++i) {
    FrameRecord* b = push(0x9000);
    ASSERT_NE(b, nullptr);
    pop(a);
    a = push(0x1000);
    ASSERT_NE(a, nullptr);
    pop(b);
  }
}

TEST_F(ShadowStackTest, ReleasedRecordsAreDeadForUnwindersButRememberTheirSlot) {
  FrameRecord* record = push(0x1000);
  record->return_address = 0xabc;
  pop(record);
  EXPECT_TRUE(is_dead(record->slot.load()));
  EXPECT_EQ(stack_.find_released(0x1000), record);
  EXPECT_EQ(stack_.find_released(0x2000), nullptr);
}

TEST_F(ShadowStackTest, ManyProbesGetABlockThatIsUsedAgain) {
  FrameRecord* record = stack_.allocate(3, 3 * 120);
  ASSERT_NE(record, nullptr);
  EXPECT_NE(record->block_class, 0);
  FrameProbe* const block = record->probes();
  EXPECT_EQ(static_cast<void*>(ShadowStack::data_of(*record, 3)), static_cast<void*>(block + 3));
  stack_.push(record, 0x1000);
  pop(record);
  FrameRecord* again = stack_.allocate(3, 3 * 120);
  EXPECT_EQ(again->probes(), block);
}

TEST_F(ShadowStackTest, ABlockThatDoesNotFitGivesNoFrameAndLosesNoRecord) {
  for (int i = 0; i < 100; ++i) EXPECT_EQ(stack_.allocate(2, 2 * kBlockBytes), nullptr);
  for (std::size_t i = 0; i < kFrames; ++i) EXPECT_NE(push(0x10000 - 16 * i), nullptr);
}

TEST_F(ShadowStackTest, ASweepIsWantedForRecordsAtOrBelowTheNewSlotAndForFramesFinishedElsewhere) {
  EXPECT_FALSE(stack_.wants_sweep(0x1000));
  push(0x2000);
  EXPECT_FALSE(stack_.wants_sweep(0x1ff8));
  EXPECT_TRUE(stack_.wants_sweep(0x2000));
  EXPECT_TRUE(stack_.wants_sweep(0x3000));
  stack_.finished_by_others = 1;
  EXPECT_TRUE(stack_.wants_sweep(0x1000));
}

}  // namespace
}  // namespace libfprobe::detail
