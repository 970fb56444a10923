#!/bin/sh
# gmon keeps counting: calls of functions without a probe reach it, before, during and after a registration.
#   gmon.sh <program> <empty folder> <calls of first_victim> <calls of second_victim>
set -eu
rm -rf "$2" && mkdir -p "$2" && cd "$2"
"$1"
calls() { gprof -b -p "$1" gmon.out | awk -v name="$2" '$NF == name { print $4 }'; }
first=$(calls "$1" first_victim)
second=$(calls "$1" second_victim)
echo "gmon saw $first calls of first_victim and $second of second_victim"
[ "$first" = "$3" ] && [ "$second" = "$4" ]
