// After fork the child has its own, working copy of everything, and the parent is none the wiser.
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "integration/support.h"

namespace contract {
namespace {

#define REQUIRE(condition) \
  if (!(condition)) return __LINE__ % 200 + 1

TEST(Fork, TheChildKeepsTracing) {
  Probe probe;
  ATTACH(probe, "twice");
  twice(1);
  EXPECT_CHILD_SUCCEEDS([&] {
    REQUIRE(twice(2) == 4);
    REQUIRE(probe.entries == 2 && probe.exits == 2);
    return 0;
  });
  EXPECT_EQ(probe.entries, 1u);
}

TEST(Fork, TheChildUnregistersAndTheParentIsUnharmed) {
  Probe probe;
  ATTACH(probe, "twice");
  EXPECT_CHILD_SUCCEEDS([&] {
    REQUIRE(unregister_fprobe(&probe) == 0);
    REQUIRE(twice(2) == 4);
    REQUIRE(probe.entries == 0);
    REQUIRE(unregister_fprobe(&probe) == -EINVAL);
    return 0;
  });
  EXPECT_TRUE(fprobe_is_registered(&probe));
  EXPECT_EQ(twice(2), 4);
  EXPECT_EQ(probe.exits, 1u);
  EXPECT_EQ(unregister_fprobe(&probe), 0);
}

TEST(Fork, TheParentUnregistersAndTheChildIsUnharmed) {
  Probe probe;
  ATTACH(probe, "twice");
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  if (child == 0) {
    char byte;
    close(ready[1]);
    if (read(ready[0], &byte, 1) != 1) _exit(1);
    _exit(twice(2) == 4 && probe.exits == 1 && unregister_fprobe(&probe) == 0 ? 0 : 2);
  }
  EXPECT_EQ(unregister_fprobe(&probe), 0);
  EXPECT_EQ(write(ready[1], "x", 1), 1);
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  close(ready[0]);
  close(ready[1]);
}

TEST(Fork, TheChildRegistersNewProbes) {
  Probe probe;
  EXPECT_CHILD_SUCCEEDS([&] {
    REQUIRE(probe.attach({"twice"}) == 0);
    REQUIRE(twice(2) == 4);
    REQUIRE(probe.exits == 1);
    REQUIRE(unregister_fprobe(&probe) == 0);
    return 0;
  });
  EXPECT_FALSE(fprobe_is_registered(&probe));
  EXPECT_EQ(twice(2), 4);
  EXPECT_EQ(probe.entries, 0u);
}

long fork_here(void*) {
  const pid_t child = fork();
  if (child == 0) return 100;
  int status = -1;
  return waitpid(child, &status, 0) == child && status == 0 ? 0 : 1000;
}

TEST(Fork, InsideAProbedFunctionReturnsRightInBoth) {
  Probe probe;
  ATTACH(probe, "call_back");
  const pid_t parent = getpid();
  const long result = call_back(&fork_here, nullptr);
  if (getpid() != parent) _exit(result == 101 && probe.exits == 1 ? 0 : 1);
  EXPECT_EQ(result, 1);
  EXPECT_EQ(probe.exits, 1u);
}

TEST(Fork, OfAParentWithAThreadInAProbedFunctionLeavesTheChildWhole) {
  Probe probe;
  ATTACH(probe, "call_back", "twice");
  BlockedCall call;
  EXPECT_CHILD_SUCCEEDS([&] {
    REQUIRE(twice(2) == 4);
    REQUIRE(probe.exits == 1);
    REQUIRE(unregister_fprobe(&probe) == 0);
    REQUIRE(probe.attach({"twice"}) == 0);
    REQUIRE(twice(2) == 4);
    REQUIRE(probe.exits == 2);
    return 0;
  });
  EXPECT_EQ(call.finish(), BlockedCall::kExpected);
  EXPECT_EQ(probe.exits, 1u);
}

TEST(Fork, TheChildDoesNotWaitForHandlersOfThreadsItDoesNotHave) {
  Probe probe(kEntry);
  Gate inside, leave;
  probe.on_entry = [&](const Hit&) {
    inside.open();
    leave.wait();
    return 0;
  };
  ATTACH(probe, "twice");
  std::thread blocked([] { twice(1); });
  inside.wait();
  EXPECT_CHILD_SUCCEEDS([&] {
    REQUIRE(unregister_fprobe(&probe) == 0);  // would wait for ever
    REQUIRE(fprobe_synchronize() == 0);
    return 0;
  });
  leave.open();
  blocked.join();
  EXPECT_EQ(unregister_fprobe(&probe), 0);
}

// Other threads register and unregister all the time: the lock is never inherited held.
// A sanitizer's allocator does not survive a fork while another thread is inside it.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST(Fork, WhileOtherThreadsRegisterAndUnregister) {
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (const char* const name : {"thrice", "quadruple"})
    threads.emplace_back([&stop, name] {
      Probe probe;
      while (!stop.load(std::memory_order_relaxed)) {
        EXPECT_EQ(probe.attach({name}), 0);
        EXPECT_EQ(unregister_fprobe(&probe), 0);
      }
    });
  for (int round = 0; round < 30; ++round) {
    Probe probe;
    EXPECT_CHILD_SUCCEEDS([&] {
      REQUIRE(probe.attach({"twice"}) == 0);
      REQUIRE(twice(2) == 4);
      REQUIRE(probe.exits == 1);
      REQUIRE(unregister_fprobe(&probe) == 0);
      return 0;
    });
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
}
#endif

TEST(Fork, OfAForkKeepsTracing) {
  Probe probe;
  ATTACH(probe, "twice");
  EXPECT_CHILD_SUCCEEDS([&] {
    return status_of_fork_child([&] {
      REQUIRE(twice(2) == 4);
      REQUIRE(probe.exits == 1);
      REQUIRE(unregister_fprobe(&probe) == 0);
      return 0;
    });
  });
}

}  // namespace
}  // namespace contract
