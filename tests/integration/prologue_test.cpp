// Sites behind prologues (-pg) of gcc and clang: every kind of frame, both compilers' victims in one program.
#include <cerrno>
#include <string>

#include "integration/support.h"
#include "integration/victims_prologue.h"

namespace contract {
namespace {

class BehindThePrologue : public testing::TestWithParam<const prologue_victims*> {
 protected:
  const prologue_victims& victims = *GetParam();

  int attach(Probe& probe, const char* name) {
    const std::string whole = std::string(victims.compiler) + "_" + name;
    return probe.attach({whole.c_str()});
  }
};

#define ATTACH_TO(probe, name) ASSERT_EQ(attach(probe, name), 0) << fprobe_last_error()

// The site of the function at `ip`.
fprobe_site find_site(unsigned long ip) {
  struct Search {
    unsigned long ip;
    fprobe_site found;
  } search{ip, {}};
  fprobe_for_each_site(
      [](const fprobe_site* site, void* argument) {
        auto& wanted = *static_cast<Search*>(argument);
        if (site->ip == wanted.ip) wanted.found = *site;
        return static_cast<int>(site->ip == wanted.ip);
      },
      &search);
  return search.found;
}

TEST_P(BehindThePrologue, ASiteIsListedAsMcountAndLiesInsideItsFunction) {
  Probe probe;
  unsigned long ip = 0;
  probe.on_entry = [&](const Hit& hit) { return static_cast<int>((ip = hit.entry_ip) == 0); };
  ATTACH_TO(probe, "twice");
  EXPECT_EQ(victims.twice(21), 42);
  const fprobe_site site = find_site(ip);
  EXPECT_EQ(site.kind, FPROBE_SITE_MCOUNT);
  EXPECT_EQ(site.function, address_of(victims.twice));
  EXPECT_GT(site.ip, site.function);
}

TEST_P(BehindThePrologue, AFunctionIsFoundByItsFirstByte) {
  Probe probe;
  unsigned long addresses[] = {address_of(victims.twice)};
  ASSERT_EQ(register_fprobe_ips(&probe, addresses, 1), 0) << fprobe_last_error();
  EXPECT_EQ(victims.twice(21), 42);
  EXPECT_EQ(probe.entries, 1u);
}

TEST_P(BehindThePrologue, EveryKindOfFrameReturnsRightThroughBothHandlers) {
  Probe probe;
  std::vector<unsigned long> results;
  probe.on_exit = [&](const Hit& hit) { results.push_back(ftrace_regs_get_return_value(hit.regs)); };
  const std::string pattern = std::string(victims.compiler) + "_*";
  ASSERT_EQ(register_fprobe(&probe, pattern.c_str(), nullptr), 0) << fprobe_last_error();
  EXPECT_EQ(victims.weigh(1, 2, 3, 4), 30);
  EXPECT_EQ(victims.twice(5), 10);
  EXPECT_EQ(victims.realigned(1, 1, 1, 1, 1, 1, 1, 1), 36);
  EXPECT_EQ(victims.realigned(1, 2, 3, 4, 5, 6, 7, 8), 204);
  EXPECT_EQ(victims.aligned(9), 9);
  EXPECT_EQ(victims.large(7), 7);
  EXPECT_EQ(victims.sum(3, 1L, 2L, 3L), 6);
  EXPECT_EQ(victims.halve(3.0), 1.5);
  EXPECT_EQ(probe.entries, 8u);
  EXPECT_EQ(probe.exits, 8u);
  EXPECT_EQ(probe.nmissed, 0u);
  results.resize(7);  // the last one's is a double
  EXPECT_EQ(results, (std::vector<unsigned long>{30, 10, 36, 204, 9, 7, 6}));
}

TEST_P(BehindThePrologue, ReturnAddressesAreTheCallersAtBothEnds) {
  Probe probe;
  unsigned long entry = 0, exit = 0, at_entry = 0;
  probe.on_entry = [&](const Hit& hit) {
    entry = hit.ret_ip;
    at_entry = ftrace_regs_get_return_address(hit.regs);
    return 0;
  };
  probe.on_exit = [&](const Hit& hit) { exit = hit.ret_ip; };
  ATTACH_TO(probe, "realigned");
  victims.realigned(1, 1, 1, 1, 1, 1, 1, 1);
  EXPECT_EQ(entry, exit);
  EXPECT_EQ(entry, at_entry);
  unsigned long trace[3] = {};
  Probe tracer;
  tracer.on_entry = [&](const Hit& hit) { return fprobe_backtrace(hit.regs, trace, 3) != 3; };
  ATTACH_TO(tracer, "realigned");
  victims.realigned(1, 1, 1, 1, 1, 1, 1, 1);
  EXPECT_EQ(trace[0], find_site(trace[0]).ip);
  EXPECT_NE(trace[2], 0u);
}

TEST_P(BehindThePrologue, ArgumentsAreReadAndChangedWhereTheCompilerLeftThem) {
  Probe probe;
  bool has = false;
  unsigned long second = 1, on_stack = 0;
  probe.on_entry = [&](const Hit& hit) {
    has = ftrace_regs_has_argument(hit.regs, 1);
    second = ftrace_regs_get_argument(hit.regs, 1);
    on_stack = ftrace_regs_get_argument(hit.regs, 7);
    ftrace_regs_set_argument(hit.regs, 1, 100);
    return 0;
  };
  ATTACH_TO(probe, "realigned");
  const long result = victims.realigned(1, 2, 3, 4, 5, 6, 7, 8);
  EXPECT_EQ(has, victims.arguments_are_read != 0);
  EXPECT_EQ(second, victims.arguments_are_read != 0 ? 2u : 0u);
  EXPECT_EQ(on_stack, victims.arguments_are_read != 0 ? 8u : 0u);
  EXPECT_EQ(result, victims.arguments_are_read != 0 ? 204 + 2 * 98 : 204);
}

// Holds values in every callee-saved register over the call; how many of them came back changed.
template <class Function>
int changed_over(Function* function, long a, long b, long c, long d, long& result) {
  unsigned long frame[8] = {reinterpret_cast<unsigned long>(function)};
  long first = a;
  asm volatile(
      "pushq %%rbp\n\tpushq %%rbx\n\tmovq %[frame], %%rax\n\tmovq $11, %%rbx\n\tmovq $12, %%r12\n\tmovq $13, %%r13\n\t"
      "movq $14, %%r14\n\tmovq $15, %%r15\n\tmovq $16, %%rbp\n\tpushq %%rax\n\tpushq %%rax\n\tcall *(%%rax)\n\t"
      "popq %%rdi\n\tpopq %%rdi\n\t"
      "movq %%rbx, 8(%%rdi)\n\tmovq %%r12, 16(%%rdi)\n\tmovq %%r13, 24(%%rdi)\n\tmovq %%r14, 32(%%rdi)\n\t"
      "movq %%r15, 40(%%rdi)\n\tmovq %%rbp, 48(%%rdi)\n\tpopq %%rbx\n\tpopq %%rbp"
      : "=&a"(result), "+D"(first), "+S"(b), "+d"(c), "+c"(d)
      : [frame] "r"(&frame[0])
      : "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15", "memory", "cc");
  int changed = 0;
  for (unsigned long i = 0; i < 6; ++i) changed += frame[1 + i] != 11 + i;
  return changed;
}

TEST_P(BehindThePrologue, CalleeSavedRegistersAreTheCallersAfterAHit) {
  Probe probe;
  ATTACH_TO(probe, "weigh");
  long result = 0;
  EXPECT_EQ(changed_over(victims.weigh, 1, 2, 3, 4, result), 0);
  EXPECT_EQ(result, 30);
}

TEST_P(BehindThePrologue, ASkippedBodyLeavesEveryFrameWithTheCallersRegisters) {
  Probe probe;
  std::string exits;
  probe.on_entry = [](const Hit& hit) {
    ftrace_regs_set_return_value(hit.regs, 77);
    ftrace_override_function_with_return(hit.regs);
    return 0;
  };
  probe.on_exit = [&](const Hit& hit) { exits += std::to_string(ftrace_regs_get_return_value(hit.regs)) + " "; };
  const std::string pattern = std::string(victims.compiler) + "_*";
  ASSERT_EQ(register_fprobe(&probe, pattern.c_str(), nullptr), 0) << fprobe_last_error();
  long result = 0;
  EXPECT_EQ(changed_over(victims.weigh, 1, 2, 3, 4, result), 0);
  EXPECT_EQ(result, 77);
  EXPECT_EQ(victims.realigned(1, 1, 1, 1, 1, 1, 1, 1), 77);
  EXPECT_EQ(victims.aligned(1), 77);
  EXPECT_EQ(victims.large(1), 77);
  EXPECT_EQ(exits, "77 77 77 77 ");
  EXPECT_EQ(probe.nmissed, 0u);
}

TEST_P(BehindThePrologue, AnotherFunctionGoesOnInItsPlaceWhereArgumentsAreIntact) {
  Probe probe;
  probe.on_entry = [this](const Hit& hit) {
    ftrace_regs_set_instruction_pointer(hit.regs, address_of(victims.twice));
    return 0;
  };
  ATTACH_TO(probe, "aligned");
  EXPECT_EQ(victims.aligned(9), victims.arguments_are_read != 0 ? 18 : 9);
}

// Returns the static chain that it was called with.
__attribute__((naked)) void give_static_chain() {
  asm("movq %r10, %rax\n\tret");
}

TEST_P(BehindThePrologue, ATailCallRunsBothExitsAndReturnsRight) {
  Probe probe;
  std::vector<unsigned long> returns;
  probe.on_exit = [&](const Hit& hit) { returns.push_back(hit.ret_ip); };
  const std::string outer = std::string(victims.compiler) + "_tail", inner = std::string(victims.compiler) + "_twice";
  ATTACH(probe, outer.c_str(), inner.c_str());
  EXPECT_EQ(victims.tail(4), 8);
  EXPECT_EQ(probe.entries, 2u);
  ASSERT_EQ(returns.size(), 2u);
  EXPECT_EQ(probe.nmissed, 0u);
}

TEST_P(BehindThePrologue, AProbeUnregisteredInFlightLetsTheFunctionReturnRight) {
  static Probe* probe;
  Probe attached;
  probe = &attached;
  ATTACH_TO(attached, "call");
  EXPECT_EQ(victims.call([](void*) { return static_cast<long>(unregister_fprobe(probe)); }, nullptr), 1);
  EXPECT_EQ(attached.exits, 0u);
}

TEST_P(BehindThePrologue, ExitsRunOnceForEachOfTheCallsOfARecursion) {
  static const prologue_victims* self;
  self = &victims;
  Probe probe;
  ATTACH_TO(probe, "call");
  struct Step {
    static long down(void* depth) {
      const long left = reinterpret_cast<long>(depth);
      return left == 0 ? 0 : self->call(&Step::down, reinterpret_cast<void*>(left - 1));
    }
  };
  EXPECT_EQ(victims.call(&Step::down, reinterpret_cast<void*>(1000L)), 1001);
  EXPECT_EQ(probe.exits, 1001u);
  EXPECT_EQ(probe.nmissed, 0u);
}

TEST(BehindGccsPrologue, TheFunctionInItsPlaceHasTheCallersStaticChain) {
  Probe probe;
  probe.on_entry = [](const Hit& hit) {
    ftrace_regs_set_instruction_pointer(hit.regs, address_of(&give_static_chain));
    return 0;
  };
  ATTACH(probe, "gcc_aligned");
  long result = 0;
  asm volatile("movq $77, %%r10\n\tcall *%[function]"
               : "=a"(result)
               : [function] "r"(gcc_victims.aligned)
               : "rdi", "rsi", "rdx", "rcx", "r8", "r9", "r10", "r11", "memory", "cc");
  EXPECT_EQ(result, 77);
}

INSTANTIATE_TEST_SUITE_P(Compilers, BehindThePrologue, testing::Values(&gcc_victims, &clang_victims),
                         [](const auto& victims_of) { return std::string(victims_of.param->compiler); });

}  // namespace
}  // namespace contract
