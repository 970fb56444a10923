// Whether a module's code works with vectors wider than those that every x86-64 has.
//
// Decided for a module as a whole: a function hands wide arguments on without an instruction that touches them.
#ifndef FPROBE_SRC_CORE_IMAGE_WIDE_VECTORS_H_
#define FPROBE_SRC_CORE_IMAGE_WIDE_VECTORS_H_

#include "image/image_list.h"

namespace libfprobe::detail {

// True also when it cannot be told: keeping more than is needed is slower, not wrong.  Throws std::bad_alloc.
[[nodiscard]] bool has_wide_vectors(const LoadedImage& image);

}  // namespace libfprobe::detail

#endif  // FPROBE_SRC_CORE_IMAGE_WIDE_VECTORS_H_
