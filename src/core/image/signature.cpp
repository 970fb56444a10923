// See signature.h.  One walk over the text at bracket depth 0.
#include "image/signature.h"

#include <algorithm>
#include <cstddef>

#include "image/name_syntax.h"

namespace libfprobe::detail {
namespace {

constexpr std::size_t kNone = std::string_view::npos;

bool starts_at(std::string_view text, std::size_t at, std::string_view word) noexcept {
  return text.substr(std::min(at, text.size())).starts_with(word);
}

// The position after the qualifiers that may follow a parameter list.
std::size_t skip_qualifiers(std::string_view text, std::size_t at) noexcept {
  for (bool again = true; again;) {
    again = false;
    for (const std::string_view word : {" const", " volatile", " restrict", " &&", " &", " noexcept"}) {
      const std::size_t end = at + word.size();
      if (!starts_at(text, at, word) || (end < text.size() && is_identifier(text[end]))) continue;
      at = end;
      again = true;
      break;
    }
  }
  return at;
}

// The position after an operator's symbol that begins at `at`.  "<<" followed by template arguments is "<" and "<…>"
// for libc++abi, which puts no space between them: "operator<<int>(int)".
std::size_t skip_symbol(std::string_view text, std::size_t at) noexcept {
  if (starts_at(text, at, "()") || starts_at(text, at, "[]") || starts_at(text, at, "\"\"")) return at + 2;
  for (const std::string_view symbol : {"<=>", "<<=", "<=", ">>=", ">>", ">=", ">", "->*", "->"})
    if (starts_at(text, at, symbol)) return at + symbol.size();
  if (starts_at(text, at, "<")) {
    const bool is_shift = starts_at(text, at, "<<") &&
                          (at + 2 == text.size() || text[at + 2] == '(' || text[at + 2] == ' ' || text[at + 2] == '<');
    return at + (is_shift ? 2 : 1);
  }
  while (at < text.size() && std::string_view("+-*/%^&|~!=,").find(text[at]) != kNone) ++at;
  return at;
}

// A conversion's parameter list is the first "()" that ends a function's name: the end, qualifiers or "::" follow.
// Returns the position of that list, the text's end when there is none.
std::size_t skip_conversion_type(std::string_view text, std::size_t at) noexcept {
  while (at < text.size()) {
    const char c = text[at];
    if (c != '(' && c != '<' && c != '{' && c != '[') {
      ++at;
      continue;
    }
    const std::size_t end = group_end(text, at);
    if (end == kNone) return text.size();
    const std::size_t after = skip_qualifiers(text, end);
    const bool ends_name = after == text.size() || starts_at(text, after, "::") || starts_at(text, after, " [") ||
                           starts_at(text, after, " (.");
    if (c == '(' && end == at + 2 && ends_name) return at;
    at = end;
  }
  return at;
}

// The position after the operator whose keyword ends at `at`; template arguments may follow there.
std::size_t skip_operator(std::string_view text, std::size_t at) noexcept {
  if (!starts_at(text, at, " ")) {
    at = skip_symbol(text, at);
    if (starts_at(text, at, " <")) return at + 1;
    while (starts_at(text, at, " ") && text[at - 1] == '"') ++at;  // operator"" _kb
    return at;
  }
  for (const std::string_view keyword : {" new[]", " delete[]", " new", " delete", " co_await"}) {
    const std::size_t end = at + keyword.size();
    if (starts_at(text, at, keyword) && (end == text.size() || !is_identifier(text[end]))) return end;
  }
  return skip_conversion_type(text, at);
}

class SignatureReader {
 public:
  // `has_prefix_words`: "non-virtual thunk to A::f()": the words in front are no return type.
  SignatureReader(std::string_view text, bool has_prefix_words) noexcept
      : text_(text), keeps_words_(has_prefix_words) {}

  [[nodiscard]] Signature read() noexcept {
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (ends_with_operator(text_.substr(0, at_)) && at_ >= name_ + 8 && !is_identifier(c)) {
        const std::size_t after = skip_operator(text_, at_);
        if (after > at_) {  // else "operator" names nothing that we know
          at_ = after;
          continue;
        }
      }
      if (c == '(' && !read_parentheses()) break;
      if (c == '(') continue;
      if (c == '<' || c == '{' || c == '[') {
        const std::size_t end = group_end(text_, at_);
        if (end == kNone) break;
        at_ = end;
        continue;
      }
      ++at_;
      if (c == ' ' || (is_wrapped_ && (c == '*' || c == '&'))) begin_name();
    }
    if (parameters_ == kNone) return {text_.substr(name_), text_.substr(name_)};
    return {text_.substr(name_, end_ - name_), text_.substr(name_, parameters_ - name_)};
  }

 private:
  void begin_name() noexcept {
    if (!keeps_words_) name_ = at_;
  }

  // At a '('.  True to go on behind it or inside it, false when the signature ends with it.
  [[nodiscard]] bool read_parentheses() noexcept {
    const std::size_t end = group_end(text_, at_);
    if (end == kNone) return false;
    const std::size_t after = skip_qualifiers(text_, end);
    if (starts_at(text_, after, "::")) {  // (anonymous namespace)::, f(int) const::{lambda()#1}::
      at_ = after;
      return true;
    }
    const std::string_view before = without_trailing_spaces(text_.substr(0, at_));
    if (before.ends_with("decltype")) {
      at_ = end;
      return true;
    }
    if (at_ == name_ && at_ > 0) {  // the return type wraps the name: go on inside
      text_ = text_.substr(0, end - 1);
      is_wrapped_ = true;
      ++at_;
      begin_name();
      return true;
    }
    parameters_ = at_;
    end_ = after;
    return false;
  }

  std::string_view text_;
  bool keeps_words_;
  bool is_wrapped_ = false;
  std::size_t at_ = 0;
  std::size_t name_ = 0;            // where the name begins, as far as is known
  std::size_t parameters_ = kNone;  // the '(' of the parameter list
  std::size_t end_ = 0;             // after the qualifiers behind it
};

}  // namespace

Signature read_signature(std::string_view demangled, bool has_prefix_words) noexcept {
  return SignatureReader(demangled, has_prefix_words).read();
}

}  // namespace libfprobe::detail
