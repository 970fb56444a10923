#!/bin/bash
# tests/run.sh [stage...]: installs what is missing, builds in ${BUILD_DIR:-build/tests}, runs the tests under ctest.
#
#   plain    gcc, optimized, with the package tests and the benchmarks built
#   asan     AddressSanitizer and UndefinedBehaviorSanitizer
#   tsan     ThreadSanitizer
#   libcxx   clang, libc++ and LLVM's libunwind
#   lint     clang-format, and clang-tidy on the files that changed since $FPROBE_TIDY_BASE (default: all)
#   fuzz     each fuzzer for ${FPROBE_FUZZ_SECONDS:-30} seconds: clang, libFuzzer, AddressSanitizer
#   soak     the storms again and again for ${FPROBE_SOAK_MINUTES:-2} minutes
#   forms    the contract and unwinding tests in every form of their victims; plain has some of the forms
#   mutants  each deliberate fault of tests/mutants must be caught by its test
#
# Without an argument all but forms and mutants, which run by name only: about half an hour on two cores. A stage that fails
# does not keep the next from running; the exit status tells. FPROBE_WERROR=ON makes warnings errors.
set -u
cd "$(dirname "$0")/.." || exit 1
build=$(realpath -m "${BUILD_DIR:-build/tests}")
jobs=$(nproc)

# configure <stage> <cmake option>...
configure() {
  local stage=$1
  shift
  mkdir -p "$build/$stage"
  cmake -G Ninja -S . -B "$build/$stage" -DFPROBE_BUILD_EXAMPLES=OFF -DFPROBE_WERROR="${FPROBE_WERROR:-OFF}" \
    -DCMAKE_EXPORT_COMPILE_COMMANDS=ON "$@" >"$build/$stage/configure.log" 2>&1 || { cat "$build/$stage/configure.log"; return 1; }
}

# compile_and_test <stage> <ctest option>...
compile_and_test() {
  local stage=$1
  shift
  cmake --build "$build/$stage" -- -k 0 || return 1
  ctest --test-dir "$build/$stage" --output-on-failure --no-tests=error -j "$jobs" "$@"
}

needs_for_all="g++ cmake ninja-build libgtest-dev libcapstone-dev libzydis-dev libunwind-dev gdb binutils"
needs_for_clang="clang-19 lld-19"
# What reads files made by every compiler and linker, or builds the package anew, is the plain stage's.
victims="package;targets;layers;map;fuzz;matrix;golden;unit/decode_test;unit/site_scan_test;unit/odd_code_test"
# No thread in it but one.
one_thread="symbols;unit/elf_hostile_test;unit/elf_image_test;unit/glob_test;unit/loader_hook_code_test;unit/near_alloc_test;unit/own_symbols_test"
one_thread+=";unit/patch_test;unit/regs_test;unit/sites_test;unit/spelling_test;unit/symbol_index_test;unit/symbol_match_test;unit/thunk_test"

# Function names and lines, half the size: linking takes a good part of the time.
short_debug_information=("-DCMAKE_CXX_FLAGS_RELWITHDEBINFO=-O2 -g1 -DNDEBUG" "-DCMAKE_C_FLAGS_RELWITHDEBINFO=-O2 -g1 -DNDEBUG")

stage_plain() {
  # shellcheck disable=SC2086  # lists are meant to be split
  .ci/need $needs_for_all $needs_for_clang llvm-19-linker-tools mold libbenchmark-dev pkg-config || return 1
  configure plain -DCMAKE_BUILD_TYPE=RelWithDebInfo "${short_debug_information[@]}" || return 1
  local result=0
  compile_and_test plain || result=1
  tests/matrix/summary.sh "$build/plain/tests/matrix/configurations" || result=1
  return $result
}

# Half the compile time of -O2 -g under AddressSanitizer; asserts are on.
for_sanitizers=("-DCMAKE_BUILD_TYPE=RelWithDebInfo" "-DCMAKE_CXX_FLAGS_RELWITHDEBINFO=-O1 -g1" "-DCMAKE_C_FLAGS_RELWITHDEBINFO=-O1 -g1"
  "-DFPROBE_BUILD_BENCH=OFF")

stage_asan() {
  # shellcheck disable=SC2086
  .ci/need $needs_for_all $needs_for_clang || return 1
  configure asan "${for_sanitizers[@]}" -DFPROBE_SANITIZE=address,undefined "-DFPROBE_TESTS_LEFT_OUT=$victims" &&
    UBSAN_OPTIONS=print_stacktrace=1 compile_and_test asan
}

stage_tsan() {
  # shellcheck disable=SC2086
  .ci/need $needs_for_all $needs_for_clang || return 1
  configure tsan "${for_sanitizers[@]}" -DFPROBE_SANITIZE=thread "-DFPROBE_TESTS_LEFT_OUT=$victims;$one_thread;integration/hpp" || return 1
  # This ThreadSanitizer does not know the address space that more than 28 random bits make.
  if [ "$(cat /proc/sys/vm/mmap_rnd_bits 2>/dev/null || echo 28)" -gt 28 ]; then
    setarch -R bash -c "$(declare -f compile_and_test); build='$build' jobs=$jobs; compile_and_test tsan"
  else
    compile_and_test tsan
  fi
}

# libc++'s development packages cannot be installed beside libunwind-dev, so they are unpacked into the build folder.
stage_libcxx() {
  # shellcheck disable=SC2086
  .ci/need $needs_for_all clang-19 libclang-rt-19-dev googletest || return 1
  local root=$build/libcxx-root
  if [ ! -e "$root/.ready" ]; then
    rm -rf "$root" && mkdir -p "$root/debs" || return 1
    (cd "$root/debs" && apt-get download -qq libc++-19-dev libc++1-19 libc++abi-19-dev libc++abi1-19 libunwind-19-dev \
      libunwind-19 2>/dev/null) || { echo "libc++ cannot be downloaded"; return 1; }
    for package in "$root"/debs/*.deb; do dpkg -x "$package" "$root" || return 1; done
    touch "$root/.ready"
  fi
  local lib=$root/usr/lib/llvm-19/lib
  local link="-stdlib=libc++ -L$lib -Wl,-rpath,$lib --rtlib=compiler-rt --unwindlib=libunwind"
  configure libcxx -DCMAKE_BUILD_TYPE=RelWithDebInfo "${short_debug_information[@]}" -DFPROBE_BUILD_BENCH=OFF \
    "-DFPROBE_TESTS_LEFT_OUT=$victims;unit;image;symbols;registry;stress;integration" -DFPROBE_ARGUMENT_SEEDS= \
    -DFPROBE_GTEST_SOURCE=/usr/src/googletest -DCMAKE_C_COMPILER=clang-19 -DCMAKE_CXX_COMPILER=clang++-19 \
    -DCMAKE_CXX_FLAGS="-nostdinc++ -isystem $root/usr/lib/llvm-19/include/c++/v1" \
    -DCMAKE_EXE_LINKER_FLAGS="$link" -DCMAKE_SHARED_LINKER_FLAGS="$link" &&
    compile_and_test libcxx -E '^hpp_refused'
}

stage_lint() {
  .ci/need g++ cmake ninja-build git clang-19 clang-format-14 clang-tidy-14 libcapstone-dev || return 1
  local failed=0 sources
  # asm.h holds assembly macros.
  git ls-files '*.h' '*.hpp' '*.c' '*.cpp' ':!src/arch/*/asm.h' | xargs -r clang-format-14 --dry-run -Werror || failed=1
  sources=$(git ls-files 'src/*.cpp')
  if [ -n "${FPROBE_TIDY_BASE:-}" ]; then
    # A changed header is seen through every source of its folder.
    sources=$(git diff --name-only --diff-filter=d "$FPROBE_TIDY_BASE" -- 'src/*.cpp' 'src/*.h' |
      while read -r file; do case $file in *.h) git ls-files "$(dirname "$file")/*.cpp" ;; *) echo "$file" ;; esac; done | sort -u)
  fi
  configure lint -DCMAKE_C_COMPILER=clang-19 -DCMAKE_CXX_COMPILER=clang++-19 -DFPROBE_BUILD_BENCH=OFF -DFPROBE_BUILD_TESTS=OFF || return 1
  # The decoder that this build does not use has no entry among the compile commands.
  grep -o '"file": "[^"]*"' "$build/lint/compile_commands.json" | cut -d'"' -f4 >"$build/lint/files"
  echo "$sources" | while read -r file; do grep -F "/$file" "$build/lint/files"; done |
    xargs -r -P "$jobs" -n 1 clang-tidy-14 --quiet --warnings-as-errors='*' -p "$build/lint" 2>"$build/lint/tidy.log" || failed=1
  return $failed
}

stage_fuzz() {
  .ci/need g++ cmake ninja-build libgtest-dev libcapstone-dev clang-19 libclang-rt-19-dev || return 1
  configure fuzz "${for_sanitizers[@]}" -DCMAKE_C_COMPILER=clang-19 -DCMAKE_CXX_COMPILER=clang++-19 -DFPROBE_FUZZ=ON \
    -DFPROBE_SANITIZE=address,undefined -DCMAKE_CXX_FLAGS=-fsanitize=fuzzer-no-link -DFPROBE_FUZZ_SECONDS="${FPROBE_FUZZ_SECONDS:-30}" || return 1
  cmake --build "$build/fuzz" --target fuzz_all && ctest --test-dir "$build/fuzz/tests/fuzz" --output-on-failure --no-tests=error -j "$jobs"
}

stage_soak() {
  BUILD_DIR=$build/plain tests/soak/run.sh "${FPROBE_SOAK_MINUTES:-2}"
}

stage_forms() {
  # shellcheck disable=SC2086
  .ci/need $needs_for_all $needs_for_clang || return 1
  configure forms -DCMAKE_BUILD_TYPE=RelWithDebInfo -DFPROBE_BUILD_BENCH=OFF -DFPROBE_ALL_FORMS=ON \
    "-DFPROBE_TESTS_LEFT_OUT=$victims;unit;image;symbols;registry;stress;integration/hpp" && compile_and_test forms
}

stage_mutants() {
  # shellcheck disable=SC2086
  .ci/need $needs_for_all patch || return 1
  BUILD_DIR=$build/mutants tests/mutants/run.sh
}

[ $# -gt 0 ] || set -- plain asan tsan libcxx fuzz soak lint
report="" failed=0
for stage in "$@"; do
  declare -F "stage_$stage" >/dev/null || { sed -n '2,15p' "$0"; exit 2; }
  echo "==== $stage"
  start=$SECONDS
  if "stage_$stage"; then result=passed; else result=FAILED failed=1; fi
  report+=$(printf '%-8s %s %5d s' "$stage" "$result" $((SECONDS - start)))$'\n'
done
printf '\n%s' "$report"
exit $failed
