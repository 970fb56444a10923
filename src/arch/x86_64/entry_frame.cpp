// The frame of a function whose site lies behind its prologue (the prologues are drawn in prologue.cpp).
#include "base/arch.h"
#include "base/attributes.h"

namespace libfprobe::detail::arch {

FPROBE_HOT FoundFrame find_frame(const SiteShape& shape, std::uintptr_t frame_pointer) noexcept {
  const auto* const frame = reinterpret_cast<const std::uintptr_t*>(frame_pointer);
  if (shape.frame == FrameForm::kRealigned) return {*(frame - shape.frame_word) - sizeof *frame, *frame};
  return {frame_pointer + sizeof *frame, *frame};
}

}  // namespace libfprobe::detail::arch
