// Modules whose text is the file's own while no probe is on them: nothing there tells whether they are what was scanned
// or were unloaded and loaded anew at the same place.
#include <dlfcn.h>
#include <errno.h>
#include <fprobe/fprobe.h>
#include <gtest/gtest.h>
#include <link.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>

#include "registry/victims.h"

namespace {

constexpr const char* kFirst = CLANG_PLUGINS "/clang_plugin_function.so";
constexpr const char* kOther = CLANG_PLUGINS "/clang_other_function.so";

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
  int attach(const char* name) { return register_fprobe_syms(this, &name, 1); }
  unsigned long entries = 0, exits = 0;
};

class Library {
 public:
  explicit Library(const char* path) : handle_(dlopen(path, RTLD_NOW | RTLD_LOCAL)) {
    EXPECT_NE(handle_, nullptr) << dlerror();
  }
  ~Library() { unload(); }
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  void unload() {
    if (handle_ == nullptr) return;
    EXPECT_EQ(dlclose(handle_), 0);
    handle_ = nullptr;
  }
  template <class Function>
  Function* find(const char* name) const {
    return reinterpret_cast<Function*>(dlsym(handle_, name));
  }
  long call(const char* name, long x) const { return find<long(long)>(name)(x); }
  unsigned long base() const {
    link_map* map = nullptr;
    EXPECT_EQ(dlinfo(handle_, RTLD_DI_LINKMAP, &map), 0);
    return map->l_addr;
  }

 private:
  void* handle_;
};

// The library looks at what is loaded, after some module was unloaded.
void notice_an_unloading() {
  Library(PLUGIN_1).unload();
  EXPECT_EQ(fprobe_count_ips_from_filter("no_such_function", nullptr), -ENOENT);
}

unsigned long sites_named(const char* name) {
  struct Search {
    const char* name;
    unsigned long found = 0;
  } search{name};
  fprobe_for_each_site(
      [](const fprobe_site* site, void* argument) {
        auto& in = *static_cast<Search*>(argument);
        in.found += std::strcmp(site->symbol, in.name) == 0 ? 1 : 0;
        return 0;
      },
      &search);
  return search.found;
}

TEST(UnchangedText, OfTheSameLibraryLoadedAnewAtTheSamePlaceIsProbed) {
  Probe first, second;
  Library library(kFirst);
  const unsigned long base = library.base();
  ASSERT_EQ(first.attach("plugin_function"), 0) << fprobe_last_error();
  EXPECT_EQ(library.call("plugin_function", 4), 43);
  library.unload();  // with the probe on it
  Library again(kFirst);
  ASSERT_EQ(again.base(), base);
  EXPECT_EQ(again.call("plugin_function", 4), 43);
  EXPECT_EQ(first.entries, 1u);
  ASSERT_EQ(second.attach("plugin_function"), 0) << fprobe_last_error();
  EXPECT_EQ(again.call("plugin_function", 4), 43);
  EXPECT_EQ(second.exits, 1u);
  EXPECT_EQ(first.entries, 1u);
  ASSERT_EQ(unregister_fprobe(&second), 0);
  again.unload();  // without
  Library third(kFirst);
  ASSERT_EQ(third.base(), base);
  ASSERT_EQ(second.attach("plugin_function"), 0) << fprobe_last_error();
  EXPECT_EQ(third.call("plugin_function", 4), 43);
  EXPECT_EQ(second.exits, 2u);
  EXPECT_EQ(unregister_fprobe(&first), 0);
  EXPECT_EQ(unregister_fprobe(&second), 0);
}

void copy_file(const char* from, const std::string& to) {
  unlink(to.c_str());
  std::ofstream(to, std::ios::binary) << std::ifstream(from, std::ios::binary).rdbuf();
}

TEST(UnchangedText, OfAnotherBuildOfTheLibraryAtTheSamePlaceHasItsNames) {
  const std::string path = std::string(CLANG_PLUGINS "/rebuilt_") + std::to_string(getpid()) + ".so";
  copy_file(kFirst, path);
  Library library(path.c_str());
  const unsigned long base = library.base();
  EXPECT_EQ(sites_named("plugin_function"), 1u);
  library.unload();
  copy_file(kOther, path);
  Library rebuilt(path.c_str());
  unlink(path.c_str());
  ASSERT_EQ(rebuilt.base(), base);
  EXPECT_EQ(sites_named("plugin_function"), 0u);
  EXPECT_EQ(sites_named("other_function"), 1u);
}

// The library may not give up what a frame in flight needs because some other module went away.
TEST(UnchangedText, OfAModuleThatStayedKeepsWhatItsFramesInFlightNeed) {
  static Probe probe;
  const Library library(kFirst);
  ASSERT_EQ(probe.attach("plugin_calls_back"), 0) << fprobe_last_error();
  const auto let_go = [](void*) -> long {
    EXPECT_EQ(unregister_fprobe(&probe), 0);
    for (int round = 0; round < 3; ++round) {
      notice_an_unloading();
      Probe other;
      EXPECT_EQ(other.attach("first_victim"), 0) << fprobe_last_error();
      EXPECT_EQ(unregister_fprobe(&other), 0);
    }
    return 1;
  };
  EXPECT_EQ(library.find<long(long (*)(void*), void*)>("plugin_calls_back")(let_go, nullptr), 2);
  EXPECT_EQ(probe.entries, 1u);
  EXPECT_EQ(probe.exits, 0u);
}

TEST(UnchangedText, OfAModuleThatStayedIsProbedAnew) {
  Probe probe;
  const Library library(kFirst);
  for (unsigned long round = 1; round <= 3; ++round) {
    ASSERT_EQ(probe.attach("plugin_function"), 0) << fprobe_last_error();
    EXPECT_EQ(library.call("plugin_function", 4), 43);
    EXPECT_EQ(probe.exits, round);
    ASSERT_EQ(unregister_fprobe(&probe), 0);
    notice_an_unloading();
  }
}

}  // namespace
