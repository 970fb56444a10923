// Names and addresses end to end: which functions a probe is attached to, and that a failure attaches to none.
#include <cerrno>
#include <string>
#include <vector>

#include "integration/support.h"

namespace contract {
namespace {

std::string in_module(const char* pattern) {
  return std::string(kVictimModule) + ":" + pattern;
}

int count(const char* pattern, const char* exclude = nullptr) {
  return fprobe_count_ips_from_filter(in_module(pattern).c_str(), exclude);
}

TEST(Symbols, AreExactNamesWithoutGlobbing) {
  for (const char* const name : {"func*", "func?", "func[1]", "twic", "", "twice "}) {
    Probe probe;
    const char* names[] = {name};
    EXPECT_EQ(register_fprobe_syms(&probe, names, 1), -ENOENT) << name;
  }
}

TEST(Symbols, TheCallersArrayIsLeftAlone) {
  Probe probe;
  const char* const twice_name = "twice";
  const char* const thrice_name = "thrice";
  const char* names[] = {thrice_name, twice_name, thrice_name};
  ASSERT_EQ(register_fprobe_syms(&probe, names, 3), 0) << fprobe_last_error();
  EXPECT_EQ(names[0], thrice_name);
  EXPECT_EQ(names[1], twice_name);
  EXPECT_EQ(names[2], thrice_name);
}

TEST(Addresses, TheCallersArrayIsLeftAlone) {
  Probe probe;
  const unsigned long second = address_of(&twice), first = site_of("thrice");
  unsigned long addresses[] = {first, second, first};
  ASSERT_EQ(register_fprobe_ips(&probe, addresses, 3), 0) << fprobe_last_error();
  EXPECT_EQ(addresses[0], first);
  EXPECT_EQ(addresses[1], second);
  EXPECT_EQ(addresses[2], first);
}

TEST(Duplicates, OfOneNameFireOnce) {
  Probe probe;
  ATTACH(probe, "twice", "twice", "twice");
  twice(1);
  EXPECT_EQ(probe.entries, 1u);
  EXPECT_EQ(probe.exits, 1u);
}

TEST(Duplicates, OfOneAddressInItsTwoSpellingsFireOnce) {
  Probe probe;
  unsigned long addresses[] = {address_of(&twice), site_of("twice"), site_of("twice")};
  ASSERT_EQ(register_fprobe_ips(&probe, addresses, 3), 0) << fprobe_last_error();
  twice(1);
  EXPECT_EQ(probe.entries, 1u);
}

TEST(Duplicates, OfAliasesFireOnce) {
  Probe probe;
  ATTACH(probe, "alias_name", "alias_target");
  EXPECT_EQ(alias_name(1), 101);
  EXPECT_EQ(probe.entries, 1u);
  EXPECT_EQ(alias_target(1), 101);
  EXPECT_EQ(probe.entries, 2u);
}

TEST(Aliases, EachNameAloneReachesTheFunction) {
  for (const char* const name : {"alias_name", "alias_target"}) {
    Probe probe;
    const char* names[] = {name};
    ASSERT_EQ(register_fprobe_syms(&probe, names, 1), 0) << fprobe_last_error();
    alias_name(1);
    alias_target(1);
    EXPECT_EQ(probe.entries, 2u) << name;
  }
  EXPECT_EQ(count("alias_*"), 1);
}

TEST(SameName, StaticFunctionsOfTwoFilesAreAllAttached) {
  Probe probe;
  ATTACH(probe, "same_name");
  EXPECT_EQ(call_same_a(1), 2);
  EXPECT_EQ(call_same_b(1), 3);
  EXPECT_EQ(probe.entries, 2u);
  EXPECT_EQ(count("same_name"), 2);
}

TEST(Overloads, TheNameWithoutParametersMeansAllOfThem) {
  Probe probe;
  ATTACH(probe, "space::over");
  EXPECT_EQ(call_overloads(4), 12);
  EXPECT_EQ(probe.entries, 2u);
}

TEST(Overloads, TheFullSignatureMeansOne) {
  Probe probe;
  ATTACH(probe, "space::over(int)");
  EXPECT_EQ(call_overloads(4), 12);
  EXPECT_EQ(probe.entries, 1u);
}

TEST(Overloads, TheLinkageNameMeansOne) {
  Probe probe;
  ATTACH(probe, "_ZN5space4overEd");
  EXPECT_EQ(call_overloads(4), 12);
  EXPECT_EQ(probe.entries, 1u);
}

TEST(Overloads, ASignatureIsMatchedByFiltersWithItsComma) {
  EXPECT_EQ(count("space::over(int)"), 1);
  EXPECT_EQ(count("space::over(*)"), 2);
  EXPECT_EQ(count("space::over"), 2);
  EXPECT_EQ(count("space::paired<int, long>(int, long)"), 1);
  EXPECT_EQ(count("space::paired<int, long>"), 1);
}

TEST(Constructors, CompleteAndBaseAreBothMeant) {
  Probe probe;
  ATTACH(probe, "space::Widget::Widget");
  EXPECT_EQ(call_widget(4), 8);
  EXPECT_EQ(probe.entries, 2u);  // one complete object, one base of a Gadget
}

TEST(Templates, TheNameIncludesItsArguments) {
  Probe probe;
  ATTACH(probe, "space::sized<int>");
  EXPECT_EQ(call_template(2), 24);
  EXPECT_EQ(probe.entries, 1u);
  EXPECT_EQ(count("space::sized<*>"), 2);
}

TEST(Templates, TheSignatureHasNoReturnType) {
  Probe probe;
  ATTACH(probe, "space::sized<long>(long)");
  EXPECT_EQ(call_template(2), 24);
  EXPECT_EQ(probe.entries, 1u);
}

TEST(AbiTags, AreNoPartOfAName) {
  for (const char* const name : {"space::tagged", "space::tagged(long)", "_ZN5space6taggedB2v2El"}) {
    Probe probe;
    const char* names[] = {name};
    ASSERT_EQ(register_fprobe_syms(&probe, names, 1), 0) << fprobe_last_error();
    EXPECT_EQ(call_tagged(2), 34);
    EXPECT_EQ(probe.entries, 1u) << name;
  }
}

TEST(Lambdas, AnswerToTheirDemangledName) {
  Probe probe;
  const std::string filter = in_module("call_lambda::{lambda(long)#1}::operator()");
  ASSERT_EQ(register_fprobe(&probe, filter.c_str(), nullptr), 0) << fprobe_last_error();
  EXPECT_EQ(call_lambda(3), 15);
  EXPECT_EQ(probe.entries, 1u);
}

TEST(Operators, AnswerToTheirDemangledName) {
  Probe probe;
  ATTACH(probe, "space::Number::operator()");
  EXPECT_EQ(call_operator(3), 21);
  EXPECT_EQ(probe.entries, 1u);
}

TEST(Operators, OpenNoBracketsInAFilter) {
  const std::string filter = in_module("space::operator<") + "," + in_module("twice") + "," +
                             in_module("space::operator>") + "," + in_module("space::Number::operator()");
  Probe probe;
  ASSERT_EQ(register_fprobe(&probe, filter.c_str(), nullptr), 0) << fprobe_last_error();
  EXPECT_EQ(call_compare(2), 1);
  EXPECT_EQ(call_compare(4), 2);
  EXPECT_EQ(probe.entries, 4u);
  EXPECT_EQ(call_operator(3), 21);
  EXPECT_EQ(twice(3), 6);
  EXPECT_EQ(probe.entries, 6u);
}

TEST(AnonymousNamespaces, AnswerToTheirDemangledName) {
  Probe probe;
  ATTACH(probe, "(anonymous namespace)::hidden");
  EXPECT_EQ(call_anonymous(3), 33);
  EXPECT_EQ(probe.entries, 1u);
}

TEST(VirtualFunctions, AreProbedThroughTheirThunk) {
  Probe probe;
  ATTACH(probe, "space::Both::right");
  EXPECT_EQ(call_virtual(3), 39);
  EXPECT_EQ(probe.entries, 1u);
  EXPECT_EQ(probe.exits, 1u);
}

TEST(VirtualFunctions, AThunkAndItsTargetFireForTheOneReturn) {
  Probe probe;
  const std::string filter = in_module("*Both::right(long)");
  ASSERT_EQ(register_fprobe(&probe, filter.c_str(), nullptr), 0) << fprobe_last_error();
  EXPECT_EQ(call_virtual(3), 39);
  EXPECT_EQ(static_cast<int>(probe.entries), count("*Both::right(long)"));
  EXPECT_EQ(probe.exits, probe.entries);
}

TEST(Ifunc, TheChosenImplementationIsProbedNotTheResolver) {
  Probe probe;
  if (const int early = probe.attach({"ifunc_chosen"}); early != 0) {
    // Between modules it is bound by the first call, unless the loader binds at once: until then a clear refusal.
    EXPECT_TRUE(kVictimsAreShared);
    EXPECT_EQ(early, -ENOENT);
    EXPECT_NE(std::string(fprobe_last_error()).find("'ifunc_chosen'"), std::string::npos) << fprobe_last_error();
    EXPECT_EQ(ifunc_chosen(1), 11);
    ATTACH(probe, "ifunc_chosen");
  }
  EXPECT_EQ(ifunc_chosen(1), 11);
  EXPECT_EQ(probe.entries, 1u);
  EXPECT_EQ(ifunc_fast(1), 11);  // the same function
  EXPECT_EQ(probe.entries, 2u);
  EXPECT_EQ(ifunc_slow(1), 21);
  EXPECT_EQ(probe.entries, 2u);
}

TEST(Notrace, FunctionsHaveNoSite) {
  Probe probe;
  EXPECT_EQ(probe.attach({"without_site"}), -ENOENT);
  EXPECT_EQ(count("without_site"), -ENOENT);
  unsigned long addresses[] = {address_of(&without_site)};
  EXPECT_EQ(register_fprobe_ips(&probe, addresses, 1), -ENOENT);
  EXPECT_EQ(without_site(1), 6);
}

TEST(Notrace, ARefusalSaysWhichFlagToCompileWith) {
  Probe probe;
  EXPECT_EQ(probe.attach({"without_site"}), -ENOENT);
  const std::string sentence = fprobe_last_error();
  EXPECT_NE(sentence.find("without_site"), std::string::npos) << sentence;
  EXPECT_NE(sentence.find("-mfentry"), std::string::npos) << sentence;
}

TEST(Rollback, OneBadSymbolOfAHundredLeavesNothingPatched) {
  const std::vector<unsigned long> sites = sites_of_victims();
  std::vector<std::vector<unsigned char>> before;
  for (const unsigned long site : sites)
    before.emplace_back(reinterpret_cast<unsigned char*>(site), reinterpret_cast<unsigned char*>(site) + 6);
  const char* good[] = {"twice", "thrice", "func1", "func2", "func3", "add", "deep", "nine", "mixed"};
  for (const int bad : {0, 50, 99}) {
    std::vector<const char*> names;
    for (int i = 0; i < 100; ++i) names.push_back(i == bad ? "no_such_function" : good[i % 9]);
    Probe probe;
    ASSERT_EQ(register_fprobe_syms(&probe, names.data(), 100), -ENOENT);
    EXPECT_NE(std::string(fprobe_last_error()).find("no_such_function"), std::string::npos);
    EXPECT_FALSE(fprobe_is_registered(&probe));
    EXPECT_EQ(unregister_fprobe(&probe), -EINVAL);
    for (std::size_t i = 0; i < sites.size(); ++i) {
      const auto* now = reinterpret_cast<unsigned char*>(sites[i]);
      ASSERT_EQ(std::vector<unsigned char>(now, now + 6), before[i]);
    }
    twice(1);
    EXPECT_EQ(probe.entries, 0u);
    // The struct is usable.
    ATTACH(probe, "twice");
    twice(1);
    EXPECT_EQ(probe.entries, 1u);
  }
}

// In a program that is linked statically raise() has no such slot: it is a function without a site then.
TEST(Addresses, OfAPltSlotAreRefused) {
  unsigned long slots[2] = {};
  asm("leaq raise@PLT(%%rip), %0" : "=r"(slots[0]));
  asm("leaq twice@PLT(%%rip), %0" : "=r"(slots[1]));
  ASSERT_EQ(slots[1] != first_byte_of("twice"), kVictimsAreShared);
  for (int i = 0; i < (kVictimsAreShared ? 2 : 1); ++i) {
    Probe probe;
    EXPECT_EQ(register_fprobe_ips(&probe, &slots[i], 1), -ENOENT) << i;
    EXPECT_STRNE(fprobe_last_error(), "");
  }
}

TEST(Rollback, OneBadAddressLeavesNothingPatched) {
  Probe probe;
  unsigned long addresses[] = {site_of("twice"), site_of("thrice") + 1};
  EXPECT_EQ(register_fprobe_ips(&probe, addresses, 2), -ENOENT);
  twice(1);
  EXPECT_EQ(probe.entries, 0u);
}

TEST(Addresses, ThatAreNoFunctionsAreRefused) {
  static int data;
  for (const unsigned long address : {0UL, 1UL, address_of(&data), address_of(&data) + 1, site_of("twice") + 1, ~0UL,
                                      address_of(&without_site), address_of(&without_site) + 1}) {
    Probe probe;
    unsigned long addresses[] = {address};
    EXPECT_EQ(register_fprobe_ips(&probe, addresses, 1), -ENOENT) << std::hex << address;
    EXPECT_STRNE(fprobe_last_error(), "");
  }
}

}  // namespace
}  // namespace contract
