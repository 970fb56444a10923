// Plugins that are loaded while registrations wait for them (late_plugin.c), and probes that count.
#ifndef FPROBE_TESTS_REGISTRY_LATE_MODULES_H_
#define FPROBE_TESTS_REGISTRY_LATE_MODULES_H_

#include <dlfcn.h>
#include <fprobe/fprobe.h>
#include <gtest/gtest.h>

#include <atomic>
#include <string>

namespace fprobe_test {

class LatePlugin {
 public:
  explicit LatePlugin(const char* path, int mode = RTLD_NOW | RTLD_LOCAL) : handle_(dlopen(path, mode)) {
    EXPECT_NE(handle_, nullptr) << dlerror();
  }
  ~LatePlugin() { unload(); }
  LatePlugin(const LatePlugin&) = delete;
  LatePlugin& operator=(const LatePlugin&) = delete;

  void unload() {
    if (handle_ == nullptr) return;
    EXPECT_EQ(dlclose(handle_), 0);
    handle_ = nullptr;
  }
  [[nodiscard]] long call(const char* name, long x) const {
    auto* const function = reinterpret_cast<long (*)(long)>(dlsym(handle_, name));
    EXPECT_NE(function, nullptr) << name;
    return function != nullptr ? function(x) : 0;
  }
  [[nodiscard]] unsigned long address(const char* name) const {
    return reinterpret_cast<unsigned long>(dlsym(handle_, name));
  }

 private:
  void* handle_;
};

struct CountingProbe : fprobe {
  explicit CountingProbe(unsigned wanted_flags = FPROBE_FL_NEW_MODULES) : fprobe{} {
    flags = wanted_flags;
    entry_handler = [](fprobe* fp, unsigned long, unsigned long, ftrace_regs*, void*) {
      ++static_cast<CountingProbe*>(fp)->entries;
      return 0;
    };
    exit_handler = [](fprobe* fp, unsigned long, unsigned long, ftrace_regs*, void*) {
      ++static_cast<CountingProbe*>(fp)->exits;
    };
  }
  ~CountingProbe() {
    if (fprobe_is_registered(this)) unregister_fprobe(this);
  }
  std::atomic<unsigned long> entries{0}, exits{0};
};

// The code of the loader's function for debuggers, where the hook goes.
std::string loader_code();
unsigned long loader_function();

}  // namespace fprobe_test

#endif  // FPROBE_TESTS_REGISTRY_LATE_MODULES_H_
