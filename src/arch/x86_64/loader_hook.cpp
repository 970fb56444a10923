// The function that the dynamic loader calls for debuggers (r_debug.r_brk) does nothing, so its return and the padding
// behind it can hold a jump:
//
//     [f3 0f 1e fa]                 endbr64
//     [55 48 89 e5 ... 5d]          push %rbp; mov %rsp,%rbp; pop %rbp      built with frame pointers
//     c3                            ret                          e9 t0 t1 t2 t3      jmp
//     66 66 2e 0f 1f 84 00 ...      nops up to the next function
//
// At the `ret` the function is over, whatever stands in front of it: the hook's own `ret` takes its place.  Padding is
// told from code by its end: it reaches to where the assembler aligns the next function.
#include <cstring>

#include "base/arch.h"
#include "bytes.h"

extern "C" __attribute__((visibility("hidden"))) const char fprobe_loader_hook[];  // loader_hook.S

namespace libfprobe::detail::arch {
namespace {

constexpr std::uint8_t kRet[] = {0xc3};                     // ret
constexpr std::uint8_t kPushRbp[] = {0x55};                 // push %rbp
constexpr std::uint8_t kMovRspRbp[] = {0x48, 0x89, 0xe5};   // mov %rsp,%rbp
constexpr std::uint8_t kMovRspRbp2[] = {0x48, 0x8b, 0xec};  // the same in its other encoding
constexpr std::uint8_t kPopRbp[] = {0x5d};                  // pop %rbp
constexpr std::size_t kJumpLength = 5;
constexpr std::size_t kLongestEmptyFunction = 24;
constexpr std::uintptr_t kFunctionAlignment = 16;

bool is_frame_code(Code code, std::size_t at) noexcept {
  return has_bytes(code, at, kPushRbp) || has_bytes(code, at, kMovRspRbp) || has_bytes(code, at, kMovRspRbp2) ||
         has_bytes(code, at, kPopRbp);
}

// Length of the instruction of no effect at `at`, 0 if it is none.
std::size_t nop_length(Code code, std::uintptr_t ip, std::size_t at) noexcept {
  if (at < code.size() && has_bytes(code, at, kBreakpoint))
    return sizeof kBreakpoint;  // padding too, as some linkers fill
  Insn insn;
  return at < code.size() && decode(code.subspan(at), ip + at, insn) && insn.kind == InsnKind::kNop ? insn.length : 0;
}

// Where the padding ends that begins at `at`; `at` itself when it does not reach the next function.
std::size_t padding_end(Code code, std::uintptr_t ip, std::size_t at) noexcept {
  std::size_t end = at;
  while ((ip + end) % kFunctionAlignment != 0) {
    const std::size_t length = nop_length(code, ip, end);
    if (length == 0) return at;
    end += length;
  }
  return end;
}

}  // namespace

bool match_empty_function(std::span<const std::byte> function, std::uintptr_t ip, SiteShape& shape,
                          std::size_t& offset) noexcept {
  std::size_t at = 0;
  while (!has_bytes(function, at, kRet)) {
    Insn insn;
    if (at >= kLongestEmptyFunction || at >= function.size() || !decode(function.subspan(at), ip + at, insn))
      return false;
    if (insn.kind != InsnKind::kNop && insn.kind != InsnKind::kPad && !is_frame_code(function, at)) return false;
    at += insn.length;
  }
  const std::size_t end = padding_end(function, ip, at + sizeof kRet);
  if (end < at + kJumpLength || end > function.size()) return false;
  shape = SiteShape{SiteForm::kReturn, kJumpLength, 0, false};
  offset = at;
  return true;
}

std::uintptr_t loader_hook_code() noexcept {
  return reinterpret_cast<std::uintptr_t>(fprobe_loader_hook);
}

}  // namespace libfprobe::detail::arch
