// See wide_vectors.h.  Whether bytes that look like an instruction on wide vectors are one, the function that holds them
// tells when it is decoded from its start.  In much code that would be most of it, so only moves count there: code for
// wide vectors loads or stores one sooner or later, and few other bytes look like that.
#include "image/wide_vectors.h"

#include "base/arch.h"
#include "image/function_starts.h"
#include "image/image_memory.h"

namespace libfprobe::detail {
namespace {

enum class Place { kInstruction, kInside, kUnknown };

// What starts at `wanted` of `text`, decoding from `from` on.
Place what_is_at(std::span<const std::byte> text, std::uintptr_t base, std::size_t from, std::size_t wanted) {
  constexpr unsigned kMostInstructions = 100'000;
  for (unsigned count = 0; from < wanted; ++count) {
    arch::Insn insn;
    if (count == kMostInstructions || !arch::decode(text.subspan(from), base + from, insn)) return Place::kUnknown;
    from += insn.length;
  }
  return from == wanted ? Place::kInstruction : Place::kInside;
}

bool has_wide_vectors(const Segment& segment, std::span<const std::byte> text, const FunctionStarts& starts) {
  constexpr std::size_t kSmallText = std::size_t{64} << 10;
  const arch::WideSign sign = text.size() <= kSmallText ? arch::WideSign::kAny : arch::WideSign::kMove;
  const auto next = [&](std::size_t from) { return arch::next_wide_vector(text, from, sign); };
  for (std::size_t at = next(0); at < text.size(); at = next(at + 1)) {
    const std::uintptr_t start = starts.last_before(segment.start + at);
    if (start < segment.start) return true;
    if (what_is_at(text, segment.start, start - segment.start, at) != Place::kInside) return true;
  }
  return false;
}

}  // namespace

bool has_wide_vectors(const LoadedImage& image) {
  const ImageMemory memory(image);
  const FunctionStarts starts = FunctionStarts::collect(image, memory, nullptr);
  for (const Segment& segment : image.segments)
    if (is_readable_text(segment) && has_wide_vectors(segment, memory.from(segment.start), starts)) return true;
  return false;
}

}  // namespace libfprobe::detail
