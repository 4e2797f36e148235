#!/bin/sh
# Fuzzes what comes from outside, for so many seconds each: sh tests/fuzz/run.sh [seconds], 60 by default. With 0 only the corpora
# are replayed. What is found lands in build/fuzz/findings, and fails.
set -eu
root=$(CDPATH= cd -- "$(dirname -- "$0")/../.." && pwd)
here="$root/tests/fuzz"
build="$root/build/fuzz"
seconds=${1:-60}
jobs=${DISTLOCK_JOBS:-2}
case "$seconds" in
    '' | *[!0-9]*) echo "usage: sh tests/fuzz/run.sh [seconds]" >&2; exit 2 ;;
esac

sh "$root/cmake/dev/packages.sh" clang-14 libclang-rt-14-dev g++ pkg-config libhiredis-dev

# The most one allocation, and one process, may take in megabytes; and how long one input, in seconds.
limits='-malloc_limit_mb=16 -rss_limit_mb=1024 -timeout=25'
optimized=-O1
[ "$seconds" -ge 60 ] || optimized=-O0  # which compiles in half the time
flags='-std=c++20 -g1 -fno-omit-frame-pointer -D_GLIBCXX_ASSERTIONS
    -fsanitize=fuzzer,address,undefined,float-cast-overflow -fno-sanitize-recover=all
    -Wall -Wextra -Wpedantic -Wconversion -Wshadow -Werror'

# Everything below is said for one target.
binary() { echo "$build/$1"; }
said() { echo "$build/$1.log"; }
value() { sed -n "s/^stat::$2: *//p" "$(said "$1")" | tail -n 1; }
# Of the last line that has it: "#4096 DONE cov: 466 ft: 1165 corp: 228/9659b".
word() { grep -o "$2: [0-9]*" "$(said "$1")" | tail -n 1 | sed 's/.*: //'; }

compile() {
    # shellcheck disable=SC2046,SC2086
    clang++-14 $flags "$optimized" "-I$root/include" "-I$here" "$here/$1.cpp" \
        $(pkg-config --cflags --libs hiredis) -pthread -o "$(binary "$1")"
}

fuzz() {
    mkdir -p "$build/corpus/$1"
    what="-max_total_time=$seconds"
    [ "$seconds" -ne 0 ] || what=-runs=0
    dict=
    [ ! -e "$here/$1.dict" ] || dict="-dict=$here/$1.dict"
    # The first folder takes what is new.
    # shellcheck disable=SC2086
    "$(binary "$1")" $limits $what $dict -print_final_stats=1 "-artifact_prefix=$build/findings/$1-" \
        "$build/corpus/$1" "$here/corpus/$1" >"$(said "$1")" 2>&1 || echo $? >"$build/$1.failed"
}

rm -rf "$build/findings"
mkdir -p "$build/findings"
targets=$(cd "$here" && for file in *.cpp; do echo "${file%.cpp}"; done)
for target in $targets; do
    [ -n "$(ls "$here/corpus/$target" 2>/dev/null)" ] || {
        echo "fuzz: tests/fuzz/corpus/$target is empty" >&2
        exit 1
    }
    rm -f "$build/$target.failed"
    echo "== building $target"
    compile "$target"
done
# What was found on an earlier day would be no regression test of today.
[ "$seconds" -ne 0 ] || rm -rf "$build/corpus"

# As many at a time as there are jobs, each waited for by the shell that started it.
echo "== fuzzing, $seconds s each, $jobs at a time, each with a seed of its own"
export here root build seconds limits
started=0
for target in $targets; do
    fuzz "$target" &
    started=$((started + 1))
    [ $((started % jobs)) -ne 0 ] || wait
done
wait

row='%-12s %12s %12s %8s %8s %11s  %s\n'
printf "\n$row" target executions 'each second' coverage corpus seed findings
failed=0
for target in $targets; do
    result=none
    [ ! -e "$build/$target.failed" ] || {
        failed=$((failed + 1))
        result=$(sed -n 's/^fuzz: does not hold: //p' "$(said "$target")" | head -n 1)
        result="FOUND: ${result:-see $(said "$target")}"
    }
    printf "$row" "$target" "$(value "$target" number_of_executed_units)" \
        "$(value "$target" average_exec_per_sec)" "$(word "$target" cov)" "$(word "$target" corp)" \
        "$(sed -n 's/^INFO: Seed: //p' "$(said "$target")")" "$result"
done

[ "$failed" -eq 0 ] || {
    echo "fuzz: $failed target(s) failed. To replay a finding, and see where:" >&2
    for target in $targets; do
        [ -e "$build/$target.failed" ] || continue
        found=$(ls "$build/findings/$target-"* 2>/dev/null | head -n 1)
        [ -n "$found" ] || found=$(sed -n 's/^Running: //p' "$(said "$target")" | tail -n 1)
        echo "    $(binary "$target") ${found:-$here/corpus/$target}" >&2
    done
    exit 1
}
