// Builds small ELF files in memory, right ones and damaged ones.
//
//   [Ehdr] [Phdr…] [bytes of the sections, one after the other] [Shdr…]
#ifndef FPROBE_TESTS_UNIT_ELF_BUILDER_H_
#define FPROBE_TESTS_UNIT_ELF_BUILDER_H_

#include <elf.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "arch_defs.h"

namespace libfprobe::detail {

class ElfBuilder {
 public:
  struct Section {
    std::string name;
    Elf64_Shdr header{};  // offset and name are filled in by build()
    std::string bytes;
  };
  struct Symbol {
    std::string name;
    std::uint64_t value = 0, size = 0;
    unsigned char type = STT_FUNC, bind = STB_GLOBAL;
    std::uint16_t section = 1;
  };

  ElfBuilder() { sections_.push_back({}); }

  // Returns the section's index.
  std::uint16_t add_section(std::string name, std::uint32_t type, std::uint64_t flags, std::uint64_t address,
                            std::string bytes, std::uint64_t entry_size = 0) {
    Section section{std::move(name), {}, std::move(bytes)};
    section.header.sh_type = type;
    section.header.sh_flags = flags;
    section.header.sh_addr = address;
    section.header.sh_size = section.bytes.size();
    section.header.sh_entsize = entry_size;
    sections_.push_back(std::move(section));
    return static_cast<std::uint16_t>(sections_.size() - 1);
  }

  std::uint16_t add_text(std::uint64_t address, std::size_t size) {
    return add_section(".text", SHT_PROGBITS, SHF_ALLOC | SHF_EXECINSTR, address, std::string(size, '\xc3'));
  }

  // SHT_SYMTAB or SHT_DYNSYM, with a string table of its own.
  std::uint16_t add_symbols(std::uint32_t type, const std::vector<Symbol>& symbols) {
    std::string names(1, '\0'), table(sizeof(Elf64_Sym), '\0');
    for (const Symbol& symbol : symbols) {
      Elf64_Sym entry{};
      entry.st_name = static_cast<std::uint32_t>(names.size());
      entry.st_value = symbol.value;
      entry.st_size = symbol.size;
      entry.st_info = static_cast<unsigned char>(ELF64_ST_INFO(symbol.bind, symbol.type));
      entry.st_shndx = symbol.section;
      table.append(reinterpret_cast<const char*>(&entry), sizeof entry);
      names += symbol.name;
      names += '\0';
    }
    const std::uint16_t strings = add_section(".strtab", SHT_STRTAB, 0, 0, names);
    const bool is_dynamic = type == SHT_DYNSYM;
    const std::uint16_t index = add_section(is_dynamic ? ".dynsym" : ".symtab", type, 0, 0, table, sizeof(Elf64_Sym));
    sections_[index].header.sh_link = strings;
    return index;
  }

  void add_note(std::uint32_t type, std::string_view owner, std::string_view content) {
    const Elf64_Nhdr header{static_cast<std::uint32_t>(owner.size() + 1), static_cast<std::uint32_t>(content.size()),
                            type};
    note_.append(reinterpret_cast<const char*>(&header), sizeof header);
    for (const std::string& part : {std::string(owner) + '\0', std::string(content)}) {
      note_ += part;
      note_.append((4 - part.size() % 4) % 4, '\0');
    }
  }
  void add_build_id(std::string_view id) { add_note(NT_GNU_BUILD_ID, "GNU", id); }

  [[nodiscard]] Section& section(std::uint16_t index) { return sections_[index]; }
  [[nodiscard]] Elf64_Ehdr& header() { return header_; }
  void strip_section_headers() { has_section_headers_ = false; }

  // Headers that the test changed by header() keep their values where they are not 0.
  [[nodiscard]] std::string build() const {
    std::vector<Section> sections = sections_;
    std::string names;
    for (Section& section : sections) {
      section.header.sh_name = static_cast<std::uint32_t>(names.size());
      names += section.name;
      names += '\0';
    }
    Section names_section{".shstrtab", {}, names + ".shstrtab" + '\0'};
    names_section.header.sh_type = SHT_STRTAB;
    names_section.header.sh_name = static_cast<std::uint32_t>(names.size());
    names_section.header.sh_size = names_section.bytes.size();
    sections.push_back(names_section);

    std::string file(sizeof(Elf64_Ehdr) + sizeof(Elf64_Phdr), '\0');
    const std::uint64_t note_offset = file.size();
    file += note_;
    for (Section& section : sections) {
      if (section.header.sh_offset == 0) section.header.sh_offset = file.size();
      file += section.bytes;
    }
    file.append((8 - file.size() % 8) % 8, '\0');
    const std::uint64_t table_offset = file.size();
    if (has_section_headers_)
      for (const Section& section : sections)
        file.append(reinterpret_cast<const char*>(&section.header), sizeof section.header);

    Elf64_Phdr note{};
    note.p_type = note_.empty() ? PT_NULL : PT_NOTE;
    note.p_offset = note_offset;
    note.p_filesz = note.p_memsz = note_.size();
    note.p_align = 4;
    std::memcpy(file.data() + sizeof(Elf64_Ehdr), &note, sizeof note);
    write_header(file, table_offset, sections.size());
    return file;
  }

 private:
  void write_header(std::string& file, std::uint64_t table_offset, std::size_t section_count) const {
    Elf64_Ehdr header = header_;
    const unsigned char identity[] = {ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, ELFCLASS64, ELFDATA2LSB, EV_CURRENT};
    for (std::size_t i = 0; i < sizeof identity; ++i)
      if (header.e_ident[i] == 0) header.e_ident[i] = identity[i];
    const auto set = [](auto& field, auto value) {
      if (field == 0) field = static_cast<std::remove_reference_t<decltype(field)>>(value);
    };
    set(header.e_type, ET_DYN);
    set(header.e_machine, arch::kElfMachine);
    set(header.e_version, EV_CURRENT);
    set(header.e_ehsize, sizeof(Elf64_Ehdr));
    set(header.e_phoff, sizeof(Elf64_Ehdr));
    set(header.e_phentsize, sizeof(Elf64_Phdr));
    set(header.e_phnum, 1);
    if (has_section_headers_) {
      set(header.e_shoff, table_offset);
      set(header.e_shentsize, sizeof(Elf64_Shdr));
      set(header.e_shnum, section_count);
      set(header.e_shstrndx, section_count - 1);
    }
    std::memcpy(file.data(), &header, sizeof header);
  }

  Elf64_Ehdr header_{};
  std::vector<Section> sections_;
  std::string note_;
  bool has_section_headers_ = true;
};

inline std::span<const std::byte> bytes_of(const std::string& file) {
  return std::as_bytes(std::span(file));
}

}  // namespace libfprobe::detail

#endif  // FPROBE_TESTS_UNIT_ELF_BUILDER_H_
