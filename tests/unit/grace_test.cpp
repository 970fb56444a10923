// Who is inside a handler, and waiting for exactly them.
#include "registry/grace.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <future>
#include <thread>
#include <vector>

#include "patch/text_poke.h"

namespace libfprobe::detail {
namespace {

// Participants stay enlisted for ever, so they are never destroyed.
Participant& new_participant() {
  auto* const participant = new Participant;
  grace::enlist(*participant);
  return *participant;
}

// A thread of its own that waits; `finished` tells whether it has.
class Waiter {
 public:
  template <class Wait>
  explicit Waiter(Wait wait)
      : thread_([this, wait] {
          started_ = true;
          wait();
          finished_ = true;
        }) {
    while (!started_) std::this_thread::yield();
  }
  ~Waiter() { thread_.join(); }
  [[nodiscard]] bool finished() const { return finished_; }
  void join_finished() {
    while (!finished_) std::this_thread::yield();
  }

 private:
  std::atomic<bool> started_{false}, finished_{false};
  std::thread thread_;
};

// Long enough for a wait that is wrong to end: every round of the other thread's polling passes a yield of ours.
void give_the_other_thread_every_chance() {
  for (int i = 0; i < 2'000; ++i) std::this_thread::yield();
}

class GraceTest : public ::testing::Test {
 protected:
  Site site_, other_site_;
  std::vector<const Site*> sites_{&site_};
};

TEST_F(GraceTest, ReturnsAtOnceWhenNobodyIsInside) {
  new_participant();
  grace::wait_for(sites_);
  grace::wait_for_all();
}

TEST_F(GraceTest, WaitsUntilTheGuardOfTheSiteIsClosed) {
  Participant& participant = new_participant();
  participant.guards[0].open(site_, 0);
  Waiter waiter([this] { grace::wait_for(sites_); });
  give_the_other_thread_every_chance();
  EXPECT_FALSE(waiter.finished());
  participant.guards[0].close();
  waiter.join_finished();
}

TEST_F(GraceTest, WaitsForGuardsOfNestedContextsAndAuxiliaryOnes) {
  Participant& participant = new_participant();
  for (GuardEntry& guard : participant.guards) {
    guard.open(site_, 0);
    Waiter waiter([this] { grace::wait_for(sites_); });
    give_the_other_thread_every_chance();
    EXPECT_FALSE(waiter.finished()) << "guard " << &guard - participant.guards;
    guard.close();
    waiter.join_finished();
  }
}

TEST_F(GraceTest, DoesNotWaitForHandlersOfOtherSites) {
  Participant& participant = new_participant();
  participant.guards[0].open(other_site_, 0);
  grace::wait_for(sites_);
  participant.guards[0].close();
}

TEST_F(GraceTest, IsSatisfiedByALaterHitOnTheSameSite) {
  Participant& participant = new_participant();
  participant.guards[0].open(site_, 0);
  Waiter waiter([this] { grace::wait_for(sites_); });
  give_the_other_thread_every_chance();
  EXPECT_FALSE(waiter.finished());
  // Left and came back before the waiter looked again: the sequence tells.
  participant.guards[0].open(site_, 0);
  waiter.join_finished();
  participant.guards[0].close();
}

TEST_F(GraceTest, WaitingForAllWaitsForEverySite) {
  Participant& participant = new_participant();
  participant.guards[0].open(other_site_, 0);
  Waiter waiter([] { grace::wait_for_all(); });
  give_the_other_thread_every_chance();
  EXPECT_FALSE(waiter.finished());
  participant.guards[0].close();
  waiter.join_finished();
}

TEST_F(GraceTest, NeverWaitsForTheOwnThread) {
  Participant& participant = new_participant();
  participant.guards[0].open(site_, 0);
  tls_participant = &participant;
  grace::wait_for(sites_);
  grace::wait_for_all();
  tls_participant = nullptr;
  participant.guards[0].close();
}

TEST_F(GraceTest, WaitsForReadersWithoutState) {
  std::promise<void> leave;
  std::atomic<bool> inside{false};
  std::thread reader([&] {
    const grace::AnonymousReader anonymous;
    inside = true;
    leave.get_future().wait();
  });
  while (!inside) std::this_thread::yield();
  std::vector<const Site*> busy;
  EXPECT_FALSE(grace::busy_sites(busy)) << "nothing may be freed while such a reader is inside";
  {
    Waiter waiter([this] { grace::wait_for(sites_); });
    give_the_other_thread_every_chance();
    EXPECT_FALSE(waiter.finished());
    leave.set_value();
    waiter.join_finished();
  }
  reader.join();
  EXPECT_TRUE(grace::busy_sites(busy));
}

TEST_F(GraceTest, BusySitesAreThoseInUseByAnyThreadTheOwnIncluded) {
  Participant& own = new_participant();
  Participant& other = new_participant();
  tls_participant = &own;
  own.guards[0].open(site_, 0);
  other.guards[2].open(other_site_, 0);
  std::vector<const Site*> busy;
  ASSERT_TRUE(grace::busy_sites(busy));
  std::vector<const Site*> expected{&site_, &other_site_};
  std::sort(expected.begin(), expected.end());
  EXPECT_EQ(busy, expected);
  own.guards[0].close();
  other.guards[2].close();
  tls_participant = nullptr;
  ASSERT_TRUE(grace::busy_sites(busy));
  EXPECT_TRUE(busy.empty());
}

TEST_F(GraceTest, LibraryScopeMakesTheThreadBusyButDelaysNobody) {
  Participant& own = new_participant();
  tls_participant = &own;
  {
    const grace::LibraryScope scope;
    EXPECT_TRUE(own.inside_handler()) << "probed functions called now must be recursion";
    EXPECT_GE(own.guards[0].sp, reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0)));
    { const grace::LibraryScope nested; }
    EXPECT_TRUE(own.inside_handler()) << "the inner scope must not end the outer one";
    Waiter waiter([] { grace::wait_for_all(); });
    waiter.join_finished();
    std::vector<const Site*> busy;
    ASSERT_TRUE(grace::busy_sites(busy));
    EXPECT_TRUE(busy.empty());
  }
  EXPECT_FALSE(own.inside_handler());
  tls_participant = nullptr;
}

TEST_F(GraceTest, LibraryScopeInsideAHandlerLeavesItsGuardAlone) {
  Participant& own = new_participant();
  tls_participant = &own;
  own.guards[0].open(site_, 0x1234);
  { const grace::LibraryScope scope; }
  EXPECT_EQ(own.guards[0].site.load(), &site_);
  EXPECT_EQ(own.guards[0].sp, 0x1234u);
  own.guards[0].close();
  tls_participant = nullptr;
}

TEST_F(GraceTest, AForkChildForgetsTheHandlersOfOtherThreadsOnly) {
  Participant& own = new_participant();
  Participant& other = new_participant();
  tls_participant = &own;
  own.guards[0].open(site_, 0);
  other.guards[1].open(other_site_, 0);
  other.context = &other.guards[1];
  grace::reset_after_fork();
  EXPECT_TRUE(own.inside_handler());
  EXPECT_FALSE(other.inside_handler());
  std::vector<const Site*> busy;
  ASSERT_TRUE(grace::busy_sites(busy));
  EXPECT_EQ(busy, sites_);
  own.guards[0].close();
  tls_participant = nullptr;
}

// The promise itself: what a reader found through a published pointer is not freed under it.
TEST_F(GraceTest, NoReaderSeesWhatWasFreedAfterTheWait) {
  constexpr int kAlive = 1, kFreed = 2;
  struct Object {
    std::atomic<int> state{kAlive};
  };
  prepare_barriers();
  std::atomic<Object*> published{new Object};
  std::atomic<bool> stop{false};
  std::atomic<unsigned long> reads{0}, stale{0};
  Participant& participant = new_participant();
  std::thread reader([&] {
    while (!stop) {
      participant.guards[0].open(site_, 0);
      const Object* const object = published.load(std::memory_order_acquire);
      for (int i = 0; i < 20; ++i) stale += object->state == kFreed ? 1 : 0;
      participant.guards[0].close();
      ++reads;
    }
  });
  std::vector<Object*> freed;  // really deleted after the test: a stale read must be seen, not crash
  for (int round = 0; round < 5'000 || reads < 1'000; ++round) {
    Object* const old = published.exchange(new Object);
    ASSERT_TRUE(barrier_memory());
    grace::wait_for(sites_);
    old->state = kFreed;
    freed.push_back(old);
  }
  stop = true;
  reader.join();
  EXPECT_EQ(stale, 0u);
  for (const Object* object : freed) delete object;
  delete published.load();
}

}  // namespace
}  // namespace libfprobe::detail
