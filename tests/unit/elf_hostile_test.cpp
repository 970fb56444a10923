// Damaged and hostile ELF files: an Error, never a bad access (run under AddressSanitizer this counts double; every
// damaged file lies at the end of a page that nothing follows).
#include <errno.h>
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <string>
#include <string_view>

#include "image/elf_image.h"
#include "unit/elf_support.h"

namespace libfprobe::detail {
namespace {

void expect_refused(const ElfBuilder& builder, const char* what) {
  const std::string file = builder.build();
  const GuardedBytes guarded(file);
  const Result<ElfImage> image = ElfImage::parse(guarded.bytes(), "lib/damaged.so");
  ASSERT_FALSE(image.ok()) << what;
  EXPECT_EQ(image.error().code, ENOEXEC);
  const std::string_view sentence = image.error().sentence;
  EXPECT_NE(sentence.find("lib/damaged.so"), std::string_view::npos) << sentence;
  EXPECT_NE(sentence.find(what), std::string_view::npos) << sentence;
}

// --- Damaged headers, each with its reason.

TEST(ElfImageRefusal, ForeignFilesAreRefused) {
  ElfBuilder builder = small_file();
  builder.header().e_ident[EI_MAG0] = '#';
  expect_refused(builder, "magic");
  builder = small_file();
  builder.header().e_ident[EI_CLASS] = ELFCLASS32;
  expect_refused(builder, "64-bit");
  builder = small_file();
  builder.header().e_ident[EI_DATA] = ELFDATA2MSB;
  expect_refused(builder, "little-endian");
  builder = small_file();
  builder.header().e_machine = EM_S390;
  expect_refused(builder, "another CPU");
  builder = small_file();
  builder.header().e_type = ET_REL;
  expect_refused(builder, "neither an executable nor a shared object");
  builder.header().e_type = ET_CORE;
  expect_refused(builder, "neither an executable nor a shared object");
}

TEST(ElfImageRefusal, WildHeaderTablesAreRefused) {
  for (const std::uint64_t offset : {std::uint64_t{1} << 20, UINT64_MAX, UINT64_MAX - 63, std::uint64_t{1} << 63}) {
    ElfBuilder builder = small_file();
    builder.header().e_shoff = offset;
    expect_refused(builder, "section headers lie outside");
    builder = small_file();
    builder.header().e_phoff = offset;
    expect_refused(builder, "program headers lie outside");
  }
  ElfBuilder builder = small_file();
  builder.header().e_shnum = 0xfeff;
  expect_refused(builder, "section headers lie outside");
  builder = small_file();
  builder.header().e_phnum = 0xffff;
  expect_refused(builder, "program headers lie outside");
  builder = small_file();
  builder.header().e_shentsize = 8;
  expect_refused(builder, "section headers have an unknown size");
  builder = small_file();
  builder.header().e_phentsize = 8;
  expect_refused(builder, "program headers have an unknown size");
  builder = small_file();
  builder.header().e_shstrndx = 200;
  expect_refused(builder, "section names are missing");
}

TEST(ElfImageRefusal, HugeExtendedSectionCountIsRefused) {
  std::string file = small_file().build();
  Elf64_Ehdr header;
  std::memcpy(&header, file.data(), sizeof header);
  for (const std::uint64_t count : {std::uint64_t{1} << 58, UINT64_MAX, std::uint64_t{1000}}) {
    Elf64_Shdr first{};
    first.sh_size = count;
    header.e_shnum = 0;
    std::memcpy(file.data(), &header, sizeof header);
    std::memcpy(file.data() + header.e_shoff, &first, sizeof first);
    const GuardedBytes guarded(file);
    EXPECT_FALSE(ElfImage::parse(guarded.bytes(), "huge").ok()) << count;
  }
}

TEST(ElfImageRefusal, WildSectionsAreRefused) {
  for (const std::uint64_t offset : {std::uint64_t{1} << 20, UINT64_MAX, UINT64_MAX - 63}) {
    ElfBuilder builder = small_file();
    builder.section(1).header.sh_offset = offset;
    expect_refused(builder, "a section lies outside");
  }
  ElfBuilder builder = small_file();
  builder.section(1).header.sh_size = UINT64_MAX;
  expect_refused(builder, "a section lies outside");
}

TEST(ElfImageRefusal, WildSymbolTablesAreRefused) {
  ElfBuilder builder;
  const std::uint16_t table = builder.add_symbols(SHT_SYMTAB, {{"f", 0x1000, 16}});
  ElfBuilder damaged = builder;
  damaged.section(table).header.sh_entsize = 0;
  expect_refused(damaged, "entries of an unknown size");
  damaged = builder;
  damaged.section(table).header.sh_entsize = 1;
  expect_refused(damaged, "entries of an unknown size");
  damaged = builder;
  damaged.section(table).header.sh_size -= 1;
  expect_refused(damaged, "entries of an unknown size");
  damaged = builder;
  damaged.section(table).header.sh_link = 77;
  expect_refused(damaged, "no string table");
  damaged = builder;
  damaged.section(table).header.sh_link = table;  // overlapping: the table as its own strings
  expect_refused(damaged, "no string table");
  damaged = builder;
  damaged.section(1).bytes.back() = 'x';
  expect_refused(damaged, "names do not end");
  damaged = builder;
  damaged.section(1).header.sh_size = 0;
  expect_refused(damaged, "names do not end");
  damaged = builder;
  std::memset(damaged.section(table).bytes.data() + sizeof(Elf64_Sym), 0x7f, 4);
  expect_refused(damaged, "name lies outside");
  damaged = builder;
  const auto just_outside = static_cast<std::uint32_t>(builder.section(1).bytes.size());
  std::memcpy(damaged.section(table).bytes.data() + sizeof(Elf64_Sym), &just_outside, sizeof just_outside);
  expect_refused(damaged, "name lies outside");
}

TEST(ElfImageRefusal, OverlappingSectionsAreHarmless) {
  ElfBuilder builder = small_file();
  for (std::uint16_t i = 1; i <= 6; ++i) {
    builder.section(i).header.sh_offset = 1;
    builder.section(i).header.sh_size = 400;
  }
  const std::string file = builder.build();
  const GuardedBytes guarded(file);
  const Result<ElfImage> image = ElfImage::parse(guarded.bytes(), "overlapping");
  if (image.ok()) touch(image.value());
}

// --- Damage everywhere.

TEST(ElfImageHostile, EveryTruncationIsRefusedOrHarmless) {
  const std::string file = small_file().build();
  std::size_t refused = 0;
  for (std::size_t size = 0; size < file.size(); ++size) {
    const GuardedBytes guarded(std::string_view(file).substr(0, size));
    const Result<ElfImage> image = ElfImage::parse(guarded.bytes(), "truncated");
    if (image.ok()) touch(image.value());
    refused += !image.ok();
  }
  EXPECT_EQ(refused, file.size()) << "the section headers are at the end: no truncated file is whole";
}

TEST(ElfImageHostile, EveryTruncationWithoutSectionHeadersIsHarmless) {
  ElfBuilder builder = small_file();
  builder.strip_section_headers();
  const std::string file = builder.build();
  for (std::size_t size = 0; size < file.size(); ++size) {
    const GuardedBytes guarded(std::string_view(file).substr(0, size));
    const Result<ElfImage> image = ElfImage::parse(guarded.bytes(), "truncated");
    EXPECT_EQ(image.ok(), size >= sizeof(Elf64_Ehdr) + sizeof(Elf64_Phdr)) << size;
    if (image.ok()) touch(image.value());
  }
}

TEST(ElfImageHostile, EveryByteSetToExtremesIsHarmless) {
  const std::string file = small_file().build();
  const GuardedBytes guarded(file);
  for (std::size_t at = 0; at < file.size(); ++at) {
    const char original = guarded.data()[at];
    for (const char value : {'\0', '\x01', '\x7f', '\x80', '\xff'}) {
      guarded.data()[at] = value;
      const Result<ElfImage> image = ElfImage::parse(guarded.bytes(), "changed");
      if (image.ok()) touch(image.value());
    }
    guarded.data()[at] = original;
  }
  EXPECT_TRUE(ElfImage::parse(guarded.bytes(), "whole again").ok());
}

TEST(ElfImageHostile, RandomWordsAreHarmless) {
  const std::string file = small_file().build();
  std::mt19937_64 random(20240229);
  std::size_t parsed = 0;
  for (int round = 0; round < 20'000; ++round) {
    std::string damaged = file;
    for (int change = 0; change < 3; ++change) {
      const std::uint64_t words[] = {random(), random() % file.size(), UINT64_MAX - random() % 64, random() % 8};
      const std::uint64_t word = words[random() % 4];
      std::memcpy(damaged.data() + random() % (file.size() - 8), &word, 8);
    }
    const GuardedBytes guarded(damaged);
    const Result<ElfImage> image = ElfImage::parse(guarded.bytes(), "random");
    if (image.ok()) touch(image.value());
    parsed += image.ok();
  }
  EXPECT_GT(parsed, 0u) << "the damage should not all be caught by the first check";
}

TEST(BuildIdNote, WildNotesAreHarmless) {
  std::string notes(64, '\0');
  for (const std::uint32_t size : {0u, 1u, 52u, 53u, 0x7fffffffu, 0xffffffffu}) {
    const Elf64_Nhdr header{4, size, NT_GNU_BUILD_ID};
    std::memcpy(notes.data(), &header, sizeof header);
    std::memcpy(notes.data() + sizeof header, "GNU", 4);
    const GuardedBytes guarded(notes);
    for (const std::uint64_t alignment : {0, 1, 4, 8, 4096}) {
      const auto id = find_build_id_note(guarded.bytes(), alignment);
      EXPECT_EQ(id.size(), size <= 48 ? size : 0) << size;
    }
  }
}

}  // namespace
}  // namespace libfprobe::detail
