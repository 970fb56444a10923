// nongnu libunwind steps from probed functions and from handlers to main.  This program alone is linked with it.
#define UNW_LOCAL_ONLY
#include <libunwind.h>

#include <cstring>

#include "base/arch.h"
#include "scenario.h"

namespace {

// Prints the named functions from `first` to main, without return stubs.
VICTIM void print_from(const char* first) {
  unw_context_t context;
  unw_cursor_t cursor;
  CHECK(unw_getcontext(&context) == 0);
  CHECK(unw_init_local(&cursor, &context) == 0);
  bool printing = false;
  for (int i = 0; i < 64; ++i) {
    unw_word_t ip = 0, offset = 0;
    char name[256] = "?";
    CHECK(unw_get_reg(&cursor, UNW_REG_IP, &ip) == 0);
    const bool is_stub = libfprobe::detail::arch::is_stub(ip);
    if (!is_stub) (void)unw_get_proc_name(&cursor, name, sizeof name, &offset);
    printing |= std::strstr(name, first) != nullptr;
    if (printing && !is_stub) std::printf(" %s\n", name);
    if (std::strcmp(name, "main") == 0) return;
    if (unw_step(&cursor) <= 0) break;
  }
  std::printf("main is missing\n");
}

void (*g_in_body)();
void (*g_after_innermost)();

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
  const int result = innermost(n);
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

}  // namespace victim

namespace {

void print_innermost() {
  print_from("innermost");
}

void print_middle() {
  print_from("middle");
}

fprobe g_outer{};
fprobe g_inner{};

void register_with(fprobe_entry_cb entry, fprobe_exit_cb exit) {
  g_outer.exit_handler = [](fprobe*, unsigned long, unsigned long, ftrace_regs*, void*) {};
  CHECK(register_fprobe(&g_outer, "victim::*", nullptr) == 0);
  g_inner.entry_handler = entry;
  g_inner.exit_handler = exit;
  const char* name = "victim::innermost";
  CHECK(register_fprobe_syms(&g_inner, &name, 1) == 0);
}

}  // namespace

SCENARIO(NongnuStepsFromTheBodyToMain, kUnwinding) {
  g_in_body = print_innermost;
  std::printf("%d\n", victim::outermost(3));
}

SCENARIO(NongnuStepsFromAnEntryHandlerToMain, kOwnChecks) {
  if (!scenario::is_probed) g_in_body = print_innermost;
  if (scenario::is_probed) {
    register_with(
        [](fprobe*, unsigned long, unsigned long, ftrace_regs*, void*) {
          print_innermost();
          return 0;
        },
        nullptr);
  }
  std::printf("%d\n", victim::outermost(3));
}

SCENARIO(NongnuStepsFromAnExitHandlerToMain, kOwnChecks) {
  g_after_innermost = print_middle;
  if (scenario::is_probed) {
    register_with(nullptr, [](fprobe*, unsigned long, unsigned long, ftrace_regs*, void*) { print_middle(); });
  }
  std::printf("%d\n", victim::outermost(3));
}
