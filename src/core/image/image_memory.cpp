// See image_memory.h.
#include "image/image_memory.h"

#include <algorithm>

namespace libfprobe::detail {
namespace {

constexpr std::size_t kMaxDynamicEntries = 4096;  // a section that does not end is damaged

}  // namespace

DynamicTables::DynamicTables(const LoadedImage& image) noexcept : memory_(image) {
  // glibc relocates the addresses in place, musl and the vdso leave them as in the file.
  const auto run_time = [&image](std::uint64_t address) -> std::uintptr_t {
    return image.contains(address) ? address : address + image.bias;
  };
  std::uintptr_t soname_offset = 0;
  std::size_t relocations_size = 0, plt_relocations_size = 0;
  Elf64_Dyn entry;
  for (std::size_t i = 0; i < kMaxDynamicEntries && image.dynamic != 0; ++i) {
    if (!memory_.read(image.dynamic + i * sizeof entry, entry) || entry.d_tag == DT_NULL) break;
    switch (entry.d_tag) {
      case DT_SYMTAB:
        symbols_ = run_time(entry.d_un.d_ptr);
        break;
      case DT_STRTAB:
        strings_ = run_time(entry.d_un.d_ptr);
        break;
      case DT_HASH:
        hash_ = run_time(entry.d_un.d_ptr);
        break;
      case DT_GNU_HASH:
        gnu_hash_ = run_time(entry.d_un.d_ptr);
        break;
      case DT_RELA:
        relocations_.start = run_time(entry.d_un.d_ptr);
        break;
      case DT_RELASZ:
        relocations_size = entry.d_un.d_val;
        break;
      case DT_JMPREL:
        plt_relocations_.start = run_time(entry.d_un.d_ptr);
        break;
      case DT_PLTRELSZ:
        plt_relocations_size = entry.d_un.d_val;
        break;
      case DT_SONAME:
        soname_offset = entry.d_un.d_val;
        break;
      case DT_DEBUG:
        debugger_word_ = entry.d_un.d_ptr;
        break;
      case DT_TEXTREL:
        has_text_relocations_ = true;
        break;
      case DT_FLAGS:
        has_text_relocations_ = has_text_relocations_ || (entry.d_un.d_val & DF_TEXTREL) != 0;
        break;
      default:
        break;
    }
  }
  relocations_.count = relocations_.start == 0 ? 0 : relocations_size / sizeof(Elf64_Rela);
  plt_relocations_.count = plt_relocations_.start == 0 ? 0 : plt_relocations_size / sizeof(Elf64_Rela);
  if (soname_offset != 0 && strings_ != 0) soname_ = memory_.string(strings_ + soname_offset);
}

std::size_t DynamicTables::symbol_count() const noexcept {
  if (symbols_ == 0 || strings_ == 0) return 0;
  std::uint32_t chain_count = 0;
  if (hash_ != 0 && memory_.read(hash_ + sizeof(std::uint32_t), chain_count)) return chain_count;
  return gnu_hash_ != 0 ? count_by_gnu_hash() : 0;
}

// Undefined symbols come first and are not hashed; the last chain of the highest bucket ends with the last symbol.
std::size_t DynamicTables::count_by_gnu_hash() const noexcept {
  struct Header {
    std::uint32_t bucket_count, first_hashed, bloom_words, bloom_shift;
  } header;
  if (!memory_.read(gnu_hash_, header)) return 0;
  const std::uintptr_t buckets = gnu_hash_ + sizeof header + std::uint64_t{header.bloom_words} * sizeof(std::uint64_t);
  const std::uintptr_t chains = buckets + std::uint64_t{header.bucket_count} * sizeof(std::uint32_t);
  std::uint32_t last = 0, bucket = 0;
  for (std::uint32_t i = 0; i < header.bucket_count; ++i) {
    if (!memory_.read(buckets + std::uint64_t{i} * sizeof bucket, bucket)) return 0;
    last = std::max(last, bucket);
  }
  if (last < header.first_hashed) return header.first_hashed;
  for (std::uint32_t chain = 0; (chain & 1) == 0; ++last)
    if (!memory_.read(chains + std::uint64_t{last - header.first_hashed} * sizeof chain, chain)) return 0;
  return last;
}

bool DynamicTables::read_symbol(std::size_t index, Elf64_Sym& symbol, std::string_view& name) const noexcept {
  if (symbols_ == 0 || strings_ == 0 || !memory_.read(symbols_ + index * sizeof symbol, symbol)) return false;
  name = memory_.string(strings_ + symbol.st_name);
  return true;
}

}  // namespace libfprobe::detail
