/* See victims.h. */
#include "integration/victims.h"

VICTIM static long same_name(long x) {
  return x + 1;
}

VICTIM long call_same_a(long x) {
  return same_name(x);
}
