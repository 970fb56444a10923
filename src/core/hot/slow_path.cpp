// Everything rare of a hit: first hits, recursion, signal contexts, frames left by longjmp, tail calls' slots, fibers.
//
// The rules of dispatch.cpp hold here too, but for the first hit of a thread on a stack, which may make system calls, and
// for hits that ask an unwinder: these keep the vector registers first.
#include <cstdlib>

#include "base/arch.h"
#include "base/syscalls.h"
#include "hot/hit.h"
#include "hot/keeping.h"
#include "hot/signal_context.h"

namespace libfprobe::detail::rare {
namespace {

// The auxiliary guard of the thread's context, open on `site`: its list and its probes stay valid meanwhile.
class AuxiliaryGuard {
 public:
  FPROBE_UNSANITIZED AuxiliaryGuard(ThreadState& self, const Site& site) noexcept
      : guard_(*(self.context + kMaxContexts)) {
    guard_.open(site, 0);
  }
  FPROBE_UNSANITIZED ~AuxiliaryGuard() { guard_.close(); }
  AuxiliaryGuard(const AuxiliaryGuard&) = delete;
  AuxiliaryGuard& operator=(const AuxiliaryGuard&) = delete;

 private:
  GuardEntry& guard_;
};

// The caller holds a guard, or the anonymous count, for the site.
FPROBE_COLD void count_on_every_probe(const Site& site, fprobe_miss_reason reason) {
  const ProbeList* probes = site.probes.load(std::memory_order_acquire);  // [PUBLISH]
  if (probes == nullptr) return;
  for (std::uint32_t i = 0; i < probes->count; ++i) {
    const ListEntry& entry = probes->entries[i];
    if (!hit::is_live(*entry.slot, entry.generation)) continue;
    if ((hit::flags_of(*entry.probe) & FPROBE_FL_DISABLED) != 0) continue;
    const bool uncounted = (entry.slot->ops_flags & (FTRACE_OPS_FL_RECURSION | FTRACE_OPS_FL_RCU)) != 0;
    if (reason == FPROBE_MISS_RECURSION && uncounted) continue;  // as the kernel documents
    hit::count_miss(*entry.probe, reason);
  }
}

bool is_same_stack(const ThreadState& self, std::uintptr_t a, std::uintptr_t b) noexcept {
  return self.stack.contains(a) && self.stack.contains(b);
}

// A handler that was left by longjmp: the thread runs again further up the same stack than where the guard was opened.
// (Or in a signal handler whose alternate stack lies up there: that one interrupted something below the guard.)
bool is_left_behind(const ThreadState& self, const GuardEntry& guard, std::uintptr_t sp) noexcept {
  const bool is_further_up = guard.is_open() && is_same_stack(self, sp, guard.sp) && sp >= guard.sp;
  return is_further_up && !signal_context::has_interrupted_below(guard.sp);
}

// Closes guards whose handlers were left behind, the innermost first.
FPROBE_COLD void repair_guards(ThreadState& self, std::uintptr_t sp) {
  for (;;) {
    GuardEntry& guard = *self.context;
    if (!is_left_behind(self, guard, sp)) return;
    abandon_context(self);
  }
}

enum class Context { kOwn, kNested, kRecursion };

// What a hit or a return at `sp` is that found the context's guard open.
FPROBE_COLD Context classify(ThreadState& self, std::uintptr_t sp) {
  repair_guards(self, sp);
  const GuardEntry& guard = *self.context;
  if (!guard.is_open()) return Context::kOwn;
  if (self.context + 1 == self.guards + kMaxContexts) return Context::kRecursion;  // no room for one more context
  const bool same_stack = is_same_stack(self, sp, guard.sp) && sp < guard.sp;
  return signal_context::is_between(sp, guard.sp, same_stack) ? Context::kNested : Context::kRecursion;
}

[[noreturn]] FPROBE_COLD void die_without_frame() {
  static constexpr char kMessage[] =
      "libfprobe: a function returned through a probe's return stub, but its frame is not on any shadow stack. "
      "Coroutines "
      "that copy their stacks cannot have exit handlers on functions that are live across a switch: use entry handlers "
      "only.\n";
  sys::write(2, kMessage, sizeof kMessage - 1);
  std::abort();
}

// A thread that can have no state finishes another thread's frame: the return is right, the exits are not run.
FPROBE_COLD bool leave_without_state(ThreadState& owner, FrameRecord& frame, std::uintptr_t slot) {
  *reinterpret_cast<std::uintptr_t*>(slot) = frame.return_address;
  bool was_planted = true;
  for (FrameRecord* record = &frame; record != nullptr;) {
    was_planted = !record->site->overwrites;
    record = retire_foreign(owner, record, slot);
  }
  return was_planted;
}

// Functions that return twice: the record was released at the first return, and nobody has used it since.
FPROBE_COLD FrameRecord* revive(ThreadState& owner, std::uintptr_t slot) {
  const FrameRecord* released = owner.shadow.find_released(slot);
  if (released == nullptr) return nullptr;
  const std::uintptr_t return_address = released->return_address;
  const Site* site = released->site;
  FrameRecord* record = owner.shadow.allocate(1, 0);
  if (record == nullptr) return nullptr;
  record->return_address = return_address;
  record->site = site;
  record->count = 0;
  record->chained = false;
  owner.shadow.push(record, slot);
  return record;
}

// --- A guard that is open already ---

FPROBE_COLD EntryResult enter_by_context(ThreadState& self, const Site& site, ftrace_regs& regs) {
  switch (classify(self, regs.sp)) {
    case Context::kOwn:
      return enter_context(self, *self.context, site, regs);
    case Context::kNested: {
      GuardEntry& nested = *++self.context;
      const EntryResult result = enter_context(self, nested, site, regs);
      --self.context;
      return result;
    }
    case Context::kRecursion:
      break;
  }
  const AuxiliaryGuard guard(self, site);
  count_on_every_probe(site, FPROBE_MISS_RECURSION);
  return {site.tail, 0};
}

FPROBE_COLD bool leave_by_context(ThreadState& self, ThreadState& owner, FrameRecord& frame, ftrace_regs& regs) {
  switch (classify(self, regs.sp)) {
    case Context::kOwn:
      return leave_context(self, *self.context, owner, frame, regs);
    case Context::kNested: {
      GuardEntry& nested = *++self.context;
      const bool was_planted = leave_context(self, nested, owner, frame, regs);
      --self.context;
      return was_planted;
    }
    case Context::kRecursion:
      break;
  }
  const std::uintptr_t slot = regs.sp - sizeof(std::uintptr_t);
  FrameRecord* record = &frame;
  *reinterpret_cast<std::uintptr_t*>(slot) = record->return_address;
  bool was_planted = true;
  while (record != nullptr) {
    was_planted = !record->site->overwrites;
    count_missed_exits(self, *record, FPROBE_MISS_RECURSION);
    record = finish(&self, owner, record, slot);
  }
  return was_planted;
}

}  // namespace

void abandon_context(ThreadState& self) {
  GuardEntry& guard = *self.context;
  if (guard.frame() != nullptr && !guard.is_leaving()) self.shadow.release(guard.frame());  // not linked yet
  guard.hold(nullptr);
  if (guard.is_busy) {
    guard.is_busy = false;
    --tls_kprobe_depth;
  }
  guard.close();
  if (self.context != self.guards) --self.context;
}

EntryResult enter_without_state(const Site& site, ftrace_regs& regs) {
  EntryResult result{site.tail, 0};
  keeping_at_entry(site.keeps, regs, [&] {
    if (ThreadState* self = threads::attach_current()) {
      result = enter_context(*self, *self->context, site, regs);
      return;
    }
    const grace::AnonymousReader reader;
    count_on_every_probe(site, FPROBE_MISS_THREAD);
  });
  return result;
}

EntryResult enter_guarded(ThreadState& self, const Site& site, ftrace_regs& regs) {
  EntryResult result{};
  keeping_at_entry(site.keeps, regs, [&] { result = enter_by_context(self, site, regs); });
  return result;
}

bool leave_guarded(ThreadState& self, ThreadState& owner, FrameRecord& frame, ftrace_regs& regs) {
  bool was_planted = true;
  keeping_at_exit(frame.site->keeps, regs, [&] { was_planted = leave_by_context(self, owner, frame, regs); });
  return was_planted;
}

bool leave_unusual(ThreadState* self, unsigned stub_index, ftrace_regs& regs) {
  const std::uintptr_t slot = regs.sp - sizeof(std::uintptr_t);
  ThreadState* const owner = threads::at(stub_index);
  if (owner == nullptr) die_without_frame();
  FrameRecord* frame = owner == self ? owner->shadow.find(slot) : owner->shadow.find_foreign(slot);
  if (frame == nullptr && owner == self) frame = revive(*owner, slot);
  if (frame == nullptr) die_without_frame();
  bool was_planted = true;
  keeping_at_exit(frame->site->keeps, regs, [&] {
    if (self == nullptr) self = threads::attach_current();
    was_planted = self == nullptr            ? leave_without_state(*owner, *frame, slot)
                  : self->context->is_open() ? leave_by_context(*self, *owner, *frame, regs)
                                             : leave_context(*self, *self->context, *owner, *frame, regs);
  });
  return was_planted;
}

unsigned long callers_scratch(unsigned stub_index, std::uintptr_t slot) {
  ThreadState* const owner = threads::at(stub_index);
  if (owner == nullptr) die_without_frame();
  unsigned long scratch = 0;
  for (const FrameRecord* record = owner->shadow.find_foreign(slot); record != nullptr; record = record->prev) {
    if (record->slot.load(std::memory_order_relaxed) != slot) continue;  // between two records of a tail call
    scratch = record->scratch;
    if (!record->chained) break;
  }
  return scratch;
}

FrameRecord* retire_foreign(ThreadState& owner, FrameRecord* record, std::uintptr_t slot) {
  const bool chained = record->chained;
  // release: the owner, which alone moves links, sees our last use of the record when it sees the slot dead [FOREIGN].
  record->slot.store(kDeadSlot, std::memory_order_release);
  owner.shadow.finished_by_others.fetch_add(1, std::memory_order_release);
  return chained ? owner.shadow.find_foreign(slot) : nullptr;
}

FrameRecord* finish(const ThreadState* self, ThreadState& owner, FrameRecord* record, std::uintptr_t slot) {
  if (&owner != self) return retire_foreign(owner, record, slot);
  const bool chained = record->chained;
  owner.shadow.unlink(record);
  owner.shadow.release(record);
  return chained ? owner.shadow.find(slot) : nullptr;
}

std::uintptr_t resolve_stub(ThreadState* self, std::uintptr_t slot, std::uintptr_t stub, bool& chained) {
  const unsigned index = arch::stub_index(stub);
  const ThreadState* owner = threads::at(index);
  if (owner == nullptr) return stub;
  chained = owner == self;
  const FrameRecord* frame = chained ? owner->shadow.find(slot) : owner->shadow.find_foreign(slot);
  if (frame == nullptr) {
    chained = false;  // a stale word: an ordinary return address as far as we can tell
    return stub;
  }
  return frame->return_address;
}

void count_missed_exits(ThreadState& self, FrameRecord& frame, fprobe_miss_reason reason) {
  if (frame.done || frame.count == 0) return;
  const AuxiliaryGuard guard(self, *frame.site);
  for (std::uint32_t i = 0; i < frame.count; ++i) {
    const FrameProbe& due = frame.probes()[i];
    if (!hit::is_live(*due.slot, due.generation)) continue;
    const bool uncounted = (due.slot->ops_flags & (FTRACE_OPS_FL_RECURSION | FTRACE_OPS_FL_RCU)) != 0;
    if (reason == FPROBE_MISS_RECURSION && uncounted) continue;
    hit::count_miss(*due.slot->probe, reason);
  }
}

// A record on the thread's own stack is gone when its word is no longer the stub; at the hit's own `slot` when the new
// call wrote another word there.  Never by comparing with sp: a fiber's or an alternate stack may lie inside the native
// one.  An unwound record (done) below us is not needed any more: the unwinding has passed us.
FPROBE_UNSANITIZED static bool is_gone(const ThreadState& self, const FrameRecord& record, std::uintptr_t at,
                                       std::uintptr_t slot) {
  if (at == slot) return *reinterpret_cast<const std::uintptr_t*>(at) != self.stub_return;
  if (!self.stack.contains(at)) return false;
  if (record.done && at < slot && self.stack.contains(slot)) return true;
  return *reinterpret_cast<const std::uintptr_t*>(at) != self.stub_return;
}

namespace {

// Tells, in a walk from the newest record on, which records have a newer one at the same slot that is no tail call: it
// found another word than the stub there, so they were gone by then.  (Their word is the stub again, the newer one's.)
// Between two longjmps records ascend, and each such run is compared with the one before it.
class Replaced {
 public:
  explicit Replaced(const FrameRecord* top) noexcept : run_(top), newer_(top) {}
  FPROBE_UNSANITIZED bool operator()(const FrameRecord* record, std::uintptr_t at) noexcept {
    if (at < last_) {
      newer_ = run_;
      run_ = record;
    }
    last_ = at;
    for (; newer_ != record; newer_ = newer_->prev) {
      const std::uintptr_t slot = newer_->slot.load(std::memory_order_relaxed);  // compared only
      if (slot > at) return false;
      if (slot == at && !newer_->chained) return true;
    }
    return false;
  }
  // The walk takes `record` out of the list.
  void forget(const FrameRecord* record, const FrameRecord* older) noexcept {
    if (run_ == record) run_ = older;
    if (newer_ == record) newer_ = older;
  }

 private:
  const FrameRecord *run_, *newer_;
  std::uintptr_t last_ = 0;
};

}  // namespace

// Suspects are records on the thread's own stack that lie below a newer one: left by longjmp, but their words still are
// the stub (or frames of a fiber that runs on a local array).  While there are some every hit looks at all records.
void sweep(ThreadState& self, std::uintptr_t slot) {
  ShadowStack& shadow = self.shadow;
  // acquire: what the finishing thread did with its record is over [FOREIGN].
  const bool sweep_all = shadow.finished_by_others.load(std::memory_order_relaxed) != 0 &&
                         shadow.finished_by_others.exchange(0, std::memory_order_acquire) != 0;
  if (!sweep_all && self.sweeps_to_skip != 0 && shadow.records_made() < self.sweep_at_records) {
    --self.sweeps_to_skip;
    return;
  }
  const bool looks_at_all = sweep_all || shadow.suspects != 0;
  std::uintptr_t highest = self.stack.contains(slot) ? slot : 0;
  std::uint32_t suspects = 0, kept = 0;
  FrameRecord* newer = nullptr;  // the last one that stays
  Replaced is_replaced(shadow.top());
  for (FrameRecord* record = shadow.top(); record != shadow.bottom();) {
    FrameRecord* const older = record->prev;
    const std::uintptr_t at = record->slot.load(std::memory_order_acquire);  // [FOREIGN]
    if (at > slot && !looks_at_all) break;
    if (is_dead(at) || is_gone(self, *record, at, slot) || is_replaced(record, at)) {
      if (!is_dead(at)) count_missed_exits(self, *record, FPROBE_MISS_DROPPED);
      shadow.unlink_after(newer, record);
      shadow.release(record);
      is_replaced.forget(record, older);
    } else {
      if (at == slot && !looks_at_all) break;  // we are its tail call: what is older was swept before it
      if (self.stack.contains(at)) {
        if (at < highest) ++suspects;
        if (at > highest) highest = at;
      }
      newer = record;
      ++kept;
    }
    record = older;
  }
  shadow.suspects = suspects;
  // Frames that cannot be told dead yet must not make every hit walk over them, nor may they become ever more meanwhile.
  constexpr std::uint32_t kCheapWalk = 64;
  self.sweeps_to_skip = kept > kCheapWalk ? kept : 0;
  self.sweep_at_records = shadow.records_made() + kept;
}

void drop_all(ThreadState& self) {
  ShadowStack& shadow = self.shadow;
  for (FrameRecord* record = shadow.top(); record != shadow.bottom();) {
    FrameRecord* older = record->prev;
    const std::uintptr_t at = record->slot.load(std::memory_order_acquire);  // [FOREIGN]
    if (is_dead(at) || record->done || self.stack.contains(at)) {
      if (!is_dead(at)) count_missed_exits(self, *record, FPROBE_MISS_DROPPED);
      shadow.unlink(record);
      shadow.release(record);
    }
    record = older;
  }
}

}  // namespace libfprobe::detail::rare
