#include "victims.h"

#ifdef __clang__
#define VICTIM __attribute__((noinline))
#else
#define VICTIM __attribute__((noipa))
#endif

namespace victim {

VICTIM long leaf(long n) {
  return n + 1;
}

VICTIM long chain(long n) {
  const long result = n > 0 ? chain(n - 1) : leaf(0);
  asm volatile("");
  return result + 1;
}

VICTIM long tail(long n) {
  return leaf(n * 2);
}

VICTIM long calls_back(void (*inside)(), long n) {
  inside();
  return n + 1;
}

VICTIM void throw_through(int frames) {
  if (frames > 1) throw_through(frames - 1);
  if (frames <= 1) throw frames;
  asm volatile("");  // no loop in the recursion's place
}

}  // namespace victim
