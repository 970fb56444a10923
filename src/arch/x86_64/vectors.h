// Vector registers around handlers.
//
// The code of a hit is compiled for general registers alone, so from entry.S (or return.S) to the first handler the vector
// registers hold what the target left in them: dispatch saves those that its callers may rely on, and only when a handler
// may change them.
//
//   what                          saved by                 for
//   xmm0-7, at exit xmm0-1        save_arguments/results   every handler but those of FPROBE_FL_GENERAL_REGS
//   ymm0-7 or zmm0-7              WideVectors              modules with code for wide vectors (psABI 3.2.3: __m256, __m512)
//   xmm0-15                       CallerSavedVectors       gcc's patchable sites: the attribute leaves -fipa-ra on
//   the whole extended state      WholeState               both of these together, and FPROBE_SAVE_ALL
//   sticky exception flags        FloatingPointFlags       FPROBE_FL_SAVE_FPENV
//
// Each restores whole registers; restore_arguments comes last and puts in what handlers changed.
#ifndef FPROBE_SRC_ARCH_X86_64_VECTORS_H_
#define FPROBE_SRC_ARCH_X86_64_VECTORS_H_

#include <cstddef>
#include <cstdint>

#include "base/attributes.h"
#include "regs.h"

namespace libfprobe::detail::arch {

// What this CPU and kernel let programs use; found out before the first site is armed.
struct VectorSupport {
  bool has_avx = false, has_avx512 = false;
  std::uint32_t state_components = 0;  // of XSAVE; 0: FXSAVE alone
};
extern constinit VectorSupport g_vector_support __attribute__((visibility("hidden")));

FPROBE_HOT inline void save_arguments(ftrace_regs& regs) noexcept {
  asm volatile(
      "movaps %%xmm0, 0(%0)\n\tmovaps %%xmm1, 16(%0)\n\tmovaps %%xmm2, 32(%0)\n\tmovaps %%xmm3, 48(%0)\n\t"
      "movaps %%xmm4, 64(%0)\n\tmovaps %%xmm5, 80(%0)\n\tmovaps %%xmm6, 96(%0)\n\tmovaps %%xmm7, 112(%0)"
      :
      : "r"(regs.xmm)
      : "memory");
}
FPROBE_HOT inline void restore_arguments(const ftrace_regs& regs) noexcept {
  asm volatile(
      "movaps 0(%0), %%xmm0\n\tmovaps 16(%0), %%xmm1\n\tmovaps 32(%0), %%xmm2\n\tmovaps 48(%0), %%xmm3\n\t"
      "movaps 64(%0), %%xmm4\n\tmovaps 80(%0), %%xmm5\n\tmovaps 96(%0), %%xmm6\n\tmovaps 112(%0), %%xmm7"
      :
      : "r"(regs.xmm)
      : "memory");
}
FPROBE_HOT inline void save_results(ftrace_regs& regs) noexcept {
  asm volatile("movaps %%xmm0, 0(%0)\n\tmovaps %%xmm1, 16(%0)" : : "r"(regs.xmm) : "memory");
}
FPROBE_HOT inline void restore_results(const ftrace_regs& regs) noexcept {
  asm volatile("movaps 0(%0), %%xmm0\n\tmovaps 16(%0), %%xmm1" : : "r"(regs.xmm) : "memory");
}

// The rest is rare: a hit that needs one of these costs what it costs.
class alignas(64) WideVectors {
 public:
  FPROBE_UNSANITIZED void save() noexcept;
  FPROBE_UNSANITIZED void restore() const noexcept;

 private:
  [[nodiscard]] bool are_narrow() const noexcept;

  unsigned char registers_[8][64];
};

class alignas(16) CallerSavedVectors {
 public:
  FPROBE_UNSANITIZED void save() noexcept;
  FPROBE_UNSANITIZED void restore() const noexcept;

 private:
  unsigned char registers_[16][16];
};

// Intel SDM vol. 1, 13.4: the legacy region, the header, and in the standard format the components up to ZMM16-31, which
// end at 2688 at the latest.
class alignas(64) WholeState {
 public:
  FPROBE_UNSANITIZED void save() noexcept;
  FPROBE_UNSANITIZED void restore() noexcept;

 private:
  void add_raised_flags() noexcept;

  static constexpr std::size_t kX87Status = 2, kMxcsr = 24;
  static constexpr std::size_t kHeader = 512, kHeaderSize = 64, kSize = 2688;
  unsigned char area_[kSize];
};

class FloatingPointFlags {
 public:
  FPROBE_UNSANITIZED void save() noexcept;
  FPROBE_UNSANITIZED void restore() const noexcept;

 private:
  unsigned char x87_[28];
  std::uint32_t mxcsr_;
};

}  // namespace libfprobe::detail::arch

#endif  // FPROBE_SRC_ARCH_X86_64_VECTORS_H_
