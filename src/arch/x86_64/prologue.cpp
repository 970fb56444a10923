// What lies between a function's start and its -pg call, and so where its return slot is and whether its arguments are
// still in their registers.
//
//   gcc                                        gcc, realigned stack with a movable rsp      clang
//   [f3 0f 1e fa           endbr64]            [endbr64]                                    [endbr64]
//   55                     push %rbp           4c 8d 54 24 08  lea  8(%rsp),%r10            55        push %rbp
//   48 89 e5               mov  %rsp,%rbp      48 83 e4 e0     and  $-32,%rsp               48 89 e5  mov  %rsp,%rbp
//   [41 57 ... 53          push callee-saved]  41 ff 72 f8     push -8(%r10)                ...       anything
//   [48 83 e4 e0           and  $-32,%rsp]     55  48 89 e5    push %rbp; mov %rsp,%rbp     e8 rel32  call mcount
//   [48 83 ec 40           sub  $64,%rsp]      [41 57 ...]     push callee-saved
//   [41 52                 push %r10]          41 52           push %r10
//   e8 / ff 15             call mcount         e8 / ff 15      call mcount
//
//   slot: 8(%rbp)                              slot: saved r10 - 8; 8(%rbp) is a copy       slot: 8(%rbp)
//
// gcc's call is the last instruction of the prologue: nothing has read or written an argument yet, and every
// callee-saved register but rbp still is the caller's.  Whatever is no such prologue is treated like clang's, whose call
// is an ordinary one.
#include "base/arch.h"
#include "bytes.h"

namespace libfprobe::detail::arch {
namespace {

constexpr std::uint8_t kPushRbp = 0x55;                                  // push %rbp
constexpr std::uint8_t kMovRspRbp[] = {0x48, 0x89, 0xe5};                // mov %rsp,%rbp
constexpr std::uint8_t kLeaR10[] = {0x4c, 0x8d, 0x54, 0x24, 0x08};       // lea 8(%rsp),%r10
constexpr std::uint8_t kPushReturnAddress[] = {0x41, 0xff, 0x72, 0xf8};  // push -8(%r10)
constexpr std::uint8_t kProbeStack[] = {0x48, 0x83, 0x0c, 0x24, 0x00};   // orq $0,(%rsp)
constexpr std::uint8_t kLeaR11[] = {0x4c, 0x8d, 0x9c, 0x24};             // lea disp32(%rsp),%r11
constexpr std::uint8_t kCmpR11Rsp[] = {0x4c, 0x39, 0xdc};                // cmp %r11,%rsp
constexpr std::uint8_t kRexW = 0x48;
constexpr std::uint8_t kGroup1Imm8 = 0x83, kGroup1Imm32 = 0x81;         // with ModRM: add, and, sub
constexpr std::uint8_t kAddRsp = 0xc4, kAndRsp = 0xe4, kSubRsp = 0xec;  // their ModRM for %rsp
constexpr std::uint8_t kJneRel8 = 0x75;

struct Cursor {
  Code code;
  std::size_t at = 0;

  template <std::size_t N>
  [[nodiscard]] bool skip(const std::uint8_t (&bytes)[N]) noexcept {
    if (!has_bytes(code, at, bytes)) return false;
    at += N;
    return true;
  }
  [[nodiscard]] bool skip(std::uint8_t byte) noexcept {
    if (byte_at(code, at) != byte) return false;
    ++at;
    return true;
  }
};

// op $imm,%rsp with op one of add, and, sub; 0: something else.
[[nodiscard]] std::uint8_t stack_adjustment(Code insn) noexcept {
  const bool is_group1 =
      byte_at(insn, 0) == kRexW && (byte_at(insn, 1) == kGroup1Imm8 || byte_at(insn, 1) == kGroup1Imm32);
  const std::uint8_t modrm = byte_at(insn, 2);
  return is_group1 && (modrm == kAddRsp || modrm == kAndRsp || modrm == kSubRsp) ? modrm : std::uint8_t{0};
}

// push of a 64-bit register: its number, -1 for another instruction.
[[nodiscard]] int pushed_register(Code insn) noexcept {
  const bool is_extended = byte_at(insn, 0) == 0x41;
  const std::uint8_t opcode = byte_at(insn, is_extended ? 1 : 0);
  if ((opcode & 0xf8) != 0x50) return -1;
  return (opcode & 7) + (is_extended ? 8 : 0);
}

// Instructions that gcc's prologues are made of, behind the frame's set-up: nothing of them touches an argument.
[[nodiscard]] bool is_of_prologue(Code insn) noexcept {
  return pushed_register(insn) >= 0 || stack_adjustment(insn) != 0 || has_bytes(insn, 0, kProbeStack) ||
         has_bytes(insn, 0, kLeaR11) || has_bytes(insn, 0, kCmpR11Rsp) ||
         (byte_at(insn, 0) == kJneRel8 && insn.size() == 2);
}

// Nothing of a body's end may lie in front of the call: behind it the frame pointer is no longer this function's.
[[nodiscard]] bool ends_frame(Code insn) noexcept {
  constexpr std::uint8_t kRet = 0xc3, kRetImm16 = 0xc2, kLeave = 0xc9, kPopRbp = 0x5d, kJmpRel32 = 0xe9,
                         kJmpRel8 = 0xeb;
  const std::uint8_t opcode = byte_at(insn, 0);
  return opcode == kRet || opcode == kRetImm16 || opcode == kLeave || opcode == kPopRbp || opcode == kJmpRel32 ||
         opcode == kJmpRel8;
}

// The function's first instructions up to `mov %rsp,%rbp`.
[[nodiscard]] bool set_up_frame(Cursor& cursor, FrameForm& frame) noexcept {
  (void)cursor.skip(kEndbr64);
  frame = FrameForm::kPointer;
  if (cursor.skip(kLeaR10)) {
    frame = FrameForm::kRealigned;
    Insn insn;
    if (stack_adjustment(cursor.code.subspan(cursor.at)) != kAndRsp) return false;
    if (!decode(cursor.code.subspan(cursor.at), 0, insn)) return false;
    cursor.at += insn.length;
    if (!cursor.skip(kPushReturnAddress)) return false;
  }
  return cursor.skip(kPushRbp) && cursor.skip(kMovRspRbp);
}

}  // namespace

bool read_prologue(std::span<const std::byte> function, std::uintptr_t ip, std::size_t opcode, SiteShape& shape,
                   std::size_t& site) noexcept {
  constexpr int kR10 = 10;
  Cursor cursor{function};
  if (!set_up_frame(cursor, shape.frame)) return false;
  shape.arguments_moved = false;
  shape.frame_word = 0;
  std::uint8_t pushes = 0;
  bool only_pushes = true;
  while (cursor.at < opcode) {
    const Code rest = function.subspan(cursor.at);
    const bool is_prefix = byte_at(rest, 0) == kAddressSizePrefix || byte_at(rest, 0) == kNop;
    if (is_prefix && cursor.at + 1 == opcode) break;
    Insn insn;
    if (!decode(rest, ip + cursor.at, insn)) return false;
    const Code bytes = rest.first(insn.length);
    if (ends_frame(bytes)) return false;
    const int pushed = pushed_register(bytes);
    only_pushes = only_pushes && pushed >= 0;
    if (only_pushes && ++pushes != 0 && pushed == kR10 && shape.frame_word == 0) shape.frame_word = pushes;
    if (!is_of_prologue(bytes)) shape.arguments_moved = true;
    cursor.at += insn.length;
  }
  site = cursor.at;
  return cursor.at <= opcode && (shape.frame != FrameForm::kRealigned || shape.frame_word != 0);
}

}  // namespace libfprobe::detail::arch
