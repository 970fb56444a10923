// Victims in a shared library.
#include "library.h"

#include <cstdio>

#include "tally.h"

namespace victim {

VICTIM void throw_from_library(int frames) {
  CALLED();
  if (frames > 1) throw_from_library(frames - 1);
  if (frames <= 1) throw LibraryError("from the library");
  RETURNED();
}

VICTIM void call_back(void (*callback)(int), int number) {
  CALLED();
  callback(number);
  RETURNED();
}

VICTIM int catch_in_library(void (*callback)(int), int number) {
  CALLED();
  int caught = 0;
  try {
    callback(number);
  } catch (const std::runtime_error& error) {
    std::printf("the library caught: %s\n", error.what());
    caught = number;
  }
  RETURNED();
  return caught;
}

}  // namespace victim
