// Breakpoints that a debugger has put into text before it is scanned: a scan must see the file's bytes there, or it would
// take the function for one without a site for as long as the process runs.
#ifndef FPROBE_SRC_CORE_IMAGE_BREAKPOINTS_H_
#define FPROBE_SRC_CORE_IMAGE_BREAKPOINTS_H_

#include <vector>

#include "image/elf_image.h"
#include "image/image_list.h"
#include "image/image_memory.h"

namespace libfprobe::detail {

// Copies of those readable text segments that hold a breakpoint where the file has something else.  Usually none.
[[nodiscard]] std::vector<TextCopy> copies_without_breakpoints(const LoadedImage& image, const ElfImage& file);

}  // namespace libfprobe::detail

#endif  // FPROBE_SRC_CORE_IMAGE_BREAKPOINTS_H_
