/* A library with a function that only a full symbol table names. */
long exported_function(long x);

__attribute__((noinline, noclone)) static long hidden_function(long x) {
  __asm__ volatile("");
  return x + 1;
}

long exported_function(long x) {
  return hidden_function(x) + 1;
}
