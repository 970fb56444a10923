// The file of a loaded module: opened by its path, and checked to be the file that was loaded, not one that has
// replaced it since.
#ifndef FPROBE_SRC_CORE_IMAGE_IMAGE_FILE_H_
#define FPROBE_SRC_CORE_IMAGE_IMAGE_FILE_H_

#include <errno.h>

#include <cstddef>
#include <span>

#include "base/result.h"
#include "image/elf_image.h"
#include "image/image_list.h"

namespace libfprobe::detail {

// A file that cannot be opened or mapped for want of something, as opposed to a file that is not there: to be reported,
// or its names would seem unknown.
[[nodiscard]] inline bool is_shortage(const Error& error) noexcept {
  return error.code == ENOMEM || error.code == EMFILE || error.code == ENFILE;
}

// A main program that was deleted is still found (/proc/self/exe); another deleted or replaced file is an Error, which
// need not be one for the caller: memory alone still has the dynamic symbols.
[[nodiscard]] Result<ElfImage> open_file_of(const LoadedImage& image);

// In the module's memory, empty if it has none.
[[nodiscard]] std::span<const std::byte> loaded_build_id(const LoadedImage& image) noexcept;

// False when both or one of the two carry a build id and these differ.
[[nodiscard]] bool is_file_of(const LoadedImage& image, const ElfImage& file) noexcept;

}  // namespace libfprobe::detail

#endif  // FPROBE_SRC_CORE_IMAGE_IMAGE_FILE_H_
