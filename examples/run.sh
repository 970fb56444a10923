#!/bin/sh
# Probes every function of GoogleTest's own sources while GoogleTest runs its own unit tests, and prints what each took.
# Installs what is missing, builds in ${BUILD_DIR:-build/examples}. Options are passed on: --all prints every function.
set -eu
cd "$(dirname "$0")/.."
.ci/need g++ cmake ninja-build googletest libcapstone-dev
build=${BUILD_DIR:-build/examples}
mkdir -p "$build"
cmake -G Ninja -S . -B "$build" -DCMAKE_BUILD_TYPE=RelWithDebInfo \
  -DFPROBE_BUILD_TESTS=OFF -DFPROBE_BUILD_BENCH=OFF -DFPROBE_BUILD_EXAMPLES=ON >"$build/configure.log" 2>&1 || { cat "$build/configure.log"; exit 1; }
cmake --build "$build" --target hello typed_probe function_latency
echo
"$build/examples/hello"
echo
"$build/examples/typed_probe"
echo
# Two of the tests fail when repeated, probed or not.
log=$build/workload.log
"$build/examples/function_latency" --log "$log" "$@" --gtest_brief=1 --gtest_repeat=20 \
  --gtest_filter=-Int32FromEnvOrDieTest.ParsesAndReturnsValidValue:Pred1Test.SingleEvaluationOnFailure ||
  { status=$?; tail -20 "$log"; exit $status; }
