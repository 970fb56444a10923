// Backtraces through probed frames reach main: from the body, from handlers of both ends, by backtrace() and by
// fprobe_backtrace().  Without probes the same places print the same functions.
#include <dlfcn.h>
#include <execinfo.h>
#include <signal.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>

#include "base/arch.h"
#include "scenario.h"

namespace {

using Printer = void (*)();
Printer g_in_body;          // what the innermost function does, probed or not
Printer g_after_innermost;  // what happens where the exit handler of the innermost function runs

constexpr int kMax = 64;

struct Trace {
  void* ips[kMax];
  int count;
};

const char* function_of(const void* ip) {
  Dl_info info{};
  // A return address may lie behind the last instruction of its function.
  const bool found = dladdr(static_cast<const char*>(ip) - 1, &info) != 0 && info.dli_sname != nullptr;
  return found ? info.dli_sname : "?";
}

bool is_stub(const void* ip) {
  return libfprobe::detail::arch::is_stub(reinterpret_cast<std::uintptr_t>(ip));
}

// Prints the functions from `first` (by linkage name) to main.  Between a function and its caller nothing of the library
// is seen, but at most the one return stub, which truly is the return address there.
void print_from(const Trace& trace, const char* first) {
  int i = 0;
  while (i < trace.count && std::strstr(function_of(trace.ips[i]), first) == nullptr) ++i;
  CHECK(i < trace.count);
  bool was_stub = false;
  for (; i < trace.count; ++i) {
    const bool stub = is_stub(trace.ips[i]);
    CHECK(!(stub && was_stub));
    was_stub = stub;
    if (stub) continue;
    const char* name = function_of(trace.ips[i]);
    std::printf(" %s\n", name);
    if (std::strcmp(name, "main") == 0) return;
  }
  std::printf("main is missing\n");
}

// Both children are forks of one process: the same code lies at the same addresses.  (Not in main and its like, which
// start the two children from two places.)
void print_address(const void* ip) {
  const char* name = function_of(ip);
  std::printf(" %p %s\n", std::strncmp(name, "_Z", 2) == 0 ? ip : nullptr, name);
}

VICTIM Trace take_trace() {
  Trace trace;
  trace.count = backtrace(trace.ips, kMax);
  return trace;
}

void print_innermost() {
  print_from(take_trace(), "innermost");
}

void print_middle() {
  print_from(take_trace(), "middle");
}

}  // namespace

namespace victim {

VICTIM int innermost(int n) {
  CALLED();
  if (g_in_body != nullptr) g_in_body();
  RETURNED();
  return n + 1;
}

VICTIM int middle(int n) {
  CALLED();
  int result = innermost(n);
  if (!scenario::is_probed && g_after_innermost != nullptr) g_after_innermost();
  RETURNED();
  return result + 1;
}

VICTIM int outermost(int n) {
  CALLED();
  const int result = n > 0 ? outermost(n - 1) : middle(n);
  RETURNED();
  return result + 1;
}

VICTIM void throws() {
  CALLED();
  throw std::runtime_error("thrown");
}

VICTIM void calls_thrower() {
  CALLED();
  throws();
  RETURNED();
}

// Tells where it returns to, as it sees it and as fprobe_return_address() says.
VICTIM void print_own_return_address(bool is_hijacked) {
  CALLED();
  const void* seen = __builtin_return_address(0);
  const auto address = reinterpret_cast<unsigned long>(seen);
  CHECK(is_stub(seen) == is_hijacked);
  std::printf("by frame %lx, innermost %lx\n", fprobe_return_address(address, __builtin_dwarf_cfa()),
              fprobe_return_address(address, nullptr));
  RETURNED();
}

VICTIM void print_return_addresses(bool is_hijacked) {
  CALLED();
  print_own_return_address(is_hijacked);
  const void* seen = __builtin_return_address(0);
  CHECK(is_stub(seen) == is_hijacked);
  std::printf("caller's %lx\n", fprobe_return_address(reinterpret_cast<unsigned long>(seen), __builtin_dwarf_cfa()));
  RETURNED();
}

}  // namespace victim

namespace {

fprobe g_probe{};        // on victim::*
fprobe g_inner_probe{};  // on victim::innermost alone: its handlers take the traces

int do_nothing_on_entry(fprobe*, unsigned long, unsigned long, ftrace_regs*, void*) {
  return 0;
}
void do_nothing_on_exit(fprobe*, unsigned long, unsigned long, ftrace_regs*, void*) {}

// Entry and exit probes on every victim; `entry` and `exit` on the innermost.
void register_with(fprobe_entry_cb entry, fprobe_exit_cb exit) {
  if (!scenario::is_probed) return;
  g_probe.entry_handler = do_nothing_on_entry;
  g_probe.exit_handler = do_nothing_on_exit;
  CHECK(register_fprobe(&g_probe, "victim::*", nullptr) == 0);
  g_inner_probe.entry_handler = entry;
  g_inner_probe.exit_handler = exit;
  const char* name = "victim::innermost";
  CHECK(register_fprobe_syms(&g_inner_probe, &name, 1) == 0);
}

// Vectors of fprobe_backtrace() at both ends of the innermost call.
struct Vectors {
  unsigned long entry[kMax], exit[kMax];
  int at_entry, at_exit;
} g_vectors;

void check_vector(unsigned long entry_ip, unsigned long ret_ip, const ftrace_regs* regs) {
  unsigned long ips[kMax];
  const int count = fprobe_backtrace(regs, ips, kMax);
  CHECK(count > 4 && count < kMax);
  CHECK(ips[0] == entry_ip);
  CHECK(ips[1] == ret_ip);
  for (int i = 0; i < count; ++i) CHECK(!libfprobe::detail::arch::is_stub(ips[i]));
  for (int max = 1; max <= count; ++max) {
    unsigned long fewer[kMax];
    CHECK(fprobe_backtrace(regs, fewer, max) == max);
    CHECK(std::memcmp(fewer, ips, static_cast<std::size_t>(max) * sizeof *ips) == 0);
  }
  CHECK(fprobe_backtrace(nullptr, ips, kMax) == -EINVAL);
  CHECK(fprobe_backtrace(regs, nullptr, kMax) == -EINVAL);
  CHECK(fprobe_backtrace(regs, ips, 0) == -EINVAL);
  CHECK(fprobe_backtrace(regs, ips, -1) == -EINVAL);
}

int keep_entry_vector(fprobe*, unsigned long entry_ip, unsigned long ret_ip, ftrace_regs* regs, void*) {
  check_vector(entry_ip, ret_ip, regs);
  g_vectors.at_entry = fprobe_backtrace(regs, g_vectors.entry, kMax);
  return 0;
}

void keep_exit_vector(fprobe*, unsigned long entry_ip, unsigned long ret_ip, ftrace_regs* regs, void*) {
  check_vector(entry_ip, ret_ip, regs);
  g_vectors.at_exit = fprobe_backtrace(regs, g_vectors.exit, kMax);
}

}  // namespace

SCENARIO(ABacktraceFromTheBodyReachesMain, kUnwinding) {
  g_in_body = print_innermost;
  std::printf("%d\n", victim::outermost(3));
}

SCENARIO(ABacktraceFromASignalHandlerInTheBodyReachesMain, kUnwinding) {
  static Trace trace = take_trace();  // the first one allocates memory, which a signal handler must not
  signal(SIGUSR1, [](int) { trace = take_trace(); });
  g_in_body = [] {
    raise(SIGUSR1);
    print_from(trace, "innermost");
  };
  std::printf("%d\n", victim::outermost(3));
}

SCENARIO(ABacktraceFromAnEntryHandlerShowsTheFunctionAndItsCallers, kOwnChecks) {
  register_with(
      [](fprobe*, unsigned long, unsigned long, ftrace_regs*, void*) {
        print_innermost();
        return 0;
      },
      do_nothing_on_exit);
  if (!scenario::is_probed) g_in_body = print_innermost;
  std::printf("%d\n", victim::outermost(3));
}

SCENARIO(ABacktraceFromAnEntryHandlerWithoutExitsShowsTheFunctionAndItsCallers, kOwnChecks) {
  if (scenario::is_probed) {
    g_inner_probe.entry_handler = [](fprobe*, unsigned long, unsigned long, ftrace_regs*, void*) {
      const Trace trace = take_trace();
      for (int i = 0; i < trace.count; ++i) CHECK(!is_stub(trace.ips[i]));
      print_from(trace, "innermost");
      return 0;
    };
    const char* name = "victim::innermost";
    CHECK(register_fprobe_syms(&g_inner_probe, &name, 1) == 0);
  } else {
    g_in_body = print_innermost;
  }
  std::printf("%d\n", victim::outermost(3));
}

SCENARIO(ABacktraceFromAnExitHandlerShowsTheCallers, kOwnChecks) {
  register_with(do_nothing_on_entry,
                [](fprobe*, unsigned long, unsigned long, ftrace_regs*, void*) { print_middle(); });
  g_after_innermost = print_middle;
  std::printf("%d\n", victim::outermost(3));
}

SCENARIO(ABacktraceFromTheExitHandlerOfAnUnwoundCallReachesMain, kOwnChecks) {
  if (scenario::is_probed) {
    g_probe.exit_handler = [](fprobe*, unsigned long, unsigned long, ftrace_regs* regs, void*) {
      CHECK(fprobe_exit_reason(regs) == FPROBE_EXIT_UNWOUND);
      print_from(take_trace(), "calls_thrower");
    };
    const char* name = "victim::throws";
    CHECK(register_fprobe_syms(&g_probe, &name, 1) == 0);
  }
  if (!scenario::is_probed) {
    // The unprobed program has no such place; what it shows here is what lies further out.
    std::printf(" _ZN6victim13calls_throwerEv\n");
    print_from(take_trace(), "ABacktraceFromTheExit");
  }
  try {
    victim::calls_thrower();
  } catch (const std::runtime_error& error) {
    std::printf("%s\n", error.what());
  }
}

SCENARIO(FprobeBacktraceGivesTrueAddressesAtBothEnds, kOwnChecks) {
  register_with(keep_entry_vector, keep_exit_vector);
  static Trace plain;
  g_in_body = [] { plain = take_trace(); };
  std::printf("%d\n", victim::outermost(3));
  if (!scenario::is_probed) {
    // Behind the frames of the trace itself lie the callers of the innermost function.
    int i = 0;
    while (i < plain.count && std::strstr(function_of(plain.ips[i]), "innermost") == nullptr) ++i;
    for (++i; i < plain.count; ++i) print_address(plain.ips[i]);
    return;
  }
  CHECK(g_vectors.at_entry == g_vectors.at_exit);
  CHECK(std::memcmp(g_vectors.entry, g_vectors.exit, static_cast<std::size_t>(g_vectors.at_entry) * sizeof(long)) == 0);
  for (int i = 1; i < g_vectors.at_entry; ++i) print_address(reinterpret_cast<const void*>(g_vectors.entry[i]));
}

SCENARIO(FprobeReturnAddressTranslatesStubs, kUnwinding) {
  victim::print_return_addresses(scenario::is_probed);
  const auto other = reinterpret_cast<unsigned long>(&std::printf);
  CHECK(fprobe_return_address(other, nullptr) == other);
  CHECK(fprobe_return_address(0, nullptr) == 0);
}

SCENARIO(AnEntryProbeLeavesTheReturnAddressAlone, kOwnChecks) {
  g_probe.entry_handler = do_nothing_on_entry;
  if (scenario::is_probed) CHECK(register_fprobe(&g_probe, "victim::*", nullptr) == 0);
  victim::print_return_addresses(false);
}
