// See explain.h.  In the order in which reasons are looked for: the request itself is odd; no such module; functions of
// that name without a site; no such function, with what may have been meant or what may hide it.
#include "registry/explain.h"

#include <errno.h>

#include <algorithm>
#include <cstdio>
#include <span>
#include <string>

#include "image/name_guess.h"
#include "image/name_syntax.h"
#include "image/symbol_index.h"

namespace libfprobe::detail {
namespace {

constexpr std::size_t kLongestName = 120;  // in a sentence: the remedy behind it must have room

std::string shortened(std::string_view text) {
  if (text.size() <= kLongestName) return std::string(text);
  return std::string(text.substr(0, kLongestName)) + "...";
}

std::string quoted(std::string_view text) {
  return "'" + shortened(text) + "'";
}

Error not_found(const std::string& sentence) noexcept {
  return make_error(ENOENT, "%s", sentence.c_str());
}

std::string display_name(const Spellings& names) {
  return names.signature.empty() ? names.linkage : names.signature;
}

bool any_has_sites(const ModuleSet& modules) noexcept {
  const auto all = modules.modules();
  return std::any_of(all.begin(), all.end(), [](const auto& module) { return module->has_sites(); });
}

// --- a function without a site ---------------------------------------------------------------------------------------

constexpr const char* kCompileIt =
    "compile it with -pg -mfentry or -fpatchable-function-entry=5 (CMake: fprobe_instrument())";

// "…has no probe site: remedy".  `others`: how many more functions were meant and have none either.
std::string describe_without_site(const Module& module, const std::string& function, std::uintptr_t address,
                                  std::size_t others) {
  std::string too;
  if (others != 0) too = ", nor can " + std::to_string(others) + (others == 1 ? " other" : " others") + " that match";
  const std::string subject = quoted(function) + " in " + module.image().path;
  if (const char* const reason = module.refusal_at(address)) return subject + " cannot be probed" + too + ": " + reason;
  if (module.has_sites()) return subject + " has no probe site and cannot be probed" + too + ": " + kCompileIt;
  return subject + " cannot be probed" + too +
         ": the module was compiled without a single probe site; rebuild it with -pg -mfentry (CMake: "
         "fprobe_instrument()), or, if it is not yours, probe functions of your own that call it";
}

// --- modules ---------------------------------------------------------------------------------------------------------

bool is_loaded(const ModuleSet& modules, std::string_view pattern) {
  const auto all = modules.modules();
  return std::any_of(all.begin(), all.end(),
                     [&](const auto& module) { return matches_module(pattern, name_of(*module)); });
}

// "libm.so" for libm.so.6, "M" for m.
bool resembles(std::string_view wanted, std::string_view file_name) noexcept {
  const auto same = [](char a, char b) { return (a | 0x20) == (b | 0x20); };
  return !wanted.empty() && wanted.size() <= file_name.size() &&
         std::equal(wanted.begin(), wanted.end(), file_name.begin(), same) &&
         (wanted.size() == file_name.size() || file_name[wanted.size()] == '.');
}

std::string list_of_modules_with_sites(const ModuleSet& modules) {
  constexpr std::size_t kListed = 4;
  std::string list;
  std::size_t count = 0;
  for (const auto& module : modules.modules()) {
    if (!module->has_sites() || ++count > kListed) continue;
    list += (count == 1 ? " " : ", ") + shortened(module->image().name);
  }
  if (count > kListed) list += " and " + std::to_string(count - kListed) + " more";
  return list;
}

Error explain_module(const ModuleSet& modules, std::string_view pattern, std::string_view name) {
  std::string sentence = "no loaded module is named " + quoted(pattern);
  if (const std::size_t slash = pattern.rfind('/'); slash != std::string_view::npos) {
    sentence += ": in front of the ':' stands a file name or soname, not a path";
    const std::string_view file_name = pattern.substr(slash + 1);
    if (is_loaded(modules, file_name))
      return not_found(sentence + "; write '" + shortened(file_name) + ":" + shortened(name) + "'");
  }
  for (const auto& module : modules.modules())
    if (resembles(pattern, module->image().name))
      return not_found(sentence + ": did you mean " + quoted(module->image().name) + "?");
  const std::string list = list_of_modules_with_sites(modules);
  return not_found(sentence + (list.empty() ? "; no loaded module has a probe site at all"
                                            : "; modules with probe sites are:" + list));
}

// --- unknown names ---------------------------------------------------------------------------------------------------

// The best of the functions that resemble what was wanted.
class Suggestion {
 public:
  Suggestion(const ModuleSet& modules, std::string_view name) : modules_(modules), guess_(name) {}
  // "did you mean ...?" or "".
  [[nodiscard]] std::string find() {
    visit_sites(
        [&](const Spellings& names) { return guess_.may_be_meant(names.linkage) ? guess_.resemblance(names) : 0; });
    if (best_ == 0) visit_sites([&](const Spellings& names) { return guess_.resemblance_of_typo(names); });
    if (best_ == 0) visit_functions_without_sites();
    return best_ != 0 ? "did you mean '" + text_ + "' in " + shortened(module_->image().name) + "?" : "";
  }

 private:
  void consider(int resemblance, const Spellings& names, const Module& module) {
    if (resemblance <= best_) return;
    best_ = resemblance;
    text_ = guess_.suggestion(names);
    module_ = &module;
  }
  template <class Rate>
  void visit_sites(const Rate& rate) {
    for (const auto& module : modules_.modules()) {
      if (!module->has_sites()) continue;
      const Result<ModuleNames*> names = modules_.names(*module);
      if (names.ok())
        names.value()->visit_site_names([&](const Spellings& of_site) { consider(rate(of_site), of_site, *module); });
    }
  }
  // Of the program's own code only: the C++ library has some function of every name.
  void visit_functions_without_sites() {
    for (const auto& module : modules_.modules()) {
      if (!module->has_sites() && !module->image().is_main) continue;
      const Result<ModuleNames*> names = modules_.names(*module);
      if (!names.ok()) continue;
      for (const FunctionName& function : names.value()->symbols().functions()) {
        if (!guess_.may_be_meant(function.linkage)) continue;
        const Spellings spelled = spell(function.linkage);
        consider(guess_.resemblance(spelled), spelled, *module);
      }
    }
  }

  const ModuleSet& modules_;
  NameGuess guess_;
  int best_ = 0;
  std::string text_;
  const Module* module_ = nullptr;
};

// Why a module that may hold the function does not tell its name; "" if all tell.
template <class MayHold>
std::string find_gap(const ModuleSet& modules, const MayHold& may_hold) {
  for (const auto& module : modules.modules()) {
    if ((!module->has_sites() && !module->image().is_main) || !may_hold(name_of(*module))) continue;
    const Result<ModuleNames*> names = modules.names(*module);
    if (names.ok() && !names.value()->gap().empty()) return names.value()->gap();
  }
  return {};
}

constexpr const char* kMayBeInlined =
    "an inline or static function may have been inlined wherever it is called (__attribute__((noinline)) keeps it)";

// What is said of a name or filter that fits no function.
template <class MayHold>
std::string hint(const ModuleSet& modules, std::string_view exact_name, const MayHold& may_hold) {
  if (!exact_name.empty())
    if (std::string guess = Suggestion(modules, exact_name).find(); !guess.empty()) return guess;
  if (std::string gap = find_gap(modules, may_hold); !gap.empty()) return gap;
  if (!any_has_sites(modules)) return std::string("no loaded module has a probe site at all: ") + kCompileIt;
  return kMayBeInlined;
}

Error explain_unknown_name(const ModuleSet& modules, std::string_view wanted, const Prefixed& prefixed) {
  const std::string sentence =
      (prefixed.has_module ? "the module " + quoted(prefixed.module) + " has no function named "
                           : std::string("no loaded module has a function named ")) +
      quoted(prefixed.name);
  if (looks_like_filter(wanted))
    return not_found(sentence +
                     ": register_fprobe_syms() takes exact names, one in each element; register_fprobe() takes filters "
                     "with '*', '?', '[...]', '!' and ','");
  if (const std::string_view plain = without_version(prefixed.name); plain != prefixed.name)
    return not_found(sentence + ": symbol versions are no part of a name; write " + quoted(plain) +
                     ", which means the function of every version");
  return not_found(sentence + ": " + hint(modules, prefixed.name, [&](const ModuleName& module) {
                     return !prefixed.has_module || matches_module(prefixed.module, module);
                   }));
}

bool is_blank(std::string_view text) noexcept {
  return text.find_first_not_of(" \t\n") == std::string_view::npos;
}

// The function in one module that keeps a name from being unknown; nothing when the module has none.
Result<std::string> find_culprit(const ModuleSet& modules, Module& module, std::string_view wanted,
                                 const Prefixed& prefixed) {
  Result<ModuleNames*> names = modules.names(module);
  // An unreadable library cannot be what keeps the name from being found.
  if (!names.ok()) return is_shortage(names.error()) ? Result<std::string>(names.error()) : std::string();
  if (const FunctionName* const function = (*names)->find_function(wanted, prefixed.name, name_of(module)))
    return describe_without_site(module, std::string(wanted), function->address, 0);
  for (const char* const ifunc : (*names)->symbols().unbound_ifuncs())
    if (prefixed.name == ifunc)
      return quoted(wanted) + " in " + module.image().path + " is an IFUNC that nobody has bound yet: call it once";
  return std::string();
}

// --- filters ---------------------------------------------------------------------------------------------------------

// The functions that a filter matches and that have no site.
class FunctionsWithoutSite {
 public:
  [[nodiscard]] Result<void> collect(const ModuleSet& modules, const Filter& filter) {
    for (const auto& module : modules.modules()) {
      if (!filter.may_select_in(name_of(*module))) continue;
      Result<ModuleNames*> names = modules.names(*module);
      if (!names.ok() && is_shortage(names.error())) return names.error();
      if (names.ok()) collect_in(*module, (*names)->symbols().functions(), filter);
    }
    return {};
  }
  [[nodiscard]] bool empty() const noexcept { return count_ == 0; }
  [[nodiscard]] std::string describe() const {
    return describe_without_site(*module_, function_, address_, count_ - 1);
  }

 private:
  // How telling a function is as the example: one with a reason of its own, then one that is neither
  // the C runtime's nor ours.
  enum class Rank { kNone, kReserved, kOrdinary, kRefused };

  // A function's names are neighbours.
  void collect_in(const Module& module, std::span<const FunctionName> functions, const Filter& filter) {
    for (std::size_t i = 0; i < functions.size();) {
      const std::uintptr_t address = functions[i].address;
      std::string name;
      bool is_excluded = false;
      for (; i < functions.size() && functions[i].address == address; ++i) {
        if (!filter.may_select(functions[i].linkage)) continue;
        const Spellings names = spell(functions[i].linkage);
        const Filter::Verdict verdict = filter.judge(name_of(module), names);
        is_excluded = is_excluded || verdict == Filter::Verdict::kExcluded;
        if (verdict == Filter::Verdict::kSelected && name.empty()) name = display_name(names);
      }
      if (!name.empty() && !is_excluded) add(module, name, address);
    }
  }
  void add(const Module& module, const std::string& name, std::uintptr_t address) {
    ++count_;
    const Rank rank = module.refusal_at(address) != nullptr                      ? Rank::kRefused
                      : name.starts_with('_') || name.starts_with("libfprobe::") ? Rank::kReserved
                                                                                 : Rank::kOrdinary;
    if (rank <= rank_) return;
    rank_ = rank;
    module_ = &module;
    function_ = name;
    address_ = address;
  }

  std::size_t count_ = 0;
  Rank rank_ = Rank::kNone;
  const Module* module_ = nullptr;
  std::string function_;
  std::uintptr_t address_ = 0;
};

// Whether functions with a site would be selected if nothing were excluded.
bool excludes_all(const ModuleSet& modules, const Filter& filter) {
  bool is_excluded = false;
  for (const auto& module : modules.modules()) {
    if (!module->has_sites() || !filter.may_select_in(name_of(*module))) continue;
    const Result<ModuleNames*> names = modules.names(*module);
    if (!names.ok()) continue;
    names.value()->visit_site_names([&](const Spellings& of_site) {
      is_excluded = is_excluded || filter.matches_ignoring_exclusions(name_of(*module), of_site);
    });
  }
  return is_excluded;
}

// The one alternative of a filter that is a plain name; "" otherwise.
std::string plain_name(const Filter& filter) {
  std::string name;
  std::size_t count = 0;
  filter.visit_selecting([&](const Prefixed& alternative) {
    ++count;
    if (!looks_like_filter(alternative.name)) name = alternative.name;
  });
  return count == 1 ? name : std::string();
}

bool looks_like_regex(std::string_view filter) noexcept {
  return filter.starts_with('^') || filter.ends_with('$') || filter.find(".*") != std::string_view::npos;
}

// --- addresses -------------------------------------------------------------------------------------------------------

// Of aliases the one that a program would use: puts, not _IO_puts.
std::string best_name(std::span<const FunctionName> aliases) {
  const auto is_plain = [](const FunctionName& name) {
    return name.linkage[0] != '_' || std::string_view(name.linkage).starts_with("_Z");
  };
  const auto plain = std::find_if(aliases.begin(), aliases.end(), is_plain);
  return display_name(spell((plain != aliases.end() ? *plain : aliases.front()).linkage));
}

}  // namespace

ModuleName name_of(const Module& module) noexcept {
  return {module.image().name, module.image().soname};
}

Error explain_filter(const ModuleSet& modules, const FilterTarget& target, const Filter& filter,
                     bool selects_handlers) {
  const bool excludes = target.exclude != nullptr && target.exclude[0] != '\0';
  std::string sentence = "no function with a probe site matches " + quoted(target.match);
  if (excludes) sentence += " and not " + quoted(target.exclude);
  if (selects_handlers)
    return not_found(sentence +
                     " but handlers of probes, which a filter leaves out: probe them by name with "
                     "register_fprobe_syms()");
  Prefixed unknown;
  filter.visit_selecting([&](const Prefixed& alternative) {
    if (alternative.has_module && !unknown.has_module && !is_loaded(modules, alternative.module)) unknown = alternative;
  });
  if (unknown.has_module) return explain_module(modules, unknown.module, unknown.name);
  if (excludes_all(modules, filter)) return not_found(sentence + ": all that it matches is excluded as well");
  FunctionsWithoutSite functions;
  if (const Result<void> collected = functions.collect(modules, filter); !collected.ok()) return collected.error();
  if (!functions.empty()) return not_found(sentence + ": " + functions.describe());
  if (looks_like_regex(target.match))
    return not_found(sentence + ": a filter is a glob over the whole name, not a regular expression");
  return not_found(sentence + ": " + hint(modules, plain_name(filter), [&](const ModuleName& module) {
                     return filter.may_select_in(module);
                   }));
}

Error explain_name(const ModuleSet& modules, std::string_view wanted) {
  if (is_blank(wanted)) return not_found("one of the names is empty: write the name of a function");
  const Prefixed prefixed = split_module_prefix(wanted);
  if (prefixed.has_module && (is_blank(prefixed.module) || is_blank(prefixed.name)))
    return not_found(quoted(wanted) + " is no name: write a module in front of the ':' and a function behind it");
  if (prefixed.has_module && !is_loaded(modules, prefixed.module))
    return explain_module(modules, prefixed.module, prefixed.name);
  for (const auto& module : modules.modules()) {
    const Result<std::string> culprit = find_culprit(modules, *module, wanted, prefixed);
    if (!culprit.ok()) return culprit.error();
    if (!culprit.value().empty()) return not_found(culprit.value());
  }
  return explain_unknown_name(modules, wanted, prefixed);
}

Error explain_address(const ModuleSet& modules, Module* module, unsigned long address) {
  if (module == nullptr)
    return make_error(ENOENT,
                      "address %#lx lies in no loaded module: pass the address of a function, or an ip that "
                      "fprobe_for_each_site() lists",
                      address);
  const std::string& path = module->image().path;
  char number[32];
  std::snprintf(number, sizeof number, "%#lx", address);
  Result<ModuleNames*> names = modules.names(*module);
  if (!names.ok() && is_shortage(names.error())) return names.error();
  const FunctionName* const function = names.ok() ? (*names)->symbols().containing(address) : nullptr;
  const std::string name = function != nullptr ? best_name((*names)->symbols().names_at(function->address)) : "";
  if ((function != nullptr && function->address == address) || module->refusal_at(address) != nullptr)
    return not_found(describe_without_site(*module, name.empty() ? number : name, address, 0));
  const std::string sentence =
      "address " + std::string(number) + " in " + path + " is neither a probe site nor a function's first byte";
  if (function == nullptr)
    return not_found(sentence + ": pass the address of a function, or an ip that fprobe_for_each_site() lists");
  return not_found(sentence + ": it lies inside " + quoted(name) + ", which begins " +
                   std::to_string(address - function->address) + " bytes earlier: pass that");
}

}  // namespace libfprobe::detail
