// The shadow stack of one thread: the true return addresses of hijacked calls, and what their exits need.
//
//   header ──prev──► newest record ──prev──► ... ──prev──► bottom (slot 0, return address 0)
//   free   ──next_free──► unused record ──next_free──► ...
//
// Offsets 0, 8 and 16 of a record and 24 of the header are read by the return stubs' unwind expression (return.S): an
// unwinder may run at any instruction, so a record is linked only when complete and its slot is dead while
// unlinked. Records form a list, not an array: two fibers that push, yield and pop would make an array grow without
// bound.
//
// Liveness is read from the slot, not from order: outside the guard, a live frame's slot word is the thread's stub.
// Only the owner moves links; another thread that finishes a frame (a fiber moved) releases `slot` [FOREIGN].
#ifndef FPROBE_SRC_CORE_HOT_SHADOW_STACK_H_
#define FPROBE_SRC_CORE_HOT_SHADOW_STACK_H_

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/attributes.h"
#include "registry/site.h"

namespace libfprobe::detail {

inline constexpr std::uintptr_t kBottomSlot = 0;
// A record that is not linked, or finished by another thread, has an odd slot: what it had, so that a function that returns
// twice is recognised, and 1.
inline constexpr std::uintptr_t kDeadSlot = 1;
[[nodiscard]] constexpr bool is_dead(std::uintptr_t slot) noexcept {
  return (slot & kDeadSlot) != 0;
}

// One exit that is due.
struct FrameProbe {
  ProbeSlot* slot;
  std::uint64_t generation;
  unsigned long* data;
};

struct FrameRecord {
  std::uintptr_t return_address = 0;            // offset 0: true, never a stub of the same thread
  std::atomic<std::uintptr_t> slot{kDeadSlot};  // offset 8: address of the hijacked return slot
  FrameRecord* prev = nullptr;                  // offset 16
  const Site* site = nullptr;
  FrameProbe* block = nullptr;   // of many probes, or much entry data
  std::uint32_t count = 0;       // of probes
  bool chained = false;          // tail-called: an older record holds the same slot
  bool done = false;             // its exits ran during an unwinding, which may still need the record
  std::uint8_t block_class = 0;  // 0: none
  std::uint8_t keeps = 0;        // at exit: arch::kKeep..., what both the site and its handlers ask for
  unsigned long scratch = 0;     // kKeepCallerSaved: the register that stubs use, as the function was entered with it
  union {
    FrameRecord* next_free;      // while free
    unsigned long room[9] = {};  // FrameProbes, then entry data, where that is enough for both
  };

  [[nodiscard]] FPROBE_HOT FrameProbe* probes() noexcept {
    return block_class == 0 ? reinterpret_cast<FrameProbe*>(room) : block;
  }
};
static_assert(sizeof(FrameRecord) == 128);
static_assert(offsetof(FrameRecord, return_address) == 0 && offsetof(FrameRecord, slot) == 8);
static_assert(offsetof(FrameRecord, prev) == 16);

// What thread_table[t] points to.  Its first words look like a dead record, so that the unwind expression can start
// there.
struct ShadowHeader {
  std::uintptr_t return_address = 0;
  std::uintptr_t slot = kDeadSlot;
  FrameRecord* top = nullptr;   // offset 16
  FrameRecord* hint = nullptr;  // offset 24: the newest record with its slot, or dead: where an unwinding is [HINT]
};
static_assert(offsetof(ShadowHeader, top) == 16 && offsetof(ShadowHeader, hint) == 24);

class ShadowStack {
 public:
  ShadowHeader header;

  // Takes zeroed memory: `frames` records from `records` on, blocks in [blocks, blocks_end).
  void prepare(std::uintptr_t records, std::size_t frames, std::uintptr_t blocks, std::uintptr_t blocks_end) noexcept;

  // A record with a dead slot and room for `probes` exits with `data_bytes` in all; null: full.
  [[nodiscard]] FPROBE_HOT FrameRecord* allocate(std::uint32_t probes, std::uint32_t data_bytes) noexcept {
    FrameRecord* record = free_;
    if (record == nullptr) [[unlikely]]
      record = grow();
    if (record == nullptr) [[unlikely]]
      return nullptr;
    free_ = record->next_free;
    if (probes * sizeof(FrameProbe) + data_bytes > sizeof record->room) [[unlikely]]
      return allocate_block(record, probes, data_bytes);
    return record;
  }
  // Where the entry data of the record's probes starts.
  [[nodiscard]] static unsigned long* data_of(FrameRecord& record, std::uint32_t probes) noexcept {
    return reinterpret_cast<unsigned long*>(record.probes() + probes);
  }
  FPROBE_HOT void release(FrameRecord* record) noexcept {
    if (record->block_class != 0) [[unlikely]]
      release_block(record);
    const std::uintptr_t slot = record->slot.load(std::memory_order_relaxed);  // own thread's
    record->slot.store(slot | kDeadSlot, std::memory_order_relaxed);
    if (record->done) [[unlikely]]
      record->done = false;
    // prev stays: another thread whose walk stands on this record goes on to the older ones, where what it seeks is.
    record->next_free = free_;
    free_ = record;
  }

  FPROBE_HOT void push(FrameRecord* record, std::uintptr_t slot) noexcept {
    record->slot.store(slot, std::memory_order_relaxed);  // before the link, for unwinders in a signal of this thread
    record->prev = header.top;
    std::atomic_signal_fence(std::memory_order_release);
    header.top = record;
    header.hint = record;  // an older record at this slot, left by longjmp, must not answer an unwinder [HINT]
  }
  // Takes `record` out of the list, wherever it is.
  FPROBE_HOT void unlink(FrameRecord* record) noexcept {
    if (header.top == record) [[likely]] {
      header.top = record->prev;
      return;
    }
    unlink_inner(record);
  }
  // The same where the next newer record is known (null: there is none).
  void unlink_after(FrameRecord* newer, FrameRecord* record) noexcept {
    (newer == nullptr ? header.top : newer->prev) = record->prev;
  }
  // The newest record with this slot, null if none.  For another thread's stack: `find_foreign`.
  [[nodiscard]] FPROBE_HOT FrameRecord* find(std::uintptr_t slot) const noexcept {
    FrameRecord* record = header.top;
    while (record->slot.load(std::memory_order_relaxed) != slot) {
      if (record == &bottom_) return nullptr;
      record = record->prev;
    }
    return record;
  }
  [[nodiscard]] FrameRecord* find_foreign(std::uintptr_t slot) const noexcept;
  // Among records already released and not used anew; null if none.
  [[nodiscard]] FrameRecord* find_released(std::uintptr_t slot) const noexcept;

  // True when records at or below `slot` want a look (left by longjmp), or other threads finished frames of ours.
  [[nodiscard]] FPROBE_HOT bool wants_sweep(std::uintptr_t slot) const noexcept {
    return header.top->slot.load(std::memory_order_relaxed) - 1 < slot ||
           (suspects | finished_by_others.load(std::memory_order_relaxed)) != 0;  // rechecked by the sweep [FOREIGN]
  }
  // Records ever taken from the memory; the free list's are among them.
  [[nodiscard]] std::size_t records_made() const noexcept {
    return (next_record_.load(std::memory_order_relaxed) - first_record_) / sizeof(FrameRecord);  // this thread's
  }

  [[nodiscard]] const FrameRecord* bottom() const noexcept { return &bottom_; }
  [[nodiscard]] FrameRecord* top() const noexcept { return header.top; }
  [[nodiscard]] bool is_empty() const noexcept { return header.top == &bottom_; }

  std::atomic<std::uint32_t> finished_by_others{0};
  std::uint32_t suspects = 0;    // records that rare::sweep could not tell dead or alive
  std::uintptr_t unwinding = 0;  // personality.cpp: the pass that left its place in header.hint

 private:
  FPROBE_COLD FrameRecord* grow() noexcept;
  FPROBE_COLD FrameRecord* allocate_block(FrameRecord* record, std::uint32_t probes, std::uint32_t data_bytes) noexcept;
  FPROBE_COLD void release_block(FrameRecord* record) noexcept;
  FPROBE_COLD void unlink_inner(FrameRecord* record) noexcept;

  FrameRecord* free_ = nullptr;
  // Taken by one atomic addition each: a signal handler of the same thread may come between a load and a store.  (The
  // lists need no such care: what a handler takes from them it has put back when it returns.)
  std::atomic<std::uintptr_t> next_record_{0}, next_block_{0};
  std::uintptr_t first_record_ = 0, records_end_ = 0, blocks_end_ = 0;
  static constexpr unsigned kBlockClasses = 16;  // 128 << 1 ... bytes
  void* free_blocks_[kBlockClasses]{};
  FrameRecord bottom_;
};

}  // namespace libfprobe::detail

#endif  // FPROBE_SRC_CORE_HOT_SHADOW_STACK_H_
