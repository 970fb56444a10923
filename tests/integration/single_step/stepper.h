// Runs code one instruction at a time and checks its returns as a hardware shadow stack would.
//
// A child process is traced by its parent.  Every `call` pushes the word that it wrote onto a simulated shadow stack,
// every `ret` pops one and must go to exactly that address.
#ifndef FPROBE_TESTS_INTEGRATION_SINGLE_STEP_STEPPER_H_
#define FPROBE_TESTS_INTEGRATION_SINGLE_STEP_STEPPER_H_

#include <cstdint>

struct StepReport {
  bool completed = false;  // the body returned true, and the child ended well
  unsigned long steps = 0;
  unsigned long calls = 0;
  unsigned long planting_calls = 0;  // those that return stubs executed
  unsigned long rets = 0;
  unsigned long unmatched = 0;             // rets to another address than their call's
  std::uintptr_t first_unmatched_ip = 0;   // the instruction
  std::uintptr_t first_unmatched_to = 0;   // where it went
  std::uintptr_t first_unmatched_own = 0;  // where it should have gone
};

// `prepare` runs in the child before the steps are counted (register probes, fill caches), `body` step by step.
StepReport step_through(bool (*prepare)(), bool (*body)());

#endif  // FPROBE_TESTS_INTEGRATION_SINGLE_STEP_STEPPER_H_
