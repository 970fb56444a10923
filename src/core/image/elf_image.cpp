// See elf_image.h.  Every offset, size and count comes from the file and is checked against it before use; headers are
// copied out, because nothing in a hostile file is aligned.
#include "image/elf_image.h"

#include <errno.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <optional>
#include <utility>

#include "arch_defs.h"
#include "base/syscalls.h"

namespace libfprobe::detail {
namespace {

using Bytes = std::span<const std::byte>;

bool lies_within(std::uint64_t offset, std::uint64_t size, std::size_t whole) noexcept {
  return offset <= whole && size <= whole - offset;
}

// The caller has checked that it lies within.
template <class T>
T copy_at(Bytes bytes, std::uint64_t offset) noexcept {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

// A string table; its last byte is NUL, so every string in it ends.
class StringTable {
 public:
  [[nodiscard]] static std::optional<StringTable> over(Bytes bytes) noexcept {
    if (bytes.empty() || bytes.back() != std::byte{0}) return std::nullopt;
    return StringTable(bytes);
  }
  [[nodiscard]] std::optional<std::string_view> at(std::uint64_t offset) const noexcept {
    if (offset >= bytes_.size()) return std::nullopt;
    return std::string_view(reinterpret_cast<const char*>(bytes_.data()) + offset);
  }

 private:
  explicit StringTable(Bytes bytes) noexcept : bytes_(bytes) {}
  Bytes bytes_;
};

// Offsets in the file of what the ELF header describes.
struct Layout {
  std::uint16_t type = 0;
  std::uint64_t section_offset = 0, section_count = 0, name_section = 0;
  std::uint64_t segment_offset = 0, segment_count = 0;
};

Error damaged(const char* name, const char* what) noexcept {
  return make_error(ENOEXEC, "%s is no usable ELF file: %s; probe the file the program was built as, or rebuild it",
                    name, what);
}

const char* refuse_header(const Elf64_Ehdr& header) noexcept {
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0) return "it does not begin with the ELF magic";
  if (header.e_ident[EI_CLASS] != ELFCLASS64) return "it is not a 64-bit file";
  if (header.e_ident[EI_DATA] != ELFDATA2LSB) return "it is not little-endian";
  if (header.e_machine != arch::kElfMachine) return "it is for another CPU";
  if (header.e_type != ET_EXEC && header.e_type != ET_DYN) return "it is neither an executable nor a shared object";
  return nullptr;
}

Result<Layout> read_layout(Bytes bytes, const char* name) {
  if (bytes.size() < sizeof(Elf64_Ehdr)) return damaged(name, "it is shorter than an ELF header");
  const auto header = copy_at<Elf64_Ehdr>(bytes, 0);
  if (const char* reason = refuse_header(header)) return damaged(name, reason);

  Layout layout;
  layout.type = header.e_type;
  layout.segment_offset = header.e_phoff;
  layout.segment_count = header.e_phoff == 0 ? 0 : header.e_phnum;
  if (layout.segment_count != 0 && header.e_phentsize != sizeof(Elf64_Phdr))
    return damaged(name, "its program headers have an unknown size");
  if (!lies_within(layout.segment_offset, layout.segment_count * sizeof(Elf64_Phdr), bytes.size()))
    return damaged(name, "its program headers lie outside the file");
  if (header.e_shoff == 0) return layout;  // stripped of its section headers

  if (header.e_shentsize != sizeof(Elf64_Shdr)) return damaged(name, "its section headers have an unknown size");
  if (!lies_within(header.e_shoff, sizeof(Elf64_Shdr), bytes.size()))
    return damaged(name, "its section headers lie outside the file");
  const auto first = copy_at<Elf64_Shdr>(bytes, header.e_shoff);  // holds what does not fit into the header
  layout.section_offset = header.e_shoff;
  layout.section_count = header.e_shnum != 0 ? header.e_shnum : first.sh_size;
  layout.name_section = header.e_shstrndx != SHN_XINDEX ? header.e_shstrndx : first.sh_link;
  if (layout.section_count > (bytes.size() - layout.section_offset) / sizeof(Elf64_Shdr))
    return damaged(name, "its section headers lie outside the file");
  return layout;
}

Result<std::vector<ElfSection>> read_sections(Bytes bytes, const Layout& layout, const char* name) {
  std::vector<ElfSection> sections;
  sections.reserve(layout.section_count);
  std::vector<std::uint32_t> name_offsets;
  name_offsets.reserve(layout.section_count);
  for (std::uint64_t i = 0; i < layout.section_count; ++i) {
    const auto header = copy_at<Elf64_Shdr>(bytes, layout.section_offset + i * sizeof(Elf64_Shdr));
    const bool has_bytes = header.sh_type != SHT_NOBITS && header.sh_type != SHT_NULL;
    if (has_bytes && !lies_within(header.sh_offset, header.sh_size, bytes.size()))
      return damaged(name, "a section lies outside the file");
    ElfSection section;
    section.address = header.sh_addr;
    section.size = header.sh_size;
    section.flags = header.sh_flags;
    section.entry_size = header.sh_entsize;
    section.alignment = header.sh_addralign;
    section.type = header.sh_type;
    section.link = header.sh_link;
    section.info = header.sh_info;
    if (has_bytes) section.bytes = bytes.subspan(header.sh_offset, header.sh_size);
    sections.push_back(section);
    name_offsets.push_back(header.sh_name);
  }
  if (layout.name_section == SHN_UNDEF || sections.empty()) return sections;  // nameless sections

  if (layout.name_section >= sections.size()) return damaged(name, "its section names are missing");
  const auto names = StringTable::over(sections[layout.name_section].bytes);
  if (!names) return damaged(name, "its section names do not end");
  for (std::size_t i = 0; i < sections.size(); ++i) {
    const auto text = names->at(name_offsets[i]);
    if (!text) return damaged(name, "a section's name lies outside the section names");
    sections[i].name = *text;
  }
  return sections;
}

Result<std::vector<ElfSymbol>> read_symbols(std::span<const ElfSection> sections, std::uint32_t type,
                                            const char* name) {
  std::vector<ElfSymbol> symbols;
  const auto table =
      std::find_if(sections.begin(), sections.end(), [&](const ElfSection& s) { return s.type == type; });
  if (table == sections.end()) return symbols;
  if (table->entry_size != sizeof(Elf64_Sym) || table->bytes.size() % sizeof(Elf64_Sym) != 0)
    return damaged(name, "its symbol table has entries of an unknown size");
  if (table->link >= sections.size() || sections[table->link].type != SHT_STRTAB)
    return damaged(name, "its symbol table has no string table");
  const auto names = StringTable::over(sections[table->link].bytes);
  if (!names) return damaged(name, "its symbols' names do not end");

  const std::size_t count = table->bytes.size() / sizeof(Elf64_Sym);
  symbols.reserve(count);
  for (std::size_t i = 1; i < count; ++i) {  // the first entry is reserved
    const auto entry = copy_at<Elf64_Sym>(table->bytes, i * sizeof(Elf64_Sym));
    const auto text = names->at(entry.st_name);
    if (!text) return damaged(name, "a symbol's name lies outside its string table");
    symbols.push_back({*text, entry.st_value, entry.st_size, static_cast<std::uint8_t>(ELF64_ST_TYPE(entry.st_info)),
                       static_cast<std::uint8_t>(ELF64_ST_BIND(entry.st_info)), entry.st_shndx});
  }
  return symbols;
}

// By sections: a debug file's program headers may be the module's, whose offsets mean nothing here.  Then by program
// headers: they outlive the section headers.
Bytes find_build_id(Bytes bytes, const Layout& layout, std::span<const ElfSection> sections) noexcept {
  for (const ElfSection& section : sections) {
    if (section.type != SHT_NOTE || (section.flags & SHF_ALLOC) == 0) continue;
    const Bytes id = find_build_id_note(section.bytes, section.alignment);
    if (!id.empty()) return id;
  }
  for (std::uint64_t i = 0; i < layout.segment_count; ++i) {
    const auto header = copy_at<Elf64_Phdr>(bytes, layout.segment_offset + i * sizeof(Elf64_Phdr));
    if (header.p_type != PT_NOTE || !lies_within(header.p_offset, header.p_filesz, bytes.size())) continue;
    const Bytes id = find_build_id_note(bytes.subspan(header.p_offset, header.p_filesz), header.p_align);
    if (!id.empty()) return id;
  }
  return {};
}

}  // namespace

std::span<const std::byte> find_build_id_note(std::span<const std::byte> notes, std::uint64_t alignment) noexcept {
  const std::uint64_t step = alignment == 8 ? 8 : 4;
  const auto padded = [step](std::uint64_t size) { return (size + step - 1) / step * step; };
  for (std::uint64_t at = 0; lies_within(at, sizeof(Elf64_Nhdr), notes.size());) {
    const auto note = copy_at<Elf64_Nhdr>(notes, at);
    const std::uint64_t owner = at + sizeof(Elf64_Nhdr);
    const std::uint64_t content = at + padded(sizeof(Elf64_Nhdr) + std::uint64_t{note.n_namesz});
    if (!lies_within(owner, note.n_namesz, notes.size()) || !lies_within(content, note.n_descsz, notes.size())) break;
    if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == sizeof ELF_NOTE_GNU &&
        std::memcmp(notes.data() + owner, ELF_NOTE_GNU, sizeof ELF_NOTE_GNU) == 0)
      return notes.subspan(content, note.n_descsz);
    at = content + padded(note.n_descsz);
  }
  return {};
}

Result<ElfImage> ElfImage::parse(std::span<const std::byte> bytes, const char* name) {
  try {
    if (!sys::allocation_allowed()) throw std::bad_alloc();
    const Result<Layout> layout = read_layout(bytes, name);
    if (!layout) return layout.error();
    ElfImage image;
    image.bytes_ = bytes;
    image.type_ = layout.value().type;
    Result<std::vector<ElfSection>> sections = read_sections(bytes, layout.value(), name);
    if (!sections) return sections.error();
    image.sections_ = std::move(*sections);
    image.build_id_ = find_build_id(bytes, layout.value(), image.sections_);
    Result<std::vector<ElfSymbol>> symtab = read_symbols(image.sections_, SHT_SYMTAB, name);
    if (!symtab) return symtab.error();
    image.symtab_ = std::move(*symtab);
    Result<std::vector<ElfSymbol>> dynsym = read_symbols(image.sections_, SHT_DYNSYM, name);
    if (!dynsym) return dynsym.error();
    image.dynsym_ = std::move(*dynsym);
    return image;
  } catch (const std::bad_alloc&) {
    return make_error(ENOMEM, "no memory to read the symbols of %s", name);
  }
}

Result<ElfImage> ElfImage::open(const char* path) {
  const int fd = sys::open_readonly(path);
  if (fd < 0)
    return make_error(-fd, "the file %s cannot be opened to read its symbols: %s", path, strerrordesc_np(-fd));
  const long size = sys::file_size(fd);
  const std::uintptr_t start = size > 0 ? sys::map_file(fd, static_cast<std::size_t>(size)) : 0;
  sys::close(fd);
  if (size <= 0) return damaged(path, size == 0 ? "it is empty" : "it is not a regular file");
  if (sys::is_error(start)) {
    const int code = static_cast<int>(-static_cast<std::intptr_t>(start));
    return make_error(code, "the file %s cannot be mapped to read its symbols: %s", path, strerrordesc_np(code));
  }
  const Bytes bytes(reinterpret_cast<const std::byte*>(start), static_cast<std::size_t>(size));
  Result<ElfImage> image = parse(bytes, path);
  if (image) image->mapped_ = true;
  if (!image) sys::munmap(start, bytes.size());
  return image;
}

ElfImage::ElfImage(ElfImage&& other) noexcept
    : bytes_(other.bytes_),
      mapped_(std::exchange(other.mapped_, false)),
      type_(other.type_),
      sections_(std::move(other.sections_)),
      symtab_(std::move(other.symtab_)),
      dynsym_(std::move(other.dynsym_)),
      build_id_(other.build_id_) {}

ElfImage& ElfImage::operator=(ElfImage&& other) noexcept {
  std::swap(bytes_, other.bytes_);
  std::swap(mapped_, other.mapped_);
  std::swap(type_, other.type_);
  sections_.swap(other.sections_);
  symtab_.swap(other.symtab_);
  dynsym_.swap(other.dynsym_);
  std::swap(build_id_, other.build_id_);
  return *this;
}

ElfImage::~ElfImage() {
  if (mapped_) sys::munmap(reinterpret_cast<std::uintptr_t>(bytes_.data()), bytes_.size());
}

const ElfSection* ElfImage::section(std::string_view name) const noexcept {
  const auto at =
      std::find_if(sections_.begin(), sections_.end(), [&](const ElfSection& section) { return section.name == name; });
  return at == sections_.end() ? nullptr : &*at;
}

}  // namespace libfprobe::detail
