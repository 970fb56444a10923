// From what a user asks for (a filter, names, addresses) to the sites it means, or a sentence that names the culprit.
//
// Results are sorted and unique: duplicates and aliases in one registration fire once.  Called under the registry
// mutex, inside the loader's lock, after ModuleSet::refresh().
#ifndef FPROBE_SRC_CORE_REGISTRY_TARGETS_H_
#define FPROBE_SRC_CORE_REGISTRY_TARGETS_H_

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "image/symbol_match.h"
#include "registry/module.h"
#include "registry/registry.h"

namespace libfprobe::detail {

using Selection = std::vector<SiteRecord*>;

// `handlers`: addresses of handler functions, which a filter leaves out.  Nothing found is a failure unless it is
// `enough` that the filter may find something later.
enum class Enough { kFound, kMayComeLater };
[[nodiscard]] Result<Selection> resolve(const ModuleSet& modules, const FilterTarget& target,
                                        std::span<const std::uintptr_t> handlers, Enough enough = Enough::kFound);
// What the filter selects in one of the modules: perhaps nothing.
[[nodiscard]] Result<Selection> resolve_in(const ModuleSet& modules, Module& module, const Filter& filter,
                                           std::span<const std::uintptr_t> handlers);
[[nodiscard]] Result<Selection> resolve(const ModuleSet& modules, SymbolsTarget target);
[[nodiscard]] Result<Selection> resolve(const ModuleSet& modules, AddressesTarget target);

}  // namespace libfprobe::detail

#endif  // FPROBE_SRC_CORE_REGISTRY_TARGETS_H_
