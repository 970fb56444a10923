// The unregister promise at every single instruction of a hit.
//
// A thread runs one call of a probed function step by step (the trap flag; SIGTRAP comes after each instruction) and
// stops at instruction k.  Meanwhile another thread unregisters the probe.  Either that returns while the first one
// stands there, and then no handler may run when it goes on; or it waits, and then the first one may go on.  For every
// k until the call has no more instructions.
#include <signal.h>
#include <ucontext.h>
#include <unistd.h>

#include <memory>

#include "integration/support.h"

namespace contract {
namespace {

constexpr unsigned long kTrapFlag = 0x100;

// One call, stopped once.
class SteppedCall {
 public:
  explicit SteppedCall(long stop_at) : stop_at_(stop_at) {
    probe_.on_entry = [this](const Hit&) { return note_handler(); };
    probe_.on_exit = [this](const Hit&) { note_handler(); };
  }

  // False: the call had fewer instructions.
  bool run() {
    EXPECT_EQ(probe_.attach({"twice"}), 0) << fprobe_last_error();
    std::thread unregisterer([this] {
      thread_id_ = gettid();
      may_unregister_.wait();
      EXPECT_EQ(unregister_fprobe(&probe_), 0);
      unregistered_ = true;
    });
    current_ = this;
    asm volatile("pushfq\n\torq %0, (%%rsp)\n\tpopfq" : : "i"(kTrapFlag) : "memory", "cc");
    const long result = twice(21);
    asm volatile("pushfq\n\tandq %0, (%%rsp)\n\tpopfq" : : "i"(~kTrapFlag) : "memory", "cc");
    current_ = nullptr;
    EXPECT_EQ(result, 42);
    may_unregister_.open();
    unregisterer.join();
    EXPECT_EQ(handlers_after_unregister_, 0) << "stopped at instruction " << stop_at_;
    return has_stopped_;
  }

  static void on_trap(int, siginfo_t*, void* context) {
    SteppedCall* const self = current_;
    unsigned long& flags =
        reinterpret_cast<unsigned long*>(static_cast<ucontext_t*>(context)->uc_mcontext.gregs)[REG_EFL];
    if (self == nullptr || self->has_stopped_) {
      flags &= ~kTrapFlag;
      return;
    }
    if (++self->step_ < self->stop_at_) return;
    flags &= ~kTrapFlag;
    self->has_stopped_ = true;
    self->may_unregister_.open();
    while (!self->unregistered_ && (fprobe_is_registered(&self->probe_) || !is_asleep(self->thread_id_)))
      std::this_thread::yield();
  }

 private:
  int note_handler() {
    if (unregistered_) ++handlers_after_unregister_;
    return 0;
  }

  static SteppedCall* current_;
  const long stop_at_;
  long step_ = 0;
  bool has_stopped_ = false;
  int handlers_after_unregister_ = 0;
  Gate may_unregister_;
  std::atomic<bool> unregistered_{false};
  std::atomic<pid_t> thread_id_{0};
  Probe probe_;
};

SteppedCall* SteppedCall::current_ = nullptr;

TEST(Unregister, KeepsItsPromiseAtEveryInstructionOfAHit) {
  struct sigaction action {
  }, before{};
  action.sa_sigaction = &SteppedCall::on_trap;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGTRAP, &action, &before);
  long instruction = 1;
  while (SteppedCall(instruction).run() && !HasFailure()) ++instruction;
  sigaction(SIGTRAP, &before, nullptr);
  EXPECT_GT(instruction, 100);  // both halves of the hit
}

}  // namespace
}  // namespace contract
