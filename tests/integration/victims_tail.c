/* See victims.h: compiled without sanitizers, which would make ordinary calls of these jumps. */
#include "integration/victims.h"

#include <fprobe/fprobe.h>

FPROBE_NOTRACE VICTIM long tail_last(long x) {
  return x + 1;
}
VICTIM long tail_second(long x) {
  return tail_last(x + 1);
}
VICTIM long tail_first(long x) {
  return tail_second(x + 1);
}
FPROBE_NOTRACE VICTIM long tail_from_unprobed(long x) {
  return twice(x);
}

/* Through a pointer, or the compiler would make a loop of it. */
static long (*volatile self)(long, long) = &tail_self;
VICTIM long tail_self(long steps, long sum) {
  return steps == 0 ? sum : self(steps - 1, sum + 1);
}

VICTIM long tail_even(long steps) {
  return steps == 0 ? 0 : tail_odd(steps - 1);
}
VICTIM long tail_odd(long steps) {
  return steps == 0 ? 1 : tail_even(steps - 1);
}

VICTIM long tail_after(void (*before)(void), long x) {
  before();
  return tail_second(x);
}
