#!/bin/bash
# check.sh <tests dir> <file.md>: in the tables of the file whose head ends in "| test |", the last cell of every row is
# a list of tests that exist, or begins with "- " and says why there is none. Prints every row that breaks this.
#
# A test is `Suite.Name`, as TEST(Suite, Name), TEST_F or TEST_P have it; `unwind_<program>.Name`, as SCENARIO(Name, ...)
# of integration/unwind/<program>.cpp; or `name` of an add_test(NAME name ...).
set -eu
cd "$1"

known=$(
  find . -name '*.cpp' -exec cat {} + | tr '\n' ' ' | grep -oE '\bTEST(_F|_P)?\( *\w+, *\w+' | sed -E 's/^TEST\w*\( *(\w+), */\1./'
  grep -oE '^(\w+_)?SCENARIO\(\w+' integration/unwind/*.cpp |
    sed -E 's|^integration/unwind/(\w+)\.cpp:\w+\((\w+)|unwind_\1.\2|'
  find . -name CMakeLists.txt -exec grep -ohE 'add_test\(NAME "?[A-Za-z0-9_.]+' {} + | sed -E 's/.*NAME "?//'
)

rows=0 broken=0
complain() {
  echo "$1: $2"
  broken=1
}

in_table=no
while IFS= read -r line; do
  case $line in
    '|'*'| test |') in_table=yes ;;
    '|---'* | '| ---'*) ;;
    '|'*)
      [ $in_table = yes ] || continue
      rows=$((rows + 1))
      cell=${line%|} cell=${cell##*|} cell=${cell# } promise=${line#|} promise=${promise%%|*}
      case $cell in '- '?*) continue ;; esac
      # Names, commas and blanks only.
      [[ $cell =~ ^(\`[A-Za-z0-9_.]+\`,?\ *)+$ ]] || complain "$promise" "no list of tests: '$cell'"
      for name in $(grep -oE '`[^`]*`' <<<"$cell" | tr -d '`' || true); do
        grep -qxF "$name" <<<"$known" || complain "$promise" "no test is called $name"
      done
      ;;
    *) in_table=no ;;
  esac
done <"$2"

[ $rows -gt 0 ] || complain "$2" "has no table of tests"
[ $broken -eq 0 ] && echo "$rows promises have their tests"
exit $broken
