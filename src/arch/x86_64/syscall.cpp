// The bare system call of x86-64: see base/arch.h and base/syscalls.h.
//
// Runs where libc must not be entered (a first hit, a signal handler, inside malloc): no errno, no cancellation point,
// no call of anything.
#include "base/arch.h"
#include "base/attributes.h"

namespace libfprobe::detail::arch {

FPROBE_UNPROBED FPROBE_UNSANITIZED long syscall(long number, long a, long b, long c, long d, long e, long f) noexcept {
  register long r10 asm("r10") = d;  // the kernel's fourth argument: the instruction itself overwrites rcx and r11
  register long r8 asm("r8") = e;
  register long r9 asm("r9") = f;
  long result;
  asm volatile("syscall"
               : "=a"(result)
               : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
               : "rcx", "r11", "memory");
  return result;
}

}  // namespace libfprobe::detail::arch
