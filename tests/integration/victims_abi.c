/* See victims.h: one function for each way of passing arguments and results that the psABI knows. */
#include <fprobe/fprobe.h>

#include "integration/victims.h"

#include <math.h>
#include <stdio.h>

VICTIM long nine(long a0, long a1, long a2, long a3, long a4, long a5, long a6, long a7, long a8) {
  return a0 + 2 * a1 + 3 * a2 + 4 * a3 + 5 * a4 + 6 * a5 + 7 * a6 + 8 * a7 + 9 * a8;
}
VICTIM double eight_doubles(double a, double b, double c, double d, double e, double f, double g, double h) {
  return a + 2 * b + 3 * c + 4 * d + 5 * e + 6 * f + 7 * g + 8 * h;
}
VICTIM float sum_floats(float a, float b) {
  return a + b;
}
VICTIM double mixed(long a, double b, int c, float d, const char* e) {
  return (double)a + b + c + (double)d + e[0];
}
VICTIM long count_varargs(int count, ...) {
  va_list arguments;
  va_start(arguments, count);
  long sum = 0;
  for (int i = 0; i < count; ++i) sum += va_arg(arguments, long);
  va_end(arguments);
  return sum;
}
VICTIM double sum_varargs(int count, ...) {
  va_list arguments;
  va_start(arguments, count);
  double sum = 0;
  for (int i = 0; i < count; ++i) sum += va_arg(arguments, double);
  va_end(arguments);
  return sum;
}
VICTIM int format(char* out, unsigned long size, const char* text, ...) {
  va_list arguments;
  va_start(arguments, text);
  const int length = vsnprintf(out, size, text, arguments);
  va_end(arguments);
  return length;
}
VICTIM struct six_longs make_six(long first) {
  const struct six_longs six = {{first, first + 1, first + 2, first + 3, first + 4, first + 5}};
  return six;
}
VICTIM struct two_longs make_two_longs(long first) {
  const struct two_longs two = {first, first + 1};
  return two;
}
VICTIM unsigned long own_return_address(unsigned long n) {
  long aligned[8] __attribute__((aligned(64)));
  long* const movable = __builtin_alloca(sizeof(long) * (n + 1));
  __asm__ volatile("" : : "r"(aligned), "r"(movable) : "memory");
  return fprobe_return_address((unsigned long)__builtin_return_address(0), __builtin_dwarf_cfa());
}
VICTIM struct two_doubles make_two_doubles(double first) {
  const struct two_doubles two = {first, first + 1};
  return two;
}
VICTIM struct long_and_double make_long_and_double(long a, double b) {
  const struct long_and_double both = {a, b};
  return both;
}
VICTIM long double halve(long double x) {
  return x / 2;
}
VICTIM int128 multiply(long a, long b) {
  return (int128)a * b;
}
VICTIM double hypotenuse(double a, double b) {
  return a * a + b * b;
}
VICTIM vector4 add_vectors(vector4 a, vector4 b) {
  return a + b;
}
VICTIM double divide(double a, double b) {
  return a / b;
}
VICTIM int convert(double x) {
  return (int)lrint(x);
}
