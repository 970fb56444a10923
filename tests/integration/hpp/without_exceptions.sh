#!/bin/sh
# without_exceptions.sh <program>: it prints its sums, then dies of the constructor that cannot throw.
output=$("$1" 2>&1)
status=$?
echo "$output, status $status"
[ $status -ge 128 ] && echo "$output" | grep -q '^sum 41, No such file or directory$' &&
  echo "$output" | grep -q "^libfprobe: no function with a probe site matches 'no_such_function'" &&
  ! echo "$output" | grep -q 'not reached'
