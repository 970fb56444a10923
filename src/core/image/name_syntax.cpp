// See name_syntax.h.
#include "image/name_syntax.h"

#include <algorithm>

namespace libfprobe::detail {
namespace {

constexpr std::size_t kMaxDepth = 256;  // deeper nesting counts as never closed

// Suffixes of copies and parts of one function.  A component of digits alone is the number of the one before it, or of
// a local function of which there are several (gcc's nested functions: "inner.0").
constexpr std::string_view kCloneSuffixes[] = {"constprop",  "isra", "part",   "lto_priv",
                                               "localalias", "llvm", "__uniq", "specialized"};

bool is_number(std::string_view text) noexcept {
  return !text.empty() && std::all_of(text.begin(), text.end(), is_digit);
}

}  // namespace

std::size_t group_end(std::string_view text, std::size_t open) noexcept {
  char waiting[kMaxDepth];  // the closing brackets waited for, innermost last
  std::size_t depth = 0;
  for (std::size_t at = open; at < text.size(); ++at) {
    const char c = text[at];
    const char closing = c == '(' ? ')' : c == '<' ? '>' : c == '[' ? ']' : c == '{' ? '}' : '\0';
    if (closing != '\0') {
      if (at != open && belongs_to_operator(text, at)) continue;
      if (depth == kMaxDepth) return std::string_view::npos;
      waiting[depth++] = closing;
      continue;
    }
    if (c == '>') {
      if (waiting[depth - 1] == '>' && !belongs_to_operator(text, at)) --depth;
    }
    if (c == ')' || c == ']' || c == '}') {
      std::size_t match = depth;
      while (match > 0 && waiting[match - 1] != c) --match;
      if (match > 0) depth = match - 1;
    }
    if (depth == 0) return at + 1;
  }
  return std::string_view::npos;
}

std::string_view without_clone_suffixes(std::string_view linkage) noexcept {
  std::string_view base = linkage;
  for (std::string_view rest = linkage;;) {
    const std::size_t dot = rest.rfind('.');
    if (dot == std::string_view::npos || dot == 0) return base;
    const std::string_view component = rest.substr(dot + 1);
    rest = rest.substr(0, dot);
    const bool is_clone =
        std::find(std::begin(kCloneSuffixes), std::end(kCloneSuffixes), component) != std::end(kCloneSuffixes);
    if (is_clone) {
      base = rest;
      continue;
    }
    if (!is_number(component)) return base;
    // "f._omp_fn.0" is a function of its own: the number is f's only when f, or a known suffix, stands before it.
    const std::size_t previous = rest.rfind('.');
    if (previous == std::string_view::npos || previous == 0) return rest;
  }
}

bool has_suffix_component(std::string_view linkage, std::string_view suffix) noexcept {
  for (std::size_t dot = linkage.find('.', 1); dot != std::string_view::npos; dot = linkage.find('.', dot + 1)) {
    const std::string_view rest = linkage.substr(dot + 1);
    if (rest.substr(0, rest.find('.')) == suffix) return true;
  }
  return false;
}

}  // namespace libfprobe::detail
