// Names with symbol versions, of a library that has its symbol table and of one that was stripped.
#include <errno.h>

#include "symbols/support.h"

namespace {

class Versions : public ::testing::TestWithParam<const char*> {};

INSTANTIATE_TEST_SUITE_P(Library, Versions, ::testing::Values("versions.whole", "versions.so"), [](const auto& form) {
  return std::string(form.param).ends_with("so") ? "OfTheDynamicSymbols" : "OfTheSymbolTable";
});

TEST_P(Versions, ANameMeansTheFunctionsOfAllItsVersions) {
  const Library library(built(GetParam()));
  EXPECT_EQ(hits_by_name(library, "versioned", "call_both_versions"), 2) << fprobe_last_error();
  EXPECT_EQ(fprobe_count_ips_from_filter("versioned", nullptr), 2);
}

TEST_P(Versions, AVersionIsNoPartOfAName) {
  const Library library(built(GetParam()));
  for (const char* const name : {"versioned@V1", "versioned@@V2"}) {
    EXPECT_EQ(hits_by_name(library, name, "call_both_versions"), -ENOENT);
    expect_all(fprobe_last_error(), {std::string("'") + name + "'", "symbol versions", "write 'versioned'"});
  }
  EXPECT_EQ(fprobe_count_ips_from_filter("versioned@V1", nullptr), -ENOENT);
}

TEST(VersionsOfAWholeLibrary, HaveNamesOfTheirOwnThere) {
  const Library library(built("versions.whole"));
  EXPECT_EQ(hits_by_name(library, "versioned_old", "call_both_versions"), 1) << fprobe_last_error();
  EXPECT_EQ(hits_by_name(library, "versioned_new", "call_both_versions"), 1) << fprobe_last_error();
}

}  // namespace
