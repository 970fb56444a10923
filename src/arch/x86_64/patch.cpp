// The bytes of a site in every form, and the steps that lead from one form to another while threads run through it.
//
// The patch place is p = ip + patch_offset; L = length - patch_offset bytes from p belong to the site.  Every step is
// one of two kinds: it changes one byte, or two bytes inside one aligned 8-byte word, of what threads may be decoding
// (then old and new are both whole instructions that lead to ip + length); or it changes bytes that no thread acts on
// (behind a short jump, or an immediate whose value nobody uses).  text_poke puts a barrier behind every step.
//
//   form                    original            idle                idle, p % 8 == 7     armed
//   kCallRel32              e8 r0 r1 r2 r3      0f 1f 44 00 00      eb 03 r1 r2 r3       e9 t0 t1 t2 t3
//   kCallRel32Prefixed  P   e8 r0 r1 r2 r3      0f 1f 44 00 00      eb 03 r1 r2 r3       e9 t0 t1 t2 t3   (P = 67 | 90
//                                                                                                stays for ever)
//   kCallGot                ff 15 d0 d1 d2 d3   66 0f 1f 44 00 00   48 3d d0 d1 d2 d3    e9 t0 t1 t2 t3 xx
//   kNop5                   0f 1f 44 00 08      as original         eb 03 44 00 08       e9 t0 t1 t2 t3
//   kNops, n >= 5           90 × n              0f 1f 44 00 00 90*  eb n-2 90*           e9 t0 t1 t2 t3 90*
//   kNopRun, n == 6         66 0f 1f 44 00 08   as original         48 3d 1f 44 00 08    e9 t0 t1 t2 t3 08
//   kNopRun, n > 6          long nops           as original         eb n-2 rest          e9 t0 t1 t2 t3 rest
//   kReturn                 c3 padding          as original         as original          e9 t0 t1 t2 t3
//
// The usual way, through a short jump over the rest of the site (t0 == 03, see thunk_place):
//     0f 1f 44 00 00   nop
// (1) eb 03 44 00 00   two bytes in one aligned word
// (2) eb 03 t1 t2 t3   nobody decodes these
// (3) e9 03 t1 t2 t3   one byte; and the same backwards, so that the first step of disarming silences the probe
//
// Where p % 8 == 7 a store of two bytes would leave its aligned word and can tear (seen); and where text can only be
// written through a file, bytes arrive one by one anywhere.  There the way leads through single bytes, by an instruction
// of five bytes whose last four are an immediate that has no effect (flags are dead at a site, as at any call):
//     e8 r0 r1 r2 r3   call, or any other form
// (1) a9 r0 r1 r2 r3   test $imm32,%eax       one byte
// (2) a9 03 r1 r2 r3   any immediate will do
// (3) eb 03 r1 r2 r3   one byte
// The idle form at p % 8 == 7 is the short jump itself, so arming there changes single bytes only.
//
// Places of six bytes (kCallGot, kNopRun with n == 6) know another harmless instruction of their length, again with a
// free immediate, and t0 is 3d:
//     ff 15 d0 d1 d2 d3   call *d(%rip)                                   66 0f 1f 44 00 00   nop
// (1) 85 15 d0 d1 d2 d3   test %edx,d(%rip)     reads the GOT slot        48 0f 1f 44 00 00   the same
// (2) 85 3d d0 d1 d2 d3   test %edi,d(%rip)                               48 3d 1f 44 00 00   cmp $imm32,%rax
// (3) 48 3d d0 d1 d2 d3   cmp $imm32,%rax
// (4) 48 3d t1 t2 t3 xx   any immediate will do
// (5) e9 3d t1 t2 t3 xx   jmp
// Where two bytes may be written at once, (1) to (3) are one step.
//
// Behind the `ret` of kReturn nobody decodes anything: its jump is written from the tail, and taken away from the head.
//
// In none of these states lies an instruction boundary inside the site (kNops apart), so no thread, however long it is
// preempted, can wake up in the middle of one; and ip + length, where a thread inside __fentry__ returns to, is one
// always.  Of gcc's single nops a thread may stand on any.  They are merged first: every suffix of 66 66 66 66 90, and
// of any mixture on the way there, runs as nops; once every thread is known to have moved on, the merged nop is one
// instruction like the others.
#include <algorithm>
#include <cstring>

#include "base/arch.h"

namespace libfprobe::detail::arch {
namespace {

constexpr std::uint8_t kJmpRel32 = 0xe9;      // jmp rel32
constexpr std::uint8_t kJmpRel8 = 0xeb;       // jmp rel8
constexpr std::uint8_t kRet = 0xc3;           // ret
constexpr std::uint8_t kNop = 0x90;           // nop
constexpr std::uint8_t kTestEaxImm32 = 0xa9;  // test $imm32,%eax
constexpr std::uint8_t kGroup5 = 0xff;        // call *..., with kModRmCallRip
constexpr std::uint8_t kModRmCallRip = 0x15;  // /2, disp32(%rip)
constexpr std::uint8_t kTestRegMem = 0x85;    // test %reg,mem; with kModRmCallRip: %edx
constexpr std::uint8_t kRexW = 0x48;          // with kCmpEaxImm32: cmp $imm32,%rax; with a long nop: the same nop
constexpr std::uint8_t kOperandSize = 0x66;   // with kNop or a long nop: the same nop, longer
constexpr std::uint8_t kNopOpcode = 0x0f;     // of long nops
constexpr std::uint8_t kCmpEaxImm32 = 0x3d;   // cmp $imm32,%eax; as ModRM of kTestRegMem: %edi,disp32(%rip)
constexpr std::uint8_t kNop5Bytes[] = {0x0f, 0x1f, 0x44, 0x00, 0x00};        // nopl 0(%rax,%rax,1)
constexpr std::uint8_t kNop6Bytes[] = {0x66, 0x0f, 0x1f, 0x44, 0x00, 0x00};  // nopw 0(%rax,%rax,1)
constexpr std::size_t kJmpRel32Length = 5;
constexpr std::uintptr_t kWord = 8;  // CPUs fetch changes inside an aligned word of this size whole

std::uintptr_t place_of(std::uintptr_t ip, const SiteShape& shape) noexcept {
  return ip + shape.patch_offset;
}

std::size_t place_length(const SiteShape& shape) noexcept {
  return static_cast<std::size_t>(shape.length - shape.patch_offset);
}

// Two bytes at the patch place do not share an aligned word.
bool is_straddling(std::uintptr_t ip, const SiteShape& shape) noexcept {
  return place_of(ip, shape) % kWord == kWord - 1;
}

// Displacement of the short jump from the patch place to the end of the site.
std::uint8_t skip_of(const SiteShape& shape) noexcept {
  return static_cast<std::uint8_t>(place_length(shape) - 2);
}

// A place of six bytes whose way leads through `cmp $imm32,%rax`.
bool is_compared(const SiteShape& shape) noexcept {
  return shape.form == SiteForm::kCallGot || (shape.form == SiteForm::kNopRun && shape.length == sizeof kNop6Bytes);
}

// The byte that follows the first one in the form from which the jump is armed: the jump's t0 must equal it.
std::uint8_t second_byte(const SiteShape& shape) noexcept {
  return is_compared(shape) ? kCmpEaxImm32 : skip_of(shape);
}

// Whether a step may change two bytes of what threads decode.
enum class Pairs { kNone, kInAlignedWord };

// A site's bytes in a buffer that can be copied whole; what lies behind the site's length is of no meaning.
struct Bytes {
  std::uint8_t byte[2 * kMaxSiteLength]{};  // the second half: room for a copy from any offset
};

Bytes load(const SiteShape& shape, const std::uint8_t* from) noexcept {
  Bytes bytes;
  std::memcpy(bytes.byte, from, shape.length);
  return bytes;
}

// A plan under construction: the site's bytes as the steps so far leave them.
class Planner {
 public:
  Planner(const SiteShape& shape, const std::uint8_t* from, PokeSteps& steps) noexcept
      : length_(shape.length), first_(shape.patch_offset), steps_(steps), now_(load(shape, from)) {
    steps_.count = 0;
  }

  [[nodiscard]] std::uint8_t head(std::size_t index) const noexcept { return now_.byte[first_ + index]; }

  // One step each.  `go` leaves out what does not change; the range is as small as the change.
  void go(const Bytes& next) noexcept {
    std::size_t begin = 0, end = length_;
    while (begin < end && now_.byte[begin] == next.byte[begin]) ++begin;
    while (end > begin && now_.byte[end - 1] == next.byte[end - 1]) --end;
    if (begin == end) return;
    PokeSteps::Step& step = steps_.steps[steps_.count++];
    step.offset = static_cast<std::uint8_t>(begin);
    step.length = static_cast<std::uint8_t>(end - begin);
    std::memcpy(step.bytes, next.byte + begin, kMaxSiteLength);
    now_ = next;
  }
  void set_first(std::uint8_t byte) noexcept { set_head(byte, head(1)); }
  void set_second(std::uint8_t byte) noexcept { set_head(head(0), byte); }
  void set_head(std::uint8_t byte0, std::uint8_t byte1) noexcept { go_behind(now_, byte0, byte1); }
  // To `to`, but with these bytes at the patch place.
  void go_behind(const Bytes& to, std::uint8_t byte0, std::uint8_t byte1) noexcept {
    Bytes next = to;
    next.byte[first_] = byte0;
    next.byte[first_ + 1] = byte1;
    go(next);
  }

 private:
  std::size_t length_, first_;
  PokeSteps& steps_;
  Bytes now_;
};

// Through the short jump.
void plan_short_jump(Planner& plan, const SiteShape& shape, const Bytes& to) noexcept {
  plan.set_head(kJmpRel8, skip_of(shape));
  plan.go_behind(to, kJmpRel8, skip_of(shape));
  plan.go(to);
}

// One byte that threads decode, and padding behind it.
void plan_return(Planner& plan, const SiteShape& shape, const Bytes& to) noexcept {
  const std::uint8_t* const place = to.byte + shape.patch_offset;
  if (place[0] == kRet)
    plan.set_first(kRet);
  else
    plan.go_behind(to, plan.head(0), place[1]);
  plan.go(to);
}

// Through `test $imm32,%eax`: single bytes only, for places of five bytes.
void plan_test_immediate(Planner& plan, const SiteShape& shape, const Bytes& to) noexcept {
  plan.set_first(kTestEaxImm32);
  plan.go_behind(to, kTestEaxImm32, to.byte[shape.patch_offset + 1]);
  plan.go(to);
}

// From the call or the nop to a compare, or back: by single bytes.
void plan_call_to_compare(Planner& plan) noexcept {
  plan.set_first(kTestRegMem);
  plan.set_second(kCmpEaxImm32);
}
void plan_compare_to_call(Planner& plan) noexcept {
  plan.set_first(kTestRegMem);
  plan.set_second(kModRmCallRip);
}
void plan_nop_to_compare(Planner& plan) noexcept {
  plan.set_first(kRexW);
  plan.set_second(kCmpEaxImm32);
}
void plan_compare_to_nop(Planner& plan) noexcept {
  plan.set_second(kNopOpcode);
}

// Through `cmp $imm32,%rax`, for places of six bytes.
bool plan_compare_immediate(Planner& plan, const Bytes& to, Pairs pairs) noexcept {
  const std::uint8_t to_first = to.byte[0], to_second = to.byte[1];
  if (pairs == Pairs::kNone) {
    if (plan.head(0) == kGroup5) plan_call_to_compare(plan);
    if (plan.head(0) == kOperandSize) plan_nop_to_compare(plan);
    const bool has_way = to_first == kGroup5 || to_first == kOperandSize || to_second == kCmpEaxImm32;
    if (plan.head(1) != kCmpEaxImm32 || !has_way) return false;  // a thunk out of its place
  }
  plan.set_head(kRexW, kCmpEaxImm32);
  plan.go_behind(to, kRexW, kCmpEaxImm32);
  if (pairs == Pairs::kNone) {
    if (to_first == kGroup5) plan_compare_to_call(plan);
    if (to_first == kOperandSize) plan_compare_to_nop(plan);
  }
  plan.go(to);
  return true;
}

bool plan_any(const SiteShape& shape, const std::uint8_t* from, const std::uint8_t* to_bytes, Pairs pairs,
              PokeSteps& steps) noexcept {
  Planner plan(shape, from, steps);
  const Bytes to = load(shape, to_bytes);
  if (std::equal(from, from + shape.length, to_bytes)) return true;
  if (shape.form == SiteForm::kReturn) {
    plan_return(plan, shape, to);
    return true;
  }
  if (plan.head(0) == kNop && plan.head(1) == kNop) return false;  // a thread may stand on any of the single nops
  if (is_compared(shape)) return plan_compare_immediate(plan, to, pairs);

  const std::uint8_t skip = skip_of(shape);
  const bool single_bytes = plan.head(1) == skip && to.byte[shape.patch_offset + 1] == skip;
  if (single_bytes || pairs == Pairs::kInAlignedWord) {
    plan_short_jump(plan, shape, to);
    return true;
  }
  // Behind the test the rest of the site runs: it must be whole nops (kNops) or nothing.
  if (place_length(shape) != kJmpRel32Length && shape.form != SiteForm::kNops) return false;
  plan_test_immediate(plan, shape, to);
  return true;
}

}  // namespace

void idle_bytes(std::uintptr_t ip, const SiteShape& shape, const std::uint8_t* original, std::uint8_t* out) noexcept {
  std::memcpy(out, original, shape.length);
  std::uint8_t* place = out + shape.patch_offset;
  if (is_straddling(ip, shape) && shape.form != SiteForm::kReturn) {
    place[0] = is_compared(shape) ? kRexW : kJmpRel8;
    place[1] = second_byte(shape);
    return;
  }
  switch (shape.form) {
    case SiteForm::kCallRel32:
    case SiteForm::kCallRel32Prefixed:
    case SiteForm::kNops:
      std::memcpy(place, kNop5Bytes, sizeof kNop5Bytes);
      return;
    case SiteForm::kCallGot:
      std::memcpy(place, kNop6Bytes, sizeof kNop6Bytes);
      return;
    case SiteForm::kReturn:
      return;
    case SiteForm::kNop5:
    case SiteForm::kNopRun:
      return;  // The compiler's own first nop is five bytes or longer: nothing is better.
  }
}

void armed_bytes(std::uintptr_t ip, const SiteShape& shape, std::uintptr_t thunk, const std::uint8_t* original,
                 std::uint8_t* out) noexcept {
  idle_bytes(ip, shape, original, out);  // what lies behind the jump stays as it is in the idle form
  const auto displacement = static_cast<std::int32_t>(thunk - (place_of(ip, shape) + kJmpRel32Length));
  std::uint8_t* place = out + shape.patch_offset;
  place[0] = kJmpRel32;
  std::memcpy(place + 1, &displacement, sizeof displacement);
}

bool plan_poke(std::uintptr_t ip, const SiteShape& shape, const std::uint8_t* from, const std::uint8_t* to,
               PokeSteps& steps) noexcept {
  return plan_any(shape, from, to, is_straddling(ip, shape) ? Pairs::kNone : Pairs::kInAlignedWord, steps);
}

bool plan_poke_bytewise(const SiteShape& shape, const std::uint8_t* from, const std::uint8_t* to,
                        PokeSteps& steps) noexcept {
  return plan_any(shape, from, to, Pairs::kNone, steps);
}

bool merge_nops(const SiteShape& shape, const std::uint8_t* from, std::uint8_t* out) noexcept {
  if (shape.form != SiteForm::kNops || from[0] != kNop || from[1] != kNop) return false;
  std::memcpy(out, from, shape.length);
  std::fill_n(out, kJmpRel32Length - 1, kOperandSize);
  return true;
}

void plan_poke_alone(const SiteShape& shape, const std::uint8_t* from, const std::uint8_t* to,
                     PokeSteps& steps) noexcept {
  Planner plan(shape, from, steps);
  if (std::equal(from, from + shape.length, to)) return;
  if (shape.form == SiteForm::kReturn) return plan_return(plan, shape, load(shape, to));
  plan_short_jump(plan, shape, load(shape, to));
}

ThunkPlace thunk_place(std::uintptr_t ip, const SiteShape& shape) noexcept {
  constexpr std::uintptr_t kLowByte = 0xff;
  const std::uintptr_t end = place_of(ip, shape) + kJmpRel32Length;  // what rel32 counts from
  return {kLowByte, (end + second_byte(shape)) & kLowByte};
}

// Instruction fetch sees stores by itself; what a CPU has fetched already is the barrier's business.
void flush_instruction_cache(std::uintptr_t, std::size_t) noexcept {}

}  // namespace libfprobe::detail::arch
