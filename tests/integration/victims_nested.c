/* See victims.h. GNU C's nested functions get the address of their parent's locals in r10. */
#include "integration/victims.h"

VICTIM long nested_sum(long base, long count) {
  __extension__ VICTIM long inner(long i) {
    return base + i;
  }
  long sum = 0;
  for (long i = 0; i < count; ++i) sum += inner(i);
  return sum;
}
