#!/bin/bash
# check.sh <source dir>: includes point downward only, users' code sees only include/fprobe, and processors are named in
# src/arch alone. Prints every line that breaks a rule.
set -eu
cd "$1"

rank_of() {
  case $1 in
    fprobe) echo 0 ;;
    base) echo 1 ;;
    arch | image | patch) echo 2 ;;
    registry) echo 3 ;;
    hot) echo 4 ;;
    unwind) echo 5 ;;
    api) echo 6 ;;
    *) echo unknown ;;
  esac
}

broken=0
complain() {
  echo "$1: $2"
  broken=1
}

# Project includes of src/: "layer/file.h", "file.h" (src/arch/<cpu>) or <fprobe/file.h>.
while IFS=: read -r file line text; do
  case $file in
    src/arch/*) layer=arch ;;
    src/core/*) layer=${file#src/core/} layer=${layer%%/*} ;;
  esac
  included=$(sed 's/^#include ["<]\([^">]*\)[">].*/\1/' <<<"$text")
  case $included in
    arch_defs.h) target=base ;; # the constants that base/arch.h is declared with
    */*) target=${included%%/*} ;;
    *) target=arch ;;
  esac
  rank=$(rank_of "$layer") target_rank=$(rank_of "$target")
  [ "$target_rank" != unknown ] || complain "$file:$line" "includes $included of no known layer"
  [ "$target_rank" = unknown ] || [ "$target_rank" -le "$rank" ] ||
    complain "$file:$line" "layer $layer includes $included of layer $target"
done < <(grep -rnE '^#include ("|<fprobe/)' src)

while IFS=: read -r file line text; do
  complain "$file:$line" "an example sees only include/fprobe: $text"
done < <(grep -nE '^#include "' examples/*.c examples/*.cpp 2>/dev/null || true)

while IFS=: read -r file line text; do
  complain "$file:$line" "names a processor outside src/arch: $text"
done < <(grep -rnE '^ *# *(if|ifdef|ifndef|elif).*(__x86_64__|__aarch64__|__i386__|__arm__)' src/core include | grep -v '^include/fprobe/ftrace_regs.h:' || true)

[ $broken -eq 0 ] && echo "$(find src -type f | wc -l) files keep to their layers"
exit $broken
