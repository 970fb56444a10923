// Exceptions that cross the border of a shared library.
#include <string>

#include "library.h"
#include "scenario.h"

namespace victim {

VICTIM void descend_into_library(int frames) {
  CALLED();
  if (frames > 1) descend_into_library(frames - 1);
  if (frames <= 1) throw_from_library(3);
  RETURNED();
}

VICTIM void throw_from_program(int number) {
  CALLED();
  throw std::runtime_error("from the program " + std::to_string(number));
}

VICTIM void call_back_and_throw(int number) {
  CALLED();
  call_back(throw_from_program, number);
  RETURNED();
}

VICTIM void zigzag(int number) {
  CALLED();
  if (number > 0) call_back(zigzag, number - 1);
  if (number == 0) throw_from_library(2);
  RETURNED();
}

}  // namespace victim

SCENARIO(AnExceptionLeavesTheLibraryForTheProgram, kUnwinding) {
  for (const int frames : {1, 3, 64}) {
    try {
      victim::throw_from_library(frames);
    } catch (const LibraryError& error) {
      std::printf("%s, %d frames\n", error.what(), frames);
    }
    try {
      victim::descend_into_library(frames);
    } catch (const std::exception& error) {
      std::printf("%s, %d frames of the program\n", error.what(), frames);
    }
  }
}

SCENARIO(AnExceptionPassesTheLibraryBetweenFramesOfTheProgram, kUnwinding) {
  try {
    victim::call_back_and_throw(5);
  } catch (const std::exception& error) {
    std::printf("%s\n", error.what());
  }
}

SCENARIO(TheLibraryCatchesWhatTheProgramThrows, kUnwinding) {
  for (int i = 1; i < 10; ++i) {
    CHECK(victim::catch_in_library(victim::throw_from_program, i) == i);
    CHECK(victim::catch_in_library(victim::call_back_and_throw, i) == i);
  }
}

SCENARIO(AnExceptionCrossesTheBorderManyTimes, kUnwinding) {
  for (const int crossings : {1, 3, 20}) {
    try {
      victim::zigzag(crossings);
    } catch (const LibraryError& error) {
      std::printf("%s over %d borders\n", error.what(), crossings);
    }
  }
}
