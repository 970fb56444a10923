// Probed functions of the single-step test.
#ifndef FPROBE_TESTS_INTEGRATION_SINGLE_STEP_VICTIMS_H_
#define FPROBE_TESTS_INTEGRATION_SINGLE_STEP_VICTIMS_H_

namespace victim {

long leaf(long n);
long chain(long n);                         // n calls deep
long tail(long n);                          // ends in a tail call of leaf
long calls_back(void (*inside)(), long n);  // calls `inside` in its body
void throw_through(int frames);

}  // namespace victim

#endif  // FPROBE_TESTS_INTEGRATION_SINGLE_STEP_VICTIMS_H_
