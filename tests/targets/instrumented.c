// C functions of every kind that gets a site: global, static (called and address taken), recursive, variadic, tiny,
// with a loop at its very start, and a main.  Counted, never probed.
#include <stdarg.h>

volatile int sink;

#define FAMILY(n)                                                       \
  int leaf_##n(int x) {                                                 \
    return x * n + 1;                                                   \
  }                                                                     \
  static __attribute__((noinline)) int called_##n(int x) {              \
    return leaf_##n(x) ^ sink;                                          \
  }                                                                     \
  static int taken_##n(int x) {                                         \
    return x - n;                                                       \
  }                                                                     \
  int (*table_##n)(int) = taken_##n;                                    \
  int loop_##n(const int* p) {                                          \
    while (*p != n) ++p;                                                \
    return *p;                                                          \
  }                                                                     \
  unsigned recursive_##n(unsigned x) {                                  \
    return x < 2 ? x : recursive_##n(x / 2) + recursive_##n(x - 2) + n; \
  }                                                                     \
  int sum_##n(int count, ...) {                                         \
    va_list arguments;                                                  \
    int total = 0;                                                      \
    va_start(arguments, count);                                         \
    while (count-- > 0) total += va_arg(arguments, int);                \
    va_end(arguments);                                                  \
    return called_##n(total);                                           \
  }                                                                     \
  double floating_##n(double x, float y) {                              \
    return x * (double)y + n;                                           \
  }                                                                     \
  void empty_##n(void) {}

FAMILY(3)
FAMILY(5)
FAMILY(7)
FAMILY(11)
FAMILY(13)
FAMILY(17)
FAMILY(19)
FAMILY(23)

__attribute__((no_instrument_function)) int left_out(int x) {
  return x + 1;
}

int main(void) {
  return sum_3(2, 1, 2) + table_5(1);
}
