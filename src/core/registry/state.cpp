// See state.h: the root object and the work that every operation begins with.
#include "registry/state.h"

#include <algorithm>
#include <atomic>

namespace libfprobe::detail {
namespace {

// Never destroyed: hits go on during exit().
union Immortal {
  RegistryState value;
  constexpr Immortal() noexcept : value() {}
  ~Immortal() {}
};
constinit Immortal g_registry;

// What a departed module's sites leave behind: nothing but the module itself, kept until no guard holds its sites.
void forget_module(RegistryState& registry, std::unique_ptr<Module> module) noexcept {
  bool was_used = false;
  for (SiteRecord& record : module->sites()) {
    if (record.site == nullptr) continue;
    was_used = true;
    disarm_live(record);
    registry.table.erase(record.found.ip);
  }
  if (!was_used) return;
  for (PooledSlot* slot = registry.live; slot != nullptr; slot = slot->next)
    std::erase_if(slot->registration->records,
                  [&](const SiteRecord* record) { return record->module == module.get(); });
  registry.limbo.bury(std::move(module));
}

// Sites that have dead entries in their lists, or are armed without any probe.
std::vector<SiteRecord*> untidy_sites(RegistryState& registry) {
  std::vector<SiteRecord*> records;
  for (const auto& module : registry.modules.modules()) {
    for (SiteRecord& record : module->sites()) {
      if (record.site == nullptr) continue;
      const ProbeList* const list = record.site->probes.load(std::memory_order_relaxed);
      const bool has_dead = list != nullptr && !all_live(list);
      if (has_dead || (list == nullptr && record.armed)) records.push_back(&record);
    }
  }
  return records;
}

}  // namespace

RegistryState& state() noexcept {
  return g_registry.value;
}

PooledSlot* live_slot(const fprobe& probe) noexcept {
  // acquire: pairs with the release in commit(), a struct seen as registered has a filled slot [REGISTERED].
  const auto number = reinterpret_cast<std::uintptr_t>(__atomic_load_n(&probe.handle, __ATOMIC_ACQUIRE));
  PooledSlot* const slot = state().slots.numbered(number);
  if (slot == nullptr) return nullptr;
  // A copy of a registered struct has its handle but is not what was registered; nor is one whose handle is garbage.
  const bool is_live = slot->generation.load(std::memory_order_acquire) % 2 == 1;  // pairs with [GENERATION]
  return is_live && __atomic_load_n(&slot->probe, __ATOMIC_RELAXED) == &probe ? slot : nullptr;
}

Result<void> follow_loader(RegistryState& registry) {
  assert_held(registry.mutex);
  registry.limbo.reserve_graves(registry.modules.modules().size());
  Result<ModuleSet::Changes> changes = registry.modules.refresh();
  if (!changes.ok()) return changes.error();
  for (std::unique_ptr<Module>& module : changes->departed) forget_module(registry, std::move(module));

  std::vector<SiteRecord*> fresh;
  for (Module* const module : changes->added)
    for (SiteRecord& record : module->sites()) fresh.push_back(&record);
  if (fresh.empty()) return {};
  // Where text cannot be written its sites stay calls of a function that returns: slower, not wrong.
  (void)bring_into_form(fresh, registry.resting_form, PokeMode::kBestEffort);
  return {};
}

void tidy_up(RegistryState& registry) noexcept {
  assert_held(registry.mutex);
  registry.limbo.reclaim(registry.slots);
  if (!registry.is_untidy) return;
  try {
    const std::vector<SiteRecord*> records = untidy_sites(registry);
    auto retirement = std::make_unique<Retirement>();
    retirement->sites.reserve(records.size());
    retirement->lists.reserve(records.size());
    for (const SiteRecord* const record : records) retirement->sites.push_back(record->site);
    std::sort(retirement->sites.begin(), retirement->sites.end());
    registry.is_untidy = false;  // withdraw() sets it again
    withdraw(registry, records, *retirement);
    if (!retirement->lists.empty()) registry.limbo.add(retirement.release());
  } catch (const std::bad_alloc&) {
    registry.is_untidy = true;
  }
}

void withdraw(RegistryState& registry, std::span<SiteRecord* const> records, Retirement& retirement) noexcept {
  assert_held(registry.mutex);
  try {
    ListChanges changes;
    changes.reserve(records.size());
    for (const SiteRecord* const record : records) changes.plan(*record->site, nullptr);
    changes.publish(retirement.lists);

    std::vector<SiteRecord*> unused;
    unused.reserve(records.size());
    for (SiteRecord* const record : records)
      if (record->armed && record->site->probes.load(std::memory_order_relaxed) == nullptr) unused.push_back(record);
    const Result<bool> disarmed = bring_into_form(unused, registry.resting_form, PokeMode::kBestEffort);
    if (!disarmed.ok() || !disarmed.value()) registry.is_untidy = true;
  } catch (const std::bad_alloc&) {
    registry.is_untidy = true;
  }
}

}  // namespace libfprobe::detail
