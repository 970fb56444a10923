#!/bin/bash
# summary.sh <folder> [table]: prints what each configuration of the table (default: configurations.txt) left in the folder
# when it ran, and their sum. Fails when one failed, left nothing, or listed other sites than were counted.
set -eu
folder=$1 table=${2:-$(dirname "$0")/configurations.txt}

grep -v '^#' "$table" | while read -r name; do
  cat "$folder/$name.line" 2>/dev/null || echo "$name: FAILED, it has not run"
done | awk '
  { print; ++configurations }
  / NOT RUN, / { ++not_run; next }
  !/ [0-9]+ sites listed, [0-9]+ counted, [0-9]+ hits$/ { ++failed; next }
  { listed += $2; counted += $5; hits += $7 }
  END {
    printf "%d configurations, %d sites listed = %d counted, %d hits", configurations, listed, counted, hits
    if (not_run) printf "; %d NOT RUN", not_run
    if (failed) printf "; %d FAILED", failed
    print ""
    exit failed || listed != counted || configurations == 0
  }'
