// A program under gprof (linked with -pg) that probes itself for a while: exit status 0 when the probe worked.
#include <fprobe/fprobe.h>

#include "registry/victims.h"

static unsigned long g_entries;
static int on_entry(fprobe*, unsigned long, unsigned long, ftrace_regs*, void*) {
  ++g_entries;
  return 0;
}

int main() {
  fprobe probe{};
  probe.entry_handler = &on_entry;
  const char* name = "second_victim";
  for (int i = 0; i < 3; ++i) first_victim(i);
  for (int i = 0; i < 4; ++i) second_victim(i);
  if (register_fprobe_syms(&probe, &name, 1) != 0) return 1;
  for (int i = 0; i < 100; ++i) second_victim(i);
  if (unregister_fprobe(&probe) != 0 || g_entries != 100) return 2;
  for (int i = 0; i < 5; ++i) second_victim(i);
  return 0;
}
