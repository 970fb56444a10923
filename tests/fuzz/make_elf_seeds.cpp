// Writes the seeds of fuzz_elf into the folder named: small files, each whole.
#include <fstream>
#include <string>

#include "unit/elf_builder.h"

using libfprobe::detail::ElfBuilder;

namespace {

void write(const std::string& path, const ElfBuilder& builder) {
  const std::string file = builder.build();
  std::ofstream(path, std::ios::binary).write(file.data(), static_cast<std::streamsize>(file.size()));
}

ElfBuilder with_functions() {
  ElfBuilder builder;
  builder.add_text(0x1000, 64);
  builder.add_section(".bss", SHT_NOBITS, SHF_ALLOC | SHF_WRITE, 0x3000, "");
  builder.add_symbols(SHT_SYMTAB, {{"first", 0x1000, 16},
                                   {"first_alias", 0x1000, 0, STT_FUNC, STB_WEAK},
                                   {"_ZN2ns1fEv.constprop.0", 0x1010, 16, STT_FUNC, STB_LOCAL},
                                   {"f.cold", 0x1020, 4, STT_FUNC, STB_LOCAL},
                                   {"label", 0x1030, 0, STT_NOTYPE},
                                   {"chosen", 0x1030, 8, STT_GNU_IFUNC},
                                   {"data", 0x3000, 8, STT_OBJECT}});
  return builder;
}

}  // namespace

int main(int, char** argv) {
  const std::string folder = argv[1];
  ElfBuilder builder = with_functions();
  write(folder + "/symtab", builder);
  builder.add_symbols(SHT_DYNSYM, {{"first@@V1", 0x1000, 16}, {"exported", 0x1020, 0}});
  builder.add_build_id("0123456789abcdefghij");
  write(folder + "/symtab_dynsym_build_id", builder);
  builder.add_section(".gnu_debuglink", SHT_PROGBITS, 0, 0, std::string("first.debug\0crc4", 16));
  write(folder + "/debug_link", builder);
  builder.strip_section_headers();
  write(folder + "/no_section_headers", builder);
  write(folder + "/empty", ElfBuilder());
}
