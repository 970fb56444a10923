#!/bin/sh
# static_symbols.sh <archive>: the archive takes over nothing of the application's: of its defined global symbols that are
# visible outside, all belong to the library; and none is a name that would interpose libc or the unwinder.
set -eu
readelf -sW "$1" | awk '$7 != "UND" && ($5 == "GLOBAL") && $6 == "DEFAULT" { print $8 }' | sort -u |
  grep -vE '^(register_fprobe|unregister_fprobe|enable_fprobe|disable_fprobe|fprobe_|ftrace_|kprobe_)|^(__fentry__|mcount|_mcount)$' &&
  { echo "exported by $1, but not public"; exit 1; }
echo "only public symbols are visible"
