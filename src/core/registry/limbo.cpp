// See limbo.h.
#include "registry/limbo.h"

#include <algorithm>
#include <bit>
#include <new>

#include "base/syscalls.h"
#include "patch/text_poke.h"
#include "registry/grace.h"

namespace libfprobe::detail {
namespace {

void free_retirement(Retirement* retirement, SlotPool& pool) noexcept {
  release_lists(retirement->lists);
  if (retirement->slot != nullptr) pool.give_back(retirement->slot);
  delete retirement;
}

bool holds_one_of(const Retirement& retirement, const std::vector<const Site*>& busy) noexcept {
  return std::any_of(busy.begin(), busy.end(), [&](const Site* site) {
    return std::binary_search(retirement.sites.begin(), retirement.sites.end(), site);
  });
}

bool holds_one_of(Module& module, const std::vector<const Site*>& busy) noexcept {
  const std::span<SiteRecord> sites = module.sites();
  return std::any_of(sites.begin(), sites.end(), [&](const SiteRecord& record) {
    return record.site != nullptr && std::binary_search(busy.begin(), busy.end(), record.site);
  });
}

}  // namespace

// --- SlotPool --------------------------------------------------------------------------------------------------------

void SlotPool::add_block() {
  if (!sys::allocation_allowed() || block_count_ == kBlocks) throw std::bad_alloc();
  const std::size_t size = kFirstBlock << block_count_;
  PooledSlot* const block = new PooledSlot[size];
  for (std::size_t i = size; i > 0; --i) {
    block[i - 1].number = size - kFirstBlock + i;
    give_back(&block[i - 1]);
  }
  // release: pairs with the acquire in numbered(), the slots are constructed [SLOTS].
  blocks_[block_count_++].store(block, std::memory_order_release);
}

PooledSlot* SlotPool::numbered(std::uintptr_t number) const noexcept {
  if (number == 0 || number > (kFirstBlock << kBlocks) - kFirstBlock) return nullptr;
  const std::size_t place = number - 1 + kFirstBlock;  // block k covers places 16·2^k … 16·2^(k+1) − 1
  const auto block = static_cast<std::size_t>(std::bit_width(place / kFirstBlock)) - 1;
  PooledSlot* const slots = blocks_[block].load(std::memory_order_acquire);  // pairs with add_block() [SLOTS]
  return slots != nullptr ? &slots[place - (kFirstBlock << block)] : nullptr;
}

PooledSlot* SlotPool::take() {
  if (free_ == nullptr) add_block();
  PooledSlot* const slot = free_;
  free_ = slot->next;
  slot->next = nullptr;
  return slot;
}

void SlotPool::give_back(PooledSlot* slot) noexcept {
  slot->registration = nullptr;
  slot->next = free_;
  free_ = slot;
}

// --- Limbo -----------------------------------------------------------------------------------------------------------

void Limbo::add(Retirement* retirement) noexcept {
  retirement->next = first_;
  first_ = retirement;
}

void Limbo::finish(Retirement* retirement, SlotPool& pool) noexcept {
  Retirement** link = &first_;
  while (*link != retirement) link = &(*link)->next;
  *link = retirement->next;
  free_retirement(retirement, pool);
}

void Limbo::bury(std::unique_ptr<Module> module) noexcept {
  buried_.push_back(std::move(module));
}

void Limbo::reclaim(SlotPool& pool) noexcept {
  if (first_ == nullptr && buried_.empty()) return;
  // Whoever opened a guard before its list was replaced is seen below; whoever is not seen loads the new list [GRACE].
  if (!barrier_memory()) return;
  std::vector<const Site*> busy;
  if (!grace::busy_sites(busy)) return;
  free_retirements(busy, pool);
  free_modules(busy);
}

void Limbo::free_retirements(const std::vector<const Site*>& busy, SlotPool& pool) noexcept {
  for (Retirement** link = &first_; *link != nullptr;) {
    Retirement* const retirement = *link;
    if (retirement->has_waiter || holds_one_of(*retirement, busy)) {
      link = &retirement->next;
      continue;
    }
    *link = retirement->next;
    free_retirement(retirement, pool);
  }
}

// The code of an unloaded module is called by nobody, so its thunks are empty; a handler may still run in a frame that
// the program kept alive wrongly: such a module stays.
void Limbo::free_modules(const std::vector<const Site*>& busy) noexcept {
  std::erase_if(buried_, [&](const std::unique_ptr<Module>& module) {
    if (holds_one_of(*module, busy)) return false;
    for (const SiteRecord& record : module->sites())
      if (record.site != nullptr) release_list(record.site->probes.load(std::memory_order_relaxed));
    return true;
  });
}

void Limbo::collect_sites(std::vector<const Site*>& sites) const {
  for (const Retirement* retirement = first_; retirement != nullptr; retirement = retirement->next)
    sites.insert(sites.end(), retirement->sites.begin(), retirement->sites.end());
}

Limbo::Size Limbo::size() const noexcept {
  Size size{0, buried_.size()};
  for (const Retirement* retirement = first_; retirement != nullptr; retirement = retirement->next) ++size.retirements;
  return size;
}

void Limbo::collect_buried_sites(std::vector<const Site*>& sites) const {
  for (const std::unique_ptr<Module>& module : buried_)
    for (const SiteRecord& record : module->sites())
      if (record.site != nullptr) sites.push_back(record.site);
}

void Limbo::forget_waiters() noexcept {
  for (Retirement* retirement = first_; retirement != nullptr; retirement = retirement->next)
    retirement->has_waiter = false;
}

}  // namespace libfprobe::detail
