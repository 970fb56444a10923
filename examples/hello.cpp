#include <fprobe/fprobe.h>

#include <cstdio>

[[gnu::noinline]] int greet(const char* name) {
  return std::printf("  Hello, %s!\n", name);
}

int main() {
  fprobe probe{};
  probe.entry_handler = [](fprobe*, unsigned long, unsigned long, ftrace_regs* regs, void*) {
    std::printf("greet(\"%s\")\n", reinterpret_cast<const char*>(ftrace_regs_get_argument(regs, 0)));
    return 0;  // run the exit handler too
  };
  probe.exit_handler = [](fprobe*, unsigned long, unsigned long, ftrace_regs* regs, void*) {
    std::printf("= %lu\n", ftrace_regs_get_return_value(regs));
  };
  const char* names[] = {"greet"};
  if (register_fprobe_syms(&probe, names, 1) != 0) return std::puts(fprobe_last_error()), 1;

  int printed = greet("world") + greet("again");
  unregister_fprobe(&probe);
  return printed + greet("nobody") == 0;
}
