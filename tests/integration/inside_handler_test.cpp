// What may be called inside a handler, and what is refused there.
#include <cerrno>

#include "integration/support.h"

namespace contract {
namespace {

// Runs `action` inside a handler at either end of twice(1); gives what it returned.
template <class Action>
int inside_handler(Ends end, const Action& action) {
  Probe probe(end);
  int result = -12345;
  probe.on_entry = [&](const Hit&) {
    result = action();
    return 0;
  };
  probe.on_exit = [&](const Hit&) { result = action(); };
  EXPECT_EQ(probe.attach({"twice"}), 0);
  EXPECT_EQ(twice(1), 2);
  return result;
}

TEST(InsideAHandler, UnregisterIsRefusedAtBothEnds) {
  for (const Ends end : {kEntry, kExit}) {
    Probe other;
    ATTACH(other, "thrice");
    EXPECT_EQ(inside_handler(end, [&] { return unregister_fprobe(&other); }), -EDEADLK);
    EXPECT_TRUE(fprobe_is_registered(&other));
    EXPECT_EQ(inside_handler(end, [&] { return unregister_fprobe(nullptr); }), -EINVAL);
    Probe unregistered;
    EXPECT_EQ(inside_handler(end, [&] { return unregister_fprobe(&unregistered); }), -EINVAL);
  }
}

TEST(InsideAHandler, UnregisteringItsOwnProbeIsRefused) {
  static int result;
  Probe probe(kEntry);
  probe.on_entry = [](const Hit& hit) {
    result = unregister_fprobe(hit.probe);
    return 0;
  };
  ATTACH(probe, "twice");
  EXPECT_EQ(twice(1), 2);
  EXPECT_EQ(result, -EDEADLK);
  EXPECT_TRUE(fprobe_is_registered(&probe));
}

TEST(InsideAHandler, SynchronizeIsRefusedAtBothEnds) {
  for (const Ends end : {kEntry, kExit}) EXPECT_EQ(inside_handler(end, [] { return fprobe_synchronize(); }), -EDEADLK);
}

TEST(InsideAHandler, RegisteringAnotherProbeWorksAtBothEnds) {
  for (const Ends end : {kEntry, kExit}) {
    Probe other;
    EXPECT_EQ(inside_handler(end, [&] { return other.attach({"thrice"}); }), 0);
    EXPECT_EQ(thrice(1), 3);
    EXPECT_EQ(other.exits, 1u);
  }
}

TEST(InsideAHandler, RegisteringOnTheFunctionBeingProbedTakesEffectAtTheNextCall) {
  Probe other;
  EXPECT_EQ(inside_handler(kEntry, [&] { return other.attach({"twice"}); }), 0);
  EXPECT_EQ(other.entries, 0u);
  EXPECT_EQ(twice(1), 2);
  EXPECT_EQ(other.entries, 1u);
  EXPECT_EQ(other.exits, 1u);
}

TEST(InsideAHandler, UnregisterAsyncOfAnotherProbeWorksAtBothEnds) {
  for (const Ends end : {kEntry, kExit}) {
    Probe other;
    ATTACH(other, "thrice");
    EXPECT_EQ(inside_handler(end, [&] { return unregister_fprobe_async(&other); }), 0);
    EXPECT_FALSE(fprobe_is_registered(&other));
    EXPECT_EQ(fprobe_synchronize(), 0);
    thrice(1);
    EXPECT_EQ(other.entries, 0u);
  }
}

TEST(InsideAHandler, UnregisterAsyncOfItsOwnProbeEndsItWithThisCallsEntry) {
  Probe probe;
  probe.on_entry = [](const Hit& hit) {
    EXPECT_EQ(unregister_fprobe_async(hit.probe), 0);
    return 0;
  };
  ATTACH(probe, "twice");
  EXPECT_EQ(twice(1), 2);
  EXPECT_EQ(twice(1), 2);
  EXPECT_EQ(probe.entries, 1u);
  EXPECT_EQ(probe.exits, 0u);
  EXPECT_EQ(probe.nmissed, 0u);
  EXPECT_EQ(fprobe_synchronize(), 0);
}

TEST(InsideAHandler, AnOlderProbeUnregisteredByANewerOneDoesNotRunAnyMore) {
  Probe older, newer;
  newer.on_entry = [&](const Hit&) {
    if (fprobe_is_registered(&older)) {
      EXPECT_EQ(unregister_fprobe_async(&older), 0);
    }
    return 0;
  };
  ATTACH(older, "twice");
  ATTACH(newer, "twice");
  EXPECT_EQ(twice(1), 2);
  EXPECT_EQ(older.entries, 0u);
  EXPECT_EQ(older.exits, 0u);
  EXPECT_EQ(newer.exits, 1u);
}

TEST(InsideAHandler, DisableOfItsOwnProbeAtEntryCancelsTheExit) {
  Probe probe;
  probe.on_entry = [](const Hit& hit) {
    disable_fprobe(hit.probe);
    return 0;
  };
  ATTACH(probe, "twice");
  EXPECT_EQ(twice(1), 2);
  EXPECT_EQ(probe.exits, 0u);
  EXPECT_EQ(probe.nmissed, 0u);
  enable_fprobe(&probe);
  EXPECT_EQ(twice(1), 2);
  EXPECT_EQ(probe.entries, 2u);
}

TEST(InsideAHandler, EnableOfAnotherProbeWorks) {
  Probe other;
  disable_fprobe(&other);
  ATTACH(other, "thrice");
  inside_handler(kExit, [&] {
    enable_fprobe(&other);
    return 0;
  });
  thrice(1);
  EXPECT_EQ(other.exits, 1u);
}

}  // namespace
}  // namespace contract
