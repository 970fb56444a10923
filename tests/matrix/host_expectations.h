// How often each function of the workload runs, and how often it is left by an exception, when main() calls run_c_part() and
// run_cpp_part() once and run_thread_part() on each thread. A function that is not listed does not run.
#ifndef FPROBE_TESTS_MATRIX_HOST_EXPECTATIONS_H_
#define FPROBE_TESTS_MATRIX_HOST_EXPECTATIONS_H_

#include "matrix/workload.h"

namespace matrix_host {

struct Expectation {
  const char* name;  // demangled, without a clone's suffix; a lambda is "lambda"
  unsigned long calls;
  unsigned long unwound = 0;
  bool may_have_no_site = false;  // not every compiler makes this function, or gives it a site
};

inline constexpr Expectation kExpectations[] = {
    {"run_c_part", 1},
    {"leaf", 2},
    {"called", 1},
    {"taken", 1},
    {"empty", 2},
    {"descend", 51},
    {"fibonacci", 177},
    {"sum_longs", 1},
    {"sum_doubles", 1},
    {"many_arguments", 1},
    {"scale", 1},
    {"first_of_tail", 1},
    {"middle_of_tail", 1},
    {"last_of_tail", 1},
    {"is_even", 5},
    {"is_odd", 5},
    {"loop_at_the_start", 1},
    {"make_big", 1},
    {"realigned", 1},
    {"outer", 1, 0, true},
    {"inner", 2, 0, true},
    {"run_thread_part", kThreads},
    {"of_a_thread", kThreads* kCallsOfEachThread},

    {"run_cpp_part", 1},
    {"matrix::Both::first(int)", 1},
    {"matrix::Base::third(int)", 1},
    {"matrix::Both::second(int)", 1},
    {"non-virtual thunk to matrix::Both::second(int)", 1, 0, true},
    {"matrix::Both::self()", 1},
    {"covariant return thunk to matrix::Both::self()", 1, 0, true},
    {"matrix::throw_above_three(int)", 4, 3},
    {"matrix::catch_here(int)", 2},
    {"matrix::throw_deep(int)", 8, 8},
    {"matrix::Guard::~Guard()", 8},
    {"matrix::clean_up(int)", 8},
    {"matrix::rethrow(int)", 1, 1},
    {"matrix::catch_all(int)", 1},
    {"matrix::throw_and_catch(int)", 1},
    {"int matrix::templated<2>(int)", 1},
    {"int matrix::templated<3>(int)", 1},
    {"matrix::call_lambda(int)", 1},
    {"lambda", 2},
    {"matrix::without_exceptions(int)", 1},
};

}  // namespace matrix_host

#endif  // FPROBE_TESTS_MATRIX_HOST_EXPECTATIONS_H_
