// See image_file.h.
#include "image/image_file.h"

#include <errno.h>

#include <algorithm>
#include <span>
#include <string_view>

#include "image/image_memory.h"

namespace libfprobe::detail {
namespace {

constexpr std::string_view kDeleted = " (deleted)";  // what the kernel adds

}  // namespace

std::span<const std::byte> loaded_build_id(const LoadedImage& image) noexcept {
  const ImageMemory memory(image);
  for (std::size_t i = 0; i < image.program_header_count; ++i) {
    Elf64_Phdr header;
    if (!memory.read(image.program_headers + i * sizeof header, header)) break;
    const std::uintptr_t start = image.bias + header.p_vaddr;
    if (header.p_type != PT_NOTE || !memory.is_readable(start, header.p_memsz)) continue;
    const std::span notes(reinterpret_cast<const std::byte*>(start), header.p_memsz);
    if (const auto id = find_build_id_note(notes, header.p_align); !id.empty()) return id;
  }
  return {};
}

Result<ElfImage> open_file_of(const LoadedImage& image) {
  const bool is_deleted_main = image.is_main && std::string_view(image.path).ends_with(kDeleted);
  Result<ElfImage> file = ElfImage::open(is_deleted_main ? "/proc/self/exe" : image.path.c_str());
  if (file && !is_file_of(image, *file))
    return make_error(
        ESTALE,
        "the file %s was replaced after the process loaded it: restart the process to probe its functions by name",
        image.path.c_str());
  return file;
}

bool is_file_of(const LoadedImage& image, const ElfImage& file) noexcept {
  if (image.program_headers == 0) return true;
  const auto loaded = loaded_build_id(image);
  return std::equal(loaded.begin(), loaded.end(), file.build_id().begin(), file.build_id().end());
}

}  // namespace libfprobe::detail
