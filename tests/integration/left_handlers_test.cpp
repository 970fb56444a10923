// Handlers that are left by longjmp: not allowed, but the thread's next hit further up its stack puts things right.
#include <fprobe/kprobes.h>

#include <csetjmp>

#include "integration/waiting.h"

namespace contract {
namespace {

thread_local jmp_buf t_target;

// Calls twice(), whose handler is to jump here; false: it returned.
[[gnu::noinline]] bool leaves_a_handler_of_twice() {
  if (setjmp(t_target) != 0) return true;
  twice(4);
  return false;
}

// A probe on twice() whose handler at that end is left.
void attach_left(Probe& probe, Ends end) {
  probe.on_entry = [end](const Hit&) -> int {
    if (end == kEntry) longjmp(t_target, 1);
    return 0;
  };
  probe.on_exit = [](const Hit&) { longjmp(t_target, 1); };
  ATTACH(probe, "twice");
}

TEST(HandlerLeftByLongjmp, TheNextHitFurtherUpTheStackRepairsTheGuardAtBothEnds) {
  for (const Ends end : {kEntry, kExit}) {
    Probe left, other;
    left.flags = FPROBE_FL_KPROBE_SHARED;
    attach_left(left, end);
    ATTACH(other, "quadruple");
    for (int round = 0; round < 100; ++round) {
      ASSERT_TRUE(leaves_a_handler_of_twice());
      ASSERT_EQ(quadruple(1), 4);
      ASSERT_FALSE(kprobe_running());
    }
    EXPECT_EQ(left.entries, 100u);
    EXPECT_EQ(other.exits, 100u);
    EXPECT_EQ(other.nmissed, 0u);
    EXPECT_EQ(unregister_fprobe(&left), 0);  // and this thread is inside no handler
  }
}

TEST(HandlerLeftByLongjmp, UnregisterWaitsUntilThatHit) {
  for (const Ends end : {kEntry, kExit}) {
    Probe left, other;
    attach_left(left, end);
    ATTACH(other, "quadruple");
    Gate has_left, may_hit;
    std::thread leaver([&] {
      EXPECT_TRUE(leaves_a_handler_of_twice());
      has_left.open();
      may_hit.wait();
      EXPECT_EQ(quadruple(1), 4);
    });
    has_left.wait();
    Waiter unregisterer([&] { EXPECT_EQ(unregister_fprobe(&left), 0); });
    unregisterer.wait_until_it_sleeps_or_returns();
    EXPECT_FALSE(unregisterer.has_returned());
    may_hit.open();
    leaver.join();
    unregisterer.join();
    EXPECT_EQ(other.exits, 1u);
  }
}

}  // namespace
}  // namespace contract
