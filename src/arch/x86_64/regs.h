// struct ftrace_regs of x86-64: what entry.S and return.S save (layout in regs_offsets.h).
//
// Arch-neutral code uses only the members and functions named alike on every CPU: ip, sp, return_address, flags,
// entry_ip, regs_apply_skip, regs_clear_results.
#ifndef FPROBE_SRC_ARCH_X86_64_REGS_H_
#define FPROBE_SRC_ARCH_X86_64_REGS_H_

#include <cstddef>
#include <cstdint>

#include "regs_offsets.h"

struct alignas(16) ftrace_regs {
  unsigned char xmm[8][16];
  unsigned long di, si, dx, cx, r8, r9, ax, r10;
  unsigned long bp;
  unsigned long ip;              // entry: entry_ip, or where a handler wants to go on; exit: ret_ip
  unsigned long sp;              // entry: address of the return slot; exit: the word above it
  unsigned long return_address;  // true, at both ends
  unsigned long flags;           // kRegs...
  unsigned long entry_ip;
  // Return values set at entry, for a skipped body: kept apart, since ax and dx still hold arguments there.
  unsigned long staged_ax, staged_dx;
  unsigned char staged_xmm[2][8];
  unsigned long stack;    // entry behind a prologue: the stack pointer there
  unsigned long scratch;  // r11, where every register is kept
};

namespace libfprobe::detail::arch {
struct SiteShape;
}

namespace libfprobe::detail {

inline constexpr unsigned long kRegsHasVectors = 1;   // xmm is filled: a handler needs it (as arch::kKeepArguments)
inline constexpr unsigned long kRegsAtExit = 256;     // return values are held, arguments are gone
inline constexpr unsigned long kRegsUnwound = 2;      // the function was left by an unwinding
inline constexpr unsigned long kRegsSkip = 4;         // an entry handler overrides the function
inline constexpr unsigned long kRegsNoArguments = 8;  // the site lies behind code that moved the arguments
inline constexpr unsigned long kRegsStagedAx = 16, kRegsStagedDx = 32, kRegsStagedXmm0 = 64, kRegsStagedXmm1 = 128;

static_assert(offsetof(ftrace_regs, di) == REGS_DI && offsetof(ftrace_regs, si) == REGS_SI);
static_assert(offsetof(ftrace_regs, dx) == REGS_DX && offsetof(ftrace_regs, cx) == REGS_CX);
static_assert(offsetof(ftrace_regs, r8) == REGS_R8 && offsetof(ftrace_regs, r9) == REGS_R9);
static_assert(offsetof(ftrace_regs, ax) == REGS_AX && offsetof(ftrace_regs, r10) == REGS_R10);
static_assert(offsetof(ftrace_regs, bp) == REGS_BP && offsetof(ftrace_regs, ip) == REGS_IP);
static_assert(offsetof(ftrace_regs, sp) == REGS_SP && offsetof(ftrace_regs, flags) == REGS_FLAGS);
static_assert(offsetof(ftrace_regs, return_address) == REGS_RETURN_ADDRESS);
static_assert(offsetof(ftrace_regs, entry_ip) == REGS_ENTRY_IP && offsetof(ftrace_regs, scratch) == REGS_SCRATCH);
static_assert(sizeof(ftrace_regs) == REGS_SIZE);

// The body is to be skipped: return values become what the entry handlers staged (0 where nothing was set).  Returns where
// the hit goes on; 0: the function cannot be left at this site, nothing was changed.
[[nodiscard]] std::uintptr_t regs_apply_skip(ftrace_regs& regs, const arch::SiteShape& shape) noexcept;
// A handler set regs.ip: where the hit goes on, so that the code there finds the stack as the call left it.  Behind a
// prologue that moved arguments there is no such way: the function goes on (`tail`).
[[nodiscard]] std::uintptr_t regs_continue_at(ftrace_regs& regs, const arch::SiteShape& shape,
                                              std::uintptr_t tail) noexcept;
// Return values read 0: the function was left by an unwinding.
void regs_clear_results(ftrace_regs& regs) noexcept;

}  // namespace libfprobe::detail

#endif  // FPROBE_SRC_ARCH_X86_64_REGS_H_
