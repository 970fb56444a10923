#include "many_functions.h"

// Differing constants keep identical-code folding away; the second operation makes a body of ordinary length.
#define DEFINE_FUNCTION(digits)                                       \
  extern "C" long function_##digits(long value) {                     \
    return (value ^ (1##digits * 7)) * 3 + (value >> 1##digits % 61); \
  }
FPROBE_BENCH_10000(DEFINE_FUNCTION)

#define NAME_FUNCTION(digits) function_##digits,
const ManyFunction many_functions[kManyFunctions] = {FPROBE_BENCH_10000(NAME_FUNCTION)};
