// arch::decode by Zydis (FPROBE_DECODER=zydis).  decode_capstone.cpp is the other back end; a test makes them check
// each other on whole binaries.
//
// Works without locks and without memory of its own, so several threads may decode.
#include <Zydis/Zydis.h>

#include "base/arch.h"

// A test compiles both back ends into one program, under two names.
#ifndef FPROBE_DECODE_NAME
#define FPROBE_DECODE_NAME decode
#endif

namespace libfprobe::detail::arch {

bool FPROBE_DECODE_NAME(std::span<const std::byte> code, std::uintptr_t ip, Insn& insn) noexcept;

namespace {

const ZydisDecoder& zydis_decoder() noexcept {
  static const ZydisDecoder decoder = [] {
    ZydisDecoder made;
    ZydisDecoderInit(&made, ZYDIS_MACHINE_MODE_LONG_64, ZYDIS_STACK_WIDTH_64);
    return made;
  }();
  return decoder;
}

bool zydis_is_relative(const ZydisDecodedInstruction& decoded) noexcept {
  return decoded.raw.imm[0].size != 0 && decoded.raw.imm[0].is_relative;
}

// ff /2 and ff /4 with a memory operand; /3 and /5 are far.
bool zydis_is_through_memory(const ZydisDecodedInstruction& decoded) noexcept {
  return decoded.opcode == 0xff && decoded.raw.modrm.mod != 3 && (decoded.raw.modrm.reg & 1) == 0;
}

InsnKind zydis_kind(const ZydisDecodedInstruction& decoded) noexcept {
  switch (decoded.meta.category) {
    case ZYDIS_CATEGORY_CALL:
      if (zydis_is_relative(decoded)) return InsnKind::kCallDirect;
      return zydis_is_through_memory(decoded) ? InsnKind::kCallIndirectMemory : InsnKind::kOther;
    case ZYDIS_CATEGORY_UNCOND_BR:
    case ZYDIS_CATEGORY_COND_BR:
      if (zydis_is_relative(decoded)) return InsnKind::kJumpDirect;
      return zydis_is_through_memory(decoded) ? InsnKind::kJumpIndirectMemory : InsnKind::kOther;
    default:
      break;
  }
  if (decoded.mnemonic == ZYDIS_MNEMONIC_NOP) return InsnKind::kNop;
  return decoded.mnemonic == ZYDIS_MNEMONIC_ENDBR64 ? InsnKind::kPad : InsnKind::kOther;
}

// Where a branch goes, or the address of the word it goes through; 0 when only the running program knows.
std::uintptr_t zydis_target(const ZydisDecodedInstruction& decoded, std::uintptr_t next) noexcept {
  if (zydis_is_relative(decoded)) return next + static_cast<std::uintptr_t>(decoded.raw.imm[0].value.s);
  const bool is_rip_relative = decoded.address_width == 64 && decoded.raw.modrm.mod == 0 && decoded.raw.modrm.rm == 5;
  return is_rip_relative ? next + static_cast<std::uintptr_t>(decoded.raw.disp.value) : 0;
}

}  // namespace

bool FPROBE_DECODE_NAME(std::span<const std::byte> code, std::uintptr_t ip, Insn& insn) noexcept {
  ZydisDecodedInstruction decoded;
  if (!ZYAN_SUCCESS(ZydisDecoderDecodeInstruction(&zydis_decoder(), nullptr, code.data(), code.size(), &decoded))) {
    return false;
  }
  insn.length = decoded.length;
  insn.kind = zydis_kind(decoded);
  insn.target = 0;
  if (insn.kind != InsnKind::kOther && insn.kind != InsnKind::kNop && insn.kind != InsnKind::kPad) {
    insn.target = zydis_target(decoded, ip + decoded.length);
  }
  return true;
}

}  // namespace libfprobe::detail::arch
