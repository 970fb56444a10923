// The data a hit reads: Site → ProbeList → ProbeSlot.
//
//   thunk ──► Site ──probes──► ProbeList {count, entries, newest first}      immutable; replaced as a whole [PUBLISH]
//                                  └─ entry ──► fprobe (the user's), ──► ProbeSlot {generation}      type-stable
//
// A list is read only between guard.open(site) and guard.close() (grace.h); it is freed when no guard can hold it.  A
// frame on a shadow stack outlives every list and every struct fprobe: it keeps {slot, generation} and asks again at
// exit.
#ifndef FPROBE_SRC_CORE_REGISTRY_SITE_H_
#define FPROBE_SRC_CORE_REGISTRY_SITE_H_

#include <fprobe/fprobe.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/arch.h"
#include "regs_offsets.h"  // from src/arch/<cpu>/

namespace libfprobe::detail {

struct SiteRecord;  // registry/module.h: everything of a site that no hit reads

// One registration.  Slots are never freed, only used anew under a later generation, so a stale reference is always
// readable.
struct ProbeSlot {
  // Odd while live.  Raised at registration (release, after the fields below) and first thing at unregistration.
  // A hit compares it with its own copy inside the guard; equal means: fields are this registration's, `probe` is
  // valid.
  std::atomic<std::uint64_t> generation{0};
  fprobe* probe = nullptr;
  fprobe_exit_cb exit_handler = nullptr;
  unsigned flags = 0;           // probe->flags at registration (FPROBE_FL_KPROBE_SHARED is fixed then)
  unsigned long ops_flags = 0;  // probe->ops.flags at registration
};

// One probe of a site: copies of what the entry half needs.
struct ListEntry {
  fprobe* probe = nullptr;
  fprobe_entry_cb entry_handler = nullptr;
  ProbeSlot* slot = nullptr;
  std::uint64_t generation =
      0;                        // slot->generation differs: unregistered, skip (lets unregister succeed without memory)
  std::uint32_t data_size = 0;  // bytes, rounded up to longs; 0 without an exit handler
  bool has_exit = false;
  std::uint8_t entry_keeps = 0, exit_keeps = 0;  // arch::kKeep...: what each half's handler may change
};

struct ProbeList {
  std::uint32_t count = 0;
  std::uint32_t exit_count = 0;                  // entries with an exit handler: 0 means that no frame is needed
  std::uint32_t data_bytes = 0;                  // sum of data_size over the entries
  std::uint8_t entry_keeps = 0, exit_keeps = 0;  // of all entries
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wpedantic"  // both compilers know C's flexible array, neither gives it a C++ name
  ListEntry entries[];                       // newest registration first
#pragma GCC diagnostic pop
};

// Near its module (thunks address it rip-relative), 64 bytes, kept until the module is unmapped.
struct alignas(64) Site {
  std::atomic<const ProbeList*> probes{nullptr};  // null: no probe. acquire/release [PUBLISH]
  std::uintptr_t ip = 0;                          // entry_ip
  std::uintptr_t resume = 0;                      // ip + site length: where the function goes on
  std::uintptr_t tail = 0;  // the thunk's tail: jumps to resume (re-pushes a nested function's chain)
  SiteRecord* record = nullptr;
  arch::SiteShape shape;
  // Its return slot can only be written, not planted by a call: behind a prologue; for good once it was dispatched from
  // a live call, because frames in flight ask.
  bool overwrites = false;
  bool may_exit = true;    // false: its return address cannot be replaced here, every exit that is due is a miss
  std::uint8_t keeps = 0;  // arch::kKeep...: what its callers may rely on
};

// Offsets that entry.S uses.
static_assert(offsetof(Site, ip) == SITE_IP && offsetof(Site, resume) == SITE_RESUME);
static_assert(sizeof(Site) == 64);

}  // namespace libfprobe::detail

#endif  // FPROBE_SRC_CORE_REGISTRY_SITE_H_
