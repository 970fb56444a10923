// What brackets, operators and clone suffixes look like in C++ names and in patterns over them.  Pure text, allocates
// nothing.  Used by symbol_match.cpp (what separates alternatives) and spelling.cpp (where a signature's parts begin).
#ifndef FPROBE_SRC_CORE_IMAGE_NAME_SYNTAX_H_
#define FPROBE_SRC_CORE_IMAGE_NAME_SYNTAX_H_

#include <cstddef>
#include <string_view>

namespace libfprobe::detail {

// The C locale's answer, whatever the program's locale is.
[[nodiscard]] constexpr bool is_identifier(char c) noexcept {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '$';
}

[[nodiscard]] constexpr bool is_digit(char c) noexcept {
  return c >= '0' && c <= '9';
}

// "…operator" as a word of its own: `my_operator` is an identifier.
[[nodiscard]] constexpr bool ends_with_operator(std::string_view text) noexcept {
  constexpr std::string_view kWord = "operator";
  if (!text.ends_with(kWord)) return false;
  return text.size() == kWord.size() || !is_identifier(text[text.size() - kWord.size() - 1]);
}

[[nodiscard]] constexpr std::string_view without_trailing_spaces(std::string_view text) noexcept {
  while (text.ends_with(' ')) text.remove_suffix(1);
  return text;
}

// Whether the bracket at text[position] is part of an operator's name and so opens and closes nothing: operator(),
// operator[], operator new[], operator<, operator->, operator<=>.
[[nodiscard]] constexpr bool belongs_to_operator(std::string_view text, std::size_t position) noexcept {
  const std::string_view before = text.substr(0, position);
  const std::string_view word = without_trailing_spaces(before);
  if (ends_with_operator(word)) return true;
  switch (text[position]) {
    case '>':
      return before.ends_with('-') || (before.ends_with('>') && ends_with_operator(before.substr(0, position - 1))) ||
             (before.ends_with("<=") && ends_with_operator(before.substr(0, position - 2)));
    case '[':
      for (const std::string_view keyword : {std::string_view("new"), std::string_view("delete")}) {
        if (!word.ends_with(keyword)) continue;
        const std::string_view rest = word.substr(0, word.size() - keyword.size());
        if (rest.ends_with(' ') && ends_with_operator(without_trailing_spaces(rest))) return true;
      }
      return false;
    default:
      return false;
  }
}

// The position of the `]` that ends the kernel glob's class at pattern[open] == '[', npos when it is never closed.
// The first member may be `]` itself, `!` in front of it inverts; a backslash is an ordinary member.
[[nodiscard]] constexpr std::size_t class_end(std::string_view pattern, std::size_t open) noexcept {
  std::size_t at = open + 1;
  if (at < pattern.size() && pattern[at] == '!') ++at;
  do {
    if (at >= pattern.size()) return std::string_view::npos;
    const bool is_range = at + 2 < pattern.size() && pattern[at + 1] == '-' && pattern[at + 2] != ']';
    at += is_range ? 3 : 1;
  } while (at >= pattern.size() || pattern[at] != ']');
  return at;
}

// The position after the bracket that closes text[open], npos when none does.  A `>` closes only the innermost `<`; any
// other closing bracket also closes what was left open inside it: `(1<2)`.
[[nodiscard]] std::size_t group_end(std::string_view text, std::size_t open) noexcept;

// The linkage name without the suffixes that a compiler adds to a copy or a part of the same function:
// "f.isra.0.constprop.3" → "f".  Other suffixes ("f.avx2") name other functions.
[[nodiscard]] std::string_view without_clone_suffixes(std::string_view linkage) noexcept;

// The name alone of "f@@V2" and "f@V1", as .symtab has them.
[[nodiscard]] constexpr std::string_view without_version(std::string_view name) noexcept {
  return name.substr(0, name.find('@', 1));
}

// Whether `suffix` ("cold") is one of the dot-separated components after the name itself.
[[nodiscard]] bool has_suffix_component(std::string_view linkage, std::string_view suffix) noexcept;

}  // namespace libfprobe::detail

#endif  // FPROBE_SRC_CORE_IMAGE_NAME_SYNTAX_H_
