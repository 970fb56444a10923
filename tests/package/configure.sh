#!/bin/bash
# configure.sh <source dir> <work dir> <cmake option>...: what CMake says and chooses when libfprobe is configured at top
# level without GoogleTest, without Google Benchmark, without a build type.
set -eu
source=$1 work=$2
shift 2
options=()
for option in "$@"; do
  case $option in -DCMAKE_BUILD_TYPE=*) ;; *) options+=("$option") ;; esac
done
unset CMAKE_BUILD_TYPE

# configure <name> <cmake option>...
configure() {
  local name=$1
  shift
  rm -rf "${work:?}/$name"
  mkdir -p "$work/$name"
  cmake -S "$source" -B "$work/$name" "${options[@]}" -DFPROBE_BUILD_TESTS=OFF -DFPROBE_BUILD_BENCH=OFF \
    -DFPROBE_BUILD_EXAMPLES=OFF "$@" >"$work/$name.log" 2>&1
}
fail() {
  echo "$1: $2"
  cat "$work/$1.log"
  exit 1
}
# The message may be broken into lines anywhere.
expect_refusal() {
  local name=$1 message=$2
  shift 2
  ! configure "$name" "$@" || fail "$name" "was configured"
  tr -s ' \n' ' ' <"$work/$name.log" | grep -qF -e "$message" || fail "$name" "the message does not say $message"
}
expect_build_type() {
  grep -qx "CMAKE_BUILD_TYPE:[A-Z]*=$2" "$work/$1/CMakeCache.txt" || fail "$1" "the build type is not '$2'"
}

expect_refusal no_gtest -DFPROBE_BUILD_TESTS=OFF -DFPROBE_BUILD_TESTS=ON -DCMAKE_DISABLE_FIND_PACKAGE_GTest=ON
expect_refusal no_benchmark -DFPROBE_BUILD_BENCH=OFF -DFPROBE_BUILD_BENCH=ON -DCMAKE_DISABLE_FIND_PACKAGE_benchmark=ON

configure no_build_type || fail no_build_type "was not configured"
expect_build_type no_build_type RelWithDebInfo
configure debug -DCMAKE_BUILD_TYPE=Debug || fail debug "was not configured"
expect_build_type debug Debug
configure empty -DCMAKE_BUILD_TYPE= || fail empty "was not configured"
expect_build_type empty ""
