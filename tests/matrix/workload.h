// The program under test of the matrix: compiled anew for each configuration, by gcc and clang, so that it includes nothing
// that takes time to compile. How often each of its functions runs is said in host_expectations.h.
#ifndef FPROBE_TESTS_MATRIX_WORKLOAD_H_
#define FPROBE_TESTS_MATRIX_WORKLOAD_H_

#ifdef __cplusplus
extern "C" {
#endif

// Of the host. Prints the result, and tells when it is wrong.
void expect_result(const char* what, long got, long wanted);

// Of the workload; main() of the host calls the two once, and the third on kThreads threads.
void run_c_part(void);
void run_cpp_part(void);
void* run_thread_part(void* number);

enum { kThreads = 4, kCallsOfEachThread = 25 };

#ifdef __cplusplus
}
#endif

// Functions keep one body each, whose calls are neither inlined, cloned nor merged, at any level of optimization.
#ifdef __clang__
#define ONE_BODY __attribute__((noinline))
#else
#define ONE_BODY __attribute__((noinline, noclone))
#endif
// A body that contains it has an effect; behind a call it keeps the call from becoming a jump.
#define EFFECT __asm__ volatile("" ::: "memory")

#endif  // FPROBE_TESTS_MATRIX_WORKLOAD_H_
