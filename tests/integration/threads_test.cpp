// Many threads, deep stacks, fibers.
#include <pthread.h>
#include <ucontext.h>

#include <algorithm>
#include <barrier>
#include <cerrno>
#include <memory>

#include "base/attributes.h"
#include "hot/thread_state.h"
#include "integration/support.h"

#if defined(__SANITIZE_THREAD__)
extern "C" {
void* __tsan_get_current_fiber(void);
void* __tsan_create_fiber(unsigned flags);
void __tsan_destroy_fiber(void* fiber);
void __tsan_switch_to_fiber(void* fiber, unsigned flags);
}
#endif

namespace contract {
namespace {

constexpr int kRacers = 32;

// Every thread calls `action` at the same moment; gives how often each code was returned.
template <class Action>
std::vector<int> race(const Action& action) {
  std::barrier<> start(kRacers);
  std::vector<int> codes(kRacers);
  std::vector<std::thread> threads;
  for (int i = 0; i < kRacers; ++i)
    threads.emplace_back([&, i] {
      start.arrive_and_wait();
      codes[static_cast<std::size_t>(i)] = action();
    });
  for (std::thread& thread : threads) thread.join();
  return codes;
}

TEST(Race, ThirtyTwoThreadsRegisterOneStructAndOneWins) {
  for (int round = 0; round < 20; ++round) {
    Probe probe;
    const std::vector<int> codes = race([&] { return probe.attach({"twice"}); });
    EXPECT_EQ(std::count(codes.begin(), codes.end(), 0), 1);
    EXPECT_EQ(std::count(codes.begin(), codes.end(), -EEXIST), kRacers - 1);
    twice(1);
    EXPECT_EQ(probe.entries, 1u);
    EXPECT_EQ(probe.exits, 1u);
    EXPECT_EQ(unregister_fprobe(&probe), 0);
    twice(1);
    EXPECT_EQ(probe.entries, 1u);
  }
}

TEST(Race, ThirtyTwoThreadsUnregisterOneStructAndOneWins) {
  for (int round = 0; round < 20; ++round) {
    Probe probe;
    ATTACH(probe, "twice");
    const std::vector<int> codes = race([&] { return unregister_fprobe(&probe); });
    EXPECT_EQ(std::count(codes.begin(), codes.end(), 0), 1);
    EXPECT_EQ(std::count(codes.begin(), codes.end(), -EINVAL), kRacers - 1);
  }
}

TEST(Race, ThirtyTwoStructsOnOneFunctionAllFire) {
  std::vector<std::unique_ptr<Probe>> probes;
  for (int i = 0; i < kRacers; ++i) probes.push_back(std::make_unique<Probe>());
  std::atomic<std::size_t> next{0};
  const std::vector<int> codes = race([&] { return probes[next++]->attach({"twice"}); });
  EXPECT_EQ(std::count(codes.begin(), codes.end(), 0), kRacers);
  twice(1);
  for (const auto& probe : probes) EXPECT_EQ(probe->exits, 1u);
}

// Runs `body` on a thread with a stack of that size.
void on_stack_of(std::size_t bytes, const std::function<void()>& body) {
  pthread_attr_t attributes;
  ASSERT_EQ(pthread_attr_init(&attributes), 0);
  ASSERT_EQ(pthread_attr_setstacksize(&attributes, bytes), 0);
  pthread_t thread;
  const auto run = [](void* argument) -> void* {
    (*static_cast<const std::function<void()>*>(argument))();
    return nullptr;
  };
  ASSERT_EQ(pthread_create(&thread, &attributes, run, const_cast<std::function<void()>*>(&body)), 0);
  pthread_join(thread, nullptr);
  pthread_attr_destroy(&attributes);
}

TEST(Depth, AHundredThousandCallsWithEntryAndExit) {
#if defined(__SANITIZE_THREAD__)
  const long depth = 20'000;  // its own shadow stack has 65,536 entries, and each call uses several
#else
  const long depth = 100'000;
#endif
  Probe probe;
  long wrong = 0;
  probe.entry_data_size = sizeof(long);
  probe.on_entry = [](const Hit& hit) {
    *static_cast<long*>(hit.data) = static_cast<long>(ftrace_regs_get_argument(hit.regs, 0));
    return 0;
  };
  probe.on_exit = [&](const Hit& hit) {
    wrong += *static_cast<long*>(hit.data) != static_cast<long>(ftrace_regs_get_return_value(hit.regs));
  };
  ATTACH(probe, "deep");
  on_stack_of(std::size_t{256} << 20, [=] { EXPECT_EQ(deep(depth), depth); });
  EXPECT_EQ(probe.entries, static_cast<unsigned long>(depth + 1));
  EXPECT_EQ(probe.exits, static_cast<unsigned long>(depth + 1));
  EXPECT_EQ(probe.nmissed, 0u);
  EXPECT_EQ(wrong, 0);
}

TEST(ShortThreads, TenThousandLeaveNoStateBehind) {
  constexpr unsigned long kThreads = 10'000;
  Probe probe;
  probe.entry_data_size = MAX_FPROBE_DATA_SIZE;
  ATTACH(probe, "twice");
  const auto run = [](unsigned long count) {
    for (unsigned long i = 0; i < count; i += 4) {
      std::thread threads[4];
      for (std::thread& thread : threads) thread = std::thread([] { EXPECT_EQ(twice(2), 4); });
      for (std::thread& thread : threads) thread.join();
    }
  };
  run(200);
  const unsigned states = libfprobe::detail::threads::count();
  const long before = resident_kib();
  run(kThreads - 200);
  EXPECT_EQ(probe.entries, kThreads);
  EXPECT_EQ(probe.exits, kThreads);
  EXPECT_EQ(probe.nmissed, 0u);
  // A thread that joined may not be gone for the kernel yet, so a few more states than threads are fine.
  EXPECT_LT(libfprobe::detail::threads::count(), states + 64u);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // their runtimes keep what they like
  EXPECT_LT(resident_kib() - before, 8192);
#else
  (void)before;
#endif
}

TEST(Threads, ThatComeAndGoBetweenRegistrationsUseTheSameStates) {
  const auto round = [] {
    Probe probe;
    ASSERT_EQ(probe.attach({"twice"}), 0) << fprobe_last_error();
    std::thread([] { twice(1); }).join();
    EXPECT_EQ(probe.exits, 1u);
  };
  for (int i = 0; i < 50; ++i) round();
  const unsigned states = libfprobe::detail::threads::count();
  for (int i = 0; i < 500; ++i) round();
  EXPECT_LT(libfprobe::detail::threads::count(), states + 64u);
}

TEST(Threads, ThatExistedBeforeRegistrationAreProbed) {
  Gate go;
  std::vector<std::thread> threads;
  for (int i = 0; i < 16; ++i)
    threads.emplace_back([&] {
      go.wait();
      for (int call = 0; call < 100; ++call) EXPECT_EQ(twice(2), 4);
    });
  Probe probe;
  EXPECT_EQ(probe.attach({"twice"}), 0) << fprobe_last_error();
  go.open();
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(probe.entries, 1600u);
  EXPECT_EQ(probe.exits, 1600u);
  EXPECT_EQ(probe.nmissed, 0u);
}

// A ucontext fiber that calls call_back(), which switches away in the middle.
class Fiber {
 public:
  explicit Fiber(char* stack, std::size_t size) {
    getcontext(&own_);
    own_.uc_stack.ss_sp = stack;
    own_.uc_stack.ss_size = size;
    own_.uc_link = &caller_;
    const auto self = reinterpret_cast<unsigned long>(this);
    makecontext(&own_, reinterpret_cast<void (*)()>(&Fiber::run), 2, static_cast<unsigned>(self),
                static_cast<unsigned>(self >> 32));
#if defined(__SANITIZE_THREAD__)
    fiber_ = __tsan_create_fiber(0);
#endif
  }
  ~Fiber() {
#if defined(__SANITIZE_THREAD__)
    __tsan_destroy_fiber(fiber_);
#endif
  }
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // Until it switches away or ends.
  void resume() {
#if defined(__SANITIZE_THREAD__)
    resumer_ = __tsan_get_current_fiber();
    __tsan_switch_to_fiber(fiber_, 0);
#endif
    swapcontext(&caller_, &own_);
  }
  [[nodiscard]] long result() const {
    return result_;
  }
  static constexpr long kSwitches = 3;

 private:
  // Unsanitized: ThreadSanitizer would note its end on the fiber that it switched to.
  FPROBE_UNSANITIZED static void run(unsigned low, unsigned high) {
    auto& self = *reinterpret_cast<Fiber*>(static_cast<unsigned long>(high) << 32 | low);
    self.result_ = call_back(&Fiber::switch_away, &self);
#if defined(__SANITIZE_THREAD__)
    __tsan_switch_to_fiber(self.resumer_, 0);
#endif
  }
  static long switch_away(void* argument) {
    auto& self = *static_cast<Fiber*>(argument);
    for (long i = 0; i < kSwitches; ++i) {
#if defined(__SANITIZE_THREAD__)
      __tsan_switch_to_fiber(self.resumer_, 0);
#endif
      swapcontext(&self.own_, &self.caller_);
    }
    return BlockedCall::kExpected - 1;
  }

  ucontext_t own_{}, caller_{};
  long result_ = 0;
#if defined(__SANITIZE_THREAD__)
  void *fiber_ = nullptr, *resumer_ = nullptr;
#endif
};

constexpr std::size_t kFiberStack = 512 * 1024;

// Two fibers inside the same probed function at the same time, `first` created first.
void expect_fibers(char* first_stack, char* second_stack, bool second_ends_first) {
  Probe probe;
  probe.entry_data_size = sizeof(long);
  std::vector<long> order;
  long next = 0;
  probe.on_entry = [&](const Hit& hit) {
    *static_cast<long*>(hit.data) = next++;
    return 0;
  };
  probe.on_exit = [&](const Hit& hit) { order.push_back(*static_cast<long*>(hit.data)); };
  ATTACH(probe, "call_back");
  Fiber first(first_stack, kFiberStack), second(second_stack, kFiberStack);
  first.resume();
  second.resume();
  Fiber& early = second_ends_first ? second : first;
  Fiber& late = second_ends_first ? first : second;
  early.resume();
  late.resume();
  call_back([](void*) { return 0L; }, nullptr);  // and one on the thread's own stack in between
  early.resume();
  early.resume();  // ends
  EXPECT_EQ(early.result(), BlockedCall::kExpected);
  late.resume();
  late.resume();
  EXPECT_EQ(late.result(), BlockedCall::kExpected);
  EXPECT_EQ(order, second_ends_first ? (std::vector<long>{2, 1, 0}) : (std::vector<long>{2, 0, 1}));
  EXPECT_EQ(probe.nmissed, 0u);
}

TEST(Fibers, ResumedInAndOutOfOrderOnStacksAtHigherAndLowerAddresses) {
  const auto memory = std::make_unique<char[]>(2 * kFiberStack);
  char* const low = memory.get();
  char* const high = memory.get() + kFiberStack;
  for (const bool second_ends_first : {false, true}) {
    expect_fibers(low, high, second_ends_first);
    expect_fibers(high, low, second_ends_first);
  }
}

TEST(Fibers, OnStacksThatAreLocalArraysDropNoLiveFrame) {
  on_stack_of(std::size_t{16} << 20, [] {
    char memory[2 * kFiberStack];
    for (const bool second_ends_first : {false, true}) {
      expect_fibers(memory, memory + kFiberStack, second_ends_first);
      expect_fibers(memory + kFiberStack, memory, second_ends_first);
    }
  });
}

TEST(Fibers, AFiberStartedOnOneThreadMayFinishOnAnother) {
  const auto memory = std::make_unique<char[]>(kFiberStack);
  Probe probe;
  ATTACH(probe, "call_back");
  Fiber fiber(memory.get(), kFiberStack);
  std::thread([&] { fiber.resume(); }).join();
  for (long i = 0; i < Fiber::kSwitches; ++i) fiber.resume();
  EXPECT_EQ(fiber.result(), BlockedCall::kExpected);
  EXPECT_EQ(probe.exits, 1u);
  EXPECT_EQ(probe.nmissed, 0u);
  // The first thread's state is used by later threads.
  std::thread([] { EXPECT_EQ(call_back([](void*) { return 0L; }, nullptr), 1); }).join();
  EXPECT_EQ(probe.exits, 2u);
}

TEST(Fibers, AThousandAbandonedInsideAProbedFunctionLeaveOthersRight) {
  const auto memory = std::make_unique<char[]>(kFiberStack);
  Probe probe;
  ATTACH(probe, "call_back");
  for (unsigned long round = 1; round <= 1000; ++round) {
    Fiber fiber(memory.get(), kFiberStack);  // the same stack again and again
    fiber.resume();
    ASSERT_EQ(call_back([](void*) { return 0L; }, nullptr), 1);
    ASSERT_EQ(probe.exits, round);
  }
}

}  // namespace
}  // namespace contract
