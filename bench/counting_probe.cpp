// Attaching and checking; not on the hit path.
#include "counting_probe.h"

#include <cstdio>
#include <cstdlib>

CountingProbe::CountingProbe(const char* function, const CountingOptions& options) : options_(options) {
  fprobe& probe = counters_.probe;
  probe.flags = options.flags;
  probe.entry_data_size = options.data_size;
  if (options.entry) probe.entry_handler = count_entry;
  if (options.exit) probe.exit_handler = count_exit;
  if (register_fprobe_syms(&probe, &function, 1) != 0) {
    std::fprintf(stderr, "%s cannot be probed: %s\n", function, fprobe_last_error());
    std::exit(1);
  }
}

CountingProbe::~CountingProbe() {
  unregister_fprobe(&counters_.probe);
}

bool CountingProbe::saw(unsigned long calls) const {
  return counters_.entries == (options_.entry ? calls : 0) && counters_.exits == (options_.exit ? calls : 0) &&
         counters_.data_errors == 0 && counters_.probe.nmissed == 0;
}
