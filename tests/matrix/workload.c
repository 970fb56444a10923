// C: leaves, recursion, varargs, tail calls, arguments on the stack, frames of every kind, a function of threads.
#include "workload.h"

#include <stdarg.h>

ONE_BODY int leaf(int x) {
  EFFECT;
  return x * 3 + 1;
}
ONE_BODY static int called(int x) {
  EFFECT;
  return leaf(x) ^ 5;
}
ONE_BODY static int taken(int x) {
  EFFECT;
  return x - 7;
}
int (*volatile g_taken)(int) = taken;

ONE_BODY void empty(void) {
  EFFECT;
}

ONE_BODY int descend(int depth) {
  const int below = depth == 0 ? 0 : descend(depth - 1);
  EFFECT;
  return below + depth;
}
ONE_BODY long fibonacci(int n) {
  long sum = n;
  if (n > 1) {
    sum = fibonacci(n - 1);
    EFFECT;
    sum += fibonacci(n - 2);
    EFFECT;
  }
  return sum;
}

ONE_BODY long sum_longs(int count, ...) {
  va_list arguments;
  long total = 0;
  va_start(arguments, count);
  while (count-- > 0) total += va_arg(arguments, long);
  va_end(arguments);
  EFFECT;
  return total;
}
ONE_BODY double sum_doubles(int count, ...) {
  va_list arguments;
  double total = 0;
  va_start(arguments, count);
  while (count-- > 0) total += va_arg(arguments, double);
  va_end(arguments);
  EFFECT;
  return total;
}
ONE_BODY long many_arguments(long a, long b, long c, long d, long e, long f, long g, long h, long i) {
  EFFECT;
  return a + 2 * b + 3 * c + 4 * d + 5 * e + 6 * f + 7 * g + 8 * h + 9 * i;
}
ONE_BODY double scale(double x, float y) {
  EFFECT;
  return x * (double)y + 2;
}

ONE_BODY int last_of_tail(int x) {
  EFFECT;
  return x + 100;
}
ONE_BODY int middle_of_tail(int x) {
  EFFECT;
  return last_of_tail(x * 2);
}
ONE_BODY int first_of_tail(int x) {
  EFFECT;
  return middle_of_tail(x + 1);
}
ONE_BODY int is_odd(unsigned n);
ONE_BODY int is_even(unsigned n) {
  EFFECT;
  return n == 0 ? 1 : is_odd(n - 1);
}
ONE_BODY int is_odd(unsigned n) {
  EFFECT;
  return n == 0 ? 0 : is_even(n - 1);
}

ONE_BODY int loop_at_the_start(const int* p) {
  while (*p != 9) ++p;
  EFFECT;
  return *p;
}

struct Big {
  long words[6];
};
ONE_BODY struct Big make_big(long x) {
  struct Big big;
  for (int i = 0; i < 6; ++i) big.words[i] = x + i;
  EFFECT;
  return big;
}
// gcc behind a prologue: the return address is reached through a copy (DRAP).
ONE_BODY long realigned(int n) {
  _Alignas(64) volatile long aligned[4] = {1, 2, 3, 4};
  volatile char variable[n];
  variable[n - 1] = (char)n;
  EFFECT;
  return (((unsigned long)&aligned[0]) % 64 == 0 ? aligned[3] : -1) + variable[n - 1];
}

#ifndef __clang__
// A nested function: r10 is its static chain.
ONE_BODY int outer(int x) {
  int factor = x + 1;
  ONE_BODY int inner(int y) {
    EFFECT;
    factor += y;
    return factor * y;
  }
  const int first = inner(2);
  EFFECT;
  return first + inner(3) + factor;
}
#else
#define outer(x) (2 * (x + 3) + 3 * (x + 6) + x + 6)
#endif

ONE_BODY long of_a_thread(long x) {
  EFFECT;
  return x + 1;
}
ONE_BODY void* run_thread_part(void* number) {
  long x = (long)number;
  for (int i = 0; i < kCallsOfEachThread; ++i) x = of_a_thread(x);
  return (void*)x;
}

ONE_BODY void run_c_part(void) {
  static const int numbers[] = {1, 4, 2, 9, 5};
  expect_result("leaf", leaf(4), 13);
  expect_result("called", called(2), 2);
  expect_result("taken", g_taken(10), 3);
  empty();
  empty();
  expect_result("descend", descend(50), 1275);
  expect_result("fibonacci", fibonacci(10), 55);
  expect_result("sum_longs", sum_longs(8, 1L, 2L, 3L, 4L, 5L, 6L, 7L, 8L), 36);
  expect_result("sum_doubles", (long)(sum_doubles(10, .5, 1., 1., 1., 1., 1., 1., 1., 1., .5) * 4), 36);
  expect_result("many_arguments", many_arguments(1, 2, 3, 4, 5, 6, 7, 8, 9), 285);
  expect_result("scale", (long)scale(2.5, 4.f), 12);
  expect_result("first_of_tail", first_of_tail(3), 108);
  expect_result("is_even", is_even(9), 0);
  expect_result("loop_at_the_start", loop_at_the_start(numbers), 9);
  expect_result("make_big", make_big(10).words[5], 15);
  expect_result("realigned", realigned(40), 44);
  expect_result("outer", outer(1), 36);
}
