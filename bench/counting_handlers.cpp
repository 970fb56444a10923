// The handlers of CountingProbe.  This file is compiled with -mgeneral-regs-only.
#include "counting_probe.h"

namespace {

CountingProbe::Counters& counters_of(fprobe* probe) {
  static_assert(offsetof(CountingProbe::Counters, probe) == 0);
  return *reinterpret_cast<CountingProbe::Counters*>(probe);
}

}  // namespace

int count_entry(fprobe* probe, unsigned long entry_ip, unsigned long, ftrace_regs*, void* data) {
  counters_of(probe).entries++;
  if (data != nullptr) *static_cast<unsigned long*>(data) = entry_ip;
  return 0;
}

void count_exit(fprobe* probe, unsigned long entry_ip, unsigned long, ftrace_regs*, void* data) {
  counters_of(probe).exits++;
  if (data != nullptr && *static_cast<unsigned long*>(data) != entry_ip) counters_of(probe).data_errors++;
}
