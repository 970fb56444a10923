// A program that was stripped: `program named` expects its debug file to tell its functions, `program nameless` that
// nothing does.  Each complaint is a line, the exit status their number.
#include <errno.h>
#include <fprobe/fprobe.h>

#include <atomic>
#include <cstdio>
#include <cstring>

namespace {

int complaints = 0;

void expect(bool holds, const char* what) {
  if (holds) return;
  ++complaints;
  std::printf("%s does not hold: %s\n", what, fprobe_last_error());
}

__attribute__((noinline, noclone)) long hidden_in_program(long x) {
  __asm__ volatile("");
  return x + 1;
}

std::atomic<int> hits{0};
int count(fprobe*, unsigned long, unsigned long, ftrace_regs*, void*) {
  return ++hits;  // no exit
}

void expect_hit(int registered, fprobe& probe, const char* what) {
  expect(registered == 0, what);
  if (registered != 0) return;
  hits = 0;
  expect(hidden_in_program(1) == 2 && hits == 1, "the probed function is hit");
  expect(unregister_fprobe(&probe) == 0, "unregistering");
}

}  // namespace

int main(int argc, char** argv) {
  const bool is_named = argc == 2 && std::strcmp(argv[1], "named") == 0;
  fprobe probe{};
  probe.entry_handler = count;
  const char* names[] = {"(anonymous namespace)::hidden_in_program"};
  const int by_name = register_fprobe_syms(&probe, names, 1);
  if (is_named) expect_hit(by_name, probe, "registering by name");
  if (!is_named) {
    expect(by_name == -ENOENT, "the name is unknown");
    expect(std::strstr(fprobe_last_error(), "stripped") != nullptr, "the sentence says that the program is stripped");
  }
  auto address = reinterpret_cast<unsigned long>(hidden_in_program);
  const int by_address = register_fprobe_ips(&probe, &address, 1);
  expect_hit(by_address, probe, "registering by address");
  return complaints;
}
