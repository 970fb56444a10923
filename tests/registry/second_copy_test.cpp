// Two copies of the library in one process.
#include <dlfcn.h>
#include <errno.h>
#include <fprobe/fprobe.h>
#include <gtest/gtest.h>

#include <cstring>

#include "registry/victims.h"

namespace {

using PluginRegisters = int (*)(const char*, char*, unsigned long);

using PluginUnregisters = int (*)(bool, bool);

template <class Function>
Function load_from_plugin(const char* name) {
  void* const handle = dlopen(SECOND_COPY, RTLD_NOW | RTLD_LOCAL);
  EXPECT_NE(handle, nullptr) << dlerror();
  return handle != nullptr ? reinterpret_cast<Function>(dlsym(handle, name)) : nullptr;
}

unsigned long g_entries;
int on_entry(fprobe*, unsigned long, unsigned long, ftrace_regs*, void*) {
  ++g_entries;
  return 0;
}

TEST(SecondCopy, RefusesWithASentenceAndTheFirstGoesOn) {
  fprobe probe{};
  probe.entry_handler = &on_entry;
  const char* name = "first_victim";
  ASSERT_EQ(register_fprobe_syms(&probe, &name, 1), 0) << fprobe_last_error();

  const auto plugin_registers = load_from_plugin<PluginRegisters>("plugin_registers");
  ASSERT_NE(plugin_registers, nullptr);
  char sentence[256] = "";
  EXPECT_EQ(plugin_registers("second_victim", sentence, sizeof sentence), -EBUSY);
  EXPECT_NE(std::strstr(sentence, "copy"), nullptr) << sentence;

  EXPECT_EQ(first_victim(1), 2);
  EXPECT_EQ(second_victim(1), 3);
  EXPECT_EQ(g_entries, 1u);
  EXPECT_EQ(unregister_fprobe(&probe), 0);
}

TEST(SecondCopy, HasNothingToUnregister) {
  const auto plugin_unregisters = load_from_plugin<PluginUnregisters>("plugin_unregisters");
  ASSERT_NE(plugin_unregisters, nullptr);
  for (const bool waits : {true, false})
    for (const bool gives_struct : {true, false})
      EXPECT_EQ(plugin_unregisters(waits, gives_struct), -EINVAL) << waits << gives_struct;
}

}  // namespace
