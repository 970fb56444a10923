/* A goto out of a nested function (gcc) leaves probed frames too; nested functions get their frame by the static chain. */
#include <stdio.h>

#include "nested.h"
#include "tally.h"

VICTIM static void victim_descend(void (*leave)(void), int n) {
  CALLED();
  if (n > 1) victim_descend(leave, n - 1);
  if (n <= 1) leave();
  RETURNED();
}

VICTIM static int victim_goto(int n) {
  __label__ out;
  int left = 0;
  CALLED();
  VICTIM void victim_inner(void) {
    CALLED();
    left = n;
    goto out;
  }
  victim_descend(victim_inner, n);
  left = -1;
out:
  RETURNED();
  return left;
}

/* Nested functions that return: the chain is right with the exit probed. */
VICTIM static long victim_sum(long n) {
  long sum = 0;
  CALLED();
  VICTIM void victim_add(long value) {
    CALLED();
    sum += value;
    RETURNED();
  }
  for (long i = 1; i <= n; ++i) victim_add(i);
  RETURNED();
  return sum;
}

void leave_nested_functions(int times) {
  for (int i = 0; i < times; ++i) {
    const int n = 1 + i % 7;
    if (victim_goto(n) != n) printf("wrong at %d\n", i);
    if (victim_sum(n) != (long)n * (n + 1) / 2) printf("wrong sum at %d\n", i);
  }
  printf("%d times\n", times);
}
