// Ten thousand functions with sites: function_0000 ... function_9999, made by the preprocessor.
#ifndef FPROBE_BENCH_MANY_FUNCTIONS_H_
#define FPROBE_BENCH_MANY_FUNCTIONS_H_

inline constexpr int kManyFunctions = 10000;

using ManyFunction = long (*)(long);
extern const ManyFunction many_functions[kManyFunctions];

// 10, 100, 1000, 10000 calls of X(four digits).
// clang-format off
#define FPROBE_BENCH_10(X, p) \
  X(p##0) X(p##1) X(p##2) X(p##3) X(p##4) X(p##5) X(p##6) X(p##7) X(p##8) X(p##9)
#define FPROBE_BENCH_100(X, p) \
  FPROBE_BENCH_10(X, p##0) FPROBE_BENCH_10(X, p##1) FPROBE_BENCH_10(X, p##2) FPROBE_BENCH_10(X, p##3) \
  FPROBE_BENCH_10(X, p##4) FPROBE_BENCH_10(X, p##5) FPROBE_BENCH_10(X, p##6) FPROBE_BENCH_10(X, p##7) \
  FPROBE_BENCH_10(X, p##8) FPROBE_BENCH_10(X, p##9)
#define FPROBE_BENCH_1000(X, p) \
  FPROBE_BENCH_100(X, p##0) FPROBE_BENCH_100(X, p##1) FPROBE_BENCH_100(X, p##2) FPROBE_BENCH_100(X, p##3) \
  FPROBE_BENCH_100(X, p##4) FPROBE_BENCH_100(X, p##5) FPROBE_BENCH_100(X, p##6) FPROBE_BENCH_100(X, p##7) \
  FPROBE_BENCH_100(X, p##8) FPROBE_BENCH_100(X, p##9)
#define FPROBE_BENCH_10000(X) \
  FPROBE_BENCH_1000(X, 0) FPROBE_BENCH_1000(X, 1) FPROBE_BENCH_1000(X, 2) FPROBE_BENCH_1000(X, 3) \
  FPROBE_BENCH_1000(X, 4) FPROBE_BENCH_1000(X, 5) FPROBE_BENCH_1000(X, 6) FPROBE_BENCH_1000(X, 7) \
  FPROBE_BENCH_1000(X, 8) FPROBE_BENCH_1000(X, 9)
// clang-format on

#endif  // FPROBE_BENCH_MANY_FUNCTIONS_H_
