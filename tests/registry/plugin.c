/* A library that is loaded and unloaded; PLUGIN_FACTOR tells its builds apart, PLUGIN_FUNCTION may rename its function. */
#ifndef PLUGIN_FUNCTION
#define PLUGIN_FUNCTION plugin_function
#endif

long PLUGIN_FUNCTION(long x);
long plugin_calls_back(long (*callback)(void*), void* argument);

__attribute__((noinline)) long PLUGIN_FUNCTION(long x) {
  return x * 10 + PLUGIN_FACTOR;
}
__attribute__((noinline)) long plugin_calls_back(long (*callback)(void*), void* argument) {
  return callback(argument) + 1;
}
