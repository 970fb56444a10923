// The names of one module's functions, arranged for the registry's two questions: which sites does a filter select, and
// which sites bear an exact name.
//
// Only functions that have a site are spelled (demangled): libraries with ten thousand functions and no site cost
// nothing until somebody asks for a name that does not exist anywhere else.
#ifndef FPROBE_SRC_CORE_REGISTRY_MODULE_NAMES_H_
#define FPROBE_SRC_CORE_REGISTRY_MODULE_NAMES_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "image/image_file.h"
#include "image/image_list.h"
#include "image/symbol_index.h"
#include "image/symbol_match.h"

namespace libfprobe::detail {

struct SiteRecord;

class ModuleNames {
 public:
  [[nodiscard]] static Result<std::unique_ptr<ModuleNames>> build(const LoadedImage& image, std::span<SiteRecord> sites,
                                                                  std::span<const LoadedImage> loaded);

  [[nodiscard]] const SymbolIndex& symbols() const noexcept { return symbols_; }
  // Why functions of this module may have no name, and the remedy, for a sentence; "" when all have theirs.
  [[nodiscard]] const std::string& gap() const noexcept { return gap_; }

  // Adds the sites of which some name is selected.
  void select(const Filter& filter, const ModuleName& module, std::vector<SiteRecord*>& out) const;
  // Adds the sites that bear `name` exactly (`name` without, `wanted` with its module prefix).
  void find(std::string_view wanted, std::string_view name, const ModuleName& module,
            std::vector<SiteRecord*>& out) const;
  // visit(Spellings) for every name of every site.
  template <class Visit>
  void visit_site_names(const Visit& visit) const {
    for (const Named& named : named_) visit(named.names);
  }
  // The site's function by the first of its names; null: it has none.
  [[nodiscard]] const Spellings* names_of(const SiteRecord& site) const noexcept;
  // A function with that name, whether it has a site or not; null: the name is unknown in this module.
  [[nodiscard]] const FunctionName* find_function(std::string_view wanted, std::string_view name,
                                                  const ModuleName& module) const;

 private:
  // One name of one site; a site with aliases has several, neighbours in the array.
  struct Named {
    SiteRecord* site = nullptr;
    Spellings names;
  };
  struct Hashed {
    std::size_t hash = 0;
    std::uint32_t named = 0;
  };
  explicit ModuleNames(SymbolIndex symbols) noexcept : symbols_(std::move(symbols)) {}
  void spell_sites(std::span<SiteRecord> sites);
  void hash_names();

  SymbolIndex symbols_;
  std::string gap_;
  std::vector<Named> named_;
  std::vector<Hashed> by_hash_;  // of every spelling, sorted
};

}  // namespace libfprobe::detail

#endif  // FPROBE_SRC_CORE_REGISTRY_MODULE_NAMES_H_
