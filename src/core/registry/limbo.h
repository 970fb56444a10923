// What was taken out of use and waits for the last reader: lists, slots, the sites of unloaded modules.
//
// Nobody is made to wait here: every operation frees what has become free (one barrier, one look at all guards), and
// unregister frees its own part after its wait.  Guarded by the registry mutex.
#ifndef FPROBE_SRC_CORE_REGISTRY_LIMBO_H_
#define FPROBE_SRC_CORE_REGISTRY_LIMBO_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "registry/module.h"
#include "registry/probe_lists.h"

namespace libfprobe::detail {

// Slots are never deleted, stale frames read their generation.  They have numbers, so that whatever a struct fprobe
// holds where its number should be (a struct nobody initialised) leads to a slot or to none, never to a bad access.
//
//   block 0: numbers 1…16    block 1: 17…48    block k: 16·2^k slots from number 16·(2^k − 1) + 1 on
class SlotPool {
 public:
  constexpr SlotPool() noexcept = default;
  [[nodiscard]] PooledSlot* take();  // throws std::bad_alloc
  void give_back(PooledSlot* slot) noexcept;
  // Any number is allowed; null when no slot has it.  Needs no lock.
  [[nodiscard]] PooledSlot* numbered(std::uintptr_t number) const noexcept;

 private:
  static constexpr std::size_t kFirstBlock = 16, kBlocks = 40;
  void add_block();

  PooledSlot* free_ = nullptr;
  std::atomic<PooledSlot*> blocks_[kBlocks]{};
  std::size_t block_count_ = 0;
};

class Limbo {
 public:
  constexpr Limbo() noexcept = default;

  void add(Retirement* retirement) noexcept;
  // After the wait for its sites: frees it.
  void finish(Retirement* retirement, SlotPool& pool) noexcept;

  // So that bury() cannot fail.
  void reserve_graves(std::size_t modules) { buried_.reserve(buried_.size() + modules); }
  void bury(std::unique_ptr<Module> module) noexcept;

  // Frees what no guard holds.  Does nothing when memory is short.
  void reclaim(SlotPool& pool) noexcept;
  // Adds the sites of everything that waits.  Throws std::bad_alloc.
  void collect_sites(std::vector<const Site*>& sites) const;
  struct Size {
    std::size_t retirements = 0, modules = 0;
  };
  [[nodiscard]] Size size() const noexcept;
  // Adds the Sites of unloaded modules that handlers may still be on.  Throws std::bad_alloc.
  void collect_buried_sites(std::vector<const Site*>& sites) const;
  // In a fork child: the threads that waited are gone.
  void forget_waiters() noexcept;

 private:
  void free_retirements(const std::vector<const Site*>& busy, SlotPool& pool) noexcept;
  void free_modules(const std::vector<const Site*>& busy) noexcept;

  Retirement* first_ = nullptr;
  std::vector<std::unique_ptr<Module>> buried_;
};

}  // namespace libfprobe::detail

#endif  // FPROBE_SRC_CORE_REGISTRY_LIMBO_H_
