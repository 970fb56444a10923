// The bytes of sites on x86-64, and every step between them, executed.
#include <array>

#include "unit/patch_support.h"

namespace {

using namespace fprobe_test;
namespace arch = libfprobe::detail::arch;
using arch::PokeSteps;

constexpr std::size_t kLine = 64;
using SiteBytes = std::array<std::uint8_t, arch::kMaxSiteLength>;

std::string text(const SiteBytes& bytes, const SiteShape& shape) {
  return hex(bytes.data(), shape.length);
}

std::string idle_text(const char* flavour_name, std::uintptr_t ip) {
  for (const Flavour& flavour : flavours()) {
    if (std::string(flavour.name) != flavour_name) continue;
    Bytes original = flavour.bytes;
    for (std::size_t i = flavour.shape.patch_offset + 1; i < original.size(); ++i) {
      if (original[i] == 0) original[i] = static_cast<std::uint8_t>(0xd0 + i);
    }
    SiteBytes out{};
    arch::idle_bytes(ip, flavour.shape, original.data(), out.data());
    return text(out, flavour.shape);
  }
  return "no such flavour";
}

// --- Exact bytes, and why.

TEST(IdleForm, CallBecomesOneNopOfFiveBytes) {
  EXPECT_EQ(idle_text("call", 0x1000), "0f 1f 44 00 00");
}
TEST(IdleForm, CallBecomesAShortJumpWhereTwoBytesLeaveTheirAlignedWord) {
  EXPECT_EQ(idle_text("call", 0x1007), "eb 03 d2 d3 d4");
  EXPECT_EQ(idle_text("call", 0x1006), "0f 1f 44 00 00");
  EXPECT_EQ(idle_text("call", 0x1008), "0f 1f 44 00 00");
}
TEST(IdleForm, PrefixStaysSoThatABreakpointOnItFindsTheByteItKnows) {
  EXPECT_EQ(idle_text("addr32 call", 0x1000), "67 0f 1f 44 00 00");
  EXPECT_EQ(idle_text("nop; call", 0x1000), "90 0f 1f 44 00 00");
}
TEST(IdleForm, StraddlingIsDecidedAtThePatchPlaceNotAtThePrefix) {
  EXPECT_EQ(idle_text("addr32 call", 0x1006), "67 eb 03 d3 d4 d5");
  EXPECT_EQ(idle_text("addr32 call", 0x1007), "67 0f 1f 44 00 00");
}
TEST(IdleForm, CallThroughGotBecomesOneNopOfSixBytes) {
  EXPECT_EQ(idle_text("call through GOT", 0x1000), "66 0f 1f 44 00 00");
}
TEST(IdleForm, StraddlingCallThroughGotComparesAnImmediateBecauseSingleBytesLeadThere) {
  EXPECT_EQ(idle_text("call through GOT", 0x1007), "48 3d d2 d3 d4 d5");
}
TEST(IdleForm, CompilersOwnLongNopStays) {
  Flavour nop = make_flavour("", SiteForm::kNop5, 0, {0x0f, 0x1f, 0x44, 0x00, 0x08});
  SiteBytes out{};
  arch::idle_bytes(0x1000, nop.shape, nop.bytes.data(), out.data());
  EXPECT_EQ(text(out, nop.shape), "0f 1f 44 00 08");
  arch::idle_bytes(0x1007, nop.shape, nop.bytes.data(), out.data());
  EXPECT_EQ(text(out, nop.shape), "eb 03 44 00 08");
}
TEST(IdleForm, SingleNopsMergeIntoOneAndTheRestStaysSingle) {
  EXPECT_EQ(idle_text("gcc nops, 5", 0x1000), "0f 1f 44 00 00");
  EXPECT_EQ(idle_text("gcc nops, 9", 0x1000), "0f 1f 44 00 00 90 90 90 90");
  EXPECT_EQ(idle_text("gcc nops, 9", 0x1007), "eb 07 90 90 90 90 90 90 90");
}
TEST(IdleForm, StraddlingNopOfSixBytesComparesAnImmediateBecauseSingleBytesLeadThere) {
  Flavour nop = make_flavour("", SiteForm::kNopRun, 0, {0x66, 0x0f, 0x1f, 0x44, 0x00, 0x08});
  SiteBytes out{};
  arch::idle_bytes(0x1007, nop.shape, nop.bytes.data(), out.data());
  EXPECT_EQ(text(out, nop.shape), "48 3d 1f 44 00 08");
}
TEST(IdleForm, StraddlingNopRunJumpsOverAllOfIt) {
  Flavour nops = make_flavour("", SiteForm::kNopRun, 0, {0x0f, 0x1f, 0x84, 0x00, 0x00, 0x02, 0x00, 0x00});
  SiteBytes out{};
  arch::idle_bytes(0x100f, nops.shape, nops.bytes.data(), out.data());
  EXPECT_EQ(text(out, nops.shape), "eb 06 84 00 00 02 00 00");
}

TEST(ArmedForm, IsAJumpAtThePatchPlaceAndLeavesTheRest) {
  const Flavour& prefixed = flavours()[1];
  SiteBytes out{};
  arch::armed_bytes(0x1000, prefixed.shape, 0x1006 + 0x1020304, prefixed.bytes.data(), out.data());
  EXPECT_EQ(text(out, prefixed.shape), "67 e9 04 03 02 01");
}
TEST(ArmedForm, HasBehindTheJumpWhatTheIdleFormHasThere) {
  const SiteShape shape = flavours()[3].shape;
  const Bytes original = {0xff, 0x15, 0xd0, 0xd1, 0xd2, 0xd3};
  SiteBytes out{};
  arch::armed_bytes(0x1000, shape, 0x1005 - 0x1000, original.data(), out.data());
  EXPECT_EQ(text(out, shape), "e9 00 f0 ff ff 00");
  arch::armed_bytes(0x1007, shape, 0x100c - 0x1000, original.data(), out.data());
  EXPECT_EQ(text(out, shape), "e9 00 f0 ff ff d3");
}

// Places of six bytes, whose jumps are armed from a compare of an immediate.
bool is_compared(const SiteShape& shape) {
  return shape.form == SiteForm::kCallGot || (shape.form == SiteForm::kNopRun && shape.length == 6);
}

TEST(ThunkPlace, MakesTheJumpsLowByteTheOneThatTheFormBeforeItHas) {
  for (const Flavour& flavour : flavours()) {
    for (std::uintptr_t ip = 0x1000; ip < 0x1000 + kLine; ++ip) {
      const arch::ThunkPlace place = arch::thunk_place(ip, flavour.shape);
      ASSERT_EQ(place.mask, 0xffU);
      SiteBytes armed{};
      arch::armed_bytes(ip, flavour.shape, 0x20000 + place.value, flavour.bytes.data(), armed.data());
      const unsigned skip = flavour.shape.length - flavour.shape.patch_offset - 2U;
      EXPECT_EQ(armed[flavour.shape.patch_offset + 1], is_compared(flavour.shape) ? 0x3dU : skip)
          << flavour.name << " at " << ip;
    }
  }
}
TEST(ThunkPlace, IsThreeBehindTheJumpForFiveBytesAndTheComparesSecondByteForSix) {
  EXPECT_EQ(arch::thunk_place(0x1000, flavours()[0].shape).value, 0x08U);
  EXPECT_EQ(arch::thunk_place(0x1000, flavours()[1].shape).value, 0x09U);
  EXPECT_EQ(arch::thunk_place(0x1000, flavours()[3].shape).value, 0x42U);
  EXPECT_EQ(arch::thunk_place(0x10f8, flavours()[0].shape).value, 0x00U);
}

std::string steps_text(const PokeSteps& steps) {
  std::string all;
  for (unsigned i = 0; i < steps.count; ++i) {
    if (i > 0) all += " | ";
    all += "+" + std::to_string(steps.steps[i].offset) + ": " + hex(steps.steps[i].bytes, steps.steps[i].length);
  }
  return all;
}

std::string plan_text(std::uintptr_t ip, const SiteShape& shape, const Bytes& from, const Bytes& to) {
  PokeSteps steps;
  return arch::plan_poke(ip, shape, from.data(), to.data(), steps) ? steps_text(steps) : "none";
}

TEST(Plan, ArmsThroughTheShortJump) {
  const SiteShape shape = flavours()[0].shape;
  EXPECT_EQ(plan_text(0x1000, shape, {0x0f, 0x1f, 0x44, 0, 0}, {0xe9, 0x03, 1, 2, 3}),
            "+0: eb 03 | +2: 01 02 03 | +0: e9");
}
TEST(Plan, SilencesTheProbeByTheFirstStepOfDisarming) {
  const SiteShape shape = flavours()[0].shape;
  EXPECT_EQ(plan_text(0x1000, shape, {0xe9, 0x03, 1, 2, 3}, {0x0f, 0x1f, 0x44, 0, 0}),
            "+0: eb | +2: 44 00 00 | +0: 0f 1f");
}
TEST(Plan, ArmsAStraddlingSiteBySingleBytes) {
  const SiteShape shape = flavours()[0].shape;
  EXPECT_EQ(plan_text(0x1007, shape, {0xeb, 0x03, 0x44, 0, 0}, {0xe9, 0x03, 1, 2, 3}), "+2: 01 02 03 | +0: e9");
}
TEST(Plan, LeavesOutWhatDoesNotChange) {
  const SiteShape shape = flavours()[0].shape;
  EXPECT_EQ(plan_text(0x1007, shape, {0xeb, 0x03, 1, 2, 3}, {0xe9, 0x03, 1, 2, 3}), "+0: e9");
  EXPECT_EQ(plan_text(0x1000, shape, {0xe9, 0x03, 1, 2, 3}, {0xe9, 0x03, 1, 2, 3}), "");
}
TEST(Plan, WritesTwoBytesOfOneWordWhenTheThunkIsOutOfItsPlace) {
  const SiteShape shape = flavours()[0].shape;
  EXPECT_EQ(plan_text(0x1000, shape, {0x0f, 0x1f, 0x44, 0, 0}, {0xe9, 0x77, 1, 2, 3}),
            "+0: eb 03 | +2: 01 02 03 | +0: e9 77");
}
TEST(Plan, LeavesAStraddlingCallThroughATestOfAnImmediate) {
  const SiteShape shape = flavours()[0].shape;
  EXPECT_EQ(plan_text(0x1007, shape, {0xe8, 0x11, 1, 2, 3}, {0xeb, 0x03, 1, 2, 3}), "+0: a9 | +1: 03 | +0: eb");
}
TEST(Plan, LeavesAStraddlingCallThroughGotBySingleBytes) {
  const SiteShape shape = flavours()[3].shape;
  EXPECT_EQ(plan_text(0x1007, shape, {0xff, 0x15, 1, 2, 3, 4}, {0x48, 0x3d, 1, 2, 3, 4}), "+0: 85 | +1: 3d | +0: 48");
}
TEST(Plan, GoesFromTheCallThroughGotToTheCompareAtOnceInsideAnAlignedWord) {
  const SiteShape shape = flavours()[3].shape;
  EXPECT_EQ(plan_text(0x1000, shape, {0xff, 0x15, 1, 2, 3, 4}, {0xe9, 0x3d, 5, 6, 7, 0}),
            "+0: 48 3d | +2: 05 06 07 00 | +0: e9");
  EXPECT_EQ(plan_text(0x1000, shape, {0xe9, 0x3d, 5, 6, 7, 0}, {0x66, 0x0f, 0x1f, 0x44, 0, 0}),
            "+0: 48 | +2: 1f 44 00 | +0: 66 0f");
}

std::string bytewise_text(const SiteShape& shape, const Bytes& from, const Bytes& to) {
  PokeSteps steps;
  return arch::plan_poke_bytewise(shape, from.data(), to.data(), steps) ? steps_text(steps) : "none";
}

TEST(BytewisePlan, LeadsThroughTheTestOfAnImmediate) {
  const SiteShape shape = flavours()[0].shape;
  EXPECT_EQ(bytewise_text(shape, {0x0f, 0x1f, 0x44, 0, 0}, {0xe9, 0x03, 1, 2, 3}), "+0: a9 | +1: 03 01 02 03 | +0: e9");
  EXPECT_EQ(bytewise_text(shape, {0xe9, 0x03, 1, 2, 3}, {0x0f, 0x1f, 0x44, 0, 0}), "+0: a9 | +1: 1f 44 00 00 | +0: 0f");
}
TEST(BytewisePlan, LeadsThroughTheCompareWhereThereAreSixBytes) {
  const SiteShape shape = flavours()[3].shape;
  EXPECT_EQ(bytewise_text(shape, {0x66, 0x0f, 0x1f, 0x44, 0, 0}, {0xe9, 0x3d, 1, 2, 3, 4}),
            "+0: 48 | +1: 3d | +2: 01 02 03 04 | +0: e9");
  EXPECT_EQ(bytewise_text(shape, {0xff, 0x15, 1, 2, 3, 4}, {0x66, 0x0f, 0x1f, 0x44, 0, 0}),
            "+0: 85 | +1: 3d | +0: 48 | +2: 1f 44 00 00 | +1: 0f | +0: 66");
}
TEST(BytewisePlan, KnowsNoWayForLongerNopsNorToAThunkOutOfItsPlace) {
  EXPECT_EQ(bytewise_text(flavours()[9].shape, {0x0f, 0x1f, 0x84, 0, 0, 2, 0, 0}, {0xe9, 6, 1, 2, 3, 2, 0, 0}), "none");
  EXPECT_EQ(bytewise_text(flavours()[3].shape, {0x66, 0x0f, 0x1f, 0x44, 0, 0}, {0xe9, 0x77, 1, 2, 3, 4}), "none");
}

TEST(MergedNops, AreOneInstructionWithNopsBehindIt) {
  Bytes out(9);
  ASSERT_TRUE(arch::merge_nops(flavours()[7].shape, Bytes(9, 0x90).data(), out.data()));
  EXPECT_EQ(hex(out.data(), 9), "66 66 66 66 90 90 90 90 90");
  for (const Flavour& flavour : flavours()) {
    const bool is_single = flavour.shape.form == SiteForm::kNops;
    Bytes merged(arch::kMaxSiteLength);
    EXPECT_EQ(arch::merge_nops(flavour.shape, flavour.bytes.data(), merged.data()), is_single) << flavour.name;
    EXPECT_FALSE(is_single && arch::merge_nops(flavour.shape, merged.data(), out.data())) << "they are one already";
  }
}
TEST(MergedNops, RunFromEveryPlaceInEveryMixtureOnTheWay) {
  CodeArea area;
  const Flavour& nops = flavours()[6];
  area.put_function(nops, CodeArea::kFirstFunction);
  Bytes merged(5);
  ASSERT_TRUE(arch::merge_nops(nops.shape, nops.bytes.data(), merged.data()));
  for (unsigned mixture = 0; mixture < 1U << 4; ++mixture) {
    for (std::size_t i = 0; i < 4; ++i)
      *area.at(CodeArea::kFirstFunction + i) = (mixture >> i & 1) != 0 ? merged[i] : nops.bytes[i];
    for (std::size_t start = 0; start < 5; ++start) EXPECT_TRUE(area.runs(CodeArea::kFirstFunction + start)) << mixture;
  }
}

TEST(Plan, KnowsNoWayFromSingleNopsBecauseAThreadMayStandOnOne) {
  const SiteShape shape = flavours()[6].shape;
  EXPECT_EQ(plan_text(0x1000, shape, Bytes(5, 0x90), {0x0f, 0x1f, 0x44, 0, 0}), "none");
  EXPECT_EQ(plan_text(0x1000, shape, Bytes(5, 0x90), {0xe9, 0x03, 1, 2, 3}), "none");
  EXPECT_EQ(plan_text(0x1000, shape, Bytes(5, 0x90), Bytes(5, 0x90)), "");
}
TEST(Plan, KnowsNoWayForAStraddlingCallThroughGotToAThunkOutOfItsPlace) {
  const SiteShape shape = flavours()[3].shape;
  EXPECT_EQ(plan_text(0x1007, shape, {0x48, 0x3d, 1, 2, 3, 4}, {0xe9, 0x77, 1, 2, 3, 4}), "none");
}

// --- Every step of every change, executed at every place of a cache line.

enum class Form { kOriginal, kIdle, kArmed };
constexpr Form kForms[] = {Form::kOriginal, Form::kIdle, Form::kArmed};
const char* name_of(Form form) {
  return form == Form::kOriginal ? "original" : form == Form::kIdle ? "idle" : "armed";
}

// Whether a thread that decodes the site while these bytes change sees old or new, or does not care.
enum class Walk { kLive, kBytewise, kAlone };
bool is_safe_store(std::uintptr_t ip, const SiteShape& shape, const std::uint8_t* now, const PokeSteps::Step& step,
                   Walk walk) {
  if (step.length == 1) return true;
  const std::uintptr_t first = ip + step.offset, last = first + step.length - 1U;
  if (walk == Walk::kLive && step.length == 2 && first / 8 == last / 8) return true;
  const std::uint8_t* place = now + shape.patch_offset;
  const std::size_t offset = static_cast<std::size_t>(step.offset - shape.patch_offset);
  switch (place[0]) {
    case 0xeb:
      return offset >= 2;  // behind the jump
    case 0xa9:
      return offset >= 1 && offset + step.length <= 5;                      // its immediate
    case 0x48:                                                              // cmp
      return place[1] == 0x3d && offset >= 2 && offset + step.length <= 6;  // its immediate
    default:
      return false;
  }
}

class EveryPlace : public ::testing::TestWithParam<std::size_t> {
 protected:
  const Flavour& flavour() const { return flavours()[GetParam()]; }
  const SiteShape& shape() const { return flavour().shape; }

  // A function at this place of a cache line, and a thunk in its wanted place.
  void set_up(std::size_t place) {
    offset_ = CodeArea::kFirstFunction + 0x100 + place;
    ip_ = area_.address(offset_);
    area_.put_function(flavour(), offset_);
    const std::size_t resume = offset_ + shape().length;
    const std::size_t thunk = 2 * CodeArea::kFirstFunction + arch::thunk_place(ip_, shape()).value;
    area_.put_thunk(thunk, resume);
    const Bytes original = area_.original(flavour(), offset_);
    std::memcpy(bytes_[0].data(), original.data(), original.size());
    arch::idle_bytes(ip_, shape(), original.data(), bytes_[1].data());
    arch::armed_bytes(ip_, shape(), area_.address(thunk), original.data(), bytes_[2].data());
  }

  const SiteBytes& bytes(Form form) const { return bytes_[static_cast<unsigned>(form)]; }

  // The function works in its present form, and does what that form is for.
  void expect_runs_as(Form form) {
    const unsigned long calls = area_.calls(), hits = area_.hits();
    EXPECT_TRUE(area_.runs(offset_));
    const bool is_call = form == Form::kOriginal && shape().form <= SiteForm::kCallGot;
    EXPECT_EQ(area_.calls() - calls, is_call ? 1U : 0U);
    EXPECT_EQ(area_.hits() - hits, form == Form::kArmed ? 1U : 0U);
  }

  // No instruction boundary inside the site at which a preempted thread could be standing.
  void expect_one_instruction(const std::uint8_t* now) {
    if (shape().form == SiteForm::kNops) return;
    const std::size_t start = now[0] == 0x67 ? 0 : shape().patch_offset;
    arch::Insn insn;
    ASSERT_TRUE(
        arch::decode({reinterpret_cast<const std::byte*>(now) + start, shape().length - start}, ip_ + start, insn))
        << hex(now, shape().length);
    const bool leaves = insn.kind == arch::InsnKind::kJumpDirect;
    const bool is_first_of_run = shape().form == SiteForm::kNopRun && insn.length >= 5;
    EXPECT_TRUE(leaves || is_first_of_run || start + insn.length == shape().length) << hex(now, shape().length);
  }

  // Byte by byte where more than two are written: any mixture must run.
  void write_and_run(const PokeSteps::Step& step, Walk walk) {
    if (step.length <= 2 && walk != Walk::kBytewise) {
      std::memcpy(area_.at(offset_ + step.offset), step.bytes, step.length);
      EXPECT_TRUE(area_.runs(offset_));
      return;
    }
    for (std::size_t i = 0; i < step.length; ++i) {
      *area_.at(offset_ + step.offset + i) = step.bytes[i];
      EXPECT_TRUE(area_.runs(offset_));
    }
  }

  void walk(const PokeSteps& steps, Form to, Walk walk) {
    for (unsigned i = 0; i < steps.count; ++i) {
      const PokeSteps::Step& step = steps.steps[i];
      ASSERT_GT(step.length, 0);
      if (walk != Walk::kAlone) {
        EXPECT_TRUE(is_safe_store(ip_, shape(), area_.at(offset_), step, walk)) << steps_text(steps) << " step " << i;
      }
      write_and_run(step, walk);
      if (walk != Walk::kAlone) expect_one_instruction(area_.at(offset_));
    }
    EXPECT_EQ(hex(area_.at(offset_), shape().length), text(bytes(to), shape()));
    expect_runs_as(to);
  }

  CodeArea area_;
  std::size_t offset_ = 0;
  std::uintptr_t ip_ = 0;
  SiteBytes bytes_[3]{};
};

// Which changes have no safe way with threads alive.
bool is_refused(const SiteShape& shape, std::uintptr_t ip, Form from, Form to) {
  if (from == to) return false;
  const bool straddles = (ip + shape.patch_offset) % 8 == 7;
  if (shape.form == SiteForm::kNops) return from == Form::kOriginal;
  if (shape.form == SiteForm::kNopRun && !is_compared(shape))
    return straddles && (from == Form::kOriginal || to == Form::kOriginal);
  return false;
}
bool is_refused_bytewise(const SiteShape& shape, std::uintptr_t ip, Form from, Form to) {
  const bool straddles = (ip + shape.patch_offset) % 8 == 7;
  if (shape.form == SiteForm::kNopRun && !is_compared(shape) && !straddles && from != to)
    return from == Form::kArmed || to == Form::kArmed;  // original and idle are the same
  return is_refused(shape, ip, from, to);
}

TEST_P(EveryPlace, EveryStepOfEveryLiveChangeRuns) {
  for (std::size_t place = 0; place < kLine; ++place) {
    for (const Form from : kForms) {
      for (const Form to : kForms) {
        SCOPED_TRACE(std::string(flavour().name) + " at " + std::to_string(place) + ": " + name_of(from) + " to " +
                     name_of(to));
        set_up(place);
        std::memcpy(area_.at(offset_), bytes(from).data(), shape().length);
        expect_runs_as(from);
        PokeSteps steps;
        const bool planned = arch::plan_poke(ip_, shape(), bytes(from).data(), bytes(to).data(), steps);
        ASSERT_EQ(planned, !is_refused(shape(), ip_, from, to));
        if (!planned) continue;
        // Three barriers for a batch, except where the straddling compare lies on the way to or from the call.
        const bool is_long_way = from != Form::kIdle && to != Form::kIdle && is_compared(shape());
        EXPECT_LE(steps.count, is_long_way ? 5 : 3);
        walk(steps, to, Walk::kLive);
        if (HasFailure()) return;
      }
    }
  }
}

TEST_P(EveryPlace, EveryByteOfEveryBytewiseChangeRuns) {
  for (std::size_t place = 0; place < kLine; ++place) {
    for (const Form from : kForms) {
      for (const Form to : kForms) {
        SCOPED_TRACE(std::string(flavour().name) + " at " + std::to_string(place) + ": " + name_of(from) + " to " +
                     name_of(to));
        set_up(place);
        std::memcpy(area_.at(offset_), bytes(from).data(), shape().length);
        PokeSteps steps;
        const bool planned = arch::plan_poke_bytewise(shape(), bytes(from).data(), bytes(to).data(), steps);
        ASSERT_EQ(planned, !is_refused_bytewise(shape(), ip_, from, to));
        if (planned) walk(steps, to, Walk::kBytewise);
        if (HasFailure()) return;
      }
    }
  }
}

TEST_P(EveryPlace, MergedNopsLeadToEveryFormInEitherWay) {
  for (std::size_t place = 0; place < kLine; ++place) {
    for (const Form to : {Form::kIdle, Form::kArmed}) {
      set_up(place);
      SiteBytes merged{};
      if (!arch::merge_nops(shape(), bytes(Form::kOriginal).data(), merged.data())) continue;
      SCOPED_TRACE(std::string(flavour().name) + " at " + std::to_string(place) + " to " + name_of(to));
      for (const Walk way : {Walk::kLive, Walk::kBytewise}) {
        std::memcpy(area_.at(offset_), merged.data(), shape().length);
        PokeSteps steps;
        ASSERT_TRUE(way == Walk::kLive ? arch::plan_poke(ip_, shape(), merged.data(), bytes(to).data(), steps)
                                       : arch::plan_poke_bytewise(shape(), merged.data(), bytes(to).data(), steps));
        walk(steps, to, way);
        if (HasFailure()) return;
      }
    }
  }
}

TEST_P(EveryPlace, EveryStepOfEveryChangeOfALoneThreadRunsInItsSignalHandler) {
  for (std::size_t place = 0; place < kLine; ++place) {
    for (const Form from : kForms) {
      for (const Form to : kForms) {
        SCOPED_TRACE(std::string(flavour().name) + " at " + std::to_string(place) + ": " + name_of(from) + " to " +
                     name_of(to));
        set_up(place);
        std::memcpy(area_.at(offset_), bytes(from).data(), shape().length);
        PokeSteps steps;
        arch::plan_poke_alone(shape(), bytes(from).data(), bytes(to).data(), steps);
        walk(steps, to, Walk::kAlone);
        if (HasFailure()) return;
      }
    }
  }
}

TEST_P(EveryPlace, AnyThunkCanBeReachedExceptFromAStraddlingCompare) {
  for (std::size_t place = 0; place < kLine; ++place) {
    SCOPED_TRACE(std::string(flavour().name) + " at " + std::to_string(place));
    set_up(place);
    const std::size_t thunk = 2 * CodeArea::kFirstFunction + 0x400 + (arch::thunk_place(ip_, shape()).value ^ 0x55);
    area_.put_thunk(thunk, offset_ + shape().length);
    const Bytes original = area_.original(flavour(), offset_);
    arch::armed_bytes(ip_, shape(), area_.address(thunk), original.data(), bytes_[2].data());
    std::memcpy(area_.at(offset_), bytes(Form::kIdle).data(), shape().length);
    PokeSteps steps;
    const bool planned = arch::plan_poke(ip_, shape(), bytes(Form::kIdle).data(), bytes(Form::kArmed).data(), steps);
    const bool straddles = (ip_ + shape().patch_offset) % 8 == 7;
    const bool is_five = shape().length - shape().patch_offset == 5 || shape().form == SiteForm::kNops;
    ASSERT_EQ(planned, !straddles || is_five);
    if (planned) walk(steps, Form::kArmed, Walk::kLive);
    if (HasFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(Forms, EveryPlace, ::testing::Range(std::size_t{0}, flavours().size()));

}  // namespace
