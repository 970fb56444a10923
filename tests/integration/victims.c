/* See victims.h. */
#include "integration/victims.h"

#include <errno.h>
#include <fprobe/fprobe.h>

VICTIM long add(long a, long b) {
  return a + b;
}
VICTIM long twice(long x) {
  return 2 * x;
}
VICTIM long thrice(long x) {
  return 3 * x;
}
VICTIM long quadruple(long x) {
  return 4 * x;
}
VICTIM long call_back(long (*callback)(void*), void* argument) {
  return callback(argument) + 1;
}
VICTIM long calls_twice(long x) {
  return twice(x) + 1;
}

/* Through a pointer, or the compiler would make a loop of it. */
static long (*volatile deeper)(long) = &deep;
VICTIM long deep(long depth) {
  return depth != 0 ? deeper(depth - 1) + 1 : 0;
}

VICTIM void does_nothing(void) {}
VICTIM int set_errno(int value) {
  const int found = errno;
  errno = value;
  return found;
}
VICTIM long alias_target(long x) {
  return x + 100;
}
long alias_name(long x) __attribute__((alias("alias_target")));

VICTIM long func1(long x) {
  return x + 1;
}
VICTIM long func2(long x) {
  return x + 2;
}
VICTIM long func3(long x) {
  return x + 3;
}
VICTIM long func_other(long x) {
  return x + 4;
}
FPROBE_NOTRACE VICTIM long without_site(long x) {
  return x + 5;
}
