// arch::decode by Capstone (FPROBE_DECODER=capstone).  decode_zydis.cpp is the other back end; a test makes them check
// each other on whole binaries.
//
// One handle and one instruction buffer for the whole process, never freed, behind a mutex of its own that nests in
// nothing and in which nothing nests.
#include <capstone/capstone.h>

#include <mutex>

#include "base/arch.h"

// A test compiles both back ends into one program, under two names.
#ifndef FPROBE_DECODE_NAME
#define FPROBE_DECODE_NAME decode
#endif

namespace libfprobe::detail::arch {

bool FPROBE_DECODE_NAME(std::span<const std::byte> code, std::uintptr_t ip, Insn& insn) noexcept;

namespace {

struct CapstoneState {
  csh handle = 0;
  cs_insn* insn = nullptr;

  // True once both exist: without memory the next call tries again.
  bool is_ready() noexcept {
    if (handle == 0) {
      if (cs_open(CS_ARCH_X86, CS_MODE_64, &handle) != CS_ERR_OK) return false;
      cs_option(handle, CS_OPT_DETAIL, CS_OPT_ON);  // operands and opcode bytes
    }
    if (insn == nullptr) insn = cs_malloc(handle);
    return insn != nullptr;
  }
};

constinit CapstoneState g_capstone;
constinit std::mutex g_capstone_mutex;  // protects g_capstone

const cs_x86_op* capstone_operand(const cs_insn& decoded) noexcept {
  const cs_x86& x86 = decoded.detail->x86;
  return x86.op_count == 1 ? &x86.operands[0] : nullptr;
}

// Capstone does not count loop among the jumps.
bool capstone_is_loop(const cs_insn& decoded) noexcept {
  return decoded.id == X86_INS_LOOP || decoded.id == X86_INS_LOOPE || decoded.id == X86_INS_LOOPNE;
}

bool capstone_has_group(const cs_insn& decoded, x86_insn_group group) noexcept {
  for (std::uint8_t i = 0; i < decoded.detail->groups_count; ++i) {
    if (decoded.detail->groups[i] == group) return true;
  }
  return false;
}

InsnKind capstone_kind(const cs_insn& decoded) noexcept {
  if (decoded.id == X86_INS_NOP) return InsnKind::kNop;
  if (decoded.id == X86_INS_ENDBR64) return InsnKind::kPad;
  const cs_x86_op* operand = capstone_operand(decoded);
  if (operand == nullptr) return InsnKind::kOther;

  const bool is_near_memory = operand->type == X86_OP_MEM && decoded.id != X86_INS_LCALL && decoded.id != X86_INS_LJMP;
  if (decoded.id == X86_INS_CALL) {
    if (operand->type == X86_OP_IMM) return InsnKind::kCallDirect;
    return is_near_memory ? InsnKind::kCallIndirectMemory : InsnKind::kOther;
  }
  if (operand->type == X86_OP_IMM && (capstone_has_group(decoded, X86_GRP_JUMP) || capstone_is_loop(decoded))) {
    return InsnKind::kJumpDirect;
  }
  return decoded.id == X86_INS_JMP && is_near_memory ? InsnKind::kJumpIndirectMemory : InsnKind::kOther;
}

// Where a branch goes, or the address of the word it goes through; 0 when only the running program knows.
std::uintptr_t capstone_target(const cs_insn& decoded, std::uintptr_t next) noexcept {
  const cs_x86_op& operand = decoded.detail->x86.operands[0];
  if (operand.type == X86_OP_IMM) return static_cast<std::uintptr_t>(operand.imm);
  const bool is_rip_relative = operand.mem.base == X86_REG_RIP && operand.mem.index == X86_REG_INVALID;
  return is_rip_relative ? next + static_cast<std::uintptr_t>(operand.mem.disp) : 0;
}

// Bytes from the ModRM byte at `at` to the end of its addressing, 0 if the code ends before.
std::size_t modrm_length(std::span<const std::byte> code, std::size_t at) noexcept {
  if (at >= code.size()) return 0;
  const auto modrm = static_cast<unsigned>(code[at]);
  const unsigned mod = modrm >> 6, rm = modrm & 7;
  if (mod == 3) return 1;
  const bool has_sib = rm == 4;
  if (has_sib && at + 1 >= code.size()) return 0;
  const unsigned base = has_sib ? static_cast<unsigned>(code[at + 1]) & 7 : rm;
  const bool has_disp32 = mod == 2 || (mod == 0 && base == 5);
  return 1u + (has_sib ? 1u : 0u) + (has_disp32 ? 4u : mod == 1 ? 1u : 0u);
}

// Capstone 4 lacks many AVX-512 instructions.  None of them branches, and their lengths follow from the prefix alone:
// 62 P0 P1 P2 / c4 P0 P1 / c5 P0, opcode, ModRM..., and a byte when the opcode's map has immediates.
std::size_t vector_length(std::span<const std::byte> code) noexcept {
  if (code.size() < 4) return 0;
  const auto byte_at = [&](std::size_t i) { return static_cast<unsigned>(code[i]); };
  const unsigned lead = byte_at(0);
  const std::size_t opcode_at = lead == 0x62 ? 4 : lead == 0xc4 ? 3 : lead == 0xc5 ? 2 : 0;
  if (opcode_at == 0 || opcode_at >= code.size()) return 0;

  if (lead == 0x62 && ((byte_at(1) & 8) != 0 || (byte_at(2) & 4) == 0)) return 0;  // fixed bits of EVEX
  const unsigned map = lead == 0x62 ? byte_at(1) & 7 : lead == 0xc4 ? byte_at(1) & 31 : 1;
  const unsigned opcode = byte_at(opcode_at);
  if (map == 0 || map > 6 || map == 4) return 0;
  const bool has_immediate =
      map == 3 ||
      (map == 1 && ((opcode >= 0x70 && opcode <= 0x73) || opcode == 0xc2 || (opcode >= 0xc4 && opcode <= 0xc6)));
  const std::size_t operands = modrm_length(code, opcode_at + 1);
  const std::size_t length = opcode_at + 1 + operands + (has_immediate ? 1 : 0);
  return operands != 0 && length <= code.size() ? length : 0;
}

}  // namespace

bool FPROBE_DECODE_NAME(std::span<const std::byte> code, std::uintptr_t ip, Insn& insn) noexcept {
  const std::lock_guard<std::mutex> lock(g_capstone_mutex);
  if (!g_capstone.is_ready()) return false;

  const auto* bytes = reinterpret_cast<const std::uint8_t*>(code.data());
  std::size_t size = code.size();
  std::uint64_t address = ip;
  if (!cs_disasm_iter(g_capstone.handle, &bytes, &size, &address, g_capstone.insn)) {
    insn = Insn{static_cast<std::uint8_t>(vector_length(code)), InsnKind::kOther, 0};
    return insn.length != 0;
  }

  const cs_insn& decoded = *g_capstone.insn;
  insn.length = static_cast<std::uint8_t>(decoded.size);
  insn.kind = capstone_kind(decoded);
  insn.target = 0;
  if (insn.kind != InsnKind::kOther && insn.kind != InsnKind::kNop && insn.kind != InsnKind::kPad) {
    insn.target = capstone_target(decoded, ip + decoded.size);
  }
  return true;
}

}  // namespace libfprobe::detail::arch
