int instrumented_library_function(void);
int instrumented_library_function(void) {
  return 1;
}
