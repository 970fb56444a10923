// FPROBE_FL_NEW_MODULES and dlmopen().
#include <dlfcn.h>

#include "registry/late_modules.h"

namespace {

using fprobe_test::CountingProbe;
using fprobe_test::LatePlugin;

TEST(NewModules, OfAnotherNamespaceAreNotCovered) {
  CountingProbe probe;
  ASSERT_EQ(register_fprobe(&probe, "late_function", nullptr), 0) << fprobe_last_error();
  void* const handle = dlmopen(LM_ID_NEWLM, LATE_FENTRY, RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(handle, nullptr) << dlerror();
  EXPECT_EQ(reinterpret_cast<long (*)(long)>(dlsym(handle, "late_function"))(1), 11);
  EXPECT_EQ(probe.entries, 0u);
  const LatePlugin plugin(LATE_FENTRY);
  EXPECT_EQ(probe.entries, 1u);
  EXPECT_EQ(dlclose(handle), 0);
  EXPECT_EQ(plugin.call("late_function", 1), 11);
  EXPECT_EQ(probe.entries, 2u);
}

}  // namespace
