#!/bin/bash
# gdb_backtraces.sh <program> <entry>: gdb's backtrace reaches main from inside probed functions, from their handlers, and at
# every single instruction of a hit, entry and exit. `entry` is the door of the entry code that the program's sites use.
set -u
program=$1 entry=$2
log=$(mktemp)
trap 'rm -f "$log"' EXIT

# Runs gdb with the commands of standard input.
debug() {
  {
    printf 'set %s\n' 'pagination off' 'height 0' 'width 0' 'confirm off' 'debuginfod enabled off' 'print frame-arguments none'
    cat
  } >"$log.gdb"
  gdb -nx -batch -x "$log.gdb" "$program" >"$log" 2>&1
  rm -f "$log.gdb"
}

fail() {
  echo "FAILED: $1"
  tail -n "${2:-60}" "$log"
  exit 1
}

# Every backtrace in the log ends in caller() and main(), and knows every frame (but the innermost, which may be a thunk):
# prints how many there are, or the first that does not. A thunk has no frame information: behind a prologue, where the
# stack pointer does not point to the return address, a backtrace that starts in one may end there.
check_all_reach_main() {
  local lost_in_thunks=0
  [ "$entry" = fprobe_entry_code ] || lost_in_thunks=1
  awk -v lost_in_thunks=$lost_in_thunks '
    function finish() { if (n > 0 && !(lost_in_thunks && in_thunk) && (last != "main" || before != "caller" || unknown)) { bad++; if (bad == 1) first = block } }
    /^====/ { finish(); n++; last = before = block = ""; unknown = in_thunk = 0 }
    /^#0 .* \?\? \(/ { in_thunk = 1 }
    { block = block $0 "\n" }
    /^#[0-9]+ / {
      before = last
      last = match($0, /[A-Za-z_0-9]+ \(/) ? substr($0, RSTART, RLENGTH - 2) : "a template or operator"
      if (/ \?\? \(/ && $1 != "#0") unknown = 1
    }
    END { finish(); if (bad) { printf "%d of %d do not reach main, the first:\n%s", bad, n, first; exit 1 } print n }' "$log"
}

# 1. From the body, five probed frames deep, and from the handlers there.
debug <<'COMMANDS'
break in_the_body
run
echo ====\n
bt
COMMANDS
check_all_reach_main >/dev/null || fail "the backtrace from the body does not reach main"
functions=$(grep -o '^#[0-9]* .*' "$log" | grep -oE '\b(victim_[a-z]+|caller|main) \(' | tr -d ' (' | tr '\n' ' ')
[ "$functions" = "victim_inner victim_middle victim_outer victim_outer victim_outer caller main " ] ||
  fail "the backtrace from the body shows: $functions"

debug <<'COMMANDS'
break in_the_handler
run
set $i = 0
while $i < 9
  echo ====\n
  bt
  continue
  set $i = $i + 1
end
COMMANDS
count=$(check_all_reach_main) || fail "$count"
[ "$count" -eq 9 ] || fail "$count stops in handlers, expected 9"

# 2. Before each instruction of one hit.
debug <<'COMMANDS'
break before_the_hit
run
delete
finish
set $steps = 0
while $pc != after_the_hit && $steps < 5000
  echo ====\n
  bt
  stepi
  set $steps = $steps + 1
end
printf "steps %d\n", $steps
COMMANDS
count=$(check_all_reach_main) || fail "$count" 5
steps=$(sed -n 's/^steps //p' "$log")
[ "$count" = "$steps" ] && [ "$steps" -gt 100 ] && [ "$steps" -lt 5000 ] || fail "$count backtraces in $steps steps"
for place in "$entry" fprobe_enter in_the_handler victim_single fprobe_return_code fprobe_leave; do
  grep -qE "^#0 .*\b$place\b" "$log" || fail "no step stood in $place"
done
grep -qE "^#[01] .*\bfprobe_stubs\b" "$log" || fail "no step stood in a return stub"
echo "gdb reaches main at each of $steps steps"
