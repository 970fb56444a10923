#!/bin/bash
# run_all.sh [regular expression]: every configuration that exists (or those whose names match), on every processor; the
# failures, then the counts.
#
# Builds into ${BUILD_DIR:-build/soak}, which may be a build tree that is configured already. FPROBE_MATRIX_JOBS: how many
# at a time.
set -u
cd "$(dirname "$0")/../.." || exit 1
build=$(realpath -m "${BUILD_DIR:-build/soak}")
jobs=${FPROBE_MATRIX_JOBS:-$(nproc)}
matrix=$build/tests/matrix

.ci/need g++ cmake ninja-build libgtest-dev libcapstone-dev binutils clang-19 lld-19 llvm-19-linker-tools mold || exit 1
mkdir -p "$build"
{ { [ -e "$build/CMakeCache.txt" ] || cmake -G Ninja -S . -B "$build" -DCMAKE_BUILD_TYPE=RelWithDebInfo -DFPROBE_BUILD_BENCH=OFF \
    -DFPROBE_BUILD_EXAMPLES=OFF; } && cmake --build "$build" --target matrix_test matrix_table; } >"$build/build.log" 2>&1 ||
  { tail -n 40 "$build/build.log"; exit 1; }

all=$matrix/all
rm -rf "$all" && mkdir -p "$all"
"$matrix/matrix_table" all | grep -E -- "${1:-.}" >"$all/table" || { echo "no configuration matches"; exit 1; }
# In pieces of neighbours: those that differ in stripping only share what is built.
split -n "l/$jobs" "$all/table" "$all/part."
for part in "$all"/part.*; do
  FPROBE_MATRIX_TABLE=$part "$matrix/matrix_test" --gtest_brief=1 --gtest_filter='Matrix/*' >"$all/log.${part##*.}" 2>&1 &
done
wait
tests/matrix/summary.sh "$matrix/configurations" "$all/table" >"$all/lines"
status=$?
grep -E ': (FAILED|NOT RUN)' "$all/lines"
tail -n 1 "$all/lines"
[ $status -eq 0 ] || echo "Why: $all/log.*"
exit $status
