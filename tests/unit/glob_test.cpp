// The kernel's glob, by vectors.
#include <gtest/gtest.h>

#include <string>

#include "image/symbol_match.h"

namespace libfprobe::detail {
namespace {

struct GlobVector {
  const char *pattern, *text;
  bool matches;
};

void expect_glob(const GlobVector& vector) {
  EXPECT_EQ(glob_match(vector.pattern, vector.text), vector.matches)
      << "pattern \"" << vector.pattern << "\" text \"" << vector.text << '"';
}

TEST(Glob, LiteralsMatchTheWholeName) {
  constexpr GlobVector kVectors[] = {
      {"a", "a", true},
      {"a", "b", false},
      {"a", "aa", false},
      {"a", "", false},
      {"", "", true},
      {"", "a", false},
      {"main", "main", true},
      {"main", "main_test", false},
      {"main", "mymain", false},
      {"0x123", "0x123", true},
      {"0x123", "main", false},
  };
  for (const GlobVector& vector : kVectors) expect_glob(vector);
}

TEST(Glob, QuestionMarkMatchesExactlyOneCharacter) {
  constexpr GlobVector kVectors[] = {
      {"?", "a", true},      {"?", "aa", false}, {"??", "a", false}, {"?x?", "axb", true},
      {"?x?", "abx", false}, {"?", "", false},   {"?", "?", true},   {"?", "\xff", true},
  };
  for (const GlobVector& vector : kVectors) expect_glob(vector);
}

TEST(Glob, StarMatchesAnyRunIncludingNone) {
  constexpr GlobVector kVectors[] = {
      {"*", "", true},
      {"*", "anything", true},
      {"*a", "a", true},
      {"*a", "aa", true},
      {"*a", "ab", false},
      {"a*", "abc", true},
      {"a*c", "abbbc", true},
      {"a*c", "abbbcd", false},
      {"*bc", "abbc", true},
      {"*bc", "bbc", true},
      {"*ac*", "bacd", true},
      {"*ac*", "abcd", false},
      {"*ab*cd", "abcabcd", true},
      {"*ab*cd", "abcabcabcabcefg", false},
      {"*abcd*", "abcabcdefg", true},
      {"**", "a", true},
      {"a**b", "ab", true},
      {"*a*b*c*", "xxaxxbxxcxx", true},
      {"*a*b*c*", "xxaxxcxxbxx", false},
      {"*?", "", false},
      {"*?", "abc", true},
  };
  for (const GlobVector& vector : kVectors) expect_glob(vector);
}

TEST(Glob, ClassesHoldMembersAndRanges) {
  constexpr GlobVector kVectors[] = {
      {"[a]", "a", true},      {"[a]", "b", false},      {"[abc]x", "bx", true},   {"[a-c]b", "bb", true},
      {"[a-c]b", "db", false}, {"[a-c]b", "b", false},   {"a[0-9]*", "a7z", true}, {"a[0-9]*", "az", false},
      {"[a-cx-z]", "y", true}, {"[a-cx-z]", "d", false}, {"[z-a]", "m", false},    {"[z-a]", "z", false},
      {"[a-c]", "-", false},   {"[]", "x", false},       {"[*]", "*", true},       {"[*]", "a", false},
      {"[?]", "?", true},      {"[?]", "a", false},      {"[[]", "[", true},       {"[a", "[a", true},
  };
  for (const GlobVector& vector : kVectors) expect_glob(vector);
}

TEST(Glob, ExclamationMarkInvertsAClass) {
  constexpr GlobVector kVectors[] = {
      {"[!a]", "a", false},    {"[!a]", "b", true}, {"[!a]", "", false}, {"[!a-c]b", "ab", false},
      {"[!a-c]b", "db", true}, {"[a!]", "!", true}, {"[a!]", "a", true}, {"[!!]", "!", false},
      {"[!!]", "a", true},     {"[^a]", "^", true}, {"[^a]", "a", true}, {"[^a]", "b", false},
  };
  for (const GlobVector& vector : kVectors) expect_glob(vector);
}

TEST(Glob, ClosingBracketAndDashAreMembersAtTheEnds) {
  constexpr GlobVector kVectors[] = {
      {"[]a]", "]", true},     {"[]a]", "a", true},  {"[]a]", "b", false},     {"[!]a]", "]", false},
      {"[!]a]", "b", true},    {"[a-]", "-", true},  {"[a-]", "a", true},      {"[a-]", "b", false},
      {"[-a]", "-", true},     {"[]-a]", "^", true}, {"[!]a-]b", "]b", false}, {"[!]a-]b", "-b", false},
      {"[!]a-]b", "cb", true},
  };
  for (const GlobVector& vector : kVectors) expect_glob(vector);
}

TEST(Glob, BackslashMakesTheNextCharacterLiteral) {
  constexpr GlobVector kVectors[] = {
      {"\\*", "*", true},     {"\\*", "a", false},   {"\\?", "?", true}, {"\\?", "a", false},
      {"\\[a]", "[a]", true}, {"\\[a]", "a", false}, {"\\a", "a", true}, {"a\\\\b", "a\\b", true},
      {"[\\]", "\\", true},   {"[\\]", "]", false},
  };
  for (const GlobVector& vector : kVectors) expect_glob(vector);
}

TEST(Glob, BytesAboveAsciiCompareUnsigned) {
  expect_glob({"[\x7f-\xff]", "\xc3", true});
  expect_glob({"[a-\xff]", "\x80", true});
  expect_glob({"[\x80-\xff]", "a", false});
}

TEST(Glob, BracketAfterOperatorIsLiteral) {
  constexpr GlobVector kVectors[] = {
      {"A::operator[]", "A::operator[]", true},
      {"A::operator[]*", "A::operator[](int)", true},
      {"*operator new[]*", "operator new[](unsigned long)", true},
      {"*operator delete[]*", "A::operator delete[](void*)", true},
      {"operator[]", "operatorx", false},
      {"my_operator[a]", "my_operatora", true},
  };
  for (const GlobVector& vector : kVectors) expect_glob(vector);
}

// One step too many per character and this would outlive the machine.
TEST(Glob, ManyStarsDoNotExplode) {
  std::string pattern, text(20'000, 'a');
  for (int i = 0; i < 200; ++i) pattern += "a*";
  pattern += 'b';
  EXPECT_FALSE(glob_match(pattern, text));
  text += 'b';
  EXPECT_TRUE(glob_match(pattern, text));
}

}  // namespace
}  // namespace libfprobe::detail
