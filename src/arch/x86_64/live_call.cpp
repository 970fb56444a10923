// The stack of a live call (live_call.S), as dispatch wants it.
//
//   nested function, on arrival     rsp     return address          during the hit     rsp     return address
//                                   rsp+8   static chain (r10)                         rsp+8   the same
//                                   rsp+16  return slot                                rsp+16  return slot
//
// Then the word below the slot says where the function goes on, as everywhere; and the function's unwind table, which
// does not know of the push, leads to the caller.
#include "base/arch.h"
#include "base/attributes.h"
#include "regs.h"

namespace libfprobe::detail::arch {

FPROBE_HOT std::uintptr_t live_return_address(const ftrace_regs& regs) noexcept {
  return reinterpret_cast<const std::uintptr_t*>(regs.sp)[-1];
}

FPROBE_HOT void lift_chain(ftrace_regs& regs, std::uintptr_t& cfa) noexcept {
  auto* const chain = reinterpret_cast<std::uintptr_t*>(regs.sp);
  regs.r10 = *chain;
  *chain = chain[-1];
  regs.sp += sizeof *chain;
  cfa = regs.sp;
}

FPROBE_HOT void lower_chain(const ftrace_regs& regs) noexcept {
  reinterpret_cast<std::uintptr_t*>(regs.sp)[-1] = regs.r10;
}

}  // namespace libfprobe::detail::arch
