// See module_names.h.
#include "registry/module_names.h"

#include <errno.h>

#include <algorithm>
#include <functional>
#include <new>
#include <string>

#include "base/syscalls.h"
#include "image/debug_file.h"
#include "registry/module.h"

namespace libfprobe::detail {
namespace {

std::size_t hash_of(std::string_view name) noexcept {
  return std::hash<std::string_view>()(name);
}

// The last identifier of a name, without parameters: part of the function's mangled name too ("~" and operators have
// none).
std::string_view last_identifier(std::string_view name) noexcept {
  const auto is_word = [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
  };
  name = name.substr(0, name.find('('));
  std::size_t start = name.size();
  while (start > 0 && is_word(name[start - 1])) --start;
  return name.substr(start);
}

bool has_symbol_table(const Result<ElfImage>& file) noexcept {
  return file.ok() && !file.value().symtab().empty();
}

// Where to put what was stripped.
std::string describe_place(const LoadedImage& image, const ElfImage& file) {
  if (const std::string path = path_by_build_id(image); !path.empty()) return "put its debug file at " + path;
  if (const std::optional<DebugLink> link = debug_link_of(file))
    return "put its debug file " + link->name + " beside it";
  return "keep its debug file beside it (objcopy --add-gnu-debuglink)";
}

std::string describe_stripped(const LoadedImage& image, const ElfImage& file, const DebugFile& debug) {
  if (!debug.refusal.empty())  // the remedy in front of what may be too long for a sentence
    return image.path + " is stripped: install the debug file of this very build; " + debug.refusal;
  return image.path + " is stripped, only its exported functions have names: do not strip it, " +
         describe_place(image, file) + ", or " +
         (image.is_main ? "link it with -rdynamic" : "export them (default visibility)");
}

std::string describe_gap(const LoadedImage& image, const Result<ElfImage>& file, const DebugFile& debug) {
  if (debug.file || has_symbol_table(file)) return {};
  if (file.ok()) return describe_stripped(image, file.value(), debug);
  if (!image.path.starts_with('/'))
    return "the file of a module cannot be found because /proc cannot be read: mount /proc, or link with -rdynamic";
  const bool names_remedy = file.error().code == ESTALE || file.error().code == ENOEXEC;
  return std::string(file.error().sentence) +
         (names_remedy ? "" : "; keep it where it was loaded from, with /proc mounted");
}

}  // namespace

Result<std::unique_ptr<ModuleNames>> ModuleNames::build(const LoadedImage& image, std::span<SiteRecord> sites,
                                                        std::span<const LoadedImage> loaded) {
  if (!sys::allocation_allowed()) throw std::bad_alloc();
  Result<ElfImage> file = open_file_of(image);
  if (!file.ok() && is_shortage(file.error())) return file.error();
  const ElfImage* const own = file.ok() ? &*file : nullptr;
  Result<DebugFile> debug = has_symbol_table(file) ? Result<DebugFile>(DebugFile{}) : find_debug_file(image, own);
  if (!debug.ok()) return debug.error();
  Result<SymbolIndex> symbols = SymbolIndex::build(image, own, loaded, debug->file ? &*debug->file : nullptr);
  if (!symbols.ok()) return symbols.error();
  std::unique_ptr<ModuleNames> names(new ModuleNames(std::move(*symbols)));
  names->gap_ = describe_gap(image, file, *debug);
  names->spell_sites(sites);
  names->hash_names();
  return names;
}

void ModuleNames::spell_sites(std::span<SiteRecord> sites) {
  named_.reserve(sites.size());
  for (SiteRecord& site : sites)
    for (const FunctionName& function : symbols_.names_at(site.found.function)) {
      named_.push_back({&site, spell(function.linkage)});
      if (named_.back().names.out_of_memory) throw std::bad_alloc();
    }
}

void ModuleNames::hash_names() {
  by_hash_.reserve(named_.size() * 2);
  for (std::size_t i = 0; i < named_.size(); ++i) {
    const Spellings& names = named_[i].names;
    const auto index = static_cast<std::uint32_t>(i);
    by_hash_.push_back({hash_of(names.linkage), index});
    if (names.linkage_base != names.linkage) by_hash_.push_back({hash_of(names.linkage_base), index});
    if (!names.signature.empty()) by_hash_.push_back({hash_of(names.signature), index});
    if (!names.qualified.empty() && names.qualified != names.signature)
      by_hash_.push_back({hash_of(names.qualified), index});
  }
  std::sort(by_hash_.begin(), by_hash_.end(), [](const Hashed& a, const Hashed& b) { return a.hash < b.hash; });
}

// A function's names are neighbours: one of them has to be selected and none excluded.
void ModuleNames::select(const Filter& filter, const ModuleName& module, std::vector<SiteRecord*>& out) const {
  for (std::size_t i = 0; i < named_.size();) {
    SiteRecord* const site = named_[i].site;
    bool is_selected = false, is_excluded = false;
    for (; i < named_.size() && named_[i].site == site; ++i) {
      const Filter::Verdict verdict = filter.judge(module, named_[i].names);
      is_selected = is_selected || verdict == Filter::Verdict::kSelected;
      is_excluded = is_excluded || verdict == Filter::Verdict::kExcluded;
    }
    if (is_selected && !is_excluded) out.push_back(site);
  }
}

void ModuleNames::find(std::string_view wanted, std::string_view name, const ModuleName& module,
                       std::vector<SiteRecord*>& out) const {
  const std::size_t hash = hash_of(name);
  auto at = std::lower_bound(by_hash_.begin(), by_hash_.end(), hash,
                             [](const Hashed& entry, std::size_t key) { return entry.hash < key; });
  for (; at != by_hash_.end() && at->hash == hash; ++at)
    if (names_exactly(wanted, module, named_[at->named].names)) out.push_back(named_[at->named].site);
}

const Spellings* ModuleNames::names_of(const SiteRecord& site) const noexcept {
  const auto at = std::lower_bound(named_.begin(), named_.end(), &site,
                                   [](const Named& named, const SiteRecord* key) { return named.site < key; });
  return at != named_.end() && at->site == &site ? &at->names : nullptr;
}

const FunctionName* ModuleNames::find_function(std::string_view wanted, std::string_view name,
                                               const ModuleName& module) const {
  const std::string_view identifier = last_identifier(name);
  for (const FunctionName& function : symbols_.functions()) {
    // Demangling is slow and this runs over whole libraries: only names that can be meant are spelled.
    if (std::string_view(function.linkage).find(identifier) == std::string_view::npos) continue;
    if (names_exactly(wanted, module, spell(function.linkage))) return &function;
  }
  return nullptr;
}

}  // namespace libfprobe::detail
