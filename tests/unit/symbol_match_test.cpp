// Names and filters: what separates alternatives, module prefixes, exclusions, exact names, refusals.
#include "image/symbol_match.h"

#include <errno.h>
#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "base/syscalls.h"

namespace libfprobe::detail {
namespace {

constexpr ModuleName kModule{"libfoo.so.1.2", "libfoo.so.1"};

Filter parsed(const char* match, const char* exclude = nullptr) {
  Result<Filter> filter = Filter::parse(match, exclude);
  EXPECT_TRUE(filter.ok()) << match << ": " << filter.error().sentence;
  return filter.ok() ? std::move(*filter) : Filter::parse("unparsable", nullptr).value();
}

// As a C function named `name` in libfoo.
bool selects(const char* match, const char* name, const char* exclude = nullptr) {
  Spellings names;
  names.linkage = names.linkage_base = name;
  return parsed(match, exclude).selects(kModule, names);
}

// As the C++ function with this linkage name in libfoo.
bool selects_linkage(const char* match, const char* linkage, const char* exclude = nullptr) {
  return parsed(match, exclude).selects(kModule, spell(linkage));
}

Error refusal(const char* match, const char* exclude = nullptr) {
  Result<Filter> filter = Filter::parse(match, exclude);
  EXPECT_FALSE(filter.ok()) << match;
  return filter.ok() ? Error{} : filter.error();
}

// --- Alternatives.

TEST(Filter, CommaSeparatesAlternatives) {
  EXPECT_TRUE(selects("foo,bar*", "foo"));
  EXPECT_TRUE(selects("foo,bar*", "barn"));
  EXPECT_FALSE(selects("foo,bar*", "food"));
  EXPECT_FALSE(selects("foo,bar*", "foo,bar"));
}

TEST(Filter, BlanksAroundAlternativesDoNotCount) {
  EXPECT_TRUE(selects(" foo , bar ", "foo"));
  EXPECT_TRUE(selects(" foo , bar ", "bar"));
  EXPECT_FALSE(selects("foo, ! bar", "bar"));
}

TEST(Filter, CommaInsideBracketsDoesNotSeparate) {
  EXPECT_TRUE(selects("f(int, char)", "f(int, char)"));
  EXPECT_FALSE(selects("f(int,x)", "x)"));
  EXPECT_TRUE(selects("m<a, b>,x", "m<a, b>"));
  EXPECT_TRUE(selects("m<a, b>,x", "x"));
  EXPECT_TRUE(selects("f[,]g", "f,g"));
  EXPECT_TRUE(selects("f<(1>2), x>(a<b, c>),g", "g"));
  EXPECT_TRUE(selects("f<(1>2), x>(a<b, c>),g", "f<(1>2), x>(a<b, c>)"));
  EXPECT_TRUE(selects("f((a<b), c),g", "f((a<b), c)"));
}

TEST(Filter, EscapedCommaDoesNotSeparate) {
  EXPECT_TRUE(selects("a\\,b", "a,b"));
  EXPECT_FALSE(selects("a\\,b", "b"));
}

TEST(Filter, BracketThatIsNeverClosedHoldsNothing) {
  EXPECT_TRUE(selects("vector<*,map<*", "map<int>"));
  EXPECT_TRUE(selects("f(*,g", "g"));
  EXPECT_TRUE(selects("f(*,g<a, b>,h", "g<a, b>"));
  EXPECT_TRUE(selects("f),g", "g"));
  EXPECT_TRUE(selects("f(a<b),g)", "g)")) << "the '<' ends with the bracket around it";
}

TEST(Filter, BracketsAfterOperatorOpenNothing) {
  EXPECT_TRUE(selects("A::operator(),b", "A::operator()"));
  EXPECT_TRUE(selects("A::operator(),b", "b"));
  EXPECT_TRUE(selects("A::operator()(int, int),b", "A::operator()(int, int)"));
  EXPECT_TRUE(selects("A::operator(*,b", "b"));
  EXPECT_TRUE(selects("operator<,b", "operator<"));
  EXPECT_TRUE(selects("operator<,b", "b"));
  EXPECT_TRUE(selects("operator<<,operator>>,b", "operator>>"));
  EXPECT_TRUE(selects("operator<<,operator>>,b", "operator<<"));
  EXPECT_TRUE(selects("operator< <int, char>,b", "operator< <int, char>"));
  EXPECT_TRUE(selects("operator<<(A<b, c>, d),b", "operator<<(A<b, c>, d)"));
  EXPECT_TRUE(selects("operator->,b", "operator->"));
  EXPECT_TRUE(selects("f<&A::operator->, x>,b", "f<&A::operator->, x>"));
  EXPECT_TRUE(selects("operator<=>,b", "operator<=>"));
  EXPECT_TRUE(selects("operator[],b", "operator[]"));
  EXPECT_TRUE(selects("operator[],b", "b"));
  EXPECT_TRUE(selects("operator new[],b", "operator new[]"));
  EXPECT_TRUE(selects("operator delete[],b", "b"));
  EXPECT_TRUE(selects("operator new(unsigned long, void*),b", "operator new(unsigned long, void*)"));
}

TEST(Filter, CommaOperatorIsAName) {
  EXPECT_TRUE(selects("A::operator,", "A::operator,"));
  EXPECT_TRUE(selects("A::operator,(int),b", "A::operator,(int)"));
  EXPECT_TRUE(selects("A::operator,,b", "A::operator,"));
  EXPECT_TRUE(selects("A::operator,,b", "b"));
  EXPECT_TRUE(selects("my_operator,b", "b"));
}

TEST(Filter, ExclamationMarkExcludes) {
  EXPECT_TRUE(selects("f*,!foo", "food"));
  EXPECT_FALSE(selects("f*,!foo", "foo"));
  EXPECT_FALSE(selects("!foo,f*", "foo"));
  EXPECT_FALSE(selects("f*,!foo,foo", "foo"));
  EXPECT_TRUE(selects("\\!foo", "!foo"));
}

TEST(Filter, NotfilterExcludes) {
  EXPECT_FALSE(selects("func*", "func2", "func2"));
  EXPECT_TRUE(selects("func*", "func3", "func2"));
  EXPECT_FALSE(selects("func*", "func3", "func2,func3"));
  EXPECT_TRUE(selects("func*", "func2", nullptr));
  EXPECT_TRUE(selects("func*", "func2", ""));
}

TEST(Filter, VerdictTellsExclusionFromIndifference) {
  Spellings names;
  names.linkage = names.linkage_base = "func2";
  EXPECT_EQ(parsed("func*", "func2").judge(kModule, names), Filter::Verdict::kExcluded);
  EXPECT_EQ(parsed("func*", "func3").judge(kModule, names), Filter::Verdict::kSelected);
  EXPECT_EQ(parsed("other", "func3").judge(kModule, names), Filter::Verdict::kNotMeant);
}

// --- Modules.

TEST(Filter, ModulePrefixRestrictsByFileNameOrSoname) {
  EXPECT_TRUE(selects("libfoo.so.1.2:bar", "bar"));
  EXPECT_TRUE(selects("libfoo.so.1:bar", "bar"));
  EXPECT_TRUE(selects("libfoo*:b*", "bar"));
  EXPECT_TRUE(selects("lib[a-f]oo.so.?:bar", "bar"));
  EXPECT_FALSE(selects("libfoo.so:bar", "bar"));
  EXPECT_FALSE(selects("libbar*:*", "bar"));
  EXPECT_FALSE(selects("*,!libfoo*:b*", "bar"));
  EXPECT_TRUE(selects("*,!libbar*:b*", "bar"));
  EXPECT_FALSE(selects("*", "bar", "libfoo*:bar"));
}

TEST(Filter, DoubleColonBelongsToTheName) {
  EXPECT_TRUE(selects("ns::f", "ns::f"));
  EXPECT_TRUE(selects("libfoo*:ns::f", "ns::f"));
  EXPECT_TRUE(selects("ns::*", "ns::deep::f"));
  EXPECT_FALSE(selects("ns:*", "ns::f"));
}

TEST(Filter, ModuleThatCannotBeMeantIsLeftOut) {
  EXPECT_TRUE(parsed("f*").may_select_in(kModule));
  EXPECT_TRUE(parsed("libbar*:f,libfoo*:g").may_select_in(kModule));
  EXPECT_FALSE(parsed("libbar*:f").may_select_in(kModule));
  EXPECT_FALSE(parsed("libbar*:f,!libfoo*:g").may_select_in(kModule));
  EXPECT_FALSE(parsed("libbar*:f", "libfoo*:g").may_select_in(kModule));
}

TEST(Filter, ModuleWithoutSonameIsNotMatchedByAnEmptyPatternPart) {
  Spellings names;
  names.linkage = names.linkage_base = "f";
  EXPECT_TRUE(parsed("prog:f").selects({"prog", ""}, names));
  EXPECT_FALSE(parsed("prog?:f").selects({"prog", ""}, names));
}

TEST(ModulePrefix, IsSplitAtTheSingleColon) {
  struct Case {
    const char* text;
    bool has_module;
    const char *module, *name;
  };
  constexpr Case kCases[] = {
      {"f", false, "", "f"},
      {"lib.so:f", true, "lib.so", "f"},
      {"lib.so:ns::f", true, "lib.so", "ns::f"},
      {"ns::f", false, "", "ns::f"},
      {"a::b::c", false, "", "a::b::c"},
      {"lib:::f", true, "lib", "::f"},
      {"lib\\:x:f", true, "lib\\:x", "f"},
      {"a[:]b", false, "", "a[:]b"},
      {"f[abi:cxx11]()", false, "", "f[abi:cxx11]()"},
      {"A::operator[]", false, "", "A::operator[]"},
      {"lib:A::operator[](int)", true, "lib", "A::operator[](int)"},
      {":f", true, "", "f"},
      {"lib:", true, "lib", ""},
      {"", false, "", ""},
      {"[x:f", false, "", "[x:f"},
  };
  for (const Case& c : kCases) {
    const Prefixed parts = split_module_prefix(c.text);
    EXPECT_EQ(parts.has_module, c.has_module) << c.text;
    EXPECT_EQ(parts.module, c.module) << c.text;
    EXPECT_EQ(parts.name, c.name) << c.text;
  }
}

// --- C++ names and clones.

TEST(Filter, EverySpellingCanBeMatched) {
  constexpr const char* kMethod = "_ZN2ns5Class6methodEi";
  EXPECT_TRUE(selects_linkage("ns::Class::method", kMethod));
  EXPECT_TRUE(selects_linkage("ns::Class::method(int)", kMethod));
  EXPECT_TRUE(selects_linkage("_ZN2ns5Class6methodEi", kMethod));
  EXPECT_TRUE(selects_linkage("ns::*", kMethod));
  EXPECT_TRUE(selects_linkage("*(int)", kMethod));
  EXPECT_FALSE(selects_linkage("method", kMethod));
  EXPECT_FALSE(selects_linkage("ns::Class::method(", kMethod));
  EXPECT_FALSE(selects_linkage("ns::*", kMethod, "ns::Class::method"));
}

TEST(Filter, NameWithoutSuffixAlsoSelectsClones) {
  EXPECT_TRUE(selects_linkage("f", "f.constprop.0"));
  EXPECT_TRUE(selects_linkage("f", "f.isra.0.constprop.3"));
  EXPECT_TRUE(selects_linkage("f", "f.part.0"));
  EXPECT_TRUE(selects_linkage("ns::f", "_ZN2ns1fEv.constprop.0"));
  EXPECT_TRUE(selects_linkage("_ZN2ns1fEv", "_ZN2ns1fEv.constprop.0"));
  EXPECT_FALSE(selects_linkage("f", "f.avx2"));
}

TEST(Filter, LinkageNameWithSuffixSelectsThatCloneAlone) {
  EXPECT_TRUE(selects_linkage("f.constprop.0", "f.constprop.0"));
  EXPECT_FALSE(selects_linkage("f.constprop.0", "f.constprop.1"));
  EXPECT_FALSE(selects_linkage("f.constprop.0", "f"));
  EXPECT_FALSE(selects_linkage("f*", "f.constprop.0", "f.constprop.0"));
  EXPECT_TRUE(selects_linkage("f*", "f", "f.constprop.0"));
}

TEST(ExactName, AnswersToEverySpelling) {
  const Spellings names = spell("_ZN2ns1fIiEEvT_.constprop.0");
  for (const char* wanted : {"_ZN2ns1fIiEEvT_.constprop.0", "_ZN2ns1fIiEEvT_", "ns::f<int>", "ns::f<int>(int)",
                             "libfoo.so.1:ns::f<int>", "lib*:_ZN2ns1fIiEEvT_"})
    EXPECT_TRUE(names_exactly(wanted, kModule, names)) << wanted;
  for (const char* wanted : {"ns::f", "f<int>", "void ns::f<int>(int)", "_ZN2ns1fIiEEvT_.constprop.1",
                             "libbar:ns::f<int>", "ns::f<int>(", "", "libfoo.so.1:", ":ns::f<int>"})
    EXPECT_FALSE(names_exactly(wanted, kModule, names)) << wanted;
}

TEST(ExactName, IsNoGlob) {
  const Spellings names = spell("food");
  EXPECT_FALSE(names_exactly("foo*", kModule, names));
  EXPECT_FALSE(names_exactly("foo?", kModule, names));
  EXPECT_FALSE(names_exactly("*", kModule, names));
  EXPECT_TRUE(names_exactly("food", kModule, names));
}

TEST(ExactName, OperatorsKeepTheirBrackets) {
  EXPECT_TRUE(names_exactly("A::operator[]", kModule, spell("_ZN1AixEi")));
  EXPECT_TRUE(names_exactly("A::operator()", kModule, spell("_ZN1AclEi")));
  EXPECT_TRUE(names_exactly("A::operator,(int)", kModule, spell("_ZN1AcmEi")));
  EXPECT_TRUE(names_exactly("lib*:A::operator->", kModule, spell("_ZN1AptEv")));
}

// --- Refusals.

void expect_refusal(const Error& error, int code, const char* culprit, const char* what) {
  EXPECT_EQ(error.code, code) << error.sentence;
  EXPECT_NE(std::string_view(error.sentence).find(culprit), std::string_view::npos) << error.sentence;
  EXPECT_NE(std::string_view(error.sentence).find(what), std::string_view::npos) << error.sentence;
}

TEST(FilterRefusal, EmptyFilterMatchesNothing) {
  expect_refusal(refusal(""), ENOENT, "the filter", "empty");
  expect_refusal(refusal("  "), ENOENT, "the filter", "empty");
  expect_refusal(refusal("", "x"), ENOENT, "the filter", "empty");
}

TEST(FilterRefusal, NullFilterIsInvalid) {
  expect_refusal(refusal(nullptr), EINVAL, "the filter", "NULL");
}

TEST(FilterRefusal, UnclosedClassIsNamedWithItsPlace) {
  expect_refusal(refusal("foo[a"), EINVAL, "\"foo[a\"", "character 4");
  expect_refusal(refusal("foo["), EINVAL, "\"foo[\"", "never closed");
  expect_refusal(refusal("[]"), EINVAL, "\"[]\"", "never closed");
  expect_refusal(refusal("[!]"), EINVAL, "\"[!]\"", "never closed");
  expect_refusal(refusal("[a-"), EINVAL, "\"[a-\"", "never closed");
  expect_refusal(refusal("a,b[c,d"), EINVAL, "\"a,b[c,d\"", "never closed");
  expect_refusal(refusal("f", "foo[a"), EINVAL, "notfilter \"foo[a\"", "never closed");
}

TEST(FilterRefusal, TrailingBackslashIsNamed) {
  expect_refusal(refusal("foo\\"), EINVAL, "\"foo\\\"", "backslash");
  expect_refusal(refusal("\\"), EINVAL, "\"\\\"", "backslash");
  expect_refusal(refusal("f", "foo\\"), EINVAL, "notfilter", "backslash");
  EXPECT_TRUE(selects("foo\\\\", "foo\\"));
}

TEST(FilterRefusal, EmptyAlternativeIsNamed) {
  for (const char* filter : {",", "a,", ",a", "a,,b", "!", "a,!", "lib:", ":f", "a, ,b", "!lib:"})
    expect_refusal(refusal(filter), EINVAL, filter, "empty alternative");
  expect_refusal(refusal("a", "b,"), EINVAL, "notfilter \"b,\"", "empty alternative");
}

TEST(FilterRefusal, FilterThatOnlyExcludesMatchesNothing) {
  expect_refusal(refusal("!foo"), ENOENT, "\"!foo\"", "only excludes");
  expect_refusal(refusal("!foo,!bar"), ENOENT, "\"!foo,!bar\"", "only excludes");
}

TEST(FilterRefusal, NotfilterTakesNoExclamationMark) {
  expect_refusal(refusal("foo*", "!foo"), EINVAL, "\"!foo\"", "remove the '!'");
}

TEST(FilterRefusal, EndlessPatternsAreCutInTheSentence) {
  const std::string endless(5000, 'a');
  const Error error = refusal((endless + "[").c_str());
  EXPECT_EQ(error.code, EINVAL);
  EXPECT_NE(std::string_view(error.sentence).find("never closed"), std::string_view::npos) << error.sentence;
}

TEST(FilterRefusal, ExhaustedMemoryIsToldAsSuch) {
  sys::Fault& fault = sys::fault(sys::Call::kAllocate);
  fault.fail_after = 0;
  fault.error = ENOMEM;
  const Error error = refusal("foo*");
  fault.error = 0;
  expect_refusal(error, ENOMEM, "\"foo*\"", "no memory");
}

}  // namespace
}  // namespace libfprobe::detail
