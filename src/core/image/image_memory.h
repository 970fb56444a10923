// Reads a loaded module's own memory: only inside its readable segments, so that a damaged table ends a search and
// never the program.  And its dynamic section, for modules whose file tells nothing.
//
// The caller makes sure that the module stays loaded.
#ifndef FPROBE_SRC_CORE_IMAGE_IMAGE_MEMORY_H_
#define FPROBE_SRC_CORE_IMAGE_IMAGE_MEMORY_H_

#include <elf.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

#include "base/attributes.h"
#include "image/image_list.h"

namespace libfprobe::detail {

// A text segment as its file has it: a debugger's breakpoints were in the memory when it was copied.
struct TextCopy {
  std::uintptr_t start = 0;
  std::vector<std::byte> bytes;
};

class ImageMemory {
 public:
  // Spans of a segment that was copied are the copy's bytes; the caller keeps `copies`.
  explicit ImageMemory(const LoadedImage& image, std::span<const TextCopy> copies = {}) noexcept
      : image_(image), copies_(copies) {}

  [[nodiscard]] bool is_readable(std::uintptr_t address, std::size_t size) const noexcept {
    const Segment* segment = image_.segment_at(address);
    return segment != nullptr && (segment->flags & PF_R) != 0 && size <= segment->end - address;
  }

  // From `address` to the end of its readable segment; empty when there is none.
  [[nodiscard]] std::span<const std::byte> from(std::uintptr_t address) const noexcept {
    const Segment* segment = image_.segment_at(address);
    if (segment == nullptr || (segment->flags & PF_R) == 0) return {};
    for (const TextCopy& copy : copies_)
      if (copy.start == segment->start) return std::span(copy.bytes).subspan(address - copy.start);
    return {reinterpret_cast<const std::byte*>(address), segment->end - address};
  }

  // [address, address + size), empty unless all of it is readable.
  [[nodiscard]] std::span<const std::byte> range(std::uintptr_t address, std::size_t size) const noexcept {
    return is_readable(address, size) ? from(address).first(size) : std::span<const std::byte>{};
  }

  // Unsanitized: linker-made tables are nobody's objects.
  template <class T>
  [[nodiscard]] FPROBE_UNSANITIZED bool read(std::uintptr_t address, T& value) const noexcept {
    if (!is_readable(address, sizeof value)) return false;
    __builtin_memcpy(&value, reinterpret_cast<const void*>(address), sizeof value);
    return true;
  }

  // A word that the dynamic linker may be binding at this moment: one load.
  [[nodiscard]] FPROBE_UNSANITIZED bool read_word(std::uintptr_t address, std::uintptr_t& word) const noexcept {
    if (address % alignof(std::uintptr_t) != 0) return read(address, word);
    if (!is_readable(address, sizeof word)) return false;
    // relaxed: the value is all that counts, the code it names was there before it.
    word = __atomic_load_n(reinterpret_cast<const std::uintptr_t*>(address), __ATOMIC_RELAXED);
    return true;
  }

  // "" when it does not end inside the segment.
  [[nodiscard]] std::string_view string(std::uintptr_t address) const noexcept {
    const Segment* segment = image_.segment_at(address);
    if (segment == nullptr || (segment->flags & PF_R) == 0) return {};
    const auto* text = reinterpret_cast<const char*>(address);
    const auto* end = static_cast<const char*>(std::memchr(text, '\0', segment->end - address));
    return end == nullptr ? std::string_view() : std::string_view(text, static_cast<std::size_t>(end - text));
  }

  [[nodiscard]] bool is_code(std::uintptr_t address) const noexcept {
    const Segment* segment = image_.segment_at(address);
    return segment != nullptr && (segment->flags & PF_X) != 0;
  }

 private:
  const LoadedImage& image_;
  std::span<const TextCopy> copies_;
};

// Execute-only text is left alone: it cannot be verified.
[[nodiscard]] inline bool is_readable_text(const Segment& segment) noexcept {
  return (segment.flags & (PF_R | PF_X)) == (PF_R | PF_X);
}

// Run-time addresses and sizes of the tables a dynamic section names, 0 for those it does not.
class DynamicTables {
 public:
  explicit DynamicTables(const LoadedImage& image) noexcept;

  struct Relocations {
    std::uintptr_t start = 0;
    std::size_t count = 0;
  };
  [[nodiscard]] Relocations relocations() const noexcept { return relocations_; }          // .rela.dyn
  [[nodiscard]] Relocations plt_relocations() const noexcept { return plt_relocations_; }  // .rela.plt
  [[nodiscard]] std::string_view soname() const noexcept { return soname_; }
  // What the loader tells debuggers (struct r_debug), in a main program that a loader loaded; else 0.
  [[nodiscard]] std::uintptr_t debugger_word() const noexcept { return debugger_word_; }
  // Relocating the module changes its text.
  [[nodiscard]] bool has_text_relocations() const noexcept { return has_text_relocations_; }
  // Of .dynsym, as the hash table tells it; 0 when there is none.
  [[nodiscard]] std::size_t symbol_count() const noexcept;
  [[nodiscard]] bool read_symbol(std::size_t index, Elf64_Sym& symbol, std::string_view& name) const noexcept;
  // File address of the module's own definition of `name`, found by hash; 0 if it has none.
  [[nodiscard]] std::uintptr_t definition_of(std::string_view name) const noexcept;

 private:
  [[nodiscard]] std::size_t count_by_gnu_hash() const noexcept;
  [[nodiscard]] bool is_definition(std::size_t index, std::string_view name, std::uintptr_t& address) const noexcept;
  [[nodiscard]] std::uintptr_t find_by_gnu_hash(std::string_view name) const noexcept;
  [[nodiscard]] std::uintptr_t find_by_sysv_hash(std::string_view name) const noexcept;

  ImageMemory memory_;
  std::uintptr_t symbols_ = 0, strings_ = 0, hash_ = 0, gnu_hash_ = 0;
  Relocations relocations_, plt_relocations_;
  std::uintptr_t debugger_word_ = 0;
  bool has_text_relocations_ = false;
  std::string_view soname_;
};

}  // namespace libfprobe::detail

#endif  // FPROBE_SRC_CORE_IMAGE_IMAGE_MEMORY_H_
