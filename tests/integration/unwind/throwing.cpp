// C++ exceptions through probed frames.  What lies in namespace victim is probed, the scenarios themselves are not.
#include <atomic>
#include <exception>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "scenario.h"

// Outside of namespace victim: the compiler's own functions of this class do not count themselves.
struct Error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

namespace victim {

VICTIM void throw_error(int number) {
  CALLED();
  throw Error("error " + std::to_string(number));
}

// n frames without a clean-up of their own.
VICTIM void descend(int n, int number) {
  CALLED();
  if (n > 1) descend(n - 1, number);
  if (n <= 1) throw Error("error " + std::to_string(number));
  RETURNED();
}

VICTIM long add(long a, long b) {
  CALLED();
  RETURNED();
  return a + b;
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
    std::printf("destroyed %d, sum %ld\n", number, add(number, 1));
    RETURNED();
  }
  int number;
};

// n frames, each with an object whose destructor is probed and calls a probed function.
VICTIM void descend_with_objects(int n) {
  CALLED();
  const Traced object(n);
  if (n > 1) descend_with_objects(n - 1);
  if (n <= 1) throw_error(n);
  RETURNED();
}

VICTIM int catches_itself(int number) {
  CALLED();
  int caught = 0;
  try {
    throw number;
  } catch (int value) {
    caught = value;
  }
  RETURNED();
  return caught;
}

VICTIM int catches_its_callee(int number) {
  CALLED();
  int caught = 0;
  try {
    throw_error(number);
  } catch (const Error& error) {
    std::printf("callee threw %s\n", error.what());
    caught = number;
  }
  RETURNED();
  return caught;
}

VICTIM int catches_from(int frames) {
  CALLED();
  try {
    descend(frames, frames);
  } catch (const Error& error) {
    std::printf("caught %s from %d frames\n", error.what(), frames);
  }
  RETURNED();
  return frames;
}

// Each of n frames catches and throws the same exception on.
VICTIM void rethrow_through(int n) {
  CALLED();
  try {
    if (n > 0) rethrow_through(n - 1);
    if (n == 0) throw_error(7);
  } catch (const Error& error) {
    std::printf("on through %d: %s, %d uncaught\n", n, error.what(), std::uncaught_exceptions());
    throw;
  }
  RETURNED();
}

// Each of n frames catches and throws another one that holds the first.
VICTIM void nest(int n) {
  CALLED();
  try {
    if (n > 0) nest(n - 1);
    if (n == 0) throw_error(0);
  } catch (...) {
    std::throw_with_nested(Error("level " + std::to_string(n)));
  }
  RETURNED();
}

VICTIM void print_nested(const std::exception& error, int depth) {
  CALLED();
  std::printf("%*s%s\n", depth, "", error.what());
  try {
    std::rethrow_if_nested(error);
  } catch (const std::exception& inner) {
    print_nested(inner, depth + 1);
  }
  RETURNED();
}

// Throws while it handles another exception, and handles both.
VICTIM void throw_inside_a_catch_block(int n) {
  CALLED();
  try {
    throw_error(n);
  } catch (const Error& outer) {
    try {
      throw_error(n + 1);
    } catch (const Error& inner) {
      std::printf("%s inside %s\n", inner.what(), outer.what());
    }
    std::printf("still %s\n", outer.what());
  }
  RETURNED();
}

struct ThrowsInside {
  VICTIM ~ThrowsInside() {
    CALLED();
    std::printf("destructor: %d uncaught\n", std::uncaught_exceptions());
    catches_from(3);
    std::printf("destructor: %d itself\n", catches_itself(5));
    RETURNED();
  }
};

VICTIM void descend_with_throwing_destructors(int n) {
  CALLED();
  const ThrowsInside object;
  if (n > 1) descend_with_throwing_destructors(n - 1);
  if (n <= 1) throw_error(n);
  RETURNED();
}

struct Copied {
  VICTIM explicit Copied(int n) : number(n) {
    CALLED();
    RETURNED();
  }
  VICTIM Copied(const Copied& other) : number(other.number + 1) {
    CALLED();
    RETURNED();
  }
  Copied& operator=(const Copied&) = delete;
  VICTIM ~Copied() {
    CALLED();
    RETURNED();
  }
  int number;
};

VICTIM void throw_copied(const Copied& object) {
  CALLED();
  throw object;
}

VICTIM void throw_by_tail_call(int number) {
  CALLED();
  return throw_error(number);
}

VICTIM void unregister_then_throw(int n) {
  CALLED();
  if (n > 0) unregister_then_throw(n - 1);
  if (n == 0) {
    scenario::unregister_now();
    throw_error(n);
  }
  RETURNED();
}

VICTIM std::exception_ptr capture(int frames) {
  CALLED();
  std::exception_ptr captured;
  try {
    descend(frames, frames);
  } catch (...) {
    captured = std::current_exception();
  }
  RETURNED();
  return captured;
}

VICTIM void rethrow(const std::exception_ptr& captured, int n) {
  CALLED();
  if (n > 1) rethrow(captured, n - 1);
  if (n <= 1) std::rethrow_exception(captured);
  RETURNED();
}

}  // namespace victim

namespace {

void catch_from(int frames) {
  try {
    victim::descend(frames, frames);
  } catch (const std::exception& error) {
    std::printf("%s from %d frames\n", error.what(), frames);
  }
}

VICTIM void unprobed_between(int n) {
  if (n > 0) unprobed_between(n - 1);
  if (n == 0) victim::descend(2, 2);
  std::printf("not reached\n");
}

}  // namespace

SCENARIO(AFunctionCatchesWhatItThrowsItself, kUnwinding) {
  for (int i = 0; i < 100; ++i) CHECK(victim::catches_itself(i) == i);
}

SCENARIO(AProbedCallerCatchesFromItsCallee, kUnwinding) {
  for (int i = 0; i < 100; ++i) CHECK(victim::catches_its_callee(i) == i);
}

SCENARIO(AnUnprobedCallerCatchesThroughOneFrame, kUnwinding) {
  catch_from(1);
  CHECK(victim::add(2, 3) == 5);
}

SCENARIO(AnUnprobedCallerCatchesThroughThreeFrames, kUnwinding) {
  catch_from(3);
  CHECK(victim::add(3, 3) == 6);
}

SCENARIO(AnUnprobedCallerCatchesThroughSixtyFourFrames, kUnwinding) {
  catch_from(64);
  CHECK(victim::add(2, 3) == 5);
}

SCENARIO(AProbedCallerCatchesThroughOneThreeAndSixtyFourFrames, kUnwinding) {
  for (const int frames : {1, 3, 64, 3, 1}) CHECK(victim::catches_from(frames) == frames);
}

SCENARIO(AFarCallerCatchesThroughProbedAndUnprobedFrames, kUnwinding) {
  for (int i = 0; i < 10; ++i) {
    try {
      unprobed_between(i);
    } catch (const Error& error) {
      std::printf("far: %s\n", error.what());
    }
  }
}

SCENARIO(TheSameExceptionIsRethrownThroughEachFrame, kUnwinding) {
  try {
    victim::rethrow_through(20);
  } catch (const Error& error) {
    std::printf("out: %s\n", error.what());
  }
}

SCENARIO(NestedExceptionsKeepTheirOrder, kUnwinding) {
  try {
    victim::nest(5);
  } catch (const std::exception& error) {
    victim::print_nested(error, 0);
  }
}

SCENARIO(AnExceptionIsThrownInsideACatchBlock, kUnwinding) {
  for (int i = 0; i < 10; ++i) victim::throw_inside_a_catch_block(i);
}

SCENARIO(AnExceptionIsRethrownOnAnotherThread, kUnwinding) {
  const std::exception_ptr captured = victim::capture(3);
  std::thread other([&captured] {
    try {
      victim::rethrow(captured, 64);
    } catch (const Error& error) {
      std::printf("on the other thread: %s\n", error.what());
    }
  });
  other.join();
  try {
    victim::rethrow(captured, 3);
  } catch (const Error& error) {
    std::printf("on the first thread: %s\n", error.what());
  }
}

SCENARIO(DestructorsOnTheWayCallProbedFunctions, kUnwinding) {
  for (const int frames : {1, 3, 64}) {
    try {
      victim::descend_with_objects(frames);
    } catch (const Error& error) {
      std::printf("after %d objects: %s\n", frames, error.what());
    }
  }
}

SCENARIO(DestructorsOnTheWayThrowAndCatchInside, kUnwinding) {
  for (const int frames : {1, 3, 64}) {
    try {
      victim::descend_with_throwing_destructors(frames);
    } catch (const Error& error) {
      std::printf("after %d destructors: %s\n", frames, error.what());
    }
  }
}

SCENARIO(TheExceptionObjectsOwnFunctionsAreProbed, kUnwinding) {
  try {
    victim::throw_copied(victim::Copied(1));
  } catch (victim::Copied copy) {
    std::printf("a copy's number: %d\n", copy.number);
  }
}

SCENARIO(ATailCalledFunctionThrows, kUnwinding) {
  for (int i = 0; i < 10; ++i) {
    try {
      victim::throw_by_tail_call(i);
    } catch (const Error& error) {
      std::printf("tail: %s\n", error.what());
    }
  }
}

SCENARIO(HandlersThrowAndCatchInside, kUnwinding) {
  scenario::handlers_throw = true;
  for (const int frames : {1, 3, 64}) victim::catches_from(frames);
  try {
    victim::descend_with_throwing_destructors(3);
  } catch (const Error& error) {
    std::printf("%s\n", error.what());
  }
}

SCENARIO(AnExceptionPassesFramesWhoseProbeIsGone, kUnwinding) {
  try {
    victim::unregister_then_throw(5);
  } catch (const Error& error) {
    std::printf("%s\n", error.what());
  }
  CHECK(victim::add(1, 1) == 2);
}

SCENARIO(EightThreadsThrowManyTimes, kUnwinding) {
  std::atomic<long> caught{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([t, &caught] {
      for (int i = 0; i < 5000; ++i) {
        try {
          victim::descend(1 + (t + i) % 7, i);
        } catch (const Error&) {
          caught.fetch_add(1, std::memory_order_relaxed);
        }
        if (victim::add(i, t) != i + t) std::abort();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::printf("caught %ld\n", caught.load());
}

SCENARIO(AnExceptionPassesTwoThousandFrames, kUnwinding) {
  for (int i = 0; i < 3; ++i) catch_from(2000);
}
