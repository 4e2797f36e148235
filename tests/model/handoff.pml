/* The hand-off of include/distlock/wire/handoff_scripts.hpp, and what a process does around it, for spin to search.

   Every d_step is one script or one command of the server; the processes and the server's clock are free to do anything
   between two of them. K is the lock, B the offers (one at most), W the count of waiters, q the clients blocked on B.
   A token is a small number; one that nobody knows any more is used again, so the search is finite.

   What may happen, each a -D:
     STOP     a waiter gives up: CLIENT UNBLOCK, then leave        DEADLINE a waiter's time is up, then enter(quit)
     POST     a release is posted: applied later, but before the next command of its process
     TRY      the last client cannot wait: enter(try) only         LOCAL    process 0 has two threads, BUDGET local passes
     ADOPT_ANY an offer may be adopted although it is fresh        DIE      a waiter dies, blocked or not, still counted
     LOOK     waiters look; without it they are taken to have looked before a count that was given back is doubtful
   The rest needs the waiters' looks, and leases that end (EXPIRE_LOST: of what nobody holds):
     CRASH    an owner dies, or one just served                    SOCKET   a waiter's socket dies; a grant may be lost with it
     LOSE     a request or its answer is lost, or it comes late    FOREIGN  somebody deletes K
     EVICT    the server evicts W or B                             REFUSE   releases are refused: K is freed without a hand-off
     OLD      an offer may be older than a second                  PLAIN    the last client uses SET NX and compare-and-delete
     EXPIRE   any lease may end but that of an owner who is sure of it; owners may see theirs end and release too late
   CRASH, DIE, SOCKET, LOSE, FOREIGN and EVICT share FAULTS faults.

   What must hold: one owner at a time, those aside who were robbed by FOREIGN; nobody waits for ever (no invalid end
   state); a popped offer was made after its taker got in line. While nothing is lost (EXACT): W plus offers not yet taken
   is the number of those in line, and at the end nothing is left on the server. And with DIE PLAIN: after a counted waiter
   died, and half of the time is over for which its count lasts once it was given back, the lock is offered to nobody at most
   twice, so who uses it twice leaves it free for a plain client; but who lives and joins or looks meanwhile cannot know that
   the count is of the dead, and it begins anew. */
#ifndef N
#define N 3
#endif
#ifndef CYCLES
#define CYCLES 2
#endif
#ifndef FAULTS
#define FAULTS 1
#endif
#ifndef BUDGET
#define BUDGET 1
#endif

#if defined(CRASH) || defined(SOCKET) || defined(LOSE) || defined(FOREIGN) || defined(EVICT) || defined(REFUSE) || \
    defined(OLD) || defined(PLAIN) || defined(EXPIRE)
#ifndef LOOK
#define LOOK
#endif
#endif
#if defined(CRASH) || defined(SOCKET) || defined(LOSE) || defined(FOREIGN) || defined(EVICT) || defined(OLD) || defined(EXPIRE)
#define EXPIRE_LOST
#elif !defined(DIE)
#define EXACT
#endif

#ifdef PLAIN
#ifndef EXPIRE_LOST
#define EXPIRE_LOST
#endif
#ifdef DIE
#define PHANTOMS
#endif
#endif

#include "handoff_server.pml"

/* Somebody must be patient: who may give up is never seen to be stuck. */
#if N == 2 || defined(TRY) || defined(PLAIN)
#define gives_up(me) (me == 0)
#else
#define gives_up(me) (me < 2)
#endif

/* What an owner does with its lock. */
#ifdef LOCAL
#define passes_on(me) (me == 0 && local_waiter && passes < BUDGET)
#else
#define passes_on(me) false
#endif
#ifdef PLAIN
#define plain(me) (me == N - 1)
#else
#define plain(me) false
#endif
#ifdef REFUSE
#define frees(me) (post[me] == NONE)
#else
#define frees(me) plain(me)
#endif
#define hands_on(me) (post[me] == NONE && !passes_on(me) && !plain(me))

proctype client(byte me) {
    byte cycles;
    mtype place = join;
    bool won, old;

next:
    if
    :: cycles == CYCLES -> goto gone
    :: else -> cycles++
    fi;

#ifdef LOCAL
    if
    :: me == 0 ->
        if
        :: atomic { !local_busy -> local_busy = true }
        :: atomic { local_busy -> local_waiter = true };
            if
            :: atomic { local_turn == PASSED -> local_turn = 0; owner(me) }
                goto critical
            :: atomic { local_turn == HEAD -> local_turn = 0 }
#ifdef STOP
            :: atomic { gives_up(me) && local_waiter -> local_waiter = false }
                goto next
#endif
            fi
        fi
    :: else
    fi;
#endif

#if defined(TRY) || defined(PLAIN)
    if
    :: me == N - 1 ->
        do
        /* A try that changes nothing is left out: it would hide that others are stuck. */
#ifdef PLAIN
        :: atomic { K == NONE -> d_step { fresh(K, me + 1); held[me] = K; owner(me) } }
            break
#else
        :: atomic { post[me] == NONE && (K == NONE || B != NONE) ->
            d_step {
                fresh(own[me], me + 1);
                enter(own[me], try, false, won);
                if
                :: won -> held[me] = own[me]; owner(me)
                :: else
                fi;
                own[me] = NONE;
                check()
            } }
            if
            :: atomic { won -> won = false }
                break
            :: else
            fi
#endif
        od;
        goto critical
    :: else
    fi;
#endif

    atomic {
        post[me] == NONE ->
        d_step { fresh(own[me], me + 1) };
        place = join;
        if
        :: K == NONE -> /* SET NX */
            d_step { K = own[me]; held[me] = own[me]; own[me] = NONE; owner(me) }
            goto critical
        :: true
        fi
    };

request:
    if
    :: atomic {
        post[me] == NONE ->
#ifdef OLD
        if
        :: B != NONE -> old = true
        :: true
        fi;
#endif
        d_step {
            if
            :: place == adopt -> enter(held[me], place, old, won)
            :: else -> enter(own[me], place, old, won)
            fi;
            old = false;
            if
            :: won ->
                if
                :: place != adopt -> held[me] = own[me]
                :: else
                fi;
                own[me] = NONE;
                waiting[me] = false;
                seen[me] = NONE;
                owner(me)
            :: !won && (place == join || place == stay) -> waiting[me] = true; seen[me] = B
            :: !won && place == quit -> own[me] = NONE; waiting[me] = false; seen[me] = NONE
            :: !won && place == adopt -> held[me] = NONE
            fi;
            check()
        } }
#ifdef LOSE
    :: atomic {
        post[me] == NONE && faults < FAULTS ->
        faults++;
        if
        :: true /* it did not arrive */
        :: true -> /* its answer did not */
            d_step {
                if
                :: place == adopt -> enter(held[me], place, old, won)
                :: else -> enter(own[me], place, old, won)
                fi;
                won = false
            }
        :: lost_place == 0 -> /* it will */
            lost_place = place;
            if
            :: place == adopt -> lost_token = held[me]
            :: else -> lost_token = own[me]
            fi
        fi;
        if
        :: place == join -> place = stay
        :: else
        fi }
        goto request
#endif
    fi;
    if
    :: atomic { won -> won = false; place = join }
        goto critical
    :: atomic { !won && place == quit -> place = join }
        goto unlocked
    :: atomic { !won && place == adopt -> place = join }
        goto request
    :: atomic { !won && place != quit && place != adopt -> place = join }
    fi;

    if /* in line, not yet blocked */
    :: atomic { post[me] == NONE -> d_step { blpop(me) } }
#ifdef STOP
    :: gives_up(me) -> goto leaving
#endif
#ifdef DEADLINE
    :: atomic { gives_up(me) -> place = quit }
        goto request
#endif
#ifdef DIE
    :: atomic { faults < FAULTS -> faults++; d_step { own[me] = NONE; waiting[me] = false; seen[me] = NONE } }
        goto gone
#endif
    fi;

    if /* blocked, or served */
    :: atomic {
        served[me] != NONE ->
        d_step {
            assert(served[me] != seen[me]);
            held[me] = served[me];
            served[me] = NONE;
            waiting[me] = false;
            seen[me] = NONE
        }
        if
#ifdef M_NO_ADOPT
        :: d_step { true -> own[me] = NONE; owner(me) }
            goto critical
#else
        :: d_step { !is(late, held[me]) -> own[me] = NONE; owner(me) }
            goto critical
        :: is(late, held[me])
#endif
#ifdef ADOPT_ANY
        :: true
#endif
        fi;
        place = adopt }
        goto request
#ifdef STOP
    :: atomic { gives_up(me) && blocked(me) -> d_step { unblock(me) } }
        goto leaving
#endif
#ifdef M_GRANT_UNREAD
    :: atomic { served[me] != NONE -> served[me] = NONE }
        goto leaving
#endif
#ifdef DEADLINE
    :: atomic { gives_up(me) && blocked(me) -> d_step { unblock(me) }; place = quit }
        goto request
#endif
#ifdef DIE
    :: atomic {
        blocked(me) && faults < FAULTS ->
        faults++;
        d_step { unblock(me); own[me] = NONE; waiting[me] = false; seen[me] = NONE } }
        goto gone
#endif
#ifdef SOCKET
    :: atomic {
        faults < FAULTS ->
        faults++;
        if
        :: served[me] != NONE -> unmark(served[me]); served[me] = NONE
        :: blocked(me) -> d_step { unblock(me) }
        :: blocked(me) -> d_step { abandon(me) }
        fi;
        place = stay }
        goto request
#endif
#ifdef CRASH
    :: atomic {
        faults < FAULTS ->
        faults++;
        if
        :: served[me] != NONE -> unmark(served[me]); served[me] = NONE
        :: blocked(me) -> d_step { abandon(me) }
        fi;
        d_step { own[me] = NONE; waiting[me] = false; seen[me] = NONE } }
        goto gone
#endif
    fi;

critical:
    if
#ifdef LOCAL
    :: atomic {
        passes_on(me) ->
        passes++;
        cs[me] = NONE;
#ifdef M_PASS_RELEASED
        d_step { release(held[me]) }
#endif
        local_waiter = false;
        local_turn = PASSED }
        goto next
#endif
    :: atomic {
        hands_on(me) ->
        if
        :: d_step { true -> cs[me] = NONE; release(held[me]); held[me] = NONE; check() }
#ifdef POST
        :: d_step { true -> cs[me] = NONE; post[me] = held[me]; held[me] = NONE }
#endif
#ifdef EXPIRE
        :: d_step { again[me] == NONE -> cs[me] = NONE; again[me] = held[me]; held[me] = NONE }
#endif
        fi }
#if defined(REFUSE) || defined(PLAIN)
    :: atomic {
        frees(me) ->
        d_step {
            if
            :: K == held[me] -> K = NONE
            :: else
            fi;
            cs[me] = NONE;
            held[me] = NONE
        } }
#endif
#ifdef CRASH
    :: atomic { faults < FAULTS -> faults++; d_step { cs[me] = NONE; held[me] = NONE } }
        goto gone
#endif
    fi;
    goto unlocked;

leaving:
    atomic { post[me] == NONE -> d_step { leave(); own[me] = NONE; waiting[me] = false; seen[me] = NONE; check() } };

unlocked:
#ifdef LOCAL
    atomic {
        if
        :: me == 0 && local_waiter -> local_waiter = false; local_turn = HEAD
        :: me == 0 && !local_waiter -> local_busy = false
        :: else
        fi;
        if
        :: me == 0 -> passes = 0
        :: else
        fi
    };
#endif
    goto next;

gone:
    finished++
}

init {
    byte i;
    atomic {
        /* Some are left out, at first: who is stuck must not be freed by a fault to come. */
        do
        :: faults < FAULTS -> faults++
        :: break
        od;
        do
        :: i < N -> run client(i); run beside(i); i++
        :: else -> break
        od;
#ifdef LOCAL
        run client(0);
        i++;
#endif
    }
    finished == i;
#ifdef EXACT
    atomic { count(post, NONE) == N -> assert(dropped || (K == NONE && B == NONE && W == 0)) }
#endif
}
