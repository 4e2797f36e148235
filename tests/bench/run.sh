#!/bin/sh
# Prints the figures: sh tests/bench/run.sh [pairs]. Starts its own servers; nothing else should run meanwhile.
set -eu
root=$(CDPATH= cd -- "$(dirname -- "$0")/../.." && pwd)

sh "$root/cmake/dev/packages.sh" g++ cmake ninja-build pkg-config libhiredis-dev libssl-dev catch2 redis-server
mkdir -p "$root/build"
build="$root/build/bench"
cmake -S "$root" -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DDISTLOCK_BUILD_EXAMPLES=OFF >"$root/build/bench.log"
cmake --build "$build" --target distlock_bench >>"$root/build/bench.log"

"$build/tests/distlock_bench_uncontended" "$@"
echo
sh "$root/tests/bench/compile_time.sh"
