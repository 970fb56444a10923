// See new_modules.h.
#include "registry/new_modules.h"

#include <errno.h>

#include <algorithm>
#include <utility>

#include "base/debug_log.h"
#include "registry/attachment.h"
#include "registry/registry.h"

extern "C" __attribute__((visibility("hidden"))) void fprobe_loader_changed() noexcept;  // called by loader_hook.S

namespace libfprobe::detail {
namespace {

constexpr auto kByAddress = [](const SiteRecord* a, const SiteRecord* b) { return a->found.ip < b->found.ip; };

// One registration comes to one module.
class Extension {
 public:
  Extension(RegistryState& registry, Registration& registration, Selection added)
      : registry_(registry), registration_(registration), added_(std::move(added)), attachment_(registry, added_) {}

  [[nodiscard]] Result<void> prepare();
  void commit() noexcept;

 private:
  RegistryState& registry_;
  Registration& registration_;
  Selection added_, all_;
  std::vector<const Site*> all_sites_;
  Attachment attachment_;
};

Result<void> Extension::prepare() {
  all_ = registration_.records;
  all_.insert(all_.end(), added_.begin(), added_.end());
  std::sort(all_.begin(), all_.end(), kByAddress);
  // unregister waits for all of them: also those of departed modules that are not forgotten yet.
  registry_.limbo.collect_buried_sites(all_sites_);
  all_sites_.reserve(all_sites_.size() + all_.size());
  registration_.retirement->lists.reserve(all_.size());
  return attachment_.prepare(registration_.entry);
}

void Extension::commit() noexcept {
  for (const SiteRecord* const record : all_) all_sites_.push_back(record->site);
  std::sort(all_sites_.begin(), all_sites_.end());
  registration_.records = std::move(all_);
  registration_.retirement->sites = std::move(all_sites_);
  attachment_.publish();
}

// The sites of the module that the registration wants and has not.
Result<Selection> missing_sites(RegistryState& registry, const Registration& registration, Module& module) {
  Result<Selection> selected = resolve_in(registry.modules, module, *registration.filter, handlers_of_all(registry));
  if (!selected.ok()) return selected;
  std::erase_if(*selected, [&](const SiteRecord* record) {
    return std::binary_search(registration.records.begin(), registration.records.end(), record, kByAddress);
  });
  return selected;
}

Result<void> extend(RegistryState& registry, Registration& registration, Module& module) {
  Result<Selection> added = missing_sites(registry, registration, module);
  if (!added.ok()) return added.error();
  if (added->empty()) return {};
  const std::size_t count = added->size();
  Extension extension(registry, registration, std::move(*added));
  if (Result<void> prepared = extension.prepare(); !prepared.ok()) return prepared;
  extension.commit();
  debug_log::say("%p covers %zu sites more in %s", static_cast<const void*>(registration.probe), count,
                 module.image().path.c_str());
  return {};
}

// False: the registration has to try again.
bool offer_to(RegistryState& registry, Registration& registration, Module& module) noexcept {
  const auto fail = [&](const char* sentence) {
    debug_log::say("%p does not cover %s, tried again at the next call: %s",
                   static_cast<const void*>(registration.probe), module.image().path.c_str(), sentence);
    return false;
  };
  try {
    const Result<void> extended = extend(registry, registration, module);
    return extended.ok() || fail(extended.error().sentence);
  } catch (const std::bad_alloc&) {
    return fail("out of memory");
  }
}

// False: at least one registration has to try again.
bool offer(RegistryState& registry, Module& module) noexcept {
  bool all_done = true;
  for (PooledSlot* slot = registry.live; slot != nullptr; slot = slot->next)
    if (slot->registration->filter != nullptr && !offer_to(registry, *slot->registration, module)) all_done = false;
  return all_done;
}

// On the thread that loads or unloads.
void follow_load() noexcept {
  RegistryState& registry = state();
  // A signal handler, or an allocator of the program's own, that loads modules in the middle of an operation of ours:
  // the next operation follows.
  if (registry.mutex.held_by_me()) return registry.loader_hook.miss();
  if (registry.enter_thread != nullptr) registry.enter_thread();
  const Operation operation;
  if (!registry.loader_hook.is_armed() || !registry.loader_hook.is_consistent()) return;
  (void)with_loader_locked([&]() -> Result<void> {
    registry.limbo.reclaim(registry.slots);
    Result<void> followed = follow_loader(registry, Follower::kLoader);
    if (!followed.ok())
      debug_log::say("what the loader changed is left to the next call: %s", followed.error().sentence);
    return followed;
  });
}

}  // namespace

std::vector<std::uintptr_t> handlers_of_all(const RegistryState& registry) {
  std::vector<std::uintptr_t> handlers;
  for (const PooledSlot* slot = registry.live; slot != nullptr; slot = slot->next)
    for (const std::uintptr_t handler : {slot->registration->entry_handler, slot->registration->exit_handler})
      if (handler != 0) handlers.push_back(handler);
  return handlers;
}

bool some_cover_new_modules(const RegistryState& registry) noexcept {
  for (const PooledSlot* slot = registry.live; slot != nullptr; slot = slot->next)
    if (slot->registration->filter != nullptr) return true;
  return false;
}

void offer_new_modules(RegistryState& registry, Follower follower) noexcept {
  assert_held(registry.mutex);
  const bool is_wanted = some_cover_new_modules(registry);
  for (const auto& module : registry.modules.modules()) {
    if (module->was_offered()) continue;
    if (is_wanted && !offer(registry, *module)) continue;
    // IFUNCs of a module that is not relocated have no implementation yet: its aliases are looked at once more.
    if (follower == Follower::kOperation || !module->has_unbound_names()) module->set_offered();
  }
}

namespace registry {

void on_loader_change(void (*enter_thread)() noexcept) noexcept {
  state().enter_thread = enter_thread;
}

}  // namespace registry
}  // namespace libfprobe::detail

void fprobe_loader_changed() noexcept {
  const int saved = errno;
  libfprobe::detail::follow_load();
  errno = saved;
}
