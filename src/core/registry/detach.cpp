// See registry.h: unregister, synchronize, restore, fork.
//
//   generation raised (no handler starts any more) ─ new lists published ─ disarmed ─ unlock ─ barrier ─ wait ─ free
//
// Nothing here can fail: without memory the old lists stay, their entries dead by generation, and a later operation
// takes them away.
#include <algorithm>
#include <vector>

#include "base/debug_log.h"
#include "patch/text_poke.h"
#include "registry/new_modules.h"
#include "registry/registry.h"
#include "registry/state.h"

namespace libfprobe::detail {
namespace {

Error not_registered() noexcept {
  return make_error(EINVAL, "this struct fprobe is not registered any more: another thread unregistered it first");
}

bool is_inside_handler() noexcept {
  return tls_participant != nullptr && tls_participant->inside_handler();
}

void unlink_live(RegistryState& registry, PooledSlot* slot) noexcept {
  PooledSlot** link = &registry.live;
  while (*link != slot) link = &(*link)->next;
  *link = slot->next;
  slot->next = nullptr;
}

// From here on no handler of the probe starts; the Retirement holds what running ones may still read.
Retirement* take_off(RegistryState& registry, PooledSlot& slot, registry::Waiting waiting) noexcept {
  // release: pairs with the acquire of whoever compares generations; even: dead [GENERATION].
  slot.generation.fetch_add(1, std::memory_order_release);
  unlink_live(registry, &slot);
  const std::unique_ptr<Registration> registration(slot.registration);
  slot.registration = nullptr;
  __atomic_store_n(&registration->probe->handle, nullptr, __ATOMIC_RELEASE);

  Retirement* const retirement = registration->retirement.release();
  retirement->slot = &slot;
  retirement->has_waiter = waiting == registry::Waiting::kForHandlers;
  registry.limbo.add(retirement);
  (void)with_loader_locked([&]() -> Result<void> {
    withdraw(registry, registration->records, *retirement);
    if (!some_cover_new_modules(registry)) registry.loader_hook.disarm();
    return {};
  });
  return retirement;
}

// Waits for every hit that was on one of these sites when this was called.
void wait_for_handlers(std::span<const Site* const> sites) noexcept {
  // Whoever opened its guard before the generation was raised is seen by the wait; whoever is not seen finds it raised
  // [GRACE].
  (void)barrier_memory();  // attach made sure that barriers work
  grace::wait_for(sites);
}

}  // namespace

namespace registry {

Result<void> detach(fprobe& probe, Waiting waiting) {
  if (live_slot(probe) == nullptr) return not_registered();
  if (waiting == Waiting::kForHandlers && is_inside_handler())
    return make_error(EDEADLK,
                      "unregister_fprobe() inside a handler would wait for itself: use "
                      "unregister_fprobe_async()");
  RegistryState& registry = state();
  const debug_log::Stopwatch watch;
  Retirement* retirement = nullptr;
  {
    const Operation operation;
    PooledSlot* const slot = live_slot(probe);
    if (slot == nullptr) return not_registered();  // another thread was first
    (void)with_loader_locked([&]() -> Result<void> {
      tidy_up(registry);
      return follow_loader(registry);
    });
    retirement = take_off(registry, *slot, waiting);
  }
  const void* const name = &probe;  // what it was: others may free it from here on
  if (waiting == Waiting::kNone) {
    debug_log::say("unregistered %p, %ld us; its handlers may still run", name, watch.microseconds());
    return {};
  }
  const debug_log::Stopwatch wait;
  wait_for_handlers(retirement->sites);
  debug_log::say("unregistered %p: %zu sites, %ld us, waited %ld us of them", name, retirement->sites.size(),
                 watch.microseconds(), wait.microseconds());
  const Operation operation;
  registry.limbo.finish(retirement, registry.slots);
  return {};
}

Result<void> synchronize() {
  if (is_inside_handler())
    return make_error(
        EDEADLK,
        "fprobe_synchronize() inside a handler would wait for itself: call unregister_fprobe_async() here, "
        "and fprobe_synchronize() outside of handlers before the probe is freed");
  RegistryState& registry = state();
  std::vector<const Site*> sites;
  bool knows_sites = true;
  {
    const Operation operation;
    try {
      registry.limbo.collect_sites(sites);
      std::sort(sites.begin(), sites.end());
    } catch (const std::bad_alloc&) {
      knows_sites = false;
    }
  }
  if (knows_sites) {
    wait_for_handlers(sites);
  } else {
    (void)barrier_memory();
    grace::wait_for_all();
  }
  const Operation operation;
  return with_loader_locked([&]() -> Result<void> {
    tidy_up(registry);
    // What a load could not attach is tried again; its failure is none of what was asked for here.
    if (some_cover_new_modules(registry)) (void)follow_loader(registry);
    return {};
  });
}

Result<void> restore_text() {
  RegistryState& registry = state();
  const Operation operation;
  if (registry.live != nullptr) return make_error(EBUSY, "a probe is still registered: unregister all of them first");
  return with_loader_locked([&]() -> Result<void> {
    tidy_up(registry);
    if (Result<void> followed = follow_loader(registry); !followed.ok()) return followed;
    std::vector<SiteRecord*> records;
    for (const auto& module : registry.modules.modules())
      for (SiteRecord& record : module->sites()) records.push_back(&record);
    const Result<bool> restored = bring_into_form(records, TextForm::kOriginal, PokeMode::kAllOrNothing);
    if (!restored.ok()) return restored.error();
    return {};
  });
}

void lock_for_fork() noexcept {
  state().mutex.lock();
}

void unlock_after_fork() noexcept {
  state().mutex.unlock();
}

void reset_in_child() noexcept {
  grace::reset_after_fork();
  state().limbo.forget_waiters();
}

}  // namespace registry
}  // namespace libfprobe::detail
