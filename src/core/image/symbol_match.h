// Names and filters as users write them (API.md "Names and filters"): globs, alternatives, exclusions, module prefixes.
//
// Pure text: no ELF, no addresses.  Parsing is linear, matching takes at most |pattern| * |text| steps; both are
// fuzzed. A filter whose alternatives all exclude selects nothing (ENOENT): never does an odd pattern mean
// "everything".
#ifndef FPROBE_SRC_CORE_IMAGE_SYMBOL_MATCH_H_
#define FPROBE_SRC_CORE_IMAGE_SYMBOL_MATCH_H_

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "image/symbol_index.h"

namespace libfprobe::detail {

// Whole-string kernel glob: * ? [a-z] [!x] and backslash.  The pattern must be well formed (see Pattern::parse).
[[nodiscard]] bool glob_match(std::string_view pattern, std::string_view text) noexcept;

// A module as a prefix may name it.
struct ModuleName {
  std::string_view file_name, soname;
};

// "libfoo.so*:bar*" split at its single colon; without a prefix `module` is empty and `has_module` false.
struct Prefixed {
  bool has_module = false;
  std::string_view module, name;
};
[[nodiscard]] Prefixed split_module_prefix(std::string_view text) noexcept;

// Whether a prefix (a glob) means the module.
[[nodiscard]] bool matches_module(std::string_view pattern, const ModuleName& module) noexcept;

class Filter {
 public:
  // register_fprobe's two patterns; errors: EINVAL (malformed), ENOENT (empty `match`), with a sentence that names the
  // pattern and what is wrong.  `exclude` may be null or "".
  [[nodiscard]] static Result<Filter> parse(const char* match, const char* exclude);

  // What the filter says of a name.  A function with several names (aliases) is selected when one of its names is
  // selected and none is excluded.
  enum class Verdict { kNotMeant, kSelected, kExcluded };
  [[nodiscard]] Verdict judge(const ModuleName& module, const Spellings& names) const;
  [[nodiscard]] bool selects(const ModuleName& module, const Spellings& names) const {
    return judge(module, names) == Verdict::kSelected;
  }
  [[nodiscard]] bool matches_ignoring_exclusions(const ModuleName& module, const Spellings& names) const;
  // False when no alternative can select anything in the module: its symbols need not be spelled.
  [[nodiscard]] bool may_select_in(const ModuleName& module) const;
  // False when no alternative can select a function with this linkage name: it need not be demangled.
  [[nodiscard]] bool may_select(std::string_view linkage) const noexcept;

  // For sentences about a filter that selects nothing: calls visit(Prefixed) for each alternative that selects.
  template <class Visit>
  void visit_selecting(const Visit& visit) const {
    for (const Alternative& alternative : alternatives_)
      if (!alternative.excludes) visit(Prefixed{alternative.has_module, alternative.module, alternative.name});
  }

 private:
  struct Alternative {
    bool excludes = false, has_module = false;
    std::string module, name;
  };
  [[nodiscard]] static bool matches(const Alternative& alternative, const ModuleName& module, const Spellings& names);
  [[nodiscard]] static Result<void> add(std::string_view pattern, bool excludes, const char* what,
                                        std::vector<Alternative>& out);
  std::vector<Alternative> alternatives_;
};

// Exact name of register_fprobe_syms: any of the spellings, module prefix allowed (the module part may be a glob).
[[nodiscard]] bool names_exactly(std::string_view wanted, const ModuleName& module, const Spellings& names);

}  // namespace libfprobe::detail

#endif  // FPROBE_SRC_CORE_IMAGE_SYMBOL_MATCH_H_
