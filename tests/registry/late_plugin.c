/* A library that is loaded while registrations wait for it: its constructor calls the function that is probed. */
static long g_constructed;

long late_function(long x);
long late_other(long x);
long late_constructed(void);

__attribute__((noinline)) long late_function(long x) {
  return x * 10 + 1;
}
__attribute__((noinline)) long late_other(long x) {
  return x * 10 + 2;
}
long late_constructed(void) {
  return g_constructed;
}

__attribute__((constructor)) static void construct(void) {
  volatile long four = 4; /* no compiler knows the result */
  g_constructed = late_function(four);
}

#ifdef LATE_IFUNC
/* A function that has no name of its own: only the IFUNC leads to it. */
long late_chosen(long x);
__attribute__((noinline)) static long implementation(long x) {
  return x * 10 + 3;
}
static long (*resolve(void))(long) {
  return implementation;
}
long late_chosen(long x) __attribute__((ifunc("resolve")));
long late_calls_chosen(long x);
long late_calls_chosen(long x) {
  return late_chosen(x) + 1;
}
#endif

#ifdef LATE_TEXT_RELOCATION
/* The address in this instruction is written by the loader. */
void* late_address(void);
__asm__(
    ".globl late_address\n"
    ".type late_address, @function\n"
    "late_address: movabsq $late_function, %rax\n"
    "ret\n"
    ".size late_address, .-late_address\n");
#endif
