// Nops at a function's first bytes that toolchains leave to be patched, as x86-64 has them.
//
//   gcc   -fpatchable-function-entry=N    [endbr64]  90 × N
//   clang -fpatchable-function-entry=N    [endbr64]  the fewest long nops: 0f 1f 44 00 08, 66 0f 1f 84 00 00 02 00 00,
//   ... gcc   -mnop-mcount                    [endbr64]  0f 1f 44 00 00,  nested: 41 52 [endbr64] 0f 1f 44 00 00 41 5a
//
// A site is taken from the run's front: one-byte nops as many as there are (kMaxSiteLength at most), else the first nop
// alone when it is long enough.  What follows is left to run as nops, so the site ends at a boundary however long the
// run.  Clang's displacements, 8 and 512, are in no assembler's padding.
#include <algorithm>

#include "base/arch.h"
#include "bytes.h"

namespace libfprobe::detail::arch {
namespace {

constexpr std::size_t kJumpLength = 5;  // what a site must hold: jmp rel32

// The first three bytes of nopl disp8(%rax,%rax,1): 0f 1f 44 00 disp8.
constexpr std::uint8_t kNop5[] = {0x0f, 0x1f, 0x44};

// Bytes of one-byte nops at `offset`.
std::size_t count_single_nops(Code code, std::size_t offset) noexcept {
  std::size_t count = 0;
  while (count < kMaxSiteLength && byte_at(code, offset + count) == kNop) ++count;
  return count;
}

std::size_t nop_length(Code code) noexcept {
  Insn insn;
  return decode(code, 0, insn) && insn.kind == InsnKind::kNop ? insn.length : 0;
}

// Fills `shape` for nops at `code`; its length is 0 when there are none.
bool match_nops(Code code, SiteShape& shape) noexcept {
  const std::size_t singles = count_single_nops(code, 0);
  if (singles != 0) {
    shape = SiteShape{SiteForm::kNops, static_cast<std::uint8_t>(singles), 0, false};
    return singles >= kJumpLength;
  }
  const std::size_t length = nop_length(code);
  const bool is_nop5 = length == kJumpLength && has_bytes(code, 0, kNop5) && byte_at(code, 3) == 0;
  shape = SiteShape{is_nop5 ? SiteForm::kNop5 : SiteForm::kNopRun, static_cast<std::uint8_t>(length), 0, false};
  return is_nop5 || length > kJumpLength;
}

// Whether nops may start with this byte: keeps the decoder away from most functions.
bool may_be_nop(std::uint8_t first) noexcept {
  return first == kNop || first == 0x0f || first == 0x66 || first == 0x2e;
}

// A jump rel8: jcc, loop, jrcxz, jmp.
bool is_short_jump(std::uint8_t opcode) noexcept {
  return (opcode & 0xf0) == 0x70 || (opcode & 0xfc) == 0xe0 || opcode == 0xeb;
}

// Where the bytes at `at` would jump if an instruction's opcode were there, 0 if they are no direct jump.
std::uintptr_t would_jump_to(Code body, std::uintptr_t ip, std::size_t at) noexcept {
  const std::uint8_t opcode = byte_at(body, at);
  if (is_short_jump(opcode)) return at + 2 <= body.size() ? relative_target<std::int8_t>(body, ip, at + 1) : 0;
  std::size_t displacement = 0;
  if (opcode == 0xe9) displacement = at + 1;                                            // jmp rel32
  if (opcode == 0x0f && (byte_at(body, at + 1) & 0xf0) == 0x80) displacement = at + 2;  // jcc rel32
  if (displacement == 0 || displacement + 4 > body.size()) return 0;
  return relative_target<std::int32_t>(body, ip, displacement);
}

}  // namespace

bool match_patchable(std::span<const std::byte> function, SiteShape& shape, std::size_t& offset) noexcept {
  shape = SiteShape{};
  const bool is_nested = has_bytes(function, 0, kPushR10);
  offset = is_nested ? sizeof kPushR10 : 0;
  if (has_bytes(function, offset, kEndbr64)) offset += sizeof kEndbr64;
  if (!may_be_nop(byte_at(function, offset))) return false;

  if (!match_nops(function.subspan(offset), shape)) return false;
  if (!is_nested) return true;
  // Only -mnop-mcount puts its nop between push and pop; elsewhere a push is the function's own.
  shape.nested = true;
  if (shape.form == SiteForm::kNop5 && has_bytes(function, offset + shape.length, kPopR10)) return true;
  shape.length = 0;
  return false;
}

NopOrigin nop_origin(std::span<const std::byte> site, const SiteShape& shape) noexcept {
  constexpr std::uint8_t kDisplacement8[] = {0x08};
  constexpr std::uint8_t kDisplacement512[] = {0x00, 0x02, 0x00, 0x00};
  switch (shape.form) {
    case SiteForm::kNops:
      return NopOrigin::kPatchable;
    case SiteForm::kNop5:
      if (byte_at(site, 4) == 0) return NopOrigin::kMcount;
      return byte_at(site, 4) == kDisplacement8[0] ? NopOrigin::kPatchable : NopOrigin::kUnknown;
    case SiteForm::kNopRun: {
      const bool is_clang = (shape.length == 6 && has_bytes(site, 5, kDisplacement8)) ||
                            (shape.length > 6 && has_bytes(site, shape.length - 4u, kDisplacement512));
      return is_clang ? NopOrigin::kPatchable : NopOrigin::kUnknown;
    }
    default:
      return NopOrigin::kUnknown;
  }
}

// Bytes that would be such a jump are looked for first; only when there are some, instructions are decoded up to them.
bool jumps_between(std::span<const std::byte> body, std::uintptr_t ip, std::uintptr_t low,
                   std::uintptr_t high) noexcept {
  constexpr std::size_t kMaxBody = 4096;
  body = body.first(std::min(body.size(), kMaxBody));
  std::size_t boundary = 0;  // an instruction starts here
  for (std::size_t at = 0; at < body.size(); ++at) {
    const std::uintptr_t target = would_jump_to(body, ip, at);
    if (target < low || target >= high) continue;
    while (boundary <= at) {
      Insn insn;
      if (!decode(body.subspan(boundary), ip + boundary, insn)) return true;
      if (insn.kind == InsnKind::kJumpDirect && insn.target >= low && insn.target < high) return true;
      boundary += insn.length;
    }
  }
  return false;
}

}  // namespace libfprobe::detail::arch
