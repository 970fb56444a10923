// The CRC-32 of .gnu_debuglink: that of zlib and Ethernet (polynomial 0x04c11db7, bits reversed).  A debug file may have
// hundreds of megabytes, so eight bytes are taken at a time: table k is of a byte with k zero bytes behind it.
#ifndef FPROBE_SRC_CORE_IMAGE_CRC32_H_
#define FPROBE_SRC_CORE_IMAGE_CRC32_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace libfprobe::detail {

using Crc32Tables = std::array<std::array<std::uint32_t, 256>, 8>;

constexpr Crc32Tables make_crc32_tables() noexcept {
  constexpr std::uint32_t kReversedPolynomial = 0xedb88320;
  Crc32Tables tables{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc & 1) != 0 ? (crc >> 1) ^ kReversedPolynomial : crc >> 1;
    tables[0][byte] = crc;
  }
  for (std::size_t k = 1; k < tables.size(); ++k)
    for (std::size_t byte = 0; byte < 256; ++byte) {
      const std::uint32_t crc = tables[k - 1][byte];
      tables[k][byte] = (crc >> 8) ^ tables[0][crc & 0xff];
    }
  return tables;
}

inline std::uint32_t crc32(std::span<const std::byte> bytes) noexcept {
  static constexpr Crc32Tables kTables = make_crc32_tables();
  std::uint32_t crc = 0xffffffff;
  for (; bytes.size() >= 8; bytes = bytes.subspan(8)) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data(), sizeof word);  // little-endian, as the files are
    word ^= crc;
    crc = 0;
    for (std::size_t i = 0; i < 8; ++i) crc ^= kTables[7 - i][(word >> (8 * i)) & 0xff];
  }
  for (const std::byte byte : bytes) crc = (crc >> 8) ^ kTables[0][(crc ^ std::to_integer<std::uint32_t>(byte)) & 0xff];
  return ~crc;
}

}  // namespace libfprobe::detail

#endif  // FPROBE_SRC_CORE_IMAGE_CRC32_H_
