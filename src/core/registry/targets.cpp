// See targets.h.
#include "registry/targets.h"

#include <errno.h>

#include <algorithm>
#include <new>
#include <string_view>

#include "base/syscalls.h"
#include "registry/explain.h"

namespace libfprobe::detail {
namespace {

void make_unique(Selection& selection) {
  std::sort(selection.begin(), selection.end(),
            [](const SiteRecord* a, const SiteRecord* b) { return a->found.ip < b->found.ip; });
  selection.erase(std::unique(selection.begin(), selection.end()), selection.end());
}

// Where a function pointer really leads: in a no-pie executable the address of another module's function is that of a
// PLT slot.
std::uintptr_t through_plt(const ModuleSet& modules, std::uintptr_t address) noexcept {
  const Module* const module = modules.containing(address);
  const Segment* const segment = module != nullptr ? module->image().segment_at(address) : nullptr;
  if (segment == nullptr || (segment->flags & PF_X) == 0) return address;
  const std::size_t room = std::min<std::size_t>(16, segment->end - address);
  const std::uintptr_t word = arch::plt_slot_word({reinterpret_cast<const std::byte*>(address), room}, address);
  const Segment* const data = word != 0 ? module->image().segment_at(word) : nullptr;
  if (data == nullptr || data->end - word < sizeof(std::uintptr_t)) return address;
  return *reinterpret_cast<const std::uintptr_t*>(word);
}

// --- filter ----------------------------------------------------------------------------------------------------------

Selection sites_of_handlers(const ModuleSet& modules, std::span<const std::uintptr_t> handlers) {
  Selection sites;
  for (const std::uintptr_t handler : handlers) {
    const std::uintptr_t function = through_plt(modules, handler);
    if (Module* const module = modules.containing(function)) module->sites_of_function(function, sites);
  }
  make_unique(sites);
  return sites;
}

void leave_out(Selection& selection, const Selection& sites) {
  std::erase_if(selection, [&](const SiteRecord* record) {
    return std::binary_search(sites.begin(), sites.end(), record,
                              [](const SiteRecord* a, const SiteRecord* b) { return a->found.ip < b->found.ip; });
  });
}

Result<void> add_selected(const ModuleSet& modules, Module& module, const Filter& filter, Selection& selection) {
  if (module.sites().empty() || !filter.may_select_in(name_of(module))) return {};
  Result<ModuleNames*> names = modules.names(module);
  if (!names.ok()) return names.error();
  (*names)->select(filter, name_of(module), selection);
  return {};
}

// False when all alternatives exclude, or mean modules by their paths, which no module answers to.
bool can_select(const Filter& filter) {
  bool selects = false;
  filter.visit_selecting([&](const Prefixed& alternative) {
    if (!alternative.has_module || alternative.module.find('/') == alternative.module.npos) selects = true;
  });
  return selects;
}

// --- names -----------------------------------------------------------------------------------------------------------

Result<Selection> sites_named(const ModuleSet& modules, std::string_view wanted) {
  const Prefixed prefixed = split_module_prefix(wanted);
  Selection found;
  for (const auto& module : modules.modules()) {
    if (module->sites().empty()) continue;
    Result<ModuleNames*> names = modules.names(*module);
    if (!names.ok()) return names.error();
    (*names)->find(wanted, prefixed.name, name_of(*module), found);
  }
  return found;
}

}  // namespace

Result<Selection> resolve(const ModuleSet& modules, const FilterTarget& target,
                          std::span<const std::uintptr_t> handlers, Enough enough) {
  if (!sys::allocation_allowed()) throw std::bad_alloc();
  Result<Filter> filter = Filter::parse(target.match, target.exclude);
  if (!filter.ok()) return filter.error();
  Selection selection;
  for (const auto& module : modules.modules())
    if (Result<void> added = add_selected(modules, *module, *filter, selection); !added.ok()) return added.error();
  make_unique(selection);
  const bool selects_some = !selection.empty();
  leave_out(selection, sites_of_handlers(modules, handlers));
  if (!selection.empty() || (enough == Enough::kMayComeLater && can_select(*filter))) return selection;
  return explain_filter(modules, target, *filter, selects_some);
}

Result<Selection> resolve_in(const ModuleSet& modules, Module& module, const Filter& filter,
                             std::span<const std::uintptr_t> handlers) {
  if (!sys::allocation_allowed()) throw std::bad_alloc();
  Selection selection;
  if (Result<void> added = add_selected(modules, module, filter, selection); !added.ok()) return added.error();
  make_unique(selection);
  if (!selection.empty()) leave_out(selection, sites_of_handlers(modules, handlers));
  return selection;
}

Result<Selection> resolve(const ModuleSet& modules, SymbolsTarget target) {
  if (!sys::allocation_allowed()) throw std::bad_alloc();
  Selection selection;
  for (const char* const wanted : target) {
    if (wanted == nullptr) return make_error(ENOENT, "one of the %zu names is a null pointer", target.size());
    Result<Selection> found = sites_named(modules, wanted);
    if (!found.ok()) return found.error();
    if (found->empty()) return explain_name(modules, wanted);
    selection.insert(selection.end(), found->begin(), found->end());
  }
  make_unique(selection);
  return selection;
}

Result<Selection> resolve(const ModuleSet& modules, AddressesTarget target) {
  if (!sys::allocation_allowed()) throw std::bad_alloc();
  Selection selection;
  for (const unsigned long address : target) {
    Module* const module = modules.containing(address);
    const std::size_t before = selection.size();
    if (module != nullptr) {
      if (SiteRecord* const record = module->site_at(address)) selection.push_back(record);
      if (selection.size() == before) module->sites_of_function(address, selection);
    }
    if (selection.size() == before) return explain_address(modules, module, address);
  }
  make_unique(selection);
  return selection;
}

}  // namespace libfprobe::detail
