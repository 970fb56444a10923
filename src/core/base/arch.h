// THE interface each CPU implements (src/arch/<cpu>/).  Nothing above it asks which CPU it runs on.
//
// Constants and layouts come from arch_defs.h of the CPU: `kMaxSiteLength`, `kThunkHeadSize`, `kThunkReach`, and so on.
// A site's life in bytes is described here once for all CPUs; the bytes themselves are drawn in arch/<cpu>/patch.cpp.
#ifndef FPROBE_SRC_CORE_BASE_ARCH_H_
#define FPROBE_SRC_CORE_BASE_ARCH_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "arch_defs.h"  // from src/arch/<cpu>/

namespace libfprobe::detail::arch {

// --- base/syscalls.cpp
// ------------------------------------------------------------------------------------------------- The bare
// instruction: no errno, no cancellation point.
long syscall(long number, long a, long b, long c, long d, long e, long f) noexcept;

// --- decode.cpp
// -------------------------------------------------------------------------------------------------------- What a site
// scan needs to know of one instruction.  Two back ends (Zydis, Capstone) fill it and must agree.
enum class InsnKind : std::uint8_t {
  kOther,
  kNop,
  kCallDirect,
  kCallIndirectMemory,
  kJumpDirect,
  kJumpIndirectMemory,
  kPad
};
struct Insn {
  std::uint8_t length = 0;
  InsnKind kind = InsnKind::kOther;
  std::uintptr_t target = 0;  // direct: where it goes; indirect through rip-relative memory: the address of that word
};
// False when `code` does not start with a whole valid instruction.  `kPad`: endbr64 / bti c.
[[nodiscard]] bool decode(std::span<const std::byte> code, std::uintptr_t ip, Insn& insn) noexcept;

// --- sites.cpp
// --------------------------------------------------------------------------------------------------------- A site's
// file form: which bytes the toolchain left.  Values are CPU specific; patch.cpp draws each one.
struct SiteShape {
  SiteForm form{};                // arch_defs.h
  std::uint8_t length = 0;        // bytes from ip that belong to the site; ip + length is an instruction boundary
  std::uint8_t patch_offset = 0;  // the jump goes here (a kept prefix lies in front of it)
  bool nested = false;            // a static chain lies on the stack above the return slot (gcc nested function)
};
// Recognises a -pg -mfentry call at `code` (address ip): fills shape and the word or address the call goes to.
// `is_target(address, through_memory)` answers whether a call's target is one of {__fentry__, mcount, _mcount}.
using IsProfilingTarget = bool (*)(std::uintptr_t target, bool through_memory, void* argument);
[[nodiscard]] bool match_call_site(std::span<const std::byte> code, std::uintptr_t ip, IsProfilingTarget is_target,
                                   void* argument, SiteShape& shape) noexcept;
// Next place at or after `from` in `code` that could hold such a call (a fast byte search), code.size() if none.
[[nodiscard]] std::size_t next_call_candidate(std::span<const std::byte> code, std::size_t from) noexcept;
// Recognises patchable nops at a function's first byte (skips a pad): fills shape and the offset of the site.
[[nodiscard]] bool match_patchable(std::span<const std::byte> function, SiteShape& shape, std::size_t& offset) noexcept;
// Where the function starts that has an -mfentry site at `offset` of `text` (over endbr64, over a nested function's
// push); sets `nested`.
[[nodiscard]] std::size_t fentry_function_start(std::span<const std::byte> text, std::size_t offset,
                                                bool& nested) noexcept;
// The address of the word through which the PLT slot at `slot` jumps, 0 if it is no PLT slot.
[[nodiscard]] std::uintptr_t plt_slot_word(std::span<const std::byte> slot, std::uintptr_t ip) noexcept;

// --- patch.cpp
// --------------------------------------------------------------------------------------------------------- A change of
// live text as numbered steps; text_poke lets every CPU see step i before step i+1 is written.
struct PokeSteps {
  static constexpr unsigned kMaxSteps = 4;
  struct Step {
    std::uint8_t offset = 0;  // from the site's ip
    std::uint8_t length = 0;
    std::uint8_t bytes[kMaxSiteLength]{};
  };
  std::uint8_t count = 0;
  Step steps[kMaxSteps]{};
};
// The idle form of a site: what it holds while no probe uses it.
void idle_bytes(std::uintptr_t ip, const SiteShape& shape, const std::uint8_t* original, std::uint8_t* out) noexcept;
// The armed form: the jump to `thunk`.
void armed_bytes(std::uintptr_t ip, const SiteShape& shape, std::uintptr_t thunk, const std::uint8_t* original,
                 std::uint8_t* out) noexcept;
// Steps that lead from one form to another with threads running.  False: no safe sequence exists (say so to the user).
[[nodiscard]] bool plan_poke(std::uintptr_t ip, const SiteShape& shape, const std::uint8_t* from,
                             const std::uint8_t* to, PokeSteps& steps) noexcept;
// The low address bits a thunk for this site should have so that arming is a one-byte change: address & mask == value.
struct ThunkPlace {
  std::uintptr_t mask, value;
};
[[nodiscard]] ThunkPlace thunk_place(std::uintptr_t ip, const SiteShape& shape) noexcept;
// After a store to text: what this CPU needs beside the membarrier (nothing on x86-64).
void flush_instruction_cache(std::uintptr_t start, std::size_t size) noexcept;

// --- thunk.cpp
// --------------------------------------------------------------------------------------------------------- Writes the
// head for execution at `head_ip` into `out`: names `site` (a near address), goes to `entry_jump`, which is the entry
// code itself where it is within reach, else the slab's entry jump.
void emit_thunk_head(std::uint8_t* out, std::uintptr_t head_ip, std::uintptr_t site, bool nested,
                     std::uintptr_t entry_jump) noexcept;
// Writes the tail (re-pushes what the head took, goes to `resume`) for execution at `tail_ip`.
void emit_thunk_tail(std::uint8_t* out, std::uintptr_t tail_ip, std::uintptr_t resume, bool nested) noexcept;
// Writes a slab's entry jump: an absolute jump to the entry code, `kEntryJumpSize` bytes.
void emit_entry_jump(std::uint8_t* out, std::uintptr_t entry) noexcept;

// --- entry.S, return.S
// ------------------------------------------------------------------------------------------------ Address of the code
// a thunk head goes to.
[[nodiscard]] std::uintptr_t entry_code() noexcept;
// Stub of thread `index` (0-based): where the planting call lives, and the return address that it plants.
[[nodiscard]] std::uintptr_t stub_address(unsigned index) noexcept;
[[nodiscard]] std::uintptr_t stub_return_address(unsigned index) noexcept;

}  // namespace libfprobe::detail::arch

#endif  // FPROBE_SRC_CORE_BASE_ARCH_H_
