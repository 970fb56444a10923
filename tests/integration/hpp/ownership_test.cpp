// libfprobe::probe owns itself: moving, detaching, switching, and what a hit costs.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <new>
#include <vector>

#include "integration/hpp/victims.h"

namespace probes {

using namespace victims;

VICTIM int first_victim(int value) {
  return opaque(value) + 1;
}
VICTIM int second_victim(int value) {
  return opaque(value) + 2;
}

// Counts what the process allocates while `counts`.
std::atomic<bool> counts{false};
std::atomic<int> allocations{0};

}  // namespace probes

VICTIM FPROBE_NOTRACE void* operator new(std::size_t size) {
  if (probes::counts) ++probes::allocations;
  if (void* const memory = std::malloc(size)) return memory;
  throw std::bad_alloc();
}
VICTIM FPROBE_NOTRACE void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  if (probes::counts) ++probes::allocations;
  return std::malloc(size);
}
VICTIM FPROBE_NOTRACE void operator delete(void* memory) noexcept {
  std::free(memory);
}
VICTIM FPROBE_NOTRACE void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}

namespace {

using namespace probes;
using libfprobe::context;
using libfprobe::probe;

// Counts its calls; can be moved only.
struct Counter {
  int* count;
  std::unique_ptr<int> owned = std::make_unique<int>(1);
  void operator()(context&) { *count += *owned; }
};

// ---- ownership -----------------------------------------------------------------------------------------------------

void expect_empty(probe& probe) {
  EXPECT_FALSE(probe.attached());
  EXPECT_EQ(probe.missed(), 0U);
  EXPECT_EQ(probe.native_handle(), nullptr);
  probe.enable();
  probe.disable();
  probe.detach();
}

TEST(Empty, AcceptsEveryCall) {
  probe empty;
  expect_empty(empty);
  probe moved = std::move(empty);
  expect_empty(moved);
  moved = probe();
  expect_empty(moved);
}

TEST(Move, LeavesTheRegisteredStructWhereItIs) {
  int entries = 0;
  probe source(&first_victim, Counter{&entries}, nullptr);
  fprobe* const registered = source.native_handle();
  probe target(std::move(source));
  expect_empty(source);  // NOLINT(bugprone-use-after-move): that is the test
  EXPECT_EQ(target.native_handle(), registered);
  probe assigned;
  assigned = std::move(target);
  expect_empty(target);  // NOLINT(bugprone-use-after-move)
  EXPECT_EQ(assigned.native_handle(), registered);
  std::vector<probe> vector;
  vector.push_back(std::move(assigned));
  for (int i = 0; i < 10; ++i) vector.emplace_back();
  EXPECT_TRUE(fprobe_is_registered(registered));
  first_victim(1);
  EXPECT_EQ(entries, 1);
}

TEST(Move, ToAProbeThatHoldsAnotherDetachesThatOne) {
  int first = 0, second = 0;
  const auto owned = std::make_shared<int>(0);
  probe target(
      &first_victim, [&first, owned](context&) { ++first; }, nullptr);
  EXPECT_EQ(owned.use_count(), 2);
  target = probe(&first_victim, Counter{&second}, nullptr);
  EXPECT_EQ(owned.use_count(), 1);
  first_victim(1);
  EXPECT_EQ(first, 0);
  EXPECT_EQ(second, 1);
}

TEST(Move, ToItselfChangesNothing) {
  int entries = 0;
  probe self(&first_victim, Counter{&entries}, nullptr);
  probe& alias = self;
  self = std::move(alias);
  EXPECT_TRUE(self.attached());
  first_victim(1);
  EXPECT_EQ(entries, 1);
}

TEST(Detach, IsDoneOnceAndCountsStayReadable) {
  probe probe(
      &first_victim, [](context&) { first_victim(1); }, nullptr);
  first_victim(1);
  EXPECT_EQ(probe.missed(), 1U);
  probe.detach();
  EXPECT_FALSE(probe.attached());
  EXPECT_EQ(probe.missed(), 1U);
  EXPECT_EQ(fprobe_missed(probe.native_handle(), FPROBE_MISS_RECURSION), 1U);
  probe.detach();
}

TEST(Detach, IsWhatTheDestructorDoes) {
  int entries = 0;
  { const probe probe(&first_victim, Counter{&entries}, nullptr); }
  first_victim(1);
  EXPECT_EQ(entries, 0);
}

TEST(Detach, FollowsOneThroughTheNativeHandle) {
  int entries = 0;
  {
    probe probe(&first_victim, Counter{&entries}, nullptr);
    EXPECT_EQ(unregister_fprobe_async(probe.native_handle()), 0);
    EXPECT_FALSE(probe.attached());
  }
  first_victim(1);
  EXPECT_EQ(entries, 0);
}

TEST(Disable, IsASwitchAndMayBeUsedInsideAHandler) {
  int entries = 0;
  probe other(
      &first_victim, [&](context&) { ++entries; }, nullptr);
  other.disable();
  first_victim(1);
  EXPECT_EQ(entries, 0);
  EXPECT_TRUE(other.attached());
  other.enable();
  first_victim(1);
  EXPECT_EQ(entries, 1);

  probe own;
  int own_entries = 0;
  own = probe(
      &second_victim,
      [&](context&) {
        ++own_entries;
        own.disable();
      },
      nullptr);
  second_victim(1);
  second_victim(1);
  EXPECT_EQ(own_entries, 1);
}

TEST(Probe, IsMadeAndMovedInsideAHandler) {
  probe made;
  int entries = 0;
  const probe maker(
      &first_victim, [&](context&) { made = probe(&second_victim, Counter{&entries}, nullptr); }, nullptr);
  first_victim(1);
  second_victim(1);
  EXPECT_EQ(entries, 1);
}

// A detached probe has nothing that a handler would have to wait for.
TEST(Probe, ThatIsDetachedMayBeDestroyedInsideAHandler) {
  auto detached = std::make_unique<probe>(&second_victim, nullptr, nullptr);
  detached->detach();
  const probe destroyer(
      &first_victim, [&](context&) { detached.reset(); }, nullptr);
  first_victim(1);
  EXPECT_EQ(detached, nullptr);
}

// ---- a hit ---------------------------------------------------------------------------------------------------------

TEST(Hit, AllocatesNothing) {
  long sum = 0;
  const auto probe = probe::with_data<long>(
      &Taker<Big, int, LF, Big, const std::string&, double>::body,
      [&](context& call) {
        const auto [i, lf, big, text, d] = call.args<int, LF, Big, const std::string&, double>();
        call.data<long>() = i + lf.a + big.a[0] + static_cast<long>(text.size()) + static_cast<long>(d);
        return !call.unwound();
      },
      [&](context& call) {
        sum += call.data<long>() + call.result<Big>().a[1];
        call.set_result<Big>({{1, 2, 3}});
      });
  const std::string text = "text";
  const auto hit = [&] {
    return Taker<Big, int, LF, Big, const std::string&, double>::body(1, {2, 3}, {{4, 5, 6}}, text, 7);
  };
  hit();  // the thread's first
  counts = true;
  const Big returned = hit();
  counts = false;
  EXPECT_EQ(allocations, 0);
  EXPECT_EQ(returned, (Big{{1, 2, 3}}));
  EXPECT_EQ(sum, 2 * (1 + 2 + 4 + 4 + 7 + value_of<Big>(0).a[1]));
}

}  // namespace
