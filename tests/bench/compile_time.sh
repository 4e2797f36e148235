#!/bin/sh
# What the umbrella adds to the compile time of the standard headers it needs: processor seconds, best of seven each.
set -eu
root=$(CDPATH= cd -- "$(dirname -- "$0")/../.." && pwd)
compiler=${CXX:-g++}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cd "$root/include"
echo '#include <distlock/distlock.hpp>' >"$work/ours.cpp"
"$compiler" -std=c++20 -I. -M "$work/ours.cpp" | tr ' \\' '\n\n' | grep '^\(\./\)\{0,1\}distlock/' | sort -u >"$work/headers"
# Some are other systems'.
xargs grep -h '^#include <' <"$work/headers" | grep -v '<distlock/' | sort -u |
    sed 's/^#include \(<.*>\)/#if __has_include(\1)\n&\n#endif/' >"$work/standard.cpp"
[ -s "$work/standard.cpp" ] || { echo "compile_time: found no standard headers" >&2; exit 1; }

# Appends the processor seconds of one compilation of $1.cpp to the file $1. In a shell of its own, whose children are counted.
seconds() {
    (
        "$compiler" -std=c++20 -I. -fsyntax-only "$work/$1.cpp"
        times >"$work/times"
        sed -n 's/[ms]/ /g; 2p' "$work/times" | awk '{ print $1 * 60 + $2 + $3 * 60 + $4 }' >>"$work/$1"
    )
}

for _ in 1 2 3 4 5 6 7; do
    seconds standard
    seconds ours
done
standard=$(sort -n "$work/standard" | head -n 1)
ours=$(sort -n "$work/ours" | head -n 1)
echo "| compile time, $compiler | standard headers alone | with distlock.hpp | ratio |"
echo "|---|---|---|---|"
awk -v a="$standard" -v b="$ours" 'BEGIN { printf "| processor seconds | %.2f | %.2f | %.2f |\n", a, b, b / a }'
echo
echo "### Bars"
echo
echo "| what | median (range) | bar |  |"
echo "|---|---|---|---|"
awk -v a="$standard" -v b="$ours" -v by="$compiler $("$compiler" -dumpversion)" 'BEGIN {
    printf "| compile time of the umbrella / of its standard headers, %s | %.2f | <= 1.30 | %s |\n", by, b / a, (b <= 1.3 * a ? "met" : "**not met**") }'
