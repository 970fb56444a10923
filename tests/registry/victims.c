#include "registry/victims.h"

#define VICTIM __attribute__((noinline))

VICTIM long first_victim(long x) {
  return x + 1;
}
VICTIM long second_victim(long x) {
  return x + 2;
}
VICTIM long third_victim(long x) {
  return x + 3;
}
VICTIM long calls_back(long (*callback)(void*), void* argument) {
  return callback(argument) + 1;
}
