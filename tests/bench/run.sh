#!/bin/sh
# Prints the figures as one Markdown document, with charts in build/bench/charts: sh tests/bench/run.sh [quick]
# Or draws the picture of waiting: sh tests/bench/run.sh picture file.svg
# Starts its own servers; nothing else should run meanwhile. About eleven minutes, with `quick` a quarter of that.
set -eu
root=$(CDPATH= cd -- "$(dirname -- "$0")/../.." && pwd)

usage() {
    echo "usage: sh tests/bench/run.sh [quick | picture file.svg]" >&2
    exit 2
}
mode=${1:-normal}
case "$mode" in
    normal | quick) [ $# -le 1 ] || usage ;;
    picture) [ $# -eq 2 ] || usage ;;
    *) usage ;;
esac

target=distlock_bench
[ "$mode" != picture ] || target=distlock_bench_waiting_picture
sh "$root/cmake/dev/packages.sh" g++ cmake ninja-build pkg-config libhiredis-dev libssl-dev liblua5.1-0-dev catch2 redis-server >&2
mkdir -p "$root/build"
build="$root/build/bench"
log="$root/build/bench.log"
{
    cmake -S "$root" -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DDISTLOCK_BUILD_EXAMPLES=OFF &&
        cmake --build "$build" --target "$target"
} >"$log" 2>&1 || {
    tail -n 30 "$log" >&2
    echo "bench: the build failed, see $log" >&2
    exit 1
}

if [ "$mode" = picture ]; then
    exec "$build/tests/distlock_bench_waiting_picture" "$2"
fi
quick=
[ "$mode" != quick ] || quick=quick
echo "# Figures"
echo
echo "Clients, threads and server share one core. What is compared alternates; a ratio is taken in each round, and its median"
echo "stands before its range."
figures="$root/build/bench.md"
: >"$figures"
for part in uncontended following shared permits contended handover threads waiters; do
    echo
    echo "## $part"
    # shellcheck disable=SC2086
    { "$build/tests/distlock_bench_$part" $quick "$build/charts" || echo "**$part failed**"; } | tee -a "$figures"
done
echo
echo "## compile time" | tee -a "$figures"
echo
sh "$root/tests/bench/compile_time.sh" | tee -a "$figures"

# The rows of all parts beside their bars.
echo
echo "## All bars"
echo
echo "| what | median (range) | bar |  |"
echo "|---|---|---|---|"
awk '/^#/ { bars = /^### Bars/; next } bars && /^\|/ && !/^\| what/ && !/^\| *---/' "$figures"
! grep -q '^\*\*.* failed\*\*$' "$figures"
