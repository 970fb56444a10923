// ftrace_regs of x86-64 without a hit: which word each accessor reads and writes.
#include "regs.h"

#include <fprobe/ftrace_regs.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>

#include "base/arch.h"

namespace {

class RegsTest : public ::testing::Test {
 protected:
  RegsTest() {
    regs_.di = 10, regs_.si = 11, regs_.dx = 12, regs_.cx = 13, regs_.r8 = 14, regs_.r9 = 15, regs_.ax = 3;
    regs_.sp = reinterpret_cast<unsigned long>(stack_);
    regs_.ip = 0x1000;
    regs_.flags = libfprobe::detail::kRegsHasVectors;
    for (int n = 0; n < 8; ++n) ftrace_regs_set_fp_argument(&regs_, n, 0.5 + n);
  }
  void at_exit() { regs_.flags = libfprobe::detail::kRegsAtExit | libfprobe::detail::kRegsHasVectors; }

  unsigned long stack_[4] = {0xdead, 16, 17, 18};  // return address, seventh argument, ...
  ftrace_regs regs_{};
};

TEST_F(RegsTest, IntegerArgumentsComeFromSixRegistersAndThenFromTheStack) {
  for (unsigned n = 0; n < 9; ++n) {
    EXPECT_TRUE(ftrace_regs_has_argument(&regs_, n));
    EXPECT_EQ(ftrace_regs_get_argument(&regs_, n), 10 + n);
  }
}

TEST_F(RegsTest, SettingAnArgumentChangesItsRegisterOrItsStackWord) {
  for (unsigned n = 0; n < 9; ++n) ftrace_regs_set_argument(&regs_, n, 100 + n);
  EXPECT_EQ(regs_.di, 100u);
  EXPECT_EQ(regs_.r9, 105u);
  EXPECT_EQ(stack_[1], 106u);
  EXPECT_EQ(stack_[0], 0xdeadu);
}

TEST_F(RegsTest, ReturnValuesSetAtEntryLeaveTheArgumentsAlone) {
  ftrace_regs_set_return_value(&regs_, 77);
  ftrace_regs_set_return_value2(&regs_, 78);
  ftrace_regs_set_fp_return_value(&regs_, 7.5);
  EXPECT_EQ(ftrace_regs_get_argument(&regs_, 2), 12u);
  EXPECT_EQ(regs_.ax, 3u);
  EXPECT_EQ(ftrace_regs_get_fp_argument(&regs_, 0), 0.5);
  EXPECT_EQ(ftrace_regs_get_return_value(&regs_), 77u);
  EXPECT_EQ(ftrace_regs_get_return_value2(&regs_), 78u);
  EXPECT_EQ(ftrace_regs_get_fp_return_value(&regs_), 7.5);
  EXPECT_EQ(ftrace_regs_get_fp_return_value2(&regs_), 0.0);
}

TEST_F(RegsTest, ASkippedBodyReturnsWhatWasSetAndZeroOtherwise) {
  ftrace_regs_set_return_value(&regs_, 77);
  ftrace_regs_set_fp_return_value2(&regs_, 2.25);
  EXPECT_NE(libfprobe::detail::regs_apply_skip(regs_, {}), 0u);
  at_exit();
  EXPECT_EQ(ftrace_regs_get_return_value(&regs_), 77u);
  EXPECT_EQ(ftrace_regs_get_return_value2(&regs_), 0u);
  EXPECT_EQ(ftrace_regs_get_fp_return_value(&regs_), 0.0);
  EXPECT_EQ(ftrace_regs_get_fp_return_value2(&regs_), 2.25);
}

TEST_F(RegsTest, AtExitThereAreNoArgumentsAndTheInstructionPointerStays) {
  at_exit();
  EXPECT_FALSE(ftrace_regs_has_argument(&regs_, 0));
  EXPECT_EQ(ftrace_regs_get_argument(&regs_, 0), 0u);
  ftrace_regs_set_instruction_pointer(&regs_, 5);
  EXPECT_EQ(ftrace_regs_get_instruction_pointer(&regs_), 0x1000u);
  ftrace_override_function_with_return(&regs_);
  EXPECT_EQ(regs_.flags & libfprobe::detail::kRegsSkip, 0u);
}

TEST_F(RegsTest, FloatsAreTheLowHalfOfAVectorRegister) {
  ftrace_regs_set_fp_argument_float(&regs_, 1, 2.5F);
  EXPECT_EQ(ftrace_regs_get_fp_argument_float(&regs_, 1), 2.5F);
  at_exit();
  ftrace_regs_set_fp_return_value_float(&regs_, 3.5F);
  EXPECT_EQ(ftrace_regs_get_fp_return_value_float(&regs_), 3.5F);
}

TEST_F(RegsTest, RegistersAreFoundByBothSpellings) {
  const int offset = ftrace_regs_query_register_offset("di");
  ASSERT_GE(offset, 0);
  EXPECT_EQ(ftrace_regs_query_register_offset("rdi"), offset);
  unsigned long value = 0;
  std::memcpy(&value, reinterpret_cast<const char*>(&regs_) + offset, sizeof value);
  EXPECT_EQ(value, 10u);
  EXPECT_EQ(ftrace_regs_query_register_offset("r8"), static_cast<int>(offsetof(ftrace_regs, r8)));
  EXPECT_EQ(ftrace_regs_query_register_offset("rr8"), -EINVAL);
  EXPECT_EQ(ftrace_regs_query_register_offset("nonsense"), -EINVAL);
  EXPECT_EQ(ftrace_regs_query_register_offset(""), -EINVAL);
  EXPECT_EQ(ftrace_regs_query_register_offset(nullptr), -EINVAL);
}

}  // namespace
