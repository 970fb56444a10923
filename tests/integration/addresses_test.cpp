// entry_ip and ret_ip: exact, at both ends, tail calls included.
#include <cstring>

#include <string>
#include <vector>

#include "integration/support.h"

namespace contract {
namespace {

// What a handler saw.
struct Seen {
  unsigned long entry_ip, ret_ip;
  bool operator==(const Seen&) const = default;
};
struct Recorder {
  Probe probe;
  std::vector<Seen> at_entry, at_exit;
  Recorder() {
    probe.on_entry = [this](const Hit& hit) {
      at_entry.push_back({hit.entry_ip, hit.ret_ip});
      return 0;
    };
    probe.on_exit = [this](const Hit& hit) { at_exit.push_back({hit.entry_ip, hit.ret_ip}); };
  }
};

// The address behind the call instruction of the caller's callback, found without the library.
long return_address_of_callback(void* out) {
  *static_cast<unsigned long*>(out) = address_of(__builtin_return_address(0));
  return 0;
}

// Calls `function` and tells where that call returns to: the label behind it.
#define CALL_AND_TELL_RETURN(function, argument, result, ret_ip)                                                    \
  __asm__ volatile("leaq 1f(%%rip), %%rbx\n\tcall *%3\n1:"                                                          \
                   : "=a"(result), "=&b"(ret_ip), "+D"(argument)                                                    \
                   : "r"(function)                                                                                  \
                   : "rcx", "rdx", "rsi", "r8", "r9", "r10", "r11", "memory", "cc", "xmm0", "xmm1", "xmm2", "xmm3", \
                     "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14",   \
                     "xmm15")

// Calls function(argument) with a 16-byte aligned stack.
__attribute__((noinline)) long call(long (*function)(long), long argument, unsigned long& ret_ip) {
  long result;
  unsigned long after;
  long in = argument;
  alignas(16) volatile char red_zone[256];  // a leaf's locals may lie below rsp: make this no leaf
  red_zone[0] = 0;
  asm volatile("" : : "r"(red_zone) : "memory");
  CALL_AND_TELL_RETURN(function, in, result, after);
  ret_ip = after;
  return result;
}

TEST(EntryIp, IsTheSitesAddressAtBothEnds) {
  Recorder recorder;
  ATTACH(recorder.probe, "twice");
  twice(1);
  ASSERT_EQ(recorder.at_entry.size(), 1u);
  ASSERT_EQ(recorder.at_exit.size(), 1u);
  EXPECT_NE(site_of("twice"), 0u);
  EXPECT_EQ(recorder.at_entry[0].entry_ip, site_of("twice"));
  EXPECT_EQ(recorder.at_exit[0].entry_ip, site_of("twice"));
}

TEST(EntryIp, LiesWithinTheFunctionsFirstBytes) {
  Recorder recorder;
  ATTACH(recorder.probe, "twice");
  twice(1);
  ASSERT_EQ(recorder.at_entry.size(), 1u);
  // endbr64 at most precedes it.  In a no-pie executable a shared function's address is its PLT slot's.
  fprobe_for_each_site(
      [](const fprobe_site* site, void* ip) {
        if (site->ip != *static_cast<unsigned long*>(ip)) return 0;
        EXPECT_GE(site->ip, site->function);
        EXPECT_LE(site->ip, site->function + 4);
        EXPECT_STREQ(site->symbol, "twice");
        return 1;
      },
      &recorder.at_entry[0].entry_ip);
}

TEST(EntryIp, LiesBehindTheLandingPadOfAFunctionThatHasOne) {
  constexpr unsigned char kEndbr64[] = {0xf3, 0x0f, 0x1e, 0xfa};
  const unsigned long site = site_of("guarded"), function = first_byte_of("guarded");
  ASSERT_EQ(std::memcmp(reinterpret_cast<const void*>(function), kEndbr64, sizeof kEndbr64), 0);
  EXPECT_GE(site, function + sizeof kEndbr64);
  for (const unsigned long address : {site, function}) {
    Recorder recorder;
    unsigned long addresses[] = {address};
    ASSERT_EQ(register_fprobe_ips(&recorder.probe, addresses, 1), 0) << fprobe_last_error();
    EXPECT_EQ(guarded(1), 51);
    ASSERT_EQ(recorder.at_entry.size(), 1u);
    EXPECT_EQ(recorder.at_entry[0].entry_ip, site);
    EXPECT_EQ(recorder.at_exit, recorder.at_entry);
  }
}

TEST(RetIp, IsTheAddressBehindTheCallAtBothEnds) {
  Recorder recorder;
  ATTACH(recorder.probe, "twice");
  unsigned long after_call = 0;
  EXPECT_EQ(call(&twice, 21, after_call), 42);
  ASSERT_EQ(recorder.at_entry.size(), 1u);
  ASSERT_EQ(recorder.at_exit.size(), 1u);
  EXPECT_EQ(recorder.at_entry[0].ret_ip, after_call);
  EXPECT_EQ(recorder.at_exit[0].ret_ip, after_call);
}

TEST(RetIp, OfAFunctionCalledByAProbedOneLiesInThatFunction) {
  Recorder outer, inner;
  ATTACH(outer.probe, "calls_twice");
  ATTACH(inner.probe, "twice");
  unsigned long after_call = 0;
  EXPECT_EQ(call(&calls_twice, 4, after_call), 9);
  ASSERT_EQ(inner.at_entry.size(), 1u);
  ASSERT_EQ(inner.at_exit.size(), 1u);
  EXPECT_GT(inner.at_entry[0].ret_ip, outer.at_entry[0].entry_ip);
  EXPECT_LT(inner.at_entry[0].ret_ip, outer.at_entry[0].entry_ip + 200);
  EXPECT_EQ(inner.at_exit[0].ret_ip, inner.at_entry[0].ret_ip);
  EXPECT_EQ(outer.at_exit[0].ret_ip, after_call);
}

TEST(RetIp, OfANestedUnprobedCallIsUntouchedByTheProbe) {
  unsigned long without_probe = 0, with_probe = 0;
  call_back(&return_address_of_callback, &without_probe);
  Probe probe;
  ATTACH(probe, "call_back");
  call_back(&return_address_of_callback, &with_probe);
  EXPECT_EQ(with_probe, without_probe);
}

// Probes on every probed function of a chain of tail calls: each sees the true return address at both ends.
void expect_tail_chain(long (*function)(long), long argument, long expected, std::initializer_list<const char*> names) {
  std::vector<Recorder> recorders(names.size());
  std::size_t i = 0;
  for (const char* name : names) ATTACH(recorders[i++].probe, name);
  for (int round = 0; round < 3; ++round) {
    unsigned long after_call = 0;
    EXPECT_EQ(call(function, argument, after_call), expected);
    i = 0;
    for (const char* name : names) {
      const Seen seen{site_of(name), after_call};
      ASSERT_EQ(recorders[i].at_entry.size(), static_cast<std::size_t>(round + 1)) << name;
      ASSERT_EQ(recorders[i].at_exit.size(), static_cast<std::size_t>(round + 1)) << name;
      EXPECT_EQ(recorders[i].at_entry.back(), seen) << name;
      EXPECT_EQ(recorders[i].at_exit.back(), seen) << name;
      ++i;
    }
  }
}

TEST(TailCall, FromProbedToProbedToUnprobedKeepsRetIp) {
  expect_tail_chain(&tail_first, 1, 4, {"tail_first", "tail_second"});
}
TEST(TailCall, FromProbedToUnprobedKeepsRetIp) {
  expect_tail_chain(&tail_second, 1, 3, {"tail_second"});
}
TEST(TailCall, FromUnprobedIntoProbedKeepsRetIp) {
  expect_tail_chain(&tail_from_unprobed, 4, 8, {"twice"});
}

TEST(TailCall, WithEntryHandlersOnlyKeepsRetIp) {
  Probe first(kEntry), second(kEntry);
  std::vector<unsigned long> ret_ips;
  for (Probe* probe : {&first, &second}) {
    probe->on_entry = [&](const Hit& hit) {
      ret_ips.push_back(hit.ret_ip);
      return 0;
    };
  }
  ATTACH(first, "tail_first");
  ATTACH(second, "tail_second");
  unsigned long after_call = 0;
  EXPECT_EQ(call(&tail_first, 1, after_call), 4);
  EXPECT_EQ(ret_ips, (std::vector<unsigned long>{after_call, after_call}));
}

TEST(TailCall, ExitsRunInnermostFirstAtTheOneReturn) {
  Probe first, second;
  std::string order;
  first.on_exit = [&](const Hit&) { order += "first "; };
  second.on_exit = [&](const Hit&) { order += "second "; };
  ATTACH(first, "tail_first");
  ATTACH(second, "tail_second");
  EXPECT_EQ(tail_first(1), 4);
  EXPECT_EQ(order, "second first ");
}

TEST(TailCall, BothExitsSeeTheReturnValueAndAChangeByTheInnerReachesTheOuter) {
  Probe first, second;
  unsigned long inner = 0, outer = 0;
  second.on_exit = [&](const Hit& hit) {
    inner = ftrace_regs_get_return_value(hit.regs);
    ftrace_regs_set_return_value(hit.regs, 70);
  };
  first.on_exit = [&](const Hit& hit) { outer = ftrace_regs_get_return_value(hit.regs); };
  ATTACH(first, "tail_first");
  ATTACH(second, "tail_second");
  EXPECT_EQ(tail_first(1), 70);
  EXPECT_EQ(inner, 4u);
  EXPECT_EQ(outer, 70u);
}

TEST(TailCall, EntryDataOfTheTwoFramesIsApart) {
  Probe first, second;
  std::vector<long> seen;
  for (Probe* probe : {&first, &second}) {
    probe->entry_data_size = sizeof(long);
    probe->on_entry = [](const Hit& hit) {
      *static_cast<long*>(hit.data) = static_cast<long>(ftrace_regs_get_argument(hit.regs, 0));
      return 0;
    };
    probe->on_exit = [&](const Hit& hit) { seen.push_back(*static_cast<long*>(hit.data)); };
  }
  ATTACH(first, "tail_first");
  ATTACH(second, "tail_second");
  tail_first(1);
  EXPECT_EQ(seen, (std::vector<long>{2, 1}));
}

TEST(TailCall, OneProbeOnBothFunctionsIsCalledForEach) {
  Recorder recorder;
  ATTACH(recorder.probe, "tail_first", "tail_second");
  unsigned long after_call = 0;
  EXPECT_EQ(call(&tail_first, 1, after_call), 4);
  const Seen first{site_of("tail_first"), after_call}, second{site_of("tail_second"), after_call};
  EXPECT_EQ(recorder.at_entry, (std::vector<Seen>{first, second}));
  EXPECT_EQ(recorder.at_exit, (std::vector<Seen>{second, first}));
}

TEST(TailCall, ToItselfKeepsRetIpAtEveryStep) {
  Recorder recorder;
  ATTACH(recorder.probe, "tail_self");
  EXPECT_EQ(tail_self(1000, 5), 1005);
  ASSERT_EQ(recorder.at_entry.size(), 1001u);
  ASSERT_EQ(recorder.at_exit.size(), 1001u);
  for (const Seen& seen : recorder.at_entry) ASSERT_EQ(seen, recorder.at_entry[0]);
  for (const Seen& seen : recorder.at_exit) ASSERT_EQ(seen, recorder.at_entry[0]);
}

constexpr long kManySteps = 10'000'000;

TEST(TailCall, AStateMachineOfTenMillionStepsRunsWithEntryProbes) {
  Probe probe(kEntry);
  ATTACH(probe, "tail_even", "tail_odd");
  EXPECT_EQ(tail_even(kManySteps), 0);
  EXPECT_EQ(probe.entries, static_cast<unsigned long>(kManySteps + 1));
  EXPECT_EQ(probe.nmissed, 0u);
}

// One frame for each step is due, more than a shadow stack holds: what has no frame is counted.
TEST(TailCall, AStateMachineOfTenMillionStepsCountsTheExitsItCannotKeep) {
  Probe probe;
  ATTACH(probe, "tail_even", "tail_odd");
  EXPECT_EQ(tail_even(kManySteps), 0);
  EXPECT_EQ(probe.entries, static_cast<unsigned long>(kManySteps + 1));
  EXPECT_EQ(probe.exits + probe.missed(FPROBE_MISS_NO_FRAME), static_cast<unsigned long>(kManySteps + 1));
  EXPECT_GT(probe.exits, 100'000u);
  // And the stack is whole again.
  const unsigned long exits = probe.exits;
  EXPECT_EQ(tail_odd(1), 0);
  EXPECT_EQ(probe.exits, exits + 2);
}

}  // namespace
}  // namespace contract
