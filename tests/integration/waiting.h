// Handlers that block and calls that wait for them, each on a thread of its own.
#ifndef FPROBE_TESTS_INTEGRATION_WAITING_H_
#define FPROBE_TESTS_INTEGRATION_WAITING_H_

#include <unistd.h>

#include <utility>

#include "integration/support.h"

namespace contract {

// A thread that is inside a handler of `probe`, called by twice(1), until `finish`.
class BlockedHandler {
 public:
  enum Where { kAtEntry, kAtExit };
  BlockedHandler(Probe& probe, Where where) {
    const auto stop = [this](const Hit&) {
      inside_.open();
      leave_.wait();
      left_.store(true, std::memory_order_relaxed);
      return 0;
    };
    if (where == kAtEntry) probe.on_entry = stop;
    if (where == kAtExit) probe.on_exit = [stop](const Hit& hit) { stop(hit); };
  }
  ~BlockedHandler() {
    if (thread_.joinable()) finish();
  }
  BlockedHandler(const BlockedHandler&) = delete;
  BlockedHandler& operator=(const BlockedHandler&) = delete;

  void start(long (*function)(long) = &twice) {
    thread_ = std::thread([this, function] { result_ = function(1); });
    inside_.wait();
  }
  void let_go() { leave_.open(); }
  [[nodiscard]] bool has_left() const { return left_.load(std::memory_order_relaxed); }
  long finish() {
    let_go();
    thread_.join();
    return result_;
  }

 private:
  Gate inside_, leave_;
  std::atomic<bool> left_{false};
  long result_ = 0;
  std::thread thread_;
};

// Runs `call`, which is to wait, on a thread of its own.
class Waiter {
 public:
  explicit Waiter(std::function<void()> call) {
    thread_ = std::thread([this, call = std::move(call)] {
      thread_id_ = gettid();
      started_.open();
      call();
      returned_ = true;
    });
    started_.wait();
  }
  void wait_until_it_sleeps_or_returns() const {
    while (!returned_ && !is_asleep(thread_id_)) std::this_thread::yield();
  }
  [[nodiscard]] bool has_returned() const { return returned_; }
  void join() { thread_.join(); }

 private:
  Gate started_;
  std::atomic<bool> returned_{false};
  pid_t thread_id_ = 0;
  std::thread thread_;
};

}  // namespace contract

#endif  // FPROBE_TESTS_INTEGRATION_WAITING_H_
