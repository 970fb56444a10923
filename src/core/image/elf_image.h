// One ELF file, mapped read-only and checked: a truncated, hostile or foreign file gives an Error, never a bad access.
//
// A file without section headers has no sections and no symbols, which is no Error.  Strings and spans handed out live
// as long as the ElfImage (or the bytes given to `parse`).
#ifndef FPROBE_SRC_CORE_IMAGE_ELF_IMAGE_H_
#define FPROBE_SRC_CORE_IMAGE_ELF_IMAGE_H_

#include <elf.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace libfprobe::detail {

struct ElfSection {
  std::string_view name;
  std::uint64_t address = 0, size = 0, flags = 0, entry_size = 0, alignment = 0;
  std::uint32_t type = 0, link = 0, info = 0;
  std::span<const std::byte> bytes;  // empty for SHT_NOBITS
};

struct ElfSymbol {
  std::string_view name;
  std::uint64_t value = 0, size = 0;
  std::uint8_t type = 0, bind = 0;
  std::uint16_t section = 0;
};

class ElfImage {
 public:
  // The file at `path`.
  [[nodiscard]] static Result<ElfImage> open(const char* path);
  // Bytes that the caller keeps alive (tests, fuzzing).
  [[nodiscard]] static Result<ElfImage> parse(std::span<const std::byte> bytes, const char* name);

  ElfImage(ElfImage&&) noexcept;
  ElfImage& operator=(ElfImage&&) noexcept;
  ~ElfImage();

  [[nodiscard]] std::span<const std::byte> bytes() const noexcept { return bytes_; }  // the whole file
  [[nodiscard]] std::span<const ElfSection> sections() const noexcept { return sections_; }
  [[nodiscard]] const ElfSection* section(std::string_view name) const noexcept;
  [[nodiscard]] std::span<const ElfSymbol> symtab() const noexcept { return symtab_; }  // .symtab, may be empty
  [[nodiscard]] std::span<const ElfSymbol> dynsym() const noexcept { return dynsym_; }  // .dynsym, may be empty
  [[nodiscard]] std::span<const std::byte> build_id() const noexcept { return build_id_; }
  [[nodiscard]] std::uint16_t type() const noexcept { return type_; }  // ET_EXEC, ET_DYN

 private:
  ElfImage() = default;
  std::span<const std::byte> bytes_;
  bool mapped_ = false;
  std::uint16_t type_ = 0;
  std::vector<ElfSection> sections_;
  std::vector<ElfSymbol> symtab_, dynsym_;
  std::span<const std::byte> build_id_;
};

// The GNU build id among `notes` (a PT_NOTE's bytes and alignment), empty if there is none.
[[nodiscard]] std::span<const std::byte> find_build_id_note(std::span<const std::byte> notes,
                                                            std::uint64_t alignment) noexcept;

}  // namespace libfprobe::detail

#endif  // FPROBE_SRC_CORE_IMAGE_ELF_IMAGE_H_
