// Any bytes as an ELF file: an image or an Error, and an index of its functions.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "fuzz/target.h"
#include "image/crc32.h"
#include "image/debug_file.h"
#include "image/elf_image.h"
#include "image/symbol_index.h"

namespace libfprobe::detail {
namespace {

// A module of these segments that is nowhere in memory: names come from the file alone.
LoadedImage made_up_image() {
  LoadedImage image;
  image.path = image.name = "fuzzed";
  image.bias = 0x10000;
  image.segments = {{0x10000, 0x20000, PF_R | PF_X}};
  image.low = 0x10000;
  image.high = 0x20000;
  return image;
}

std::size_t touch(std::span<const std::byte> bytes) {
  std::size_t sum = 0;
  for (const std::byte byte : bytes) sum += std::to_integer<std::size_t>(byte);
  return sum;
}

void check_index(const LoadedImage& image, const Result<SymbolIndex>& index) {
  if (!index.ok()) std::abort();
  const FunctionName* last = nullptr;
  for (const FunctionName& function : index.value().functions()) {
    if (!image.contains(function.address) || (last != nullptr && last->address > function.address)) std::abort();
    if (index.value().names_at(function.address).empty()) std::abort();
    last = &function;
  }
}

void check(const ElfImage& file) {
  volatile std::size_t sum = touch(file.build_id()) + crc32(file.bytes());
  if (const auto link = debug_link_of(file)) sum = sum + touch(std::as_bytes(std::span(link->name)));
  for (const ElfSection& section : file.sections())
    sum = sum + touch(section.bytes) + touch(std::as_bytes(std::span(section.name)));
  for (const auto symbols : {file.symtab(), file.dynsym()})
    for (const ElfSymbol& symbol : symbols) sum = sum + touch(std::as_bytes(std::span(symbol.name)));

  // Relocated words and PLT slots would be read from memory that this module does not have.
  for (const ElfSection& section : file.sections())
    if (section.type == SHT_RELA || section.name.starts_with(".plt") || section.name.starts_with(".iplt")) return;
  const LoadedImage image = made_up_image();
  check_index(image, SymbolIndex::build(image, &file));
  check_index(image, SymbolIndex::build(image, nullptr, {}, &file));  // as a debug file
}

}  // namespace
}  // namespace libfprobe::detail

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using libfprobe::detail::ElfImage;
  const auto image = ElfImage::parse({reinterpret_cast<const std::byte*>(data), size}, "fuzzed");
  if (image.ok()) libfprobe::detail::check(image.value());
  return 0;
}
