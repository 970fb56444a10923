// Leaving a function whose body an entry handler overrides, from wherever its site lies.
//
//   at the entry                 nothing happened yet: return                                   fprobe_skip_body
//   behind gcc's prologue        only rbp and rsp changed: both are in the frame                fprobe_skip_behind_prologue
//   behind code of clang's -pg   callee-saved registers may hold the function's own values:     fprobe_skip_unwound
//                                the unwinder tells the caller's
#include <unwind.h>

#include <cstring>

#include "base/arch.h"
#include "base/attributes.h"
#include "regs.h"

extern "C" {
__attribute__((visibility("hidden"))) extern const char fprobe_skip_body[];
__attribute__((visibility("hidden"))) extern const char fprobe_skip_behind_prologue[];
__attribute__((visibility("hidden"))) extern const char fprobe_skip_unwound[];
__attribute__((visibility("hidden"))) extern const char fprobe_continue_elsewhere[];
}

namespace libfprobe::detail {
namespace {

// The caller's callee-saved registers but rbp, which the frame holds.
struct Search {
  std::uintptr_t slot, return_address;
  unsigned long rbx = 0, r12 = 0, r13 = 0, r14 = 0, r15 = 0;
  bool found = false;
};

// In a trace callback _Unwind_GetCFA is the frame's stack pointer.
FPROBE_UNPROBED _Unwind_Reason_Code read_caller(_Unwind_Context* context, void* argument) noexcept {
  auto& search = *static_cast<Search*>(argument);
  if (_Unwind_GetIP(context) != search.return_address ||
      _Unwind_GetCFA(context) != search.slot + sizeof(std::uintptr_t)) {
    return _URC_NO_REASON;
  }
  // psABI figure 3.36: DWARF register numbers.
  search.rbx = _Unwind_GetGR(context, 3);
  search.r12 = _Unwind_GetGR(context, 12);
  search.r13 = _Unwind_GetGR(context, 13);
  search.r14 = _Unwind_GetGR(context, 14);
  search.r15 = _Unwind_GetGR(context, 15);
  search.found = true;
  return _URC_NORMAL_STOP;
}

// Into the registers where fprobe_skip_unwound takes them from: arguments are over.
FPROBE_UNPROBED bool fetch_caller(ftrace_regs& regs) noexcept {
  Search search{regs.sp, regs.return_address};
  _Unwind_Backtrace(read_caller, &search);
  if (!search.found) return false;
  regs.di = search.rbx;
  regs.si = search.r12;
  regs.cx = search.r13;
  regs.r8 = search.r14;
  regs.r9 = search.r15;
  return true;
}

void apply_staged(ftrace_regs& regs) noexcept {
  regs.ax = (regs.flags & kRegsStagedAx) != 0 ? regs.staged_ax : 0;
  regs.dx = (regs.flags & kRegsStagedDx) != 0 ? regs.staged_dx : 0;
  for (unsigned n = 0; n < 2; ++n) {
    const unsigned long staged = n == 0 ? kRegsStagedXmm0 : kRegsStagedXmm1;
    std::memset(regs.xmm[n], 0, sizeof regs.xmm[n]);
    if ((regs.flags & staged) != 0) std::memcpy(regs.xmm[n], regs.staged_xmm[n], sizeof regs.staged_xmm[n]);
  }
}

}  // namespace

std::uintptr_t regs_apply_skip(ftrace_regs& regs, const arch::SiteShape& shape) noexcept {
  const char* code = fprobe_skip_body;
  if (shape.is_behind_prologue()) {
    if (shape.arguments_moved && !fetch_caller(regs)) return 0;
    code = shape.arguments_moved ? fprobe_skip_unwound : fprobe_skip_behind_prologue;
    regs.r10 = regs.sp;
  }
  apply_staged(regs);
  return reinterpret_cast<std::uintptr_t>(code);
}

std::uintptr_t regs_continue_at(ftrace_regs& regs, const arch::SiteShape& shape, std::uintptr_t tail) noexcept {
  if (!shape.is_behind_prologue()) return regs.ip;
  if (shape.arguments_moved) return tail;
  // Words of the entry code's frame that it needs no more.
  reinterpret_cast<std::uintptr_t*>(regs.stack)[-1] = regs.ip;
  reinterpret_cast<std::uintptr_t*>(regs.stack)[-3] = regs.sp;
  return reinterpret_cast<std::uintptr_t>(fprobe_continue_elsewhere);
}

}  // namespace libfprobe::detail
