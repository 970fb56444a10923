/* See victims.h. */
#include "integration/victims.h"

VICTIM static long same_name(long x) {
  return x + 2;
}

VICTIM long call_same_b(long x) {
  return same_name(x);
}
