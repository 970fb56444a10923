// Threads call functions with sites at all 64 offsets of a cache line while others register and unregister probes on
// them: every call returns the right value, every hit of a probe that stays is seen, no handler runs after
// unregister_fprobe returned, and no signal handler of ours is involved.
//
// The functions fall into three classes by (index + phase) % 3, so that each is in each class once:
//   0  one thread's own: each registration arms idle sites, each unregistration disarms them (text changes: "toggles")
//   1  all togglers choose among them: probes overlap
//   2  likewise, under a probe that stays: lists change, the text does not
#include <gtest/gtest.h>
#include <sched.h>

#include <barrier>
#include <cstring>
#include <thread>

#include "stress/storm.h"

namespace {

using namespace storm;

constexpr unsigned kCallers = 8, kTogglers = 3, kClasses = 3;
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)  // many times slower
constexpr unsigned long kRegistrations = 150;                      // of each toggler in each phase
#else
constexpr unsigned long kRegistrations = 1000;
#endif
constexpr unsigned long kWantedToggles = 20000;

extern "C" const unsigned char storm_text[], storm_text_end[];

struct Calls {
  std::array<unsigned long, kFunctions> by_function{};
  unsigned long wrong = 0;
};

class Phase {
 public:
  explicit Phase(unsigned number) : number_(number) {}

  void run();

  [[nodiscard]] const Calls& calls() const { return calls_; }
  [[nodiscard]] unsigned long toggles() const { return toggles_; }
  [[nodiscard]] unsigned long registrations() const { return registrations_; }

 private:
  [[nodiscard]] unsigned class_of(unsigned index) const { return (index + number_) % kClasses; }
  void call_until_done(Calls& calls);
  void toggle(unsigned toggler);
  std::vector<unsigned long> choose(Random& random, unsigned toggler, bool own) const;
  void check_lasting_probe(const Probe& probe) const;

  unsigned number_;
  std::barrier<> start_{kCallers + kTogglers};
  std::atomic<bool> done_{false};
  std::atomic<unsigned long> toggles_{0}, registrations_{0}, errors_{0};
  Calls calls_;
};

void Phase::call_until_done(Calls& calls) {
  start_.arrive_and_wait();
  long salt = 1;
  while (!done_.load(std::memory_order_relaxed)) {
    for (unsigned index = 0; index < kFunctions; ++index) {
      if (!call(index, salt++)) ++calls.wrong;
      ++calls.by_function[index];
    }
    // More threads than processors: most changes of threads should not fall into a handler, where they would hold up
    // every unregistration for a round of time slices.
    ::sched_yield();
  }
}

// Own functions: a contiguous third of class 0, whole or in part.  Others: any of the classes 1 and 2.
std::vector<unsigned long> Phase::choose(Random& random, unsigned toggler, bool own) const {
  std::vector<unsigned long> chosen;
  const unsigned share = 1 + random.below(8);  // one in `share`
  for (unsigned index = 0; index < kFunctions; ++index) {
    const bool is_own = class_of(index) == 0 && index / kClasses % kTogglers == toggler;
    const bool is_candidate = own ? is_own : class_of(index) != 0;
    if (is_candidate && random.below(share) == 0) chosen.push_back(address_of(index));
  }
  return chosen;
}

void Phase::toggle(unsigned toggler) {
  Random random(number_ * kTogglers + toggler);
  start_.arrive_and_wait();
  for (unsigned long i = 0; i < kRegistrations * scale(); ++i) {
    const bool own = i % 2 == 0;
    std::vector<unsigned long> addresses = choose(random, toggler, own);
    if (addresses.empty()) continue;
    auto probe = std::make_unique<Probe>(static_cast<Handlers>(random.below(3)));
    // Now and then the same struct twice: frames of its first life are still in flight in its second.
    for (unsigned lives = 1 + random.below(2); lives > 0; --lives) {
      if (probe->attach(addresses) != 0) ++errors_;
      for (unsigned turns = random.below(4); turns > 0; --turns) ::sched_yield();
      if (probe->detach(random.below(4) == 0) != 0) ++errors_;
      ++registrations_;
      if (own) toggles_ += 2 * addresses.size();
    }
    if (probe->missed() != 0) ++errors_;
    Probe::bury(std::move(probe));
  }
}

// It was there before the first call and after the last: it saw each of them, at both ends.
void Phase::check_lasting_probe(const Probe& probe) const {
  unsigned long hits = 0;
  for (unsigned index = 0; index < kFunctions; ++index) {
    if (class_of(index) == 2) hits += calls_.by_function[index];
    if (index / kOffsets == kTailFamily && class_of(index % kOffsets) == 2) hits += calls_.by_function[index];
  }
  EXPECT_EQ(probe.entries(), hits);
  EXPECT_EQ(probe.exits(), hits);
  EXPECT_EQ(probe.missed(), 0u);
}

void Phase::run() {
  std::vector<unsigned long> lasting;
  for (unsigned index = 0; index < kFunctions; ++index) {
    if (class_of(index) == 2) lasting.push_back(address_of(index));
  }
  Probe probe(Handlers::kBoth);
  ASSERT_EQ(probe.attach(lasting), 0) << fprobe_last_error();

  std::vector<Calls> calls(kCallers);
  std::vector<std::thread> callers, togglers;
  for (unsigned i = 0; i < kCallers; ++i) callers.emplace_back([&, i] { call_until_done(calls[i]); });
  for (unsigned i = 0; i < kTogglers; ++i) togglers.emplace_back([&, i] { toggle(i); });
  for (std::thread& thread : togglers) thread.join();
  done_ = true;
  for (std::thread& thread : callers) thread.join();
  EXPECT_EQ(probe.detach(false), 0);

  for (const Calls& one : calls) {
    calls_.wrong += one.wrong;
    for (unsigned index = 0; index < kFunctions; ++index) calls_.by_function[index] += one.by_function[index];
  }
  EXPECT_EQ(calls_.wrong, 0u);
  EXPECT_EQ(errors_, 0u) << "registrations that failed or missed hits; " << fprobe_last_error();
  check_lasting_probe(probe);
}

// Prints the hits of each offset, all families together; each function must have been hit at both ends.
void check_hits() {
  std::printf("hits per offset (entry + exit):\n");
  for (unsigned offset = 0; offset < kOffsets; ++offset) {
    unsigned long hits = 0;
    for (unsigned family = 0; family < kFamilies; ++family) {
      const unsigned index = family * kOffsets + offset;
      EXPECT_GT(entry_hits[index], 0u) << kFamilyNames[family] << " at offset " << offset;
      EXPECT_GT(exit_hits[index], 0u) << kFamilyNames[family] << " at offset " << offset;
      hits += entry_hits[index] + exit_hits[index];
    }
    std::printf("%3u:%-9lu%s", offset, hits, offset % 8 == 7 ? "\n" : "");
  }
}

TEST(PatchStorm, EveryCallReturnsRightWhileSitesAtAllOffsetsComeAndGo) {
  std::thread([] {}).join();  // the C library catches a signal of its own from the first thread on
  const std::string signals = signal_state();
  const std::vector<unsigned char> text(storm_text, storm_text_end);

  unsigned long calls = 0, toggles = 0, registrations = 0;
  for (unsigned number = 0; number < kClasses; ++number) {
    Phase phase(number);
    phase.run();
    for (const unsigned long count : phase.calls().by_function) calls += count;
    toggles += phase.toggles();
    registrations += phase.registrations();
  }

  std::printf("seed %llu: %lu toggles of a site, %lu registrations, %lu calls meanwhile\n",
              static_cast<unsigned long long>(seed()), toggles, registrations, calls);
  check_hits();
  EXPECT_GE(toggles, kWantedToggles);
  EXPECT_EQ(failures.after_unregister, 0u);
  EXPECT_EQ(failures.foreign_site, 0u);
  EXPECT_EQ(failures.wrong_data, 0u);
  EXPECT_EQ(failures.wrong_result, 0u);
  EXPECT_EQ(signal_state(), signals);
  EXPECT_EQ(std::memcmp(text.data(), storm_text, text.size()), 0) << "the text is not what it was before";
}

}  // namespace
