// DynamicTables::definition_of (image_memory.h): a name looked up in the module's own hash table.
#include "image/image_memory.h"

namespace libfprobe::detail {
namespace {

// A chain of a hash table is never followed further: a damaged one may be a ring.
constexpr std::uint32_t kMaxChain = 1 << 16;

std::uint32_t gnu_hash(std::string_view name) noexcept {
  std::uint32_t hash = 5381;
  for (const char c : name) hash = hash * 33 + static_cast<unsigned char>(c);
  return hash;
}

}  // namespace

bool DynamicTables::is_definition(std::size_t index, std::string_view name, std::uintptr_t& address) const noexcept {
  Elf64_Sym symbol;
  std::string_view found;
  if (!read_symbol(index, symbol, found) || symbol.st_shndx == SHN_UNDEF || found != name) return false;
  address = symbol.st_value;
  return true;
}

std::uintptr_t DynamicTables::definition_of(std::string_view name) const noexcept {
  return gnu_hash_ != 0 ? find_by_gnu_hash(name) : find_by_sysv_hash(name);
}

// Header {buckets, first symbol, bloom words, shift}, bloom filter (not asked), buckets, chain of hashes.
std::uintptr_t DynamicTables::find_by_gnu_hash(std::string_view name) const noexcept {
  std::uint32_t header[4];
  if (!memory_.read(gnu_hash_, header) || header[0] == 0) return 0;
  const auto [bucket_count, first_symbol, bloom_words, shift] = header;
  const std::uintptr_t buckets = gnu_hash_ + sizeof header + std::uintptr_t{bloom_words} * 8;
  const std::uintptr_t chain = buckets + std::uintptr_t{bucket_count} * 4;
  const std::uint32_t hash = gnu_hash(name);

  std::uint32_t symbol = 0;
  if (!memory_.read(buckets + hash % bucket_count * 4, symbol) || symbol < first_symbol) return 0;
  for (std::uint32_t step = 0; step < kMaxChain; ++step, ++symbol) {
    std::uint32_t entry = 0;
    std::uintptr_t address = 0;
    if (!memory_.read(chain + std::uintptr_t{symbol - first_symbol} * 4, entry)) return 0;
    if ((entry | 1) == (hash | 1) && is_definition(symbol, name, address)) return address;
    if ((entry & 1) != 0) return 0;  // the last of its bucket
  }
  return 0;
}

// The table's second word is the number of symbols; three names are not worth its hash function.
std::uintptr_t DynamicTables::find_by_sysv_hash(std::string_view name) const noexcept {
  const std::size_t count = symbol_count();
  std::uintptr_t address = 0;
  Elf64_Sym symbol;
  std::string_view found;
  for (std::size_t i = 0; i < count && read_symbol(i, symbol, found); ++i) {
    if (is_definition(i, name, address)) return address;
  }
  return 0;
}

}  // namespace libfprobe::detail
