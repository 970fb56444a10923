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

// Code for wide vectors loads or stores one sooner or later.  Intel SDM vol. 2, 2.3 and 2.7:
//   c5 P0 op       c4 P0 P1 op       62 P0 P1 P2 op
// with, in the last P but EVEX's P2, L = 1 (EVEX: the fixed bit) and vvvv = 1111: no second source.
bool is_wide_move(std::span<const std::byte> code) noexcept {
  constexpr std::uint8_t kVex3 = 0xc4, kVex2 = 0xc5, kEvex = 0x62;
  constexpr unsigned kNoSource = 0x7c, kMap0f = 1, kMap0f38 = 2;
  const std::uint8_t lead = byte_at(code, 0);
  if (lead != kVex2 && lead != kVex3 && lead != kEvex) return false;
  const std::size_t fields = lead == kVex2 ? 1 : 2;
  if ((byte_at(code, fields) & kNoSource) != kNoSource) return false;
  const unsigned map = lead == kVex2 ? kMap0f : byte_at(code, 1) & (lead == kVex3 ? 0x1f : 0x0f);
  switch (byte_at(code, fields + (lead == kEvex ? 2 : 1))) {
    case 0x10:  // vmovups, vmovupd
    case 0x11:
    case 0x28:  // vmovaps, vmovapd
    case 0x29:
    case 0x2b:  // vmovntps
    case 0x6f:  // vmovdqa, vmovdqu
    case 0x7f:
    case 0xe7:  // vmovntdq
    case 0xf0:  // vlddqu
      return map == kMap0f;
    case 0x18:  // vbroadcastss, sd, f128
    case 0x19:
    case 0x1a:
    case 0x2a:  // vmovntdqa
    case 0x58:  // vpbroadcastd, q, i128
    case 0x59:
    case 0x5a:
    case 0x78:  // vpbroadcastb, w
    case 0x79:
      return map == kMap0f38;
    default:
      return false;
  }
}

std::size_t next_wide_move(std::span<const std::byte> text, std::size_t from) noexcept {
  for (std::size_t at = from; at < text.size(); ++at) {
    const std::span<const std::byte> code = text.subspan(at);
    if (is_wide_move(code) && !is_our_own(code.data())) return at;
  }
  return text.size();
}

}  // namespace libfprobe::detail::arch
