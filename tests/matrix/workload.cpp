// C++: virtual calls and their thunks, templates, lambdas, exceptions that are caught where they are thrown, in the caller
// and far up, rethrown ones, destructors on the way.
#include "workload.h"

namespace matrix {

struct Base {
  virtual int first(int x);
  virtual int third(int x);
  int base_member = 1;
};
struct Second {
  virtual Second* self();
  virtual int second(int x) = 0;
  int second_member = 2;
};
struct Both : Base, Second {
  int first(int x) override;
  Both* self() override;       // a covariant thunk
  int second(int x) override;  // a non-virtual thunk
  int member = 3;
};

ONE_BODY int Base::first(int x) {
  EFFECT;
  return x + base_member;
}
ONE_BODY int Base::third(int x) {
  EFFECT;
  return x * 5 + base_member;
}
ONE_BODY Second* Second::self() {
  EFFECT;
  return second_member == 0 ? nullptr : this;
}
ONE_BODY int Both::first(int x) {
  EFFECT;
  return x * 2 + member;
}
ONE_BODY Both* Both::self() {
  EFFECT;
  return this;
}
ONE_BODY int Both::second(int x) {
  EFFECT;
  return x * 3 + member + second_member;
}

struct Failure {
  int code;
};
long g_cleanups;

// What a destructor on the way does.
ONE_BODY void clean_up(int x) {
  EFFECT;
  g_cleanups += x;
}
struct Guard {
  int value;
  ONE_BODY ~Guard();
};
ONE_BODY Guard::~Guard() {
  clean_up(value);
  EFFECT;
}

ONE_BODY int throw_above_three(int x) {
  EFFECT;
  if (x > 3) throw Failure{x};
  return x;
}
ONE_BODY int catch_here(int x) {
  try {
    EFFECT;
    return throw_above_three(x) + 1;
  } catch (const Failure& failure) {
    return failure.code * 10;
  }
}
ONE_BODY int throw_deep(int depth) {
  const Guard guard{depth};
  const int below = depth == 0 ? throw_above_three(8) : throw_deep(depth - 1);
  EFFECT;
  return below + 1;
}
ONE_BODY int rethrow(int x) {
  try {
    return throw_above_three(x);
  } catch (...) {
    EFFECT;
    throw;
  }
}
ONE_BODY int throw_and_catch(int x) {
  try {
    EFFECT;
    throw Failure{x};
  } catch (const Failure& failure) {
    return failure.code + 1;
  }
}
ONE_BODY int catch_all(int x) {
  int sum = 0;
  try {
    sum += throw_deep(x);
  } catch (const Failure& failure) {
    sum += failure.code;
  }
  try {
    sum += rethrow(9);
  } catch (const Failure& failure) {
    sum += failure.code;
  }
  return sum;
}

template <int N>
ONE_BODY int templated(int x) {
  EFFECT;
  return x * N + N;
}

ONE_BODY int call_lambda(int x) {
  const auto lambda = [x](int y) ONE_BODY {
    EFFECT;
    return x * y + 1;
  };
  const int first = lambda(3);
  EFFECT;
  return first + lambda(4);
}

ONE_BODY int without_exceptions(int x) noexcept {
  EFFECT;
  return x ^ 21;
}

// Through pointers that no optimization sees through.
Both g_both;
Base* volatile g_base = &g_both;
Second* volatile g_second = &g_both;

}  // namespace matrix

extern "C" ONE_BODY void run_cpp_part(void) {
  using namespace matrix;
  g_cleanups = 0;
  expect_result("Both::first", g_base->first(4), 11);
  expect_result("Base::third", g_base->third(4), 21);
  expect_result("Both::second", g_second->second(4), 17);
  expect_result("Both::self", g_second->self() == g_second, 1);
  expect_result("catch_here", catch_here(2), 3);
  expect_result("catch_here, thrown", catch_here(6), 60);
  expect_result("catch_all", catch_all(7), 17);
  expect_result("cleanups", g_cleanups, 28);
  expect_result("throw_and_catch", throw_and_catch(11), 12);
  expect_result("templated", templated<2>(5) + templated<3>(5), 30);
  expect_result("call_lambda", call_lambda(2), 16);
  expect_result("without_exceptions", without_exceptions(1), 20);
}
