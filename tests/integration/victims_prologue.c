/* Functions whose probe site lies behind a prologue (-pg), of every kind of frame. */
#include "victims_prologue.h"

#include <alloca.h>
#include <stdarg.h>

#if defined(__clang__)
#define COMPILER clang
#define ATTRIBUTES __attribute__((noinline))
#else
#define COMPILER gcc
#define ATTRIBUTES __attribute__((noipa))
#endif
#define PASTE_(a, b) a##_##b
#define PASTE(a, b) PASTE_(a, b)
#define NAME(name) PASTE(COMPILER, name)
#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)

static ATTRIBUTES __attribute__((no_instrument_function)) void touch(void* memory) {
  __asm__ volatile("" : : "r"(memory) : "memory");
}

ATTRIBUTES long NAME(weigh)(long a, long b, long c, long d) {
  touch(0);
  return a + 2 * b + 3 * c + 4 * d;
}

ATTRIBUTES long NAME(twice)(long a) {
  return 2 * a;
}

ATTRIBUTES double NAME(halve)(double a) {
  touch(0);
  return a / 2;
}

ATTRIBUTES long NAME(realigned)(long a, long b, long c, long d, long e, long f, long g, long h) {
  long weights[8] __attribute__((aligned(64))) = {1, 2, 3, 4, 5, 6, 7, 8};
  long* const movable = alloca(sizeof(long) * (unsigned long)(8 + (a & 7)));
  touch(weights);
  movable[0] = a, movable[1] = b, movable[2] = c, movable[3] = d;
  movable[4] = e, movable[5] = f, movable[6] = g, movable[7] = h;
  touch(movable);
  long sum = ((unsigned long)weights & 63) != 0 ? -1000000 : 0;
  for (int i = 0; i < 8; ++i) sum += weights[i] * movable[i];
  return sum;
}

ATTRIBUTES long NAME(aligned)(long a) {
  long copy[8] __attribute__((aligned(128)));
  copy[0] = a;
  touch(copy);
  return ((unsigned long)copy & 127) != 0 ? -1000000 : copy[0];
}

ATTRIBUTES long NAME(large)(long a) {
  char memory[100000];
  memory[99999] = (char)a;
  touch(memory);
  return memory[99999];
}

ATTRIBUTES long NAME(sum)(int count, ...) {
  va_list list;
  va_start(list, count);
  long sum = 0;
  while (count-- > 0) sum += va_arg(list, long);
  va_end(list);
  return sum;
}

ATTRIBUTES long NAME(call)(long (*function)(void*), void* argument) {
  return function(argument) + 1;
}

ATTRIBUTES long NAME(tail)(long a) {
  touch(0);
  return NAME(twice)(a);
}

const struct prologue_victims NAME(victims) = {TEXT(COMPILER), sizeof(TEXT(COMPILER)) == sizeof("gcc"),
                                               &NAME(weigh),   &NAME(twice),
                                               &NAME(halve),   &NAME(realigned),
                                               &NAME(aligned), &NAME(large),
                                               &NAME(sum),     &NAME(call),
                                               &NAME(tail)};
