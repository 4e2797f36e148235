/* What the server keeps, what its scripts do, as in wire/handoff_scripts.hpp, and what goes on beside the clients of
   handoff.pml: releases on their way, timers, leases, strangers.

   A mutant, -DM_..., breaks one thing; tests/model/run.sh says which variant must find it. */
#define NONE 0
#define TOKENS 15
mtype = { try, join, stay, quit, adopt };
mtype = { GONE, SURE, YOUNG, AGED }; /* the key of W: not there, for a lease, given back, half of that time is over */

#if N == 2
#define any(a, x) (a[0] == (x) || a[1] == (x))
#define count(a, x) ((a[0] == (x)) + (a[1] == (x)))
#define any_client(p, x) (p(0, x) || p(1, x))
#else
#define any(a, x) (a[0] == (x) || a[1] == (x) || a[2] == (x))
#define count(a, x) ((a[0] == (x)) + (a[1] == (x)) + (a[2] == (x)))
#define any_client(p, x) (p(0, x) || p(1, x) || p(2, x))
#endif

/* The server. */
byte K, B, W;
mtype life = GONE; /* what was given back may be nobody's: it lasts two seconds, unless somebody looks or joins */
bool timeless;     /* B was made for a count that is AGED or GONE: it is not given back */
#define PLACES (N + FAULTS)
byte q[PLACES]; /* i + 1: client i; N + 1: a socket nobody reads any more */
byte q_size;

/* The clients, one a process. */
byte own[N];     /* what it asks under */
byte held[N];    /* what it was given */
byte served[N];  /* the answer of its BLPOP, not yet read */
byte cs[N];      /* what it is in the critical section with */
bool waiting[N]; /* in line as far as it knows: its timer looks */
bool reviving[N];
byte post[N];    /* a release on the way */
byte again[N];   /* a release that is repeated or late: in no order with anything */
byte seen[N];    /* ghost: what was in B when it got in line */
byte faults, finished;
mtype lost_place; /* a request that comes late */
byte lost_token;
short robbed, late; /* ghosts, sets of tokens: deleted by somebody else; the lease has ended */
bool dropped;  /* ghost: a count was not given back, or ended: somebody in line is not counted */
byte phantoms; /* ghost: how often nobody was handed the lock since W became AGED */
/* Process 0's threads. */
bool local_busy, local_waiter;
byte local_turn, passes;
#define PASSED 1
#define HEAD 2
/* Scratch of d_steps. */
byte f, g;
bool open;

#define is(set, t) ((set >> (t)) & 1)
#define known(t) (K == (t) || B == (t) || any(own, t) || any(held, t) || any(served, t) || any(cs, t) || any(post, t) || \
    any(again, t) || any(seen, t) || lost_token == (t))
/* An offer to nobody: only who cannot take it over needs its end. */
#ifdef PLAIN
#define offered(t) (B == (t) && any(waiting, true))
#else
#define offered(t) (B == (t))
#endif
#define lost(t) (!offered(t) && !any(held, t) && !any(served, t) && !any(cs, t) && !any(post, t) && !any(again, t))
#define blocked(i) any_place((i) + 1)
#if N + FAULTS == 3
#define any_place(x) (q[0] == (x) || q[1] == (x) || q[2] == (x))
#elif N + FAULTS == 4
#define any_place(x) (q[0] == (x) || q[1] == (x) || q[2] == (x) || q[3] == (x))
#else
#define any_place(x) (q[0] == (x) || q[1] == (x) || q[2] == (x) || q[3] == (x) || q[4] == (x))
#endif

/* A process keeps to its own name where it can: fewer states. */
inline fresh(t, first) {
    t = NONE;
    f = first;
    if
    :: known(f) -> f = N + 1
    :: else
    fi;
    do
    :: f < TOKENS && known(f) -> f++
    :: else -> break
    od;
    assert(f < TOKENS);
    t = f;
    f = 0
}
inline unmark(t) { robbed = robbed & ~(1 << t); late = late & ~(1 << t) }

inline remove_place(p) {
    f = p;
    do
    :: f + 1 < q_size -> q[f] = q[f + 1]; f++
    :: else -> break
    od;
    q_size--;
    q[q_size] = 0;
    f = 0
}
inline find_place(i) {
    g = 0;
    do
    :: q[g] != (i) + 1 -> g++
    :: else -> break
    od
}
inline drop_offer() { B = NONE; timeless = false }
inline uncount() {
    if
    :: W > 1 -> W--
    :: else -> W = 0; life = GONE
    fi
}
/* Who is handed the lock may not be there: what was given back keeps its age. */
inline uncount_next() {
    if
    :: W == 1 && life == SURE -> W = 0; life = GONE
    :: W == 0 -> life = GONE
    :: else -> W--
    fi
}
inline drop() {
#ifdef EXACT
    dropped = true
#else
    skip
#endif
}
inline lengthen() {
    if
    :: life != GONE -> life = SURE
    :: else
    fi;
    phantoms = 0
}

inline unblock(i) { find_place(i); remove_place(g); g = 0 }
inline abandon(i) { find_place(i); q[g] = N + 1; g = 0 }

inline blpop(i) {
    if
    :: B != NONE -> served[i] = B; drop_offer()
    :: else -> q[q_size] = (i) + 1; q_size++
    fi
}

inline hand_on() {
    unmark(B);
#ifdef M_SAME_TOKEN
    if
    :: K == NONE -> fresh(K, N + 1)
    :: else
    fi;
#else
    fresh(K, N + 1);
#endif
#ifdef PHANTOMS
    if
    :: !any(waiting, true) && life == AGED -> phantoms++; assert(phantoms <= 2)
    :: else
    fi;
#endif
#ifndef M_TIMED
    timeless = life == GONE || life == AGED;
#endif
#ifndef M_OFFER_COUNTED
    uncount_next();
#endif
    B = K;
    if
    :: q_size > 0 ->
        g = q[0];
        remove_place(0);
        if
        :: g <= N -> served[g - 1] = B
        :: else
        fi;
        g = 0;
        drop_offer()
    :: else
    fi
}

inline release(t) {
    if
#ifdef M_NO_COMPARE
    :: K != NONE ->
#else
    :: K == t ->
#endif
        if
#ifdef M_ONLY_FREE
        :: true -> K = NONE
#else
        :: W == 0 -> K = NONE
        :: else -> hand_on()
#endif
        fi
    :: else
    fi;
    unmark(t)
}

inline enter(t, place, old, won) {
#ifdef M_TAKES_STALE
    open = K != NONE && B != NONE;
#else
    open = K != NONE && B == K;
#endif
    if
    :: K != NONE && K != t && !open ->
        if
        :: place == join -> W++; life = SURE; lengthen()
        :: place == stay -> lengthen()
#ifndef M_QUIT_COUNTED
        :: place == quit && life != GONE -> uncount()
#endif
        :: else
        fi;
#ifndef M_KEEP_STALE
        unmark(B);
        drop_offer();
#endif
        if
        :: place == adopt -> unmark(t)
        :: else
        fi;
        won = false
    :: else ->
        if
#ifndef M_NO_GIVE_BACK
        :: K != t && open && place != stay && place != quit ->
            if
            :: timeless -> drop()
            :: !timeless && old -> W = 0; life = GONE
            :: else ->
                W++;
                if
#ifdef LOOK
                :: life == GONE -> life = YOUNG
#else
                :: life == GONE -> life = SURE
#endif
                :: else
                fi
            fi
#endif
#ifdef M_GIVE_BACK_IN_LINE
        :: K != t && open && (place == stay || place == quit) -> W++; life = SURE
#endif
#ifndef M_TAKEN_COUNTED
        :: K != t && !open && (place == stay || place == quit) && life != GONE -> uncount()
#endif
        :: else
        fi;
        unmark(B);
        unmark(t);
        K = t;
        drop_offer();
        won = true
    fi;
    open = false
}

inline leave() {
    if
#ifdef M_LEAVE_FIRST
    :: true ->
        uncount();
        if
        :: W == 0 && B != NONE && B == K -> K = NONE; drop_offer()
        :: else
        fi
#else
    :: W > 0 -> uncount()
#ifdef M_LEAVE_FREES_ANY
    :: W == 0 && B != NONE -> K = NONE; drop_offer()
#else
    :: W == 0 && B != NONE && B == K -> K = NONE; drop_offer()
#endif
    :: else
#endif
    fi
}

inline check() {
#ifdef EXACT
    assert(dropped || W + (B != NONE) + N - count(served, NONE) == count(waiting, true))
#else
    skip
#endif
}

#define rival(i, me) (i != me && cs[i] != NONE && !is(robbed, cs[i]))
inline owner(me) {
    assert(cs[me] == NONE);
    cs[me] = held[me];
    assert(is(robbed, cs[me]) || !any_client(rival, me))
}

/* What of a client goes on by itself: its releases on the way, and its timer. */
proctype beside(byte me) {
end:
    do
#ifdef POST
    :: d_step { post[me] != NONE -> release(post[me]); post[me] = NONE; check() }
#endif
#if defined(EXPIRE) || (defined(POST) && defined(LOSE))
    :: d_step { again[me] != NONE -> release(again[me]); again[me] = NONE; check() }
#endif
#if defined(POST) && defined(LOSE)
    :: atomic {
        post[me] != NONE && again[me] == NONE && faults < FAULTS ->
        faults++;
        again[me] = post[me];
        post[me] = NONE;
        if
        :: true
        :: d_step { true -> release(again[me]) }
        fi }
#endif
#if defined(LOOK) && !defined(M_NO_LOOK)
    :: d_step {
        waiting[me] && K == NONE && !reviving[me] ->
        if
        :: W > 0 -> lengthen(); hand_on()
        :: else -> reviving[me] = true
        fi }
    :: d_step { waiting[me] && K != NONE && W > 0 && (life != SURE || phantoms > 0) -> lengthen() }
#ifndef M_NO_REVIVE
    :: d_step {
        reviving[me] ->
        reviving[me] = false;
        lengthen();
        if
        :: K == NONE -> hand_on()
        :: else
        fi }
#endif
#endif
    :: false
    od
}

/* Leases, the requests that come late, and strangers. */
active proctype elsewhere() {
    bool won;
end:
    do
#ifdef EXPIRE
    :: atomic {
        K != NONE && !any(cs, K) ->
        if
        :: any(held, K) || any(served, K) -> late = late | (1 << K)
        :: B == K -> late = late | (1 << K) /* B a little later */
        :: B == K -> drop_offer()
        :: else
        fi;
        K = NONE }
#endif
#ifdef EXPIRE_LOST
    :: d_step {
        K != NONE && lost(K) ->
        if
        :: B == K -> drop_offer()
        :: else
        fi;
        K = NONE }
#endif
#ifdef LOOK
    :: d_step { life == YOUNG -> life = AGED; phantoms = 0 }
    :: d_step { life == AGED -> W = 0; life = GONE; drop() }
#endif
#ifdef LOSE
    :: d_step {
        lost_place != 0 ->
        enter(lost_token, lost_place, false, won);
        won = false;
        lost_place = 0;
        lost_token = NONE }
#endif
#ifdef FOREIGN
    :: d_step {
        K != NONE && faults < FAULTS ->
        faults++;
        robbed = robbed | (1 << K);
        K = NONE }
#endif
#ifdef EVICT
    :: atomic {
        W + B > 0 && faults < FAULTS ->
        faults++;
        if
        :: W > 0 -> W = 0; life = GONE
        :: B != NONE -> drop_offer()
        fi }
#endif
    :: false
    od
}
