// See function_starts.h.
#include "image/function_starts.h"

#include <algorithm>

namespace libfprobe::detail {
namespace {

void collect_symbol_ranges(const LoadedImage& image, std::span<const ElfSymbol> symbols,
                           std::vector<FunctionRange>& out) {
  for (const ElfSymbol& symbol : symbols) {
    const bool is_function = symbol.type == STT_FUNC || symbol.type == STT_GNU_IFUNC;  // an IFUNC's code: its resolver
    if (!is_function || symbol.section == SHN_UNDEF) continue;
    const std::uintptr_t start = symbol.value + image.bias;
    out.push_back(FunctionRange{start, start + std::min<std::uint64_t>(symbol.size, image.high - image.low)});
  }
}

}  // namespace

FunctionStarts FunctionStarts::collect(const LoadedImage& image, const ImageMemory& memory, const ElfImage* file,
                                       const ElfImage* debug) {
  FunctionStarts starts;
  std::vector<FunctionRange> unwind, symbols;
  collect_unwind_ranges(image, memory, file, unwind);
  if (const ElfImage* const named = debug != nullptr ? debug : file) {
    starts.is_complete_ = !named->symtab().empty();
    collect_symbol_ranges(image, starts.is_complete_ ? named->symtab() : named->dynsym(), symbols);
  }
  // Later duplicates are dropped, so the longer range of one start comes first.
  const auto is_before = [](const FunctionRange& a, const FunctionRange& b) {
    return a.start != b.start ? a.start < b.start : a.end > b.end;
  };
  if (!std::is_sorted(unwind.begin(), unwind.end(), is_before)) std::sort(unwind.begin(), unwind.end(), is_before);
  std::sort(symbols.begin(), symbols.end(), is_before);
  std::vector<FunctionRange>& ranges = starts.ranges_;
  ranges.resize(unwind.size() + symbols.size());
  std::merge(unwind.begin(), unwind.end(), symbols.begin(), symbols.end(), ranges.begin(), is_before);
  ranges.erase(std::unique(ranges.begin(), ranges.end(),
                           [](const FunctionRange& a, const FunctionRange& b) { return a.start == b.start; }),
               ranges.end());
  std::erase_if(ranges, [&](const FunctionRange& range) { return !memory.is_code(range.start); });
  std::uintptr_t reach = 0;
  for (FunctionRange& range : ranges) range.end = reach = std::max(reach, range.end);
  return starts;
}

std::vector<FunctionRange>::const_iterator FunctionStarts::behind(std::uintptr_t address) const noexcept {
  return std::upper_bound(ranges_.begin(), ranges_.end(), address,
                          [](std::uintptr_t wanted, const FunctionRange& range) { return wanted < range.start; });
}

bool FunctionStarts::is_start(std::uintptr_t address) const noexcept {
  return last_before(address) == address && address != 0;
}

std::uintptr_t FunctionStarts::last_before(std::uintptr_t address) const noexcept {
  const auto next = behind(address);
  return next == ranges_.begin() ? 0 : std::prev(next)->start;
}

std::uintptr_t FunctionStarts::next_after(std::uintptr_t address) const noexcept {
  const auto next = behind(address);
  return next == ranges_.end() ? 0 : next->start;
}

bool FunctionStarts::covers(std::uintptr_t address) const noexcept {
  const auto next = behind(address);
  return next != ranges_.begin() && std::prev(next)->end > address;
}

}  // namespace libfprobe::detail
