// A process forks while its threads are inside handlers and others register and unregister: the child has one thread
// and a working copy of everything.
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <thread>

#include "stress/storm.h"

namespace {

using namespace storm;

constexpr unsigned long kForks = 200;
constexpr unsigned kCallers = 3, kTogglers = 2;
constexpr unsigned kSecondsOfAChild = 60;  // a child that hangs is killed and fails the test

std::vector<unsigned long> all_addresses() {
  std::vector<unsigned long> addresses;
  for (unsigned index = 0; index < kFunctions; ++index) addresses.push_back(address_of(index));
  return addresses;
}

unsigned long call_all(unsigned long& wrong) {
  unsigned long hits = 0;
  for (unsigned index = 0; index < kFunctions; ++index) {
    if (!call(index, static_cast<long>(index))) ++wrong;
    hits += index / kOffsets == kTailFamily ? 2 : 1;
  }
  return hits;
}

// What a child does; 0 when all is well, else the number of the step that failed.
int live_as_child(Probe& inherited) {
  ::alarm(kSecondsOfAChild);
  unsigned long wrong = 0;
  const unsigned long entries = inherited.entries(), exits = inherited.exits();
  const unsigned long hits = call_all(wrong);
  if (wrong != 0) return 1;
  if (inherited.entries() - entries != hits || inherited.exits() - exits != hits) return 2;

  std::vector<unsigned long> addresses = all_addresses();
  Probe own(Handlers::kBoth);
  if (own.attach(addresses) != 0) return 3;
  const unsigned long own_hits = call_all(wrong);
  if (wrong != 0 || own.entries() != own_hits || own.exits() != own_hits || own.missed() != 0) return 4;
  if (own.detach(false) != 0) return 5;
  if (inherited.detach(true) != 0) return 6;
  call_all(wrong);
  if (wrong != 0 || own.entries() != own_hits || inherited.entries() - entries != 2 * hits) return 7;
  return failures.sum() == 0 ? 0 : 8;
}

void call_until(const std::atomic<bool>& done, std::atomic<unsigned long>& wrong_calls) {
  unsigned long wrong = 0;
  while (!done) {
    call_all(wrong);
    ::sched_yield();
  }
  wrong_calls += wrong;
}

void toggle_until(const std::atomic<bool>& done, unsigned stream, std::atomic<unsigned long>& errors) {
  Random random(stream);
  std::vector<unsigned long> addresses = all_addresses();
  while (!done) {
    addresses.resize(1 + random.below(kFunctions));
    auto probe = std::make_unique<Probe>(static_cast<Handlers>(random.below(3)));
    if (probe->attach(addresses) != 0 || probe->detach(false) != 0) ++errors;
    Probe::bury(std::move(probe));
    addresses = all_addresses();
  }
}

TEST(ForkStorm, ChildrenHaveAWorkingCopyOfEverything) {
  std::vector<unsigned long> addresses = all_addresses();
  Probe probe(Handlers::kBoth);
  ASSERT_EQ(probe.attach(addresses), 0) << fprobe_last_error();
  std::atomic<bool> done{false};
  std::atomic<unsigned long> wrong{0}, errors{0};
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < kCallers; ++i) threads.emplace_back([&] { call_until(done, wrong); });
  for (unsigned i = 0; i < kTogglers; ++i) threads.emplace_back([&, i] { toggle_until(done, i, errors); });

  unsigned long failed_steps[9]{}, killed = 0, forks = 0;
  for (; forks < kForks * scale(); ++forks) {
    const pid_t child = ::fork();
    if (child == 0) ::_exit(live_as_child(probe));
    ASSERT_GT(child, 0) << std::strerror(errno);
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    if (WIFEXITED(status) && WEXITSTATUS(status) < 9) {
      ++failed_steps[WEXITSTATUS(status)];
    } else {
      ++killed;
      ADD_FAILURE() << "a child ended with status " << status;
      break;
    }
  }
  done = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(probe.detach(false), 0);
  std::printf("%lu forks, %lu children well\n", forks, failed_steps[0]);
  for (unsigned step = 1; step < 9; ++step) EXPECT_EQ(failed_steps[step], 0u) << "step " << step;
  EXPECT_EQ(killed, 0u);
  EXPECT_EQ(wrong, 0u);
  EXPECT_EQ(errors, 0u);
  EXPECT_EQ(probe.entries(), probe.exits());
  EXPECT_EQ(failures.sum(), 0u);
}

}  // namespace
