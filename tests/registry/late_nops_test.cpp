// Functions that start with gcc's single nops, in a module that is loaded and called by running threads before the library
// hears of it: a thread may stand on any of the nops when a probe is registered.
#include <dlfcn.h>
#include <errno.h>
#include <fprobe/fprobe.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

#include "base/syscalls.h"

namespace {

namespace sys = libfprobe::detail::sys;

struct Probe : fprobe {
  Probe() : fprobe{} {
    entry_handler = [](fprobe* fp, unsigned long, unsigned long, ftrace_regs*, void*) {
      __atomic_fetch_add(&static_cast<Probe*>(fp)->entries, 1, __ATOMIC_RELAXED);
      return 0;
    };
    exit_handler = [](fprobe* fp, unsigned long, unsigned long, ftrace_regs*, void*) {
      __atomic_fetch_add(&static_cast<Probe*>(fp)->exits, 1, __ATOMIC_RELAXED);
    };
  }
  int attach() {
    const char* name = "plugin_function";
    return register_fprobe_syms(this, &name, 1);
  }
  unsigned long entries = 0, exits = 0;
};

class Library {
 public:
  Library() : handle_(dlopen(NOPS_PLUGIN, RTLD_NOW)) { EXPECT_NE(handle_, nullptr) << dlerror(); }
  ~Library() { dlclose(handle_); }
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;
  [[nodiscard]] auto function() const { return reinterpret_cast<long (*)(long)>(dlsym(handle_, "plugin_function")); }

 private:
  void* handle_;
};

// Four threads that call the function all the time.
class Callers {
 public:
  explicit Callers(long (*function)(long)) {
    for (int i = 0; i < 4; ++i) {
      threads_.emplace_back([this, function] {
        for (long x = 0; !stop_.load(std::memory_order_relaxed); ++x) {
          if (function(x) != x * 10 + 1) wrong_.fetch_add(1);
          calls_.fetch_add(1, std::memory_order_relaxed);
        }
      });
    }
    wait_for_calls();
  }
  ~Callers() { finish(); }
  Callers(const Callers&) = delete;
  Callers& operator=(const Callers&) = delete;

  void wait_for_calls() const {
    for (const unsigned long seen = calls_.load(); calls_.load() < seen + 1000;) std::this_thread::yield();
  }
  unsigned long finish() {
    stop_ = true;
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
    return wrong_.load();
  }

 private:
  std::atomic<bool> stop_{false};
  std::atomic<unsigned long> wrong_{0}, calls_{0};
  std::vector<std::thread> threads_;
};

TEST(LateNops, AreProbedWhileFourThreadsCallThemAndEveryCallIsRight) {
  for (int round = 0; round < 5; ++round) {
    const Library library;
    Callers callers(library.function());
    Probe probe;
    ASSERT_EQ(probe.attach(), 0) << fprobe_last_error();
    callers.wait_for_calls();
    EXPECT_GT(__atomic_load_n(&probe.entries, __ATOMIC_RELAXED), 0U);
    ASSERT_EQ(unregister_fprobe(&probe), 0);
    EXPECT_EQ(callers.finish(), 0U);
    EXPECT_EQ(probe.nmissed, 0U);
  }
}

TEST(LateNops, AreRefusedWhereAThreadCannotBeToldAndNothingHasChanged) {
  const Library library;
  const auto* const site = reinterpret_cast<const unsigned char*>(library.function());
  Callers callers(library.function());
  ASSERT_EQ(fprobe_count_ips_from_filter("plugin_function", nullptr), 1) << fprobe_last_error();
  unsigned char before[16];
  std::memcpy(before, site, sizeof before);
  EXPECT_NE(std::memchr(before, 0x90, sizeof before), nullptr);

  Probe probe;
  sys::fault(sys::Call::kTaskFile).error = EACCES;
  EXPECT_EQ(probe.attach(), -EACCES);
  sys::fault(sys::Call::kTaskFile).error = 0;
  EXPECT_NE(std::strstr(fprobe_last_error(), "registry_nops_plugin"), nullptr) << fprobe_last_error();
  EXPECT_NE(std::strstr(fprobe_last_error(), "try again"), nullptr);
  EXPECT_EQ(std::memcmp(before, site, sizeof before), 0);
  EXPECT_FALSE(fprobe_is_registered(&probe));

  EXPECT_EQ(probe.attach(), 0) << fprobe_last_error();
  callers.wait_for_calls();
  ASSERT_EQ(unregister_fprobe(&probe), 0);
  EXPECT_GT(probe.exits, 0U);
  EXPECT_EQ(callers.finish(), 0U);
}

}  // namespace
