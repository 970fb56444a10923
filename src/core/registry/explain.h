// Why what the user asked for leads to no site: sentences that name the culprit, its module and the remedy.
//
// Called after resolve() found nothing, so time does not matter much: the symbols of every loaded module may be read
// and demangled.  Same locks as targets.h.  Each returns ENOENT, or what kept it from finding out (memory, files).
#ifndef FPROBE_SRC_CORE_REGISTRY_EXPLAIN_H_
#define FPROBE_SRC_CORE_REGISTRY_EXPLAIN_H_

#include <string_view>

#include "base/result.h"
#include "image/symbol_match.h"
#include "registry/module.h"
#include "registry/registry.h"

namespace libfprobe::detail {

[[nodiscard]] ModuleName name_of(const Module& module) noexcept;

// `selects_handlers`: all that the filter selects are handlers, which were left out.
[[nodiscard]] Error explain_filter(const ModuleSet& modules, const FilterTarget& target, const Filter& filter,
                                   bool selects_handlers);
[[nodiscard]] Error explain_name(const ModuleSet& modules, std::string_view wanted);
// `module`: the one that holds the address, null if none does.
[[nodiscard]] Error explain_address(const ModuleSet& modules, Module* module, unsigned long address);

}  // namespace libfprobe::detail

#endif  // FPROBE_SRC_CORE_REGISTRY_EXPLAIN_H_
