/* See victims.h. The resolver runs before any constructor, and before a sanitizer's runtime is ready. */
#include "integration/victims.h"

VICTIM long ifunc_fast(long x) {
  return x + 10;
}
VICTIM long ifunc_slow(long x) {
  return x + 20;
}

VICTIM static long (*ifunc_resolver(void))(long) {
  return &ifunc_fast;
}
long ifunc_chosen(long x) __attribute__((ifunc("ifunc_resolver")));
