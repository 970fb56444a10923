#include <fprobe/fprobe.h>

#include <cstdio>

[[gnu::noinline]] int square(int x) {
  return x * x;
}

static int entered(fprobe*, unsigned long, unsigned long, ftrace_regs* regs, void*) {
  return std::printf("square(%d)", static_cast<int>(ftrace_regs_get_argument(regs, 0))) < 0;  // 0: run the exit handler
}

static void left(fprobe*, unsigned long, unsigned long, ftrace_regs* regs, void*) {
  std::printf(" = %d\n", static_cast<int>(ftrace_regs_get_return_value(regs)));
}

int main(int argc, char**) {
  fprobe probe{};
  probe.entry_handler = entered;
  probe.exit_handler = left;
  const char* names[] = {"square"};
  if (register_fprobe_syms(&probe, names, 1) != 0) return std::puts(fprobe_last_error()), 1;

  const int sum = square(argc + 2) + square(argc + 3);
  unregister_fprobe(&probe);
  std::printf("%d, and %d without the probe\n", sum, square(argc + 4));
}
