// A plugin with a libfprobe of its own: what its author's code would do.
#include <fprobe/fprobe.h>

#include <cstdio>

extern "C" __attribute__((visibility("default"))) int plugin_unregisters(bool waits, bool gives_struct) {
  static fprobe never_registered;
  fprobe* const probe = gives_struct ? &never_registered : nullptr;
  return waits ? unregister_fprobe(probe) : unregister_fprobe_async(probe);
}

extern "C" __attribute__((visibility("default"))) int plugin_registers(const char* name, char* sentence,
                                                                       unsigned long size) {
  static fprobe probe;
  const int result = register_fprobe_syms(&probe, &name, 1);
  std::snprintf(sentence, size, "%s", fprobe_last_error());
  if (result == 0) unregister_fprobe(&probe);
  return result;
}
