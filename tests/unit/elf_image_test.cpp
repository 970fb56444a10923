// ELF files as they should be, and files that cannot be had.
#include "image/elf_image.h"

#include <errno.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <utility>

#include "base/syscalls.h"
#include "unit/elf_support.h"

namespace libfprobe::detail {
namespace {

TEST(ElfImage, HandsOutSectionsSymbolsAndBuildId) {
  const std::string file = small_file().build();
  Result<ElfImage> image = ElfImage::parse(bytes_of(file), "small");
  ASSERT_TRUE(image.ok()) << image.error().sentence;
  EXPECT_EQ(image->type(), ET_DYN);
  const ElfSection* text = image->section(".text");
  ASSERT_NE(text, nullptr);
  EXPECT_EQ(text->address, 0x1000u);
  EXPECT_EQ(text->bytes.size(), 64u);
  EXPECT_EQ(std::to_integer<int>(text->bytes[0]), 0xc3);
  EXPECT_TRUE(image->section(".bss")->bytes.empty());
  EXPECT_EQ(image->section(".none"), nullptr);
  ASSERT_EQ(image->symtab().size(), 2u);
  EXPECT_EQ(image->symtab()[1].name, "second");
  EXPECT_EQ(image->symtab()[1].value, 0x1010u);
  EXPECT_EQ(image->symtab()[1].size, 16u);
  EXPECT_EQ(image->symtab()[1].type, STT_FUNC);
  EXPECT_EQ(image->symtab()[1].bind, STB_LOCAL);
  EXPECT_EQ(image->symtab()[1].section, 1u);
  ASSERT_EQ(image->dynsym().size(), 1u);
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(image->build_id().data()), image->build_id().size()),
            "0123456789abcdefghij");
}

TEST(ElfImage, FileWithoutSectionHeadersHasNoSectionsAndKeepsItsBuildId) {
  ElfBuilder builder = small_file();
  builder.strip_section_headers();
  const std::string file = builder.build();
  Result<ElfImage> image = ElfImage::parse(bytes_of(file), "small");
  ASSERT_TRUE(image.ok()) << image.error().sentence;
  EXPECT_TRUE(image->sections().empty());
  EXPECT_TRUE(image->symtab().empty());
  EXPECT_EQ(image->build_id().size(), 20u);
}

TEST(ElfImage, BuildIdIsFoundBehindOtherNotes) {
  ElfBuilder builder;
  builder.add_note(1, "GNU", "odd");
  builder.add_note(NT_GNU_BUILD_ID, "Other", "not this");
  builder.add_build_id("right");
  const std::string file = builder.build();
  Result<ElfImage> image = ElfImage::parse(bytes_of(file), "small");
  ASSERT_TRUE(image.ok());
  ASSERT_EQ(image->build_id().size(), 5u);
  EXPECT_EQ(std::memcmp(image->build_id().data(), "right", 5), 0);
}

// A debug file may have the program headers of its module, whose offsets lead anywhere.
TEST(ElfImage, BuildIdOfASectionComesBeforeThatOfAProgramHeader) {
  ElfBuilder builder;
  builder.add_build_id("wrong");
  const Elf64_Nhdr header{4, 5, NT_GNU_BUILD_ID};
  const std::string note = std::string(reinterpret_cast<const char*>(&header), sizeof header) + "GNU" + '\0' + "right";
  builder.add_section(".note.other", SHT_NOTE, 0, 0, note);
  const std::string without = builder.build();
  builder.add_section(".note.gnu.build-id", SHT_NOTE, SHF_ALLOC, 0x200, note);
  const std::string with = builder.build();
  for (const auto& [file, expected] : {std::pair(without, "wrong"), std::pair(with, "right")}) {
    Result<ElfImage> image = ElfImage::parse(bytes_of(file), "small");
    ASSERT_TRUE(image.ok());
    ASSERT_EQ(image->build_id().size(), 5u);
    EXPECT_EQ(std::memcmp(image->build_id().data(), expected, 5), 0);
  }
}

TEST(ElfImage, MoreSectionsThanTheHeaderCanCountAreRead) {
  ElfBuilder builder = small_file();
  std::string file = builder.build();
  Elf64_Ehdr header;
  std::memcpy(&header, file.data(), sizeof header);
  Elf64_Shdr first{};
  first.sh_size = header.e_shnum;  // where the true numbers are kept
  first.sh_link = header.e_shstrndx;
  header.e_shnum = 0;
  header.e_shstrndx = SHN_XINDEX;
  std::memcpy(file.data(), &header, sizeof header);
  std::memcpy(file.data() + header.e_shoff, &first, sizeof first);
  Result<ElfImage> image = ElfImage::parse(bytes_of(file), "small");
  ASSERT_TRUE(image.ok()) << image.error().sentence;
  EXPECT_NE(image->section(".text"), nullptr);
}

TEST(ElfImage, BytesNeedNoAlignment) {
  const std::string file = "x" + small_file().build();
  Result<ElfImage> image = ElfImage::parse(bytes_of(file).subspan(1), "small");
  ASSERT_TRUE(image.ok());
  EXPECT_EQ(image->symtab()[0].name, "first");
}

TEST(ElfImage, OpensTheRunningProgram) {
  Result<ElfImage> image = ElfImage::open("/proc/self/exe");
  ASSERT_TRUE(image.ok()) << image.error().sentence;
  EXPECT_NE(image->section(".text"), nullptr);
  bool has_main = false;
  for (const ElfSymbol& symbol : image->symtab()) has_main |= symbol.name == "main" && symbol.type == STT_FUNC;
  EXPECT_TRUE(has_main);
}

TEST(ElfImage, MovedImageKeepsItsFileMapped) {
  Result<ElfImage> opened = ElfImage::open("/proc/self/exe");
  ASSERT_TRUE(opened.ok());
  ElfImage moved(std::move(*opened));
  Result<ElfImage> other = ElfImage::open("/proc/self/exe");
  ASSERT_TRUE(other.ok());
  *other = std::move(moved);
  EXPECT_GT(touch(*other), 0u);
}

TEST(ElfImage, ClosedImageGivesItsMemoryBack) {
  const unsigned long before = sys::fault(sys::Call::kMunmap).calls;
  { ASSERT_TRUE(ElfImage::open("/proc/self/exe").ok()); }
  EXPECT_EQ(sys::fault(sys::Call::kMunmap).calls, before + 1);
}

// --- Files that cannot be had.

TEST(ElfImageRefusal, MissingFileIsNamed) {
  const Result<ElfImage> image = ElfImage::open("/nonexistent/libnone.so");
  ASSERT_FALSE(image.ok());
  EXPECT_EQ(image.error().code, ENOENT);
  EXPECT_NE(std::strstr(image.error().sentence, "/nonexistent/libnone.so"), nullptr);
}

TEST(ElfImageRefusal, EmptyFileAndDirectoryAreNoElfFiles) {
  EXPECT_FALSE(ElfImage::open("/dev/null").ok());
  EXPECT_FALSE(ElfImage::open("/").ok());
}

TEST(ElfImageRefusal, FileThatCannotBeMappedIsToldWithItsReason) {
  sys::Fault& fault = sys::fault(sys::Call::kMmap);
  fault.fail_after = 0;
  fault.error = EPERM;
  const Result<ElfImage> image = ElfImage::open("/proc/self/exe");
  fault.error = 0;
  ASSERT_FALSE(image.ok());
  EXPECT_EQ(image.error().code, EPERM);
}

TEST(ElfImageRefusal, ExhaustedMemoryIsToldAsSuch) {
  sys::Fault& fault = sys::fault(sys::Call::kAllocate);
  fault.fail_after = 0;
  fault.error = ENOMEM;
  const Result<ElfImage> image = ElfImage::open("/proc/self/exe");
  fault.error = 0;
  ASSERT_FALSE(image.ok());
  EXPECT_EQ(image.error().code, ENOMEM);
}

}  // namespace
}  // namespace libfprobe::detail
