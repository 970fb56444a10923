/* A shared library with IFUNCs that are bound late, or by another module only. */
int library_chosen(int value) {
  return value * 3;
}
int library_other(int value) {
  return value * 5;
}

int library_switch = 1;

static int (*resolve(void))(int) {
  return library_switch == 1 ? library_chosen : library_other;
}

int library_ifunc(int value) __attribute__((ifunc("resolve")));
int library_ifunc_for_users(int value) __attribute__((ifunc("resolve")));

__attribute__((noinline)) static int local_function(int value) {
  return value + library_switch;
}

/* Goes through the library's own PLT: binds library_ifunc at its first call. */
int library_call_ifunc(int value) {
  return library_ifunc(value) + local_function(value);
}
