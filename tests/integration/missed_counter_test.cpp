// The counters of misses: reset by each way to register, final and readable when unregister has returned.
#include <fprobe/kprobes.h>

#include <string>

#include "integration/support.h"

namespace contract {
namespace {

constexpr fprobe_miss_reason kReasons[] = {FPROBE_MISS_RECURSION, FPROBE_MISS_NO_FRAME, FPROBE_MISS_KPROBE,
                                           FPROBE_MISS_DROPPED, FPROBE_MISS_THREAD};

struct Counts {
  explicit Counts(const Probe& probe) : sum(probe.nmissed) {
    for (const auto reason : kReasons) by_reason.push_back(probe.missed(reason));
  }
  bool operator==(const Counts&) const = default;
  [[nodiscard]] unsigned long added() const {
    unsigned long all = 0;
    for (const unsigned long count : by_reason) all += count;
    return all;
  }
  unsigned long sum;
  std::vector<unsigned long> by_reason;
};

TEST(MissedCounter, EveryReasonIsSetToZeroByEachWayToRegister) {
  const std::string filter = std::string(kVictimModule) + ":twice";
  unsigned long addresses[] = {site_of("twice")};
  const std::function<int(Probe&)> ways[] = {
      [](Probe& probe) { return probe.attach({"twice"}); },
      [&](Probe& probe) { return register_fprobe(&probe, filter.c_str(), nullptr); },
      [&](Probe& probe) { return register_fprobe_ips(&probe, addresses, 1); },
  };
  for (const auto& register_it : ways) {
    Probe probe;
    probe.nmissed = 77;
    for (unsigned long& count : probe.missed_by_reason) count = 77;  // private, but a struct may be used again
    ASSERT_EQ(register_it(probe), 0) << fprobe_last_error();
    for (const auto reason : kReasons) EXPECT_EQ(probe.missed(reason), 0u) << reason;
    EXPECT_EQ(probe.nmissed, 0u);
  }
}

// Four reasons, each a different number of times, on a thread of its own.
void miss_for_four_reasons() {
  kprobe_busy_begin();
  does_nothing();
  kprobe_busy_end();
  twice(1);  // 2 times recursion
  deep(10);  // 11 calls for 8 frames
  jump_round(4);
}

TEST(MissedCounter, EveryReasonStaysReadableAfterUnregister) {
  if (!in_process_with("FPROBE_SHADOW_STACK_FRAMES=8")) return;
  for (int (*const unregister)(fprobe*) : {&unregister_fprobe, &unregister_fprobe_async}) {
    Probe probe, recursive;
    probe.flags = FPROBE_FL_KPROBE_SHARED;
    recursive.on_entry = [](const Hit&) { return static_cast<int>(thrice(0) + thrice(0)); };
    ATTACH(probe, "does_nothing", "thrice", "deep", "jump_out");
    ATTACH(recursive, "twice");
    std::thread(&miss_for_four_reasons).join();
    const Counts before(probe);
    EXPECT_EQ(before.by_reason, (std::vector<unsigned long>{2, 3, 1, 4, 0}));
    EXPECT_EQ(before.sum, 10u);
    ASSERT_EQ(unregister(&probe), 0);
    EXPECT_TRUE(Counts(probe) == before);
    std::thread(&miss_for_four_reasons).join();  // nobody's any more
    EXPECT_TRUE(Counts(probe) == before);
    ASSERT_EQ(fprobe_synchronize(), 0);
  }
}

// Threads that miss all the time: what unregister leaves is final, and is the sum of its reasons.
TEST(MissedCounter, IsFinalWhenUnregisterHasReturned) {
  constexpr int kThreads = 4;
  std::atomic<bool> stop{false};
  std::atomic<unsigned long> calls[kThreads] = {};
  std::vector<std::thread> threads;
  for (auto& count : calls)
    threads.emplace_back([&] {
      for (; !stop.load(std::memory_order_relaxed); ++count) twice(1);
    });
  const auto let_each_make = [&](unsigned long more) {
    for (const auto& count : calls)
      for (const unsigned long start = count; count < start + more;) std::this_thread::yield();
  };
  for (int round = 0; round < 20; ++round) {
    Probe probe(kEntry);
    probe.on_entry = [](const Hit&) { return static_cast<int>(twice(0)); };
    EXPECT_EQ(probe.attach({"twice"}), 0) << fprobe_last_error();
    let_each_make(20);
    EXPECT_EQ(unregister_fprobe(&probe), 0);
    const Counts counts(probe);
    const unsigned long entries = probe.entries;
    let_each_make(20);
    EXPECT_TRUE(Counts(probe) == counts);
    EXPECT_EQ(probe.entries, entries);
    EXPECT_EQ(counts.sum, counts.added());
    EXPECT_EQ(counts.sum, counts.by_reason[FPROBE_MISS_RECURSION]);
    EXPECT_GT(counts.sum, 0u);
    EXPECT_LE(counts.sum, entries);
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace contract
