// Timer signals hit the thread wherever it stands: in probed functions, in handlers, in the library between them.  The
// signal handlers call probed functions themselves: each of their hits is a context of its own and must be seen, at
// both ends, with errno and every value as without probes.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <thread>

#include "stress/storm.h"

namespace {

using namespace storm;

constexpr unsigned long kSignals = 20000;  // of each timer
constexpr long kPeriod = 100'000;          // ns: 10 kHz

// A timer that sends `signal` to the calling thread.
class Timer {
 public:
  Timer(int signal, long period) {
    sigevent event{};
    event.sigev_notify = SIGEV_THREAD_ID;
    event.sigev_signo = signal;
    event._sigev_un._tid = static_cast<pid_t>(::syscall(SYS_gettid));
    if (::timer_create(CLOCK_MONOTONIC, &event, &timer_) != 0) std::abort();
    itimerspec times{};
    times.it_interval.tv_nsec = times.it_value.tv_nsec = period;
    if (::timer_settime(timer_, 0, &times, nullptr) != 0) std::abort();
  }
  ~Timer() { ::timer_delete(timer_); }
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;

 private:
  timer_t timer_{};
};

// Written by signal handlers and handlers of probes on one thread, read there and after it is joined.
struct Counts {
  std::atomic<unsigned long> signals[2]{}, signal_calls{0}, main_calls{0}, wrong{0};
  std::atomic<unsigned long> entries{0}, exits{0}, nested{0}, errno_changed{0};
  std::atomic<int> inside{0};  // handlers of the probe on this thread's stack
};
Counts counts;

// Takes long enough to be interrupted now and then.
void linger() {
  volatile unsigned turns = 100;
  while (turns != 0) turns = turns - 1;
}

int on_entry(fprobe*, unsigned long entry_ip, unsigned long, ftrace_regs*, void* data) {
  if (counts.inside++ > 0) ++counts.nested;
  ++counts.entries;
  *static_cast<unsigned long*>(data) = entry_ip;
  linger();
  errno = EBADMSG;
  --counts.inside;
  return 0;
}

void on_exit(fprobe*, unsigned long entry_ip, unsigned long, ftrace_regs*, void* data) {
  if (counts.inside++ > 0) ++counts.nested;
  ++counts.exits;
  if (*static_cast<unsigned long*>(data) != entry_ip) ++counts.wrong;
  linger();
  errno = ENOTSUP;
  --counts.inside;
}

void call_some(unsigned long salt, unsigned count, std::atomic<unsigned long>& calls) {
  for (unsigned i = 0; i < count; ++i) {
    errno = static_cast<int>(salt % 100 + 1);
    if (!call((static_cast<unsigned>(salt) + i * 37) % kFunctions, static_cast<long>(salt))) ++counts.wrong;
    if (errno != static_cast<int>(salt % 100 + 1)) ++counts.errno_changed;
    // A tail-calling function passes two sites.
    calls += (static_cast<unsigned>(salt) + i * 37) % kFunctions / kOffsets == kTailFamily ? 2 : 1;
  }
}

void on_signal(int number) {
  const int saved = errno;
  const unsigned long nth = counts.signals[number == SIGUSR1 ? 0 : 1]++;
  call_some(nth, 3, counts.signal_calls);
  errno = saved;
}

void install(int number, int flags) {
  struct sigaction action {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART | flags;
  ASSERT_EQ(::sigaction(number, &action, nullptr), 0);
}

bool enough_signals() {
  const unsigned long wanted = kSignals * scale();
  return counts.signals[0] >= wanted && counts.signals[1] >= wanted;
}

// `flags` for the second signal's handler: SA_ONSTACK puts it onto `stack`.
void storm_of_signals(int flags) {
  std::construct_at(&counts);  // both tests may run in one process
  std::vector<unsigned char> memory(std::size_t{1} << 16);
  stack_t stack{};
  stack.ss_sp = memory.data();
  stack.ss_size = memory.size();
  ASSERT_EQ(::sigaltstack(&stack, nullptr), 0);
  install(SIGUSR1, 0);
  install(SIGUSR2, flags);  // may interrupt the other's handler, and be interrupted

  fprobe probe{};
  probe.entry_handler = on_entry;
  probe.exit_handler = on_exit;
  probe.entry_data_size = sizeof(unsigned long);
  std::vector<unsigned long> addresses;
  for (unsigned index = 0; index < kFunctions; ++index) addresses.push_back(address_of(index));
  ASSERT_EQ(register_fprobe_ips(&probe, addresses.data(), static_cast<int>(addresses.size())), 0)
      << fprobe_last_error();
  {
    const Timer first(SIGUSR1, kPeriod), second(SIGUSR2, kPeriod + 7'000);
    for (unsigned long salt = 0; !enough_signals(); ++salt) call_some(salt, 16, counts.main_calls);
  }
  EXPECT_EQ(unregister_fprobe(&probe), 0);
  std::printf("%lu + %lu signals, %lu calls by the program, %lu by signal handlers, %lu hits inside a handler\n",
              counts.signals[0].load(), counts.signals[1].load(), counts.main_calls.load(), counts.signal_calls.load(),
              counts.nested.load());

  const unsigned long calls = counts.main_calls + counts.signal_calls;
  EXPECT_EQ(counts.wrong, 0u);
  EXPECT_EQ(counts.errno_changed, 0u);
  EXPECT_GT(counts.nested, 0u) << "no signal met a handler: this run tests nothing";
  EXPECT_EQ(counts.entries, calls);
  EXPECT_EQ(counts.exits, calls);
  EXPECT_EQ(probe.nmissed, 0u);
  for (int reason = FPROBE_MISS_RECURSION; reason <= FPROBE_MISS_THREAD; ++reason) {
    EXPECT_EQ(fprobe_missed(&probe, static_cast<fprobe_miss_reason>(reason)), 0u) << reason;
  }
}

TEST(SignalStorm, ProbesFireInSignalHandlersThatInterruptHandlers) {
  storm_of_signals(0);
}

TEST(SignalStorm, ProbesFireInSignalHandlersOnAnAlternateStack) {
  storm_of_signals(SA_ONSTACK);
}

}  // namespace
