// See breakpoints.h.
#include "image/breakpoints.h"

#include <cstring>

#include "base/arch.h"

namespace libfprobe::detail {
namespace {

constexpr std::size_t kSize = sizeof arch::kBreakpoint;

// Calls found(offset) for each breakpoint in `memory` that is none in `file`; both have one size.
template <class Found>
void for_each_breakpoint(std::span<const std::byte> memory, std::span<const std::byte> file, Found found) {
  for (std::size_t at = 0; at < memory.size();) {
    const void* const hit = memmem(memory.data() + at, memory.size() - at, arch::kBreakpoint, kSize);
    if (hit == nullptr) return;
    at = static_cast<std::size_t>(static_cast<const std::byte*>(hit) - memory.data());
    if (std::memcmp(file.data() + at, arch::kBreakpoint, kSize) != 0) found(at);
    at += kSize;
  }
}

}  // namespace

std::vector<TextCopy> copies_without_breakpoints(const LoadedImage& image, const ElfImage& file) {
  const ImageMemory memory(image);
  std::vector<TextCopy> copies;
  for (const ElfSection& section : file.sections()) {
    const std::uintptr_t start = section.address + image.bias;
    const Segment* const segment = image.segment_at(start);
    if (segment == nullptr || !is_readable_text(*segment) || (section.flags & SHF_EXECINSTR) == 0) continue;
    const std::span<const std::byte> text = memory.range(start, section.bytes.size());
    for_each_breakpoint(text, section.bytes, [&](std::size_t at) {
      if (copies.empty() || copies.back().start != segment->start) {
        const std::span<const std::byte> whole = memory.from(segment->start);
        copies.push_back({segment->start, {whole.begin(), whole.end()}});
      }
      std::memcpy(copies.back().bytes.data() + (start - segment->start) + at, section.bytes.data() + at, kSize);
    });
  }
  return copies;
}

}  // namespace libfprobe::detail
