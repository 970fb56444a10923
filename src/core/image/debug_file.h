// The separate debug file of a module whose own file has no .symtab: looked for where gdb looks, used only if verified.
//
//   1. <root>/.build-id/ab/cdef….debug   by the build id in the module's memory: the file carries the same
//   2. <folder>/<name>                   by the .gnu_debuglink {name, CRC-32} of the module's own file: the file's bytes
//      <folder>/.debug/<name>            have this CRC, and its build id, if any, is the module's
//      <root><folder>/<name>             (<folder>: the module's; then, of a symbolic link, the one that it leads to)
//
// In either case its code has to lie at the module's addresses.  Its sections have no contents: symbols alone are used.
#ifndef FPROBE_SRC_CORE_IMAGE_DEBUG_FILE_H_
#define FPROBE_SRC_CORE_IMAGE_DEBUG_FILE_H_

#include <cstdint>
#include <optional>
#include <string>

#include "base/result.h"
#include "image/elf_image.h"
#include "image/image_list.h"

namespace libfprobe::detail {

struct DebugFile {
  std::optional<ElfImage> file;  // verified, has a .symtab
  std::string refusal;           // names the first file that was there but is not used, and why; or ""
};

// `own`: the module's own file, null if it cannot be had; then by build id alone.  An Error is a shortage (is_shortage).
[[nodiscard]] Result<DebugFile> find_debug_file(const LoadedImage& image, const ElfImage* own);

// Where the first of these places is; "" when the module has no build id.
[[nodiscard]] std::string path_by_build_id(const LoadedImage& image);

struct DebugLink {
  std::string name;  // without a folder
  std::uint32_t crc = 0;
};
// Nothing when there is none or it is damaged.
[[nodiscard]] std::optional<DebugLink> debug_link_of(const ElfImage& file);

// For tests, which may not write to /usr/lib/debug.  The string is kept, not copied.
void set_debug_root(const char* folder) noexcept;

}  // namespace libfprobe::detail

#endif  // FPROBE_SRC_CORE_IMAGE_DEBUG_FILE_H_
