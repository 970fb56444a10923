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
#include "hot/keeping.h"
#include "hot/shadow_stack.h"
#include "hot/thread_state.h"
#include "registry/grace.h"
#include "registry/site.h"
#include "regs.h"
#include "vectors.h"  // from src/arch/<cpu>/

namespace libfprobe::detail {
namespace {

static_assert(kRegsHasVectors == arch::kKeepArguments);

// --- Entry half -------------------------------------------------------------------------------------------------------

// The return address as the caller's call left it; `chained` when the slot holds this thread's stub: the function was
// tail-called by one whose exit is due.  (Another thread's stub, after a fiber moved, is an ordinary return address: the
// exit behind it is still due.)
FPROBE_HOT_INLINE std::uintptr_t true_return_address(ThreadState& self, std::uintptr_t slot, bool& chained) {
  const std::uintptr_t word = *reinterpret_cast<const std::uintptr_t*>(slot);
  chained = false;
  if (arch::is_stub(word)) [[unlikely]]
    return rare::resolve_stub(&self, slot, word, chained);
  return word;
}

// One probe's entry handler; whether an exit of it is due.  `data`: where its entry data would be.
FPROBE_HOT_INLINE bool fire_entry(GuardEntry& guard, const ListEntry& entry, ftrace_regs& regs, unsigned long* data) {
  if (!hit::is_live(*entry.slot, entry.generation)) [[unlikely]]
    return false;
  if (entry.data_size == 0) data = nullptr;
  for (std::uint32_t word = 0; word < entry.data_size / sizeof(long); ++word) data[word] = 0;
  return hit::fire(guard, *entry.probe, regs, data, hit::address_of(entry.entry_handler)) == 0 && entry.has_exit;
}

// Most sites have one probe, so the first is handled in line and the others in a loop elsewhere.
FPROBE_HOT_APART void fire_more_entries(GuardEntry& guard, const ProbeList& probes, ftrace_regs& regs) {
  for (std::uint32_t i = 1; i < probes.count; ++i) fire_entry(guard, probes.entries[i], regs, nullptr);
}
FPROBE_HOT_APART void fire_more_entries(GuardEntry& guard, const ProbeList& probes, FrameRecord& frame,
                                        ftrace_regs& regs) {
  unsigned long* data = ShadowStack::data_of(frame, probes.exit_count);
  for (std::uint32_t i = 1; i < probes.count; ++i) {
    data += probes.entries[i - 1].data_size / sizeof(long);
    const ListEntry& entry = probes.entries[i];
    if (fire_entry(guard, entry, regs, data))
      frame.probes()[frame.count++] = {entry.slot, entry.generation, entry.data_size != 0 ? data : nullptr};
  }
}

// No probe of the list has an exit handler, so none has entry data.
FPROBE_HOT_INLINE void run_entries(GuardEntry& guard, const ProbeList& probes, ftrace_regs& regs) {
  fire_entry(guard, probes.entries[0], regs, nullptr);
  if (probes.count > 1) [[unlikely]]
    fire_more_entries(guard, probes, regs);
}

// Leaves in the frame the exits that are due.
FPROBE_HOT_INLINE void run_entries(GuardEntry& guard, const ProbeList& probes, FrameRecord& frame, ftrace_regs& regs) {
  const ListEntry& entry = probes.entries[0];
  unsigned long* const data = ShadowStack::data_of(frame, probes.exit_count);
  const bool is_due = fire_entry(guard, entry, regs, data);
  frame.probes()[0] = {entry.slot, entry.generation, entry.data_size != 0 ? data : nullptr};
  frame.count = is_due ? 1 : 0;
  if (probes.count > 1) [[unlikely]]
    fire_more_entries(guard, probes, frame, regs);
}

// The exits that are due are not to be had: entry handlers run all the same, with scratch memory for entry data.
FPROBE_COLD void run_entries_without_frame(GuardEntry& guard, const ProbeList& probes, ftrace_regs& regs) {
  unsigned long scratch[MAX_FPROBE_DATA_SIZE / sizeof(long)];
  for (std::uint32_t i = 0; i < probes.count; ++i) {
    const ListEntry& entry = probes.entries[i];
    if (fire_entry(guard, entry, regs, scratch)) hit::count_miss(*entry.probe, FPROBE_MISS_NO_FRAME);
  }
}

// A frame for the exits that may be due, or null: the shadow stack is full, or the slot cannot be replaced here.
FPROBE_HOT_INLINE FrameRecord* take_frame(ThreadState& self, GuardEntry& guard, const Site& site,
                                          const ProbeList& probes, ftrace_regs& regs, bool chained) {
  if (self.shadow.wants_sweep(regs.sp) && &guard == &self.guards[0]) [[unlikely]]
    rare::sweep(self, regs.sp);
  if (!site.may_exit) [[unlikely]]
    return nullptr;
  FrameRecord* const frame = self.shadow.allocate(probes.exit_count, probes.data_bytes);
  if (frame == nullptr) [[unlikely]]
    return nullptr;
  // Never a stub of this thread; another thread's stays what the function returns to.
  frame->return_address = chained ? regs.return_address : *reinterpret_cast<const std::uintptr_t*>(regs.sp);
  frame->site = &site;
  frame->chained = chained;
  frame->keeps = probes.exit_keeps & site.keeps;
  if ((site.keeps & arch::kKeepCallerSaved) != 0) [[unlikely]]
    frame->scratch = regs.scratch;
  return frame;
}

// An exit is due: the record goes onto the shadow stack, then the slot gets the stub [the order unwinders rely on].
FPROBE_HOT_INLINE EntryResult plant(ThreadState& self, const Site& site, FrameRecord& frame, std::uintptr_t resume,
                                    ftrace_regs& regs) {
  self.shadow.push(&frame, regs.sp);
  if (frame.chained) [[unlikely]]
    return {resume, 0};
  std::atomic_signal_fence(std::memory_order_release);
  *reinterpret_cast<std::uintptr_t*>(regs.sp) = self.stub_return;
  return {resume, site.overwrites ? 0 : self.stub};
}

// What the entry handlers left: exits that are due, or none.
FPROBE_HOT_INLINE EntryResult go_on(ThreadState& self, const Site& site, FrameRecord* frame, std::uintptr_t resume,
                                    ftrace_regs& regs) {
  if (frame == nullptr) return {resume, 0};
  if (frame->count != 0) [[likely]]
    return plant(self, site, *frame, resume, regs);
  self.shadow.release(frame);
  return {resume, 0};
}

// An entry handler overrode the function: its exits run now, the body never.  `code` returns to the caller.
FPROBE_COLD EntryResult skip_body(ThreadState& self, GuardEntry& guard, FrameRecord* frame, ftrace_regs& regs,
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

// A handler overrode the function or set the instruction pointer.
FPROBE_COLD EntryResult divert(ThreadState& self, GuardEntry& guard, const Site& site, FrameRecord* frame,
                               ftrace_regs& regs) {
  regs.ip = regs.ip == site.ip ? site.tail : regs_continue_at(regs, site.shape, site.tail);
  const std::uintptr_t skip_code = (regs.flags & kRegsSkip) != 0 ? regs_apply_skip(regs, site.shape) : 0;
  if (skip_code != 0) return skip_body(self, guard, frame, regs, skip_code);
  return go_on(self, site, frame, regs.ip, regs);
}

// What happens between the guard's opening and its closing: the entry handlers, and what they decided.
FPROBE_HOT_INLINE EntryResult run_probes(ThreadState& self, GuardEntry& guard, const Site& site,
                                         const ProbeList& probes, ftrace_regs& regs) {
  bool chained;
  regs.entry_ip = site.ip;
  regs.ip = site.ip;
  regs.return_address = true_return_address(self, regs.sp, chained);

  FrameRecord* frame = nullptr;
  if (probes.exit_count == 0) {
    guard.hold(nullptr);
    run_entries(guard, probes, regs);
  } else if (frame = take_frame(self, guard, site, probes, regs, chained); frame != nullptr) [[likely]] {
    guard.hold(frame);
    run_entries(guard, probes, *frame, regs);
  } else {
    guard.hold(nullptr);
    run_entries_without_frame(guard, probes, regs);
  }
  if (regs.ip != site.ip || (regs.flags & kRegsSkip) != 0) [[unlikely]]
    return divert(self, guard, site, frame, regs);
  return go_on(self, site, frame, site.tail, regs);
}

FPROBE_COLD EntryResult run_probes_keeping(unsigned keeps, ThreadState& self, GuardEntry& guard, const Site& site,
                                           const ProbeList& probes, ftrace_regs& regs) {
  EntryResult result{};
  keeping(keeps, [&] { result = run_probes(self, guard, site, probes, regs); });
  return result;
}

// Its last probe was unregistered after the thread took the site's jump.
FPROBE_COLD EntryResult leave_without_probes(GuardEntry& guard, std::uintptr_t outer_sp, const Site& site,
                                             ftrace_regs& regs) {
  arch::save_arguments(regs);
  guard.close(outer_sp);
  arch::restore_arguments(regs);
  return {site.tail, 0};
}

}  // namespace

// One hit in a context of its own: opens the guard, runs the entry handlers, says how entry.S goes on.
FPROBE_HOT_INLINE EntryResult enter(ThreadState& self, GuardEntry& guard, const Site& site, ftrace_regs& regs,
                                    std::uintptr_t position) {
  const int saved_errno = *self.errno_location;
  const std::uintptr_t outer_sp = guard.sp;
  guard.open(site, position);  // before the list is loaded: unregister waits for who is inside [GRACE]
  // acquire: pairs with the release in probe_lists::publish() [PUBLISH].
  const ProbeList* const probes = site.probes.load(std::memory_order_acquire);
  if (probes == nullptr) [[unlikely]]
    return leave_without_probes(guard, outer_sp, site, regs);
  const unsigned keeps = probes->entry_keeps & site.keeps;
  regs.flags = (site.shape.arguments_moved ? kRegsNoArguments : 0) | (keeps & kRegsHasVectors);
  if ((keeps & arch::kKeepArguments) != 0) [[likely]]
    arch::save_arguments(regs);
  tsan_acquire(probes);
  const EntryResult result = keeps <= arch::kKeepArguments
                                 ? run_probes(self, guard, site, *probes, regs)
                                 : run_probes_keeping(keeps, self, guard, site, *probes, regs);
  guard.close(outer_sp);
  if ((regs.flags & kRegsHasVectors) != 0) [[likely]]
    arch::restore_arguments(regs);
  *self.errno_location = saved_errno;
  return result;
}

FPROBE_HOT EntryResult enter_context(ThreadState& self, GuardEntry& guard, const Site& site, ftrace_regs& regs) {
  return enter(self, guard, site, regs, site.shape.is_behind_prologue() ? regs.stack : regs.sp);
}

// --- Exit half --------------------------------------------------------------------------------------------------------

namespace {

FPROBE_HOT_INLINE void fire_exit(GuardEntry& guard, const FrameProbe& due, ftrace_regs& regs) {
  if (!hit::is_live(*due.slot, due.generation)) [[unlikely]]
    return;  // unregistered in flight
  tsan_acquire(due.slot);
  hit::fire(guard, *due.slot->probe, regs, due.data, hit::address_of(due.slot->exit_handler));
}

FPROBE_HOT_APART void fire_more_exits(GuardEntry& guard, FrameRecord& frame, ftrace_regs& regs) {
  for (std::uint32_t i = 1; i < frame.count; ++i) fire_exit(guard, frame.probes()[i], regs);
}

// The exit handlers of one record, in the order of its entries: newest registration first.
FPROBE_HOT_INLINE void fire_exits(GuardEntry& guard, FrameRecord& frame, ftrace_regs& regs) {
  fire_exit(guard, frame.probes()[0], regs);
  if (frame.count > 1) [[unlikely]]
    fire_more_exits(guard, frame, regs);
}

FPROBE_COLD void run_exits_keeping(unsigned keeps, GuardEntry& guard, FrameRecord& frame, ftrace_regs& regs) {
  keeping(keeps, [&] { run_exits(guard, frame, regs); });
}

// The exits of one record, between opening and closing the guard; then the record is over.  The true address is in the
// slot before, so that unwinders always find it in one of the two.  The next record at the slot, or null.
FPROBE_HOT_INLINE FrameRecord* leave_record(ThreadState& self, GuardEntry& guard, ThreadState& owner,
                                            FrameRecord& record, ftrace_regs& regs, std::uintptr_t slot) {
  const Site& site = *record.site;
  const unsigned keeps = record.keeps;
  if ((keeps & ~regs.flags & arch::kKeepArguments) != 0) [[likely]] {
    arch::save_results(regs);
    regs.flags |= kRegsHasVectors;
  }
  const std::uintptr_t outer_sp = guard.sp;
  guard.open(site, regs.sp);
  guard.hold_leaving(&record);
  regs.entry_ip = site.ip;
  if (record.done || record.count == 0) [[unlikely]] {
    // They ran during an unwinding that was given up; or this is the second return of a function that returns twice.
  } else if (keeps <= arch::kKeepArguments) [[likely]] {
    fire_exits(guard, record, regs);
  } else {
    run_exits_keeping(keeps, guard, record, regs);
  }
  *reinterpret_cast<std::uintptr_t*>(slot) = record.return_address;
  FrameRecord* next = nullptr;
  if (&owner != &self || record.chained) [[unlikely]] {
    next = rare::finish(&self, owner, &record, slot);
  } else {
    self.shadow.unlink(&record);
    self.shadow.release(&record);
  }
  guard.close(outer_sp);
  return next;
}

// The older ones of several records at a slot.
FPROBE_COLD const Site* leave_chain(ThreadState& self, GuardEntry& guard, ThreadState& owner, FrameRecord* record,
                                    ftrace_regs& regs, std::uintptr_t slot) {
  const Site* site = nullptr;
  while (record != nullptr) {
    site = record->site;
    record = leave_record(self, guard, owner, *record, regs, slot);
  }
  return site;
}

}  // namespace

FPROBE_HOT void run_exits(GuardEntry& guard, FrameRecord& frame, ftrace_regs& regs) {
  if (frame.count != 0) fire_exits(guard, frame, regs);
}

// One return in a context of its own: runs the exits of every record at the slot (tail calls chain several), newest
// first.  Says whether the oldest had planted its stub, or overwritten the slot.
FPROBE_HOT_INLINE bool leave(ThreadState& self, GuardEntry& guard, ThreadState& owner, FrameRecord& frame,
                             ftrace_regs& regs) {
  const int saved_errno = *self.errno_location;
  const std::uintptr_t slot = regs.sp - sizeof(std::uintptr_t);
  regs.return_address = regs.ip = rare::true_return_address(self, frame, slot);
  regs.flags = kRegsAtExit;
  const Site* site = frame.site;
  FrameRecord* const older = leave_record(self, guard, owner, frame, regs, slot);
  if (older != nullptr) [[unlikely]]
    site = leave_chain(self, guard, owner, older, regs, slot);
  if ((regs.flags & kRegsHasVectors) != 0) [[likely]]
    arch::restore_results(regs);
  *self.errno_location = saved_errno;
  return !site->overwrites;
}

FPROBE_HOT bool leave_context(ThreadState& self, GuardEntry& guard, ThreadState& owner, FrameRecord& frame,
                              ftrace_regs& regs) {
  return leave(self, guard, owner, frame, regs);
}

}  // namespace libfprobe::detail

using namespace libfprobe::detail;  // NOLINT(google-build-using-namespace): the two doors from assembly

extern "C" {

// Called by entry.S: rdi site, rsi regs, rdx where the hit lies on the stack: tells what it calls from what has left it.
__attribute__((visibility("hidden"))) FPROBE_HOT EntryResult fprobe_enter(const Site* site, ftrace_regs* regs,
                                                                          std::uintptr_t position) {
  ThreadState* self = current_state();
  if (self == nullptr) [[unlikely]]
    return rare::enter_without_state(*site, *regs);
  GuardEntry& guard = *self->context;
  if (guard.is_open()) [[unlikely]]
    return rare::enter_guarded(*self, *site, *regs);
  return enter(*self, guard, *site, *regs, position);
}

// Called by entry.S for a site behind a prologue, whose frame is found through its frame pointer.
__attribute__((visibility("hidden"))) FPROBE_HOT std::uintptr_t fprobe_enter_behind_prologue(const Site* site,
                                                                                             ftrace_regs* regs,
                                                                                             std::uintptr_t position) {
  const arch::FoundFrame frame = arch::find_frame(site->shape, regs->bp);
  regs->stack = position;
  regs->sp = frame.slot;
  regs->bp = frame.caller_frame_pointer;
  return fprobe_enter(site, regs, position).resume;
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
  return leave(*self, guard, *self, *frame, *regs);
}

// The same once some site's callers rely on registers that a return may change: gives back the one that stubs use.
__attribute__((visibility("hidden"))) FPROBE_HOT bool fprobe_leave_keeping_all(unsigned stub_index, ftrace_regs* regs) {
  regs->scratch = rare::callers_scratch(stub_index, regs->sp - sizeof(std::uintptr_t));
  return fprobe_leave(stub_index, regs);
}

}  // extern "C"
