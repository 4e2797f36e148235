#!/bin/sh
# Searches the model of the hand-off, and breaks it on purpose: every variant must hold, every mutant must be found.
set -eu
root=$(CDPATH= cd -- "$(dirname -- "$0")/../.." && pwd)
build="$root/build/model"

# In megabytes, and in steps: a search that needs more is no proof, and fails.
memory=1400
depth=100000

# Each must hold.
variants() {
    cat <<'TEXT'
STOP DEADLINE POST ADOPT_ANY
TRY STOP DEADLINE POST
LOOK STOP DEADLINE POST ADOPT_ANY
TRY LOOK STOP DEADLINE POST
LOCAL POST CYCLES=1
LOCAL STOP DEADLINE POST CYCLES=1
LOCAL STOP DEADLINE POST N=2 BUDGET=2
DIE STOP DEADLINE POST
DIE TRY STOP DEADLINE POST FAULTS=2
DIE PLAIN STOP DEADLINE CYCLES=3
CRASH STOP DEADLINE POST FAULTS=2
SOCKET STOP DEADLINE POST
LOSE STOP POST
LOSE DEADLINE POST
FOREIGN STOP DEADLINE POST
FOREIGN PLAIN STOP DEADLINE
EVICT STOP DEADLINE POST
REFUSE STOP DEADLINE POST
OLD TRY STOP DEADLINE POST
PLAIN STOP DEADLINE
EXPIRE STOP DEADLINE CYCLES=1
EXPIRE FOREIGN STOP N=2
TEXT
}

# Each must be found by a variant after the colon.
mutants() {
    cat <<'TEXT'
M_NO_GIVE_BACK: TRY
M_TIMED: DIE PLAIN CYCLES=3
M_GIVE_BACK_IN_LINE: DEADLINE
M_TAKEN_COUNTED: REFUSE DEADLINE
M_OFFER_COUNTED: STOP
M_QUIT_COUNTED: DEADLINE
M_LEAVE_FIRST: STOP
M_LEAVE_FREES_ANY: FOREIGN STOP
M_GRANT_UNREAD: STOP
M_ONLY_FREE: STOP
M_NO_COMPARE: EXPIRE CYCLES=1
M_NO_ADOPT: EXPIRE CYCLES=1
M_SAME_TOKEN: LOSE POST
M_KEEP_STALE: FOREIGN
M_TAKES_STALE: FOREIGN
M_NO_LOOK: CRASH
M_NO_REVIVE: EVICT
M_PASS_RELEASED: LOCAL N=2
TEXT
}

# search(file, flag of the checker, flag of the search, -D...): what the search says goes into the file.
search() {
    said=$1 checker=$2 flag=$3
    shift 3
    rm -f pan pan.*
    spin "$@" -a "$root/tests/model/handoff.pml" >"$said" 2>&1 &&
        gcc -O1 -w "$checker" "-DMEMLIM=$memory" -o pan pan.c >>"$said" 2>&1 || {
        cat "$said" >&2
        exit 1
    }
    # Its exit status says nothing.
    ./pan "-m$depth" $flag >>"$said" 2>&1 || true
}

complete() { grep -q 'errors: 0' "$1" && ! grep -q -e 'not completed' -e 'too small' -e 'MEMLIM' "$1"; }
states() { sed -n 's/^ *\([0-9]*\) states, stored.*/\1/p' "$1"; }
reason() {
    case "$(grep '^pan:1:' "$1")" in
    *'invalid end state'*) echo 'somebody waits for ever' ;;
    *robbed*) echo 'two owners' ;;
    *phantoms*) echo 'a lock kept for the dead' ;;
    *seen*) echo 'an offer older than its place in line' ;;
    *W+*) echo 'a wrong count' ;;
    *assert*) echo 'something left at the end' ;;
    esac
}
flags() { for word in "$@"; do printf -- '-D%s ' "$word"; done; }

rm -rf "$build"
mkdir -p "$build"
cd "$build"
failed=0
row='%-42s %9s  %-9s %4s\n'

# No invalid end state and no cycle: however things are ordered, everybody comes to the end.
printf "$row" variant states result s
variants >variants
while read -r variant; do
    started=$(date +%s)
    result=holds
    log=$(echo "$variant" | tr ' ' '_').log
    search "$log" -DSAFETY '' $(flags $variant)
    complete "$log" || result=FAILS
    grep -A 1 'unreached in init' "$log" | grep -q '(0 of' || result='NO END'
    # Leases that may end at any time may do so for ever.
    case "$variant" in
    *EXPIRE*) ;;
    *)
        search "cycles_$log" -DNP -l $(flags $variant)
        complete "cycles_$log" || [ "$result" != holds ] || result=CYCLES
        ;;
    esac
    [ "$result" = holds ] || failed=$((failed + 1))
    printf "$row" "$variant" "$(states "$log")" "$result" $(($(date +%s) - started))
done <variants

row='%-22s %-18s %s\n'
printf "\n$row" mutant 'found by' as
mutants >mutants
while IFS=: read -r mutant variant; do
    search "$mutant.log" -DSAFETY '' "-D$mutant" $(flags $variant)
    found=$(reason "$mutant.log")
    if [ -z "$found" ]; then
        failed=$((failed + 1))
        variant=' nothing: SURVIVES'
    fi
    printf "$row" "$mutant" "${variant# }" "$found"
done <mutants

[ "$failed" -eq 0 ] || {
    echo "model: $failed of these failed; what the searches said is in $build" >&2
    exit 1
}
