// Overwrites every register that the psABI lets a function change, in the width the CPU has.
#include "integration/fidelity/machine.h"

namespace fidelity {
namespace {

template <int Width>
void clobber_vectors();

template <>
[[gnu::target("sse2")]] void clobber_vectors<16>() {
  asm volatile(".irp n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15\n\tpcmpeqd %%xmm\\n, %%xmm\\n\n\t.endr"
               :
               :
               : "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11",
                 "xmm12", "xmm13", "xmm14", "xmm15");
}

template <>
[[gnu::target("avx2")]] void clobber_vectors<32>() {
  asm volatile(
      ".irp n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15\n\tvpcmpeqd %%ymm\\n, %%ymm\\n, %%ymm\\n\n\t.endr"
      :
      :
      : "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12",
        "xmm13", "xmm14", "xmm15");
}

template <>
[[gnu::target("avx512f")]] void clobber_vectors<64>() {
  clobber_vectors<32>();
  asm volatile(
      ".irp n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, "
      "28, 29, 30, 31\n\tvpternlogd $255, %%zmm\\n, %%zmm\\n, %%zmm\\n\n\t.endr\n\t"
      ".irp n, 0, 1, 2, 3, 4, 5, 6, 7\n\tkxnorw %%k\\n, %%k\\n, %%k\\n\n\t.endr"
      :
      :
      : "memory");
}

}  // namespace

void clobber_general() {
  asm volatile(
      "movq $-1, %%rax\n\tmovq %%rax, %%rcx\n\tmovq %%rax, %%rdx\n\tmovq %%rax, %%rsi\n\tmovq %%rax, %%rdi\n\t"
      "movq %%rax, %%r8\n\tmovq %%rax, %%r9\n\tmovq %%rax, %%r10\n\tmovq %%rax, %%r11\n\tnegq %%rax"
      :
      :
      : "rax", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11", "cc");
}

void clobber_everything(unsigned width) {
  if (width == 64) clobber_vectors<64>();
  if (width == 32) clobber_vectors<32>();
  if (width == 16) clobber_vectors<16>();
  if (width > 16) asm volatile("vzeroupper" : : : "memory");
  clobber_general();
}

unsigned widest_vector() {
  if (__builtin_cpu_supports("avx512f")) return 64;
  return __builtin_cpu_supports("avx2") ? 32 : 16;
}

void raise_sticky_flags() {
  volatile double zero = 0, one = 1;
  volatile long double x87_zero = 0, x87_one = 1;
  volatile double quotient = one / zero;
  volatile long double x87_quotient = x87_one / x87_zero;
  (void)quotient, (void)x87_quotient;
}

StickyFlags sticky_flags() {
  unsigned mxcsr = 0;
  unsigned short x87 = 0;
  asm volatile("stmxcsr %0\n\tfnstsw %1" : "=m"(mxcsr), "=m"(x87));
  return {mxcsr & 0x3f, x87 & 0x3fU};
}

void clear_sticky_flags() {
  unsigned mxcsr = 0;
  asm volatile("fnclex\n\tstmxcsr %0" : "=m"(mxcsr));
  mxcsr &= ~0x3fU;
  asm volatile("ldmxcsr %0" : : "m"(mxcsr));
}

}  // namespace fidelity
