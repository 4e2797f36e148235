#!/bin/sh
# Searches the models of the queue, and breaks them on purpose: every variant must hold, every mutant must be found.
#   run.sh            and notes in searched.txt how many states each search saw
#   run.sh --all      the variants that take longer, too
#   run.sh --quick    those with few states, while the models and this file are what searched.txt was noted for: a search says the
#                     same each time
# A search for each processor runs at a time, in at most 1.5 GB. What failed is kept in build/model.
set -eu
root=$(CDPATH= cd -- "$(dirname -- "$0")/../.." && pwd)
build="$root/build/model"
noted="$root/tests/model/searched.txt"

# In megabytes, and in steps: a search that needs more is no proof, and fails.
memory=1450
depth=1000000
few=30000  # states

# queue: queue.pml. forever: the same, for attempts without end. clock: queue_clock.pml. shared: shared.pml.
variants() {
    cat <<'TEXT'
queue STOP DEADLINE FIFO
queue TRY STOP DEADLINE N=2 OTHERS=2
queue SETNX STOP DEADLINE N=2 OTHERS=2
queue COUNT
queue NO_TIMER FIFO
queue OFTEN STOP N=2 OTHERS=2
queue RENEW TWICE STOP DEADLINE N=2
queue LAZY FIFO FAIR N=2 OTHERS=2
queue MUTE STOP DEADLINE FIFO
queue TEXTLESS LOSE STOP DEADLINE N=2
queue LOSE FIFO FAIR
queue LOSE SOCKET STOP DEADLINE N=2 FAULTS=2
queue LOSE RENEW STOP DEADLINE N=2
queue SETNX LOSE STOP DEADLINE N=2
queue SETNX LOSE CRASH STOP N=2 FAULTS=2
queue DUP LOSE STOP DEADLINE N=2 FAULTS=2
queue SHARE SOCKET STOP CYCLES=1
queue SOCKET STOP DEADLINE N=2 OTHERS=2
queue DEAF FIFO FAIR
queue STALL FIFO FAIR
queue CRASH FIFO FAIR
queue REFUSED FIFO FAIR
queue MINIMAL FIFO FAIR
queue MINIMAL STOP DEADLINE N=2 OTHERS=2
queue OOM STOP DEADLINE N=2 OTHERS=2
queue SLOW FIFO FAIR
queue FOREIGN STOP N=2 OTHERS=2
queue EVICT STOP N=2 OTHERS=2
queue RESTART STOP N=2
queue AOF STOP N=2
queue PLAIN CRASH STOP
forever STOP N=2
forever LOSE N=2
forever SOCKET N=2
forever DEAF N=2
forever STALL N=2
forever SLOW N=2
forever REFUSED N=2
forever MUTE STOP N=2
forever MINIMAL N=2
forever OOM N=2
forever EVICT N=2
clock BASE=1 LATE=0
clock BASE=2 LATE=0
clock BASE=2 LATE=0 RENEW MAXT=4
clock BASE=2 LATE=0 SETNX MAXT=4
shared STOP DEADLINE FIFO N=4
shared NO_TIMER LONG STOP DEADLINE FIFO
shared TRY SETNX STOP FIFO
shared RENEW TWICE STOP DEADLINE
shared CHANGE RENEW STOP
shared CHANGE NO_TIMER LONG
shared CHANGE LOSE RENEW N=2
shared CHANGE CRASH PLAIN
shared ALONE CRASH
shared LOSE STOP FIFO
shared SETNX LOSE SOCKET STOP N=2 FAULTS=2
shared SOCKET SILENT STOP FIFO
shared CRASH FIFO N=4 ROLES=2
shared CRASH LONG FIFO
shared SLOW RENEW STOP
shared EXPIRE RENEW STOP
shared FOREIGN PLAIN RENEW STOP
shared FOREIGN CHANGE RENEW
shared EVICT STOP
shared PERMITS=3 STOP DEADLINE FIFO N=4
shared PERMITS=2 NO_TIMER LONG STOP DEADLINE FIFO
shared PERMITS=3 RENEW TWICE STOP
shared PERMITS=3 LOSE STOP FIFO
shared PERMITS=3 CRASH FIFO
shared PERMITS=2 CRASH LONG
shared PERMITS=3 SOCKET SILENT STOP FIFO
shared PERMITS=3 SLOW EXPIRE RENEW STOP
shared PERMITS=3 EVICT STOP
TEXT
}

longer() {
    cat <<'TEXT'
clock BASE=2 MAXT=4
clock BASE=2 SETNX MAXT=4
queue TRY STOP DEADLINE
queue SETNX STOP DEADLINE
queue RENEW TWICE STOP DEADLINE N=2 OTHERS=2
queue TEXTLESS STOP DEADLINE N=2 OTHERS=2
queue SETNX TEXTLESS LOSE RENEW STOP N=2
queue LOSE STOP DEADLINE N=2 OTHERS=2
queue LOSE FIFO FAIR N=2 OTHERS=2 FAULTS=2
queue LOSE SLOW STOP DEADLINE N=2 FAULTS=2
queue LOSE RENEW SOCKET STOP DEADLINE N=2 FAULTS=2
queue SETNX LOSE SLOW STOP DEADLINE N=2 FAULTS=2
queue SETNX LOSE MINIMAL STOP DEADLINE N=2 FAULTS=2
queue SETNX LOSE RENEW SOCKET STOP DEADLINE N=2 FAULTS=2 CYCLES=1
queue SETNX DUP LOSE SLOW STOP N=2 FAULTS=2
queue SOCKET FIFO FAIR
queue DEAF STOP DEADLINE N=2 OTHERS=2
queue STALL STOP DEADLINE N=2 OTHERS=2
queue SHARE DEAF STALL FAIR
queue TRY CRASH FIFO
queue CRASH STOP N=2 OTHERS=2 FAULTS=2
queue REFUSED STOP DEADLINE N=2 OTHERS=2
queue REFUSED LOSE STOP DEADLINE N=2 FAULTS=2
queue MINIMAL RENEW LOSE STOP N=2 FAULTS=2
queue OOM FIFO FAIR
queue OOM LOSE STOP N=2 FAULTS=2
queue SLOW STOP DEADLINE N=2 OTHERS=2
queue FOREIGN FIFO FAIR
queue EVICT FIFO FAIR
queue PLAIN FOREIGN STOP N=2
queue LOSE SOCKET DEAF STALL CRASH SLOW FOREIGN EVICT FIFO FAIR N=2 FAULTS=2
forever N=2
forever TRY STOP N=2
forever TEXTLESS STOP N=2
forever FOREIGN N=2
forever RESTART N=2
forever DEAF SOCKET N=2 FAULTS=2
shared CRASH RENEW FIFO N=4
shared EXPIRE RENEW STOP N=4
shared LOSE STOP DEADLINE FIFO
shared LOSE STOP DEADLINE N=2 OTHERS=2 FAULTS=2
shared CHANGE LOSE PLAIN
shared CHANGE LOSE STOP
shared CHANGE SOCKET SLOW FOREIGN RENEW N=2 FAULTS=2
shared PERMITS=3 CRASH FIFO N=4
shared PERMITS=3 LOSE STOP DEADLINE FIFO
shared PERMITS=3 LOSE CRASH RENEW N=3 FAULTS=2
TEXT
}

# The search, the mutant, and the variant that must find it.
mutants() {
    cat <<'TEXT'
clock BASE=3 LATE=0
clock BASE=4 LATE=0
clock BASE=5 LATE=0
clock BASE=6 LATE=0
clock M_KEEP_TTL LATE=0
clock M_FROM_ANSWER LATE=0
clock M_LEASE LATE=0
clock M_RENEWED_CAME RENEW LATE=0
queue M_TOKEN_REUSED N=2
queue M_REGISTERED_LATE N=2
queue M_FORGOTTEN_EARLY DEADLINE N=2
queue M_UNKNOWN_IGNORED STOP LOSE N=2
queue M_HELD_LEAVES N=2
queue M_ANSWER_IGNORED STOP N=2
queue M_RENEWED_IGNORED RENEW LOSE STOP N=2
queue M_LAST_ENDS_ALL DEADLINE LOSE N=2
queue M_LAST_ENDS_SETNX SETNX LOSE DEADLINE N=2
queue M_SETNX_FORGOTTEN SETNX LOSE STOP N=2
queue M_WHOLE_LEASE LOSE STOP N=2
queue M_NEVER_RESUBSCRIBES STALL FAIR
forever M_NEVER_RESUBSCRIBES DEAF N=2
forever M_OLD_ANSWER SOCKET N=2
forever M_RARE_RECHECK MUTE N=2
queue M_JOIN_TWICE OFTEN N=2
queue M_JOIN_MOVES OFTEN FIFO N=2
queue M_LAST_BLIND DEADLINE N=2
queue M_LAST_STAYS DEADLINE N=2
queue M_LEAVE_FREES NO_TIMER N=2
queue M_LEAVE_BLIND STOP N=2
queue M_LEAVE_KEEPS_TICKET STOP N=2
queue M_OWNER_KEEPS_TICKET SETNX LOSE SLOW N=2 FAULTS=2
queue M_PUBLISH_FIRST OOM SETNX N=2
queue M_COUNT_IGNORED CRASH N=2
queue M_NO_MESSAGE NO_TIMER N=2
queue M_RENEW_SETS RENEW N=2
queue M_LAST_FIRST FIFO
queue M_BARGE CRASH FIFO
queue TRY COUNT N=2
queue SETNX CRASH FIFO
queue NO_TIMER CRASH N=2
queue NO_TIMER LOSE N=2
queue NO_TIMER REFUSED N=2
shared L_ONLY_HOLDERS_PASS NO_TIMER LONG STOP
shared L_DEAD_FIRST CRASH LONG CLOSED
shared L_NEVER_ASKED CRASH LONG
shared L_READERS_BARGE FIFO
shared L_ONE_TTL ALONE CRASH
shared L_LAST_TTL CRASH
shared L_OLD_SET FOREIGN RENEW
shared L_RENEW_ADDS EXPIRE RENEW
shared L_KEEPS_IN_DOUBT CHANGE LOSE
shared M_PASS_BLIND STOP
shared M_ONE_READER NO_TIMER LONG
shared M_LAST_KEEPS_OUT NO_TIMER LONG DEADLINE
shared M_LEAVE_FREES NO_TIMER
shared M_LEAVE_FREES_ALL STOP
shared M_LEAVE_BLIND EXPIRE
shared M_MARK_STAYS STOP
shared M_UPGRADE_BLIND CHANGE
shared M_DOWNGRADE_BLIND CHANGE LOSE
shared M_DOWNGRADE_KEEPS_OUT CHANGE NO_TIMER LONG
shared M_COUNT_IGNORED CRASH
shared M_TWO_STEPS N=2
shared NO_TIMER CRASH
shared NO_TIMER SILENT
shared PERMITS=2 L_ONLY_HOLDERS_PASS NO_TIMER LONG STOP
shared PERMITS=2 L_DEAD_FIRST CRASH LONG CLOSED
shared PERMITS=2 L_NEVER_ASKED CRASH LONG
shared PERMITS=2 L_ONE_TTL LONG CRASH
shared PERMITS=3 L_SMALL_FIRST FIFO
shared PERMITS=3 M_PASS_BLIND STOP
shared PERMITS=3 M_COUNT_HOLDERS STOP
shared PERMITS=3 M_TWO_STEPS STOP
shared PERMITS=3 M_LEAVE_ANY TWICE
shared PERMITS=2 M_ONE_READER NO_TIMER LONG
shared PERMITS=2 M_LAST_KEEPS_OUT NO_TIMER LONG DEADLINE
TEXT
}

reason() {
    case "$(grep '^pan:1:' "$1")" in
    *'invalid end state'*) echo 'somebody waits for ever' ;;
    *'<=2)'* | *'<=3)'*) echo 'more permits than there are' ;;
    *'acceptance cycle'*) echo 'somebody is never served' ;;
    *'lossy||(K'*) echo 'a grant is left to its TTL' ;;
    *'robbed>>cur'* | *until*) echo 'two owners' ;;
    *G_size*) echo 'out of order' ;;
    *added_times*) echo 'added again and again' ;;
    *'out>>'*) echo 'a dead token is granted the lock' ;;
    *cost*) echo 'more than two commands' ;;
    *'K!=t'*) echo 'an owner is queued, or gave up' ;;
    *'sub['*) echo 'the lock is handed to nobody' ;;
    *'ended>>'*) echo 'what has ended is renewed' ;;
    *'violated 0'*) echo 'a mark without a reader' ;;
    *'H==0'*) echo 'something left at the end' ;;
    *size*) echo 'something left at the end' ;;
    esac
}

# search(expected, kind, words of -D...): prints a row of the table. Returns: whether the result is the expected one.
search() {
    expected=$1 kind=$2
    shift 2
    source=$root/tests/model/queue.pml cflags='-O1 -DSAFETY' first= flags=-w24
    case $kind in
    forever) cflags='-O1 -DNFAIR=4' first=-DFOREVER flags='-w24 -a -f -E' ;;
    clock) source=$root/tests/model/queue_clock.pml ;;
    shared) source=$root/tests/model/shared.pml ;;
    esac
    [ "$expected" = holds ] && [ -z "${QUICK:-}" ] || cflags="$cflags -O0"
    dir="$build/$expected.$kind.$(echo "$*" | tr ' ' '_')"
    mkdir -p "$dir"
    cd "$dir"
    started=$(date +%s)
    # States are compressed only where they do not fit: that costs the time again.
    for compressed in '' -DCOLLAPSE; do
        {
            spin $first $(printf -- '-D%s ' "$@") -a "$source" &&
                gcc -w $cflags $compressed "-DMEMLIM=$memory" -DVECTORSZ=2048 -o pan pan.c && ./pan "-m$depth" $flags
        } >log 2>&1 </dev/null || true # its exit status says nothing
        grep -q MEMLIM log || break
    done
    if [ "$expected" = found ]; then
        result=$(reason log)
        [ -n "$result" ] && found=true || found=false result=SURVIVES
    else
        # The init of both must come to its last line. Forever and on the clock there is no end.
        found=true result=holds
        grep -q 'errors: 0' log && ! grep -q -e 'not completed' -e 'too small' -e 'MEMLIM' log || found=false result=FAILS
        [ "$kind" = forever ] || [ "$kind" = clock ] || [ "$result" = FAILS ] || grep -A 1 'unreached in init' log | grep -q '(0 of' ||
            found=false result='NO END'
    fi
    states=$(sed -n 's/^ *\([0-9]*\) states, stored.*/\1/p' log | head -n 1)
    printf '%-8s %-74s %9s %4s  %s\n' "$kind" "$*" "$states" $(($(date +%s) - started)) "$result"
    echo "$expected $kind $* $states" >>"$build/searched"
    cd "$build"
    ! "$found" || rm -rf "$dir"
    "$found"
}

models() { cat "$root"/tests/model/*.pml "$root/tests/model/run.sh" | cksum; }

case "${1:-}" in
holds | found) search "$@" && exit || exit 1 ;;
'' | --all) QUICK= ;;
--quick)
    export QUICK=1
    [ "$(models)" = "$(head -n 1 "$noted")" ] || {
        QUICK=
        echo "model: another one than $noted was noted for, so everything is searched"
    }
    ;;
*) echo 'usage: sh tests/model/run.sh [--all | --quick]' >&2; exit 2 ;;
esac

rm -rf "$build"
mkdir -p "$build"
if [ -n "${QUICK:-}" ]; then
    sed -n '2,$p' "$noted" | awk -v few="$few" '$NF < few { NF--; print }'
else
    [ "${1:-}" != --all ] || longer | sed 's/^/holds /'
    variants | sed 's/^/holds /'
    mutants | sed 's/^/found /'
fi >"$build/list"
printf '%-8s %-74s %9s %4s  %s\n' model variant states s result
xargs -P "${JOBS:-$(nproc)}" -L 1 sh "$root/tests/model/run.sh" <"$build/list" || {
    echo "model: some of these failed; what the searches said is in $build" >&2
    exit 1
}
echo "model: $(grep -c '^holds' "$build/list") variants hold, $(grep -c '^found' "$build/list") mutants are found"
[ -n "${1:-}" ] || { models && sort "$build/searched"; } >"$noted"
