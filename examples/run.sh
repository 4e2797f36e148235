#!/bin/sh
# Installs what is missing, builds the contention demo and runs it; see --help.
set -eu
root=$(CDPATH= cd -- "$(dirname -- "$0")/.." && pwd)
build=$root/build/example

server=redis-server
for argument in "$@"; do
    case $argument in
        -h | --help) # The one help text, which the program includes, too: without its first and last line.
            sed '1s/^R"(//; $d' "$root/examples/contention/usage.txt"
            exit 0 ;;
        --redis | --redis=*) server= ;; # you have one already
    esac
done

compiler=g++
[ -z "${CXX:-}" ] || compiler=
# shellcheck disable=SC2086
sh "$root/cmake/dev/packages.sh" $compiler cmake ninja-build pkg-config libhiredis-dev $server

# step TITLE COMMAND...: one line that grows a dot a second; what the command says is shown only if it fails.
ticker=
log=
tidy() {
    [ -z "$ticker" ] || kill "$ticker" 2>/dev/null || :
    [ -z "$log" ] || rm -f "$log"
}
trap tidy EXIT
trap 'echo; exit 130' INT
trap 'exit 143' TERM HUP
step() {
    printf '%s ' "$1"
    shift
    log=$(mktemp "${TMPDIR:-/tmp}/distlock-build.XXXXXX")
    (while sleep 1; do printf .; done) &
    ticker=$!
    status=0
    "$@" >"$log" 2>&1 </dev/null || status=$?
    kill "$ticker" 2>/dev/null || :
    wait "$ticker" 2>/dev/null || :
    ticker=
    if [ "$status" -ne 0 ]; then
        echo 'failed'
        cat "$log" >&2
        exit 1
    fi
    rm -f "$log"
    log=
    echo 'done'
}

generator=
if [ ! -e "$build/CMakeCache.txt" ] && command -v ninja >/dev/null 2>&1; then generator='-G Ninja'; fi
# shellcheck disable=SC2086
step 'configuring' cmake -S "$root" -B "$build" $generator -DCMAKE_BUILD_TYPE=Release -DDISTLOCK_BUILD_TESTS=OFF \
    -DDISTLOCK_BUILD_EXAMPLES=ON
step 'building the demo, about 20 seconds' cmake --build "$build" --target distlock_example_contention

trap - EXIT INT TERM HUP
exec "$build/examples/contention" "$@"
