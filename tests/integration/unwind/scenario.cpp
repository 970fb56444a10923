// Runs one scenario without and with probes and compares; see scenario.h.
#include "scenario.h"

#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>

victim_tally* g_victim_tally;

namespace scenario {

bool is_probed = false;
bool handlers_throw = false;

namespace {

Registration* g_first;

constexpr unsigned long kMaxCalls = 1ul << 22;

// Shared by the parent and its children.
struct Tally {
  victim_tally victims;  // first: victims know only this part
  unsigned long entries;
  unsigned long exits_returned;
  unsigned long exits_unwound;
  unsigned long exits_of_second;  // probe
  unsigned long wrong;            // handlers that met something else than they should
  unsigned long missed;
  unsigned long dropped;
  bool is_unregistered;
  bool in_flight;  // unregister_now() was called
  unsigned char exits_of_call[kMaxCalls];
};
Tally* g_tally;

fprobe g_first_probe{};   // entry, exit, entry data
fprobe g_second_probe{};  // exit only
thread_local char t_this_thread;

void increment(unsigned long& counter) {
  __atomic_fetch_add(&counter, 1, __ATOMIC_RELAXED);  // read after the child ended
}

void report(const char* what) {
  increment(g_tally->wrong);
  std::fprintf(stderr, "handler: %s\n", what);
}

struct CallData {
  unsigned long call;  // number of this call
  unsigned long entry_ip;
  unsigned long ret_ip;
  const char* thread;
};

void throw_and_catch() {
  try {
    throw 1;
  } catch (int) {
  }
}

int on_entry(fprobe*, unsigned long entry_ip, unsigned long ret_ip, ftrace_regs*, void* entry_data) {
  const unsigned long call = __atomic_fetch_add(&g_tally->entries, 1, __ATOMIC_RELAXED);
  if (call >= kMaxCalls) report("more calls than the table holds");
  *static_cast<CallData*>(entry_data) = {call, entry_ip, ret_ip, &t_this_thread};
  if (handlers_throw) throw_and_catch();
  return 0;
}

void on_exit(fprobe*, unsigned long entry_ip, unsigned long ret_ip, ftrace_regs* regs, void* entry_data) {
  const CallData& data = *static_cast<const CallData*>(entry_data);
  if (data.entry_ip != entry_ip) report("the exit has another entry_ip than the entry");
  if (data.ret_ip != ret_ip) report("the exit has another ret_ip than the entry");
  if (data.thread != &t_this_thread) report("the exit runs on another thread than the entry");
  if (__atomic_fetch_add(&g_tally->exits_of_call[data.call % kMaxCalls], 1, __ATOMIC_RELAXED) != 0) {
    report("the exit of one call runs twice");
  }
  if (g_tally->is_unregistered) report("an exit handler runs after unregister_fprobe");
  if (fprobe_exit_reason(regs) == FPROBE_EXIT_UNWOUND) {
    increment(g_tally->exits_unwound);
    if (ftrace_regs_get_return_value(regs) != 0) report("an unwound call has a return value");
    if (ftrace_regs_get_fp_return_value(regs) != 0) report("an unwound call has a floating-point return value");
  } else {
    increment(g_tally->exits_returned);
  }
  if (handlers_throw) throw_and_catch();
}

void on_second_exit(fprobe*, unsigned long, unsigned long, ftrace_regs*, void* entry_data) {
  if (entry_data != nullptr) report("entry data without a size");
  increment(g_tally->exits_of_second);
}

void register_probe(fprobe& probe) {
  if (register_fprobe(&probe, "victim::*,victim_*", nullptr) == 0) return;
  std::fprintf(stderr, "register_fprobe: %s\n", fprobe_last_error());
  std::abort();
}

void register_probes() {
  g_first_probe.entry_handler = on_entry;
  g_first_probe.exit_handler = on_exit;
  g_first_probe.entry_data_size = sizeof(CallData);
  g_second_probe.exit_handler = on_second_exit;
  register_probe(g_first_probe);
  register_probe(g_second_probe);
}

void take_off() {
  if (!fprobe_is_registered(&g_first_probe)) return;
  CHECK(unregister_fprobe(&g_first_probe) == 0);
  CHECK(unregister_fprobe(&g_second_probe) == 0);
  g_tally->is_unregistered = true;
  g_tally->missed = g_first_probe.nmissed;
  g_tally->dropped = fprobe_missed(&g_first_probe, FPROBE_MISS_DROPPED);
  CHECK(g_second_probe.nmissed == g_tally->missed);
}

void* run_on_thread(void* argument) {
  static_cast<const Registration*>(argument)->run();
  return nullptr;
}

[[noreturn]] void be_child(Registration& scenario) {
  if (is_probed && scenario.leaving != Leaving::kOwnChecks) register_probes();
  if (scenario.leaving == Leaving::kJumping) {
    pthread_t thread;
    CHECK(pthread_create(&thread, nullptr, run_on_thread, &scenario) == 0);
    CHECK(pthread_join(thread, nullptr) == 0);
  } else {
    scenario.run();
  }
  take_off();
  std::fflush(nullptr);
  std::exit(0);
}

// No std::string: with gcc 12 the victims' -fpatchable-function-entry does not survive templates that another object has
// too (the linker refuses entries of discarded sections).
struct Outcome {
  char output[1 << 20];
  std::size_t size;
  int status;
};
Outcome g_plain, g_probed;

void run_in_child(Registration& scenario, bool probed, Outcome& outcome) {
  std::memset(static_cast<void*>(g_tally), 0, offsetof(Tally, exits_of_call));
  int ends[2];
  if (pipe(ends) != 0) std::abort();
  const pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], 1);
    dup2(ends[1], 2);
    close(ends[0]);
    close(ends[1]);
    std::setvbuf(stdout, nullptr, _IOLBF, 0);  // lines of both streams in the order they were written
    is_probed = probed;
    be_child(scenario);
  }
  close(ends[1]);
  for (;;) {
    const ssize_t got = read(ends[0], outcome.output + outcome.size, sizeof outcome.output - outcome.size);
    if (got <= 0) break;
    outcome.size += static_cast<std::size_t>(got);
  }
  close(ends[0]);
  waitpid(child, &outcome.status, 0);
}

bool are_equal(const Outcome& a, const Outcome& b) {
  return a.status == b.status && a.size == b.size && std::memcmp(a.output, b.output, a.size) == 0;
}

bool g_failed = false;

void expect_equal(const char* what, unsigned long found, unsigned long expected) {
  if (found == expected) return;
  g_failed = true;
  std::printf("FAILED: %s: %lu, expected %lu\n", what, found, expected);
}

// Every call that ended has had one exit.
void check_exits_of_calls() {
  unsigned long calls_with_exit = 0;
  for (unsigned long call = 0; call < g_tally->entries && call < kMaxCalls; ++call) {
    calls_with_exit += g_tally->exits_of_call[call] == 1;
  }
  expect_equal("calls with exactly one exit", calls_with_exit, g_tally->exits_returned + g_tally->exits_unwound);
}

void check_tally(Leaving leaving, unsigned long plain_calls) {
  const Tally& tally = *g_tally;
  expect_equal("handlers that met something wrong", tally.wrong, 0);
  if (leaving == Leaving::kOwnChecks) return;
  const unsigned long left = tally.victims.calls - tally.victims.returns;
  expect_equal("calls with probes", tally.victims.calls, plain_calls);
  if (!tally.in_flight) {
    g_failed |= tally.victims.calls == 0;
    expect_equal("entry handlers", tally.entries, tally.victims.calls);
  }
  expect_equal("exit handlers of the second probe", tally.exits_of_second, tally.exits_returned + tally.exits_unwound);
  check_exits_of_calls();
  if (leaving == Leaving::kTermination || tally.in_flight) return;
  expect_equal("exits of returns", tally.exits_returned, tally.victims.returns);
  expect_equal("exits of unwound calls", tally.exits_unwound, leaving == Leaving::kUnwinding ? left : 0);
  expect_equal("dropped exits", tally.dropped, leaving == Leaving::kJumping ? left : 0);
  expect_equal("misses", tally.missed, tally.dropped);
}

void compare(const Outcome& plain, const Outcome& probed, Leaving leaving) {
  if (!are_equal(plain, probed)) {
    g_failed = true;
    std::printf("FAILED: without and with probes the scenario behaves differently\n");
  }
  if (leaving != Leaving::kTermination) expect_equal("the child's status", static_cast<unsigned>(plain.status), 0);
  if (leaving == Leaving::kTermination && plain.status == 0) g_failed = true;
  if (!g_failed) return;
  std::printf("---- without probes (status %d)\n%.*s---- with probes (status %d)\n%.*s----\n", plain.status,
              static_cast<int>(plain.size), plain.output, probed.status, static_cast<int>(probed.size), probed.output);
}

void map_tally() {
  void* memory =
      mmap(nullptr, sizeof(Tally), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) std::abort();
  g_tally = static_cast<Tally*>(memory);
  g_victim_tally = &g_tally->victims;
}

// For a debugger: no child, no comparison.
[[noreturn]] void run_here(Registration& scenario, bool probed) {
  map_tally();
  is_probed = probed;
  be_child(scenario);
}

int run(Registration& scenario) {
  map_tally();
  run_in_child(scenario, false, g_plain);
  const unsigned long plain_calls = g_tally->victims.calls;
  run_in_child(scenario, true, g_probed);
  check_tally(scenario.leaving, plain_calls);
  compare(g_plain, g_probed, scenario.leaving);
  std::printf("%s %s: %lu calls, %lu returned, %lu unwound, %lu dropped\n", g_failed ? "FAILED" : "passed",
              scenario.name, g_tally->victims.calls, g_tally->exits_returned, g_tally->exits_unwound, g_tally->dropped);
  return g_failed ? 1 : 0;
}

}  // namespace

Registration::Registration(const char* name_, void (*run_)(), Leaving leaving_)
    : name(name_), run(run_), leaving(leaving_), next(g_first) {
  g_first = this;
}

void unregister_now() {
  if (is_probed) g_tally->in_flight = true;
  take_off();
}

}  // namespace scenario

int main(int argc, char** argv) {
  for (scenario::Registration* each = scenario::g_first; each != nullptr; each = each->next) {
    if (argc < 2) std::puts(each->name);
    if (argc == 3 && std::strcmp(argv[1], each->name) == 0) {
      scenario::run_here(*each, std::strcmp(argv[2], "probed") == 0);
    }
    if (argc == 2 && std::strcmp(argv[1], each->name) == 0) return scenario::run(*each);
  }
  if (argc < 2) return 0;
  std::fprintf(stderr, "no such scenario\n");
  return 2;
}
