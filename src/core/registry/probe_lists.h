// Probe lists from a writer's point of view: build, publish, retire, free.
//
//   plan(site, list)  ...            may fail, changes nothing
//   publish(retirement)              cannot fail: stores every new list [PUBLISH], hands the old ones to `retirement`
//   Retirement ──► freed when no guard holds one of its sites (grace.h)
//
// Sites with the same probes share one list, so a probe on 100,000 functions costs one list and the hit path finds it
// in its cache.  Hence lists are counted: one reference for each site that shows it and for each retirement that took
// it from a site; a list shared by S1 and S2 and retired from both at different times outlives both waits.  All counts
// are guarded by the registry mutex.
#ifndef FPROBE_SRC_CORE_REGISTRY_PROBE_LISTS_H_
#define FPROBE_SRC_CORE_REGISTRY_PROBE_LISTS_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "registry/site.h"

namespace libfprobe::detail {

struct Registration;

// Slots are type-stable; the pool hands them out again under a later generation.
struct PooledSlot : ProbeSlot {
  std::uintptr_t number = 0;             // in the pool, from 1: what a registered struct keeps (fprobe.handle)
  std::uint64_t order = 0;               // of the registration: later ones have higher numbers
  PooledSlot* next = nullptr;            // in the pool, or among the live ones
  Registration* registration = nullptr;  // while live
};

// What a transaction took out of use and a hit may still read.
struct Retirement {
  Retirement* next = nullptr;           // in the limbo
  std::vector<const Site*> sites;       // sorted; a guard that holds none of them reads none of the lists
  std::vector<const ProbeList*> lists;  // one reference each
  PooledSlot* slot = nullptr;           // goes back to the pool with the lists
  bool has_waiter = false;              // a thread waits for it and will free it
};

// Drops the references; afterwards the lists vector is empty.
void release_lists(std::vector<const ProbeList*>& lists) noexcept;
// One reference of one list; null is ignored.
void release_list(const ProbeList* list) noexcept;

// Whether the entry's registration is still live.
[[nodiscard]] bool is_live(const ListEntry& entry) noexcept;
[[nodiscard]] bool all_live(const ProbeList* list) noexcept;

class ListChanges {
 public:
  ListChanges() = default;
  ~ListChanges();  // frees lists that were never published
  ListChanges(const ListChanges&) = delete;
  ListChanges& operator=(const ListChanges&) = delete;

  void reserve(std::size_t sites) { changes_.reserve(sites); }
  // The site will show its live entries, and `added` when given: in front of all that were registered before it.  Throws
  // std::bad_alloc.
  void plan(Site& site, const ListEntry* added);
  // How many old lists publish() will hand over.
  [[nodiscard]] std::size_t retired_count() const noexcept { return retired_count_; }
  // `retired` has room for retired_count() more.
  void publish(std::vector<const ProbeList*>& retired) noexcept;

 private:
  struct Change {
    Site* site;
    const ProbeList* next;
  };
  [[nodiscard]] const ProbeList* successor(const ProbeList* old, const ListEntry* added);

  std::vector<Change> changes_;
  std::unordered_map<const ProbeList*, const ProbeList*> successors_;  // old → new, the same for all sites of a batch
  std::size_t retired_count_ = 0;
};

}  // namespace libfprobe::detail

#endif  // FPROBE_SRC_CORE_REGISTRY_PROBE_LISTS_H_
