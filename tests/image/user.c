/* Another module that uses the library's IFUNC. */
int library_ifunc_for_users(int value);

int user_call_ifunc(int value) {
  return library_ifunc_for_users(value);
}
