// Exceptions that end the process, as they would without probes: by a noexcept function, or because nobody catches them.
#include <exception>
#include <stdexcept>
#include <string>

#include "scenario.h"

namespace {

struct Error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

}  // namespace

namespace victim {

VICTIM void descend(int n, int number) {
  CALLED();
  if (n > 1) descend(n - 1, number);
  if (n <= 1) throw Error("error " + std::to_string(number));
  RETURNED();
}

struct Traced {
  VICTIM explicit Traced(int n) : number(n) {
    CALLED();
    RETURNED();
  }
  Traced(const Traced&) = delete;
  Traced& operator=(const Traced&) = delete;
  VICTIM ~Traced() {
    CALLED();
    std::printf("destroyed %d\n", number);
    RETURNED();
  }
  int number;
};

VICTIM void descend_with_objects(int n) {
  CALLED();
  const Traced object(n);
  if (n > 1) descend_with_objects(n - 1);
  if (n <= 1) descend(1, n);
  RETURNED();
}

VICTIM void must_not_throw(int frames) noexcept {
  CALLED();
  descend(frames, 1);
  RETURNED();
}

VICTIM void calls_must_not_throw(int frames) {
  CALLED();
  const Traced object(1);
  must_not_throw(frames);
  RETURNED();
}

}  // namespace victim

namespace {

void fall_out_of(void (*body)()) {
  std::set_terminate([] {
    std::printf("terminate: ");
    try {
      if (std::current_exception() != nullptr) std::rethrow_exception(std::current_exception());
      std::printf("no exception\n");
    } catch (const std::exception& error) {
      std::printf("%s\n", error.what());
    }
    std::fflush(stdout);
    std::_Exit(42);
  });
  body();
}

}  // namespace

SCENARIO(ANoexceptFunctionBetweenThrowAndCatchTerminates, kTermination) {
  try {
    victim::calls_must_not_throw(3);
  } catch (const Error&) {
    std::printf("not reached\n");
  }
}

SCENARIO(ANoexceptFunctionThatCallsTheThrowerReachesTheTerminateHandler, kTermination) {
  fall_out_of([] {
    try {
      victim::calls_must_not_throw(1);
    } catch (const Error&) {
      std::printf("not reached\n");
    }
  });
}

SCENARIO(AnExceptionThatNobodyCatchesTerminates, kTermination) {
  victim::descend_with_objects(3);
}

SCENARIO(AnExceptionThatNobodyCatchesReachesTheTerminateHandler, kTermination) {
  fall_out_of([] { victim::descend_with_objects(3); });
}
