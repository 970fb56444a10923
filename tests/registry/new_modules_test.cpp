// FPROBE_FL_NEW_MODULES: what registrations attach to in modules that are loaded after them.
#include <errno.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <thread>
#include <vector>

#include "base/syscalls.h"
#include "registry/late_modules.h"
#include "registry/victims.h"

namespace {

using fprobe_test::CountingProbe;
using fprobe_test::LatePlugin;
using fprobe_test::loader_code;

constexpr const char* kPlugins[] = {LATE_FENTRY, LATE_MCOUNT, LATE_PATCHABLE, LATE_CLANG_PATCHABLE};

int attach(CountingProbe& probe, const char* filter = "late_function", const char* notfilter = nullptr) {
  return register_fprobe(&probe, filter, notfilter);
}

// --- What is covered.

class EachFlavour : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(NewModules, EachFlavour, testing::ValuesIn(kPlugins));

TEST_P(EachFlavour, IsProbedFromItsConstructorOn) {
  for (const int mode : {RTLD_LAZY, RTLD_NOW}) {
    CountingProbe probe;
    ASSERT_EQ(attach(probe), 0) << fprobe_last_error();
    EXPECT_EQ(probe.entries, 0u);
    const LatePlugin plugin(GetParam(), mode | RTLD_LOCAL);
    EXPECT_EQ(probe.entries, 1u) << "by the constructor";
    EXPECT_EQ(probe.exits, 1u);
    EXPECT_EQ(plugin.call("late_constructed", 0), 41);
    EXPECT_EQ(plugin.call("late_function", 7), 71);
    EXPECT_EQ(plugin.call("late_other", 7), 72);
    EXPECT_EQ(probe.entries, 2u);
    EXPECT_EQ(probe.exits, 2u);
    EXPECT_EQ(probe.nmissed, 0u);
  }
}

TEST_P(EachFlavour, IsProbedWhileOtherThreadsLive) {
  std::atomic<bool> stop{false};
  std::thread other([&] {
    while (!stop) first_victim(1);
  });
  CountingProbe probe;
  ASSERT_EQ(attach(probe), 0) << fprobe_last_error();
  const LatePlugin plugin(GetParam());
  EXPECT_EQ(probe.entries, 1u);
  EXPECT_EQ(plugin.call("late_function", 7), 71);
  EXPECT_EQ(probe.exits, 2u);
  stop = true;
  other.join();
}

TEST_P(EachFlavour, IsProbedAgainWhenItWasUnloadedAndIsLoadedAnew) {
  CountingProbe probe;
  ASSERT_EQ(attach(probe, "late_function,first_victim"), 0) << fprobe_last_error();
  for (unsigned long round = 1; round <= 20; ++round) {
    const LatePlugin plugin(GetParam());
    EXPECT_EQ(plugin.call("late_function", 1), 11);
    EXPECT_EQ(first_victim(1), 2);
    ASSERT_EQ(probe.entries, 3 * round);
    ASSERT_EQ(probe.exits, 3 * round);
  }
}

TEST(NewModules, OfAllFlavoursAreCoveredByOneRegistration) {
  CountingProbe probe;
  ASSERT_EQ(attach(probe, "late_*", "late_constructed"), 0) << fprobe_last_error();
  std::vector<std::unique_ptr<LatePlugin>> plugins;
  for (const char* const path : kPlugins) plugins.push_back(std::make_unique<LatePlugin>(path));
  EXPECT_EQ(probe.entries, std::size(kPlugins));
  for (const auto& plugin : plugins) {
    EXPECT_EQ(plugin->call("late_function", 2) + plugin->call("late_other", 2), 43);
    EXPECT_EQ(plugin->call("late_constructed", 0), 41);
  }
  EXPECT_EQ(probe.entries, 3 * std::size(kPlugins));
  EXPECT_EQ(probe.exits, 3 * std::size(kPlugins));
}

TEST(NewModules, AreTheOnesThatAModulePrefixMeans) {
  CountingProbe probe;
  ASSERT_EQ(attach(probe, "*late_patchable*:late_function"), 0) << fprobe_last_error();
  const LatePlugin other(LATE_FENTRY);
  EXPECT_EQ(probe.entries, 0u);
  const LatePlugin meant(LATE_PATCHABLE);
  EXPECT_EQ(probe.entries, 1u);
  EXPECT_EQ(other.call("late_function", 1) + meant.call("late_function", 1), 22);
  EXPECT_EQ(probe.entries, 2u);
}

TEST(NewModules, AreNotCoveredWithoutTheFlag) {
  CountingProbe without(0), names;
  ASSERT_EQ(attach(without, "late_function,first_victim"), 0) << fprobe_last_error();
  const char* symbols[] = {"first_victim"};
  ASSERT_EQ(register_fprobe_syms(&names, symbols, 1), 0) << fprobe_last_error();
  const LatePlugin plugin(LATE_FENTRY);
  EXPECT_EQ(plugin.call("late_function", 1), 11);
  EXPECT_EQ(without.entries + names.entries, 0u);
}

TEST(NewModules, WhoseTextIsRelocatedAreCoveredByTheNextCall) {
  CountingProbe probe;
  ASSERT_EQ(attach(probe), 0) << fprobe_last_error();
  const LatePlugin plugin(LATE_TEXT_RELOCATION);
  EXPECT_EQ(plugin.call("late_function", 1), 11);
  EXPECT_EQ(probe.entries, 0u);
  EXPECT_EQ(fprobe_synchronize(), 0);
  EXPECT_EQ(plugin.call("late_function", 1), 11);
  EXPECT_EQ(probe.entries, 1u);
  EXPECT_EQ(reinterpret_cast<unsigned long (*)()>(plugin.address("late_address"))(), plugin.address("late_function"));
}

TEST(NewModules, HaveTheNamesOfIfuncsFromTheNextCallOn) {
  CountingProbe by_ifunc, by_function;
  ASSERT_EQ(attach(by_ifunc, "late_chosen"), 0) << fprobe_last_error();
  ASSERT_EQ(attach(by_function, "implementation"), 0) << fprobe_last_error();
  const LatePlugin plugin(LATE_IFUNC);
  EXPECT_EQ(plugin.call("late_calls_chosen", 1), 14);
  EXPECT_EQ(by_function.entries, 1u);
  EXPECT_EQ(fprobe_synchronize(), 0);
  EXPECT_EQ(plugin.call("late_calls_chosen", 1), 14);
  EXPECT_EQ(by_function.entries, 2u);
  EXPECT_EQ(by_ifunc.entries, 1u);
}

// --- What registering with the flag says.

TEST(Register, WithTheFlagAcceptsAFilterThatMatchesNothingYet) {
  CountingProbe probe, without(0);
  EXPECT_EQ(attach(probe, "no_such_function_anywhere"), 0) << fprobe_last_error();
  EXPECT_TRUE(fprobe_is_registered(&probe));
  EXPECT_EQ(unregister_fprobe(&probe), 0);
  EXPECT_EQ(attach(without, "no_such_function_anywhere"), -ENOENT);
}

TEST(Register, WithTheFlagRefusesFiltersThatCanNeverMatch) {
  CountingProbe probe;
  const std::string before = loader_code();
  EXPECT_EQ(attach(probe, ""), -ENOENT);
  EXPECT_EQ(attach(probe, "!late_function"), -ENOENT);
  EXPECT_EQ(attach(probe, "/opt/plugins/late.so:late_function"), -ENOENT);  // a path, not a file name
  EXPECT_EQ(attach(probe, "late_[function"), -EINVAL);
  EXPECT_EQ(attach(probe, "late_function", "x,"), -EINVAL);
  EXPECT_FALSE(fprobe_is_registered(&probe));
  EXPECT_EQ(loader_code(), before);
}

TEST(Register, ByNameKeepsToWhatIsLoadedWhateverTheFlag) {
  CountingProbe probe;
  const char* symbols[] = {"late_function"};
  const std::string before = loader_code();
  EXPECT_EQ(register_fprobe_syms(&probe, symbols, 1), -ENOENT);
  const LatePlugin plugin(LATE_FENTRY);
  EXPECT_EQ(register_fprobe_syms(&probe, symbols, 1), 0) << fprobe_last_error();
  EXPECT_EQ(loader_code(), before);
}

// --- A late attachment has everything of its registration.

struct OrderedProbe : fprobe {
  explicit OrderedProbe(char name) : fprobe{}, letter(name) {
    flags = FPROBE_FL_NEW_MODULES;
    entry_data_size = MAX_FPROBE_DATA_SIZE;
    entry_handler = [](fprobe* fp, unsigned long, unsigned long, ftrace_regs*, void* data) {
      auto& self = *static_cast<OrderedProbe*>(fp);
      order() += self.letter;
      std::memset(data, self.letter, MAX_FPROBE_DATA_SIZE);
      return 0;
    };
    exit_handler = [](fprobe*, unsigned long, unsigned long, ftrace_regs*, void* data) {
      order() += static_cast<char*>(data)[MAX_FPROBE_DATA_SIZE - 1];
    };
  }
  ~OrderedProbe() { unregister_fprobe(this); }
  static std::string& order() {
    static std::string letters;
    return letters;
  }
  char letter;
};

TEST(LateSites, RunTheNewestRegistrationFirstWithItsOwnData) {
  OrderedProbe first('a'), second('b'), third('c');
  for (fprobe* const probe :
       {static_cast<fprobe*>(&first), static_cast<fprobe*>(&second), static_cast<fprobe*>(&third)})
    ASSERT_EQ(register_fprobe(probe, "late_function", nullptr), 0) << fprobe_last_error();
  const LatePlugin plugin(LATE_FENTRY);
  EXPECT_EQ(OrderedProbe::order(), "cbacba");
}

// Lets the library's next changes of text fail, in either way.
class RefusedText {
 public:
  RefusedText() { set(EACCES); }
  ~RefusedText() { set(0); }
  RefusedText(const RefusedText&) = delete;
  RefusedText& operator=(const RefusedText&) = delete;

 private:
  static void set(int error) {
    using libfprobe::detail::sys::Call;
    for (const Call call : {Call::kMprotect, Call::kWriteAt}) libfprobe::detail::sys::fault(call).error = error;
  }
};

TEST(LateSites, ThatWereRefusedComeWithTheNextCall) {
  OrderedProbe first('a'), second('b');
  ASSERT_EQ(register_fprobe(&first, "late_function", nullptr), 0) << fprobe_last_error();
  std::unique_ptr<LatePlugin> plugin;
  {
    const RefusedText refused;
    plugin = std::make_unique<LatePlugin>(LATE_FENTRY);
  }
  EXPECT_EQ(OrderedProbe::order(), "");
  EXPECT_EQ(plugin->call("late_function", 4), 41);
  EXPECT_EQ(OrderedProbe::order(), "");
  ASSERT_EQ(register_fprobe(&second, "late_function", nullptr), 0) << fprobe_last_error();
  EXPECT_EQ(plugin->call("late_function", 4), 41);
  EXPECT_EQ(OrderedProbe::order(), "baba");
}

TEST(LateSites, OfAnOlderRegistrationThatComesLaterAreBehindThoseOfTheNewer) {
  OrderedProbe older('a'), newer('b');
  ASSERT_EQ(register_fprobe(&older, "late_chosen", nullptr), 0) << fprobe_last_error();
  ASSERT_EQ(register_fprobe(&newer, "implementation", nullptr), 0) << fprobe_last_error();
  const LatePlugin plugin(LATE_IFUNC);
  EXPECT_EQ(plugin.call("late_calls_chosen", 1), 14);
  EXPECT_EQ(OrderedProbe::order(), "bb");
  EXPECT_EQ(fprobe_synchronize(), 0);
  EXPECT_EQ(plugin.call("late_calls_chosen", 1), 14);
  EXPECT_EQ(OrderedProbe::order(), "bbbaba");
}

TEST(LateSites, ArePutToRestByUnregister) {
  CountingProbe probe;
  ASSERT_EQ(attach(probe), 0) << fprobe_last_error();
  const LatePlugin plugin(LATE_FENTRY);
  const auto* const text = reinterpret_cast<const unsigned char*>(plugin.address("late_function"));
  EXPECT_EQ(text[0] == 0xe9 || text[4] == 0xe9, true) << "not armed";
  EXPECT_EQ(unregister_fprobe(&probe), 0);
  const unsigned char* const site = text[0] == 0xf3 ? text + 4 : text;
  EXPECT_NE(site[0], 0xe9);
  EXPECT_EQ(plugin.call("late_function", 1), 11);
  EXPECT_EQ(probe.entries, 1u);
}

TEST(LateSites, BelongToADisabledRegistrationToo) {
  CountingProbe probe(FPROBE_FL_NEW_MODULES | FPROBE_FL_DISABLED);
  ASSERT_EQ(attach(probe), 0) << fprobe_last_error();
  const LatePlugin plugin(LATE_FENTRY);
  EXPECT_EQ(probe.entries, 0u);
  enable_fprobe(&probe);
  EXPECT_EQ(plugin.call("late_function", 1), 11);
  EXPECT_EQ(probe.entries, 1u);
  disable_fprobe(&probe);
  EXPECT_EQ(plugin.call("late_function", 1), 11);
  EXPECT_EQ(probe.entries, 1u);
}

TEST(LateSites, LeaveTheCountsAsTheyWere) {
  struct Nested : CountingProbe {
    Nested() {
      entry_handler = [](fprobe*, unsigned long, unsigned long, ftrace_regs*, void*) {
        return static_cast<int>(first_victim(1)) - 2;
      };
    }
  } probe;
  ASSERT_EQ(attach(probe, "late_function,first_victim"), 0) << fprobe_last_error();
  EXPECT_EQ(first_victim(1), 2);
  EXPECT_EQ(probe.nmissed, 1u);
  const LatePlugin plugin(LATE_FENTRY);
  EXPECT_EQ(probe.nmissed, 2u) << "the constructor's call has a nested one";
  EXPECT_EQ(fprobe_missed(&probe, FPROBE_MISS_RECURSION), 2u);
}

TEST(LateSites, AreNotThoseOfHandlers) {
  CountingProbe probe;
  fprobe handled{};
  {
    const LatePlugin plugin(LATE_FENTRY);
    handled.entry_handler = reinterpret_cast<fprobe_entry_cb>(plugin.address("late_other"));
    const char* names[] = {"first_victim"};
    ASSERT_EQ(register_fprobe_syms(&handled, names, 1), 0) << fprobe_last_error();
    ASSERT_EQ(attach(probe, "late_*"), 0) << fprobe_last_error();
  }
  const LatePlugin plugin(LATE_FENTRY);
  ASSERT_EQ(plugin.address("late_other"), reinterpret_cast<unsigned long>(handled.entry_handler))
      << "the test needs the library where it was before";
  EXPECT_EQ(plugin.call("late_other", 1), 12);
  EXPECT_EQ(probe.entries, 1u) << "the constructor's call alone";
  EXPECT_EQ(plugin.call("late_function", 1), 11);
  EXPECT_EQ(probe.entries, 2u);
  EXPECT_EQ(unregister_fprobe(&handled), 0);
}

TEST(LateSites, WorkInAForkChild) {
  CountingProbe probe;
  ASSERT_EQ(attach(probe), 0) << fprobe_last_error();
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const LatePlugin plugin(LATE_FENTRY);
    const bool is_right = plugin.call("late_function", 1) == 11 && probe.entries == 2 && unregister_fprobe(&probe) == 0;
    _exit(is_right ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  const LatePlugin plugin(LATE_FENTRY);
  EXPECT_EQ(probe.entries, 1u);
}

}  // namespace
