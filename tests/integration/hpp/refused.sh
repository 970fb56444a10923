#!/bin/sh
# refused.sh <case> <sentence> <compiler and flags>...: the case of refused.cpp must not compile, with a failed static
# assertion that says the sentence. Case 0 must compile.
set -eu
case=$1 sentence=$2
shift 2
if output=$("$@" -DCASE="$case" -fsyntax-only "$(dirname "$0")/refused.cpp" 2>&1); then
  [ "$case" != 0 ] || exit 0
  echo "case $case compiles"
  exit 1
fi
echo "$output"
[ "$case" != 0 ] && echo "$output" | grep -E 'static assertion failed|static_assert failed' | grep -qF "$sentence"
