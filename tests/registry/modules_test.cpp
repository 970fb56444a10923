// Modules that come and go while probes are registered.
#include <dlfcn.h>
#include <errno.h>
#include <fprobe/fprobe.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <thread>

#include "base/syscalls.h"
#include "registry/registry.h"
#include "registry/victims.h"

namespace {

constexpr unsigned char kJmpRel32 = 0xe9;
constexpr const char* kPlugins[] = {PLUGIN_1, PLUGIN_2};

class Plugin {
 public:
  explicit Plugin(int number) : handle_(dlopen(kPlugins[number - 1], RTLD_NOW | RTLD_LOCAL)) {
    EXPECT_NE(handle_, nullptr) << dlerror();
    if (handle_ != nullptr) function_ = reinterpret_cast<Function>(dlsym(handle_, "plugin_function"));
  }
  ~Plugin() { unload(); }
  Plugin(const Plugin&) = delete;
  Plugin& operator=(const Plugin&) = delete;

  void unload() {
    if (handle_ == nullptr) return;
    EXPECT_EQ(dlclose(handle_), 0);
    handle_ = nullptr;
  }
  long call(long x) const { return function_(x); }
  unsigned long address() const { return reinterpret_cast<unsigned long>(function_); }

 private:
  using Function = long (*)(long);
  void* handle_;
  Function function_ = nullptr;
};

struct Probe : fprobe {
  Probe() : fprobe{} {
    entry_handler = [](fprobe* fp, unsigned long, unsigned long, ftrace_regs*, void*) {
      ++static_cast<Probe*>(fp)->entries;
      return 0;
    };
    exit_handler = [](fprobe* fp, unsigned long, unsigned long, ftrace_regs*, void*) {
      ++static_cast<Probe*>(fp)->exits;
    };
  }
  std::atomic<unsigned long> entries{0}, exits{0};
};

int attach(Probe& probe, const char* name) {
  return register_fprobe_syms(&probe, &name, 1);
}

TEST(Modules, AFunctionOfAModuleLoadedLaterCanBeProbed) {
  Probe probe;
  EXPECT_EQ(attach(probe, "plugin_function"), -ENOENT);
  const Plugin plugin(1);
  ASSERT_EQ(attach(probe, "plugin_function"), 0) << fprobe_last_error();
  EXPECT_EQ(plugin.call(4), 41);
  EXPECT_EQ(probe.entries, 1u);
  EXPECT_EQ(probe.exits, 1u);
  EXPECT_EQ(unregister_fprobe(&probe), 0);
  EXPECT_EQ(plugin.call(4), 41);
  EXPECT_EQ(probe.entries, 1u);
}

TEST(Modules, AnUnloadedModuleTakesItsSitesAlongAndTheRestStays) {
  Probe probe;
  Plugin plugin(1);
  const char* names[] = {"plugin_function", "first_victim"};
  ASSERT_EQ(register_fprobe_syms(&probe, names, 2), 0) << fprobe_last_error();
  EXPECT_EQ(plugin.call(1) + first_victim(1), 11 + 2);
  EXPECT_EQ(probe.entries, 2u);
  plugin.unload();
  EXPECT_EQ(first_victim(1), 2);
  EXPECT_EQ(probe.entries, 3u);
  EXPECT_TRUE(fprobe_is_registered(&probe));
  EXPECT_EQ(unregister_fprobe(&probe), 0);
  EXPECT_EQ(first_victim(1), 2);
  EXPECT_EQ(probe.entries, 3u);
}

TEST(Modules, UnregisterAfterUnloadWritesNothingIntoWhatLiesThereNow) {
  Probe probe;
  Plugin plugin(1);
  ASSERT_EQ(attach(probe, "plugin_function"), 0) << fprobe_last_error();
  const unsigned long address = plugin.address();
  plugin.unload();
  const Plugin successor(2);
  ASSERT_EQ(successor.address(), address) << "the test needs the second library at the place of the first";
  EXPECT_EQ(successor.call(4), 42);
  EXPECT_EQ(probe.entries, 0u) << "a stale hit";
  EXPECT_EQ(unregister_fprobe(&probe), 0);
  EXPECT_EQ(successor.call(4), 42);
  EXPECT_NE(*reinterpret_cast<const unsigned char*>(address), kJmpRel32) << "the old probe's jump";
}

TEST(Modules, AnotherLibraryAtTheSameAddressIsProbedAsItself) {
  Probe first, second;
  Plugin plugin(1);
  ASSERT_EQ(attach(first, "plugin_function"), 0) << fprobe_last_error();
  const unsigned long address = plugin.address();
  plugin.unload();
  const Plugin successor(2);
  ASSERT_EQ(successor.address(), address);
  ASSERT_EQ(attach(second, "plugin_function"), 0) << fprobe_last_error();
  EXPECT_EQ(successor.call(4), 42);
  EXPECT_EQ(first.entries, 0u);
  EXPECT_EQ(second.entries, 1u);
  EXPECT_EQ(second.exits, 1u);
  EXPECT_EQ(unregister_fprobe(&first), 0);
  EXPECT_EQ(successor.call(4), 42);
  EXPECT_EQ(second.entries, 2u);
  EXPECT_EQ(unregister_fprobe(&second), 0);
}

TEST(Modules, TheSameLibraryLoadedAnewAtTheSamePlaceIsScannedAnew) {
  Probe first, second;
  Plugin plugin(1);
  ASSERT_EQ(attach(first, "plugin_function"), 0) << fprobe_last_error();
  const unsigned long address = plugin.address();
  plugin.unload();
  const Plugin again(1);
  ASSERT_EQ(again.address(), address);
  EXPECT_EQ(again.call(4), 41);
  EXPECT_EQ(first.entries, 0u);
  ASSERT_EQ(attach(second, "plugin_function"), 0) << fprobe_last_error();
  EXPECT_EQ(again.call(4), 41);
  EXPECT_EQ(first.entries, 0u);
  EXPECT_EQ(second.entries, 1u);
  EXPECT_EQ(unregister_fprobe(&first), 0);
  EXPECT_EQ(again.call(4), 41);
  EXPECT_EQ(second.entries, 2u);
  EXPECT_EQ(unregister_fprobe(&second), 0);
}

TEST(Modules, TheListFollowsLoadingAndUnloading) {
  const auto lists_plugin = [] {
    return fprobe_for_each_site(
        [](const fprobe_site* site, void*) { return std::strcmp(site->symbol, "plugin_function") == 0 ? 1 : 0; },
        nullptr);
  };
  EXPECT_EQ(lists_plugin(), 0);
  Plugin plugin(1);
  EXPECT_EQ(lists_plugin(), 1);
  plugin.unload();
  EXPECT_EQ(lists_plugin(), 0);
}

TEST(Modules, AModuleMayBeUnloadedWhileItsSitesAreListed) {
  struct Walk {
    Plugin plugin{1};
    unsigned long sites = 0, named = 0;
  } walk;
  EXPECT_EQ(fprobe_for_each_site(
                [](const fprobe_site* site, void* argument) {
                  auto* const at = static_cast<Walk*>(argument);
                  at->plugin.unload();
                  ++at->sites;
                  at->named += std::strlen(site->symbol) != 0 && std::strlen(site->module) != 0 ? 1 : 0;
                  return 0;
                },
                &walk),
            0);
  EXPECT_GE(walk.sites, 5u);
  EXPECT_EQ(walk.named, walk.sites);
}

TEST(Modules, LookingUpAnAddressFindsProbedSitesOnly) {
  using libfprobe::detail::registry::find_site;
  Probe probe;
  Plugin plugin(1);
  struct Found {
    unsigned long ip = 0;
  } found;
  fprobe_for_each_site(
      [](const fprobe_site* site, void* argument) {
        if (std::strcmp(site->symbol, "plugin_function") == 0) static_cast<Found*>(argument)->ip = site->ip;
        return 0;
      },
      &found);
  EXPECT_EQ(find_site(found.ip), nullptr);
  ASSERT_EQ(attach(probe, "plugin_function"), 0) << fprobe_last_error();
  ASSERT_NE(find_site(found.ip), nullptr);
  EXPECT_EQ(find_site(found.ip)->ip, found.ip);
  plugin.unload();
  EXPECT_EQ(unregister_fprobe(&probe), 0);
  EXPECT_EQ(find_site(found.ip), nullptr);
}

TEST(Modules, LoadingAndUnloadingProbedModulesGivesTheirThunksMemoryBack) {
  using libfprobe::detail::sys::Call;
  using libfprobe::detail::sys::fault;
  const auto mappings = [] {
    return static_cast<long>(fault(Call::kMmap).calls) - static_cast<long>(fault(Call::kMunmap).calls);
  };
  long warm = 0;
  for (int round = 0; round < 300; ++round) {
    Probe probe;
    Plugin plugin(1 + round % 2);
    ASSERT_EQ(attach(probe, "plugin_function"), 0) << fprobe_last_error();
    plugin.call(1);
    ASSERT_EQ(probe.entries, 1u);
    plugin.unload();
    ASSERT_EQ(unregister_fprobe(&probe), 0);
    if (round == 10) warm = mappings();
  }
  EXPECT_LE(mappings(), warm);
}

// Handlers of a library that is unloaded while a function is still running that they were called for.
TEST(Modules, TheHandlersCodeMayBeUnloadedWhenUnregisterHasReturned) {
  struct Flight {
    fprobe probe{};
    void* handlers = dlopen(HANDLERS_PLUGIN, RTLD_NOW | RTLD_LOCAL);
    unsigned long hits = 0;
  } flight;
  ASSERT_NE(flight.handlers, nullptr) << dlerror();
  flight.probe.entry_handler = reinterpret_cast<fprobe_entry_cb>(dlsym(flight.handlers, "plugin_on_entry"));
  flight.probe.exit_handler = reinterpret_cast<fprobe_exit_cb>(dlsym(flight.handlers, "plugin_on_exit"));
  const char* names[] = {"calls_back"};
  ASSERT_EQ(register_fprobe_syms(&flight.probe, names, 1), 0) << fprobe_last_error();
  const auto end_probe = [](void* argument) -> long {
    auto& in = *static_cast<Flight*>(argument);
    in.hits = reinterpret_cast<unsigned long (*)()>(dlsym(in.handlers, "plugin_hits"))();
    return unregister_fprobe(&in.probe) + dlclose(in.handlers);
  };
  EXPECT_EQ(calls_back(end_probe, &flight), 1);
  EXPECT_EQ(flight.hits, 1u);
  EXPECT_EQ(dlopen(HANDLERS_PLUGIN, RTLD_NOW | RTLD_NOLOAD), nullptr) << "the code is there still";
}

TEST(Modules, ComeAndGoWhileOtherThreadsRegisterAndCall) {
  std::atomic<bool> stop{false};
  std::atomic<unsigned long> calls{0}, wrong{0}, attached{0};
  std::thread caller([&] {
    for (long x = 0; !stop; ++x, ++calls) wrong += first_victim(x) != x + 1 ? 1 : 0;
  });
  std::thread registrar([&] {
    while (!stop) {
      Probe probe;
      if (register_fprobe(&probe, "first_victim,plugin_*", nullptr) != 0) ++wrong;
      if (unregister_fprobe(&probe) != 0) ++wrong;
      ++attached;
    }
  });
  for (int round = 0; round < 300 || attached < 50 || calls < 1'000; ++round) {
    const Plugin plugin(1 + round % 2);
    for (long x = 0; x < 20; ++x) wrong += plugin.call(x) != x * 10 + 1 + round % 2 ? 1 : 0;
  }
  stop = true;
  caller.join();
  registrar.join();
  EXPECT_EQ(wrong, 0u);
}

}  // namespace
