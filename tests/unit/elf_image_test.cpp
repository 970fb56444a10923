// ELF files as they should be, and hostile ones: an Error, never a bad access (run under AddressSanitizer this counts
// double; every damaged file lies at the end of a page that nothing follows).
#include "image/elf_image.h"

#include <errno.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <random>
#include <string>
#include <utility>

#include "base/syscalls.h"
#include "unit/elf_builder.h"

namespace libfprobe::detail {
namespace {

// A copy whose last byte is the last one that can be read.
class GuardedBytes {
 public:
  explicit GuardedBytes(std::string_view bytes) : size_(bytes.size()) {
    whole_ = (size_ + kPage - 1) / kPage * kPage + kPage;
    void* memory = ::mmap(nullptr, whole_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    EXPECT_NE(memory, MAP_FAILED);
    start_ = static_cast<char*>(memory);
    EXPECT_EQ(::mprotect(start_ + whole_ - kPage, kPage, PROT_NONE), 0);
    std::memcpy(data(), bytes.data(), size_);
  }
  GuardedBytes(const GuardedBytes&) = delete;
  GuardedBytes& operator=(const GuardedBytes&) = delete;
  ~GuardedBytes() { ::munmap(start_, whole_); }

  [[nodiscard]] char* data() const { return start_ + whole_ - kPage - size_; }
  [[nodiscard]] std::span<const std::byte> bytes() const { return {reinterpret_cast<const std::byte*>(data()), size_}; }

 private:
  static constexpr std::size_t kPage = 4096;
  std::size_t size_, whole_ = 0;
  char* start_ = nullptr;
};

// Reads everything that an image hands out.
std::size_t touch(const ElfImage& image) {
  std::size_t sum = 0;
  const auto add = [&sum](std::span<const std::byte> bytes) {
    for (const std::byte byte : bytes) sum += std::to_integer<std::size_t>(byte);
  };
  for (const ElfSection& section : image.sections()) {
    add(section.bytes);
    add(std::as_bytes(std::span(section.name)));
  }
  for (const auto symbols : {image.symtab(), image.dynsym()})
    for (const ElfSymbol& symbol : symbols) add(std::as_bytes(std::span(symbol.name)));
  add(image.build_id());
  return sum;
}

ElfBuilder small_file() {
  ElfBuilder builder;
  builder.add_text(0x1000, 64);
  builder.add_section(".bss", SHT_NOBITS, SHF_ALLOC | SHF_WRITE, 0x3000, "");
  builder.add_symbols(SHT_SYMTAB, {{"first", 0x1000, 16}, {"second", 0x1010, 16, STT_FUNC, STB_LOCAL}});
  builder.add_symbols(SHT_DYNSYM, {{"first", 0x1000, 16}});
  builder.add_build_id("0123456789abcdefghij");
  return builder;
}

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

// --- Files as they should be.

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
