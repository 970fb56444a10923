/* See victims.h. */
#include "integration/victims.h"

/* Through a pointer, or the compiler would make a loop of it. */
static long (*volatile deeper)(int, jmp_buf*) = &jump_out;
VICTIM long jump_out(int depth, jmp_buf* target) {
  if (depth == 1) longjmp(*target, 1);
  return deeper(depth - 1, target) + 1;
}

VICTIM long jump_round(int depth) {
  jmp_buf target;
  if (setjmp(target) == 0) jump_out(depth, &target);
  return depth;
}
