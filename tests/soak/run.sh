#!/bin/bash
# tests/soak/run.sh --mutants: each deliberate fault of tests/mutants must be caught by its test.
# tests/soak/run.sh --matrix: every configuration of tests/matrix that exists, which takes some hours of CPU time.
# tests/soak/run.sh [minutes=2]: the storms of tests/stress again and again, each round with its own random choices, until
# the time is over; every program runs at least once. Stops at the first failure and tells how to repeat it.
#
# Builds into ${BUILD_DIR:-build/soak}, which may be a build tree that is configured already. FPROBE_STRESS_SEED sets the
# first round's seed (default: the time), FPROBE_STRESS_SCALE multiplies the counts of a round (default 1), FPROBE_SANITIZE
# builds with sanitizers.
set -u
cd "$(dirname "$0")/../.." || exit 1
[ "${1:-}" = --mutants ] && exec tests/mutants/run.sh
[ "${1:-}" = --matrix ] && exec tests/matrix/run_all.sh
minutes=${1:-2}
build=$(realpath -m "${BUILD_DIR:-build/soak}")
seed=${FPROBE_STRESS_SEED:-$(date +%s)}
storms="stress_patch_storm stress_patch_storm_got stress_thread_storm stress_fork_storm"
[ "${FPROBE_SANITIZE:-}" = thread ] || storms+=" stress_signal_storm"

.ci/need g++ cmake ninja-build libgtest-dev libcapstone-dev || exit 1
mkdir -p "$build"
# shellcheck disable=SC2086  # a list
{ { [ -e "$build/CMakeCache.txt" ] || cmake -G Ninja -S . -B "$build" -DCMAKE_BUILD_TYPE=RelWithDebInfo -DFPROBE_BUILD_BENCH=OFF \
    -DFPROBE_BUILD_EXAMPLES=OFF -DFPROBE_SANITIZE="${FPROBE_SANITIZE:-}"; } && cmake --build "$build" --target $storms; } \
  >"$build/build.log" 2>&1 ||
  { tail -n 40 "$build/build.log"; exit 1; }

end=$((SECONDS + minutes * 60)) rounds=0 runs=0
while [ $rounds -eq 0 ] || [ $SECONDS -lt $end ]; do
  for storm in $storms; do
    if [ $rounds -gt 0 ] && [ $SECONDS -ge $end ]; then break; fi
    if ! FPROBE_STRESS_SEED=$seed "$build/tests/stress/$storm" >"$build/$storm.log" 2>&1; then
      cat "$build/$storm.log"
      echo "soak FAILED after $runs runs; repeat with: FPROBE_STRESS_SEED=$seed $build/tests/stress/$storm"
      exit 1
    fi
    runs=$((runs + 1))
    printf '%5d s  %-24s %s\n' $SECONDS "$storm" "$(grep -m1 -E 'toggles|signals,|threads,|forks,' "$build/$storm.log")"
  done
  rounds=$((rounds + 1)) seed=$((seed + 1))
done
echo "soak passed: $runs runs in $SECONDS s, every call right, no handler after its unregistration"
