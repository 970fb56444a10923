// The tracer; see stepper.h.
#include "stepper.h"

#include <signal.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include <vector>

#include "base/arch.h"

extern "C" {
// Entered when the steps begin and end; the child is a fork, so both processes know the addresses.
__attribute__((noinline)) void stepper_begin() {
  asm volatile("");
}
__attribute__((noinline)) void stepper_end() {
  asm volatile("");
}
}

namespace {

enum class Transfer { kNone, kCall, kRet };

// Whether the instruction calls or returns; everything else lets the shadow stack be.
//   e8 rel32          call           [prefixes] [REX] in front of each: 66 67 f2 f3 and segments, 40-4f
//   ff /2             call *operand
//   c3, c2 imm16      ret
Transfer transfer_of(const std::uint8_t* code) {
  const auto is_prefix = [](std::uint8_t byte) {
    return byte == 0x66 || byte == 0x67 || byte == 0xf2 || byte == 0xf3 || byte == 0x2e || byte == 0x36 ||
           byte == 0x3e || byte == 0x26 || byte == 0x64 || byte == 0x65 || (byte & 0xf0) == 0x40;
  };
  unsigned i = 0;
  while (i < 14 && is_prefix(code[i])) ++i;
  if (code[i] == 0xe8) return Transfer::kCall;
  if (code[i] == 0xff && (code[i + 1] >> 3 & 7) == 2) return Transfer::kCall;
  if (code[i] == 0xc3 || code[i] == 0xc2) return Transfer::kRet;
  return Transfer::kNone;
}

class Tracer {
 public:
  explicit Tracer(pid_t child) : child_(child) {}

  // Steps until the child reaches `address`; false if it ends before.
  bool run_to(void (*function)(), bool counted, StepReport& report) {
    const auto address = reinterpret_cast<std::uintptr_t>(function);
    for (;;) {
      user_regs_struct regs{};
      if (ptrace(PTRACE_GETREGS, child_, nullptr, &regs) != 0) return false;
      if (regs.rip == address) return true;
      const Transfer transfer = counted ? look_at(regs, report) : Transfer::kNone;
      if (!step()) return false;
      if (transfer == Transfer::kCall) push();
    }
  }
  // The word that the call of the present function wrote.
  void push() {
    user_regs_struct regs{};
    ptrace(PTRACE_GETREGS, child_, nullptr, &regs);
    shadow_.push_back(word_at(regs.rsp));
  }

 private:
  Transfer look_at(const user_regs_struct& regs, StepReport& report) {
    ++report.steps;
    std::uint8_t code[16] = {};
    read(regs.rip, code, sizeof code);
    const Transfer transfer = transfer_of(code);
    if (transfer == Transfer::kCall) {
      ++report.calls;
      report.planting_calls += libfprobe::detail::arch::is_stub(regs.rip);
    }
    if (transfer == Transfer::kRet) check_ret(regs, report);
    return transfer;
  }

  void check_ret(const user_regs_struct& regs, StepReport& report) {
    ++report.rets;
    const std::uintptr_t target = word_at(regs.rsp);
    const std::uintptr_t own = shadow_.empty() ? 0 : shadow_.back();
    if (!shadow_.empty()) shadow_.pop_back();
    if (target == own) return;
    if (report.unmatched++ != 0) return;
    report.first_unmatched_ip = regs.rip;
    report.first_unmatched_to = target;
    report.first_unmatched_own = own;
  }

  bool step() {
    if (ptrace(PTRACE_SINGLESTEP, child_, nullptr, nullptr) != 0) return false;
    int status = 0;
    return waitpid(child_, &status, 0) == child_ && WIFSTOPPED(status) && WSTOPSIG(status) == SIGTRAP;
  }

  void read(std::uintptr_t address, void* to, std::size_t size) const {
    iovec local{to, size}, remote{reinterpret_cast<void*>(address), size};
    if (process_vm_readv(child_, &local, 1, &remote, 1, 0) > 0) return;
    // Across the end of a mapping: what lies in front of it.
    remote.iov_len = local.iov_len = 4096 - address % 4096;
    (void)process_vm_readv(child_, &local, 1, &remote, 1, 0);
  }
  [[nodiscard]] std::uintptr_t word_at(std::uintptr_t address) const {
    std::uintptr_t word = 0;
    read(address, &word, sizeof word);
    return word;
  }

  pid_t child_;
  std::vector<std::uintptr_t> shadow_;
};

[[noreturn]] void be_child(bool (*prepare)(), bool (*body)()) {
  if (!prepare()) _exit(2);
  if (ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) _exit(3);
  raise(SIGSTOP);
  stepper_begin();
  const bool good = body();
  stepper_end();
  _exit(good ? 0 : 1);
}

}  // namespace

StepReport step_through(bool (*prepare)(), bool (*body)()) {
  StepReport report;
  const pid_t child = fork();
  if (child == 0) be_child(prepare, body);
  int status = 0;
  if (waitpid(child, &status, 0) != child || !WIFSTOPPED(status)) return report;
  Tracer tracer(child);
  bool arrived = tracer.run_to(stepper_begin, false, report);
  if (arrived) {
    tracer.push();
    arrived = tracer.run_to(stepper_end, true, report);
  }
  if (!arrived) kill(child, SIGKILL);
  ptrace(PTRACE_DETACH, child, nullptr, nullptr);
  waitpid(child, &status, 0);
  report.completed = arrived && WIFEXITED(status) && WEXITSTATUS(status) == 0;
  return report;
}
