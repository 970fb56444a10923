// The pieces that every path of a hit is made of: which probes fire, how a handler is called, how a miss is counted.
//
// Called only while a guard of the calling thread (or the anonymous reader count) is open for the site concerned.
#ifndef FPROBE_SRC_CORE_HOT_HIT_H_
#define FPROBE_SRC_CORE_HOT_HIT_H_

#include <fprobe/fprobe.h>

#include <atomic>
#include <cstdint>

#include "base/arch.h"
#include "base/attributes.h"
#include "hot/thread_state.h"
#include "registry/site.h"
#include "regs.h"  // from src/arch/<cpu>/

// handler_call.S: calls `handler` with the first five arguments from a frame whose personality guards it.
extern "C" __attribute__((visibility("hidden"))) int fprobe_call_handler(fprobe* probe, unsigned long entry_ip,
                                                                         unsigned long ret_ip, ftrace_regs* regs,
                                                                         void* entry_data, std::uintptr_t handler);

namespace libfprobe::detail {

// Depth of kprobe_busy_begin() on this thread.
extern constinit thread_local int tls_kprobe_depth __attribute__((tls_model("initial-exec")));

namespace hit {

// Sums are exact once threads are joined; nobody orders anything by them: relaxed.
FPROBE_HOT inline void count_miss(fprobe& probe, fprobe_miss_reason reason) noexcept {
  __atomic_fetch_add(&probe.missed_by_reason[reason], 1, __ATOMIC_RELAXED);
  __atomic_fetch_add(&probe.nmissed, 1, __ATOMIC_RELAXED);
}

// acquire: the slot's other fields belong to this generation [GENERATION].
FPROBE_HOT_INLINE bool is_live(const ProbeSlot& slot, std::uint64_t generation) noexcept {
  return slot.generation.load(std::memory_order_acquire) == generation;
}

FPROBE_HOT_INLINE unsigned flags_of(const fprobe& probe) noexcept {
  return __atomic_load_n(&probe.flags, __ATOMIC_RELAXED);  // a switch, orders nothing
}

inline constexpr int kNotFired = 1;

// A probe that is disabled, or shared with kprobes: see fire().
FPROBE_COLD inline int fire_by_flags(GuardEntry& guard, fprobe& probe, ftrace_regs& regs, void* data,
                                     std::uintptr_t handler) noexcept(false) {
  if ((flags_of(probe) & FPROBE_FL_DISABLED) != 0) return kNotFired;
  if (tls_kprobe_depth != 0) {
    count_miss(probe, FPROBE_MISS_KPROBE);
    return kNotFired;
  }
  if (handler == 0) return 0;
  guard.is_busy = true;
  ++tls_kprobe_depth;
  const int result = fprobe_call_handler(&probe, regs.entry_ip, regs.return_address, &regs, data, handler);
  if (tls_kprobe_depth > 0) --tls_kprobe_depth;  // 0: the handler ended more than it began
  guard.is_busy = false;
  return result;
}

// Calls a live probe's handler and gives its answer, 0 if it has none.  Not 0 either when the probe does not fire, which is
// counted if it is shared and finds a kprobe running.
FPROBE_HOT_INLINE int fire(GuardEntry& guard, fprobe& probe, ftrace_regs& regs, void* data,
                           std::uintptr_t handler) noexcept(false) {
  guard.running = &probe;
  if ((flags_of(probe) & (FPROBE_FL_DISABLED | FPROBE_FL_KPROBE_SHARED)) != 0) [[unlikely]]
    return fire_by_flags(guard, probe, regs, data, handler);
  if (handler == 0) return 0;
  return fprobe_call_handler(&probe, regs.entry_ip, regs.return_address, &regs, data, handler);
}

template <class Handler>
FPROBE_HOT_INLINE std::uintptr_t address_of(Handler handler) noexcept {
  return reinterpret_cast<std::uintptr_t>(handler);
}

}  // namespace hit

// What entry.S does next (rax, rdx).
struct EntryResult {
  std::uintptr_t resume;
  std::uintptr_t stub;  // 0: plant nothing
};

// dispatch.cpp, for slow_path.cpp: one hit in the given context.
EntryResult enter_context(ThreadState& self, GuardEntry& guard, const Site& site, ftrace_regs& regs);
// One return; `owner` is the state whose shadow stack holds the frame.  This and what follows says what fprobe_leave says.
bool leave_context(ThreadState& self, GuardEntry& guard, ThreadState& owner, FrameRecord& frame, ftrace_regs& regs);
// Runs the exits of one record.
void run_exits(GuardEntry& guard, FrameRecord& frame, ftrace_regs& regs);

// slow_path.cpp: everything rare.
namespace rare {

FPROBE_COLD EntryResult enter_without_state(const Site& site, ftrace_regs& regs);
// The guard of the thread's context is open: recursion, a signal handler's context, or a handler left by longjmp.
FPROBE_COLD EntryResult enter_guarded(ThreadState& self, const Site& site, ftrace_regs& regs);
FPROBE_COLD bool leave_guarded(ThreadState& self, ThreadState& owner, FrameRecord& frame, ftrace_regs& regs);
// The return slot holds a stub: the true address, and whether the stub is this thread's.
FPROBE_COLD std::uintptr_t resolve_stub(ThreadState* self, std::uintptr_t slot, std::uintptr_t stub, bool& chained);
// The address in the caller that a frame returns to in the end: its own, or what lies behind another thread's stub.
FPROBE_HOT_INLINE std::uintptr_t true_return_address(ThreadState& self, const FrameRecord& frame, std::uintptr_t slot) {
  bool chained = false;
  if (!arch::is_stub(frame.return_address)) [[likely]]
    return frame.return_address;
  return resolve_stub(&self, slot, frame.return_address, chained);
}
// Drops records whose frames are gone, and unlinks those that other threads finished.
FPROBE_COLD void sweep(ThreadState& self, std::uintptr_t slot);
// What the caller of the oldest function at the slot had in the register that stubs use.
FPROBE_COLD unsigned long callers_scratch(unsigned stub_index, std::uintptr_t slot);
// A return whose record is not on top of the thread's own shadow stack: below older ones, another thread's (a fiber
// moved), or returned once already.
FPROBE_COLD bool leave_unusual(ThreadState* self, unsigned stub_index, ftrace_regs& regs);
// Another thread's record is finished: only its owner may unlink it.  The next record at the slot, or null.
FPROBE_COLD FrameRecord* retire_foreign(ThreadState& owner, FrameRecord* record, std::uintptr_t slot);
// Unlinks (or retires) a record whose exits ran or were counted; the next one at the slot, or null.
FPROBE_COLD FrameRecord* finish(const ThreadState* self, ThreadState& owner, FrameRecord* record, std::uintptr_t slot);
// Counts `reason` for every exit of the frame that was due and whose probe is still registered.
FPROBE_COLD void count_missed_exits(ThreadState& self, FrameRecord& frame, fprobe_miss_reason reason);
// The handler of the thread's context is left for good (longjmp, forced unwinding): its guard and its unlinked frame
// go.
FPROBE_COLD void abandon_context(ThreadState& self);
// At the thread's exit: every frame on its native stack is gone.
FPROBE_COLD void drop_all(ThreadState& self);

}  // namespace rare
}  // namespace libfprobe::detail

// dispatch.cpp: the entry half, for sites at entries and behind prologues.
extern "C" {
__attribute__((visibility("hidden"))) libfprobe::detail::EntryResult fprobe_enter(const libfprobe::detail::Site* site,
                                                                                  ftrace_regs* regs,
                                                                                  std::uintptr_t position);
__attribute__((visibility("hidden"))) std::uintptr_t fprobe_enter_behind_prologue(const libfprobe::detail::Site* site,
                                                                                  ftrace_regs* regs,
                                                                                  std::uintptr_t position);
}

#endif  // FPROBE_SRC_CORE_HOT_HIT_H_
