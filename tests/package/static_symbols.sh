#!/bin/sh
# static_symbols.sh <prefix>: the archive takes over nothing of the application's: of its defined global symbols that are
# visible outside, all belong to the library; and none is a name that would interpose libc or the unwinder.
set -eu
archive=$(find "$1" -name libfprobe.a)
[ -n "$archive" ]
readelf -sW "$archive" | awk '$7 != "UND" && ($5 == "GLOBAL") && $6 == "DEFAULT" { print $8 }' | sort -u |
  grep -vE '^(register_fprobe|unregister_fprobe|enable_fprobe|disable_fprobe|fprobe_|ftrace_|kprobe_)|^(__fentry__|mcount|_mcount)$' &&
  { echo "visible in $archive, but not public"; exit 1; }
echo "only public symbols are visible"
