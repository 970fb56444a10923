// What a program without a dynamic loader is told.
#include <errno.h>
#include <fprobe/fprobe.h>
#include <gtest/gtest.h>

#include <string>

#include "registry/victims.h"

namespace {

TEST(StaticProgram, CannotCoverNewModulesAndSaysSo) {
  fprobe probe{};
  probe.flags = FPROBE_FL_NEW_MODULES;
  EXPECT_EQ(register_fprobe(&probe, "first_victim", nullptr), -EOPNOTSUPP);
  EXPECT_NE(std::string(fprobe_last_error()).find("-static"), std::string::npos) << fprobe_last_error();
  EXPECT_FALSE(fprobe_is_registered(&probe));
  probe.flags = 0;
  EXPECT_EQ(register_fprobe(&probe, "first_victim", nullptr), 0) << fprobe_last_error();
  EXPECT_EQ(unregister_fprobe(&probe), 0);
}

}  // namespace
