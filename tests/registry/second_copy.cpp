// A plugin with a libfprobe of its own: what its author's code would do.
#include <fprobe/fprobe.h>

#include <cstdio>

extern "C" __attribute__((visibility("default"))) int plugin_registers(const char* name, char* sentence,
                                                                       unsigned long size) {
  static fprobe probe;
  const int result = register_fprobe_syms(&probe, &name, 1);
  std::snprintf(sentence, size, "%s", fprobe_last_error());
  if (result == 0) unregister_fprobe(&probe);
  return result;
}
