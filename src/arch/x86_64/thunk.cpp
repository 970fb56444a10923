// The bytes of a thunk: one small piece of code per site, between the site's jump and the shared entry code.
//
//   head   [41 5a]                pop  %r10            nested functions only: the static chain that gcc pushed
//          [41 53]                push %r11            where every register is kept: the door takes it from the stack
//          4c 8d 1d disp32        lea  site(%rip),%r11
//          e9 rel32               jmp  entry           the entry code, or the slab's entry jump
//          cc ...                 int3                 up to kThunkHeadSize, never reached
//   tail   [41 52]                push %r10            nested functions only
//          e9 rel32               jmp  resume          the first instruction behind the site
//          cc ...
//   entry jump
//          ff 25 02 00 00 00      jmp  *2(%rip)
//          cc cc
//          .quad entry
//
// Each register used here is free at a function's entry: r11 (but for callers that know the function: gcc's -fipa-ra), and r10 is what the head takes from the stack and
// the tail puts back, so that the return slot lies at (%rsp) for the entry code whatever the function.
#include <cassert>
#include <cstring>

#include "base/arch.h"

namespace libfprobe::detail::arch {
namespace {

constexpr std::uint8_t kPopR10[] = {0x41, 0x5a};           // pop %r10
constexpr std::uint8_t kPushR10[] = {0x41, 0x52};          // push %r10
constexpr std::uint8_t kPushR11[] = {0x41, 0x53};          // push %r11
constexpr std::uint8_t kLeaRipR11[] = {0x4c, 0x8d, 0x1d};  // lea disp32(%rip),%r11
constexpr std::uint8_t kJmpRel32[] = {0xe9};               // jmp rel32
constexpr std::uint8_t kJmpMemRip[] = {0xff, 0x25};        // jmp *disp32(%rip)
constexpr std::uint8_t kInt3 = 0xcc;                       // int3
constexpr std::uint32_t kEntryWordDistance = 2;            // from the end of the jump to its word
constexpr std::size_t kEntryWordOffset = kEntryJumpSize - sizeof(std::uint64_t);

// Writes instructions into `out` as they run at `ip`.
class Emitter {
 public:
  Emitter(std::uint8_t* out, std::uintptr_t ip, std::size_t size) noexcept : out_(out), ip_(ip), size_(size) {
    std::memset(out, kInt3, size);
  }
  template <std::size_t N>
  void opcode(const std::uint8_t (&bytes)[N]) noexcept {
    put(bytes, N);
  }
  // The instruction's last four bytes: how far `target` lies from its end.
  void relative(std::uintptr_t target) noexcept {
    const auto distance = static_cast<std::intptr_t>(target - (ip_ + used_ + sizeof(std::int32_t)));
    const auto displacement = static_cast<std::int32_t>(distance);
    assert(displacement == distance);  // near_alloc promised it
    put(&displacement, sizeof displacement);
  }
  void immediate(std::uint32_t value) noexcept { put(&value, sizeof value); }

 private:
  void put(const void* bytes, std::size_t count) noexcept {
    assert(used_ + count <= size_);
    std::memcpy(out_ + used_, bytes, count);
    used_ += count;
  }
  std::uint8_t* out_;
  std::uintptr_t ip_;
  [[maybe_unused]] std::size_t size_;  // asserts alone look at it
  std::size_t used_ = 0;
};

}  // namespace

void emit_thunk_head(std::uint8_t* out, std::uintptr_t head_ip, std::uintptr_t site, bool nested, bool pushes_scratch,
                     std::uintptr_t entry_jump) noexcept {
  Emitter emit(out, head_ip, kThunkHeadSize);
  if (nested) emit.opcode(kPopR10);
  if (pushes_scratch) emit.opcode(kPushR11);
  emit.opcode(kLeaRipR11);
  emit.relative(site);
  emit.opcode(kJmpRel32);
  emit.relative(entry_jump);
}

void emit_thunk_tail(std::uint8_t* out, std::uintptr_t tail_ip, std::uintptr_t resume, bool nested) noexcept {
  Emitter emit(out, tail_ip, kThunkTailSize);
  if (nested) emit.opcode(kPushR10);
  emit.opcode(kJmpRel32);
  emit.relative(resume);
}

void emit_entry_jump(std::uint8_t* out, std::uintptr_t entry) noexcept {
  Emitter emit(out, 0, kEntryJumpSize);
  emit.opcode(kJmpMemRip);
  emit.immediate(kEntryWordDistance);
  std::memcpy(out + kEntryWordOffset, &entry, sizeof entry);
}

}  // namespace libfprobe::detail::arch
