// The function that the loader calls for debuggers, as compilers and distributions build it, and the jump in it.
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "base/arch.h"

namespace libfprobe::detail::arch {
namespace {

using Bytes = std::vector<std::uint8_t>;

constexpr std::uintptr_t kIp = 0x7f0000002060;                                     // functions are aligned to 16
const Bytes kNext = {0x48, 0x8d, 0x05, 0, 0, 0, 0, 0x48, 0x85, 0xff, 0x74, 0x14};  // lea; test; je

Bytes join(Bytes a, const Bytes& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// Offset of the return, -1: no match.
int match(const Bytes& code, std::uintptr_t ip = kIp) {
  SiteShape shape;
  std::size_t offset = 0;
  const std::span<const std::byte> span(reinterpret_cast<const std::byte*>(code.data()), code.size());
  if (!match_empty_function(span, ip, shape, offset)) return -1;
  EXPECT_EQ(shape.form, SiteForm::kReturn);
  EXPECT_EQ(shape.length, 5);
  return static_cast<int>(offset);
}

const Bytes kNops15 = {0x66, 0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0, 0x0f, 0x1f, 0x40, 0x00};
const Bytes kNops11 = {0x66, 0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0};

TEST(EmptyFunction, IsAReturnAndPadding) {
  EXPECT_EQ(match(join(join({0xc3}, kNops15), kNext)), 0);
}

TEST(EmptyFunction, MayBeginWithALandingPad) {
  EXPECT_EQ(match(join(join({0xf3, 0x0f, 0x1e, 0xfa, 0xc3}, kNops11), kNext)), 4);
}

TEST(EmptyFunction, MayKeepAFramePointer) {
  const Bytes nops6 = {0x66, 0x0f, 0x1f, 0x44, 0x00, 0x00};
  EXPECT_EQ(match(join(join({0xf3, 0x0f, 0x1e, 0xfa, 0x55, 0x48, 0x89, 0xe5, 0x5d, 0xc3}, nops6), kNext)), 9);
  const Bytes nops5 = {0x0f, 0x1f, 0x44, 0x00, 0x00};
  EXPECT_EQ(match(join(join({0xf3, 0x0f, 0x1e, 0xfa, 0x55, 0x48, 0x89, 0xe5, 0x90, 0x5d, 0xc3}, nops5), kNext)), 10);
}

TEST(EmptyFunction, MayBePaddedWithBreakpoints) {
  EXPECT_EQ(match(join(join({0xc3}, Bytes(15, 0xcc)), kNext)), 0);
}

TEST(EmptyFunction, HasNoRoomWhereTheNextFunctionFollowsAtOnce) {
  EXPECT_EQ(match(join({0xc3}, kNext)), -1);
  EXPECT_EQ(match(join({0xc3, 0x90, 0x90, 0x90}, kNext)), -1);
  // Four bytes of nops, but they do not reach the next aligned place: they may be a patchable function's.
  EXPECT_EQ(match(join({0xc3, 0x90, 0x90, 0x90, 0x90}, kNext)), -1);
  // Three bytes up to the next aligned place.
  EXPECT_EQ(match(join({0xc3, 0x90, 0x90, 0x90}, kNext), kIp + 12), -1);
  EXPECT_EQ(match(join({0xc3, 0x90, 0x90, 0x90, 0x90}, kNext), kIp + 11), 0);
}

TEST(EmptyFunction, DoesNothing) {
  EXPECT_EQ(match(join(join({0x31, 0xc0, 0xc3}, Bytes(13, 0x90)), kNext)), -1) << "xor %eax,%eax; ret";
  EXPECT_EQ(match(join(join({0xcc}, kNops15), kNext)), -1) << "a breakpoint";
  EXPECT_EQ(match(join(join({0xe9, 0, 0, 0, 0}, kNops11), kNext)), -1) << "somebody else's jump";
  EXPECT_EQ(match(Bytes(64, 0x90)), -1) << "never returns";
  EXPECT_EQ(match({}), -1);
  EXPECT_EQ(match({0xc3}), -1) << "the end of the segment";
  EXPECT_EQ(match({0xf3, 0x0f}), -1);
}

// The steps there and back: all but one byte is changed while nobody decodes it.
TEST(EmptyFunction, IsChangedByOneByteThatThreadsSee) {
  const SiteShape shape{SiteForm::kReturn, 5, 0, false};
  const Bytes original = {0xc3, 0x66, 0x66, 0x2e, 0x0f};
  for (unsigned place = 0; place < 16; ++place) {
    const std::uintptr_t ip = kIp + place;
    std::uint8_t armed[kMaxSiteLength]{}, before[kMaxSiteLength]{};
    std::memcpy(before, original.data(), original.size());
    armed_bytes(ip, shape, kIp + 0x123456, before, armed);
    EXPECT_EQ(armed[0], 0xe9);
    for (const bool arming : {true, false}) {
      PokeSteps steps, alone;
      ASSERT_TRUE(plan_poke(ip, shape, arming ? before : armed, arming ? armed : before, steps));
      plan_poke_alone(shape, arming ? before : armed, arming ? armed : before, alone);
      ASSERT_EQ(steps.count, 2);
      ASSERT_EQ(alone.count, 2);
      const PokeSteps::Step& head = steps.steps[arming ? 1 : 0];
      const PokeSteps::Step& tail = steps.steps[arming ? 0 : 1];
      EXPECT_EQ(head.offset, 0);
      EXPECT_EQ(head.length, 1);
      EXPECT_GE(tail.offset, 1);
    }
  }
}

}  // namespace
}  // namespace libfprobe::detail::arch
