// See vectors.h: what rare hits save.  Compiled like all code that runs on a hit.
#include "vectors.h"

// entry_vectors.S
extern "C" {
__attribute__((visibility("hidden"))) void fprobe_save_ymm(unsigned char (*registers)[64]) noexcept;
__attribute__((visibility("hidden"))) void fprobe_restore_ymm(const unsigned char (*registers)[64]) noexcept;
__attribute__((visibility("hidden"))) void fprobe_save_zmm(unsigned char (*registers)[64]) noexcept;
__attribute__((visibility("hidden"))) void fprobe_restore_zmm(const unsigned char (*registers)[64]) noexcept;
}

namespace libfprobe::detail::arch {

FPROBE_UNPROBED void WideVectors::save() noexcept {
  g_vector_support.has_avx512 ? fprobe_save_zmm(registers_) : fprobe_save_ymm(registers_);
}

// Registers whose upper parts were zero get them zeroed: written as whole registers they would slow down all code that
// uses their lower parts alone.
FPROBE_UNPROBED FPROBE_UNSANITIZED bool WideVectors::are_narrow() const noexcept {
  unsigned long bits = 0;
  const std::size_t words = g_vector_support.has_avx512 ? 8 : 4;
  for (const auto& vector : registers_) {
    const auto* const word = reinterpret_cast<const unsigned long*>(vector);
    for (std::size_t i = 2; i < words; ++i) bits |= word[i];
  }
  return bits == 0;
}

FPROBE_UNPROBED void WideVectors::restore() const noexcept {
  if (are_narrow()) {
    asm volatile("vzeroupper");  // the lower parts are restore_arguments' business
    return;
  }
  g_vector_support.has_avx512 ? fprobe_restore_zmm(registers_) : fprobe_restore_ymm(registers_);
}

FPROBE_UNPROBED void CallerSavedVectors::save() noexcept {
  asm volatile(".irp n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15\n\tmovaps %%xmm\\n, 16*\\n(%0)\n\t.endr"
               :
               : "r"(registers_)
               : "memory");
}

FPROBE_UNPROBED void CallerSavedVectors::restore() const noexcept {
  asm volatile(".irp n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15\n\tmovaps 16*\\n(%0), %%xmm\\n\n\t.endr"
               :
               : "r"(registers_)
               : "memory");
}

FPROBE_UNPROBED void WholeState::save() noexcept {
  if (g_vector_support.state_components == 0) {
    asm volatile("fxsave64 (%0)" : : "r"(area_) : "memory");
    return;
  }
  // XSAVE leaves the rest of the header as it finds it, and XRSTOR insists on zeros there.
  auto* const header = reinterpret_cast<unsigned long*>(area_ + kHeader);
  for (std::size_t i = 0; i < kHeaderSize / sizeof *header; ++i) header[i] = 0;
  asm volatile("xsave64 (%0)" : : "r"(area_), "a"(g_vector_support.state_components), "d"(0) : "memory");
}

// The exception flags that handlers raised stay raised (FloatingPointFlags takes them back).
FPROBE_UNPROBED FPROBE_UNSANITIZED void WholeState::add_raised_flags() noexcept {
  constexpr std::uint32_t kExceptions = 0x3f;
  std::uint32_t mxcsr = 0;
  std::uint16_t x87_status = 0;
  asm volatile("stmxcsr %0\n\tfnstsw %1" : "=m"(mxcsr), "=m"(x87_status));
  *reinterpret_cast<std::uint32_t*>(area_ + kMxcsr) |= mxcsr & kExceptions;
  if ((x87_status & kExceptions) == 0) return;
  *reinterpret_cast<std::uint16_t*>(area_ + kX87Status) |= static_cast<std::uint16_t>(x87_status & kExceptions);
  area_[kHeader] |= 1;  // else XRSTOR takes the x87 for untouched
}

FPROBE_UNPROBED void WholeState::restore() noexcept {
  add_raised_flags();
  if (g_vector_support.state_components == 0) {
    asm volatile("fxrstor64 (%0)" : : "r"(area_) : "memory");
    return;
  }
  asm volatile("xrstor64 (%0)" : : "r"(area_), "a"(g_vector_support.state_components), "d"(0) : "memory");
}

// fnstenv masks every exception; handlers shall run with the target's control word.
FPROBE_UNPROBED void FloatingPointFlags::save() noexcept {
  asm volatile("fnstenv (%0)\n\tfldcw (%0)\n\tstmxcsr (%1)" : : "r"(x87_), "r"(&mxcsr_) : "memory");
}

FPROBE_UNPROBED void FloatingPointFlags::restore() const noexcept {
  asm volatile("fldenv (%0)\n\tldmxcsr (%1)" : : "r"(x87_), "r"(&mxcsr_) : "memory");
}

}  // namespace libfprobe::detail::arch
