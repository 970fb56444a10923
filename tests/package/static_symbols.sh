#!/bin/sh
# static_symbols.sh <prefix>: the archive takes over nothing of the application's, nor lends anything from it: every global
# or weak symbol that it defines, visible or hidden, is public. (An inline function of the standard library left weak would
# be shared with the program, which may have compiled it with a probe site.)
set -eu
archive=$(find "$1" -name libfprobe.a)
[ -n "$archive" ]
readelf -sW "$archive" | awk '$7 != "UND" && ($5 == "GLOBAL" || $5 == "WEAK" || $5 == "UNIQUE") && $8 != "" { print $8 }' | sort -u |
  grep -vE '^(register_fprobe|unregister_fprobe|enable_fprobe|disable_fprobe|fprobe_|ftrace_|kprobe_)|^(__fentry__|mcount|_mcount)$' &&
  { echo "visible in $archive, but not public"; exit 1; }
echo "only public symbols are visible"
