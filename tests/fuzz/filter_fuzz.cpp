// Any text as a filter, split at newlines: filter, notfilter, name, module.  A matcher that is slow and plainly right
// checks the fast one.
#include <errno.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "fuzz/target.h"
#include "image/name_syntax.h"
#include "image/symbol_match.h"

namespace libfprobe::detail {
namespace {

std::string take_line(std::string_view& text) {
  const std::string_view line = text.substr(0, text.find('\n'));
  text.remove_prefix(std::min(text.size(), line.size() + 1));
  return std::string(line.substr(0, line.find('\0')));
}

// Whether the class pattern[open…close] contains `c`.
bool class_contains(std::string_view pattern, std::size_t open, std::size_t close, unsigned char c) {
  const bool inverted = pattern[open + 1] == '!';
  bool contains = false;
  for (std::size_t at = open + (inverted ? 2 : 1); at < close;) {
    const bool is_range = at + 2 < close && pattern[at + 1] == '-';
    const auto low = static_cast<unsigned char>(pattern[at]);
    const auto high = static_cast<unsigned char>(pattern[is_range ? at + 2 : at]);
    contains = contains || (low <= c && c <= high);
    at += is_range ? 3 : 1;
  }
  return contains != inverted;
}

// After each element of the pattern: which lengths of the text the pattern so far matches.
bool matches_by_table(std::string_view pattern, std::string_view text) {
  std::vector<bool> reached(text.size() + 1);
  reached[0] = true;
  for (std::size_t at = 0; at < pattern.size();) {
    std::vector<bool> next(text.size() + 1);
    if (pattern[at] == '*') {
      bool any = false;
      for (std::size_t length = 0; length <= text.size(); ++length) next[length] = any = any || reached[length];
      reached.swap(next);
      ++at;
      continue;
    }
    const bool may_be_class = pattern[at] == '[' && !belongs_to_operator(pattern, at);
    const std::size_t close = may_be_class ? class_end(pattern, at) : std::string_view::npos;
    const bool is_class = close != std::string_view::npos;
    const std::size_t last = is_class ? close : pattern[at] == '\\' ? at + 1 : at;
    for (std::size_t length = 0; length < text.size(); ++length) {
      const char c = text[length];
      const bool accepts = is_class ? class_contains(pattern, at, close, static_cast<unsigned char>(c))
                                    : pattern[at] == '?' || pattern[last] == c;
      next[length + 1] = reached[length] && accepts;
    }
    reached.swap(next);
    at = last + 1;
  }
  return reached[text.size()];
}

void check(const std::string& match, const std::string& exclude, const std::string& name,
           const std::string& module_name) {
  const Result<Filter> filter = Filter::parse(match.c_str(), exclude.c_str());
  const ModuleName module{module_name, "libfuzz.so.1"};
  const Spellings names = spell(name.c_str());
  if (names_exactly(match, module, names) && match.empty()) std::abort();
  const Prefixed parts = split_module_prefix(match);
  if (parts.name.size() + parts.module.size() + (parts.has_module ? 1 : 0) != match.size()) std::abort();
  if (!filter.ok()) {
    const int code = filter.error().code;
    if (code != EINVAL && code != ENOENT) std::abort();
    if (filter.error().sentence[0] == '\0') std::abort();
    return;
  }
  const bool selected = filter.value().selects(module, names);
  if (selected && !filter.value().may_select_in(module)) std::abort();
  // Well formed as a whole: so it is a well formed glob.
  if (match.size() <= 200 && name.size() <= 200 && glob_match(match, name) != matches_by_table(match, name))
    std::abort();
}

}  // namespace
}  // namespace libfprobe::detail

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace libfprobe::detail;
  std::string_view text(reinterpret_cast<const char*>(data), size);
  const std::string match = take_line(text), exclude = take_line(text), name = take_line(text),
                    module = take_line(text);
  check(match, exclude, name, module);
  return 0;
}
