// What the victims' shared library exports.
#ifndef FPROBE_TESTS_INTEGRATION_UNWIND_LIBRARY_H_
#define FPROBE_TESTS_INTEGRATION_UNWIND_LIBRARY_H_

#include <stdexcept>

struct __attribute__((visibility("default"))) LibraryError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

namespace victim {

void throw_from_library(int frames);
void call_back(void (*callback)(int), int number);
int catch_in_library(void (*callback)(int), int number);

}  // namespace victim

#endif  // FPROBE_TESTS_INTEGRATION_UNWIND_LIBRARY_H_
