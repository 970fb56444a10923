// What ends the process, and with which sentence.
#include <gtest/gtest.h>

#include <memory>
#include <stdexcept>

#include "integration/hpp/victims.h"

namespace deaths {

using namespace victims;

VICTIM int victim(int value) {
  return opaque(value);
}
VICTIM const int& reference_victim(const int& value) {
  if (value < 0) throw std::runtime_error("on purpose");
  return value;
}

}  // namespace deaths

namespace {

using namespace deaths;
using libfprobe::context;
using libfprobe::probe;

struct Fork : testing::Test {
  Fork() { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};
using DestroyedInsideAHandler = Fork;
using DataThatIsNotThere = Fork;
using ReferenceToNothing = Fork;
using ThrowingCallable = Fork;

TEST_F(DestroyedInsideAHandler, AnAttachedProbeEndsTheProcess) {
  EXPECT_DEATH(
      {
        std::unique_ptr<probe> own;
        own = std::make_unique<probe>(
            &victim, [&](context&) { own.reset(); }, nullptr);
        victim(1);
      },
      "libfprobe: a probe is detached or destroyed inside a handler");
}

TEST_F(DestroyedInsideAHandler, AnotherAttachedProbeEndsTheProcessToo) {
  EXPECT_DEATH(
      {
        probe other(&reference_victim, nullptr, nullptr);
        const probe own(&victim, nullptr, [&](context&) { other.detach(); });
        victim(1);
      },
      "libfprobe: a probe is detached or destroyed inside a handler");
}

TEST_F(DataThatIsNotThere, EndsTheProcess) {
  EXPECT_DEATH(
      {
        const probe without(
            &victim, [](context& call) { call.data<int>() = 1; }, [](context&) {});
        victim(1);
      },
      "libfprobe: context::data<T>\\(\\) in a probe that has no room");
  EXPECT_DEATH(
      {
        const auto small = probe::with_data<int>(
            &victim, [](context& call) { call.data<long>() = 1; }, [](context&) {});
        victim(1);
      },
      "libfprobe: context::data<T>\\(\\) in a probe that has no room");
}

TEST_F(ReferenceToNothing, EndsTheProcess) {
  EXPECT_DEATH(
      {
        const probe at_exit(&reference_victim, nullptr, [](context& call) { call.args<const int&>(); });
        reference_victim(1);
      },
      "libfprobe: context::args\\(\\) has no argument to refer to");
  EXPECT_DEATH(
      {
        const probe unwound(&reference_victim, nullptr, [](context& call) { call.result<const int&>(); });
        try {
          reference_victim(-1);
        } catch (const std::runtime_error&) {
        }
      },
      "libfprobe: context::result\\(\\) has no result to refer to");
  using Victim = Taker<void, Destroyed>;
  EXPECT_DEATH(
      {
        const probe at_exit(&Victim::body, nullptr, [](context& call) { call.args<Destroyed>(); });
        Victim::body(Destroyed(1));
      },
      "libfprobe: context::args\\(\\) has no argument to refer to");
}

TEST_F(ThrowingCallable, EndsTheProcessWithTheLibrarysMessage) {
  EXPECT_DEATH(
      {
        const probe probe(
            &victim, [](context&) { throw std::runtime_error("on purpose"); }, nullptr);
        victim(1);
      },
      "libfprobe: an exception left a handler of the probe 0x");
  EXPECT_DEATH(
      {
        const probe probe(&victim, nullptr, [](context&) { throw std::runtime_error("on purpose"); });
        victim(1);
      },
      "libfprobe: an exception left a handler of the probe 0x");
}

}  // namespace
