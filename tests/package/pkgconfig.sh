#!/bin/sh
# pkgconfig.sh <prefix> <compiler> <standard> <source> <program>: builds and runs the consumer from pkg-config alone.
set -eu
prefix=$1 compiler=$2 standard=$3 source=$4 program=$5
PKG_CONFIG_PATH=$(dirname "$(find "$prefix" -name fprobe.pc)")
export PKG_CONFIG_PATH
[ "$(pkg-config --modversion fprobe)" = 0.1.0 ]
# shellcheck disable=SC2046  # flags are meant to be split
"$compiler" -std="$standard" -O2 -Wall -Wextra -pedantic -Werror -pg -mfentry $(pkg-config --cflags fprobe) -c "$source" -o "$program.o"
# shellcheck disable=SC2046
"$compiler" "$program.o" -o "$program" -Wl,-rpath,"$(pkg-config --variable=libdir fprobe)" $(pkg-config --libs fprobe)
"$program"
