// Which addresses of a module lead to {__fentry__, mcount, _mcount}: words bound to these names by relocations, PLT
// slots that jump through such words, and the functions themselves.
//
// Words of lazily bound or not yet relocated modules hold something else for now, so names decide first; words without
// a relocation (statically linked GOTs) are judged by what they hold.
#ifndef FPROBE_SRC_CORE_IMAGE_PROFILING_TARGETS_H_
#define FPROBE_SRC_CORE_IMAGE_PROFILING_TARGETS_H_

#include <cstdint>
#include <span>
#include <vector>

#include "image/elf_image.h"
#include "image/image_list.h"
#include "image/image_memory.h"

namespace libfprobe::detail {

// Bits: one address may serve both (aliases).
enum ProfilingCall : std::uint8_t { kNoProfilingCall = 0, kFentryCall = 1, kMcountCall = 2 };

// A definition of one of the functions, wherever it lies.
struct ProfilingFunction {
  std::uintptr_t address = 0;
  std::uint8_t calls = kNoProfilingCall;  // ProfilingCall bits
};

class ProfilingTargets {
 public:
  // `known`: definitions that the module's own tables may not tell (ours in a stripped static program).
  [[nodiscard]] static ProfilingTargets collect(const LoadedImage& image, const ImageMemory& memory,
                                                const ElfImage* file, std::span<const ProfilingFunction> known);

  // What a call of `target`, or of what the word at `target` leads to, would be; kNoProfilingCall for all others.
  [[nodiscard]] std::uint8_t lookup(std::uintptr_t target, bool through_memory) const noexcept;
  // The module has a word bound to one of the names.
  [[nodiscard]] bool has_imports() const noexcept { return !words_.empty(); }
  // One of the functions lies in the module itself.
  [[nodiscard]] bool has_definitions() const noexcept { return !functions_.empty(); }

 private:
  explicit ProfilingTargets(const ImageMemory& memory) noexcept : memory_(memory) {}
  void add_direct(std::uintptr_t address, std::uint8_t calls);
  void collect_definitions(const LoadedImage& image, const ElfImage* file);
  void collect_words(const LoadedImage& image, const DynamicTables& dynamic, DynamicTables::Relocations relocations);
  void collect_plt_slots(const LoadedImage& image);
  void add_plt_slots_at(std::span<const std::byte> text, std::uintptr_t base, std::size_t jump, std::uintptr_t word,
                        std::uint8_t calls);

  const ImageMemory& memory_;
  std::vector<ProfilingFunction> functions_;  // definitions in the module
  std::vector<ProfilingFunction> words_;      // GOT words by name
  std::vector<ProfilingFunction> direct_;     // definitions and PLT slots, within [low_, high_]
  std::uintptr_t low_ = UINTPTR_MAX, high_ = 0;
};

// What the names lead to in this process's global scope; names that nobody defines are left out.
[[nodiscard]] std::vector<ProfilingFunction> global_profiling_functions();

}  // namespace libfprobe::detail

#endif  // FPROBE_SRC_CORE_IMAGE_PROFILING_TARGETS_H_
