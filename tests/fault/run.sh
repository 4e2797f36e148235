#!/bin/sh
# Runs the laboratory and prints one table; see --help.
set -eu
root=$(CDPATH= cd -- "$(dirname -- "$0")/../.." && pwd)

usage() {
    cat <<'TEXT'
usage: sh tests/fault/run.sh [--count N] [part...]

Installs what is missing (apt-get when root, otherwise prints the one line to run), and shows what the guarantees rest on.
Without a part, all of them:
  faults     the rows of tests/fault/faults.txt that are injected into a crew of processes, N times (default 20)
  proofs     the others of its rows: what is measured alone, as who is served after an owner was killed, N times
  simulator  the library under virtual time, 10^8 events for mutexes and as many for the family; its server beside a real one
  model      spin searches the model of the queue, all of its variants, and finds every mutant of it
  mutants    faults planted in our own headers: each is found by a test
  fuzz       seven targets, 60 seconds each
  coverage   which lines of include/ the tests reach
Quiet machine, two cores: about an hour. The exit code says whether everything held.
TEXT
}

count=20
parts=
while [ $# -gt 0 ]; do
    case "$1" in
        -h | --help) usage; exit 0 ;;
        --count) count=$2; shift ;;
        faults | proofs | simulator | model | mutants | fuzz | coverage) parts="$parts $1" ;;
        *) echo "run.sh: no such part: $1" >&2; usage >&2; exit 2 ;;
    esac
    shift
done
parts=${parts:-faults proofs simulator model mutants fuzz coverage}

sh "$root/cmake/dev/packages.sh" g++ cmake ninja-build pkg-config libhiredis-dev libssl-dev liblua5.1-0-dev libsqlite3-dev catch2 redis-server
build="$root/build/tests"
results="$root/build/lab"
mkdir -p "$results"
failed=

# part name command...: its output goes to a file as well; a failure is noted, and the rest goes on.
part() {
    name=$1
    shift
    echo "== $name"
    { "$@" 2>&1 && rm -f "$results/$name.failed" || touch "$results/$name.failed"; } | tee "$results/$name.log"
    [ ! -e "$results/$name.failed" ] || failed="$failed $name"
}

# The same folder as that of tests/run.sh: nothing is built twice.
programs() {
    cmake -S "$root" -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Debug -DCMAKE_CXX_FLAGS_DEBUG=-g0 -DDISTLOCK_WERROR=ON &&
        cmake --build "$build" --target distlock_lab distlock_fault_tests
}

# Rows wait most of their time: twice as many at once as there are processors.
faults() {
    programs || return 1
    export DISTLOCK_LAB_COUNT="$count" DISTLOCK_LAB_TABLE="$results/table"
    ctest --test-dir "$build" --output-on-failure -j "$(($(nproc) * 2))" -R '^fault[.]([A-G][0-9]|order$)' && return
    # Where a machine stands still for two seconds, Sentinels do nothing for thirty (+tilt). Two owners at once are two on such a machine,
    # too.
    awk '{ wrong += $4 } END { exit wrong > 0 }' "$results/table" || return 1
    echo "lab: FAILED AT FIRST, without an overlap; what failed is run once more, alone"
    ctest --test-dir "$build" --output-on-failure --rerun-failed
}

proofs() {
    programs || return 1
    export DISTLOCK_LAB_COUNT="$count" DISTLOCK_LAB_TABLE="$results/table"
    ctest --test-dir "$build" --output-on-failure -R '^fault[.][a-z]' -E '[.]order$'
}

simulator() {
    programs || return 1
    "$build/tests/distlock_simulate" --events "${DISTLOCK_LAB_EVENTS:-100000000}" || return 1
    "$build/tests/distlock_simulate" --family --events "${DISTLOCK_LAB_EVENTS:-100000000}" || return 1
    DISTLOCK_LAB_COUNT=200 "$build/tests/distlock_model_server_tests"
}

model() { sh "$root/tests/model/run.sh" --all; }
mutants() { python3 "$root/tests/fault/mutants/run.py"; }
fuzz() { sh "$root/tests/fuzz/run.sh" "${DISTLOCK_FUZZ_SECONDS:-60}"; }
coverage() { cmake -D JOB=coverage -P "$root/cmake/dev/ci.cmake"; }

rm -f "$results/table"
for one in $parts; do part "$one" "$one"; done

# One line a row: the most overlaps and the longest wait of all that reported it.
show_faults() {
    printf '%-4s %10s %9s %10s %9s  %s\n' row injected wrong 'worst ms' 'bound ms' fault
    awk -F' *[|] *' -v table="$results/table" '
        BEGIN {
            while ((getline line < table) > 0) {
                split(line, f, " ")
                times[f[2]] += f[3]; wrong[f[2]] += f[4]
                if (f[5] + 0 > worst[f[2]] + 0) worst[f[2]] = f[5]
                if (f[6] + 0 > bound[f[2]] + 0) bound[f[2]] = f[6]
            }
        }
        /^[A-G]/ {
            if ($1 in times) {
                ++shown; overlaps += wrong[$1]
                printf "%-4s %10d %9d %10.1f %9s  %s\n", $1, times[$1], wrong[$1], worst[$1], (bound[$1] + 0 == 0 ? "-" : bound[$1]), $3
            } else if ($2 == "table") {
                printf "%-4s %42s  %s\n", $1, "not run", $3; ++missing
            } else {
                printf "%-4s %42s  %s\n", $1, $2, $3; ++other[substr($2, 1, 4)]
            }
        }
        END {
            printf "\n%d rows injected, %d overlaps; %d shown by other tests, %d limits, %d not yet; %d not run\n", shown, overlaps,
                other["test"], other["limi"], other["not "], missing
        }' "$root/tests/fault/faults.txt"
}

# The last line of a part that begins so.
said() { grep "$2" "$results/$1.log" 2>/dev/null | tail -n 1; }

echo
echo "== what was found"
case "$parts" in *faults* | *proofs*) show_faults ;; esac
for one in $parts; do
    case "$one" in
        simulator) echo "simulator: $(said simulator '^seeds')"; echo "  its server: $(said simulator 'commands')" ;;
        model) said model '^model:' ;;
        mutants) said mutants '^mutants:' ;;
        fuzz) echo "fuzz:"; sed -n '/^target/,$p' "$results/fuzz.log" ;;
        coverage) echo "coverage: $(said coverage '^lines')" ;;
    esac
done
[ -z "$failed" ] || { echo "lab: this did not hold:$failed" >&2; exit 1; }
