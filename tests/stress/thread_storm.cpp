// Threads that live for a few calls: states and return stubs are taken, parked and used anew, more often than there are
// stubs, while probes come and go.  Every hit of every thread is seen.
#include <gtest/gtest.h>
#include <pthread.h>

#include <thread>

#include "stress/storm.h"

namespace {

using namespace storm;

#ifdef __SANITIZE_THREAD__
constexpr unsigned long kThreads = 2000;
#else
constexpr unsigned long kThreads = 10000;
#endif
constexpr unsigned kAtOnce = 8, kCallsOfAThread = 12;

struct Work {
  unsigned long first, wrong = 0, hits = 0;
  bool leave_by_pthread_exit;
};

void* call_and_go(void* argument) {
  auto& work = *static_cast<Work*>(argument);
  for (unsigned i = 0; i < kCallsOfAThread; ++i) {
    const auto index = static_cast<unsigned>((work.first + i * 31) % kFunctions);
    if (!call(index, static_cast<long>(work.first))) ++work.wrong;
    work.hits += index / kOffsets == kTailFamily ? 2 : 1;
  }
  if (work.leave_by_pthread_exit) ::pthread_exit(nullptr);
  return nullptr;
}

std::vector<unsigned long> all_addresses() {
  std::vector<unsigned long> addresses;
  for (unsigned index = 0; index < kFunctions; ++index) addresses.push_back(address_of(index));
  return addresses;
}

// Registers and unregisters while threads come and go, until told to stop.
void toggle_until(const std::atomic<bool>& done, std::atomic<unsigned long>& registrations) {
  Random random(1);
  std::vector<unsigned long> addresses = all_addresses();
  while (!done) {
    addresses.resize(1 + random.below(kFunctions));
    auto probe = std::make_unique<Probe>(static_cast<Handlers>(random.below(3)));
    if (probe->attach(addresses) == 0) ++registrations;
    if (probe->detach(random.below(2) == 0) != 0) ++failures.after_unregister;
    Probe::bury(std::move(probe));
    addresses = all_addresses();
  }
}

TEST(ThreadStorm, EveryHitOfThousandsOfShortLivedThreadsIsSeen) {
  std::vector<unsigned long> addresses = all_addresses();
  Probe probe(Handlers::kBoth);
  ASSERT_EQ(probe.attach(addresses), 0) << fprobe_last_error();
  std::atomic<bool> done{false};
  std::atomic<unsigned long> registrations{0};
  std::thread toggler([&] { toggle_until(done, registrations); });

  unsigned long hits = 0, wrong = 0, threads = 0;
  for (; threads < kThreads * scale(); threads += kAtOnce) {
    Work work[kAtOnce]{};
    pthread_t ids[kAtOnce];
    for (unsigned i = 0; i < kAtOnce; ++i) {
      work[i].first = threads + i;
      work[i].leave_by_pthread_exit = i % 2 == 0;
      ASSERT_EQ(::pthread_create(&ids[i], nullptr, call_and_go, &work[i]), 0);
    }
    for (unsigned i = 0; i < kAtOnce; ++i) {
      ::pthread_join(ids[i], nullptr);
      hits += work[i].hits;
      wrong += work[i].wrong;
    }
  }
  done = true;
  toggler.join();
  EXPECT_EQ(probe.detach(false), 0);
  std::printf("%lu threads, %lu hits, %lu registrations meanwhile\n", threads, hits, registrations.load());
  EXPECT_EQ(wrong, 0u);
  EXPECT_EQ(probe.entries(), hits);
  EXPECT_EQ(probe.exits(), hits);
  EXPECT_EQ(probe.missed(), 0u);
  EXPECT_GT(registrations, 0u);
  EXPECT_EQ(failures.sum(), 0u);
}

}  // namespace
