#!/bin/bash
# instrument.sh <source dir> <build dir> <c compiler> <c++ compiler> <gnu|clang>: what fprobe_instrument() chose for each
# target of instrument/, read from the machine code. gcc falls back where -pg -mfentry fails, clang never has to.
set -eu
source=$1 build=$2 kind=$5
cmake -G Ninja -S "$source/tests/package/instrument" -B "$build" -DFPROBE_SOURCE_DIR="$source" -DCMAKE_BUILD_TYPE=Release \
  -DCMAKE_C_COMPILER="$3" -DCMAKE_CXX_COMPILER="$4" >/dev/null
cmake --build "$build" >"$build/log" || { cat "$build/log"; exit 1; }

form_of() {
  local code
  code=$(objdump -d --no-show-raw-insn "$1" | awk '/<instrument_victim>:$/ { on = 1; next } /^$/ { on = 0 } on' | grep -v endbr64 | head -5)
  case $(head -1 <<<"$code") in
    *call*) echo fentry ;;
    *nop*) echo patchable ;;
    *) echo none ;;
  esac
}

failed=0
expect() {
  for language in c cxx; do
    local form
    form=$(form_of "$build/$1_$language")
    [ "$form" = "$2" ] || { echo "$kind $1_$language: $form, expected $2"; failed=1; }
    ! nm "$build/$1_$language" | grep -q monstartup || { echo "$1_$language was linked for gprof"; failed=1; }
  done
  return 0
}
fallback=fentry
[ "$kind" != gnu ] || fallback=patchable
expect plain fentry
expect omit $fallback
expect omit_undone fentry
expect lto_flag $fallback
expect lto_undone fentry
expect lto_property $fallback
expect inherited $fallback
expect private none
exit $failed
