#!/bin/bash
# tests/mutants/run.sh [name...]: each deliberate fault of *.patch must be caught by the test that it names.
#
# Works on a copy of the sources in ${BUILD_DIR:-build/mutants}, with one build tree: first every named test must pass on
# the sources as they are; then each patch is applied alone, the library and that test's program are built, and the test
# must fail, crash or hang. A patch that does not apply or does not compile is an error.
#
# A patch begins with what goes wrong, and the line "Caught by: <program> <arguments>".
set -u
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
build=$(realpath -m "${BUILD_DIR:-$root/build/mutants}")
source=$build/source tree=$build/tree
ulimit -c 0
export GTEST_COLOR=no

fail() { echo "mutants: $*"; exit 1; }

# The copy: files that differ are copied anew, so that ninja sees them change; files that are gone are deleted.
mkdir -p "$source" || exit 1
(cd "$root" && find CMakeLists.txt cmake include src tests -type f) >"$build/files"
while read -r file; do
  cmp -s "$root/$file" "$source/$file" && continue
  mkdir -p "$source/$(dirname "$file")" && cp "$root/$file" "$source/$file" || fail "cannot copy $file"
done <"$build/files"
(cd "$source" && find . -type f | sed 's|^\./||') | grep -vxFf "$build/files" | while read -r file; do rm -f "$source/$file"; done

# No debug information: it is the linking that takes the time.
cmake -G Ninja -S "$source" -B "$tree" -DCMAKE_BUILD_TYPE= -DCMAKE_CXX_FLAGS=-O1 -DCMAKE_C_FLAGS=-O1 -DFPROBE_BUILD_BENCH=OFF \
  -DFPROBE_BUILD_EXAMPLES=OFF -DFPROBE_INSTALL=OFF >"$build/configure.log" 2>&1 || { cat "$build/configure.log"; exit 1; }

[ $# -gt 0 ] || set -- $(cd "$here" && ls ./*.patch | sed 's|^\./||; s|\.patch$||')

command_of() { sed -n 's/^Caught by: //p' "$here/$1.patch"; }
programs=$(for name in "$@"; do command_of "$name" | cut -d' ' -f1; done | sort -u)
# shellcheck disable=SC2086  # a list
ninja -C "$tree" $programs >"$build/build.log" 2>&1 || { tail -40 "$build/build.log"; fail "the sources do not build"; }

declare -A path_of
for program in $programs; do
  path_of[$program]=$(find "$tree/tests" -type f -name "$program" -perm -u+x | head -1)
  [ -n "${path_of[$program]}" ] || fail "no program $program"
done

# run_test <seconds> <program> <arguments>: its output goes to test.log. A hanging test is killed with its children.
run_test() {
  local seconds=$1 program=$2
  shift 2
  timeout -k 1 "$seconds" "${path_of[$program]}" "$@" >"$build/test.log" 2>&1
}

while read -r command; do
  # shellcheck disable=SC2086
  run_test 120 $command || { tail -40 "$build/test.log"; fail "fails without any fault: $command"; }
  case $command in *--gtest_filter=*) grep -q '^\[  PASSED  \] 1 test' "$build/test.log" || fail "not one test: $command" ;; esac
done < <(for name in "$@"; do command_of "$name"; done | sort -u)

caught=0 survivors=""
for name in "$@"; do
  patch -p1 -s -d "$source" <"$here/$name.patch" >"$build/patch.log" 2>&1 || { cat "$build/patch.log"; fail "$name does not apply"; }
  read -r command < <(command_of "$name")
  ninja -C "$tree" "${command%% *}" >"$build/build.log" 2>&1 || { tail -40 "$build/build.log"; fail "$name does not compile"; }
  # shellcheck disable=SC2086
  run_test 30 $command
  status=$?
  patch -p1 -s -R -d "$source" <"$here/$name.patch" || fail "$name cannot be taken back"
  case $status in
    0) result="SURVIVED" survivors+=" $name" ;;
    124 | 137) result="caught (hangs)" caught=$((caught + 1)) ;;
    *) result="caught" caught=$((caught + 1)) ;;
  esac
  printf '%-52s %s\n' "$name" "$result"
done

echo "$caught of $# faults caught"
[ -z "$survivors" ] || fail "not caught:$survivors"
