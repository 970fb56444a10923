// Calls to {__fentry__, mcount, _mcount} in x86-64 text, and the PLT slots they go through.
//
//   e8 rel32        call f                bfd -no-pie, clang everywhere; to f itself or to a PLT slot
//   67 e8 rel32     addr32 call f         gcc PIC, relaxed by bfd, gold, lld
//   90 e8 rel32     nop; call f           gcc PIC, relaxed by mold
//   ff 15 disp32    call *f@GOT(%rip)     gcc PIC, f in another image
//
// Bytes only propose; arch::decode has the last word.  Nothing is read outside the span given.
#include <emmintrin.h>

#include <bit>

#include "base/arch.h"
#include "bytes.h"

namespace libfprobe::detail::arch {
namespace {

constexpr std::size_t kCallLength = 5;     // e8 rel32
constexpr std::size_t kGotCallLength = 6;  // ff 15 disp32

constexpr std::uint8_t kMovabsPrefix = 0x49;  // REX.WB
constexpr std::uint8_t kMovabsR10 = 0xba;     // 49 ba imm64   movabs $imm, %r10
constexpr std::uint8_t kMovabsR11 = 0xbb;     // 49 bb imm64   movabs $imm, %r11
constexpr std::size_t kMovabsLength = 10;
constexpr std::uint8_t kLeaRipR10[] = {0x4c, 0x8d, 0x15};  // lea disp32(%rip), %r10
constexpr std::uint8_t kAddR11R10[] = {0x4d, 0x01, 0xda};  // add %r11, %r10
constexpr std::uint8_t kCallR10[] = {0x41, 0xff, 0xd2};    // call *%r10
constexpr std::uint8_t kMovR11d[] = {0x41, 0xbb};          // mov $imm32, %r11d: mold's PLT slots

bool could_be_call(Code text, std::size_t at) noexcept {
  const std::uint8_t first = byte_at(text, at), second = byte_at(text, at + 1);
  return first == kCallRel32Opcode || (first == kGroup5Opcode && second == kCallRipModrm) ||
         (first == kMovabsPrefix && (second == kMovabsR10 || second == kMovabsR11));
}

__m128i lanes(std::uint8_t value) noexcept {
  return _mm_set1_epi8(static_cast<char>(value));
}

// One bit for each of the 16 places from `at` where could_be_call holds; reads 17 bytes.
unsigned call_candidates_in_block(Code text, std::size_t at) noexcept {
  const __m128i first = _mm_loadu_si128(reinterpret_cast<const __m128i*>(text.data() + at));
  const __m128i second = _mm_loadu_si128(reinterpret_cast<const __m128i*>(text.data() + at + 1));
  const __m128i direct = _mm_cmpeq_epi8(first, lanes(kCallRel32Opcode));
  const __m128i got =
      _mm_and_si128(_mm_cmpeq_epi8(first, lanes(kGroup5Opcode)), _mm_cmpeq_epi8(second, lanes(kCallRipModrm)));
  const __m128i movabs =
      _mm_and_si128(_mm_cmpeq_epi8(first, lanes(kMovabsPrefix)),
                    _mm_or_si128(_mm_cmpeq_epi8(second, lanes(kMovabsR10)), _mm_cmpeq_epi8(second, lanes(kMovabsR11))));
  return static_cast<unsigned>(_mm_movemask_epi8(_mm_or_si128(direct, _mm_or_si128(got, movabs))));
}

unsigned memory_jumps_in_block(Code text, std::size_t at) noexcept {
  const __m128i first = _mm_loadu_si128(reinterpret_cast<const __m128i*>(text.data() + at));
  const __m128i second = _mm_loadu_si128(reinterpret_cast<const __m128i*>(text.data() + at + 1));
  return static_cast<unsigned>(_mm_movemask_epi8(
      _mm_and_si128(_mm_cmpeq_epi8(first, lanes(kGroup5Opcode)), _mm_cmpeq_epi8(second, lanes(kJumpRipModrm)))));
}

bool is_call(Code code, std::uintptr_t ip, InsnKind kind, std::size_t length, std::uintptr_t target) noexcept {
  Insn insn;
  return decode(code, ip, insn) && insn.kind == kind && insn.length == length && insn.target == target;
}

}  // namespace

std::size_t next_call_candidate(std::span<const std::byte> text, std::size_t from) noexcept {
  std::size_t at = from;
  for (; at + 17 <= text.size(); at += 16) {
    if (const unsigned found = call_candidates_in_block(text, at)) {
      return at + static_cast<std::size_t>(std::countr_zero(found));
    }
  }
  while (at < text.size() && !could_be_call(text, at)) ++at;
  return at < text.size() ? at : text.size();
}

bool match_call_site(std::span<const std::byte> code, std::uintptr_t ip, IsProfilingTarget is_target, void* argument,
                     SiteShape& shape) noexcept {
  const std::uint8_t first = byte_at(code, 0);
  if (first == kGroup5Opcode && byte_at(code, 1) == kCallRipModrm && code.size() >= kGotCallLength) {
    const std::uintptr_t word = relative_target<std::int32_t>(code, ip, 2);
    shape = SiteShape{SiteForm::kCallGot, kGotCallLength, 0, false};
    return is_target(word, true, argument) && is_call(code, ip, InsnKind::kCallIndirectMemory, kGotCallLength, word);
  }

  const bool is_prefixed = first == kAddressSizePrefix || first == kNop;
  const std::size_t opcode = is_prefixed ? 1 : 0;
  if (byte_at(code, opcode) != kCallRel32Opcode || code.size() < opcode + kCallLength) return false;
  const std::uintptr_t target = relative_target<std::int32_t>(code, ip, opcode + 1);
  if (!is_target(target, false, argument)) return false;

  shape = SiteShape{is_prefixed ? SiteForm::kCallRel32Prefixed : SiteForm::kCallRel32,
                    static_cast<std::uint8_t>(opcode + kCallLength), static_cast<std::uint8_t>(opcode), false};
  // 67 e8 is one instruction, 90 e8 are two: the call is decoded where it starts.
  const std::size_t start = first == kNop ? 1 : 0;
  return is_call(code.subspan(start), ip + start, InsnKind::kCallDirect, shape.length - start, target);
}

// gcc -mcmodel=large, without and with PIC:
//   49 ba imm64 (f)  41 ff d2
//   49 bb imm64 (GOT - here)  4c 8d 15 disp32 (here)  4d 01 da  49 bb imm64 (slot - GOT)  4d 01 da  41 ff d2
std::size_t match_large_call(std::span<const std::byte> code, std::uintptr_t ip, IsProfilingTarget is_target,
                             void* argument) noexcept {
  constexpr std::size_t kPlainLength = kMovabsLength + 3, kPicLength = 2 * kMovabsLength + 7 + 3 * 3;
  if (byte_at(code, 0) != kMovabsPrefix || code.size() < kPlainLength) return 0;

  if (byte_at(code, 1) == kMovabsR10) {
    if (!has_bytes(code, kMovabsLength, kCallR10)) return 0;
    return is_target(load<std::uintptr_t>(code, 2), false, argument) ? kPlainLength : 0;
  }
  if (byte_at(code, 1) != kMovabsR11 || code.size() < kPicLength) return 0;
  if (!has_bytes(code, 10, kLeaRipR10) || !has_bytes(code, 17, kAddR11R10) || byte_at(code, 20) != kMovabsPrefix ||
      byte_at(code, 21) != kMovabsR11 || !has_bytes(code, 30, kAddR11R10) || !has_bytes(code, 33, kCallR10)) {
    return 0;
  }
  const std::uintptr_t got = relative_target<std::int32_t>(code, ip, 13) + load<std::uintptr_t>(code, 2);
  return is_target(got + load<std::uintptr_t>(code, 22), false, argument) ? kPicLength : 0;
}

std::size_t guess_function_starts(std::span<const std::byte> text, std::size_t offset, std::size_t length,
                                  StartGuess (&guesses)[kMaxStartGuesses]) noexcept {
  const auto precedes = [&](std::size_t end, const auto& bytes) {
    return end >= sizeof bytes && has_bytes(text, end - sizeof bytes, bytes);
  };
  const bool is_padded = precedes(offset, kEndbr64);
  const std::size_t body = is_padded ? offset - sizeof kEndbr64 : offset;
  std::size_t count = 0;
  if (precedes(body, kPushR10) && has_bytes(text, offset + length, kPopR10)) {
    guesses[count++] = StartGuess{body - sizeof kPushR10, true};
  }
  if (is_padded) guesses[count++] = StartGuess{body, false};
  guesses[count++] = StartGuess{offset, false};
  return count;
}

std::size_t next_memory_jump(std::span<const std::byte> text, std::uintptr_t ip, std::size_t from,
                             std::uintptr_t& word) noexcept {
  std::size_t at = from;
  unsigned found = 0;
  for (; at + 17 <= text.size(); at += 16) {
    if ((found = memory_jumps_in_block(text, at)) != 0) break;
  }
  if (found != 0) at += static_cast<std::size_t>(std::countr_zero(found));
  while (at < text.size() && !(byte_at(text, at) == kGroup5Opcode && byte_at(text, at + 1) == kJumpRipModrm)) ++at;
  if (at >= text.size() || text.size() - at < 6) return text.size();
  word = relative_target<std::int32_t>(text, ip, at + 2);
  return at;
}

// [f3 0f 1e fa  endbr64]  [41 bb imm32  mov, mold]  [f2  bnd]  ff 25 disp32  jmp *word(%rip)
std::uintptr_t plt_slot_word(std::span<const std::byte> slot, std::uintptr_t ip) noexcept {
  std::size_t at = has_bytes(slot, 0, kEndbr64) ? sizeof kEndbr64 : 0;
  if (has_bytes(slot, at, kMovR11d)) at += 6;
  const std::size_t jump = byte_at(slot, at) == kBndPrefix ? at + 1 : at;
  if (byte_at(slot, jump) != kGroup5Opcode || byte_at(slot, jump + 1) != kJumpRipModrm || slot.size() - jump < 6) {
    return 0;
  }
  Insn insn;
  const bool is_jump = decode(slot.subspan(at), ip + at, insn) && insn.kind == InsnKind::kJumpIndirectMemory;
  return is_jump ? insn.target : 0;
}

const char* form_name(SiteForm form) noexcept {
  switch (form) {
    case SiteForm::kCallRel32:
      return "call";
    case SiteForm::kCallRel32Prefixed:
      return "prefixed call";
    case SiteForm::kCallGot:
      return "call through GOT";
    case SiteForm::kNop5:
      return "nop of 5";
    case SiteForm::kNops:
      return "single nops";
    case SiteForm::kNopRun:
      return "longer nop";
    case SiteForm::kReturn:
      return "return";
  }
  return "unknown";
}

}  // namespace libfprobe::detail::arch
