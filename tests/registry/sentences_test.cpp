// What fprobe_last_error() says when names, filters and addresses lead to no site: each sentence names the culprit, the
// module and what to do.
#include <dlfcn.h>
#include <errno.h>
#include <fprobe/fprobe.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <initializer_list>
#include <ostream>
#include <string>

#include "registry/sentence_victims.h"

namespace {

constexpr const char* kMe = "registry_sentences_test";

std::string refuse_name(const std::string& name) {
  fprobe probe{};
  const char* names[] = {name.c_str()};
  EXPECT_EQ(register_fprobe_syms(&probe, names, 1), -ENOENT) << name;
  EXPECT_FALSE(fprobe_is_registered(&probe)) << name;
  return fprobe_last_error();
}

std::string refuse_filter(const std::string& filter, const char* notfilter = nullptr) {
  fprobe probe{};
  EXPECT_EQ(register_fprobe(&probe, filter.c_str(), notfilter), -ENOENT) << filter;
  const std::string sentence = fprobe_last_error();
  EXPECT_EQ(fprobe_count_ips_from_filter(filter.c_str(), notfilter), -ENOENT) << filter;
  EXPECT_EQ(fprobe_last_error(), sentence);
  return sentence;
}

std::string refuse_address(unsigned long address) {
  fprobe probe{};
  EXPECT_EQ(register_fprobe_ips(&probe, &address, 1), -ENOENT);
  return fprobe_last_error();
}

void expect_all(const std::string& sentence, std::initializer_list<std::string> parts) {
  for (const std::string& part : parts)
    EXPECT_NE(sentence.find(part), std::string::npos) << "not \"" << part << "\" in: " << sentence;
}

// --- unknown names

struct Misspelling {
  const char* wanted;
  const char* suggestion;
};

void PrintTo(const Misspelling& misspelling, std::ostream* out) {
  *out << '"' << misspelling.wanted << '"';
}

class MisspeltName : public ::testing::TestWithParam<Misspelling> {};

TEST_P(MisspeltName, IsAnsweredWithTheNameThatWasMeant) {
  const auto& [wanted, suggestion] = GetParam();
  const std::string meant = "did you mean '" + std::string(suggestion) + "' in " + kMe;
  expect_all(refuse_name(wanted), {"'" + std::string(wanted) + "'", meant});
  // The suggestion is good.
  fprobe probe{};
  const char* names[] = {suggestion};
  EXPECT_EQ(register_fprobe_syms(&probe, names, 1), 0) << fprobe_last_error();
  EXPECT_EQ(unregister_fprobe(&probe), 0);
}

constexpr const char* kHandle =
    "app::Service::handle(std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char> > const&)";
const Misspelling kMisspellings[] = {
    {"work", "app::work"},
    {"Service::handle", "app::Service::handle"},
    {"App::Work", "app::work"},
    {"app::work(long)", "app::work(int)"},
    {"app::work( double )", "app::work(double)"},
    {"app::doubled", "app::doubled<int>"},
    {"doubled<int>(int)", "app::doubled<int>(int)"},
    {"int app::doubled<int>(int)", "app::doubled<int>(int)"},  // as nm -C prints it
    {"c_function(int)", "c_function"},
    {" c_function", "c_function"},
    {"c_function ", "c_function"},
    {"c_functoin", "c_function"},
    {"app::wrk", "app::work"},
    {"_ZN3app4workEl", "app::work"},
    {"Service::operator()", "app::Service::operator()"},
#ifdef _GLIBCXX_RELEASE
    {"app::Service::handle(std::string const&)", kHandle},
    {"app::Service::handle(std::string)", kHandle},
#endif
};
INSTANTIATE_TEST_SUITE_P(All, MisspeltName, ::testing::ValuesIn(kMisspellings));

TEST(UnknownName, ThatIsAFilterIsReferredToRegisterFprobe) {
  for (const char* const filter :
       {"app::*", "c_functio?", "[a-d]_function", "c_function,app::work", "!c_function", "app::doubled<*>"})
    expect_all(refuse_name(filter), {filter, "exact names", "register_fprobe()"});
}

TEST(UnknownName, OfAFunctionWithBracketsAndStarsInItsSignatureIsNoFilter) {
  for (const char* const name :
       {"nobody::operator*", "nobody::operator[]", "nobody::nothing(char*, int)", "nobody::nothing<char*, int>"}) {
    const std::string sentence = refuse_name(name);
    EXPECT_EQ(sentence.find("filters"), std::string::npos) << sentence;
  }
}

TEST(UnknownName, ThatResemblesNothingMayHaveBeenInlined) {
  expect_all(refuse_name("nothing_like_it"), {"'nothing_like_it'", "inlined", "noinline"});
  expect_all(refuse_filter("nothing_like_it"), {"'nothing_like_it'", "inlined", "noinline"});
}

TEST(UnknownName, OfNoCharactersIsSaidToBeEmpty) {
  for (const char* const name : {"", " "}) expect_all(refuse_name(name), {"empty", "name of a function"});
  expect_all(refuse_name(std::string(kMe) + ":"), {kMe, "behind"});
  expect_all(refuse_name(":c_function"), {"':c_function'", "in front"});
}

TEST(UnknownName, ThatIsVeryLongLeavesRoomForTheRemedy) {
  expect_all(refuse_name(std::string(10'000, 'x')), {"noinline"});
  expect_all(refuse_filter(std::string(10'000, 'x'), std::string(10'000, 'y').c_str()), {"noinline"});
}

// --- functions without a site

TEST(WithoutSite, AFunctionOfAModuleThatHasSitesIsToBeCompiledWithThem) {
  for (const char* const name : {"app::quiet_one", "app::quiet_one(int)", "_ZN3app9quiet_oneEi"})
    expect_all(refuse_name(name), {name, kMe, "no probe site", "-mfentry", "fprobe_instrument()"});
}

TEST(WithoutSite, AFilterNamesTheFirstAndCountsTheOthers) {
  expect_all(refuse_filter("app::quiet_one"),
             {"'app::quiet_one'", "'app::quiet_one(int)' in ", kMe, "no probe site", "-mfentry"});
  expect_all(refuse_filter("app::quiet_*"), {"'app::quiet_*'", "'app::quiet_", kMe, "1 other ", "-mfentry"});
  expect_all(refuse_filter("app::q*", "*two*"), {"'app::quiet_one(int)' in ", "-mfentry"});
  EXPECT_EQ(refuse_filter("app::q*", "*two*").find("other"), std::string::npos) << "an excluded one counts";
}

TEST(WithoutSite, AModuleWithoutASingleSiteIsSaidToBeCompiledWithout) {
  for (const std::string& sentence :
       {refuse_name("gnu_get_libc_version"), refuse_filter("gnu_get_libc_version"),
        refuse_address(reinterpret_cast<unsigned long>(dlsym(RTLD_DEFAULT, "gnu_get_libc_version")))})
    expect_all(sentence, {"gnu_get_libc_version", "libc.so.6", "without a single probe site", "of your own"});
  expect_all(refuse_filter("libc.so.6:*"), {"libc.so.6", "others", "without a single probe site"});
}

TEST(WithoutSite, AnAddressIsShownWithItsDemangledName) {
  const unsigned long function = address_of_a_quiet_function();
  expect_all(refuse_address(function), {"'app::quiet_one(int)'", kMe, "-mfentry"});
  expect_all(refuse_address(function + 1), {"inside 'app::quiet_one(int)'", kMe, "1 byte"});
}

TEST(Filter, ThatIsExcludedAgainSaysSo) {
  expect_all(refuse_filter("app::*", "*"), {"'app::*'", "excluded"});
  expect_all(refuse_filter("app::work,!app::*"), {"'app::work,!app::*'", "excluded"});
}

TEST(Filter, ThatIsARegularExpressionSaysThatItIsNone) {
  for (const char* const regex : {"^app", "app::.*", "work$"}) expect_all(refuse_filter(regex), {regex, "glob"});
}

TEST(Filter, ThatIsAPlainNameIsAnsweredWithTheNameThatWasMeant) {
  expect_all(refuse_filter("work"), {"'work'", "did you mean 'app::work'"});
}

TEST(Filter, ThatMatchesOnlyHandlersSaysSo) {
  fprobe probe{};
  const auto handler = reinterpret_cast<fprobe_entry_cb>(dlsym(RTLD_DEFAULT, "c_function"));
  ASSERT_NE(handler, nullptr);
  probe.entry_handler = handler;
  EXPECT_EQ(register_fprobe(&probe, "c_function", nullptr), -ENOENT);
  expect_all(fprobe_last_error(), {"'c_function'", "handlers", "register_fprobe_syms()"});
}

// --- modules

TEST(Module, ThatIsNotLoadedIsSaidSoWithThoseThatHaveSites) {
  for (const std::string& sentence : {refuse_name("nolib.so:c_function"), refuse_filter("nolib.so:*")})
    expect_all(sentence, {"no loaded module", "'nolib.so'", kMe});
}

TEST(Module, GivenAsAPathIsToBeGivenAsAFileName) {
  const std::string path = std::string("./build/") + kMe;
  for (const std::string& sentence : {refuse_name(path + ":c_function"), refuse_filter(path + ":c_function")})
    expect_all(sentence, {"'" + path + "'", "not a path", "'" + std::string(kMe) + ":c_function'"});
}

TEST(Module, GivenWithoutItsVersionOrInOtherCaseIsGuessed) {
  expect_all(refuse_filter("libc:malloc"), {"'libc'", "did you mean 'libc.so.6'"});
  expect_all(refuse_name("LIBC.SO:malloc"), {"'LIBC.SO'", "did you mean 'libc.so.6'"});
}

TEST(Module, ThatDoesNotHaveTheNameIsNamed) {
  expect_all(refuse_name("libc.so.6:no_such_function_at_all"), {"module 'libc.so.6'", "'no_such_function_at_all'"});
}

// --- names that are gone

class Library {
 public:
  explicit Library(const std::string& path) : handle_(dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) {
    EXPECT_NE(handle_, nullptr) << dlerror();
  }
  ~Library() {
    if (handle_ != nullptr) dlclose(handle_);
  }
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

 private:
  void* handle_;
};

// A copy of `library` in a directory of its own, which ends with the test.
class Copy {
 public:
  explicit Copy(const char* library) {
    std::string directory = ::testing::TempDir() + "fprobe_sentences_XXXXXX";
    EXPECT_NE(mkdtemp(directory.data()), nullptr);
    directory_ = directory;
    path_ = directory_ / "libcopied.so";
    replace_by(library);
  }
  ~Copy() { std::filesystem::remove_all(directory_); }
  Copy(const Copy&) = delete;
  Copy& operator=(const Copy&) = delete;

  [[nodiscard]] std::string path() const { return path_; }
  void remove() const { std::filesystem::remove(path_); }
  void replace_by(const char* library) const {
    const std::filesystem::path fresh = directory_ / "fresh";
    std::filesystem::copy_file(library, fresh);
    std::filesystem::rename(fresh, path_);
  }

 private:
  std::filesystem::path directory_, path_;
};

TEST(NamesThatAreGone, OfAStrippedLibraryAreSaidToBeStripped) {
  const Library library(STRIPPED_LIBRARY);
  for (const std::string& sentence : {refuse_name("hidden_function"), refuse_filter("*hidden_function")})
    expect_all(sentence, {"hidden_function'", STRIPPED_LIBRARY, "stripped", "do not strip it"});
}

TEST(NamesThatAreGone, OfALibraryThatIsNotStrippedAreThere) {
  const Library library(HIDDEN_LIBRARY);
  fprobe probe{};
  const char* names[] = {"hidden_function"};
  ASSERT_EQ(register_fprobe_syms(&probe, names, 1), 0) << fprobe_last_error();
  EXPECT_EQ(unregister_fprobe(&probe), 0);
}

TEST(NamesThatAreGone, WithADeletedFileAreSaidToBe) {
  const Copy copy(HIDDEN_LIBRARY);
  const Library library(copy.path());
  copy.remove();
  for (const std::string& sentence : {refuse_name("hidden_function"), refuse_filter("hidden_functio?")})
    expect_all(sentence, {"hidden_functio", copy.path(), "cannot be opened", "keep it"});
}

TEST(NamesThatAreGone, WithAReplacedFileAreSaidToBe) {
  const Copy copy(HIDDEN_LIBRARY);
  const Library library(copy.path());
  copy.replace_by(PLUGIN_1);
  for (const std::string& sentence : {refuse_name("hidden_function"), refuse_filter("hidden_functio?")})
    expect_all(sentence, {"hidden_functio", copy.path(), "replaced", "restart"});
}

TEST(NamesThatAreGone, DoNotHideAFunctionThatIsExported) {
  const Library library(STRIPPED_LIBRARY);
  fprobe probe{};
  const char* names[] = {"exported_function"};
  ASSERT_EQ(register_fprobe_syms(&probe, names, 1), 0) << fprobe_last_error();
  EXPECT_EQ(unregister_fprobe(&probe), 0);
}

TEST(Victims, Work) {
  EXPECT_EQ(call_sentence_victims(1), 2 + 3 + 4 + 7 + 5 + 2 + 6 + 7);
}

}  // namespace
