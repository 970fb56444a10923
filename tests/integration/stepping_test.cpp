// The promises that hold at every single instruction of a hit: unregister's, and that a hit may be interrupted anywhere.
//
// Unregister: a thread runs one call of a probed function step by step (the trap flag; SIGTRAP comes after each instruction) and
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

// A signal comes after each instruction of a call, and its handler calls a probed function.
class InterruptedCall {
 public:
  InterruptedCall() {
    // Handlers of some length, with a hit of their own that is recursion.
    outer_.on_entry = [](const Hit&) { return static_cast<int>(twice(0)); };
    outer_.on_exit = [](const Hit&) { twice(0); };
    EXPECT_EQ(outer_.attach({"twice"}), 0) << fprobe_last_error();
    EXPECT_EQ(inner_.attach({"thrice"}), 0) << fprobe_last_error();
  }

  void run() {
    current_ = this;
    asm volatile("pushfq\n\torq %0, (%%rsp)\n\tpopfq" : : "i"(kTrapFlag) : "memory", "cc");
    const long result = twice(21);
    asm volatile("pushfq\n\tandq %0, (%%rsp)\n\tpopfq" : : "i"(~kTrapFlag) : "memory", "cc");
    current_ = nullptr;
    EXPECT_EQ(result, 42);
  }
  void expect_all_fired() const {
    EXPECT_GT(signals_, 200u);
    EXPECT_EQ(wrong_, 0u);
    EXPECT_EQ(outer_.entries, 1u);
    EXPECT_EQ(outer_.exits, 1u);
    EXPECT_EQ(outer_.missed(FPROBE_MISS_RECURSION), 2u);
    EXPECT_EQ(inner_.entries, signals_);
    EXPECT_EQ(inner_.exits, signals_);
    EXPECT_EQ(inner_.nmissed, 0u);
  }

  static void on_trap(int) {
    InterruptedCall* const self = current_;
    if (self == nullptr) return;
    ++self->signals_;
    if (thrice(5) != 15) ++self->wrong_;
  }

 private:
  static InterruptedCall* current_;
  unsigned long signals_ = 0, wrong_ = 0;
  Probe outer_, inner_;
};

InterruptedCall* InterruptedCall::current_ = nullptr;

void expect_hits_can_be_interrupted(const std::function<void(InterruptedCall&)>& run) {
  struct sigaction action {
  }, before{};
  action.sa_handler = &InterruptedCall::on_trap;
  sigaction(SIGTRAP, &action, &before);
  {
    InterruptedCall call;
    run(call);
    call.expect_all_fired();
  }
  sigaction(SIGTRAP, &before, nullptr);
}

TEST(SignalAtEveryInstructionOfAHit, FindsProbesThatFire) {
  expect_hits_can_be_interrupted([](InterruptedCall& call) { call.run(); });
}
TEST(SignalAtEveryInstructionOfAHit, OfAThreadThatExistedBeforeFindsProbesThatFire) {
  Gate go;
  InterruptedCall* call = nullptr;
  std::thread thread([&] {
    go.wait();
    call->run();
  });
  expect_hits_can_be_interrupted([&](InterruptedCall& made) {
    call = &made;
    go.open();
    thread.join();
  });
}
TEST(SignalAtEveryInstructionOfAHit, OfANewThreadFindsProbesThatFire) {
  expect_hits_can_be_interrupted([](InterruptedCall& call) { std::thread([&] { call.run(); }).join(); });
}

}  // namespace
}  // namespace contract
