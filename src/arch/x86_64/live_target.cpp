// Where a site's profiling call leads as the file has it, and whether that is one of our own functions (mcount.S).
#include <algorithm>

#include "base/arch.h"
#include "bytes.h"

extern "C" {
__attribute__((visibility("hidden"))) extern const char fprobe_profiling_functions[];
__attribute__((visibility("hidden"))) extern const char fprobe_profiling_functions_end[];
}

namespace libfprobe::detail::arch {
namespace {

constexpr std::size_t kLongestPltSlot = 16;

// Code that is mapped, as far as its page goes.
Code code_at(std::uintptr_t address) noexcept {
  const std::size_t rest = kPageSize - address % kPageSize;
  return {reinterpret_cast<const std::byte*>(address), std::min(rest, kLongestPltSlot)};
}

std::uintptr_t word_at(std::uintptr_t address) noexcept {
  return *reinterpret_cast<const std::uintptr_t*>(address);
}

}  // namespace

bool is_own_profiling_function(std::uintptr_t address) noexcept {
  const auto start = reinterpret_cast<std::uintptr_t>(fprobe_profiling_functions);
  return address - start < reinterpret_cast<std::uintptr_t>(fprobe_profiling_functions_end) - start;
}

std::uintptr_t live_call_target(std::uintptr_t ip, const SiteShape& shape, const std::uint8_t* original) noexcept {
  const Code call(reinterpret_cast<const std::byte*>(original), shape.length);
  switch (shape.form) {
    case SiteForm::kCallGot:
      return word_at(relative_target<std::int32_t>(call, ip, 2));
    case SiteForm::kCallRel32:
    case SiteForm::kCallRel32Prefixed: {
      const std::uintptr_t target = relative_target<std::int32_t>(call, ip, shape.patch_offset + 1u);
      if (is_own_profiling_function(target)) return target;
      const std::uintptr_t word = plt_slot_word(code_at(target), target);
      return word != 0 ? word_at(word) : target;
    }
    default:
      return 0;
  }
}

}  // namespace libfprobe::detail::arch
