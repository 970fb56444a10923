// See symbol_match.h.
//
//   filter        = alternative { "," alternative }      a comma inside (), <>, [] or after `operator` does not
//   separate alternative   = [ "!" ] [ module ":" ] name          both globs; "::" belongs to the name
//
// Matching keeps one place to go back to, the last `*` (as the kernel's glob_match): at most |pattern| * |text| steps.
#include "image/symbol_match.h"

#include <errno.h>

#include <algorithm>
#include <new>
#include <utility>

#include "base/syscalls.h"
#include "image/name_syntax.h"

namespace libfprobe::detail {
namespace {

constexpr std::size_t kNone = std::string_view::npos;

// For "%.*s": a sentence holds part of an endless pattern.
int printable(std::string_view text) noexcept {
  return static_cast<int>(std::min<std::size_t>(text.size(), 160));
}

// --- Matching.

bool class_contains(std::string_view members, char c) noexcept {
  const auto wanted = static_cast<unsigned char>(c);
  for (std::size_t at = 0; at < members.size();) {
    const auto low = static_cast<unsigned char>(members[at]);
    const bool is_range = at + 2 < members.size() && members[at + 1] == '-';
    const auto high = is_range ? static_cast<unsigned char>(members[at + 2]) : low;
    if (low <= wanted && wanted <= high) return true;
    at += is_range ? 3 : 1;
  }
  return false;
}

// Whether the pattern's element at `at`, which is no `*`, accepts `c`; `next` becomes the position after the element.
bool accepts(std::string_view pattern, std::size_t at, char c, std::size_t& next) noexcept {
  next = at + 1;
  switch (pattern[at]) {
    case '?':
      return true;
    case '\\':
      if (next == pattern.size()) return false;
      return pattern[next++] == c;
    case '[': {
      const std::size_t end = belongs_to_operator(pattern, at) ? kNone : class_end(pattern, at);
      if (end == kNone) return c == '[';
      next = end + 1;
      const bool inverted = pattern[at + 1] == '!';
      const std::size_t first = at + (inverted ? 2 : 1);
      return class_contains(pattern.substr(first, end - first), c) != inverted;
    }
    default:
      return pattern[at] == c;
  }
}

// The last run of identifier characters that stands for itself in a glob over a name, parameters left out: part of the
// mangled name of whatever the glob matches.  "" when there is none that is worth a look.
std::string_view last_literal(std::string_view pattern) noexcept {
  constexpr std::size_t kWorthALook = 3;
  std::string_view found;
  for (std::size_t at = 0, start = 0; at <= pattern.size(); ++at) {
    if (at < pattern.size() && is_identifier(pattern[at])) continue;
    const std::string_view run = pattern.substr(start, at - start);
    if (run == "operator") break;  // what follows is spelled otherwise in mangled names, as is std
    if (run.size() >= kWorthALook && run != "std") found = run;
    if (at == pattern.size() || pattern[at] == '(' || pattern[at] == '<' || pattern[at] == '{') break;
    if (pattern[at] == '[' || pattern[at] == '\\') return {};
    start = at + 1;
  }
  return found;
}

// --- Parsing.

struct OpenBracket {
  char closing;
  std::size_t position;
};

// The position after the escape or class at `at`, `at` itself when there is neither, kNone when it never ends.
std::size_t skip_quoted(std::string_view text, std::size_t at) noexcept {
  if (text[at] == '\\') return at + 1 < text.size() ? at + 2 : kNone;
  if (text[at] != '[' || belongs_to_operator(text, at)) return at;
  const std::size_t end = class_end(text, at);
  return end == kNone ? kNone : end + 1;
}

bool is_comma_operator(std::string_view text, std::size_t at) noexcept {
  return ends_with_operator(text.substr(0, at));
}

// The commas that separate alternatives.  `text` is well formed.  A bracket that is never closed holds nothing:
// "vector<*,map<*" are two alternatives.
std::vector<std::size_t> find_separators(std::string_view text) {
  std::vector<std::size_t> commas;
  std::vector<OpenBracket> open;
  const auto close_innermost = [&] {
    while (!commas.empty() && commas.back() > open.back().position) commas.pop_back();
    open.pop_back();
  };
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (const std::size_t after = skip_quoted(text, at); after != at) {
      at = after - 1;
      continue;
    }
    const char c = text[at];
    if (c == ',' && !is_comma_operator(text, at)) commas.push_back(at);
    if ((c == '(' || c == '<') && !belongs_to_operator(text, at)) open.push_back({c == '(' ? ')' : '>', at});
    if (c == '>' && !open.empty() && open.back().closing == '>' && !belongs_to_operator(text, at)) close_innermost();
    if (c == ')') {
      const auto match =
          std::find_if(open.rbegin(), open.rend(), [](const OpenBracket& b) { return b.closing == ')'; });
      if (match == open.rend()) continue;
      open.erase(match.base(), open.end());  // what was left open inside
      close_innermost();
    }
  }
  return commas;
}

// Whether every escape and class of `text` is complete.
Result<void> check_well_formed(std::string_view text, const char* what) {
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t after = skip_quoted(text, at);
    if (after == kNone && text[at] == '\\')
      return make_error(
          EINVAL,
          "the %s \"%.*s\" ends in a backslash that escapes nothing: remove it, or double it to mean a backslash", what,
          printable(text), text.data());
    if (after == kNone)
      return make_error(EINVAL,
                        "the '[' at character %zu of the %s \"%.*s\" is never closed: add the ']', or write \"\\[\" to "
                        "mean the character",
                        at + 1, what, printable(text), text.data());
    at = after == at ? at + 1 : after;
  }
  return {};
}

// Blanks around an alternative are not part of any name; an escaped one stays.
std::string_view trimmed(std::string_view text) noexcept {
  while (text.starts_with(' ')) text.remove_prefix(1);
  while (text.ends_with(' ') && !text.ends_with("\\ ")) text.remove_suffix(1);
  return text;
}

}  // namespace

bool glob_match(std::string_view pattern, std::string_view text) noexcept {
  std::size_t at = 0, in_text = 0;
  std::size_t star = kNone, star_text = 0;  // after the last `*`, and where the text that follows it was tried
  for (;;) {
    if (at < pattern.size() && pattern[at] == '*') {
      star = ++at;
      star_text = in_text;
      if (at == pattern.size()) return true;
      continue;
    }
    if (in_text == text.size()) return at == pattern.size();
    std::size_t next = 0;
    if (at < pattern.size() && accepts(pattern, at, text[in_text], next)) {
      at = next;
      ++in_text;
      continue;
    }
    if (star == kNone) return false;
    at = star;
    in_text = ++star_text;
  }
}

bool matches_module(std::string_view pattern, const ModuleName& module) noexcept {
  return glob_match(pattern, module.file_name) || (!module.soname.empty() && glob_match(pattern, module.soname));
}

Prefixed split_module_prefix(std::string_view text) noexcept {
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t after = skip_quoted(text, at);
    if (after == kNone) break;
    if (after != at) {
      at = after;
      continue;
    }
    std::size_t end = at;
    while (end < text.size() && text[end] == ':') ++end;
    if ((end - at) % 2 == 1) return {true, text.substr(0, at), text.substr(at + 1)};  // ":::": a prefix and a "::"
    at = std::max(end, at + 1);
  }
  return {false, {}, text};
}

Result<void> Filter::add(std::string_view pattern, bool excludes, const char* what, std::vector<Alternative>& out) {
  if (Result<void> checked = check_well_formed(pattern, what); !checked) return checked;
  std::vector<std::size_t> ends = find_separators(pattern);
  ends.push_back(pattern.size());

  std::size_t start = 0;
  for (const std::size_t end : ends) {
    std::string_view text = trimmed(pattern.substr(start, end - start));
    start = end + 1;
    const bool negated = text.starts_with('!');
    if (negated && excludes)
      return make_error(
          EINVAL,
          "the alternative \"%.*s\" of the %s \"%.*s\" begins with '!': a notfilter excludes already, remove the '!'",
          printable(text), text.data(), what, printable(pattern), pattern.data());
    if (negated) text = trimmed(text.substr(1));

    const Prefixed parts = split_module_prefix(text);
    if (parts.name.empty() || (parts.has_module && parts.module.empty()))
      return make_error(
          EINVAL,
          "the %s \"%.*s\" has an empty alternative%s: write a name on both sides of each ',' and ':', and after '!'",
          what, printable(pattern), pattern.data(), parts.has_module ? " (nothing before or after a ':')" : "");
    out.push_back({negated || excludes, parts.has_module, std::string(parts.module), std::string(parts.name)});
  }
  return {};
}

Result<Filter> Filter::parse(const char* match, const char* exclude) {
  if (match == nullptr) return make_error(EINVAL, "the filter is NULL: pass a pattern, \"*\" selects every function");
  if (trimmed(match).empty())
    return make_error(ENOENT,
                      "the filter is empty and matches no function: write a pattern, \"*\" selects every function");
  try {
    if (!sys::allocation_allowed()) throw std::bad_alloc();
    Filter filter;
    if (Result<void> added = add(match, false, "filter", filter.alternatives_); !added) return added.error();
    const auto selects = [](const Alternative& alternative) { return !alternative.excludes; };
    if (std::none_of(filter.alternatives_.begin(), filter.alternatives_.end(), selects))
      return make_error(ENOENT,
                        "the filter \"%.160s\" only excludes, so it matches no function: name what to select as well, "
                        "as in \"lib*,%.160s\"",
                        match, match);
    if (exclude != nullptr && !trimmed(exclude).empty())
      if (Result<void> added = add(exclude, true, "notfilter", filter.alternatives_); !added) return added.error();
    return filter;
  } catch (const std::bad_alloc&) {
    return make_error(ENOMEM, "no memory to read the filter \"%.160s\"", match);
  }
}

bool Filter::matches(const Alternative& alternative, const ModuleName& module, const Spellings& names) {
  if (alternative.has_module && !matches_module(alternative.module, module)) return false;
  for (const std::string* name : {&names.linkage, &names.linkage_base, &names.qualified, &names.signature})
    if (!name->empty() && glob_match(alternative.name, *name)) return true;
  return false;
}

bool Filter::matches_ignoring_exclusions(const ModuleName& module, const Spellings& names) const {
  return std::any_of(alternatives_.begin(), alternatives_.end(), [&](const Alternative& alternative) {
    return !alternative.excludes && matches(alternative, module, names);
  });
}

Filter::Verdict Filter::judge(const ModuleName& module, const Spellings& names) const {
  Verdict verdict = Verdict::kNotMeant;
  for (const Alternative& alternative : alternatives_) {
    if (!alternative.excludes && verdict == Verdict::kSelected) continue;
    if (!matches(alternative, module, names)) continue;
    if (alternative.excludes) return Verdict::kExcluded;
    verdict = Verdict::kSelected;
  }
  return verdict;
}

bool Filter::may_select_in(const ModuleName& module) const {
  return std::any_of(alternatives_.begin(), alternatives_.end(), [&](const Alternative& alternative) {
    return !alternative.excludes && (!alternative.has_module || matches_module(alternative.module, module));
  });
}

bool Filter::may_select(std::string_view linkage) const noexcept {
  return std::any_of(alternatives_.begin(), alternatives_.end(), [&](const Alternative& alternative) {
    return !alternative.excludes && linkage.find(last_literal(alternative.name)) != kNone;
  });
}

bool names_exactly(std::string_view wanted, const ModuleName& module, const Spellings& names) {
  const Prefixed parts = split_module_prefix(wanted);
  if (parts.name.empty()) return false;
  if (parts.has_module && !matches_module(parts.module, module)) return false;
  for (const std::string* name : {&names.linkage, &names.linkage_base, &names.qualified, &names.signature})
    if (!name->empty() && parts.name == *name) return true;
  return false;
}

}  // namespace libfprobe::detail
