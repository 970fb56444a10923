/* A library that is loaded and unloaded; PLUGIN_FACTOR tells its builds apart. */
long plugin_function(long x);

__attribute__((noinline)) long plugin_function(long x) {
  return x * 10 + PLUGIN_FACTOR;
}
