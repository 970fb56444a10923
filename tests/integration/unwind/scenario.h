// Scenarios: code that must behave the same without and with probes on it.
//
//   program <Name>    runs the scenario in two child processes, without and with probes on all of `victim::*`, and
//   compares
//                     what they wrote (stdout and stderr) and how they ended.  With probes also, exactly:
//                       entry handlers      = calls of victims
//                       exits RETURNED      = their returns
//                       exits UNWOUND       = calls without a return (Leaving::kUnwinding), every return value read as 0
//                       DROPPED misses      = calls without a return (Leaving::kJumping), no other miss
//                       each call's exit    runs once, with the entry's ret_ip and data, on the entry's thread
//                       unregister_fprobe() returns 0, and nothing fires afterwards
//   program <Name> plain|probed     runs it in this process, for a debugger
//   program           lists the scenarios
//
// No test framework: these programs are also built with other C++ libraries, statically, and by other compilers.
#ifndef FPROBE_TESTS_INTEGRATION_UNWIND_SCENARIO_H_
#define FPROBE_TESTS_INTEGRATION_UNWIND_SCENARIO_H_

#include <fprobe/fprobe.h>

#include <cstdio>
#include <cstdlib>

#include "tally.h"

namespace scenario {

enum class Leaving {
  kUnwinding,    // victims are left by exceptions and forced unwinding, if not by their return
  kJumping,      // by longjmp: the scenario runs on a thread of its own, at whose end all frames are known to be gone
  kTermination,  // the process ends inside: exits of the frames that remain are not asked for
  kOwnChecks,    // the scenario registers what it wants and checks by itself
};

struct Registration {
  Registration(const char* name, void (*run)(), Leaving leaving);
  const char* name;
  void (*run)();
  Leaving leaving;
  Registration* next;
};

// True in the child that has probes.
extern bool is_probed;
// Handlers throw and catch an exception of their own from now on.
extern bool handlers_throw;
// Takes the scenario's probes off now, while victims are in flight; their exits do not run.  Nothing in the plain child.
void unregister_now();

// A failed check of the scenario's own ends the child with a message.
#define CHECK(condition)                                                             \
  do {                                                                               \
    if (!(condition)) {                                                              \
      std::fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #condition); \
      std::abort();                                                                  \
    }                                                                                \
  } while (false)

}  // namespace scenario

// SCENARIO(Sentence, Leaving) { ... }     CMake finds the name at the beginning of a line.
#define SCENARIO(Name, How)                                                                  \
  void Name();                                                                               \
  static scenario::Registration registration_of_##Name(#Name, Name, scenario::Leaving::How); \
  void Name()

// Cancels or ends a thread whose C++ frames have clean-ups.  glibc cancels with libgcc_s.so: a program whose C++ library
// uses LLVM's libunwind, or a libgcc of its own, crashes there without probes too.  CMake registers no such test then.
#define CLEAN_UP_SCENARIO(Name, How) SCENARIO(Name, How)

// What clang makes a program of that crashes without probes too.
#define GNU_SCENARIO(Name, How) SCENARIO(Name, How)

#endif  // FPROBE_TESTS_INTEGRATION_UNWIND_SCENARIO_H_
