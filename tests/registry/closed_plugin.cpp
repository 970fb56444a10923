// A plugin with a static libfprobe in it: probes its own function, lets it be called, unregisters.
#include <fprobe/fprobe.h>

extern "C" {

__attribute__((noinline)) long plugin_work(long (*inside)()) {
  return inside() + 1;
}

static fprobe g_probe;
static long g_exits;

static void on_exit(fprobe*, unsigned long, unsigned long, ftrace_regs*, void*) {
  __atomic_add_fetch(&g_exits, 1, __ATOMIC_RELAXED);
}

__attribute__((visibility("default"))) int plugin_start() {
  g_probe.exit_handler = &on_exit;
  const char* name = "plugin_work";
  return register_fprobe_syms(&g_probe, &name, 1);
}
__attribute__((visibility("default"))) int plugin_stop() {
  return unregister_fprobe(&g_probe);
}
__attribute__((visibility("default"))) long plugin_call(long (*inside)()) {
  return plugin_work(inside);
}
}
