// Probed functions under a debugger; gdb_backtraces.sh looks at them.  C names, so that every debugger spells them alike.
#include <fprobe/fprobe.h>

#include <cstdio>
#include <cstdlib>

#ifdef __clang__
#define VICTIM __attribute__((noinline))
#else
#define VICTIM __attribute__((noipa))
#endif

extern "C" {

VICTIM void in_the_body() {
  asm volatile("");
}

VICTIM int victim_inner(int n) {
  in_the_body();
  return n + 1;
}

VICTIM int victim_middle(int n) {
  const int result = victim_inner(n);
  asm volatile("");
  return result + 1;
}

VICTIM int victim_outer(int n) {
  const int result = n > 0 ? victim_outer(n - 1) : victim_middle(n);
  asm volatile("");  // no loop in its place
  return result + 1;
}

VICTIM int victim_single(int n) {
  return n + 1;
}

VICTIM void before_the_hit() {
  asm volatile("");
}

VICTIM void after_the_hit() {
  asm volatile("");
}

VICTIM void in_the_handler() {
  asm volatile("");
}

static int handle_entry(fprobe*, unsigned long, unsigned long, ftrace_regs*, void*) {
  in_the_handler();
  return 0;
}

static void handle_exit(fprobe*, unsigned long, unsigned long, ftrace_regs*, void*) {
  in_the_handler();
}

VICTIM int caller(int n) {
  const int deep = victim_outer(n);
  before_the_hit();
  const int single = victim_single(n);
  after_the_hit();
  return deep + single;
}

}  // extern "C"

int main() {
  static fprobe probe{};
  probe.entry_handler = handle_entry;
  probe.exit_handler = handle_exit;
  if (register_fprobe(&probe, "victim_*", nullptr) != 0) {
    std::fprintf(stderr, "%s\n", fprobe_last_error());
    return 1;
  }
  const int result = caller(2);
  if (unregister_fprobe(&probe) != 0) return 1;
  std::printf("result %d\n", result);
  return result == 8 ? 0 : 1;
}
