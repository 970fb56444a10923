// What a fuzzer calls; libFuzzer's own name for it.
#ifndef FPROBE_TESTS_FUZZ_TARGET_H_
#define FPROBE_TESTS_FUZZ_TARGET_H_

#include <cstddef>
#include <cstdint>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

#endif  // FPROBE_TESTS_FUZZ_TARGET_H_
