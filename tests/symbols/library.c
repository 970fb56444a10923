/* A library of one exported function and one that only a full symbol table names; FACTOR makes another build of it. */
long exported_function(long x);
unsigned long address_of_hidden_function(void);

__attribute__((noinline, noclone)) static long hidden_function(long x) {
  __asm__ volatile("");
  return x * FACTOR + 1;
}

long exported_function(long x) {
  return hidden_function(x) + 1;
}

unsigned long address_of_hidden_function(void) {
  return (unsigned long)hidden_function;
}
