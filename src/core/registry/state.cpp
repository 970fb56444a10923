// See state.h: the root object and the work that every operation begins with.
#include "registry/state.h"

#include <algorithm>
#include <atomic>

#include "base/debug_log.h"
#include "registry/new_modules.h"

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

void bring_to_rest(const RegistryState& registry, std::span<Module* const> added, Inside inside) {
  std::vector<SiteRecord*> fresh;
  for (Module* const module : added)
    for (SiteRecord& record : module->sites()) fresh.push_back(&record);
  // Where text cannot be written its sites stay calls of a function that returns: slower, not wrong.
  if (fresh.empty()) return;
  const Result<bool> rested = bring_into_form(fresh, registry.resting_form, PokeMode::kBestEffort, inside);
  if (!rested.ok()) return debug_log::say("sites of new modules stay as in the file: %s", rested.error().sentence);
  if (!rested.value()) debug_log::say("some sites of new modules stay as in the file: they cannot be changed now");
}

void say_what_changed(const ModuleSet::Changes& changes) noexcept {
  if (!debug_log::is_on()) return;
  for (const std::unique_ptr<Module>& module : changes.departed)
    if (module->has_sites()) debug_log::say("unloaded %s", module->image().path.c_str());
  for (const Module* const module : changes.added) {
    const std::span<const RefusedSite> refused = module->refused();
    if (!module->has_sites() && refused.empty()) continue;
    debug_log::say("loaded %s: %zu sites, %zu refused%s%s", module->image().path.c_str(), module->site_count(),
                   refused.size(), refused.empty() ? "" : ", the first because ",
                   refused.empty() ? "" : refused.front().reason);
  }
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

Result<void> follow_loader(RegistryState& registry, Follower follower) {
  assert_held(registry.mutex);
  const bool tells_all = registry.loader_hook.tells_all();
  const bool is_loading = follower == Follower::kLoader;
  const auto moment = is_loading  ? ModuleSet::Moment::kLoading
                      : tells_all ? ModuleSet::Moment::kBetweenLoads
                                  : ModuleSet::Moment::kUntold;
  if (is_loading) registry.loader_hook.miss();  // until it is followed
  registry.limbo.reserve_graves(registry.modules.modules().size());
  Result<ModuleSet::Changes> changes = registry.modules.refresh(moment);
  if (!changes.ok()) return changes.error();
  say_what_changed(*changes);
  for (std::unique_ptr<Module>& module : changes->departed) forget_module(registry, std::move(module));

  registry.loader_hook.catch_up();
  bring_to_rest(registry, changes->added, is_loading && tells_all ? Inside::kNobody : Inside::kPerhapsThreads);
  offer_new_modules(registry, follower);
  return {};
}

void tidy_up(RegistryState& registry) noexcept {
  assert_held(registry.mutex);
  registry.limbo.reclaim(registry.slots);
  if (!some_cover_new_modules(registry)) registry.loader_hook.disarm();
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
    if (disarmed.ok() && disarmed.value()) return;
    registry.is_untidy = true;
    debug_log::say(
        "sites without a probe stay armed until a later call: %s",
        disarmed.ok() ? "somebody else's bytes lie there, or text cannot be written" : disarmed.error().sentence);
  } catch (const std::bad_alloc&) {
    registry.is_untidy = true;
  }
}

}  // namespace libfprobe::detail
