// The address ranges of a module's FDEs: what collect_unwind_ranges (function_starts.h) promises.
//
//   .eh_frame_hdr   01 1b 03 3b   int32 .eh_frame - here   uint32 count   { int32 start, int32 fde } × count
//                   (relative to the header, sorted by start); any other encoding: .eh_frame itself is walked
//   .eh_frame       records: uint32 length, uint32 id (0: CIE; else: distance from here back to the CIE), ...
//   FDE             after the id: start, size, in the encoding that the CIE's augmentation 'R' names
//
// Damaged tables give fewer ranges, never a read outside the module.
#include <algorithm>

#include "image/function_starts.h"

namespace libfprobe::detail {
namespace {

constexpr std::uint8_t kEncodingPcRel = 0x10, kEncodingDataRel4 = 0x3b, kEncodingPcRel4 = 0x1b, kEncodingU4 = 0x03;
constexpr std::uint32_t kLength64 = 0xffffffff;  // a 64-bit record follows: no toolchain writes one

// Size of a value in a DWARF pointer encoding, 0 for what is not understood.
std::size_t encoded_size(std::uint8_t encoding) noexcept {
  switch (encoding & 0x0f) {
    case 0x00:
    case 0x04:
    case 0x0c:
      return 8;
    case 0x02:
    case 0x0a:
      return 2;
    case 0x03:
    case 0x0b:
      return 4;
    default:
      return 0;
  }
}

class FdeReader {
 public:
  explicit FdeReader(const ImageMemory& memory) noexcept : memory_(memory) {}

  // The range of the FDE at `fde`; false when it is a CIE or not understood.
  bool read(std::uintptr_t fde, FunctionRange& range) noexcept {
    std::uint32_t header[2];  // length, id
    if (!memory_.read(fde, header) || header[0] == kLength64 || header[1] == 0) return false;
    const std::uint8_t encoding = encoding_of(fde + 4 - header[1]);
    const std::size_t size = encoded_size(encoding);
    std::uintptr_t start = 0, length = 0;
    if (size == 0 || !read_value(fde + 8, encoding, start) || !read_value(fde + 8 + size, encoding & 0x07, length)) {
      return false;
    }
    const std::uint8_t base = encoding & 0x70;
    if (base != 0 && base != kEncodingPcRel) return false;
    range.start = base == kEncodingPcRel ? fde + 8 + start : start;
    range.end = range.start + length;
    return true;
  }

 private:
  // A value of the encoding's size, sign-extended when it is a signed one.
  [[nodiscard]] bool read_value(std::uintptr_t at, std::uint8_t encoding, std::uintptr_t& value) const noexcept {
    const bool is_signed = (encoding & 0x08) != 0;
    std::int32_t four = 0;
    std::int16_t two = 0;
    switch (encoded_size(encoding)) {
      case 8:
        return memory_.read(at, value);
      case 4:
        if (!memory_.read(at, four)) return false;
        value = is_signed ? static_cast<std::uintptr_t>(std::intptr_t{four}) : static_cast<std::uint32_t>(four);
        return true;
      case 2:
        if (!memory_.read(at, two)) return false;
        value = is_signed ? static_cast<std::uintptr_t>(std::intptr_t{two}) : static_cast<std::uint16_t>(two);
        return true;
      default:
        return false;
    }
  }

  // FDEs of one CIE follow each other: the last answer is kept.
  std::uint8_t encoding_of(std::uintptr_t cie) noexcept {
    if (cie != last_cie_) {
      last_cie_ = cie;
      last_encoding_ = read_encoding(memory_.from(cie));
    }
    return last_encoding_;
  }

  // CIE: length, id, version, augmentation string, code and data alignment, return register, augmentation data.
  static std::uint8_t read_encoding(std::span<const std::byte> cie) noexcept {
    constexpr std::uint8_t kUnknown = 0xff, kAbsolute = 0;
    const auto at = [&](std::size_t i) { return i < cie.size() ? static_cast<std::uint8_t>(cie[i]) : std::uint8_t{0}; };
    constexpr std::size_t kString = 9, kMaxString = 8;
    std::size_t i = kString;
    while (at(i) != 0 && i < kString + kMaxString) ++i;
    if (at(i) != 0 || i >= cie.size()) return kUnknown;
    if (at(kString) != 'z') return i == kString ? kAbsolute : kUnknown;

    std::size_t data = i + 1;
    const auto skip_leb = [&] {
      while ((at(data++) & 0x80) != 0) {
      }
    };
    for (int field = 0; field < 4; ++field) skip_leb();  // alignments, register (< 128), length of the data
    for (i = kString + 1; at(i) != 0; ++i) {
      if (at(i) == 'R') return at(data);
      if (at(i) == 'L') data += 1;
      if (at(i) == 'P') data += 1 + encoded_size(at(data));
    }
    return kAbsolute;
  }

  const ImageMemory& memory_;
  std::uintptr_t last_cie_ = 0;
  std::uint8_t last_encoding_ = 0xff;
};

// From the binary search table; false when its encoding is not the one that all linkers write.
bool collect_from_table(const LoadedImage& image, const ImageMemory& memory, std::vector<FunctionRange>& out) {
  const std::uintptr_t header = image.eh_frame_hdr;
  const std::span<const std::byte> bytes = memory.range(header, image.eh_frame_hdr_size);
  if (bytes.size() < 12 || bytes[0] != std::byte{1} || bytes[2] != std::byte{kEncodingU4} ||
      bytes[3] != std::byte{kEncodingDataRel4} || encoded_size(static_cast<std::uint8_t>(bytes[1])) != 4) {
    return false;
  }
  std::uint32_t count = 0;
  std::memcpy(&count, bytes.data() + 8, sizeof count);
  const std::size_t available = std::min<std::size_t>(count, (bytes.size() - 12) / 8);
  out.reserve(out.size() + available);
  FdeReader reader(memory);
  for (std::size_t i = 0; i < available; ++i) {
    std::int32_t entry[2];
    std::memcpy(entry, bytes.data() + 12 + i * sizeof entry, sizeof entry);
    const std::uintptr_t start = header + static_cast<std::uintptr_t>(std::intptr_t{entry[0]});
    FunctionRange range;
    const bool is_whole = reader.read(header + static_cast<std::uintptr_t>(std::intptr_t{entry[1]}), range);
    out.push_back(is_whole && range.start == start ? range : FunctionRange{start, start});
  }
  return true;
}

// Where .eh_frame lies.  Only the file tells its end; then a terminator may be followed by another object's records.
struct Records {
  std::uintptr_t start = 0, end = 0;
  bool is_end_known = false;
};

// Record by record, for modules without a table: -static programs, --no-eh-frame-hdr.
void walk_records(const ImageMemory& memory, const Records& records, std::vector<FunctionRange>& out) {
  FdeReader reader(memory);
  std::uint32_t length = 0;
  std::uintptr_t at = records.start;
  while (at < records.end && memory.read(at, length) && length != kLength64) {
    if (length == 0 && !records.is_end_known) return;
    FunctionRange range;
    if (length != 0 && reader.read(at, range)) out.push_back(range);
    at += sizeof length + length;
  }
}

// By the file's section, else by the header's pointer; empty when neither tells.
Records find_records(const LoadedImage& image, const ImageMemory& memory, const ElfImage* file) noexcept {
  const ElfSection* section = file != nullptr ? file->section(".eh_frame") : nullptr;
  if (section != nullptr) return {section->address + image.bias, section->address + image.bias + section->size, true};

  const std::span<const std::byte> bytes = memory.range(image.eh_frame_hdr, 8);
  if (bytes.empty() || bytes[1] != std::byte{kEncodingPcRel4}) return {};
  std::int32_t distance = 0;
  std::memcpy(&distance, bytes.data() + 4, sizeof distance);
  const std::uintptr_t start = image.eh_frame_hdr + 4 + static_cast<std::uintptr_t>(std::intptr_t{distance});
  return {start, start + memory.from(start).size(), false};
}

}  // namespace

void collect_unwind_ranges(const LoadedImage& image, const ImageMemory& memory, const ElfImage* file,
                           std::vector<FunctionRange>& out) {
  if (image.eh_frame_hdr != 0 && collect_from_table(image, memory, out)) return;
  walk_records(memory, find_records(image, memory, file), out);
}

}  // namespace libfprobe::detail
