// <fprobe/kprobes.h>: the recursion switch that callbacks shared with kprobes use.
#include <fprobe/kprobes.h>

#include "hot/hit.h"

using libfprobe::detail::tls_kprobe_depth;

extern "C" {

bool kprobe_running(void) {
  return tls_kprobe_depth != 0;
}

void kprobe_busy_begin(void) {
  ++tls_kprobe_depth;
}

void kprobe_busy_end(void) {
  if (tls_kprobe_depth != 0) --tls_kprobe_depth;
}

}  // extern "C"
