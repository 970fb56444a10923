// What ends the process, and what it says then.
#include <sstream>
#include <stdexcept>

#include "integration/support.h"

namespace contract {
namespace {

std::string hexadecimal(const void* address) {
  std::ostringstream text;
  text << address;
  return text.str();
}

TEST(ExceptionLeavingAHandler, EndsTheProcessWithAMessageThatNamesTheProbeAtEntry) {
  Probe probe;
  probe.on_entry = [](const Hit&) -> int { throw std::runtime_error("not allowed"); };
  ATTACH(probe, "twice");
  const fprobe* const named = &probe;
  EXPECT_DEATH(twice(1), "libfprobe: .*handler.*" + hexadecimal(named));
}

TEST(ExceptionLeavingAHandler, EndsTheProcessWithAMessageThatNamesTheProbeAtExit) {
  Probe probe;
  probe.on_exit = [](const Hit&) { throw std::runtime_error("not allowed"); };
  ATTACH(probe, "twice");
  const fprobe* const named = &probe;
  EXPECT_DEATH(twice(1), "libfprobe: .*handler.*" + hexadecimal(named));
}

TEST(ExceptionLeavingAHandler, EvenWhenTheCallerWouldCatchIt) {
  Probe probe;
  probe.on_entry = [](const Hit&) -> int { throw 1; };
  ATTACH(probe, "twice");
  EXPECT_DEATH(
      {
        try {
          twice(1);
        } catch (...) {
        }
      },
      "libfprobe: .*handler");
}

TEST(ExceptionInsideAHandler, MayBeCaughtThere) {
  Probe probe;
  int caught = 0;
  const auto throw_and_catch = [&](const Hit&) {
    try {
      throw std::runtime_error("fine");
    } catch (const std::exception&) {
      ++caught;
    }
    return 0;
  };
  probe.on_entry = throw_and_catch;
  probe.on_exit = [&](const Hit& hit) { throw_and_catch(hit); };
  ATTACH(probe, "twice");
  EXPECT_EQ(twice(1), 2);
  EXPECT_EQ(caught, 2);
}

}  // namespace
}  // namespace contract
