// The registry's one root object, and what its files (registry.cpp, detach.cpp, listing.cpp) share.
//
// Everything in it but the site table's readers is guarded by `mutex`.  It is constant-initialised and never destroyed:
// probes fire before main and after it.
#ifndef FPROBE_SRC_CORE_REGISTRY_STATE_H_
#define FPROBE_SRC_CORE_REGISTRY_STATE_H_

#include <errno.h>
#include <pthread.h>

#include <memory>
#include <new>
#include <optional>
#include <string>
#include <vector>

#include "base/attributes.h"
#include "base/mutex.h"
#include "base/result.h"
#include "image/image_list.h"
#include "registry/arming.h"
#include "registry/grace.h"
#include "registry/limbo.h"
#include "registry/loader_hook.h"
#include "registry/module.h"
#include "registry/site_table.h"
#include "registry/targets.h"

namespace libfprobe::detail {

// One live registration.
struct Registration {
  fprobe* probe = nullptr;
  std::uintptr_t entry_handler = 0, exit_handler = 0;  // 0: none
  ListEntry entry;                                     // what the lists of its sites have
  Selection records;                                   // by address; those of unloaded modules are taken out
  std::string origin;                                  // what was asked for, for humans
  std::unique_ptr<const Filter> filter;                // FPROBE_FL_NEW_MODULES: what it selects in modules to come
  std::unique_ptr<Retirement> retirement;              // prepared, so that unregister needs no memory for it
};

struct RegistryState {
  // Protects modules, records, lists, slots and limbo.  text_poke, near_alloc and the loader's list lock nest in it.
  // Never held while a handler or a callback of the user runs, nor during a wait for handlers.
  RankedMutex mutex{LockRank::kRegistry};
  ModuleSet modules;
  SiteTable table;
  SlotPool slots;
  Limbo limbo;
  PooledSlot* live = nullptr;                 // every live registration's slot
  std::uint64_t registrations = 0;            // so many were begun
  TextForm resting_form = TextForm::kIdle;    // of sites without probes
  bool (*prepare_threads)() = nullptr;        // see registry::on_arming
  void (*enter_thread)() noexcept = nullptr;  // see registry::on_loader_change
  bool is_untidy = false;                     // dead entries or armed sites without probes were left behind
  LoaderHook loader_hook;                     // armed while some registration keeps its filter, see new_modules.h
};
[[nodiscard]] FPROBE_HOT RegistryState& state() noexcept;

// No pthread_cancel() acts while the library works.
class CancellationOff {
 public:
  CancellationOff() noexcept { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before_); }
  ~CancellationOff() { pthread_setcancelstate(before_, nullptr); }
  CancellationOff(const CancellationOff&) = delete;
  CancellationOff& operator=(const CancellationOff&) = delete;

 private:
  int before_ = PTHREAD_CANCEL_ENABLE;
};

// One piece of the library's own work: the mutex is held, and probed functions called by it are recursion.  `frame`
// lies above everything the work calls, see LibraryScope.
class Operation {
 public:
  explicit Operation(void* frame = __builtin_frame_address(0)) noexcept : scope_(frame), lock_(state().mutex) {}

 private:
  CancellationOff cancellation_;
  grace::LibraryScope scope_;
  MutexLock lock_;
};

[[nodiscard]] inline Error no_memory() noexcept {
  return make_error(ENOMEM,
                    "out of memory: nothing was changed; free some, or raise the limit of the process, and call again");
}

// Does `work` (→ Result<...>) inside the loader's lock, so that no module disappears meanwhile.  Allocation failures
// become -ENOMEM here: no exception may pass through the loader's frames.
template <class Work>
auto with_loader_locked(const Work& work) -> decltype(work()) {
  std::optional<decltype(work())> result;
  LoaderLock::run([&](const LoaderLock&) {
    try {
      result.emplace(work());
    } catch (const std::bad_alloc&) {
      result.emplace(no_memory());
    }
  });
  return std::move(*result);
}

// Follows loading and unloading: new modules' sites are put into their resting form and offered to the registrations
// that cover new modules (new_modules.h), departed ones leave all lists.  Under the mutex and the loader's lock.
enum class Follower { kOperation, kLoader };  // kLoader: the thread that loads, in the hook
[[nodiscard]] Result<void> follow_loader(RegistryState& registry, Follower follower = Follower::kOperation);
// Frees what nobody reads any more and retries what unregister had to leave behind.  Likewise.
void tidy_up(RegistryState& registry) noexcept;
// Takes dead entries out of the lists of `records`; sites without a probe go back to their resting form.  What cannot
// be done for want of memory, or because a debugger sits on a site, is left to tidy_up().
void withdraw(RegistryState& registry, std::span<SiteRecord* const> records, Retirement& retirement) noexcept;
// The slot of a struct that is registered, else null.  Needs no lock; the answer may be old then.
[[nodiscard]] PooledSlot* live_slot(const fprobe& probe) noexcept;

}  // namespace libfprobe::detail

#endif  // FPROBE_SRC_CORE_REGISTRY_STATE_H_
