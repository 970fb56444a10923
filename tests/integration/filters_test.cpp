// Filters end to end: which functions a probe is attached to.
#include <cerrno>
#include <string>

#include "integration/support.h"

namespace contract {
namespace {

std::string in_module(const char* pattern) {
  return std::string(kVictimModule) + ":" + pattern;
}

int count(const char* pattern, const char* exclude = nullptr) {
  return fprobe_count_ips_from_filter(in_module(pattern).c_str(), exclude);
}

struct GlobCase {
  const char* pattern;
  const char* text;  // among func1 func2 func3 func_other twice thrice
  bool matches;
};

// The vectors of the kernel's glob self-test that can be names, and more, on names that exist.
constexpr GlobCase kGlobCases[] = {
    {"twice", "twice", true},
    {"twic", "twice", false},
    {"twicee", "twice", false},
    {"wice", "twice", false},
    {"t*", "twice", true},
    {"*e", "twice", true},
    {"*i*", "twice", true},
    {"*", "twice", true},
    {"**", "twice", true},
    {"t*e", "twice", true},
    {"t*x", "twice", false},
    {"t*i*e", "twice", true},
    {"?wice", "twice", true},
    {"??ice", "twice", true},
    {"?????", "twice", true},
    {"????", "twice", false},
    {"??????", "twice", false},
    {"[t]wice", "twice", true},
    {"[a-z]wice", "twice", true},
    {"[!a-s]wice", "twice", true},
    {"[!a-z]wice", "twice", false},
    {"[^t]wice", "twice", true},
    {"[a-s]wice", "twice", false},
    {"func[1-3]", "func2", true},
    {"func[!13]", "func2", true},
    {"func[!13]", "func1", false},
    {"func[1-2]", "func3", false},
    {"func_other", "func_other", true},
    {"func\\_other", "func_other", true},
    {"\\t*", "twice", true},
    {"\\*", "twice", false},
    {"t\\*", "twice", false},
    {"*e*e*", "twice", false},
    {"*t*w*i*c*e*", "twice", true},
    {"*t*w*i*c*e*f*", "twice", false},
    {"func[]1]", "func1", true},
    {"func[!]]", "func1", true},
    {"func[1-]", "func1", true},
    {"func[-1]", "func1", true},
    {"Twice", "twice", false},
    {"0x123", "twice", false},
    {"twice()", "twice", false},
};

TEST(Globs, SelectWholeNamesAsTheKernelDoes) {
  for (const GlobCase& example : kGlobCases) {
    // Attached or not is seen from outside: the function is called and the handler runs or does not.
    Probe probe(kEntry);
    const int result = register_fprobe(&probe, in_module(example.pattern).c_str(), nullptr);
    const std::string text = example.text;
    if (text == "twice") twice(1);
    if (text == "func1") func1(1);
    if (text == "func2") func2(1);
    if (text == "func3") func3(1);
    if (text == "func_other") func_other(1);
    EXPECT_EQ(probe.entries != 0, example.matches) << example.pattern << " on " << text << ": " << result;
    EXPECT_TRUE(result == 0 || result == -ENOENT) << example.pattern << ": " << result;
  }
}

TEST(Filters, TheCountIsThatOfTheSitesTheyAttachTo) {
  EXPECT_EQ(count("func*"), 4);
  EXPECT_EQ(count("func*", "func2"), 3);
  EXPECT_EQ(count("func*", "func[13]"), 2);
  EXPECT_EQ(count("func?"), 3);
  EXPECT_EQ(count("twice"), 1);
  EXPECT_EQ(count("no_such_function"), -ENOENT);
  EXPECT_EQ(count("func*", "func*"), -ENOENT);
}

TEST(Filters, ACommaSeparatesAlternatives) {
  EXPECT_EQ(count("twice") + count("thrice"), 2);
  const std::string both = in_module("twice") + "," + in_module("thrice");
  EXPECT_EQ(fprobe_count_ips_from_filter(both.c_str(), nullptr), 2);
  EXPECT_EQ(fprobe_count_ips_from_filter((both + "," + in_module("thrice")).c_str(), nullptr), 2);
}

TEST(Filters, ALeadingExclamationMarkExcludes) {
  const std::string filter = in_module("func*") + ",!func2,!func_*";
  Probe probe(kEntry);
  ASSERT_EQ(register_fprobe(&probe, filter.c_str(), nullptr), 0) << fprobe_last_error();
  func1(1);
  func2(1);
  func3(1);
  func_other(1);
  EXPECT_EQ(probe.entries, 2u);
}

TEST(Filters, AnExclusionAloneSelectsNothing) {
  EXPECT_EQ(fprobe_count_ips_from_filter("!func2", nullptr), -ENOENT);
}

TEST(Filters, AnEmptyNotfilterExcludesNothing) {
  EXPECT_EQ(count("func*", ""), 4);
}

TEST(Filters, AnEmptyPatternIsNotEverything) {
  Probe probe(kEntry);
  EXPECT_EQ(register_fprobe(&probe, "", nullptr), -ENOENT);
  EXPECT_EQ(fprobe_count_ips_from_filter("", nullptr), -ENOENT);
  twice(1);
  EXPECT_EQ(probe.entries, 0u);
}

TEST(Filters, AHexadecimalNumberIsAName) {
  EXPECT_EQ(fprobe_count_ips_from_filter("0x123", nullptr), -ENOENT);
  EXPECT_EQ(fprobe_count_ips_from_filter("0", nullptr), -ENOENT);
}

TEST(Filters, MalformedOnesAreRefusedInEitherPlace) {
  for (const char* const pattern :
       {"tw[ice", "twice\\", "twice,,thrice", ",twice", "twice,", "!", "tw[", "tw[!", "[]"}) {
    EXPECT_EQ(fprobe_count_ips_from_filter(pattern, nullptr), -EINVAL) << pattern;
    EXPECT_EQ(fprobe_count_ips_from_filter("twice", pattern), -EINVAL) << pattern;
    Probe probe;
    EXPECT_EQ(register_fprobe(&probe, pattern, nullptr), -EINVAL) << pattern;
    EXPECT_STRNE(fprobe_last_error(), "") << pattern;
    EXPECT_FALSE(fprobe_is_registered(&probe)) << pattern;
  }
}

TEST(ModulePrefix, RestrictsToAModuleByItsFileName) {
  EXPECT_EQ(fprobe_count_ips_from_filter(in_module("twice").c_str(), nullptr), 1);
  EXPECT_EQ(fprobe_count_ips_from_filter("libc.so.6:twice", nullptr), -ENOENT);
  EXPECT_EQ(fprobe_count_ips_from_filter("no_such_module:twice", nullptr), -ENOENT);
}

TEST(ModulePrefix, MayBeAGlob) {
  const std::string module = kVictimModule;
  EXPECT_EQ(fprobe_count_ips_from_filter((module.substr(0, module.size() - 2) + "*:twice").c_str(), nullptr), 1);
  EXPECT_EQ(fprobe_count_ips_from_filter(("?" + module.substr(1) + ":tw*ce").c_str(), nullptr), 1);
}

TEST(ModulePrefix, IsAllowedAmongSymbols) {
  Probe probe(kEntry);
  const std::string name = in_module("twice");
  const char* names[] = {name.c_str()};
  ASSERT_EQ(register_fprobe_syms(&probe, names, 1), 0) << fprobe_last_error();
  twice(1);
  EXPECT_EQ(probe.entries, 1u);
}

// Handlers in the victims' module: they have sites like any other function there.
TEST(Filters, LeaveOutTheHandlersOfRegisteredProbes) {
  static fprobe probe;
  probe = {};
  probe.exit_handler = [](fprobe*, unsigned long, unsigned long, ftrace_regs*, void*) {};
  probe.entry_handler = reinterpret_cast<fprobe_entry_cb>(reinterpret_cast<void*>(&func3));
  const int all = count("func*");
  ASSERT_EQ(all, 4);
  const char* names[] = {"func1"};
  ASSERT_EQ(register_fprobe_syms(&probe, names, 1), 0) << fprobe_last_error();
  EXPECT_EQ(count("func*"), 3);  // without func3
  Probe filtered(kEntry);
  ASSERT_EQ(register_fprobe(&filtered, in_module("func*").c_str(), nullptr), 0) << fprobe_last_error();
  func3(1);
  EXPECT_EQ(filtered.entries, 0u);
  func2(1);
  EXPECT_EQ(filtered.entries, 1u);
  ASSERT_EQ(unregister_fprobe(&probe), 0);
  EXPECT_EQ(count("func*"), 4);
  // An exit handler alike; one that is named is meant.
  probe.entry_handler = nullptr;
  probe.exit_handler = reinterpret_cast<fprobe_exit_cb>(reinterpret_cast<void*>(&func2));
  ASSERT_EQ(register_fprobe_syms(&probe, names, 1), 0) << fprobe_last_error();
  EXPECT_EQ(count("func*"), 3);
  EXPECT_EQ(count("func2"), -ENOENT);
  Probe named(kEntry);
  ATTACH(named, "func2");
  func2(1);
  EXPECT_EQ(named.entries, 1u);
  ASSERT_EQ(unregister_fprobe(&probe), 0);
}

}  // namespace
}  // namespace contract
