// Single nops that threads may stand between are replaced once every thread has moved on.
#include "patch/bystanders.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include "unit/poke_fixture.h"

namespace {

using namespace fprobe_test;

bool nowhere(std::uintptr_t, const void*) {
  return false;
}

// A thread that burns processor time and makes no system call.
class Runner {
 public:
  Runner()
      : thread_([this] {
          while (!stop_.load(std::memory_order_relaxed)) rounds_.fetch_add(1);
        }) {
    while (rounds_.load() == 0) std::this_thread::yield();
  }
  ~Runner() {
    stop_ = true;
    thread_.join();
  }

 private:
  std::atomic<bool> stop_{false};
  std::atomic<unsigned long> rounds_{0};
  std::thread thread_;
};

TEST(Bystanders, AreNobodyWhereThereIsOneThread) {
  EXPECT_TRUE(Bystanders().have_left(nowhere, nullptr));
}

TEST(Bystanders, HaveLeftWhenTheyWaitInASystemCallOrRun) {
  const Company sleeping;
  const Runner running, another;
  EXPECT_TRUE(Bystanders().have_left(nowhere, nullptr));
}

TEST(Bystanders, CannotBeToldWithoutAList) {
  const Company company;
  const InjectedFault fault(sys::Call::kOpen, EACCES);
  Bystanders bystanders;
  EXPECT_FALSE(bystanders.have_left(nowhere, nullptr));
  EXPECT_EQ(bystanders.suspect(), 0);
}

TEST(Bystanders, CannotBeToldWithoutTheirFiles) {
  const Company company;
  const InjectedFault fault(sys::Call::kTaskFile, EACCES);
  Bystanders bystanders;
  EXPECT_FALSE(bystanders.have_left(nowhere, nullptr));
  EXPECT_GT(bystanders.suspect(), 0);
}

TEST_F(Poke, SingleNopsAreReplacedInCompany) {
  for (std::size_t place = 0; place < 64; ++place) {
    add(6, kFunctions + place * 128 + place);
    add(7, kFunctions + place * 128 + 64 + place);
  }
  const Company sleeping;
  const Runner running;
  for (const Form to : {Form::kIdle, Form::kArmed}) {
    const auto result = poke(Form::kOriginal, to);
    ASSERT_TRUE(result.ok()) << result.error().sentence;
    expect_all(to);
    EXPECT_EQ(rights(), before_);
    ASSERT_TRUE(poke(to, Form::kOriginal).ok());
    expect_all(Form::kOriginal);
  }
}

TEST_F(Poke, SingleNopsAreReplacedInCompanyThroughTheFile) {
  for (std::size_t place = 0; place < 64; ++place) add(6, kFunctions + place * 128 + place);
  const Company company;
  {
    const InjectedFault fault(sys::Call::kMprotect, EACCES);
    const auto result = poke(Form::kOriginal, Form::kArmed);
    ASSERT_TRUE(result.ok()) << result.error().sentence;
  }
  expect_all(Form::kArmed);
}

TEST_F(Poke, BestEffortWaitsForNobodyAndLeavesSingleNopsAlone) {
  add(0, kFunctions);
  add(6, kFunctions + 64);
  const Company company;
  ASSERT_TRUE(poke(Form::kOriginal, Form::kIdle, PokeMode::kBestEffort).ok());
  EXPECT_TRUE(edits_[0].done);
  EXPECT_FALSE(edits_[1].done);
  EXPECT_EQ(hex(area_.at(kFunctions + 64), 5), "90 90 90 90 90");
}

TEST_F(Poke, SingleNopsStayWhenAThreadCannotBeTold) {
  add(0, kFunctions);
  add(6, kFunctions + 64);
  const std::string before = text();
  const Company company;
  sys::fault(sys::Call::kOpen).fail_after = 2;  // whether there are threads, and the memory map
  sys::fault(sys::Call::kOpen).error = EACCES;
  const auto result = poke(Form::kOriginal, Form::kArmed);
  sys::fault(sys::Call::kOpen).error = 0;
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code, EACCES);
  EXPECT_NE(std::string(result.error().sentence).find("/proc/self/task"), std::string::npos);
  EXPECT_TRUE(text() == before);
  EXPECT_EQ(rights(), before_);
  for (const TextEdit& edit : edits_) EXPECT_FALSE(edit.done);
}

TEST_F(Poke, AWriteThatFailsInTheMiddleLeavesSingleNopsAsTheyWere) {
  for (std::size_t i = 0; i < 3; ++i) add(6 + i % 2, kFunctions + i * 64 + 5);
  const std::string before = text();
  const Company company;
  for (long nth = 0;; ++nth) {
    const InjectedFault fault(sys::Call::kMprotect, EACCES), file(sys::Call::kWriteAt, EIO, nth);
    if (poke(Form::kOriginal, Form::kArmed).ok()) break;
    ASSERT_TRUE(text() == before) << nth;
  }
  expect_all(Form::kArmed);
}

// A process that holds one of our threads at an address, as a debugger does.
class Holder {
 public:
  Holder(pid_t tid, std::uintptr_t place) {
    if (pipe2(ready_, O_CLOEXEC) != 0 || pipe2(leave_, O_CLOEXEC) != 0) std::abort();
    child_ = fork();
    if (child_ == 0) hold(tid, place);
    prctl(PR_SET_PTRACER, child_);
    write_to(leave_[1]);  // it may begin
    char byte = 0;
    is_held_ = read(ready_[0], &byte, 1) == 1 && byte == 'y';
  }
  ~Holder() {
    write_to(leave_[1]);
    waitpid(child_, nullptr, 0);
  }
  Holder(const Holder&) = delete;
  Holder& operator=(const Holder&) = delete;
  [[nodiscard]] bool is_held() const { return is_held_; }

 private:
  static void write_to(int fd) {
    if (write(fd, "y", 1) != 1) std::abort();
  }
  [[noreturn]] void hold(pid_t tid, std::uintptr_t place) const {
    char byte = 0;
    int status = 0;
    if (read(leave_[0], &byte, 1) != 1 || ptrace(PTRACE_SEIZE, tid, 0, 0) != 0 ||
        ptrace(PTRACE_INTERRUPT, tid, 0, 0) != 0 || waitpid(tid, &status, __WALL) != tid) {
      _exit(write(ready_[1], "n", 1) == 1 ? 1 : 2);
    }
    user_regs_struct before{}, there{};
    ptrace(PTRACE_GETREGS, tid, 0, &before);
    there = before;
    there.rip = place;
    ptrace(PTRACE_SETREGS, tid, 0, &there);
    write_to(ready_[1]);
    while (read(leave_[0], &byte, 1) != 1) {
    }
    ptrace(PTRACE_SETREGS, tid, 0, &before);
    ptrace(PTRACE_DETACH, tid, 0, 0);
    _exit(0);
  }

  int ready_[2], leave_[2];
  pid_t child_ = 0;
  bool is_held_ = false;
};

TEST_F(Poke, SingleNopsWithAThreadBetweenThemStayUntilItHasLeft) {
  add(6, kFunctions);
  const std::string before = text();
  std::atomic<pid_t> tid{0};
  std::atomic<bool> stop{false};
  std::thread thread([&] {
    tid = sys::gettid();
    while (!stop.load(std::memory_order_relaxed)) {
    }
  });
  while (tid.load() == 0) std::this_thread::yield();
  {
    const Holder holder(tid, area_.address(kFunctions + 2));
    ASSERT_TRUE(holder.is_held());
    const auto result = poke(Form::kOriginal, Form::kArmed);
    ASSERT_FALSE(result.ok());
    EXPECT_EQ(result.error().code, EACCES);
    EXPECT_NE(std::string(result.error().sentence).find("thread " + std::to_string(tid.load())), std::string::npos)
        << result.error().sentence;
    EXPECT_TRUE(text() == before);
  }
  {
    const Holder holder(tid, area_.address(kFunctions));  // in front of them
    ASSERT_TRUE(holder.is_held());
    const auto result = poke(Form::kOriginal, Form::kArmed);
    EXPECT_TRUE(result.ok()) << result.error().sentence;
  }
  stop = true;
  thread.join();
  expect_all(Form::kArmed);
}

}  // namespace
