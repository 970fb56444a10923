// A probe hit, read from top to bottom: entry half, then exit half.
//
// fprobe_enter is called by entry.S with the argument registers saved, fprobe_leave by return.S with the return values
// saved; vector registers still hold the target's values (this code uses none) and are saved here, if the handlers may
// change them.  No lock, no allocation, no system call, no libc; errno is the target's and is given back.  Nothing here is
// noexcept: a cancellation that acts inside a handler unwinds through these frames (there is nothing to clean up in
// them: the personality below the handler puts the guard right).
#include "base/arch.h"
#include "base/attributes.h"
#include "base/tsan.h"
#include "hot/hit.h"
#include "hot/shadow_stack.h"
#include "hot/thread_state.h"
#include "registry/grace.h"
#include "registry/site.h"
#include "hot/keeping.h"
#include "regs.h"
#include "vectors.h"  // from src/arch/<cpu>/

namespace libfprobe::detail {
namespace {

// The word in the return slot, seen through stubs: a tail-called function's slot holds the stub of its caller's exit.
// (Another thread's stub, after a fiber moved, is an ordinary return address: the exit behind it is still due.)
struct ReturnSlot {
  std::uintptr_t word;
  std::uintptr_t true_address;
  bool chained;
};

FPROBE_HOT ReturnSlot read_return_slot(ThreadState& self, std::uintptr_t slot) {
  const std::uintptr_t word = *reinterpret_cast<const std::uintptr_t*>(slot);
  ReturnSlot result{word, word, false};
  if (arch::is_stub(word)) [[unlikely]]
    result.true_address = rare::resolve_stub(&self, slot, word, result.chained);
  return result;
}

// Entry handlers of probes that want no exit, or get none (no frame): `scratch` serves as entry data then.
FPROBE_HOT void run_entries_without_frame(GuardEntry& guard, const ProbeList& probes, ftrace_regs& regs,
                                          bool no_frame) {
  unsigned long scratch[MAX_FPROBE_DATA_SIZE / sizeof(long)];
  for (std::uint32_t i = 0; i < probes.count; ++i) {
    const ListEntry& entry = probes.entries[i];
    if (!hit::is_live(*entry.slot, entry.generation) || !hit::may_fire(*entry.probe)) continue;
    for (std::uint32_t word = 0; word < entry.data_size / sizeof(long); ++word) scratch[word] = 0;
    void* data = entry.data_size != 0 ? scratch : nullptr;
    int cancel = 0;
    if (entry.entry_handler != nullptr) {
      cancel = hit::call_handler(&guard, *entry.probe, regs, data, hit::address_of(entry.entry_handler));
    }
    if (no_frame && entry.has_exit && cancel == 0) hit::count_miss(*entry.probe, FPROBE_MISS_NO_FRAME);
  }
}

// Entry handlers with a frame to fill; leaves in it the exits that are due.
FPROBE_HOT void run_entries(GuardEntry& guard, const ProbeList& probes, FrameRecord& frame, ftrace_regs& regs) {
  unsigned long* next_data = ShadowStack::data_of(frame, probes.exit_count);
  frame.count = 0;
  for (std::uint32_t i = 0; i < probes.count; ++i) {
    const ListEntry& entry = probes.entries[i];
    if (!hit::is_live(*entry.slot, entry.generation) || !hit::may_fire(*entry.probe)) continue;
    unsigned long* data = nullptr;
    if (entry.data_size != 0) {
      data = next_data;
      next_data += entry.data_size / sizeof(long);
      for (unsigned long* word = data; word < next_data; ++word) *word = 0;
    }
    int cancel = 0;
    if (entry.entry_handler != nullptr) {
      cancel = hit::call_handler(&guard, *entry.probe, regs, data, hit::address_of(entry.entry_handler));
    }
    if (entry.has_exit && cancel == 0) frame.probes[frame.count++] = {entry.slot, entry.generation, data};
  }
}

// An entry handler overrode the function: its exits run now, the body never.  `code` returns to the caller.
FPROBE_HOT EntryResult skip_body(ThreadState& self, GuardEntry& guard, FrameRecord* frame, ftrace_regs& regs,
                                 std::uintptr_t code) {
  regs.flags = (regs.flags & ~kRegsSkip) | kRegsAtExit;
  regs.ip = regs.return_address;
  const std::uintptr_t slot = regs.sp;
  regs.sp = slot + sizeof(std::uintptr_t);
  if (frame != nullptr) {
    run_exits(guard, *frame, regs);
    self.shadow.release(frame);
  }
  arch::restore_results(regs);  // also where no handler needed them saved
  return {code, 0};
}

// A record whose exits ran.  The next one at the same slot, or null.
FPROBE_HOT FrameRecord* retire(ThreadState& owner, bool is_own, FrameRecord* record, std::uintptr_t slot) {
  const bool chained = record->chained;
  if (!is_own) [[unlikely]]
    return rare::retire_foreign(owner, record, slot);
  owner.shadow.unlink(record);
  owner.shadow.release(record);
  return chained ? owner.shadow.find(slot) : nullptr;
}

// An exit is due: the record goes onto the shadow stack, then the slot gets the stub [the order unwinders rely on].
FPROBE_HOT EntryResult plant(ThreadState& self, const Site& site, FrameRecord* frame, const ReturnSlot& slot,
                             ftrace_regs& regs) {
  frame->return_address = slot.chained ? slot.true_address : slot.word;
  frame->site = &site;
  frame->chained = slot.chained;
  frame->scratch = regs.scratch;
  self.shadow.push(frame, regs.sp);
  if (slot.chained) [[unlikely]]
    return {regs.ip, 0};
  std::atomic_signal_fence(std::memory_order_release);
  *reinterpret_cast<std::uintptr_t*>(regs.sp) = self.stub_return;
  return {regs.ip, site.shape.is_behind_prologue() ? 0 : self.stub};
}

// Where the hit lies on the stack: tells what is called by it from what has left it.
FPROBE_HOT std::uintptr_t position_of(const Site& site, const ftrace_regs& regs) {
  return site.shape.is_behind_prologue() ? regs.stack : regs.sp;
}

// What happens between the guard's opening and its closing: the entry handlers, and what they decided.
FPROBE_HOT EntryResult run_probes(ThreadState& self, GuardEntry& guard, const Site& site, const ProbeList& probes,
                                  ftrace_regs& regs) {
  const ReturnSlot slot = read_return_slot(self, regs.sp);
  regs.entry_ip = site.ip;
  regs.ip = site.ip;
  regs.return_address = slot.true_address;

  FrameRecord* frame = nullptr;
  guard.leaving = false;
  if (probes.exit_count == 0) {
    run_entries_without_frame(guard, probes, regs, false);
  } else {
    if (&guard == &self.guards[0] && self.shadow.wants_sweep(regs.sp)) [[unlikely]]
      rare::sweep(self, regs.sp);
    frame = site.may_exit ? self.shadow.allocate(probes.exit_count, probes.data_bytes) : nullptr;
    guard.frame = frame;
    if (frame == nullptr) [[unlikely]] {
      run_entries_without_frame(guard, probes, regs, true);
    } else {
      frame->keeps = probes.exit_keeps & site.keeps;
      run_entries(guard, probes, *frame, regs);
    }
  }

  regs.ip = regs.ip == site.ip ? site.tail : regs_continue_at(regs, site.shape, site.tail);
  EntryResult result{regs.ip, 0};
  const std::uintptr_t skip_code = (regs.flags & kRegsSkip) != 0 ? regs_apply_skip(regs, site.shape) : 0;
  if (skip_code != 0) [[unlikely]] {
    result = skip_body(self, guard, frame, regs, skip_code);
  } else if (frame != nullptr) {
    if (frame->count != 0) [[likely]] {
      result = plant(self, site, frame, slot, regs);
    } else {
      self.shadow.release(frame);
    }
  }
  guard.frame = nullptr;
  return result;
}

FPROBE_COLD EntryResult run_probes_keeping(unsigned keeps, ThreadState& self, GuardEntry& guard, const Site& site,
                                           const ProbeList& probes, ftrace_regs& regs) {
  EntryResult result{};
  keeping(keeps, [&] { result = run_probes(self, guard, site, probes, regs); });
  return result;
}

FPROBE_COLD void run_exits_keeping(unsigned keeps, GuardEntry& guard, FrameRecord& frame, ftrace_regs& regs) {
  keeping(keeps, [&] { run_exits(guard, frame, regs); });
}

}  // namespace

// One hit in a context of its own: opens the guard, runs the entry handlers, says how entry.S goes on.
FPROBE_HOT EntryResult enter_context(ThreadState& self, GuardEntry& guard, const Site& site, ftrace_regs& regs) {
  int& target_errno = *self.errno_location;
  const int saved_errno = target_errno;
  const std::uintptr_t outer_sp = guard.sp;
  guard.open(site,
             position_of(site, regs));  // before the list is loaded: unregister waits for whoever is inside [GRACE]
  // acquire: pairs with the release in probe_lists::publish() [PUBLISH].
  const ProbeList* probes = site.probes.load(std::memory_order_acquire);
  EntryResult result{site.tail, 0};
  const unsigned keeps = probes != nullptr ? probes->entry_keeps & site.keeps : arch::kKeepArguments;
  if ((keeps & arch::kKeepArguments) != 0) [[likely]]
    arch::save_arguments(regs);
  regs.flags = (site.shape.arguments_moved ? kRegsNoArguments : 0) | (keeps & arch::kKeepArguments) * kRegsHasVectors;
  tsan_acquire(probes);
  if (probes == nullptr) [[unlikely]] {
    // Its last probe was unregistered after the thread took the site's jump.
  } else if ((keeps & ~arch::kKeepArguments) == 0) [[likely]] {
    result = run_probes(self, guard, site, *probes, regs);
  } else {
    result = run_probes_keeping(keeps, self, guard, site, *probes, regs);
  }
  guard.close(outer_sp);
  if ((keeps & arch::kKeepArguments) != 0) [[likely]]
    arch::restore_arguments(regs);
  target_errno = saved_errno;
  return result;
}

// The exit handlers of one record, in the order of its entries: newest registration first.
FPROBE_HOT void run_exits(GuardEntry& guard, FrameRecord& frame, ftrace_regs& regs) {
  for (std::uint32_t i = 0; i < frame.count; ++i) {
    const FrameProbe& due = frame.probes[i];
    if (!hit::is_live(*due.slot, due.generation)) continue;  // unregistered in flight
    tsan_acquire(due.slot);
    fprobe& probe = *due.slot->probe;
    if (!hit::may_fire(probe)) continue;
    hit::call_handler(&guard, probe, regs, due.data, hit::address_of(due.slot->exit_handler));
  }
}

// One return in a context of its own: runs the exits of every record at the slot (tail calls chain several), newest
// first.  The true address is in the slot before a record is released, so that unwinders always find it in one of the
// two.  Says whether the oldest had planted its stub, or overwritten the slot.
FPROBE_HOT bool leave_context(ThreadState& self, GuardEntry& guard, ThreadState& owner, FrameRecord& frame,
                              ftrace_regs& regs) {
  int& target_errno = *self.errno_location;
  const int saved_errno = target_errno;
  const std::uintptr_t slot = regs.sp - sizeof(std::uintptr_t);
  regs.return_address = regs.ip = rare::true_return_address(self, frame, slot);
  FrameRecord* record = &frame;
  bool was_planted = true;
  unsigned kept = 0;
  do {
    const unsigned keeps = record->keeps;
    if ((keeps & ~kept & arch::kKeepArguments) != 0) [[likely]]
      arch::save_results(regs);
    kept |= keeps;
    regs.flags = kRegsAtExit | (kept & arch::kKeepArguments) * kRegsHasVectors;
    const std::uintptr_t outer_sp = guard.sp;
    guard.open(*record->site, regs.sp);
    guard.frame = record;
    guard.leaving = true;
    regs.entry_ip = record->site->ip;
    was_planted = !record->site->shape.is_behind_prologue();
    if (record->done) [[unlikely]] {
      // They ran during an unwinding that was given up.
    } else if ((keeps & ~arch::kKeepArguments) == 0) [[likely]] {
      run_exits(guard, *record, regs);
    } else {
      run_exits_keeping(keeps, guard, *record, regs);
    }
    guard.frame = nullptr;
    *reinterpret_cast<std::uintptr_t*>(slot) = record->return_address;
    record = retire(owner, &owner == &self, record, slot);
    guard.close(outer_sp);
  } while (record != nullptr);
  if ((kept & arch::kKeepArguments) != 0) [[likely]]
    arch::restore_results(regs);
  target_errno = saved_errno;
  return was_planted;
}

}  // namespace libfprobe::detail

using namespace libfprobe::detail;  // NOLINT(google-build-using-namespace): the two doors from assembly

extern "C" {

// Called by entry.S: rdi site, rsi regs.
__attribute__((visibility("hidden"))) FPROBE_HOT EntryResult fprobe_enter(const Site* site, ftrace_regs* regs) {
  ThreadState* self = current_state();
  if (self == nullptr) [[unlikely]]
    return rare::enter_without_state(*site, *regs);
  GuardEntry& guard = *self->context;
  if (guard.is_open()) [[unlikely]]
    return rare::enter_guarded(*self, *site, *regs);
  return enter_context(*self, guard, *site, *regs);
}

// Called by entry.S for a site behind a prologue, whose frame is found through its frame pointer.
__attribute__((visibility("hidden"))) FPROBE_HOT std::uintptr_t fprobe_enter_behind_prologue(const Site* site,
                                                                                             ftrace_regs* regs) {
  const arch::FoundFrame frame = arch::find_frame(site->shape, regs->bp);
  regs->stack = regs->sp;
  regs->sp = frame.slot;
  regs->bp = frame.caller_frame_pointer;
  return fprobe_enter(site, regs).resume;
}

// Called by return.S: edi thread of the stub, rsi regs.  Whether the function's return took the CPU's prediction of the
// caller's (false) or that of the stub.
__attribute__((visibility("hidden"))) FPROBE_HOT bool fprobe_leave(unsigned stub_index, ftrace_regs* regs) {
  ThreadState* self = current_state();
  if (self == nullptr || self->index != stub_index) [[unlikely]]
    return rare::leave_unusual(self, stub_index, *regs);
  FrameRecord* frame = self->shadow.top();
  // relaxed: a record of this thread.
  if (frame->slot.load(std::memory_order_relaxed) != regs->sp - sizeof(std::uintptr_t)) [[unlikely]] {
    return rare::leave_unusual(self, stub_index, *regs);
  }
  GuardEntry& guard = *self->context;
  if (guard.is_open()) [[unlikely]]
    return rare::leave_guarded(*self, *self, *frame, *regs);
  return leave_context(*self, guard, *self, *frame, *regs);
}

// The same once some site's callers rely on registers that a return may change: gives back the one that stubs use.
__attribute__((visibility("hidden"))) FPROBE_HOT bool fprobe_leave_keeping_all(unsigned stub_index, ftrace_regs* regs) {
  regs->scratch = rare::callers_scratch(stub_index, regs->sp - sizeof(std::uintptr_t));
  return fprobe_leave(stub_index, regs);
}

}  // extern "C"
