// What is loaded, as the loader tells it.  Holds for PIE, no-pie and static programs.
#include "image/image_list.h"

#include <errno.h>
#include <gtest/gtest.h>
#include <link.h>
#include <sys/auxv.h>
#include <unistd.h>

#include <algorithm>
#include <set>
#include <string>

#include "base/syscalls.h"
#include "image/image_file.h"
#include "image/image_memory.h"

namespace libfprobe::detail {
namespace {

int writable_object = 1;

ImageSnapshot snapshot() {
  Result<ImageSnapshot> images = snapshot_images();
  EXPECT_TRUE(images.ok()) << images.error().sentence;
  return images.ok() ? std::move(*images) : ImageSnapshot{};
}

std::string own_path() {
  char path[4096];
  const ssize_t size = ::readlink("/proc/self/exe", path, sizeof path);
  return {path, static_cast<std::size_t>(std::max<ssize_t>(size, 0))};
}

std::uintptr_t own_code() {
  return reinterpret_cast<std::uintptr_t>(&own_code);
}

TEST(ImageList, MainProgramComesFirstWithItsAbsolutePath) {
  const ImageSnapshot images = snapshot();
  ASSERT_FALSE(images.images.empty());
  const LoadedImage& main = images.images.front();
  EXPECT_TRUE(main.is_main);
  EXPECT_EQ(main.path, own_path());
  EXPECT_EQ(main.name, main.path.substr(main.path.rfind('/') + 1));
  EXPECT_EQ(main.soname, "");
  for (std::size_t i = 1; i < images.images.size(); ++i) EXPECT_FALSE(images.images[i].is_main);
}

TEST(ImageList, SegmentsTellCodeFromData) {
  const ImageSnapshot images = snapshot();
  const LoadedImage& main = images.images.front();
  const Segment* code = main.segment_at(own_code());
  ASSERT_NE(code, nullptr);
  EXPECT_EQ(code->flags & (PF_R | PF_X), static_cast<unsigned>(PF_R | PF_X));
  const Segment* data = main.segment_at(reinterpret_cast<std::uintptr_t>(&writable_object));
  ASSERT_NE(data, nullptr);
  EXPECT_EQ(data->flags, static_cast<unsigned>(PF_R | PF_W));
  EXPECT_TRUE(main.contains(own_code()));
  EXPECT_FALSE(main.contains(main.high));
  EXPECT_EQ(main.segment_at(0), nullptr);
  for (const LoadedImage& image : images.images)
    for (const Segment& segment : image.segments) {
      EXPECT_LE(image.low, segment.start) << image.path;
      EXPECT_GE(image.high, segment.end) << image.path;
    }
}

TEST(ImageList, RunTimeAddressIsFileAddressPlusBias) {
  const LoadedImage main = snapshot().images.front();
  Result<ElfImage> file = open_file_of(main);
  ASSERT_TRUE(file.ok()) << file.error().sentence;
  if (file->type() == ET_EXEC) {
    EXPECT_EQ(main.bias, 0u);
  }
  const ElfSection* text = file->section(".text");
  ASSERT_NE(text, nullptr);
  const std::uintptr_t start = main.bias + text->address;
  EXPECT_TRUE(own_code() >= start && own_code() < start + text->size);
}

TEST(ImageList, UnwindTableIsFoundWhereThereIsOne) {
  const LoadedImage main = snapshot().images.front();
  Result<ElfImage> file = open_file_of(main);
  ASSERT_TRUE(file.ok());
  const ElfSection* table = file->section(".eh_frame_hdr");  // absent from static programs
  EXPECT_EQ(main.eh_frame_hdr, table == nullptr ? 0 : main.bias + table->address);
  EXPECT_EQ(main.eh_frame_hdr_size, table == nullptr ? 0 : table->size);
}

TEST(ImageList, DynamicSectionIsFoundWhereThereIsOne) {
  const LoadedImage main = snapshot().images.front();
  Result<ElfImage> file = open_file_of(main);
  ASSERT_TRUE(file.ok());
  const ElfSection* dynamic = file->section(".dynamic");
  EXPECT_EQ(main.dynamic, dynamic == nullptr ? 0 : main.bias + dynamic->address);
}

TEST(ImageList, PathsAreAbsoluteAndUnique) {
  std::set<std::string> paths;
  for (const LoadedImage& image : snapshot().images) {
    EXPECT_TRUE(image.path.starts_with('/') || image.path == "[vdso]") << image.path;
    EXPECT_FALSE(image.name.empty()) << image.path;
    EXPECT_TRUE(paths.insert(image.path).second) << image.path;
  }
}

TEST(ImageList, VdsoIsNamedAsSuch) {
  const std::uintptr_t vdso = ::getauxval(AT_SYSINFO_EHDR);
  for (const LoadedImage& image : snapshot().images)
    EXPECT_EQ(image.path == "[vdso]", vdso != 0 && image.contains(vdso));
}

TEST(ImageList, GenerationStaysWhileNothingIsLoaded) {
  const ImageGeneration before = image_generation();
  EXPECT_GT(before.added, 0u);
  EXPECT_EQ(snapshot().generation, before);
  EXPECT_EQ(image_generation(), before);
}

TEST(ImageList, ExhaustedMemoryIsToldAsSuch) {
  sys::Fault& fault = sys::fault(sys::Call::kAllocate);
  fault.fail_after = 0;
  fault.error = ENOMEM;
  const Result<ImageSnapshot> images = snapshot_images();
  fault.error = 0;
  ASSERT_FALSE(images.ok());
  EXPECT_EQ(images.error().code, ENOMEM);
}

TEST(ImageList, UnreadableMapsLeaveTheProgramsPathAlone) {
  sys::Fault& fault = sys::fault(sys::Call::kOpen);
  fault.fail_after = 0;
  fault.error = EACCES;
  const ImageSnapshot images = snapshot();
  fault.error = 0;
  EXPECT_EQ(images.images.front().path, own_path());
}

// --- The loader's lock.

TEST(LoaderLock, RunsTheBodyOnceHoweverManyModulesThereAre) {
  int runs = 0;
  LoaderLock::run([&runs](const LoaderLock&) { ++runs; });
  EXPECT_EQ(runs, 1);
}

TEST(LoaderLock, KnowsEveryLoadedModule) {
  const ImageSnapshot images = snapshot();
  std::size_t loaded = 0;
  LoaderLock::run([&](const LoaderLock& lock) {
    for (const LoadedImage& image : images.images) loaded += lock.still_loaded(image);
  });
  EXPECT_EQ(loaded, images.images.size());
}

TEST(LoaderLock, OtherModuleInTheSamePlaceIsNotTheSame) {
  const LoadedImage main = snapshot().images.front();
  LoadedImage moved = main, grown = main, other = main, fewer = main;
  moved.bias += 4096;
  grown.segments.back().end += 1;
  other.program_headers += 8;
  fewer.segments.pop_back();
  LoaderLock::run([&](const LoaderLock& lock) {
    EXPECT_TRUE(lock.still_loaded(main));
    EXPECT_FALSE(lock.still_loaded(moved));
    EXPECT_FALSE(lock.still_loaded(grown));
    EXPECT_FALSE(lock.still_loaded(other));
    EXPECT_FALSE(lock.still_loaded(fewer));
  });
}

TEST(LoaderLock, MayBeTakenInsideItself) {
  bool inner = false;
  LoaderLock::run([&](const LoaderLock&) { LoaderLock::run([&](const LoaderLock&) { inner = true; }); });
  EXPECT_TRUE(inner);
}

// --- The module's own memory.

TEST(ImageMemory, ReadsInsideSegmentsOnly) {
  const LoadedImage main = snapshot().images.front();
  const ImageMemory memory(main);
  int value = 0;
  ASSERT_TRUE(memory.read(reinterpret_cast<std::uintptr_t>(&writable_object), value));
  EXPECT_EQ(value, 1);
  EXPECT_FALSE(memory.read(0, value));
  const Segment& last = main.segments.back();
  EXPECT_FALSE(memory.is_readable(last.end - 3, 4));
  EXPECT_TRUE(memory.is_readable(last.end - 4, 4));
  EXPECT_FALSE(memory.is_readable(last.end - 4, SIZE_MAX));
  EXPECT_TRUE(memory.is_code(own_code()));
  EXPECT_FALSE(memory.is_code(reinterpret_cast<std::uintptr_t>(&writable_object)));
}

TEST(ImageMemory, StringThatLeavesItsSegmentIsEmpty) {
  static const char text[] = "abc";
  LoadedImage image;
  const auto start = reinterpret_cast<std::uintptr_t>(text);
  image.segments = {{start, start + 3, PF_R}};
  EXPECT_EQ(ImageMemory(image).string(start), "");
  image.segments = {{start, start + 4, PF_R}};
  EXPECT_EQ(ImageMemory(image).string(start), "abc");
  EXPECT_EQ(ImageMemory(image).string(start + 3), "");
  EXPECT_EQ(ImageMemory(image).string(start + 4), "");
}

// --- A dynamic section of our own making, damaged in every way.

// Laid out as in a module whose addresses start at 0: the bias is this object's address.
struct MadeUpModule {
  Elf64_Dyn dynamic[8]{};
  Elf64_Sym symbols[3]{};
  std::uint32_t hash[2 + 1 + 3]{1, 3, 1, 0, 2, 0};
  std::uint32_t gnu_hash[4 + 2 + 1 + 2]{1, 1, 1, 0, 0, 0, 1, 0, 1};
  char strings[24] = "\0first\0second\0lib.so.1";

  explicit MadeUpModule(bool has_gnu_hash) {
    symbols[1].st_name = 1;
    symbols[2].st_name = 7;
    const auto offset = [this](const void* part) {
      return static_cast<Elf64_Addr>(reinterpret_cast<const char*>(part) - reinterpret_cast<const char*>(this));
    };
    dynamic[0] = {DT_SYMTAB, {offset(symbols)}};
    dynamic[1] = {DT_STRTAB, {offset(strings)}};
    dynamic[2] = has_gnu_hash ? Elf64_Dyn{DT_GNU_HASH, {offset(gnu_hash)}} : Elf64_Dyn{DT_HASH, {offset(hash)}};
    dynamic[3] = {DT_SONAME, {14}};
  }
  [[nodiscard]] LoadedImage image() const {
    LoadedImage image;
    image.bias = image.low = reinterpret_cast<std::uintptr_t>(this);
    image.high = image.low + sizeof *this;
    image.segments = {{image.low, image.high, PF_R}};
    image.dynamic = reinterpret_cast<std::uintptr_t>(dynamic);
    return image;
  }
};

TEST(DynamicTables, CountSymbolsByEitherHashTable) {
  for (const bool has_gnu_hash : {false, true}) {
    const MadeUpModule module(has_gnu_hash);
    const LoadedImage image = module.image();
    const DynamicTables tables(image);
    EXPECT_EQ(tables.symbol_count(), 3u) << has_gnu_hash;
    EXPECT_EQ(tables.soname(), "lib.so.1");
    Elf64_Sym symbol;
    std::string_view name;
    ASSERT_TRUE(tables.read_symbol(2, symbol, name));
    EXPECT_EQ(name, "second");
  }
}

TEST(DynamicTables, AddressesMayBeRelocatedAlready) {
  MadeUpModule module(true);
  for (int i = 0; i < 3; ++i) module.dynamic[i].d_un.d_ptr += module.image().bias;
  const LoadedImage image = module.image();
  EXPECT_EQ(DynamicTables(image).symbol_count(), 3u);
}

TEST(DynamicTables, WildTablesAreHarmless) {
  for (const bool has_gnu_hash : {false, true})
    for (std::size_t word = 0; word < sizeof(MadeUpModule) / sizeof(std::uint32_t); ++word)
      for (const std::uint32_t value : {0u, 1u, 0x7fffffffu, 0xffffffffu}) {
        MadeUpModule module(has_gnu_hash);
        std::memcpy(reinterpret_cast<char*>(&module) + word * sizeof value, &value, sizeof value);
        const LoadedImage image = module.image();
        const DynamicTables tables(image);
        std::size_t length = tables.soname().size();
        Elf64_Sym symbol;
        std::string_view name;
        for (std::size_t i = 0; i < std::min<std::size_t>(tables.symbol_count(), 100); ++i)
          if (tables.read_symbol(i, symbol, name)) length += name.size();
        EXPECT_LE(length, 101 * sizeof module.strings);
      }
}

}  // namespace
}  // namespace libfprobe::detail
