#!/bin/sh
# exports.sh <prefix>: the shared library exports what the installed headers declare and the three hooks the compiler
# calls; nothing less, nothing more.
set -eu
prefix=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
{
  printf '%s\n' __fentry__ mcount _mcount
  cat "$prefix"/include/fprobe/*.h | tr '\n' ' ' | grep -o 'FPROBE_API [^;(]*(' | sed 's/ *($//; s/.*[ *]//' | grep -v '^__attribute__$'
} | sort >"$work/declared"
nm -D --defined-only --format=posix "$(find "$prefix" -name libfprobe.so)" | cut -d' ' -f1 | sed 's/@.*//' | sort >"$work/exported"
diff -u "$work/declared" "$work/exported"
echo "$(wc -l <"$work/exported") symbols exported, all declared"
