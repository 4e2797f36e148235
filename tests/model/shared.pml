/* The queue of queue.pml where several may have the lock: readers and writers, or with PERMITS=n a semaphore of n.

   Every d_step is one command of the server, or one thing that a process does at once. K is the lock: a writer's token, or the
   readers' mark. H is the set of readers, or of those who have permits; each has an end of its own, and K lasts as long as the
   last of them. H means something only while K is the mark. Q is the queue. A ticket is for reading or for writing; a ticket for
   permits is for one, or for two. Each client chooses for each attempt.

   What may be granted: a writer while nobody has the lock, a reader while no writer has it, permits while so many are left.
   The server:
     ENTER(token, mode)  It has the lock: granted, and its ticket is removed. Else PASS, where the asker's own ticket is granted in
                         the answer. Q is empty, and it may be granted: granted. Else busy. 'join' adds a ticket unless there is
                         one, 'last' removes it, and PASSes; 'try_once' does neither.
     LEAVE(token)        Its ticket is removed, and what it has. PASS in any case.
     PASS                The first ticket is dropped if its channel has no subscriber; by ENTER also if it cannot be granted
                         yet, and its client does not say that it is there. If it may be granted, it is, and is told by
                         PUBLISH; and so on with the next.
     RENEW(token)        It has the lock: its end moves on. Nothing else changes.
     EXCHANGE(new, old)  'new' has the lock: granted. 'old' is the writer: 'new' reads instead, and PASS. 'old' is the only
                         reader: 'new' is the writer instead. Else busy.
   The client is that of queue.pml. After EXCHANGE was granted, it sends LEAVE of the old token. A reader that
   stays one knows that no EXCHANGE of its token is on its way; else the client leaves with both tokens, and repeats LEAVE of the
   new one once the EXCHANGE must have come.

   What may happen, each a -D:
     STOP     a waiter is cancelled at any time                DEADLINE  a waiter's time is up
     TRY      the first command is ENTER(try_once)             SETNX     the first command of a writer is SET NX PX
     RENEW    owners renew, and a renewal may come late        TWICE     a LEAVE is done twice
     CHANGE   writers become readers, and readers try to become the writer
     LONG     client 0 reads, or has permits, for as long as somebody waits who could join it, and nobody who could not
     ALONE    client 0 reads, and tries to become the writer until it does, while others read
     PLAIN    the last client uses SET NX, and compare-and-delete
     NO_TIMER waiters recheck only before they believe, and after their process subscribed on a new socket
   These share FAULTS faults:
     LOSE     a request or its answer is lost, or the request is done much later, perhaps after the LEAVE of its token
     SOCKET   a process loses its subscription and knows it    SILENT    a message is lost
     CRASH    a process dies; its socket is closed, or half-open (not if CLOSED)
     SLOW     an offer ends before the waiter claims it, or a lock before its LEAVE has come; a waiter that keeps out others
              does not say in time that it is there
     EXPIRE   an owner stalls until its own end is over, and knows it
     FOREIGN  somebody deletes K                               EVICT     Q is evicted

   What must hold:
     1 Owners go together, but for those that FOREIGN robbed. What has ended is never renewed.
     2 Nobody waits for ever: no invalid end state.
     3 At the end nobody has the lock, and Q is empty when there were no faults.
     4 A waiter that is granted the lock was first in the queue (FIFO), unless its socket or its offer was lost.
     5 No grant is left to its end that a living process was told of, or that has a whole lease. A token that left, or that 'last'
       answered 'busy', neither has the lock nor is queued, but for a request that came late.

   L_... are rules that one might think of first, M_... break one each. run.sh says which variant must find it.

   spin -DSTOP -a shared.pml && gcc -O2 -DSAFETY -DCOLLAPSE -o pan pan.c && ./pan -m1000000 */
#ifndef N
#define N 3 /* clients: 2, 3 or 4 */
#endif
#ifndef CYCLES
#define CYCLES 1 /* attempts of client 0 */
#endif
#ifndef OTHERS
#define OTHERS 1 /* attempts of each other client */
#endif
#ifndef FAULTS
#define FAULTS 1
#endif
#ifndef SPARE
#if defined(CHANGE) || defined(ALONE)
#define SPARE 3 /* tokens of a client that may be known somewhere at the same time */
#else
#define SPARE 2
#endif
#endif
#define NONE 0
#define TOKENS (N * SPARE)
#define PLAIN_TOKEN (TOKENS + 1)
#define MARK (TOKENS + 2)
#define ROOM 8

mtype = { try_once, join, last, setnx, exchange }; /* what is asked */
mtype = { granted, over, busy };                   /* what is answered; over: the grant has ended before the answer was read */
mtype = { waits, owns };
mtype = { up, down, closed, half_open }; /* the subscription of a process; the last two: it is dead */

#if N == 2
#define any_client(p, y) (p(0, y) || p(1, y))
#elif N == 3
#define any_client(p, y) (p(0, y) || p(1, y) || p(2, y))
#else
#define any_client(p, y) (p(0, y) || p(1, y) || p(2, y) || p(3, y))
#endif
#define contains(a, t) \
    (a[0] == (t) || a[1] == (t) || a[2] == (t) || a[3] == (t) || a[4] == (t) || a[5] == (t) || a[6] == (t) || a[7] == (t))
#define queued(t) contains(Q, t)

/* The server. */
byte K;
short H; /* tokens */
byte Q[ROOM];
byte size;
mtype sub[N] = up;

/* Of tokens. */
short x; /* for writing, or for two permits */
#ifdef LOSE
mtype req[TOKENS + 2];  /* a request */
mtype late[TOKENS + 2]; /* one whose connection is gone: no answer */
mtype ans[TOKENS + 2];
short in_doubt;         /* a SET NX or an EXCHANGE was not answered */
#define unclear(t) is(in_doubt, t)
#define waiting(t) (req[t] != NONE || late[t] != NONE)
#define answering(t) (ans[t] != NONE)
#define unanswered(c) (req[cur[c]] != NONE || ans[cur[c]] != NONE)
#else
#define waiting(t) false
#define answering(t) false
#define unanswered(c) false
#define unclear(t) false
#endif
short leaves, renewals;
short news, stale; /* messages: of a grant that is in force, of one that has ended */

/* The clients. */
byte cur[N]; /* the token */
#if defined(CHANGE) || defined(ALONE)
byte new[N]; /* the one that is to take its place */
byte old[TOKENS + 2];
#define next_of(c) new[c]
#else
#define next_of(c) NONE
#endif
mtype w[N];   /* what the client does with it */
mtype ask[N]; /* what it asked and has no answer to */
bool recheck_due[N];
byte faults, finished;

/* Ghosts, sets of tokens. */
short told;  /* the process knows of the grant */
short whole; /* it has the whole lease, not only the offer's TTL */
short robbed;
short ended; /* had the lock and has it no more */
short out;   /* have left, and nothing was asked since */
#ifdef FIFO
byte G[ROOM]; /* tokens that are queued and lost nothing */
byte G_size;
short excused;
#define in_G(t) contains(G, t)
#endif
#ifdef L_LAST_TTL
byte newest; /* the reader that K ends with */
#endif
/* Scratch of d_steps. */
byte f, g, h;
mtype r;

#define is(set, t) (((set) >> (t)) & 1)
#define put(set, t) set = set | (1 << (t))
#define take(set, t) set = set & ~(1 << (t))

#define client_of(t) ((t) == PLAIN_TOKEN -> N - 1 : ((t) - 1) / SPARE)
#define socket_of(t) sub[client_of(t)]
#define alive(t) (socket_of(t) == up || socket_of(t) == down)
#ifdef M_COUNT_IGNORED
#define counted(t) true
#else
#define counted(t) (socket_of(t) == up || socket_of(t) == half_open)
#endif

#define mine(c, t) (cur[c] == (t) || next_of(c) == (t))
#define believes(c, t) (mine(c, t) && w[c] == owns)
#define awaits(c, t) (cur[c] == (t) && w[c] == waits)
#define under_way(t) (waiting(t) || answering(t) || is(leaves | renewals | news | stale, t))
#define known(t) (K == (t) || is(H, t) || queued(t) || under_way(t) || any_client(mine, t))
#ifdef PERMITS
#define has(t) is(H, t)
#else
#define has(t) (K == (t) || (K == MARK && is(H, t)))
#endif
/* Nobody hands it over and nobody will claim it. */
#define lost(t) (!any_client(believes, t) && !under_way(t) && !any_client(awaits, t))

#ifdef PERMITS
#define weight(t) (1 + is(x, t))
#ifdef M_COUNT_HOLDERS
#define held(t) is(H, t)
#else
#define held(t) (is(H, t) + is(H & x, t))
#endif
#if TOKENS <= 6
#define used (held(1) + held(2) + held(3) + held(4) + held(5) + held(6))
#else
#define used (held(1) + held(2) + held(3) + held(4) + held(5) + held(6) + held(7) + held(8))
#endif
#ifdef M_COUNT_HOLDERS
#define may_be_granted(t) (used < PERMITS)
#else
#define may_be_granted(t) (used + weight(t) <= PERMITS)
#endif
#else
#define may_be_granted(t) (is(x, t) -> K == NONE : (K == NONE || K == MARK))
#endif

/* One client is patient: a client that can always give up is never seen to be stuck. */
#ifdef PLAIN
#define gives_up(c) ((c) == 0)
#define plain(c) ((c) == N - 1)
#else
#define gives_up(c) ((c) < N - 1)
#define plain(c) false
#endif
#ifdef TRY
#define FIRST try_once
#else
#define FIRST join
#endif
/* It cannot be served yet, and keeps out those behind it: it is asked whether it is there. */
#ifdef PERMITS
#define in_the_way(t) (used < PERMITS && !may_be_granted(t))
#else
#define in_the_way(t) (K == MARK && is(x, t))
#endif
#ifdef L_NEVER_ASKED
#define is_silent(t) false
#else
#define is_silent(t) (in_the_way(t) && socket_of(t) == half_open)
#endif
#ifdef NO_TIMER
#define timer_fires(c) false
#elif defined(L_DEAD_FIRST)
#define timer_fires(c) (has(cur[c]) || !queued(cur[c]) || (size > 0 && may_be_granted(Q[0])))
#else
#define timer_fires(c) \
    (has(cur[c]) || !queued(cur[c]) || (size > 0 && (may_be_granted(Q[0]) || !counted(Q[0]) || is_silent(Q[0]))))
#endif

inline fresh(c) {
    f = (c) * SPARE + 1;
    do
    :: f <= ((c) + 1) * SPARE && known(f) -> f++
    :: else -> break
    od;
    assert(f <= ((c) + 1) * SPARE); /* else SPARE is too small */
    take(x, f);
    take(told, f);
    take(whole, f);
    take(robbed, f);
    take(ended, f);
    take(out, f);
#ifdef LOSE
    take(in_doubt, f);
#endif
#ifdef FIFO
    take(excused, f);
#endif
}

inline remove_at(i) {
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
    :: h < size -> remove_at(h)
    :: else
    fi;
    h = 0
}
inline excuse(t) {
#ifdef FIFO
    g = 0;
    do
    :: g < G_size && G[g] != t -> g++
    :: else -> break
    od;
    if
    :: g < G_size ->
        do
        :: g + 1 < G_size -> G[g] = G[g + 1]; g++
        :: else -> break
        od;
        G_size--;
        G[G_size] = NONE
    :: else
    fi;
    g = 0;
    put(excused, t)
#else
    skip
#endif
}

/* What is on the way about a dead token changes nothing once nobody can bring the token back: it is forgotten. */
inline forget_dead(t) {
    if
    :: t != NONE && t <= TOKENS && K != t && !is(H, t) && !queued(t) && !waiting(t) && !any_client(mine, t) ->
#ifdef LOSE
        ans[t] = NONE;
        take(in_doubt, t);
#endif
#if !defined(M_LEAVE_BLIND) && !defined(M_LEAVE_ANY) && !defined(L_RENEW_ADDS)
        take(leaves, t);
        take(renewals, t);
#endif
        take(news, t);
        take(stale, t);
        if
        :: !is(leaves | renewals, t) ->
            take(x, t);
            take(told, t);
            take(whole, t);
            take(robbed, t);
            take(ended, t);
            take(out, t);
#if defined(CHANGE) || defined(ALONE)
            old[t] = NONE;
#endif
#ifdef FIFO
            take(excused, t)
#endif
        :: else
        fi
    :: else
    fi
}

/* The token has the lock no more. */
inline note_ended(t) {
    if
    :: is(news, t) -> take(news, t); put(stale, t)
    :: else
    fi;
#ifdef LOSE
    if
    :: ans[t] == granted -> ans[t] = over
    :: else
    fi;
#endif
    take(told, t);
    take(whole, t);
    put(ended, t)
}
inline clear_readers() {
    f = 1;
    do
    :: f <= TOKENS && is(H, f) -> take(H, f); note_ended(f); forget_dead(f); f++
    :: f <= TOKENS && !is(H, f) -> f++
    :: else -> break
    od;
    f = 0
}
inline let_in(t) {
#ifdef PERMITS
    put(H, t)
#else
    if
    :: is(x, t) ->
        K = t;
        H = 0
    :: else ->
        if
        :: K != MARK ->
            K = MARK;
#ifndef L_OLD_SET
            H = 0
#endif
        :: else
        fi;
        put(H, t);
#ifdef L_LAST_TTL
        newest = t
#endif
    fi
#endif
}
inline give(t) {
    assert(!is(out, t));
    let_in(t);
    take(ended, t);
    take(robbed, t);
#ifdef FIFO
    assert(G_size == 0 || G[0] == t || is(excused, t));
    excuse(t);
    take(excused, t)
#endif
}
/* It leaves, or its end has come. */
inline end_grant(t) {
#ifdef PERMITS
    take(H, t);
#else
    if
    :: K == t -> K = NONE
    :: K == MARK && is(H, t) ->
        take(H, t);
#ifdef M_LEAVE_FREES_ALL
        K = NONE
#else
        if
#ifndef M_MARK_STAYS
        :: H == 0 -> K = NONE
#endif
        :: else
        fi
#endif
    :: else -> take(H, t)
    fi;
#endif
    note_ended(t);
    forget_dead(t)
}

#ifdef M_PASS_BLIND
#define passes(t) true
#else
#define passes(t) may_be_granted(t)
#endif
inline publish(t) {
    if
    :: socket_of(t) == up -> put(news, t)
    :: else
    fi
}
#ifdef L_DEAD_FIRST
#define dead_at_head(me) (size > 0 && Q[0] != me && !counted(Q[0]) && passes(Q[0]))
#elif defined(PERMITS) /* while all are out nobody is looked at */
#define dead_at_head(me) (size > 0 && Q[0] != me && !counted(Q[0]) && used < PERMITS)
#else
#define dead_at_head(me) (size > 0 && Q[0] != me && !counted(Q[0]))
#endif
#define silent_at_head(me) ((me) != NONE && size > 0 && Q[0] != me && is_silent(Q[0]))
/* me: who asks, or NONE */
inline pass(me) {
    do
    :: dead_at_head(me) || silent_at_head(me) -> f = Q[0]; remove_at(0); forget_dead(f)
    :: size > 0 && (Q[0] == me || counted(Q[0])) && passes(Q[0]) ->
        f = Q[0];
        remove_at(0);
        give(f);
        if
        :: f != me -> assert(socket_of(f) == up || socket_of(f) == half_open); publish(f)
        :: else
        fi;
#ifdef M_ONE_READER
        break
#endif
#if defined(PERMITS) && defined(L_SMALL_FIRST)
    :: size > 1 && counted(Q[0]) && !passes(Q[0]) && (Q[1] == me || counted(Q[1])) && passes(Q[1]) ->
        f = Q[1];
        remove_at(1);
        give(f);
        if
        :: f != me -> publish(f)
        :: else
        fi
#endif
    :: else -> break
    od;
    f = 0
}
#ifdef PERMITS
#define find_holder() skip
#else
inline find_holder() {
    if
    :: K == MARK && H == 0 -> K = NONE
    :: else
    fi
}
#endif

#if defined(L_READERS_BARGE) || defined(L_SMALL_FIRST)
#define barges(t) (!is(x, t))
#else
#define barges(t) false
#endif
inline enter(t, mode) {
    r = busy;
    take(out, t);
    if
    :: mode == setnx ->
        if
        :: K == NONE -> H = 0; give(t); put(whole, t); r = granted
        :: else
        fi
    :: mode != setnx ->
        find_holder();
        if
        :: has(t) -> remove(t); excuse(t)
        :: else ->
            pass(t);
            if
            :: !has(t) && !queued(t) && may_be_granted(t) && (size == 0 || barges(t)) -> give(t)
            :: else
            fi
        fi;
        if
        :: has(t) -> r = granted
        :: else
        fi
    fi;
    if
    :: r == busy && mode == join && !queued(t) ->
        Q[size] = t;
        size++;
#ifdef FIFO
        if
        :: in_G(t)
        :: !in_G(t) && !counted(t) -> put(excused, t)
        :: else -> G[G_size] = t; G_size++; take(excused, t)
        fi
#endif
    :: r == busy && mode == last ->
        remove(t);
        excuse(t);
        put(out, t);
#ifndef M_LAST_KEEPS_OUT
        pass(NONE)
#endif
    :: else
    fi
}

inline leave(t) {
    find_holder();
    remove(t);
    excuse(t);
    put(out, t);
    if
    :: has(t) -> end_grant(t);
#ifdef L_ONLY_HOLDERS_PASS
        pass(NONE)
#endif
#if defined(M_LEAVE_BLIND) && !defined(PERMITS)
    :: !has(t) -> K = NONE
#endif
#ifdef M_LEAVE_ANY
    :: !has(t) && H != 0 ->
        f = 1;
        do
        :: !is(H, f) -> f++
        :: else -> break
        od;
        take(H, f);
        f = 0
#endif
    :: else
    fi;
#if !defined(L_ONLY_HOLDERS_PASS) && !defined(M_LEAVE_FREES)
    pass(NONE)
#endif
}

#if defined(CHANGE) || defined(ALONE)
inline change(t) {
    r = busy;
    take(out, t);
    find_holder();
    g = old[t];
    if
    :: has(t) -> r = granted
#ifdef M_UPGRADE_BLIND
    :: !has(t) && is(x, t) && K == MARK && is(H, g) ->
#else
    :: !has(t) && is(x, t) && K == MARK && H == (1 << g) ->
#endif
        K = t;
        H = 0;
        note_ended(g);
        put(whole, t);
        r = granted
#ifdef M_DOWNGRADE_BLIND
    :: !has(t) && !is(x, t) ->
        K = MARK;
        H = 1 << t;
#else
    :: !has(t) && !is(x, t) && K == g ->
        K = MARK;
        H = 1 << t;
#endif
        note_ended(g);
        put(whole, t);
        r = granted;
#ifdef L_LAST_TTL
        newest = t;
#endif
#ifndef M_DOWNGRADE_KEEPS_OUT
        pass(NONE)
#endif
    :: else
    fi;
    g = 0
}
#endif

#ifdef PERMITS
#define owned(c) ((w[c] == owns && !is(robbed, cur[c])) * weight(cur[c]))
#if N == 2
#define all_owned (owned(0) + owned(1))
#elif N == 3
#define all_owned (owned(0) + owned(1) + owned(2))
#else
#define all_owned (owned(0) + owned(1) + owned(2) + owned(3))
#endif
#define together(c) (all_owned <= PERMITS)
#else
#define writes(c) (is(x, cur[c]) && next_of(c) == NONE) /* who has asked to be a reader writes no more */
#define rival(d, c) ((d) != (c) && w[d] == owns && !is(robbed, cur[d]) && (writes(c) || writes(d)))
#define together(c) (is(robbed, cur[c]) || !any_client(rival, c))
#endif
inline own(c) {
    w[c] = owns;
    ask[c] = NONE;
    recheck_due[c] = false;
#ifdef LOSE
    ans[cur[c]] = NONE;
#endif
    take(news, cur[c]);
    take(stale, cur[c]);
    if
    :: has(cur[c]) -> put(told, cur[c])
    :: else
    fi;
    assert(together(c))
}
inline let_go(c) {
    g = cur[c];
    w[c] = NONE;
    cur[c] = NONE;
    ask[c] = NONE;
    recheck_due[c] = false;
    forget_dead(g);
    g = 0
}
inline read_answer(c) {
    if
    :: r == granted -> own(c)
    :: r == over && ask[c] == last -> put(leaves, cur[c]); let_go(c)
    :: r == over && ask[c] != last -> ask[c] = NONE; recheck_due[c] = true
    :: r == busy && (ask[c] == try_once || ask[c] == setnx) -> ask[c] = NONE; recheck_due[c] = true
    :: r == busy && ask[c] == join -> ask[c] = NONE
    :: r == busy && ask[c] == last ->
        if
        :: recheck_due[c] -> put(leaves, cur[c])
        :: unclear(cur[c]) -> put(leaves, cur[c])
        :: else
        fi;
        let_go(c)
    fi;
    r = 0
}
inline send(c, mode) {
    ask[c] = mode;
#ifdef LOSE
    req[cur[c]] = mode
#else
    enter(cur[c], mode);
    read_answer(c)
#endif
}
#define quiet(c) (w[c] == waits && ask[c] == NONE && !unanswered(c))

/* The messages on the way are lost with the socket, and with them the positions of its waiters. */
inline break_socket(p) {
    f = p * SPARE + 1;
    do
    :: f <= (p + 1) * SPARE -> take(news, f); take(stale, f); excuse(f); forget_dead(f); f++
    :: else -> break
    od;
    f = 0;
    sub[p] = down
}

#if defined(CHANGE) || defined(ALONE)
inline begin_exchange(c) {
    fresh(c);
    new[c] = f;
    old[f] = cur[c];
    if
    :: is(x, cur[c])
    :: else -> put(x, f)
    fi;
    f = 0;
    ask[c] = exchange;
#ifdef LOSE
    req[new[c]] = exchange
#else
    change(new[c]);
    read_exchange(c)
#endif
}
inline read_exchange(c) {
    if
    :: r == granted ->
        g = cur[c];
        put(leaves, g);
        cur[c] = new[c];
        new[c] = NONE;
        forget_dead(g);
        g = 0;
        own(c)
#ifdef L_KEEPS_IN_DOUBT
    :: r == busy && is(x, new[c]) ->
#else
    :: r == busy && is(x, new[c]) && !unclear(new[c]) -> /* another reads too */
#endif
        g = new[c];
        if
        :: unclear(g) -> put(leaves, g)
        :: else
        fi;
        new[c] = NONE;
        forget_dead(g);
        g = 0
    :: else -> give_back(c)
    fi;
    ask[c] = NONE;
    r = 0
}
inline give_back(c) {
    g = new[c];
    put(leaves, g);
    put(leaves, cur[c]);
    new[c] = NONE;
    forget_dead(g);
    let_go(c)
}
#endif

#define blocks(c, y) (w[c] == waits && is(x, cur[c]))
#ifdef PERMITS
#define could_join(c, y) (w[c] == waits && queued(cur[c]) && all_owned + weight(cur[c]) <= PERMITS)
#else
#define could_join(c, y) (w[c] == waits && queued(cur[c]) && !is(x, cur[c]))
#endif
#ifdef LONG
#define stays(c) ((c) == 0 && !is(x, cur[c]) && !any_client(blocks, 0) && any_client(could_join, 0))
#else
#define stays(c) false
#endif

proctype client(byte c) {
    byte cycles;
#ifdef CHANGE
    bool changed;
#endif
next:
    if
    :: cycles == (c == 0 -> CYCLES : OTHERS) -> goto left
    :: else -> cycles++
    fi;

#ifdef PLAIN
    if
    :: plain(c) ->
        atomic { K == NONE -> d_step { K = PLAIN_TOKEN; cur[c] = PLAIN_TOKEN; own(c) } };
        d_step {
            if
            :: K == PLAIN_TOKEN -> K = NONE
            :: else
            fi;
            w[c] = NONE;
            cur[c] = NONE;
            take(robbed, PLAIN_TOKEN);
            take(told, PLAIN_TOKEN);
            take(ended, PLAIN_TOKEN)
        }
        goto next
    :: else
    fi;
#endif

    atomic {
        d_step { fresh(c); cur[c] = f; f = 0 };
        if
#ifdef ROLES
        :: c >= ROLES -> put(x, cur[c])
        :: c < ROLES
#elif defined(ALONE)
        :: c > 0 -> put(x, cur[c])
        :: true
#else
        :: put(x, cur[c])
        :: true
#endif
        fi;
        d_step {
            w[c] = waits;
#if defined(SETNX)
            if
            :: is(x, cur[c]) -> send(c, setnx)
            :: else -> send(c, FIRST)
            fi
#elif defined(M_TWO_STEPS)
            if
            :: size == 0 && may_be_granted(cur[c]) -> ask[c] = try_once
            :: else -> send(c, join)
            fi
#else
            send(c, FIRST)
#endif
        };
#ifdef CHANGE
        changed = false
#endif
    };

    do
    :: atomic { w[c] == owns -> break } /* there was a message */
#ifdef M_TWO_STEPS
    :: d_step { w[c] == waits && ask[c] == try_once -> give(cur[c]); own(c) }
#endif
#ifdef LOSE
    :: atomic {
        w[c] == waits && ans[cur[c]] != NONE ->
        d_step { r = ans[cur[c]]; ans[cur[c]] = NONE; read_answer(c) };
        if
        :: w[c] == owns -> break
        :: w[c] == NONE -> goto next
        :: else
        fi }
    /* It was lost: again. */
    :: d_step { w[c] == waits && ask[c] != NONE && !unanswered(c) -> req[cur[c]] = ask[c] }
#endif
    :: d_step { quiet(c) && (recheck_due[c] || timer_fires(c)) ->
        recheck_due[c] = false;
        send(c, join) }
#ifdef DEADLINE
    :: atomic { gives_up(c) && quiet(c) ->
        d_step { send(c, last); recheck_due[c] = false };
        if
        :: w[c] == owns -> break
        :: w[c] == NONE -> goto next
        :: else
        fi }
#endif
#if defined(STOP) || (defined(DEADLINE) && defined(LOSE))
#ifdef STOP
    :: atomic { gives_up(c) && w[c] == waits ->
#else
    :: atomic { gives_up(c) && w[c] == waits && ask[c] == last && !unanswered(c) ->
#endif
        d_step { put(leaves, cur[c]); let_go(c) }
        goto next }
#endif
#ifdef CRASH
    :: atomic { faults < FAULTS -> faults++; goto dies }
#endif
    od;

critical:
#ifdef RENEW
    if
    :: d_step { true -> put(renewals, cur[c]) }
    :: true
    fi;
#endif
#ifdef ALONE
    if
    :: c == 0 && !is(x, cur[c]) ->
        do
        :: atomic { w[c] == owns && !is(x, cur[c]) && (H & ~(1 << cur[c])) == 0 -> d_step { begin_exchange(c) } }
        :: atomic { w[c] == owns && !is(x, cur[c]) && any_client(blocks, 0) -> break }
        :: atomic { w[c] == owns && is(x, cur[c]) -> break }
        :: atomic { w[c] == NONE -> goto next }
        od
    :: else
    fi;
#endif
    do
    :: d_step { next_of(c) == NONE && !stays(c) -> put(leaves, cur[c]); let_go(c) }
        goto next
#ifdef CHANGE
    :: atomic { ask[c] == NONE && !changed ->
        changed = true;
        d_step { begin_exchange(c) };
        if
        :: w[c] == NONE -> goto next
        :: else
        fi }
#ifdef LOSE
    :: atomic { ask[c] == exchange && ans[new[c]] != NONE ->
        d_step { r = ans[new[c]]; ans[new[c]] = NONE; read_exchange(c) };
        if
        :: w[c] == NONE -> goto next
        :: else
        fi }
    :: d_step { ask[c] == exchange && req[new[c]] == NONE && ans[new[c]] == NONE -> req[new[c]] = exchange }
    :: atomic { ask[c] == exchange && req[new[c]] == NONE && ans[new[c]] == NONE -> d_step { give_back(c) }; goto next }
#endif
#endif
#ifdef EXPIRE
    /* Its LEAVE comes all the same, perhaps before. */
    :: atomic { faults < FAULTS && next_of(c) == NONE && has(cur[c]) ->
        faults++;
        d_step { put(leaves, cur[c]); end_grant(cur[c]); let_go(c) };
        goto next }
#endif
#ifdef CRASH
    :: atomic { faults < FAULTS -> faults++; goto dies }
#endif
    od;

#ifdef CRASH
dies:
    atomic {
#ifdef LOSE
        d_step { break_socket(c); ans[cur[c]] = NONE };
        if
        :: req[cur[c]] != NONE -> req[cur[c]] = NONE
        :: true
        fi;
#else
        d_step { break_socket(c) };
#endif
        d_step { let_go(c) };
        if
        :: sub[c] = closed
#ifndef CLOSED
        :: sub[c] = half_open
#endif
        fi
    };
#endif
left:
    finished++
}

#define others_in(c, t) (client_of(t) != (c) && w[c] == owns && is(H, cur[c]))
#define to_waiter (cur[c] == t && w[c] == waits)
#define to_owner (mine(c, t) && w[c] == owns)
#ifdef LOSE
/* A command without an answer that grants a whole lease: the LEAVE of its token is repeated once it must have come. */
inline repeat_leave(t, mode) {
    if
    :: (mode == setnx || mode == exchange) && has(t) && !any_client(mine, t) && alive(t) -> put(told, t); put(leaves, t)
    :: else
    fi
}
inline note_doubt(t) {
    if
    :: req[t] == setnx || req[t] == exchange -> put(in_doubt, t)
    :: else
    fi
}
inline do_request(t, mode) {
#if defined(CHANGE) || defined(ALONE)
    if
    :: mode == exchange -> change(t)
    :: else -> enter(t, mode)
    fi
#else
    enter(t, mode)
#endif
}
#endif

/* What is on the way about a token: at the server, and back at its process. */
proctype in_flight(byte t) {
    byte c = (t - 1) / SPARE;
end:
    do
#ifdef LOSE
    :: d_step { req[t] != NONE ->
        do_request(t, req[t]);
        ans[t] = (alive(t) && (!to_owner || req[t] == exchange) -> r : NONE);
        req[t] = NONE;
        r = 0;
        forget_dead(t) }
    :: d_step { late[t] != NONE -> do_request(t, late[t]); repeat_leave(t, late[t]); late[t] = NONE; r = 0; forget_dead(t) }
    :: d_step { req[t] != NONE && faults < FAULTS ->
        faults++;
        note_doubt(t);
        req[t] = NONE;
        forget_dead(t) }
    :: d_step { req[t] != NONE && faults < FAULTS ->
        faults++;
        note_doubt(t);
        do_request(t, req[t]);
        repeat_leave(t, req[t]);
        req[t] = NONE;
        r = 0;
        forget_dead(t) }
    :: d_step { req[t] != NONE && faults < FAULTS && late[t] == NONE ->
        faults++;
        note_doubt(t);
        late[t] = req[t];
        req[t] = NONE }
    /* An answer about a dead token. */
    :: d_step { ans[t] != NONE && !to_waiter && !to_owner ->
        if
        :: ans[t] == granted -> put(told, t)
        :: else
        fi;
        put(leaves, t);
        ans[t] = NONE;
        forget_dead(t) }
#endif
    :: d_step { is(leaves, t) -> take(leaves, t); leave(t); forget_dead(t) }
#ifdef TWICE
    :: d_step { is(leaves, t) && faults < FAULTS -> faults++; leave(t) }
#endif
#ifdef RENEW
    :: d_step { is(renewals, t) ->
        take(renewals, t);
        if
#ifdef L_RENEW_ADDS
        :: !has(t) && !is(x, t) && K == MARK -> put(H, t)
#endif
        :: else
        fi;
        if
        :: has(t) ->
            assert(!is(ended, t));
            put(whole, t);
            if
            :: !any_client(mine, t) && alive(t) -> put(told, t); put(leaves, t)
            :: else
            fi
        :: else
        fi;
        forget_dead(t) }
#endif

    /* Its messages. */
#ifdef SILENT
    :: d_step { is(news, t) && faults < FAULTS -> faults++; take(news, t); excuse(t); forget_dead(t) }
#endif
    :: d_step { is(news, t) && to_waiter -> own(c) }
    :: d_step { is(news, t) && to_waiter -> take(news, t); put(told, t); recheck_due[c] = true } /* it came late */
    :: d_step { is(stale, t) && to_waiter ->
        take(stale, t);
        if
        :: is(robbed, t) -> own(c)
        :: else -> recheck_due[c] = true
        fi }
    :: d_step { is(news | stale, t) && to_owner -> take(news, t); take(stale, t) }
    :: d_step { is(news | stale, t) && !to_waiter && !to_owner ->
        if
        :: is(news, t) -> put(told, t)
        :: else
        fi;
        put(leaves, t);
        take(news, t);
        take(stale, t);
        forget_dead(t) }

    /* Its end. */
#ifdef L_ONE_TTL
    :: d_step { (K == t || (is(H, t) && !any_client(others_in, t))) && lost(t) -> end_grant(t) }
#else
    :: d_step { (K == t || is(H, t)) && lost(t) ->
        assert(!has(t) || is(robbed, t) || !alive(t) || !is(told | whole, t));
#ifdef L_LAST_TTL
        if
        :: K == MARK && newest == t -> K = NONE
        :: else
        fi;
#endif
        end_grant(t) }
#endif
#ifdef SLOW
    :: d_step { has(t) && !any_client(believes, t) && faults < FAULTS -> faults++; end_grant(t) }
#endif
    od
}
inline subscribe(q) {
    sub[q] = up;
    if
    :: w[q] == waits -> recheck_due[q] = true
    :: else
    fi
}

/* Sockets, strangers. */
active proctype environment() {
    byte p;
end:
    do
    :: d_step { K == MARK && H == 0 -> assert(false) } /* nobody reads, and plain clients are kept out */
#ifdef FOREIGN
    :: d_step { K != NONE && faults < FAULTS ->
        faults++;
        p = 1;
        do
        :: p <= PLAIN_TOKEN && has(p) -> put(robbed, p); note_ended(p); p++
        :: p <= PLAIN_TOKEN && !has(p) -> p++
        :: else -> break
        od;
        p = 0;
        K = NONE }
#endif
#ifdef EVICT
    :: d_step { size > 0 && faults < FAULTS ->
        faults++;
        do
        :: size > 0 -> size--; p = Q[size]; Q[size] = NONE; excuse(p); forget_dead(p)
        :: else -> break
        od;
        p = 0 }
#endif
#ifdef SLOW
    :: d_step { size > 1 && in_the_way(Q[0]) && faults < FAULTS ->
        faults++;
        p = Q[0];
        remove_at(0);
        excuse(p);
        forget_dead(p);
        pass(NONE);
        p = 0 }
#endif
#ifdef SOCKET
#define BREAKS(p) :: d_step { sub[p] == up && faults < FAULTS -> faults++; break_socket(p) }
    BREAKS(0)
    BREAKS(1)
    BREAKS(N - 1)
#endif
    :: d_step { sub[0] == down -> subscribe(0) }
    :: d_step { sub[1] == down -> subscribe(1) }
#if N > 2
    :: d_step { sub[2] == down -> subscribe(2) }
#endif
#if N > 3
    :: d_step { sub[3] == down -> subscribe(3) }
#endif
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
        :: i <= TOKENS -> run in_flight(i); i++
        :: else -> break
        od;
        i = 0
    }
    finished == N;
    timeout ->
    assert(K == NONE && H == 0);
#if !defined(CRASH) && !defined(SOCKET) && !defined(SLOW) && !defined(LOSE)
    assert(size == 0)
#endif
}
