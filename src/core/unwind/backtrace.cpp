// Backtraces and return addresses as the user should see them: functions and their callers, never a stub or a thunk.
#include <errno.h>
#include <fprobe/fprobe.h>
#include <unwind.h>

#include "base/arch.h"
#include "base/attributes.h"
#include "hot/hit.h"
#include "hot/thread_state.h"
#include "regs.h"

namespace libfprobe::detail {
namespace {

struct Collector {
  unsigned long* ips;
  int max;
  int count;
  std::uintptr_t
      caller_sp;  // the stack pointer of the probed function's caller: frames below are the library's or handler's
  std::uintptr_t ret_ip;
  bool past_caller;
};

// The calling thread's record with the lowest slot above `address`, null if there is none.
const FrameRecord* nearest_above(const ThreadState& self, std::uintptr_t address) noexcept {
  const FrameRecord* nearest = nullptr;
  std::uintptr_t lowest = UINTPTR_MAX;
  for (const FrameRecord* record = self.shadow.top(); record != self.shadow.bottom(); record = record->prev) {
    const std::uintptr_t slot = record->slot.load(std::memory_order_relaxed);  // this thread's own
    if (slot <= address || slot >= lowest) continue;
    nearest = record;
    lowest = slot;
  }
  return nearest;
}

// Frames above the caller; stubs are left out.  In a trace callback _Unwind_GetCFA is the frame's stack pointer.
_Unwind_Reason_Code collect(_Unwind_Context* context, void* argument) noexcept {
  Collector& collector = *static_cast<Collector*>(argument);
  const std::uintptr_t ip = _Unwind_GetIP(context);
  if (!collector.past_caller) {
    collector.past_caller = ip == collector.ret_ip && _Unwind_GetCFA(context) == collector.caller_sp;
    return _URC_NO_REASON;
  }
  if (collector.count == collector.max) return _URC_NORMAL_STOP;
  if (ip != 0 && !arch::is_stub(ip)) collector.ips[collector.count++] = ip;
  return _URC_NO_REASON;
}

}  // namespace
}  // namespace libfprobe::detail

using namespace libfprobe::detail;  // NOLINT(google-build-using-namespace): C API

extern "C" {

int fprobe_backtrace(const ftrace_regs* fregs, unsigned long* ips, int max) {
  if (fregs == nullptr || ips == nullptr || max <= 0) return -EINVAL;
  const bool at_exit = (fregs->flags & kRegsAtExit) != 0;
  const std::uintptr_t caller_sp = at_exit ? fregs->sp : fregs->sp + sizeof(std::uintptr_t);
  Collector collector{ips, max, 0, caller_sp, fregs->return_address, false};
  ips[collector.count++] = fregs->entry_ip;
  if (collector.count < max) ips[collector.count++] = fregs->return_address;
  if (collector.count < max) _Unwind_Backtrace(collect, &collector);
  return collector.count;
}

enum fprobe_exit_reason fprobe_exit_reason(const ftrace_regs* fregs) {
  return (fregs->flags & kRegsUnwound) != 0 ? FPROBE_EXIT_UNWOUND : FPROBE_EXIT_RETURNED;
}

unsigned long fprobe_return_address(unsigned long addr, const void* cfa) {
  if (!arch::is_stub(addr)) return addr;
  const ThreadState* owner = threads::at(arch::stub_index(addr));
  if (owner == nullptr) return addr;
  const bool is_own = owner == current_state();
  const FrameRecord* record = nullptr;
  if (cfa != nullptr) {
    const std::uintptr_t slot = reinterpret_cast<std::uintptr_t>(cfa) - sizeof(std::uintptr_t);
    record = is_own ? owner->shadow.find(slot) : owner->shadow.find_foreign(slot);
    // gcc's __builtin_dwarf_cfa() of a realigned frame is that of a copy of the return address, below the slot.
    if (record == nullptr && is_own) record = nearest_above(*owner, slot);
  } else if (is_own && !owner->shadow.is_empty()) {
    record = owner->shadow.top();
  }
  if (record == nullptr) return addr;
  // Another thread's stub may lie below this one (a fiber that moved and then made a tail call).
  if (!arch::is_stub(record->return_address)) return record->return_address;
  const std::uintptr_t slot = record->slot.load(std::memory_order_relaxed);  // not released: its function runs
  return fprobe_return_address(record->return_address, reinterpret_cast<const void*>(slot + sizeof slot));
}

}  // extern "C"
