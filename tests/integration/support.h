// What the contract tests share: a probe that counts and calls lambdas, gates for threads to meet at, calls that stop
// halfway, and a way to run the same test again in a process with another environment.
#ifndef FPROBE_TESTS_INTEGRATION_SUPPORT_H_
#define FPROBE_TESTS_INTEGRATION_SUPPORT_H_

#include <fprobe/fprobe.h>
#include <gtest/gtest.h>
#include <sys/types.h>

#include <atomic>
#include <functional>
#include <initializer_list>
#include <string>
#include <thread>
#include <vector>

#include "integration/victims.h"

namespace contract {

// Of variant.cpp, which is compiled for each form of the victims.
extern const char* const kVictimModule;  // file name of the module that holds them
extern const bool kVictimsAreShared;     // they lie in a shared object
extern const bool kTextIsWritten;        // false: sites stay live calls (refused_text.cpp)

// The arguments of a handler.
struct Hit {
  fprobe* probe;
  unsigned long entry_ip, ret_ip;
  ftrace_regs* regs;
  void* data;
};

enum Ends : unsigned { kEntry = 1, kExit = 2, kBoth = 3 };

// Counts its handlers' calls and runs `on_entry` and `on_exit`, which must not change while it is registered.
struct Probe : fprobe {
  explicit Probe(Ends ends = kBoth) : fprobe{} {
    if ((ends & kEntry) != 0) entry_handler = &Probe::enter;
    if ((ends & kExit) != 0) exit_handler = &Probe::leave;
  }
  Probe(const Probe&) = delete;
  Probe& operator=(const Probe&) = delete;
  ~Probe() {
    if (fprobe_is_registered(this)) unregister_fprobe(this);
  }

  std::function<int(const Hit&)> on_entry;
  std::function<void(const Hit&)> on_exit;
  std::atomic<unsigned long> entries{0}, exits{0};

  int attach(std::initializer_list<const char*> names) {
    std::vector<const char*> array(names);
    return register_fprobe_syms(this, array.data(), static_cast<int>(array.size()));
  }
  unsigned long missed(fprobe_miss_reason reason) const { return fprobe_missed(this, reason); }

 private:
  static int enter(fprobe* fp, unsigned long entry_ip, unsigned long ret_ip, ftrace_regs* regs, void* data) {
    auto& self = static_cast<Probe&>(*fp);
    self.entries.fetch_add(1, std::memory_order_relaxed);
    return self.on_entry ? self.on_entry({fp, entry_ip, ret_ip, regs, data}) : 0;
  }
  static void leave(fprobe* fp, unsigned long entry_ip, unsigned long ret_ip, ftrace_regs* regs, void* data) {
    auto& self = static_cast<Probe&>(*fp);
    self.exits.fetch_add(1, std::memory_order_relaxed);
    if (self.on_exit) self.on_exit({fp, entry_ip, ret_ip, regs, data});
  }
};

// Registers by names; the test ends when that fails.
#define ATTACH(probe, ...) ASSERT_EQ((probe).attach({__VA_ARGS__}), 0) << fprobe_last_error()

// Opens once.
class Gate {
 public:
  void open() noexcept {
    is_open_.store(1, std::memory_order_release);
    is_open_.notify_all();
  }
  void wait() const noexcept { is_open_.wait(0, std::memory_order_acquire); }
  [[nodiscard]] bool is_open() const noexcept { return is_open_.load(std::memory_order_acquire) != 0; }

 private:
  std::atomic<int> is_open_{0};
};

// A thread that is inside call_back(), a probed function, until `finish`.
class BlockedCall {
 public:
  BlockedCall() : thread_([this] { result_ = call_back(&BlockedCall::stop, this); }) { inside_.wait(); }
  ~BlockedCall() {
    if (thread_.joinable()) finish();
  }
  BlockedCall(const BlockedCall&) = delete;
  BlockedCall& operator=(const BlockedCall&) = delete;

  static constexpr long kExpected = 42;
  // What the call returned.
  long finish() {
    leave_.open();
    thread_.join();
    return result_;
  }

 private:
  static long stop(void* self) {
    static_cast<BlockedCall*>(self)->inside_.open();
    static_cast<BlockedCall*>(self)->leave_.wait();
    return kExpected - 1;
  }
  Gate inside_, leave_;
  long result_ = 0;
  std::thread thread_;
};

inline unsigned long address_of(const void* function) {
  return reinterpret_cast<unsigned long>(function);
}
template <class R, class... A>
unsigned long address_of(R (*function)(A...)) {
  return reinterpret_cast<unsigned long>(reinterpret_cast<const void*>(function));
}

// The entry_ip of the function with this linkage name in the victims' module, 0 if it has no site.
unsigned long site_of(const char* symbol);
// The first byte of that victim, as its site tells.
unsigned long first_byte_of(const char* symbol);
// Every entry_ip of the victims' module.
std::vector<unsigned long> sites_of_victims();

// Resident memory of the process in KiB.
long resident_kib();

// Whether a thread of this process sleeps, which tells one that waits from one that is about to return.
// Async-signal-safe.
bool is_asleep(pid_t thread);

// Runs the current test again in a process of its own, with `assignment` ("NAME=value") in its environment.  True: this
// is that process, go on.  False: it has run, and its failure is this test's.
bool in_process_with(const char* assignment);

// Runs `body` in a fork child, which ends with what `body` returns; gives the child's wait status.
int status_of_fork_child(const std::function<int()>& body);
// Ends with exit status 0.
#define EXPECT_CHILD_SUCCEEDS(...) EXPECT_EQ(::contract::status_of_fork_child(__VA_ARGS__), 0)

}  // namespace contract

#endif  // FPROBE_TESTS_INTEGRATION_SUPPORT_H_
