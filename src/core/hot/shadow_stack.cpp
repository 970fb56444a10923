// The rare parts of the shadow stack: growth, blocks for many probes or much entry data, links inside the list.
#include "hot/shadow_stack.h"

namespace libfprobe::detail {
namespace {

constexpr std::size_t kSmallestBlock = 256;

// `size` bytes from `next` on, 0 when they would pass `end`.  relaxed: only signal handlers of this thread interfere.
FPROBE_UNPROBED FPROBE_UNSANITIZED std::uintptr_t take(std::atomic<std::uintptr_t>& next, std::size_t size,
                                                       std::uintptr_t end) noexcept {
  if (end - next.load(std::memory_order_relaxed) < size) return 0;
  const std::uintptr_t place = next.fetch_add(size, std::memory_order_relaxed);
  if (place <= end && end - place >= size) return place;
  next.fetch_sub(size, std::memory_order_relaxed);
  return 0;
}

}  // namespace

void ShadowStack::prepare(std::uintptr_t records, std::size_t frames, std::uintptr_t blocks,
                          std::uintptr_t blocks_end) noexcept {
  bottom_.slot.store(kBottomSlot, std::memory_order_relaxed);  // not shared yet
  header.top = header.hint = &bottom_;
  first_record_ = records;
  next_record_.store(records, std::memory_order_relaxed);  // not shared yet
  records_end_ = records + frames * sizeof(FrameRecord);
  next_block_.store(blocks, std::memory_order_relaxed);
  blocks_end_ = blocks_end;
}

FrameRecord* ShadowStack::grow() noexcept {
  const std::uintptr_t place = take(next_record_, sizeof(FrameRecord), records_end_);
  if (place == 0) return nullptr;
  auto* record = reinterpret_cast<FrameRecord*>(place);
  record->slot.store(kDeadSlot, std::memory_order_relaxed);  // not linked yet
  record->next_free = nullptr;
  return record;
}

// Blocks hold `probes` FrameProbes and then the entry data.  Class c holds kSmallestBlock << (c - 1) bytes.
FrameRecord* ShadowStack::allocate_block(FrameRecord* record, std::uint32_t probes, std::uint32_t data_bytes) noexcept {
  const std::size_t wanted = probes * sizeof(FrameProbe) + data_bytes;
  unsigned block_class = 1;
  while (block_class < kBlockClasses && (kSmallestBlock << (block_class - 1)) < wanted) ++block_class;
  void* block = nullptr;
  if (block_class < kBlockClasses) {
    const std::size_t size = kSmallestBlock << (block_class - 1);
    block = free_blocks_[block_class];
    if (block != nullptr) {
      free_blocks_[block_class] = *static_cast<void**>(block);
    } else {
      block = reinterpret_cast<void*>(take(next_block_, size, blocks_end_));
    }
  }
  if (block == nullptr) {
    release(record);
    return nullptr;
  }
  record->block_class = static_cast<std::uint8_t>(block_class);
  record->block = static_cast<FrameProbe*>(block);
  return record;
}

void ShadowStack::release_block(FrameRecord* record) noexcept {
  void* block = record->block;
  *static_cast<void**>(block) = free_blocks_[record->block_class];
  free_blocks_[record->block_class] = block;
  record->block_class = 0;
}

void ShadowStack::unlink_inner(FrameRecord* record) noexcept {
  FrameRecord* newer = header.top;
  while (newer != &bottom_ && newer->prev != record) newer = newer->prev;
  if (newer->prev == record) newer->prev = record->prev;
}

// The owner may push and pop meanwhile.  Records are never unmapped, and the one we look for is live, so it stays
// linked; a record released under our feet still leads to the older ones.  Only when the owner moved our place by pushing
// it anew can the walk have to start again.  acquire: pairs with who finishes a frame of another thread [FOREIGN].
FrameRecord* ShadowStack::find_foreign(std::uintptr_t slot) const noexcept {
  constexpr unsigned kAttempts = 1000;
  for (unsigned attempt = 0; attempt < kAttempts; ++attempt) {
    FrameRecord* record = __atomic_load_n(&header.top, __ATOMIC_ACQUIRE);
    while (record != nullptr && record != &bottom_) {
      if (record->slot.load(std::memory_order_acquire) == slot) return record;
      record = __atomic_load_n(&record->prev, __ATOMIC_ACQUIRE);
    }
  }
  return nullptr;
}

FrameRecord* ShadowStack::find_released(std::uintptr_t slot) const noexcept {
  for (FrameRecord* record = free_; record != nullptr; record = record->next_free) {
    if (record->slot.load(std::memory_order_relaxed) == (slot | kDeadSlot)) return record;  // own thread's
  }
  return nullptr;
}

}  // namespace libfprobe::detail
