#!/bin/sh
# Builds and runs the tests on a Debian machine where nothing was prepared; see --help.
set -eu
root=$(CDPATH= cd -- "$(dirname -- "$0")/.." && pwd)

usage() {
    cat <<'TEXT'
usage: sh tests/run.sh [label...]

Installs what is missing (apt-get when root, otherwise prints the one line to run), builds the tests with warnings as
errors under build/, and runs them. Without arguments all of them; else only those with the labels named:
  unit          decisions and data, without a server
  server        against a private redis-server or valkey-server
  contract      one suite over every connection
  lab           the quick part of the laboratory: each fault twice, 2 million simulated events (sh tests/fault/run.sh: all)
  headers       each header alone, twice, and all in one program (without this label: only those that users include, in one program)
  compile_fail  what must not compile, beside what must
  consume       FetchContent, add_subdirectory, find_package, pkg-config, plain -I, separate compilation, one header, a Debian
                package, vcpkg (without this label: some of them)
  text          floors, blocks and links of the guides, and the words that must not occur
  interop       beside the real clients of Java, Go, Python and Node, which are fetched; not part of all
Environment:
  CXX                       the compiler; its build folder is build/tests-<compiler>
  DISTLOCK_TEST_SERVER      redis-server (the default where it is installed) or valkey-server
  DISTLOCK_TEST_ROUND_TRIP  how far away the servers of the label contract are, as 80ms (default: no farther than they are)
  DISTLOCK_JOBS             how many files to compile at a time (default: the number of processors); three times as many tests run
TEXT
}

labels=
for argument in "$@"; do
    case "$argument" in
        -h | --help) usage; exit 0 ;;
        unit | server | contract | lab | headers | compile_fail | consume | text | interop) labels="$labels $argument" ;;
        *) echo "run.sh: no such label: $argument" >&2; usage >&2; exit 2 ;;
    esac
done

compiler=g++
[ -z "${CXX:-}" ] || compiler=
# shellcheck disable=SC2086
sh "$root/cmake/dev/packages.sh" $compiler cmake ninja-build pkg-config libhiredis-dev libssl-dev liblua5.1-0-dev libsqlite3-dev catch2 redis-server

build="$root/build/tests${CXX:+-$(basename "$CXX")}"
jobs=${DISTLOCK_JOBS:-$(nproc 2>/dev/null || echo 2)}

headers=none
case "$labels " in *" headers "*) headers=each ;; esac
every_host=OFF
case "$labels " in *" consume "*) every_host=ON ;; esac
interop=
case "$labels " in
    *" interop "*)
        sh "$root/tests/interop/build.sh" "$root/build/interop"
        interop=$root/build/interop
        ;;
esac

echo "== configuring in $build"
generator=
if [ ! -e "$build/CMakeCache.txt" ] && command -v ninja >/dev/null 2>&1; then generator="-G Ninja"; fi
# shellcheck disable=SC2086
cmake -S "$root" -B "$build" $generator -DCMAKE_BUILD_TYPE=Debug -DCMAKE_CXX_FLAGS_DEBUG=-g0 -DDISTLOCK_WERROR=ON -DDISTLOCK_PRECOMPILE=ON "-DDISTLOCK_INTEROP=$interop" \
    "-DDISTLOCK_TESTS_HEADERS=$headers" "-DDISTLOCK_TESTS_EVERY_HOST=$every_host"

targets=
match=
for label in $labels; do
    case "$label" in
        unit | server | contract | lab | headers | interop) targets="$targets distlock_$label" ;;
    esac
    match="${match:+$match|}$label"
done

if [ -z "$labels" ] || [ -n "$targets" ]; then
    echo "== building, $jobs at a time"
    # shellcheck disable=SC2086
    cmake --build "$build" --parallel "$jobs" ${targets:+--target $targets}
fi

echo "== testing${labels:+:$labels}"
ctest --test-dir "$build" --output-on-failure --no-tests=error --parallel $((3 * jobs)) ${match:+-L "^($match)\$"}
