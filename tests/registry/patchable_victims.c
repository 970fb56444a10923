#include "registry/victims.h"

__attribute__((noinline)) long patchable_victim(long x) {
  return x + 4;
}
