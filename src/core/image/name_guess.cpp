// See name_guess.h.
#include "image/name_guess.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "image/name_syntax.h"
#include "image/signature.h"

namespace libfprobe::detail {
namespace {

constexpr std::size_t kNone = std::string_view::npos;
constexpr std::size_t kShortestTypo = 4;  // without a scope: every three-letter name is one letter away from another
constexpr std::size_t kLongestSuggestion = 160;

char lower(char c) noexcept {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

std::string_view trimmed(std::string_view text) noexcept {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t' || text.front() == '\n')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t' || text.back() == '\n')) text.remove_suffix(1);
  return text;
}

void replace_all(std::string& text, std::string_view old, std::string_view by) {
  for (std::size_t at = text.find(old); at != kNone; at = text.find(old, at + by.size()))
    text.replace(at, old.size(), by);
}

// Lower case, no blanks, the standard string under its short name.
std::string squeezed(std::string_view name) {
  std::string text;
  text.reserve(name.size());
  for (const char c : name)
    if (c != ' ') text.push_back(lower(c));
  for (std::size_t at = text.find("[abi:"); at != kNone; at = text.find("[abi:"))
    text.erase(at, std::min(text.find(']', at), text.size() - 1) + 1 - at);
  replace_all(text, "std::__cxx11::", "std::");
  replace_all(text, "std::__1::", "std::");
  replace_all(text, "std::basic_string<char,std::char_traits<char>,std::allocator<char>>", "std::string");
  return text;
}

std::string without_template_arguments(std::string_view name) {
  std::string text;
  for (std::size_t at = 0; at < name.size();) {
    const bool opens = name[at] == '<' && !belongs_to_operator(name, at);
    const std::size_t end = opens ? group_end(name, at) : kNone;
    if (end != kNone) {
      at = end;
      continue;
    }
    text.push_back(name[at++]);
  }
  return text;
}

std::size_t common_suffix(std::string_view a, std::string_view b) noexcept {
  const auto end = std::mismatch(a.rbegin(), a.rend(), b.rbegin(), b.rend());
  return static_cast<std::size_t>(end.first - a.rbegin());
}

// Whether one letter replaced, removed, added or exchanged with its neighbour makes `a` into `b`.
bool is_one_edit_away(std::string_view a, std::string_view b) noexcept {
  if (a.size() > b.size()) std::swap(a, b);
  if (b.size() - a.size() > 1) return false;
  const auto start = static_cast<std::size_t>(std::mismatch(a.begin(), a.end(), b.begin()).first - a.begin());
  const std::string_view rest_a = a.substr(start), rest_b = b.substr(start);
  if (a.size() != b.size()) return rest_a == rest_b.substr(1);
  if (rest_a.empty()) return false;  // equal
  if (rest_a.substr(1) == rest_b.substr(1)) return true;
  return rest_a.size() > 1 && rest_a[0] == rest_b[1] && rest_a[1] == rest_b[0] && rest_a.substr(2) == rest_b.substr(2);
}

bool is_word(std::string_view text) noexcept {
  return !text.empty() && std::all_of(text.begin(), text.end(), is_identifier);
}

std::string_view qualifier(const std::string& qualified, const std::string& last) noexcept {
  return std::string_view(qualified).substr(0, qualified.size() - last.size());
}

const std::string& fullest(const Spellings& names) noexcept {
  return names.signature.empty() ? names.linkage_base : names.signature;
}

}  // namespace

NameGuess::Loose NameGuess::loosen(std::string_view name) {
  const Signature signature = read_signature(trimmed(name), false);
  Loose loose;
  loose.whole = squeezed(signature.whole);
  loose.qualified = squeezed(without_template_arguments(signature.qualified));
  const std::size_t colons = loose.qualified.rfind("::");
  loose.last = colons == kNone ? loose.qualified : loose.qualified.substr(colons + 2);
  return loose;
}

NameGuess::NameGuess(std::string_view name) {
  name = without_version(name);
  const Spellings spelled = spell(std::string(trimmed(name)).c_str());  // a linkage name may be misspelt, too
  wanted_ = loosen(fullest(spelled));
  std::string_view word = wanted_.last;
  if (word.starts_with('~')) word.remove_prefix(1);
  if (is_word(word) && !word.starts_with("operator")) word_ = word;
  const Signature written = read_signature(trimmed(name), false);
  has_parameters_ = written.whole.size() != written.qualified.size();
}

bool NameGuess::may_be_meant(std::string_view linkage) const noexcept {
  return std::search(linkage.begin(), linkage.end(), word_.begin(), word_.end(),
                     [](char c, char wanted) { return lower(c) == wanted; }) != linkage.end() ||
         word_.empty();
}

int NameGuess::resemblance(const Spellings& names) const {
  if (wanted_.last.empty()) return 0;
  const Loose other = loosen(fullest(names));
  if (other.last != wanted_.last) return 0;
  const std::size_t same_end = common_suffix(other.qualified, wanted_.qualified);
  // Every class has its operators: of these the scope must fit.
  const bool has_scope = wanted_.qualified != wanted_.last;
  if (word_.empty() && has_scope && same_end <= wanted_.last.size() + 2) return 0;
  const bool is_same = other.whole == wanted_.whole;
  return static_cast<int>(std::min<std::size_t>(same_end, 1000)) + (is_same ? 1000 : 0);
}

int NameGuess::resemblance_of_typo(const Spellings& names) const {
  const Loose other = loosen(fullest(names));
  if (!is_one_edit_away(other.last, wanted_.last)) return 0;
  const std::string_view scope = qualifier(wanted_.qualified, wanted_.last);
  if (qualifier(other.qualified, other.last) == scope && !scope.empty()) return 2;
  return wanted_.last.size() >= kShortestTypo ? 1 : 0;
}

const std::string& NameGuess::suggestion(const Spellings& names) const noexcept {
  if (names.signature.empty()) return names.linkage_base;
  const bool is_short = names.signature.size() <= kLongestSuggestion;
  return (has_parameters_ && is_short) || names.qualified.empty() ? names.signature : names.qualified;
}

bool looks_like_filter(std::string_view name) noexcept {
  if (name.starts_with('!') || name.find("<*>") != kNone) return true;
  for (std::size_t at = 0; at < name.size();) {
    if (ends_with_operator(name.substr(0, at))) return false;
    const char c = name[at];
    const std::string_view rest = name.substr(at);
    const bool is_note = rest.starts_with("[abi:") || rest.starts_with("[clone ");  // as nm -C prints them
    if (c == '*' || c == '?' || c == ',' || (c == '[' && !is_note)) return true;
    const std::size_t end = c == '(' || c == '<' || c == '{' ? group_end(name, at) : kNone;
    at = end == kNone ? at + 1 : end;
  }
  return false;
}

}  // namespace libfprobe::detail
