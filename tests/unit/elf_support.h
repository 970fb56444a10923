// What the tests of ELF files share.
#ifndef FPROBE_TESTS_UNIT_ELF_SUPPORT_H_
#define FPROBE_TESTS_UNIT_ELF_SUPPORT_H_

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstring>
#include <string_view>

#include "image/elf_image.h"
#include "unit/elf_builder.h"

namespace libfprobe::detail {

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
inline std::size_t touch(const ElfImage& image) {
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

inline ElfBuilder small_file() {
  ElfBuilder builder;
  builder.add_text(0x1000, 64);
  builder.add_section(".bss", SHT_NOBITS, SHF_ALLOC | SHF_WRITE, 0x3000, "");
  builder.add_symbols(SHT_SYMTAB, {{"first", 0x1000, 16}, {"second", 0x1010, 16, STT_FUNC, STB_LOCAL}});
  builder.add_symbols(SHT_DYNSYM, {{"first", 0x1000, 16}});
  builder.add_build_id("0123456789abcdefghij");
  return builder;
}

}  // namespace libfprobe::detail

#endif  // FPROBE_TESTS_UNIT_ELF_SUPPORT_H_
