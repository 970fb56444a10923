// Transactions over modules, sites and probe lists: register prepares what can fail and commits what cannot; unregister
// cannot fail.
//
//   attach:  lock ─ refresh modules ─ resolve targets ─ Sites and thunks ─ new lists ─ poke (arm) ─ publish ─ unlock
//   detach:  lock ─ raise the generation ─ new lists published ─ poke (disarm) ─ unlock ─ barrier ─ wait ─ free
//
// Sites are armed before a list is published: a hit with no list runs the function untouched, so a refused poke leaves
// nothing behind.  Lock order: loader (dlopen) -> registry -> the loader's list of modules (dl_iterate_phdr) -> text_poke
// -> near_alloc.  Under the registry mutex never dlopen, dlsym, dladdr; inside a dl_iterate_phdr callback of the
// program's own never register.
#ifndef FPROBE_SRC_CORE_REGISTRY_REGISTRY_H_
#define FPROBE_SRC_CORE_REGISTRY_REGISTRY_H_

#include <fprobe/fprobe.h>

#include <cstdint>
#include <span>

#include "base/attributes.h"
#include "base/result.h"
#include "registry/site.h"

namespace libfprobe::detail {

struct FilterTarget {
  const char* match = nullptr;
  const char* exclude = nullptr;
};
using SymbolsTarget = std::span<const char* const>;
using AddressesTarget = std::span<const unsigned long>;

namespace registry {

[[nodiscard]] Result<void> attach(fprobe& probe, const FilterTarget& target);
[[nodiscard]] Result<void> attach(fprobe& probe, SymbolsTarget target);
[[nodiscard]] Result<void> attach(fprobe& probe, AddressesTarget target);
[[nodiscard]] Result<unsigned long> count_matches(const FilterTarget& target);

enum class Waiting { kForHandlers, kNone };
[[nodiscard]] Result<void> detach(fprobe& probe, Waiting waiting);
[[nodiscard]] bool is_attached(const fprobe& probe) noexcept;

[[nodiscard]] Result<void> synchronize();
[[nodiscard]] Result<void> restore_text();
// First non-zero answer of `visit`; no lock is held while it runs.
[[nodiscard]] Result<int> for_each_site(int (*visit)(const fprobe_site*, void*), void* argument);

// Load-time preparation: finds the sites of what is loaded and puts them into idle form.
void prepare_loaded_modules() noexcept;
// Call before it when a profiler (gmon) needs the calls: sites without probes then keep the file's bytes.
void keep_sites_live() noexcept;
// At load: every hit keeps the CPU's whole state.
void keep_everything() noexcept;
// `prepare_threads` is called before sites are armed: states for all threads; false: no memory (installed at load).
void on_arming(bool (*prepare_threads)()) noexcept;
// `enter_thread` is called when the loader loads or unloads, before the registry works on that thread: gives it a state,
// and notices a fork (installed at load).
void on_loader_change(void (*enter_thread)() noexcept) noexcept;
// fork: the locks are taken before, released after on both sides; the child forgets the other threads.
void lock_for_fork() noexcept;
void unlock_after_fork() noexcept;
void reset_in_child() noexcept;

// entry_ip → Site, lock-free and async-signal-safe; null when nothing was ever probed there.
[[nodiscard]] FPROBE_HOT const Site* find_site(std::uintptr_t ip) noexcept;

}  // namespace registry
}  // namespace libfprobe::detail

#endif  // FPROBE_SRC_CORE_REGISTRY_REGISTRY_H_
