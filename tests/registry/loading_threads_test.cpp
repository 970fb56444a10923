// FPROBE_FL_NEW_MODULES: modules that handlers, new threads, and several threads at once load.
#include <errno.h>

#include <atomic>
#include <memory>
#include <thread>

#include "registry/late_modules.h"
#include "registry/victims.h"

extern std::atomic<void (*)()> g_on_next_allocation;  // probed_allocator.cpp

namespace {

using fprobe_test::CountingProbe;
using fprobe_test::LatePlugin;
using fprobe_test::loader_code;

int attach(CountingProbe& probe, const char* filter = "late_function") {
  return register_fprobe(&probe, filter, nullptr);
}

TEST(AHandler, MayLoadModules) {
  struct Loading : CountingProbe {
    Loading() {
      entry_handler = [](fprobe* fp, unsigned long, unsigned long, ftrace_regs*, void*) {
        static_cast<Loading*>(fp)->plugin = std::make_unique<LatePlugin>(LATE_FENTRY);
        return 0;
      };
    }
    std::unique_ptr<LatePlugin> plugin;
  } loading;
  CountingProbe late;
  const char* names[] = {"first_victim"};
  ASSERT_EQ(register_fprobe_syms(&loading, names, 1), 0) << fprobe_last_error();
  ASSERT_EQ(attach(late), 0) << fprobe_last_error();
  EXPECT_EQ(first_victim(1), 2);
  ASSERT_NE(loading.plugin, nullptr);
  EXPECT_EQ(late.entries, 0u);
  EXPECT_EQ(fprobe_missed(&late, FPROBE_MISS_RECURSION), 1u) << "the constructor ran inside the handler";
  EXPECT_EQ(loading.plugin->call("late_function", 1), 11);
  EXPECT_EQ(late.entries, 1u);
  EXPECT_EQ(unregister_fprobe(&loading), 0);
}

TEST(AHandler, MayRegisterForModulesAndLoadThem) {
  struct Both : CountingProbe {
    Both() {
      entry_handler = [](fprobe* fp, unsigned long, unsigned long, ftrace_regs*, void*) {
        auto& self = *static_cast<Both*>(fp);
        self.result = register_fprobe(&self.late, "late_function", nullptr);
        self.plugin = std::make_unique<LatePlugin>(LATE_FENTRY);
        self.late_result = unregister_fprobe_async(&self.late);
        return 0;
      };
    }
    CountingProbe late;
    std::unique_ptr<LatePlugin> plugin;
    int result = 1, late_result = 1;
  } probe;
  const std::string before = loader_code();
  const char* names[] = {"first_victim"};
  ASSERT_EQ(register_fprobe_syms(&probe, names, 1), 0) << fprobe_last_error();
  EXPECT_EQ(first_victim(1), 2);
  EXPECT_EQ(probe.result, 0);
  EXPECT_EQ(probe.late_result, 0);
  EXPECT_EQ(probe.late.nmissed, 1u);
  EXPECT_EQ(unregister_fprobe(&probe), 0);
  EXPECT_EQ(loader_code(), before);
}

TEST(AThread, ThatWasNeverHitMayLoadModules) {
  CountingProbe probe;
  ASSERT_EQ(attach(probe), 0) << fprobe_last_error();
  std::thread([&] {
    const LatePlugin plugin(LATE_FENTRY);
    EXPECT_EQ(plugin.call("late_function", 1), 11);
  }).join();
  EXPECT_EQ(probe.entries, 2u);
  EXPECT_EQ(probe.exits, 2u);
}

// The library's own allocations on the loading thread, with its locks held, are no calls for handlers.
TEST(AThread, ThatWasNeverHitRunsNoHandlerForTheLibrarysOwnCalls) {
  CountingProbe late, allocations(0);
  const char* names[] = {"_Znwm"};
  ASSERT_EQ(register_fprobe(&late, "late_function", nullptr), 0) << fprobe_last_error();
  ASSERT_EQ(register_fprobe_syms(&allocations, names, 1), 0) << fprobe_last_error();
  std::thread([&] {
    const unsigned long before = allocations.entries;
    void* const handle = dlopen(LATE_FENTRY, RTLD_NOW | RTLD_LOCAL);
    EXPECT_EQ(allocations.entries, before);
    EXPECT_NE(handle, nullptr);
    dlclose(handle);
  }).join();
  EXPECT_GT(allocations.nmissed, 0u) << "the library allocated nothing, the test shows nothing";
  EXPECT_EQ(late.entries, 1u);
}

void* g_loaded;

TEST(AnAllocator, ThatLoadsAModuleInTheMiddleOfACallIsNoDeadlockAndTheNextCallCovers) {
  CountingProbe late, other(0);
  ASSERT_EQ(attach(late), 0) << fprobe_last_error();
  g_on_next_allocation = [] { g_loaded = dlopen(LATE_FENTRY, RTLD_NOW | RTLD_LOCAL); };
  EXPECT_EQ(attach(other, "first_victim"), 0) << fprobe_last_error();
  ASSERT_NE(g_loaded, nullptr);
  EXPECT_EQ(fprobe_synchronize(), 0);
  const LatePlugin plugin(LATE_FENTRY);
  EXPECT_EQ(plugin.call("late_function", 1), 11);
  EXPECT_EQ(late.entries, 1u);
  EXPECT_EQ(dlclose(g_loaded), 0);
}

TEST(Threads, LoadModulesWhileOthersRegisterAndUnregister) {
  constexpr unsigned long kRounds = 60;
  CountingProbe always;
  ASSERT_EQ(attach(always, "late_function"), 0) << fprobe_last_error();
  std::atomic<unsigned long> wrong{0}, registered{0}, running{2};
  const auto load = [&](const char* path) {
    for (unsigned long round = 0; round < kRounds; ++round) {
      const LatePlugin plugin(path);
      for (long x = 0; x < 5; ++x) wrong += plugin.call("late_function", x) != x * 10 + 1 ? 1 : 0;
    }
    --running;
  };
  const auto change = [&] {
    while (running != 0 || registered < 20) {
      CountingProbe probe;
      wrong += attach(probe, "late_*,first_victim") != 0 ? 1 : 0;
      wrong += first_victim(1) != 2 ? 1 : 0;
      wrong += unregister_fprobe(&probe) != 0 || probe.entries == 0 ? 1 : 0;
      ++registered;
    }
  };
  std::thread threads[] = {std::thread(load, LATE_FENTRY), std::thread(load, LATE_PATCHABLE), std::thread(change),
                           std::thread(change)};
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0u);
  EXPECT_EQ(always.entries, 2 * kRounds * 6);
  EXPECT_EQ(always.exits, 2 * kRounds * 6);
}

}  // namespace
