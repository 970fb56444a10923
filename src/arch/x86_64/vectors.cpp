// Which vector registers a site's hits must keep: what the CPU has, and how code for wide vectors is told.
#include "vectors.h"

#include <cpuid.h>

#include "base/arch.h"
#include "bytes.h"

extern "C" __attribute__((visibility("hidden"))) const char fprobe_wide_code[], fprobe_wide_code_end[];

namespace libfprobe::detail::arch {

constinit VectorSupport g_vector_support{};

namespace {

constexpr std::uint32_t kX87 = 1U << 0, kSse = 1U << 1, kAvx = 1U << 2;
constexpr std::uint32_t kAvx512 = 7U << 5;  // opmask, upper halves of zmm0-15, zmm16-31

// Intel SDM vol. 1, 13.2: what the kernel switches between threads.
std::uint32_t enabled_components() noexcept {
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid(1, &a, &b, &c, &d) == 0 || (c & bit_OSXSAVE) == 0) return 0;
  std::uint32_t low = 0, high = 0;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return low;
}

VectorSupport find_support() noexcept {
  const std::uint32_t enabled = enabled_components();
  VectorSupport support;
  support.state_components = enabled & (kX87 | kSse | kAvx | kAvx512);
  support.has_avx = (enabled & kAvx) != 0;
  support.has_avx512 = (enabled & kAvx512) == kAvx512;
  return support;
}

bool is_our_own(const std::byte* code) noexcept {
  const auto address = reinterpret_cast<std::uintptr_t>(code);
  return address >= reinterpret_cast<std::uintptr_t>(fprobe_wide_code) &&
         address < reinterpret_cast<std::uintptr_t>(fprobe_wide_code_end);
}

}  // namespace

unsigned kept_registers(const SiteShape& shape, bool has_wide_vectors, bool everything) noexcept {
  static const VectorSupport support = find_support();
  g_vector_support = support;  // the same value each time
  unsigned keeps = kKeepArguments | kKeepFpenv;
  if (has_wide_vectors && support.has_avx) keeps |= kKeepWide;
  if (shape.form == SiteForm::kNops) keeps |= kKeepCallerSaved;
  if (everything) keeps |= kKeepCallerSaved | kKeepEverything;
  return keeps;
}

namespace {

// Intel SDM vol. 2, 2.3 and 2.7; these three bytes start nothing else in 64-bit code:
//   c5 P0 op       c4 P0 P1 op       62 P0 P1 P2 op
// The last P but EVEX's P2 has L = 1 for 256 bits (EVEX: a fixed 1), and vvvv = 1111 where there is no second source.
struct VectorPrefix {
  unsigned map = 0, last = 0;  // 0: no such prefix
  std::uint8_t opcode = 0;
};

VectorPrefix read_vector_prefix(Code code) noexcept {
  constexpr std::uint8_t kVex2 = 0xc5, kVex3 = 0xc4, kEvex = 0x62;
  constexpr unsigned kMap0f = 1;
  switch (byte_at(code, 0)) {
    case kVex2:
      return {kMap0f, byte_at(code, 1), byte_at(code, 2)};
    case kVex3:
      return {byte_at(code, 1) & 0x1fU, byte_at(code, 2), byte_at(code, 3)};
    case kEvex:
      return {byte_at(code, 1) & 0x0fU, byte_at(code, 2), byte_at(code, 4)};
    default:
      return {};
  }
}

bool is_wide(const VectorPrefix& prefix) noexcept {
  constexpr unsigned kLength = 4, kLastMap = 6;
  return prefix.map != 0 && prefix.map <= kLastMap && (prefix.last & kLength) != 0;
}

bool is_wide_move(const VectorPrefix& prefix) noexcept {
  constexpr unsigned kNoSource = 0x78, kMap0f = 1, kMap0f38 = 2;
  if (!is_wide(prefix) || (prefix.last & kNoSource) != kNoSource) return false;
  switch (prefix.opcode) {
    case 0x10:  // vmovups, vmovupd
    case 0x11:
    case 0x28:  // vmovaps, vmovapd
    case 0x29:
    case 0x2b:  // vmovntps
    case 0x6f:  // vmovdqa, vmovdqu
    case 0x7f:
    case 0xe7:  // vmovntdq
    case 0xf0:  // vlddqu
      return prefix.map == kMap0f;
    case 0x18:  // vbroadcastss, sd, f128
    case 0x19:
    case 0x1a:
    case 0x2a:  // vmovntdqa
    case 0x58:  // vpbroadcastd, q, i128
    case 0x59:
    case 0x5a:
    case 0x78:  // vpbroadcastb, w
    case 0x79:
      return prefix.map == kMap0f38;
    default:
      return false;
  }
}

}  // namespace

std::size_t next_wide_vector(std::span<const std::byte> text, std::size_t from, WideSign sign) noexcept {
  for (std::size_t at = from; at < text.size(); ++at) {
    const std::span<const std::byte> code = text.subspan(at);
    const VectorPrefix prefix = read_vector_prefix(code);
    const bool is_sign = sign == WideSign::kMove ? is_wide_move(prefix) : is_wide(prefix);
    if (is_sign && !is_our_own(code.data())) return at;
  }
  return text.size();
}

}  // namespace libfprobe::detail::arch
