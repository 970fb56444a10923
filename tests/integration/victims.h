/* The functions that the contract tests probe. They are compiled with sites; whoever calls them is not. */
#ifndef FPROBE_TESTS_INTEGRATION_VICTIMS_H_
#define FPROBE_TESTS_INTEGRATION_VICTIMS_H_

#include <setjmp.h>
#include <stdarg.h>

/* Keeps a function as it is written: no inlining, no clones, nothing known about it in its callers. */
#if defined(__clang__)
#define VICTIM __attribute__((noinline))
#else
#define VICTIM __attribute__((noipa))
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* victims.c */
long add(long a, long b);
long twice(long x);
long thrice(long x);
long quadruple(long x);
long call_back(long (*callback)(void*), void* argument); /* what the callback returns, plus 1 */
long calls_twice(long x);                                /* twice(x) + 1 */
long deep(long depth);                                   /* calls itself that often; returns `depth` */
void does_nothing(void);
int set_errno(int value); /* returns the errno it found */
long alias_target(long x);
long alias_name(long x); /* the same function */
long func1(long x);
long func2(long x);
long func3(long x);
long func_other(long x);
long without_site(long x); /* FPROBE_NOTRACE */

/* victims_abi.c: how arguments and results travel */
struct six_longs {
  long v[6];
};
unsigned long own_return_address(unsigned long n); /* of a frame that is realigned and movable */
struct two_longs {
  long a, b;
};
struct two_doubles {
  double a, b;
};
struct long_and_double {
  long a;
  double b;
};
long nine(long a0, long a1, long a2, long a3, long a4, long a5, long a6, long a7, long a8); /* a0 + 2 a1 + ... + 9 a8 */
double eight_doubles(double a, double b, double c, double d, double e, double f, double g, double h);
float sum_floats(float a, float b);
double mixed(long a, double b, int c, float d, const char* e);
long count_varargs(int count, ...);                               /* the sum of `count` longs */
double sum_varargs(int count, ...);                               /* the sum of `count` doubles */
int format(char* out, unsigned long size, const char* text, ...); /* vsnprintf */
struct six_longs make_six(long first);
struct two_longs make_two_longs(long first);
struct two_doubles make_two_doubles(double first);
struct long_and_double make_long_and_double(long a, double b);
long double halve(long double x);
__extension__ typedef __int128 int128;
int128 multiply(long a, long b);
double hypotenuse(double a, double b); /* a*a + b*b */
typedef float vector4 __attribute__((vector_size(16)));
vector4 add_vectors(vector4 a, vector4 b);
double divide(double a, double b);
int convert(double x); /* by the rounding mode in force */

/* victims_tail.c: calls that are jumps */
long tail_first(long x); /* -> tail_second -> tail_last, which has no site; x + 3 */
long tail_second(long x);
long tail_last(long x);               /* FPROBE_NOTRACE */
long tail_from_unprobed(long x);      /* FPROBE_NOTRACE, -> twice */
long tail_self(long steps, long sum); /* -> itself; sum + steps */
long tail_even(long steps);           /* -> tail_odd -> tail_even ... ; 0 when steps is even */
long tail_odd(long steps);
long tail_after(void (*before)(void), long x); /* before(), then -> tail_second; x + 2 */

/* victims_jump.c: calls that are left by longjmp */
long jump_out(int depth, jmp_buf* target); /* calls itself `depth` times, then longjmp(target, 1) */
long jump_round(int depth);                /* sets a target, jump_out(depth) to it, returns depth */

/* victims_same_a.c, victims_same_b.c: each has a static function `same_name` */
long call_same_a(long x); /* x + 1 */
long call_same_b(long x); /* x + 2 */

/* victims_ifunc.c */
long ifunc_chosen(long x); /* bound to ifunc_fast at load */
long ifunc_fast(long x);
long ifunc_slow(long x);

/* victims_branch.c: a landing pad for indirect branches comes first */
long guarded(long x); /* x + 50 */

/* victims_clones.cpp, gcc only: callers of functions and of their clones */
long call_scaled(long x, long times); /* space::scaled; x * 2^times */
long call_scaled_thrice(long x);      /* space::scaled's .constprop.0; 8 x */
long call_summed(long x);             /* summed.isra.0; 4 x + 3 */
long call_summed_of_others(long x);   /* summed.isra.0; 7 x + 2 */
long call_parted(long x);             /* parted.part.0 unless x < 0: then -1 */
long call_parted_and_add(long x);     /* of x + 1; 1 more */

/* victims_nested.c, gcc only: a nested function with a static chain */
long nested_sum(long base, long count); /* base * count + 0 + 1 + ... */

/* victims_names.cpp */
long call_overloads(long x); /* space::over(int) + space::over(double) = x + 2 * x */
long call_widget(long x);    /* Widget(x), through a complete and a base constructor; twice(x) */
long call_template(long x);  /* space::sized<int>(x) + space::sized<long>(x) = 4 x + 8 x */
long call_lambda(long x);    /* 5 x */
long call_operator(long x);  /* 7 x */
long call_anonymous(long x); /* 11 x */
long call_virtual(long x);   /* 13 x, through a thunk */
long call_tagged(long x);    /* 17 x, by a function with an ABI tag */
long call_pair(long x);      /* 2 x, by a template with two arguments and a function of two parameters */
long call_compare(long x);   /* 1 if x < 3, 2 if x > 3, by operators */

#ifdef __cplusplus
}
#endif

#endif /* FPROBE_TESTS_INTEGRATION_VICTIMS_H_ */
