// The function with a site.
#include "victims.h"

extern "C" long probed_step(long value, long index) {
  return FPROBE_BENCH_STEP_BODY(value, index);
}
