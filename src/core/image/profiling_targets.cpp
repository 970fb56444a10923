// See profiling_targets.h.
#include "image/profiling_targets.h"

#include <algorithm>
#include <string_view>

#include "base/arch.h"

// Weak: tests and tools scan without defining them.
extern "C" {
__attribute__((weak)) void __fentry__();
__attribute__((weak)) void mcount();
__attribute__((weak)) void _mcount();
}

namespace libfprobe::detail {
namespace {

constexpr std::string_view kNames[] = {"__fentry__", "mcount", "_mcount"};
constexpr std::uint8_t kCalls[] = {kFentryCall, kMcountCall, kMcountCall};

std::uint8_t calls_of(std::string_view name) noexcept {
  for (std::size_t i = 0; i < std::size(kNames); ++i) {
    if (name == kNames[i]) return kCalls[i];
  }
  return kNoProfilingCall;
}

std::uint8_t find(std::span<const ProfilingFunction> list, std::uintptr_t address) noexcept {
  std::uint8_t calls = kNoProfilingCall;
  for (const ProfilingFunction& entry : list) {
    if (entry.address == address) calls = static_cast<std::uint8_t>(calls | entry.calls);
  }
  return calls;
}

}  // namespace

ProfilingTargets ProfilingTargets::collect(const LoadedImage& image, const ImageMemory& memory, const ElfImage* file,
                                           std::span<const ProfilingFunction> known) {
  ProfilingTargets targets(memory);
  for (const ProfilingFunction& function : known) {
    // One in another module is called by name: through a word that a relocation binds.
    if (image.contains(function.address)) targets.add_direct(function.address, function.calls);
  }
  targets.collect_definitions(image, file);
  targets.functions_ = targets.direct_;

  const DynamicTables dynamic(image);
  targets.collect_words(image, dynamic, dynamic.relocations());
  targets.collect_words(image, dynamic, dynamic.plt_relocations());
  if (targets.has_imports()) targets.collect_plt_slots(image);
  return targets;
}

std::uint8_t ProfilingTargets::lookup(std::uintptr_t target, bool through_memory) const noexcept {
  if (!through_memory) return target < low_ || target > high_ ? std::uint8_t{kNoProfilingCall} : find(direct_, target);
  if (const std::uint8_t calls = find(words_, target)) return calls;
  std::uintptr_t value = 0;
  return memory_.read_word(target, value) ? find(functions_, value) : std::uint8_t{kNoProfilingCall};
}

void ProfilingTargets::add_direct(std::uintptr_t address, std::uint8_t calls) {
  direct_.push_back(ProfilingFunction{address, calls});
  low_ = std::min(low_, address);
  high_ = std::max(high_, address);
}

void ProfilingTargets::collect_definitions(const LoadedImage& image, const ElfImage* file) {
  const DynamicTables dynamic(image);
  for (std::size_t i = 0; i < std::size(kNames); ++i) {
    const std::uintptr_t value = dynamic.definition_of(kNames[i]);
    if (value != 0) add_direct(value + image.bias, kCalls[i]);
  }
  if (file == nullptr) return;
  for (const ElfSymbol& symbol : file->symtab()) {
    const std::uint8_t calls = calls_of(symbol.name);
    if (calls != kNoProfilingCall && symbol.section != SHN_UNDEF) add_direct(symbol.value + image.bias, calls);
  }
}

void ProfilingTargets::collect_words(const LoadedImage& image, const DynamicTables& dynamic,
                                     DynamicTables::Relocations relocations) {
  Elf64_Rela rela;
  Elf64_Sym symbol;
  std::string_view name;
  for (std::size_t i = 0; i < relocations.count; ++i) {
    if (!memory_.read(relocations.start + i * sizeof rela, rela)) return;
    const std::uint64_t index = ELF64_R_SYM(rela.r_info);
    if (index == 0 || !dynamic.read_symbol(index, symbol, name)) continue;  // relative ones: most of them
    const std::uint8_t calls = calls_of(name);
    if (calls != kNoProfilingCall) words_.push_back(ProfilingFunction{rela.r_offset + image.bias, calls});
  }
}

void ProfilingTargets::collect_plt_slots(const LoadedImage& image) {
  for (const Segment& segment : image.segments) {
    if (!is_readable_text(segment)) continue;
    const std::span<const std::byte> text = memory_.from(segment.start);
    std::uintptr_t word = 0;
    for (std::size_t at = 0; (at = arch::next_memory_jump(text, segment.start, at, word)) < text.size(); ++at) {
      if (const std::uint8_t calls = find(words_, word)) add_plt_slots_at(text, segment.start, at, word, calls);
    }
  }
}

// A slot has something in front of its jump or not: a call may lead to any place from which the word is jumped through.
void ProfilingTargets::add_plt_slots_at(std::span<const std::byte> text, std::uintptr_t base, std::size_t jump,
                                        std::uintptr_t word, std::uint8_t calls) {
  for (std::size_t head = 0; head <= std::min(jump, arch::kMaxPltHead); ++head) {
    const std::size_t slot = jump - head;
    if (arch::plt_slot_word(text.subspan(slot), base + slot) == word) add_direct(base + slot, calls);
  }
}

std::vector<ProfilingFunction> global_profiling_functions() {
  std::vector<ProfilingFunction> functions;
  void (*const addresses[])() = {&__fentry__, &mcount, &_mcount};
  for (std::size_t i = 0; i < std::size(kNames); ++i) {
    const auto address = reinterpret_cast<std::uintptr_t>(addresses[i]);
    if (address != 0) functions.push_back(ProfilingFunction{address, kCalls[i]});
  }
  return functions;
}

}  // namespace libfprobe::detail
