/* Readers and writers, for spin to search: the scripts of the shared lock in include/distlock/wire/, and what a process does around
   them. With -DPERMITS=n: a semaphore, of which one client asks for two permits each time.

   Every d_step is one command of the server, or one thing that a process does at once. Anything may happen between two of
   them. H is the set of those that have the lock, each with an end of its own: the writer's key, the readers' set, or the permits. Q is
   the queue: tickets of writers ('x') and readers. A writer may be granted while H is empty, a reader while no writer is in H, permits
   while there are enough.

   The server:
     PASS                removes the first tickets that nobody hears; while what is first may be granted: it is in H, and told.
     ENTER(token, mode)  In H: granted. Else PASS, where the asker's own ticket is granted in the answer. Nobody is queued and it
                         may be granted: in H, granted. Else busy: 'join' adds a ticket unless there is one; 'last' removes it, and
                         PASS.
     LEAVE(token)        The token's ticket and place are removed. PASS in any case.
   What is lost on its way, late or repeated is in queue.pml: here requests are answered at once; LEAVEs and messages take their
   time. A client chooses x or s for each attempt.

   What may happen, each a -D: STOP, DEADLINE (who waits gives up); and as often as FAULTS says: CRASH (its socket is closed, or only
   looks alive: not with CLOSED), SOCKET (a subscription breaks), SLOW (a grant ends while its owner does not know of it).
     LONG      client 0 reads for as long as readers wait and no living writer does
     NO_TIMER  nobody rechecks: what is not told is not found
   What must hold: those that have it go together; nobody waits for ever; who is granted was first in the queue, but for those that
   lost a socket or a grant (FIFO); at the end nothing is left.
   M_...: a mistake on purpose. run.sh says which variant must find it. */
#ifndef N
#define N 3 /* clients: 3, or 4 without SOCKET */
#endif
#ifndef CYCLES
#define CYCLES 2 /* attempts of client 0 */
#endif
#ifndef OTHERS
#define OTHERS 1
#endif
#ifndef FAULTS
#define FAULTS 1
#endif
#define NONE 0
#define SPARE 2
#define TOKENS (N * SPARE)
#define PLACES 8
mtype = { join, last };
mtype = { waits, owns };
mtype = { up, down, gone, ghost };

byte Q[PLACES];
byte size;
short H;      /* tokens */
short x;      /* tokens that ask for x */
mtype sub[N] = up;
short leaves, news, stale;
byte cur[N];
mtype state[N];
bool must[N];
byte faults, finished;
byte f, g, h;
bool r;
short out; /* ghost: nothing of it is on the server */
#ifdef FIFO
byte order[PLACES]; /* who is in line and lost nothing */
byte order_size;
short excused;
#define in_order(t) (order[0] == (t) || order[1] == (t) || order[2] == (t) || order[3] == (t) || order[4] == (t) || order[5] == (t) || order[6] == (t) || order[7] == (t))
#endif

#if N == 3
#define any_client(p, y) (p(0, y) || p(1, y) || p(2, y))
#else
#define any_client(p, y) (p(0, y) || p(1, y) || p(2, y) || p(3, y))
#endif
#define queued(t) (Q[0] == (t) || Q[1] == (t) || Q[2] == (t) || Q[3] == (t) || Q[4] == (t) || Q[5] == (t) || Q[6] == (t) || Q[7] == (t))
#define is(set, t) (((set) >> (t)) & 1)
#define put(set, t) set = set | (1 << (t))
#define take(set, t) set = set & ~(1 << (t))
#define client_of(t) (((t) - 1) / SPARE)
#define socket_of(t) sub[client_of(t)]
#define counted(t) (socket_of(t) == up || socket_of(t) == ghost)
#define mine(c, t) (cur[c] == (t))
#define believes(c, t) (cur[c] == (t) && state[c] == owns)
#define awaits(c, t) (cur[c] == (t) && state[c] == waits)
#define under_way(t) is(leaves | news | stale, t)
#define known(t) (is(H, t) || queued(t) || under_way(t) || any_client(mine, t))
#define lost(t) (is(H, t) && !any_client(mine, t) && !under_way(t))
#define holders (is(H, 1) + is(H, 2) + is(H, 3) + is(H, 4) + is(H, 5) + is(H, 6) + is(H, 7) + is(H, 8))

#ifdef PERMITS
/* Client 0 asks for two permits each time, the others for one. */
#define weight(t) (client_of(t) == 0 -> 2 : 1)
#define out_of(t) (is(H, t) * weight(t))
#define taken (out_of(1) + out_of(2) + out_of(3) + out_of(4) + out_of(5) + out_of(6) + out_of(7) + out_of(8))
#define may_be_granted(t) (taken + weight(t) <= PERMITS)
#ifdef M_SMALL_FIRST
#define stands_behind(t) (size > 0 && weight(t) > 1)
#else
#define stands_behind(t) (size > 0)
#endif
#else
#define stands_behind(t) (size > 0)
#define may_be_granted(t) (is(x, t) -> H == 0 : (H & x) == 0)
#endif
#if N == 3
#define gives_up(c) ((c) < 2)
#else
#define gives_up(c) ((c) < 3)
#endif

inline fresh(c) {
    f = (c) * SPARE + 1;
    if
    :: known(f) -> f++
    :: else
    fi;
    assert(!known(f)); /* else SPARE is too small */
    cur[c] = f;
    take(x, f);
    take(out, f);
#ifdef FIFO
    take(excused, f);
#endif
    f = 0
}
inline settle(t) {
    if
    :: t != NONE && !is(H, t) && !queued(t) && !any_client(mine, t) -> take(leaves, t); take(news, t); take(stale, t); take(x, t)
    :: else
    fi
}
inline cut(i) {
    g = i;
    do
    :: g + 1 < size -> Q[g] = Q[g + 1]; g++
    :: else -> break
    od;
    size--;
    Q[size] = NONE;
    g = 0
}
inline remove(t) {
    h = 0;
    do
    :: h < size && Q[h] != t -> h++
    :: else -> break
    od;
    if
    :: h < size -> cut(h)
    :: else
    fi;
    h = 0
}
inline excuse(t) {
#ifdef FIFO
    g = 0;
    do
    :: g < order_size && order[g] != t -> g++
    :: else -> break
    od;
    if
    :: g < order_size ->
        do
        :: g + 1 < order_size -> order[g] = order[g + 1]; g++
        :: else -> break
        od;
        order_size--;
        order[order_size] = NONE
    :: else
    fi;
    g = 0;
    put(excused, t)
#else
    skip
#endif
}
inline give(t) {
    assert(!is(out, t));
    put(H, t);
#ifdef FIFO
    assert(order_size == 0 || order[0] == t || is(excused, t));
    excuse(t);
    take(excused, t)
#endif
}
inline end_grant(t) {
    if
    :: is(news, t) -> take(news, t); put(stale, t)
    :: else
    fi;
    take(H, t);
    settle(t)
}
#ifdef M_PASS_BLIND
#define passes(t) true
#else
#define passes(t) may_be_granted(t)
#endif

/* me: who asks, or NONE */
inline pass(me) {
    do
#ifndef M_DEAD_FIRST
    :: size > 0 && Q[0] != me && !counted(Q[0]) -> f = Q[0]; cut(0); settle(f)
#endif
#ifdef M_ONE_READER
    :: size > 0 && Q[0] == me && passes(Q[0]) -> f = Q[0]; cut(0); give(f); break
    :: size > 0 && Q[0] != me && counted(Q[0]) && passes(Q[0]) -> f = Q[0]; cut(0); give(f);
        if
        :: socket_of(f) == up -> put(news, f)
        :: else
        fi;
        break
#else
    :: size > 0 && Q[0] == me && passes(Q[0]) -> f = Q[0]; cut(0); give(f)
    :: size > 0 && Q[0] != me && counted(Q[0]) && passes(Q[0]) -> f = Q[0]; cut(0); give(f);
        if
        :: socket_of(f) == up -> put(news, f)
        :: else
        fi
#endif
#ifdef M_DEAD_FIRST
    :: size > 0 && Q[0] != me && !counted(Q[0]) && passes(Q[0]) -> f = Q[0]; cut(0); settle(f)
#endif
    :: else -> break
    od;
    f = 0
}

inline enter(t, kind) {
    take(out, t);
    if
    :: is(H, t)
    :: else -> pass(t)
    fi;
    r = is(H, t);
    if
#ifdef M_READERS_BARGE
    :: !r && !queued(t) && may_be_granted(t) && (size == 0 || !is(x, t)) -> give(t); r = true
#else
    :: !r && !queued(t) && may_be_granted(t) && !stands_behind(t) -> give(t); r = true
#endif
    :: else
    fi;
    if
    :: !r && kind == join && !queued(t) ->
        Q[size] = t;
        size++;
#ifdef FIFO
        if
        :: in_order(t)
        :: !in_order(t) && !counted(t) -> put(excused, t)
        :: else -> order[order_size] = t; order_size++; take(excused, t)
        fi
#endif
    :: !r && kind == last ->
        remove(t);
        excuse(t);
        put(out, t);
#ifndef M_ONLY_HOLDERS_PASS
        pass(NONE)
#endif
    :: else
    fi
}

inline leave(t) {
    remove(t);
    excuse(t);
    put(out, t);
    if
    :: is(H, t) -> end_grant(t);
#ifdef M_ONLY_HOLDERS_PASS
        pass(NONE)
    :: else
#else
    :: else
#endif
    fi;
#ifndef M_ONLY_HOLDERS_PASS
    pass(NONE)
#endif
}

#ifdef PERMITS
#if N == 3
#define owned (2 * (state[0] == owns) + (state[1] == owns) + (state[2] == owns))
#else
#define owned (2 * (state[0] == owns) + (state[1] == owns) + (state[2] == owns) + (state[3] == owns))
#endif
#define together (owned <= PERMITS)
#else
#define owner_of_x(c, y) (state[c] == owns && is(x, cur[c]))
#define owner_but(c, d) (c != d && state[c] == owns)
#define together(d) (is(x, cur[d]) -> !any_client(owner_but, d) : !any_client(owner_of_x, d))
#endif
inline own(c) {
    state[c] = owns;
    must[c] = false;
    take(news, cur[c]);
    take(stale, cur[c]);
#ifdef PERMITS
    assert(together)
#else
    assert(together(c))
#endif
}
inline let_go(c) { g = cur[c]; state[c] = NONE; cur[c] = NONE; must[c] = false; settle(g); g = 0 }
inline break_socket(p) {
    f = p * SPARE + 1;
    do
    :: f <= (p + 1) * SPARE ->
        take(news, f);
        take(stale, f);
        excuse(f);
        f++
    :: else -> break
    od;
    f = 0;
    sub[p] = down
}

#define waits_for_x(c, y) (state[c] == waits && is(x, cur[c]))
#define waits_for_s(c, y) (state[c] == waits && !is(x, cur[c]))
#ifdef NO_TIMER
#define time_to_recheck(c) false
#elif defined(M_DEAD_FIRST)
#define time_to_recheck(c) (is(H, cur[c]) || !queued(cur[c]) || (size > 0 && may_be_granted(Q[0])))
#else
#define time_to_recheck(c) (is(H, cur[c]) || !queued(cur[c]) || (size > 0 && (may_be_granted(Q[0]) || !counted(Q[0]))))
#endif

proctype client(byte c) {
    byte cycles;
next:
    if
    :: cycles == (c == 0 -> CYCLES : OTHERS) -> goto left
    :: else -> cycles++
    fi;
    atomic {
        d_step { fresh(c) };
#ifdef PERMITS
        skip;
#else
#ifdef LONG
        if
        :: c > 0 -> put(x, cur[c])
        :: true
        fi;
#else
        if
        :: put(x, cur[c])
        :: true
        fi;
#endif
#endif
        d_step {
            state[c] = waits;
            enter(cur[c], join);
            if
            :: r -> own(c)
            :: else
            fi;
            r = false
        }
    };
    do
    :: atomic { state[c] == owns -> break }
    :: d_step { state[c] == waits && (must[c] || time_to_recheck(c)) ->
        must[c] = false;
        enter(cur[c], join);
        if
        :: r -> own(c)
        :: else
        fi;
        r = false }
#ifdef DEADLINE
    :: atomic { gives_up(c) && state[c] == waits ->
        d_step {
            enter(cur[c], last);
            if
            :: r -> own(c)
            :: else -> let_go(c)
            fi;
            r = false
        };
        if
        :: state[c] == owns -> break
        :: else -> goto next
        fi }
#endif
#ifdef STOP
    :: atomic { gives_up(c) && state[c] == waits -> d_step { put(leaves, cur[c]); let_go(c) }; goto next }
#endif
#ifdef CRASH
    :: atomic { faults < FAULTS -> faults++; goto dies }
#endif
    od;
#ifdef LONG
    c > 0 || any_client(waits_for_x, 0) || !any_client(waits_for_s, 0);
#endif
    if
    :: d_step { true -> put(leaves, cur[c]); let_go(c) }
        goto next
#ifdef CRASH
    :: atomic { faults < FAULTS -> faults++; goto dies }
#endif
    fi;
#ifdef CRASH
dies:
    atomic {
        d_step { break_socket(c); let_go(c) };
        if
        :: sub[c] = gone
#ifndef CLOSED
        :: sub[c] = ghost
#endif
        fi
    };
#endif
left:
    finished++
}

#define to_waiter (cur[c] == t && state[c] == waits)
proctype token(byte t) {
    byte c = (t - 1) / SPARE;
end:
    do
    :: d_step { is(leaves, t) -> take(leaves, t); leave(t); settle(t) }
    :: d_step { is(news, t) && to_waiter -> own(c) }
    :: d_step { is(news, t) && to_waiter -> take(news, t); must[c] = true } /* it waited for too long */
    :: d_step { is(stale, t) && to_waiter -> take(stale, t); must[c] = true }
    :: d_step { is(news | stale, t) && !to_waiter ->
        take(news, t);
        take(stale, t);
        put(leaves, t);
        settle(t) }
    :: d_step { lost(t) -> end_grant(t) }
#ifdef SLOW
    :: d_step { is(H, t) && !any_client(believes, t) && faults < FAULTS -> faults++; end_grant(t) }
#endif
    od
}

active proctype elsewhere() {
end:
    do
#ifdef SOCKET
#define BREAKS(p) :: d_step { sub[p] == up && faults < FAULTS -> faults++; break_socket(p) }
    BREAKS(0)
    BREAKS(1)
    BREAKS(2)
#endif
#define SUBSCRIBES(p) \
    :: d_step { sub[p] == down -> \
        sub[p] = up; \
        if \
        :: state[p] == waits -> must[p] = true \
        :: else \
        fi }
    SUBSCRIBES(0)
    SUBSCRIBES(1)
    SUBSCRIBES(2)
    :: false
    od
}

init {
    byte i;
    atomic {
        do
        :: faults < FAULTS -> faults++
        :: break
        od;
        i = 0;
        do
        :: i < N -> run client(i); i++
        :: else -> break
        od;
        i = 1;
        do
        :: i <= TOKENS -> run token(i); i++
        :: else -> break
        od;
        i = 0
    }
    finished == N;
    timeout ->
    assert(H == 0);
#if !defined(CRASH) && !defined(SOCKET) && !defined(SLOW)
    assert(size == 0)
#endif
}
