// What x86-64 toolchains leave at probe sites, byte by byte: every test draws the bytes it feeds.
#include <gtest/gtest.h>

#include <cstdint>
#include <initializer_list>
#include <vector>

#include "base/arch.h"

namespace libfprobe::detail::arch {
namespace {

using Bytes = std::vector<std::uint8_t>;

constexpr std::uintptr_t kIp = 0x401000;
constexpr std::uintptr_t kFentry = 0x402000;  // the only address that is a profiling function
constexpr std::uintptr_t kWord = 0x403000;    // the only word that leads to one

std::span<const std::byte> code(const Bytes& bytes) {
  return std::as_bytes(std::span(bytes));
}

Bytes operator+(Bytes left, const Bytes& right) {
  left.insert(left.end(), right.begin(), right.end());
  return left;
}

// rel32 or disp32 that leads from the instruction's end at `end` to `target`.
Bytes relative(std::uintptr_t end, std::uintptr_t target) {
  const auto value = static_cast<std::uint32_t>(target - end);
  return {static_cast<std::uint8_t>(value), static_cast<std::uint8_t>(value >> 8),
          static_cast<std::uint8_t>(value >> 16), static_cast<std::uint8_t>(value >> 24)};
}

Bytes immediate64(std::uint64_t value) {
  Bytes bytes;
  for (int i = 0; i < 8; ++i) bytes.push_back(static_cast<std::uint8_t>(value >> (8 * i)));
  return bytes;
}

bool is_target(std::uintptr_t target, bool through_memory, void*) {
  return target == (through_memory ? kWord : kFentry);
}

bool matches_call(const Bytes& bytes, SiteShape& shape) {
  return match_call_site(code(bytes), kIp, is_target, nullptr, shape);
}

void expect_shape(const SiteShape& shape, SiteForm form, int length, int patch_offset) {
  EXPECT_EQ(shape.form, form);
  EXPECT_EQ(shape.length, length);
  EXPECT_EQ(shape.patch_offset, patch_offset);
}

TEST(CallSite, PlainCallOfTheFunctionIsOne) {
  SiteShape shape;
  ASSERT_TRUE(matches_call(Bytes{0xe8} + relative(kIp + 5, kFentry), shape));  // call __fentry__
  expect_shape(shape, SiteForm::kCallRel32, 5, 0);
}

TEST(CallSite, PrefixOfARelaxedCallIsKeptInFrontOfThePatch) {
  for (const auto prefix : Bytes{0x67, 0x90}) {  // bfd, gold, lld: addr32; mold: nop
    SiteShape shape;
    ASSERT_TRUE(matches_call(Bytes{prefix, 0xe8} + relative(kIp + 6, kFentry), shape));
    expect_shape(shape, SiteForm::kCallRel32Prefixed, 6, 1);
  }
}

TEST(CallSite, OtherPrefixesAreNotPartOfASite) {
  for (const auto prefix : Bytes{0x66, 0x48, 0xf2, 0x2e, 0xcc}) {
    SiteShape shape;
    EXPECT_FALSE(matches_call(Bytes{prefix, 0xe8} + relative(kIp + 6, kFentry), shape)) << int{prefix};
  }
}

TEST(CallSite, CallThroughTheWordIsOne) {
  SiteShape shape;
  ASSERT_TRUE(matches_call(Bytes{0xff, 0x15} + relative(kIp + 6, kWord), shape));  // call *word(%rip)
  expect_shape(shape, SiteForm::kCallGot, 6, 0);
}

TEST(CallSite, CallsOfOtherTargetsAreNone) {
  SiteShape shape;
  EXPECT_FALSE(matches_call(Bytes{0xe8} + relative(kIp + 5, kFentry + 1), shape));
  EXPECT_FALSE(matches_call(Bytes{0xe8} + relative(kIp + 5, kWord), shape));          // not through memory
  EXPECT_FALSE(matches_call(Bytes{0xff, 0x15} + relative(kIp + 6, kFentry), shape));  // through memory
  EXPECT_FALSE(matches_call(Bytes{0xff, 0x25} + relative(kIp + 6, kWord), shape));    // a jump
}

TEST(CallSite, CutOffCodeIsNone) {
  const Bytes whole = Bytes{0x67, 0xe8} + relative(kIp + 6, kFentry);
  const Bytes got = Bytes{0xff, 0x15} + relative(kIp + 6, kWord);
  for (std::size_t size = 0; size < 6; ++size) {
    SiteShape shape;
    EXPECT_FALSE(matches_call(Bytes(whole.begin(), whole.begin() + static_cast<long>(size)), shape)) << size;
    EXPECT_FALSE(matches_call(Bytes(got.begin(), got.begin() + static_cast<long>(size)), shape)) << size;
  }
}

TEST(LargeCall, OfGccWithoutPicIsThirteenBytesLong) {
  const Bytes bytes = Bytes{0x49, 0xba} + immediate64(kFentry) + Bytes{0x41, 0xff, 0xd2};
  EXPECT_EQ(match_large_call(code(bytes), kIp, is_target, nullptr), 13u);
  const Bytes other = Bytes{0x49, 0xba} + immediate64(kFentry + 8) + Bytes{0x41, 0xff, 0xd2};
  EXPECT_EQ(match_large_call(code(other), kIp, is_target, nullptr), 0u);
}

TEST(LargeCall, OfGccWithPicIsThirtySixBytesLong) {
  constexpr std::uintptr_t kGot = 0x404000;
  // movabs $GOT-here, %r11; lea here(%rip), %r10; add; movabs $f-GOT, %r11; add; call *%r10       here: the first byte
  const Bytes bytes = Bytes{0x49, 0xbb} + immediate64(kGot - kIp) + Bytes{0x4c, 0x8d, 0x15} + relative(kIp + 17, kIp) +
                      Bytes{0x4d, 0x01, 0xda, 0x49, 0xbb} + immediate64(kFentry - kGot) +
                      Bytes{0x4d, 0x01, 0xda, 0x41, 0xff, 0xd2};
  ASSERT_EQ(bytes.size(), 36u);
  EXPECT_EQ(match_large_call(code(bytes), kIp, is_target, nullptr), 36u);
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_EQ(match_large_call(code(bytes).first(size), kIp, is_target, nullptr), 0u) << size;
  }
}

TEST(CallCandidates, AreFoundAtEveryOffsetOfABlock) {
  for (std::size_t size = 1; size < 70; ++size) {
    for (std::size_t at = 0; at < size; ++at) {
      Bytes bytes(size, 0xcc);
      bytes[at] = 0xe8;
      EXPECT_EQ(next_call_candidate(code(bytes), 0), at);
      EXPECT_EQ(next_call_candidate(code(bytes), at), at);
      EXPECT_EQ(next_call_candidate(code(bytes), at + 1), size);
    }
    for (std::size_t at = 0; at + 1 < size; ++at) {
      Bytes bytes(size, 0xff);
      bytes[at + 1] = 0x15;
      EXPECT_EQ(next_call_candidate(code(bytes), 0), at);
    }
  }
}

TEST(FunctionStart, IsGuessedOverAPadAndOverANestedPush) {
  const Bytes call = Bytes{0xe8, 0, 0, 0, 0}, pad = {0xf3, 0x0f, 0x1e, 0xfa}, push = {0x41, 0x52}, pop = {0x41, 0x5a};
  StartGuess guesses[kMaxStartGuesses];

  ASSERT_EQ(guess_function_starts(code(Bytes{0xc3} + call), 1, 5, guesses), 1u);
  EXPECT_EQ(guesses[0].offset, 1u);

  ASSERT_EQ(guess_function_starts(code(Bytes{0xc3} + pad + call), 5, 5, guesses), 2u);
  EXPECT_EQ(guesses[0].offset, 1u);
  EXPECT_FALSE(guesses[0].nested);
  EXPECT_EQ(guesses[1].offset, 5u);

  ASSERT_EQ(guess_function_starts(code(Bytes{0xc3} + push + pad + call + pop), 7, 5, guesses), 3u);
  EXPECT_EQ(guesses[0].offset, 1u);
  EXPECT_TRUE(guesses[0].nested);
  EXPECT_FALSE(guesses[1].nested);
}

TEST(FunctionStart, PushWithoutAPopBehindTheCallIsNotANestedFunctions) {
  StartGuess guesses[kMaxStartGuesses];
  ASSERT_EQ(guess_function_starts(code(Bytes{0x41, 0x52, 0xe8, 0, 0, 0, 0, 0x41, 0x5b}), 2, 5, guesses), 1u);
  EXPECT_FALSE(guesses[0].nested);
}

struct Nops {
  bool is_site;
  SiteShape shape;
  std::size_t offset;
};
Nops match(const Bytes& bytes) {
  Nops nops{};
  nops.is_site = match_patchable(code(bytes), nops.shape, nops.offset);
  return nops;
}

TEST(PatchableNops, OfGccAreAllItsSingleNops) {
  const Nops five = match({0x90, 0x90, 0x90, 0x90, 0x90, 0xc3});
  ASSERT_TRUE(five.is_site);
  expect_shape(five.shape, SiteForm::kNops, 5, 0);
  const Nops nine = match(Bytes(9, 0x90) + Bytes{0xc3});
  ASSERT_TRUE(nine.is_site);
  expect_shape(nine.shape, SiteForm::kNops, 9, 0);
  const Nops forty = match(Bytes(40, 0x90));
  ASSERT_TRUE(forty.is_site);
  expect_shape(forty.shape, SiteForm::kNops, static_cast<int>(kMaxSiteLength), 0);
}

TEST(PatchableNops, BehindAPadAreFound) {
  const Nops nops = match(Bytes{0xf3, 0x0f, 0x1e, 0xfa} + Bytes(5, 0x90));
  ASSERT_TRUE(nops.is_site);
  EXPECT_EQ(nops.offset, 4u);
}

TEST(PatchableNops, OfClangAreItsFirstLongNop) {
  const Bytes end = {0xc3};
  const Nops five = match(Bytes{0x0f, 0x1f, 0x44, 0x00, 0x08} + end);
  ASSERT_TRUE(five.is_site);
  expect_shape(five.shape, SiteForm::kNop5, 5, 0);
  const Nops six = match(Bytes{0x66, 0x0f, 0x1f, 0x44, 0x00, 0x08} + end);
  ASSERT_TRUE(six.is_site);
  expect_shape(six.shape, SiteForm::kNopRun, 6, 0);
  const Nops sixteen =
      match(Bytes{0x66, 0x66, 0x66, 0x66, 0x66, 0x2e, 0x66, 0x0f, 0x1f, 0x84, 0, 0, 2, 0, 0, 0x90} + end);
  ASSERT_TRUE(sixteen.is_site);
  expect_shape(sixteen.shape, SiteForm::kNopRun, 15, 0);
  EXPECT_EQ(six.shape.patch_offset, 0);
}

TEST(PatchableNops, TooFewAreNoSiteButCounted) {
  for (std::size_t count = 0; count < 5; ++count) {
    const Nops nops = match(Bytes(count, 0x90) + Bytes{0xc3});
    EXPECT_FALSE(nops.is_site);
    EXPECT_EQ(nops.shape.length, count);
  }
  const Nops two = match({0x66, 0x90, 0xc3});  // clang's N=2
  EXPECT_FALSE(two.is_site);
  EXPECT_EQ(two.shape.length, 2);
}

TEST(PatchableNops, ShortNopsInFrontOfALongOneAreNoSite) {
  // A thread may stand between them, and no step of the patch protocol knows these bytes.
  EXPECT_FALSE(match({0x66, 0x90, 0x0f, 0x1f, 0x44, 0x00, 0x08}).is_site);
  EXPECT_FALSE(match({0x90, 0x0f, 0x1f, 0x44, 0x00, 0x08}).is_site);
}

TEST(PatchableNops, OfANestedFunctionNeedItsPushAndPop) {
  const Nops nested = match({0x41, 0x52, 0x0f, 0x1f, 0x44, 0x00, 0x00, 0x41, 0x5a});
  ASSERT_TRUE(nested.is_site);
  EXPECT_TRUE(nested.shape.nested);
  EXPECT_EQ(nested.offset, 2u);
  EXPECT_FALSE(match({0x41, 0x52, 0x0f, 0x1f, 0x44, 0x00, 0x00, 0x41, 0x5b}).is_site);
  EXPECT_FALSE(match({0x41, 0x52, 0x90, 0x90, 0x90, 0x90, 0x90, 0x41, 0x5a}).is_site);
}

NopOrigin origin_of(const Bytes& bytes) {
  const Nops nops = match(bytes);
  EXPECT_TRUE(nops.is_site);
  return nop_origin(code(bytes).subspan(nops.offset), nops.shape);
}

TEST(PatchableNops, TellTheirOriginByTheirBytes) {
  EXPECT_EQ(origin_of(Bytes(5, 0x90)), NopOrigin::kPatchable);
  EXPECT_EQ(origin_of({0x0f, 0x1f, 0x44, 0x00, 0x08}), NopOrigin::kPatchable);
  EXPECT_EQ(origin_of({0x66, 0x0f, 0x1f, 0x44, 0x00, 0x08}), NopOrigin::kPatchable);
  EXPECT_EQ(origin_of({0x0f, 0x1f, 0x80, 0x00, 0x02, 0x00, 0x00}), NopOrigin::kPatchable);
  EXPECT_EQ(origin_of({0x0f, 0x1f, 0x44, 0x00, 0x00}), NopOrigin::kMcount);
  EXPECT_EQ(origin_of({0x0f, 0x1f, 0x44, 0x00, 0x01}), NopOrigin::kUnknown);
  EXPECT_EQ(origin_of({0x66, 0x0f, 0x1f, 0x44, 0x00, 0x00}), NopOrigin::kUnknown);  // as `as` aligns with
  EXPECT_EQ(origin_of({0x0f, 0x1f, 0x80, 0x00, 0x00, 0x00, 0x00}), NopOrigin::kUnknown);
}

// A body at kIp whose jumps into the eight bytes before it are asked for.
bool jumps_back(const Bytes& body) {
  return jumps_between(code(body), kIp, kIp - 8, kIp);
}

TEST(Jumps, IntoARangeAreFoundInEveryForm) {
  EXPECT_TRUE(jumps_back({0x31, 0xc0, 0xeb, 0xf6}));                        // jmp -10
  EXPECT_TRUE(jumps_back({0x75, 0xfc}));                                    // jne -4
  EXPECT_TRUE(jumps_back({0xe2, 0xfc}));                                    // loop -4
  EXPECT_TRUE(jumps_back({0xe3, 0xfc}));                                    // jrcxz -4
  EXPECT_TRUE(jumps_back(Bytes{0xe9} + relative(kIp + 5, kIp - 1)));        // jmp rel32
  EXPECT_TRUE(jumps_back(Bytes{0x0f, 0x84} + relative(kIp + 6, kIp - 8)));  // je rel32
  EXPECT_FALSE(jumps_back({0xeb, 0xfe}));                                   // to itself
  EXPECT_FALSE(jumps_back(Bytes{0xe9} + relative(kIp + 5, kIp)));           // behind the range
  EXPECT_FALSE(jumps_back(Bytes{0xe9} + relative(kIp + 5, kIp - 9)));       // before it
  EXPECT_FALSE(jumps_back({0x75}));                                         // cut off
}

TEST(Jumps, InsideImmediatesAreNone) {
  EXPECT_FALSE(jumps_back({0xb8, 0xeb, 0xfb, 0x00, 0x00}));  // mov $0xfbeb, %eax: eb fb would be a jump to -2
}

TEST(Jumps, BehindUndecodableCodeAreAssumed) {
  EXPECT_TRUE(jumps_back({0x06, 0xeb, 0xfb}));   // 06: invalid in 64-bit code
  EXPECT_FALSE(jumps_back({0x06, 0x90, 0x90}));  // nothing that could be a jump: nobody asks the decoder
}

TEST(PltSlots, OfEveryLinkerLeadToTheirWord) {
  const auto jump = [](std::size_t offset) { return Bytes{0xff, 0x25} + relative(kIp + offset + 6, kWord); };
  EXPECT_EQ(plt_slot_word(code(jump(0)), kIp), kWord);                                        // bfd, lld .plt
  EXPECT_EQ(plt_slot_word(code(Bytes{0xf2} + jump(1)), kIp), kWord);                          // bnd jmp
  EXPECT_EQ(plt_slot_word(code(Bytes{0xf3, 0x0f, 0x1e, 0xfa} + jump(4)), kIp), kWord);        // .plt.sec
  EXPECT_EQ(plt_slot_word(code(Bytes{0xf3, 0x0f, 0x1e, 0xfa, 0xf2} + jump(5)), kIp), kWord);  // .plt.sec, bnd
  EXPECT_EQ(plt_slot_word(code(Bytes{0xf3, 0x0f, 0x1e, 0xfa, 0x41, 0xbb, 1, 0, 0, 0} + jump(10)), kIp), kWord);  // mold
}

TEST(PltSlots, AreNothingElse) {
  EXPECT_EQ(plt_slot_word(code({0xff, 0x35, 0, 0, 0, 0, 0xff, 0x25, 0, 0, 0, 0}), kIp), 0u);  // .plt's first entry
  EXPECT_EQ(plt_slot_word(code({0xf3, 0x0f, 0x1e, 0xfa}), kIp), 0u);
  EXPECT_EQ(plt_slot_word(code({0xff, 0x25, 0, 0, 0}), kIp), 0u);
  EXPECT_EQ(plt_slot_word({}, kIp), 0u);
}

TEST(MemoryJumps, AreFoundAtEveryOffset) {
  for (std::size_t at = 0; at < 60; ++at) {
    const Bytes bytes = Bytes(at, 0xff) + Bytes{0xff, 0x25} + relative(kIp + at + 6, kWord) + Bytes(7, 0x25);
    std::uintptr_t word = 0;
    ASSERT_EQ(next_memory_jump(code(bytes), kIp, 0, word), at);
    EXPECT_EQ(word, kWord);
    EXPECT_EQ(next_memory_jump(code(bytes), kIp, at + 1, word), bytes.size());
  }
}

}  // namespace
}  // namespace libfprobe::detail::arch
