// From a linkage name to the names a user may write: what is dropped, where the parameters begin.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string_view>

#include "image/name_syntax.h"
#include "image/signature.h"
#include "image/symbol_index.h"

namespace libfprobe::detail {
namespace {

struct Case {
  const char *linkage, *signature, *qualified;
};

void expect_spelling(const Case& c) {
  const Spellings names = spell(c.linkage);
  EXPECT_EQ(names.linkage, c.linkage);
  EXPECT_EQ(names.signature, c.signature) << c.linkage;
  EXPECT_EQ(names.qualified, c.qualified) << c.linkage;
  EXPECT_FALSE(names.out_of_memory);
}

TEST(Spelling, FunctionsAndMethodsLoseTheirParameters) {
  constexpr Case kCases[] = {
      {"_Z1fv", "f()", "f"},
      {"_ZN2ns5Class6methodEi", "ns::Class::method(int)", "ns::Class::method"},
      {"_ZNK2ns5Class6methodEi", "ns::Class::method(int) const", "ns::Class::method"},
      {"_ZNVKR1A1fEi", "A::f(int) const volatile &", "A::f"},
      {"_ZNO1A1fEv", "A::f() &&", "A::f"},
      {"_ZN12_GLOBAL__N_11fEv", "(anonymous namespace)::f()", "(anonymous namespace)::f"},
      {"_ZN12_GLOBAL__N_12afENS_1NE", "(anonymous namespace)::af((anonymous namespace)::N)",
       "(anonymous namespace)::af"},
      {"_Z4overPFiicE", "over(int (*)(int, char))", "over"},
      {"_ZN1I1fIiE1gEv", "I::f<int>::g()", "I::f<int>::g"},
  };
  for (const Case& c : kCases) expect_spelling(c);
}

TEST(Spelling, CNamesAreTheirLinkageNamesOnly) {
  // The demangler would take "i" and "f" for types.
  for (const char* name : {"main", "i", "f", "_start", "_GLOBAL__sub_I_x", "operator", ""})
    expect_spelling({name, "", ""});
}

TEST(Spelling, TemplatesLoseTheirReturnType) {
  constexpr Case kCases[] = {
      {"_Z2ccIiEKPKcT_", "cc<int>(int)", "cc<int>"},
      {"_ZN1I1gIiEEvT_", "I::g<int>(int)", "I::g<int>"},
      {"_Z2dsIiEDTstT_ES0_", "ds<int>(int)", "ds<int>"},
      {"_ZN12_GLOBAL__N_11N2tfIiEET_S2_", "(anonymous namespace)::N::tf<int>(int)",
       "(anonymous namespace)::N::tf<int>"},
      {"_Z2fpIiEPFvcET_", "fp<int>(int)", "fp<int>"},
      {"_Z2ffIiEPFPFPPPT_lEiES0_", "ff<int>(int)", "ff<int>"},
      {"_Z3arrIiERA3_iT_", "arr<int>(int)", "arr<int>"},
      {"_Z2tbILb1EEvv", "tb<true>()", "tb<true>"},
#ifdef _LIBCPP_VERSION  // its demangler spells this one differently
      {"_Z1fIXadL_Z4overPFiicEEEEvv", "f<&over(int (*)(int, char))>()", "f<&over(int (*)(int, char))>"},
#else
      {"_Z1fIXadL_Z4overPFiicEEEEvv", "f<&(over(int (*)(int, char)))>()", "f<&(over(int (*)(int, char)))>"},
#endif
  };
  for (const Case& c : kCases) expect_spelling(c);
}

TEST(Spelling, OperatorsKeepTheirSymbols) {
  constexpr Case kCases[] = {
      {"_ZNK1AclEi", "A::operator()(int) const", "A::operator()"},
      {"_ZN1AixEi", "A::operator[](int)", "A::operator[]"},
      {"_ZN1AcmEi", "A::operator,(int)", "A::operator,"},
      {"_ZN1AptEv", "A::operator->()", "A::operator->"},
#ifndef _LIBCPP_VERSION  // its demangler does not know this operator as a function's name
      {"_ZN1ApmEv", "A::operator->*()", "A::operator->*"},
#endif
      {"_ZN1AltERKS_", "A::operator<(A const&)", "A::operator<"},
      {"_ZN1AlsEi", "A::operator<<(int)", "A::operator<<"},
      {"_ZN1ArSEi", "A::operator>>=(int)", "A::operator>>="},
      {"_ZN1AssEi", "A::operator<=>(int)", "A::operator<=>"},
      {"_ZN1AmlEi", "A::operator*(int)", "A::operator*"},
      {"_ZN1AntEv", "A::operator!()", "A::operator!"},
      {"_ZN1AnaEm", "A::operator new[](unsigned long)", "A::operator new[]"},
      {"_ZnwmPv", "operator new(unsigned long, void*)", "operator new"},
      {"_ZdaPv", "operator delete[](void*)", "operator delete[]"},
  };
  for (const Case& c : kCases) expect_spelling(c);
}

TEST(Spelling, ConversionsKeepTheirType) {
  constexpr Case kCases[] = {
      {"_ZNK1AcviEv", "A::operator int() const", "A::operator int"},
      {"_ZN1AcvmEv", "A::operator unsigned long()", "A::operator unsigned long"},
      {"_ZN1AcvPFviEEv", "A::operator void (*)(int)()", "A::operator void (*)(int)"},
      {"_ZN1AcvPFvvEEv", "A::operator void (*)()()", "A::operator void (*)()"},
      {"_ZN1AcvPT_IiEEv", "A::operator int*<int>()", "A::operator int*<int>"},
      {"_ZNK1AcvMS_KFvvEEv", "A::operator void (A::*)() const() const", "A::operator void (A::*)() const"},
  };
  for (const Case& c : kCases) expect_spelling(c);
}

TEST(Spelling, ConstructorsAndDestructorsOfAllKindsShareTheirName) {
  for (const char* linkage : {"_ZN2ns1AC1Ei", "_ZN2ns1AC2Ei"}) expect_spelling({linkage, "ns::A::A(int)", "ns::A::A"});
  for (const char* linkage : {"_ZN2ns1AD0Ev", "_ZN2ns1AD1Ev", "_ZN2ns1AD2Ev"})
    expect_spelling({linkage, "ns::A::~A()", "ns::A::~A"});
}

TEST(Spelling, AbiTagsAreDropped) {
  expect_spelling({"_Z2tgB6taggedv", "tg()", "tg"});
  expect_spelling({"_ZN3TagB6tagged1mB5cxx11Ev", "Tag::m()", "Tag::m"});
}

TEST(Spelling, ThunksKeepTheWordsThatSayWhatTheyAre) {
  expect_spelling({"_ZThn8_N1C1vEv", "non-virtual thunk to C::v()", "non-virtual thunk to C::v"});
  expect_spelling({"_ZTv0_n24_N1C1vEi", "virtual thunk to C::v(int)", "virtual thunk to C::v"});
}

TEST(Spelling, CloneSuffixesAndNotesAreDropped) {
  struct {
    const char *linkage, *base, *signature;
  } constexpr kCases[] = {
      {"f.constprop.0", "f", ""},
      {"f.isra.0.constprop.3", "f", ""},
      {"f.part.0", "f", ""},
      {"f.part.0.isra.0", "f", ""},
      {"f.lto_priv.0", "f", ""},
      {"f.localalias", "f", ""},
      {"f.llvm.1234567", "f", ""},
      {"f.__uniq.77.llvm.12", "f", ""},
      {"nested.0", "nested", ""},
      {"nested.0.constprop.0", "nested", ""},
      {"f.avx2", "f.avx2", ""},
      {"f._omp_fn.0", "f._omp_fn.0", ""},
      {".hidden", ".hidden", ""},
      {"f.", "f.", ""},
      {"_ZN1A1fEv.isra.0.constprop.3", "_ZN1A1fEv", "A::f()"},
      {"_Z1fv.avx2", "_Z1fv.avx2", "f()"},
      {"_Z1fIiEvT_.part.0", "_Z1fIiEvT_", "f<int>(int)"},
  };
  for (const auto& c : kCases) {
    const Spellings names = spell(c.linkage);
    EXPECT_EQ(names.linkage, c.linkage);
    EXPECT_EQ(names.linkage_base, c.base) << c.linkage;
    EXPECT_EQ(names.signature, c.signature) << c.linkage;
  }
}

TEST(Spelling, OutlinedParallelBodyIsNotItsFunction) {
  expect_spelling({"_Z3foov._omp_fn.0", "", ""});
}

TEST(Spelling, DamagedManglingHasNoDemangledName) {
  for (const char* linkage : {"_Z", "_ZN", "_Z3fo", "_ZN2ns1f", "_Zgarbage"}) expect_spelling({linkage, "", ""});
}

// --- Both dialects, as text: a program's C++ library prints only one of them.

struct Text {
  const char *demangled, *whole, *qualified;
};

void expect_signature(const Text& text) {
  const Signature signature = read_signature(text.demangled, false);
  EXPECT_EQ(signature.whole, text.whole) << text.demangled;
  EXPECT_EQ(signature.qualified, text.qualified) << text.demangled;
}

TEST(Signature, LocalNamesKeepTheParametersOfTheirFunction) {
  constexpr Text kTexts[] = {
      {"use()::{lambda(int, char)#1}::operator()(int, char) const",
       "use()::{lambda(int, char)#1}::operator()(int, char) const", "use()::{lambda(int, char)#1}::operator()"},
      {"use()::'lambda'(int, char)::operator()(int, char) const",
       "use()::'lambda'(int, char)::operator()(int, char) const", "use()::'lambda'(int, char)::operator()"},
      {"auto A::lam() const::{lambda(int)#1}::operator()(int) const::{lambda(auto:1)#1}::operator()<int>(int) const",
       "A::lam() const::{lambda(int)#1}::operator()(int) const::{lambda(auto:1)#1}::operator()<int>(int) const",
       "A::lam() const::{lambda(int)#1}::operator()(int) const::{lambda(auto:1)#1}::operator()<int>"},
      {"int ns::tf<int>(int)::'lambda'()::operator()() const", "ns::tf<int>(int)::'lambda'()::operator()() const",
       "ns::tf<int>(int)::'lambda'()::operator()"},
      {"f(int)::Local::method(char) &&", "f(int)::Local::method(char) &&", "f(int)::Local::method"},
      {"A::operator int() const::{lambda()#1}::operator()() const",
       "A::operator int() const::{lambda()#1}::operator()() const",
       "A::operator int() const::{lambda()#1}::operator()"},
      {"{lambda(int)#1}::operator()(int) const", "{lambda(int)#1}::operator()(int) const",
       "{lambda(int)#1}::operator()"},
  };
  for (const Text& text : kTexts) expect_signature(text);
}

TEST(Signature, ComparisonsFollowedByTemplateArgumentsAreTakenApart) {
  constexpr Text kTexts[] = {
      {"bool A::operator< <int>(int)", "A::operator< <int>(int)", "A::operator< <int>"},
      {"bool A::operator<<int>(int)", "A::operator<<int>(int)", "A::operator<<int>"},
      {"bool A::operator<< <int>(int) &&", "A::operator<< <int>(int) &&", "A::operator<< <int>"},
      {"bool A::operator<<<int>(int) &&", "A::operator<<<int>(int) &&", "A::operator<<<int>"},
      {"bool A::operator<=<A>(A)", "A::operator<=<A>(A)", "A::operator<=<A>"},
      {"bool operator==<A, B>(A, B)", "operator==<A, B>(A, B)", "operator==<A, B>"},
      {"void np<&A::operator-> >()", "np<&A::operator-> >()", "np<&A::operator-> >"},
      {"long double operator\"\" _kb<'a'>()", "operator\"\" _kb<'a'>()", "operator\"\" _kb<'a'>"},
  };
  for (const Text& text : kTexts) expect_signature(text);
}

TEST(Signature, WrappingReturnTypesAreDropped) {
  constexpr Text kTexts[] = {
      {"void (*fp<int>(int))(char)", "fp<int>(int)", "fp<int>"},
      {"int*** (*(*ff<int>(int))(int))(long)", "ff<int>(int)", "ff<int>"},
      {"int*** (* (*ff<int>(int))(int))(long)", "ff<int>(int)", "ff<int>"},
      {"int (&arr<int>(int)) [3]", "arr<int>(int)", "arr<int>"},
      {"void (A::*A::mp<int>(int) const)(char) const", "A::mp<int>(int) const", "A::mp<int>"},
      {"void (*A::operator*<int>(int))(char)", "A::operator*<int>(int)", "A::operator*<int>"},
      {"decltype (sizeof (int)) ds<int>(int)", "ds<int>(int)", "ds<int>"},
      {"decltype((fp) + (1)) dt<int>(int)", "dt<int>(int)", "dt<int>"},
      {"decltype (x)::type f<int>()", "f<int>()", "f<int>"},
  };
  for (const Text& text : kTexts) expect_signature(text);
}

TEST(Signature, CloneNotesAreDropped) {
  constexpr Text kTexts[] = {
      {"foo() [clone .isra.0] [clone .constprop.3]", "foo()", "foo"},
      {"foo() (.isra.0.constprop.3)", "foo()", "foo"},
      {"A::foo(int) const [clone .constprop.0]", "A::foo(int) const", "A::foo"},
      {"A::operator int() [clone .x]", "A::operator int()", "A::operator int"},
      {"A::operator int() const (.x)", "A::operator int() const", "A::operator int"},
  };
  for (const Text& text : kTexts) expect_signature(text);
}

TEST(Signature, UnbalancedTextIsTakenAsItIs) {
  for (const char* text :
       {"", "(", "f(", "f<", "operator", "operator(", "A::operator", "f(int", "operator@", "a b(", ")", ">"}) {
    const Signature signature = read_signature(text, false);
    EXPECT_LE(signature.whole.size(), std::string_view(text).size());
    EXPECT_LE(signature.qualified.size(), signature.whole.size());
  }
}

TEST(NameSyntax, GroupsEndAtTheirOwnBracket) {
  struct {
    const char* text;
    std::size_t end;
  } constexpr kCases[] = {
      {"(a)b", 3},
      {"(a(b)c)d", 7},
      {"<a<b> >c", 7},
      {"<a>>", 3},
      {"((1<2))x", 7},
      {"<(1>2)>x", 7},
      {"(a->b)x", 6},
      {"{l(int)#1}::", 10},
      {"<&A::operator->>x", 16},
      {"<operator<, b>x", 14},
  };
  for (const auto& c : kCases) EXPECT_EQ(group_end(c.text, 0), c.end) << c.text;
  EXPECT_EQ(group_end("(a", 0), std::string_view::npos);
  EXPECT_EQ(group_end(std::string(100'000, '('), 0), std::string_view::npos);
}

}  // namespace
}  // namespace libfprobe::detail
