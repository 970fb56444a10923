// Functions of which gcc makes clones, each with a site of its own.  This file has no VICTIM: the clones are wanted.
#include "integration/victims.h"

#define KEPT __attribute__((noinline))

namespace {
volatile long g_zero = 0;  // what the compiler does not know
}  // namespace

// scaled() and scaled().constprop.0, for callers that pass 3 (-fipa-cp-clone).  Hidden: a shared object's own calls.
namespace space {
__attribute__((visibility("hidden"))) KEPT long scaled(long x, long times) {
  for (long i = 0; i < times; ++i) x += x + g_zero;
  return x;
}
}  // namespace space

extern "C" {

// summed.isra.0 alone: it gets the members instead of their address.
struct three_longs {
  long a, b, c;
};
static KEPT long summed(const three_longs* three) {
  return three->a + 3 * three->c + g_zero;
}

// parted.part.0 alone: the test is inlined into the callers, the rest is not.
static long parted(long x) {
  if (__builtin_expect(x < 0, 1)) return -1;
  long sum = g_zero;
  for (long i = 0; i < x; ++i) sum += twice(i) * x;
  for (long i = 0; i < x; ++i) sum -= twice(i) ^ x;
  for (long i = 0; i < x; ++i) sum += twice(i) + x;
  return sum;
}

KEPT long call_scaled(long x, long times) {
  return space::scaled(x, times);
}
KEPT long call_scaled_thrice(long x) {
  return space::scaled(x, 3);
}
KEPT long call_summed(long x) {
  const three_longs three = {x, x, x + 1};
  return summed(&three);
}
KEPT long call_summed_of_others(long x) {
  const three_longs three = {x + 1, x, 2 * x};
  return summed(&three) + 1;
}
KEPT long call_parted(long x) {
  return parted(x);
}
KEPT long call_parted_and_add(long x) {
  return parted(x + 1) + 1;
}
}
