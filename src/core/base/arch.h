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

extern "C" __attribute__((visibility("hidden"))) const char fprobe_stubs[];  // return.S

struct ftrace_regs;

namespace libfprobe::detail::arch {

// --- base/syscalls.cpp ---
//
// The bare instruction: no errno, no cancellation point.
long syscall(long number, long a, long b, long c, long d, long e, long f) noexcept;

// The instructions of libc's signal trampoline (the kernel's ABI: the signal-return system call).
[[nodiscard]] std::span<const std::uint8_t> signal_trampoline_code() noexcept;
// glibc's thread control block of the calling thread.
[[nodiscard]] std::uintptr_t thread_pointer() noexcept;

// --- decode.cpp ---
//
// What a site scan needs to know of one instruction.  Two back ends (Zydis, Capstone) fill it and must agree.
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

// --- sites.cpp, nops.cpp ---
//
// A site's file form: which bytes the toolchain left.  Values are CPU specific; patch.cpp draws each one.
struct SiteShape {
  SiteForm form{};                // arch_defs.h
  std::uint8_t length = 0;        // bytes from ip that belong to the site; ip + length is an instruction boundary
  std::uint8_t patch_offset = 0;  // the jump goes here (a kept prefix lies in front of it)
  bool nested = false;            // a static chain lies on the stack above the return slot (gcc nested function)
  FrameForm frame{};              // arch_defs.h
  std::uint8_t frame_word = 0;    // kRealigned: which word below the frame pointer leads to the return slot
  bool arguments_moved = false;   // code in front of the site may have moved arguments and used callee-saved registers

  // Its return address can only be overwritten: the function's return then misses the CPU's predictor.
  [[nodiscard]] bool is_behind_prologue() const noexcept { return frame != FrameForm{}; }
  // What read_prologue found out, for the bytes of this shape.
  void adopt_frame(const SiteShape& prologue) noexcept {
    nested = false;
    frame = prologue.frame;
    frame_word = prologue.frame_word;
    arguments_moved = prologue.arguments_moved;
  }
};
// `is_target(address, through_memory)` answers whether a call's target is one of {__fentry__, mcount, _mcount}: the
// address itself, or that of the word the call goes through.
using IsProfilingTarget = bool (*)(std::uintptr_t target, bool through_memory, void* argument);

// Next place at or after `from` where a profiling call's opcode could be (a fast byte search; a prefix may lie in front
// of it), text.size() if none.
[[nodiscard]] std::size_t next_call_candidate(std::span<const std::byte> text, std::size_t from) noexcept;
// Recognises a profiling call whose first byte, prefix included, is `code`'s first at address ip.  Whether a prefix
// belongs to the site only the function's start can tell: the caller tries both.
[[nodiscard]] bool match_call_site(std::span<const std::byte> code, std::uintptr_t ip, IsProfilingTarget is_target,
                                   void* argument, SiteShape& shape) noexcept;
// Reads a function from its first byte (address ip) up to a profiling call's opcode at offset `opcode`: fills the frame
// members of `shape` and the offset of the site, prefix included.  False: no instruction starts there, or the function
// has no frame pointer by then.
[[nodiscard]] bool read_prologue(std::span<const std::byte> function, std::uintptr_t ip, std::size_t opcode,
                                 SiteShape& shape, std::size_t& site) noexcept;
// Length of a profiling call of a form that is never patched (-mcmodel=large) at `code`, 0 if there is none.
[[nodiscard]] std::size_t match_large_call(std::span<const std::byte> code, std::uintptr_t ip,
                                           IsProfilingTarget is_target, void* argument) noexcept;

// For humans.
[[nodiscard]] const char* form_name(SiteForm form) noexcept;

// Where a function may start whose entry site is at `offset` of `text`: there, over a pad, over a nested function's
// push.  The farthest comes first; which is true, symbols and unwind tables know.
struct StartGuess {
  std::size_t offset = 0;
  bool nested = false;
};
inline constexpr std::size_t kMaxStartGuesses = 4;
[[nodiscard]] std::size_t guess_function_starts(std::span<const std::byte> text, std::size_t offset, std::size_t length,
                                                StartGuess (&guesses)[kMaxStartGuesses]) noexcept;

// Recognises nops to be patched at a function's first bytes (skips a pad): fills shape and the offset of the site.  On
// false `shape.length` tells how many bytes of nops there are, too few or of no known form.
[[nodiscard]] bool match_patchable(std::span<const std::byte> function, SiteShape& shape, std::size_t& offset) noexcept;
// What nops at a function's first bytes say about themselves.
enum class NopOrigin : std::uint8_t {
  kUnknown,    // any assembler may have put them there
  kPatchable,  // as compilers emit them for -fpatchable-function-entry
  kMcount,     // as gcc emits them for -mnop-mcount
};
[[nodiscard]] NopOrigin nop_origin(std::span<const std::byte> site, const SiteShape& shape) noexcept;
// Whether a direct jump in `body` (address ip, an instruction boundary) goes to an address in [low, high).  Looks at
// some thousand bytes at most; true also when they cannot be decoded.
[[nodiscard]] bool jumps_between(std::span<const std::byte> body, std::uintptr_t ip, std::uintptr_t low,
                                 std::uintptr_t high) noexcept;

// Next jump through a memory word at or after `from` of `text` (address ip): its offset, and the word's address;
// text.size() if none.
[[nodiscard]] std::size_t next_memory_jump(std::span<const std::byte> text, std::uintptr_t ip, std::size_t from,
                                           std::uintptr_t& word) noexcept;
// The address of the word through which the PLT slot at `slot` jumps, 0 if it is no PLT slot.
[[nodiscard]] std::uintptr_t plt_slot_word(std::span<const std::byte> slot, std::uintptr_t ip) noexcept;

// --- vectors.cpp, vectors.h ---
//
// What hits keep for a site's callers beside the general registers that every hit keeps.  Bits; a hit keeps what both its
// site and its handlers ask for.
inline constexpr unsigned kKeepArguments = 1;    // vector registers of arguments, at exit of results
inline constexpr unsigned kKeepWide = 2;         // their whole width
inline constexpr unsigned kKeepCallerSaved = 4;  // every register that a function may change, general ones too
inline constexpr unsigned kKeepEverything = 8;   // the CPU's whole state: custom calling conventions
inline constexpr unsigned kKeepFpenv = 16;       // sticky floating-point exception flags
inline constexpr unsigned kKeepAllVectors = kKeepArguments | kKeepWide | kKeepCallerSaved | kKeepEverything;
// What a site asks for.
[[nodiscard]] unsigned kept_registers(const SiteShape& shape, bool has_wide_vectors, bool everything) noexcept;
// Next place at or after `from` whose bytes could be an instruction on a vector wider than every CPU has, or a move of
// one (which other bytes seldom look like); text.size() if none.
enum class WideSign { kAny, kMove };
[[nodiscard]] std::size_t next_wide_vector(std::span<const std::byte> text, std::size_t from, WideSign sign) noexcept;

// --- patch.cpp ---
//
// A change of live text as numbered steps; text_poke lets every CPU see step i before step i+1 is written.
struct PokeSteps {
  static constexpr unsigned kMaxSteps = 7;
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
// The same for a writer whose bytes arrive one by one: no step needs two of them at once.
[[nodiscard]] bool plan_poke_bytewise(const SiteShape& shape, const std::uint8_t* from, const std::uint8_t* to,
                                      PokeSteps& steps) noexcept;
// Where threads may stand between the instructions of a site: fills `out` with the same as one instruction.  Its bytes
// may be written one by one in any order, and a thread inside still runs nops.  False: no thread can stand there.
[[nodiscard]] bool merge_nops(const SiteShape& shape, const std::uint8_t* from, std::uint8_t* out) noexcept;
// The same as plan_poke while this is the only thread, standing outside the site: every form leads to every other, and a signal
// handler that runs between two steps, or between two bytes of one, still finds whole instructions.
void plan_poke_alone(const SiteShape& shape, const std::uint8_t* from, const std::uint8_t* to,
                     PokeSteps& steps) noexcept;
// The low address bits a thunk for this site should have so that arming is a one-byte change: address & mask == value.
struct ThunkPlace {
  std::uintptr_t mask, value;
};
[[nodiscard]] ThunkPlace thunk_place(std::uintptr_t ip, const SiteShape& shape) noexcept;
// After a store to text: what this CPU needs beside the membarrier (nothing on x86-64).
void flush_instruction_cache(std::uintptr_t start, std::size_t size) noexcept;

// --- thunk.cpp ---
//
// Writes the head for execution at `head_ip` into `out`: names `site` (a near address), goes to `entry_jump`, which is
// the entry code itself where it is within reach, else the slab's entry jump.  `pushes_scratch`: for a door that keeps
// every register.
void emit_thunk_head(std::uint8_t* out, std::uintptr_t head_ip, std::uintptr_t site, bool nested, bool pushes_scratch,
                     std::uintptr_t entry_jump) noexcept;
// Writes the tail (re-pushes what the head took, goes to `resume`) for execution at `tail_ip`.
void emit_thunk_tail(std::uint8_t* out, std::uintptr_t tail_ip, std::uintptr_t resume, bool nested) noexcept;
// Writes a slab's entry jump: an absolute jump to the entry code, `kEntryJumpSize` bytes.
void emit_entry_jump(std::uint8_t* out, std::uintptr_t entry) noexcept;

// --- live_call.S, live_call.cpp, live_target.cpp ---
//
// Where the profiling call of a site leads now (0: it is none), and whether that is one of ours.
[[nodiscard]] std::uintptr_t live_call_target(std::uintptr_t ip, const SiteShape& shape,
                                              const std::uint8_t* original) noexcept;
[[nodiscard]] bool is_own_profiling_function(std::uintptr_t address) noexcept;
// A hit that comes from such a call: its return address.
[[nodiscard]] std::uintptr_t live_return_address(const ftrace_regs& regs) noexcept;
// Takes a nested function's static chain off the stack, for the time of the hit, and puts it back.  `cfa`: where the
// entry code's frame ends.
void lift_chain(ftrace_regs& regs, std::uintptr_t& cfa) noexcept;
void lower_chain(const ftrace_regs& regs) noexcept;

// --- loader_hook.cpp, loader_hook.S ---
//
// A function that does nothing: where it returns (`offset`), and the shape of a jump over that return and the padding
// behind it.  False: it does something, or there is no room.
[[nodiscard]] bool match_empty_function(std::span<const std::byte> function, std::uintptr_t ip, SiteShape& shape,
                                        std::size_t& offset) noexcept;
// In place of that return: keeps every register, calls fprobe_loader_changed() (registry/new_modules.cpp), returns.
[[nodiscard]] std::uintptr_t loader_hook_code() noexcept;

// --- entry.S, return.S ---
//
// Address of the code a thunk head goes to: for sites at entries and for sites behind prologues, and for each a second
// one that keeps every general register.
struct EntryDoor {
  bool behind_prologue = false, keeps_all = false;
};
inline constexpr std::size_t kEntryDoors = 4;
[[nodiscard]] std::uintptr_t entry_code(EntryDoor door) noexcept;
// From now on exits keep every general register that they use: before the first site is armed whose callers rely on it.
void let_exits_keep_all() noexcept;
// Stub of thread `index` (0-based): where the planting call lives, and the return address that it plants.
[[nodiscard]] std::uintptr_t stub_address(unsigned index) noexcept;
[[nodiscard]] std::uintptr_t stub_return_address(unsigned index) noexcept;
// Whether pc lies in the stubs, and whose stub it is.
[[nodiscard]] inline bool is_stub(std::uintptr_t pc) noexcept {
  return pc - reinterpret_cast<std::uintptr_t>(fprobe_stubs) < kStubPages * kPageSize;
}
[[nodiscard]] unsigned stub_index(std::uintptr_t pc) noexcept;
// For a site behind a prologue: the address of the return slot, and the caller's frame pointer.
struct FoundFrame {
  std::uintptr_t slot = 0, caller_frame_pointer = 0;
};
[[nodiscard]] FoundFrame find_frame(const SiteShape& shape, std::uintptr_t frame_pointer) noexcept;
// Where a hit goes on whose body is skipped: returns to the caller.  0: the site's function cannot be left there.
[[nodiscard]] std::uintptr_t skip_body_code(const SiteShape& shape) noexcept;
// An unwinding leaves an entry handler: its way from the entry code to the caller shall not lead through the function,
// whose exception tables know nothing of its first instructions (a C++ personality would terminate).  `resume` is the
// word that the entry code pushed.
void hide_function(const SiteShape& shape, std::uintptr_t& resume) noexcept;
// Whether return addresses may be overwritten: not where the CPU keeps a shadow stack of its own.
[[nodiscard]] bool may_overwrite_returns() noexcept;
// Where the stub's personality sends an unwinding whose handler frame is the hijacked function's caller.
[[nodiscard]] std::uintptr_t landing_code() noexcept;

}  // namespace libfprobe::detail::arch

#endif  // FPROBE_SRC_CORE_BASE_ARCH_H_
