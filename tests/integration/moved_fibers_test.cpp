// Fibers that enter a probed function on one thread and leave it on another.
#include <ucontext.h>

#include <functional>
#include <memory>

#include "integration/support.h"

namespace contract {
namespace {

class Fiber {
 public:
  explicit Fiber(std::function<void()> body) : body_(std::move(body)), stack_(new char[kStack]) {
    getcontext(&own_);
    own_.uc_stack.ss_sp = stack_.get();
    own_.uc_stack.ss_size = kStack;
    own_.uc_link = nullptr;
    makecontext(&own_, reinterpret_cast<void (*)()>(&Fiber::start), 0);
  }
  // Runs it on the calling thread until it yields or ends.
  void resume() {
    g_current = this;
    swapcontext(&back_, &own_);
  }
  static void yield() { swapcontext(&g_current->own_, &g_current->back_); }

 private:
  static constexpr std::size_t kStack = 512 * 1024;
  static inline Fiber* g_current = nullptr;  // one fiber at a time
  static void start() {
    g_current->body_();
    yield();
  }
  std::function<void()> body_;
  std::unique_ptr<char[]> stack_;
  ucontext_t own_{}, back_{};
};

TEST(AMovedFiber, IsLeftByAnExceptionOnAThreadThatNeverMetAProbe) {
  Probe probe;
  enum fprobe_exit_reason reason = FPROBE_EXIT_RETURNED;
  probe.on_exit = [&](const Hit& hit) { reason = fprobe_exit_reason(hit.regs); };
  ATTACH(probe, "call_back");
  bool caught = false;
  Fiber fiber([&] {
    try {
      call_back(
          [](void*) -> long {
            Fiber::yield();
            throw 1;
          },
          nullptr);
    } catch (int) {
      caught = true;
    }
  });
  fiber.resume();
  std::thread([&] { fiber.resume(); }).join();
  EXPECT_TRUE(caught);
  EXPECT_EQ(probe.exits, 1u);
  EXPECT_EQ(reason, FPROBE_EXIT_UNWOUND);
  EXPECT_EQ(probe.nmissed, 0u);
}

TEST(AMovedFiber, MakesATailCallOnItsNewThreadAndBothExitsRunWithTheTrueReturnAddress) {
  Probe outer, inner;
  unsigned long outer_ret = 0, inner_ret = 1;
  outer.on_exit = [&](const Hit& hit) { outer_ret = hit.ret_ip; };
  inner.on_exit = [&](const Hit& hit) { inner_ret = hit.ret_ip; };
  ATTACH(outer, "tail_after");
  ATTACH(inner, "tail_second");
  long result = 0;
  Fiber fiber([&] { result = tail_after(&Fiber::yield, 5); });
  fiber.resume();
  std::thread([&] { fiber.resume(); }).join();
  EXPECT_EQ(result, 7);
  EXPECT_EQ(outer.exits, 1u);
  EXPECT_EQ(inner.exits, 1u);
  EXPECT_EQ(inner_ret, outer_ret);
}

}  // namespace
}  // namespace contract
