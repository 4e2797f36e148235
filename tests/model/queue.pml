/* The queue of tickets, for spin to search: the scripts of the queue in include/distlock/wire/, and what a process does around them.

   Every d_step is one command of the server, or one thing that a process does at once. Anything may happen between two of
   them. K is the lock: the owner's token, with a TTL. Q is the queue: tickets, each of a token, with a TTL for all. A process
   has one socket that is subscribed to its channel, however many of its waiters are queued. The scores of Q only keep the
   order in which tickets were added, so the model has a list instead.

   The server:
     ENTER(token, mode)  K is this token: granted, and the token's ticket is removed.
                         K is free: PASS, with the asker's ticket among the others, or behind the last when it has none.
                         Somebody else has K: busy. Mode 'join' adds a ticket unless there is one, and the answer says whether
                         it did. Mode 'last' removes the ticket. Mode 'try_once' does neither.
     LEAVE(token)        The token's ticket is removed in any case. K is this token: PASS, or DEL K when nobody is queued.
     PASS                takes the first ticket. Its PUBLISH counts a subscriber, or is refused: K is this token from now on. Its
                         PUBLISH counts nobody: the ticket is dropped, and the next is taken.
     RENEW(token)        K is this token: the TTL is the whole lease.
     A grant by ENTER or PASS lasts for the offer's TTL, a grant by SET NX for the whole lease.
   The client:
     Each attempt has a fresh token. The process knows the token from before the first ENTER until LEAVE is sent, or until
     'last' is answered. After LEAVE was sent the token is dead.
     A waiter sends ENTER(join) and waits for a message with its token. It rechecks (the same ENTER again) when K may have ended,
     now and then, after its process subscribed on a new socket, and before it believes a message that came late. A lost
     answer: it sends the same command again. Its time is up: ENTER(last). It is cancelled: LEAVE.
     A waiter sends LEAVE after 'last' when the answer is 'busy' but a message has come since, or a SET NX of the token was not
     answered, and when the answer is 'granted' but it is over. LEAVE of a token whose SET NX was not answered is repeated
     once the SET NX must have come.
   The process:
     A message for a waiter makes it the owner. A message for an owner is dropped. Any other message is answered by LEAVE.
     An answer 'granted', 'busy' or 'renewed' about a dead token is followed by LEAVE, too.
     A recheck that added a ticket, although an answer to a command sent since the last subscription said that it is there:
     messages do not arrive. The process subscribes on a new socket, then all its waiters recheck.

   What may happen, each a -D:
     TRY      the first command is ENTER(try_once)             SETNX     the first command is SET NX PX
     STOP     a waiter is cancelled at any time                DEADLINE  a waiter's time is up
     SHARE    clients 0 and 1 are in one process               RENEW     owners renew, and a renewal may come late
     TWICE    a LEAVE is done twice                            PLAIN     the last client uses SET NX, and compare-and-delete
     OFTEN    waiters recheck at any time                      NO_TIMER  waiters recheck only before they believe, and after
     LAZY     nobody has subscribed yet                                  their process subscribed on a new socket
     MUTE     every PUBLISH is refused, and waiters recheck before an offer ends
     TEXTLESS a LEAVE that answers a message, or follows an answer, does not remove a ticket
   These share FAULTS faults:
     LOSE     a request or its answer is lost, or the request is done much later, perhaps after the LEAVE of its token
     SOCKET   a process loses its subscription and knows it    DEAF      only the server knows it: PUBLISH counts nobody
     STALL    only the client's end is gone: PUBLISH counts it, nobody is told, and neither side knows
     CRASH    a process dies; its socket is closed or half-open
     DUP      a message comes twice                            REFUSED   a PUBLISH is refused
     SLOW     an offer ends before the waiter claims it, or a lock before its LEAVE has come
     MINIMAL  a LEAVE is refused; compare-and-delete takes its place
     OOM      the server refuses what needs memory, for a while
     FOREIGN  somebody deletes K      EVICT  Q is evicted, or its TTL is over     RESTART  the server loses everything
     AOF      the server falls back to an earlier state
   Two ends of K are no fault: the end of a lock that no living client cares for, and of an offer that nobody can hear of.

   What must hold:
     1 There is one owner at a time. An owner that FOREIGN, RESTART or AOF robbed does not count.
     2 Nobody waits for ever: no invalid end state. A fault costs a waiter its position twice at most (FAIR). The last client is
       served however often the others come back (FOREVER: no acceptance cycle under weak fairness).
     3 At the end K is free, and Q is empty when there were no faults. Otherwise its TTL ends it.
     4 A waiter that is granted the lock was first in the queue (FIFO), unless its socket or its offer was lost.
     5 No grant is left to its TTL that a living process was told of, or that has a whole lease. A token that left, or that
       'last' answered 'busy', is neither owner nor queued, and no owner is queued, but for a request that came late.
     6 Each acquisition takes two commands, ENTER and LEAVE, and no recheck (COUNT: no faults).

   M_... breaks one rule each. run.sh says which variant must hold, and which must find a mutant. queue_clock.pml says how long
   an owner may believe.

   spin -DSTOP -DDEADLINE -a queue.pml && gcc -O2 -DSAFETY -o pan pan.c && ./pan -m1000000
   spin -DFOREVER -DN=2 -DDEAF -a queue.pml && gcc -O2 -DNFAIR=4 -o pan pan.c && ./pan -a -f -E -m1000000 */
#ifndef N
#define N 3 /* clients: 2 or 3 */
#endif
#ifndef CYCLES
#define CYCLES 2 /* attempts of client 0 */
#endif
#ifndef OTHERS
#define OTHERS 1 /* attempts of each other client */
#endif
#ifndef FAULTS
#define FAULTS 1
#endif
#ifndef SPARE
#define SPARE 2 /* tokens of a client that may be known somewhere at the same time */
#endif
#define NONE 0
#define TOKENS (N * SPARE)
#define PLAIN_TOKEN (TOKENS + 1)

#if !defined(LOSE) && !defined(SOCKET) && !defined(DEAF) && !defined(STALL) && !defined(CRASH) && !defined(SLOW) && \
    !defined(FOREIGN) && !defined(EVICT) && !defined(RESTART) && !defined(AOF) && !defined(PLAIN) && !defined(REFUSED) && \
    !defined(MINIMAL) && !defined(OOM)
#define EXACT
#endif

mtype = { try_once, join, last, setnx }; /* what is asked */
mtype = { granted, over, busy, added };  /* what is answered; over: the grant has ended before the answer was read */
mtype = { waits, owns };
mtype = { up, down, deaf, stalled, closed, half_open }; /* the subscription of a process; the last two: it is dead */

#if N == 2
#define any_client(p, x) (p(0, x) || p(1, x))
#else
#define any_client(p, x) (p(0, x) || p(1, x) || p(2, x))
#endif
#if TOKENS <= 4
#define ROOM 4
#define contains(a, t) (a[0] == (t) || a[1] == (t) || a[2] == (t) || a[3] == (t))
#else
#define ROOM 6
#define contains(a, t) (a[0] == (t) || a[1] == (t) || a[2] == (t) || a[3] == (t) || a[4] == (t) || a[5] == (t))
#endif
#define queued(t) contains(Q, t)

/* The server. */
byte K;
bool whole; /* K has the whole lease, not only the offer's TTL */
byte Q[ROOM];
byte size;
#ifdef LAZY
mtype sub[N] = down;
#else
mtype sub[N] = up;
#endif
#ifdef REFUSED
bool refusing; /* the next PUBLISH */
bool unsaid;   /* the PUBLISH of the grant that K says was refused */
#endif
#ifdef OOM
bool no_memory;
#endif

/* On the way, by token. */
mtype req[TOKENS + 2];  /* a request */
mtype late[TOKENS + 2]; /* one whose connection is gone: no answer */
mtype ans[TOKENS + 2];
short leaves, renewals; /* sets of tokens */
short returns;          /* LEAVEs that remove no ticket */
short news, stale;      /* messages: of the grant that K says, of one that has ended */

/* The clients. */
byte cur[N];         /* the token */
mtype w[N];          /* what the client does with it */
mtype ask[N];        /* what it asked and has no answer to */
bool recheck_due[N];
short since;         /* tokens: asked since the process subscribed last */
short joined;        /* tokens: and the answer was that they are queued */
#ifdef SETNX
short in_doubt;      /* tokens: a SET NX was not answered */
#define unclear(t) is(in_doubt, t)
#define note_doubt(t) in_doubt = in_doubt | ((req[t] == setnx) << (t))
#else
#define unclear(t) false
#define note_doubt(t) skip
#endif

byte faults, finished;
#ifdef FOREVER
bool served;
ltl patience { <> served }
#endif
/* Ghosts. */
bool told;    /* the process knows of the grant that K says */
bool lossy;   /* RESTART or AOF has been */
short robbed; /* tokens */
short out;    /* tokens: have left, and nothing was asked since */
#ifdef FAIR
byte added_times[TOKENS + 2];
byte harm; /* faults that did happen */
#define note_fault harm++
#else
#define note_fault skip
#endif
#ifdef FIFO
byte G[ROOM]; /* tokens that are queued and lost nothing */
byte G_size;
short excused;
#define in_G(t) contains(G, t)
#endif
#ifdef COUNT
byte cost[TOKENS + 2];
#endif
#ifdef AOF
bool saved;
byte old_K, old_size;
byte old_Q[ROOM];
#define in_old(t) (saved && (old_K == (t) || contains(old_Q, t)))
#define may_fall_back (saved && K != old_K)
#else
#define in_old(t) false
#define may_fall_back true
#endif
/* Scratch of d_steps. */
byte f, g, h;
mtype r;

#define is(set, t) (((set) >> (t)) & 1)
#define put(set, t) set = set | (1 << (t))
#define take(set, t) set = set & ~(1 << (t))

#ifdef SHARE
#define process(c) ((c) == 1 -> 0 : (c))
#else
#define process(c) (c)
#endif
#define client_of(t) ((t) == PLAIN_TOKEN -> N - 1 : ((t) - 1) / SPARE)
#define socket_of(t) sub[process(client_of(t))]
#define alive(t) (socket_of(t) != closed && socket_of(t) != half_open)
#ifdef M_COUNT_IGNORED
#define counted(t) true
#else
#define counted(t) (socket_of(t) == up || socket_of(t) == stalled || socket_of(t) == half_open)
#endif

#define tokens_of(c) (((1 << SPARE) - 1) << ((c) * SPARE + 1))
#define mine(c, t) (cur[c] == (t))
#define believes(c, t) (cur[c] == (t) && w[c] == owns)
#define awaits(c, t) (cur[c] == (t) && w[c] == waits)
#define under_way(t) (req[t] != NONE || late[t] != NONE || ans[t] != NONE || is(leaves | returns | renewals | news | stale, t))
#define known(t) (K == (t) || queued(t) || under_way(t) || any_client(mine, t) || in_old(t))
#if defined(M_RARE_RECHECK)
#define said(t) false
#elif defined(REFUSED)
#define said(t) (!unsaid && (socket_of(t) == up || socket_of(t) == down))
#else
#define said(t) (socket_of(t) == up || socket_of(t) == down)
#endif
/* Nobody hands it over and nobody will claim it; or the waiter may be too late, for want of a message. */
#define lost(t) (!any_client(believes, t) && ((t) == PLAIN_TOKEN || (!under_way(t) && !any_client(awaits, t))))
#define unheard(t) (any_client(awaits, t) && !under_way(t) && !said(t))

/* One client is patient: a client that can always give up is never seen to be stuck. */
#if N == 2 || defined(PLAIN)
#define gives_up(c) ((c) == 0)
#else
#define gives_up(c) ((c) < 2)
#endif
#if defined(NO_TIMER)
#define timer_fires(c) false
#elif defined(OFTEN)
#define timer_fires(c) true
#else
#define timer_fires(c) (K == NONE || K == cur[c] || !queued(cur[c]))
#endif
#ifdef PLAIN
#define plain(c) ((c) == N - 1)
#else
#define plain(c) false
#endif
#if defined(SETNX)
#define FIRST setnx
#elif defined(TRY)
#define FIRST try_once
#else
#define FIRST join
#endif

inline fresh(c) {
    f = (c) * SPARE + 1;
#ifndef M_TOKEN_REUSED
    do
    :: f <= ((c) + 1) * SPARE && known(f) -> f++
    :: else -> break
    od;
    assert(f <= ((c) + 1) * SPARE); /* else SPARE is too small */
#endif
    cur[c] = f;
    take(robbed, f);
    take(joined, f);
    take(since, f);
    take(out, f);
#ifdef SETNX
    take(in_doubt, f);
#endif
#ifdef FIFO
    take(excused, f);
#endif
#ifdef FAIR
    added_times[f] = 0;
#endif
#ifdef COUNT
    cost[f] = 0;
#endif
    f = 0
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
#ifdef FIFO
inline remove_G(t) {
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
    g = 0
}
#endif

/* What is on the way about a dead token changes nothing once nobody can bring the token back: it is forgotten. */
inline forget_dead(t) {
#if !defined(M_TOKEN_REUSED) && !defined(M_LEAVE_BLIND) && !defined(M_RENEW_SETS)
    if
    :: t != NONE && t <= TOKENS && K != t && !queued(t) && req[t] == NONE && late[t] == NONE && !any_client(mine, t) &&
        !in_old(t) ->
        ans[t] = NONE;
        take(leaves, t);
        take(returns, t);
        take(renewals, t);
        take(news, t);
        take(stale, t)
    :: else
    fi
#else
    skip
#endif
}
inline clear_queue() {
    do
    :: size > 0 -> size--; h = Q[size]; Q[size] = NONE; forget_dead(h); h = 0
    :: else -> break
    od;
#ifdef FIFO
    do
    :: G_size > 0 -> G_size--; G[G_size] = NONE
    :: else -> break
    od
#endif
}
inline add_ticket(t) {
    assert(K != t);
#ifdef M_JOIN_TWICE
    if
    :: size < ROOM -> Q[size] = t; size++
    :: else
    fi;
#else
    Q[size] = t;
    size++;
#endif
#ifdef FIFO
    if
    :: in_G(t)
    :: !in_G(t) && !counted(t) -> put(excused, t)
    :: else -> G[G_size] = t; G_size++; take(excused, t)
    fi;
#endif
#ifdef FAIR
    if
    :: any_client(awaits, t) && socket_of(t) != down -> added_times[t]++; assert(added_times[t] <= 1 + 2 * harm)
    :: else
    fi;
#endif
}
inline excuse(t) {
#ifdef FIFO
    remove_G(t);
    put(excused, t)
#else
    skip
#endif
}
inline give(t) {
    assert(!is(out, t) || lossy);
    K = t;
    told = false;
    whole = false;
#ifdef REFUSED
    unsaid = false;
#endif
#ifdef FIFO
    assert(G_size == 0 || G[0] == t || is(excused, t));
    remove_G(t)
#endif
}
/* K says another token from now on. */
inline end_grant() {
    h = K;
    if
    :: K != NONE && K <= TOKENS ->
        if
        :: is(news, K) -> take(news, K); put(stale, K)
        :: else
        fi;
        if
        :: ans[K] == granted -> ans[K] = over
        :: else
        fi
    :: else
    fi;
    K = NONE;
    told = false;
    whole = false;
    forget_dead(h);
    h = 0
}

inline publish(t) {
#ifdef REFUSED
    unsaid = refusing;
    if
    :: refusing -> refusing = false
    :: !refusing && socket_of(t) == up -> put(news, t)
    :: else
    fi
#else
#if defined(MUTE) || defined(M_NO_MESSAGE)
    skip
#else
    if
    :: socket_of(t) == up -> put(news, t)
    :: else
    fi
#endif
#endif
}
inline pass(me) {
    do
    :: K == NONE && size > 0 ->
#ifdef M_LAST_FIRST
        f = Q[size - 1];
        remove_at(size - 1);
#else
        f = Q[0];
        remove_at(0);
#endif
        if
        :: f == me -> give(f)
        :: f != me && counted(f) ->
            give(f);
            assert(alive(f) || socket_of(f) == half_open);
            assert(socket_of(f) != deaf && socket_of(f) != down);
            publish(f)
        :: else -> forget_dead(f) /* dropped */
        fi
    :: else -> break
    od;
    f = 0
}

#define busy_or_added (r == busy || r == added)

inline enter(t, mode) {
    r = busy;
    take(out, t);
    if
    :: K == t && mode != setnx ->
#ifdef M_LAST_BLIND
        if
        :: mode == last
        :: else -> r = granted
        fi
#else
        r = granted;
        remove(t)
#endif
    :: K == NONE && mode == setnx -> give(t); whole = true; r = granted
    :: K == NONE && mode != setnx ->
#ifndef M_BARGE
        pass(t);
#endif
        if
        :: K == NONE -> give(t)
        :: else
        fi;
        if
        :: K == t ->
            r = granted;
#ifdef M_WHOLE_LEASE
            whole = true;
#endif
            remove(t)
        :: else
        fi
    :: else
    fi;
    if
    :: r == busy && mode == join ->
#ifdef M_JOIN_TWICE
        add_ticket(t);
        r = added
#else
        if
#ifdef M_JOIN_MOVES
        :: queued(t) -> remove(t); Q[size] = t; size++
#endif
        :: queued(t)
        :: else -> add_ticket(t); r = added
        fi
#endif
    :: r == busy && mode == last ->
#ifndef M_LAST_STAYS
        remove(t);
#endif
        excuse(t);
        assert(K != t);
        put(out, t)
    :: else
    fi;
#ifdef COUNT
    cost[t]++;
#endif
}

inline leave(t, with_ticket) {
#ifdef COUNT
    cost[t]++;
    assert(cost[t] == 2);
#endif
    if
    :: with_ticket ->
        if
#ifdef M_OWNER_KEEPS_TICKET
        :: K == t
#endif
#ifdef M_LEAVE_KEEPS_TICKET
        :: true
#endif
        :: else -> remove(t)
        fi;
        excuse(t);
        put(out, t)
    :: else
    fi;
    if
#ifdef M_LEAVE_BLIND
    :: K != NONE ->
#else
    :: K == t ->
#endif
        end_grant();
#ifndef M_LEAVE_FREES
        pass(NONE)
#endif
    :: else
    fi
}
#ifdef TEXTLESS
#define send_back(t) put(returns, t)
#else
#define send_back(t) put(leaves, t)
#endif

#define rival(d, c) ((d) != (c) && w[d] == owns && !is(robbed, cur[d]))
inline own(c) {
    w[c] = owns;
    ask[c] = NONE;
    recheck_due[c] = false;
    ans[cur[c]] = NONE;
#if !defined(M_HELD_LEAVES) && !defined(DUP)
    take(news, cur[c]);
    take(stale, cur[c]);
#endif
    if
    :: K == cur[c] -> told = true
    :: else
    fi;
    assert(is(robbed, cur[c]) || !any_client(rival, c))
}
inline note_sent(c) {
    if
    :: sub[process(c)] != down -> put(since, cur[c])
    :: else -> take(since, cur[c])
    fi
}
inline let_go(c) { g = cur[c]; w[c] = NONE; cur[c] = NONE; ask[c] = NONE; recheck_due[c] = false; forget_dead(g); g = 0 }

#define unanswered(c) (req[cur[c]] != NONE || ans[cur[c]] != NONE)
#define quiet(c) (w[c] == waits && ask[c] == NONE && !unanswered(c))

/* The messages on the way are lost with the socket, and with them the positions of its waiters. */
inline break_socket(p) {
    f = 1;
    do
    :: f <= TOKENS ->
        if
        :: process(client_of(f)) == p -> take(news, f); take(stale, f); excuse(f)
        :: else
        fi;
        f++
    :: else -> break
    od;
    f = 0;
    sub[p] = down
}

proctype client(byte c) {
#ifdef FOREVER
    bool once;
next:
    if
    :: once && c == N - 1 -> served = true; goto left
    :: else -> once = true
    fi;
#else
    byte cycles;
next:
    if
    :: cycles == (c == 0 -> CYCLES : OTHERS) -> goto left
    :: else -> cycles++
    fi;
#endif

#ifdef PLAIN
    if
    :: plain(c) ->
        atomic { K == NONE -> d_step { give(PLAIN_TOKEN); whole = true; cur[c] = PLAIN_TOKEN; own(c) } };
        d_step {
            if
            :: K == PLAIN_TOKEN -> end_grant()
            :: else
            fi;
            let_go(c);
            take(robbed, PLAIN_TOKEN)
        }
        goto next
    :: else
    fi;
#endif

    d_step {
#ifdef FOREVER
        !known(c * SPARE + 1) || !known(c * SPARE + 2) ->
#endif
        fresh(c);
        w[c] = waits;
        ask[c] = FIRST;
        req[cur[c]] = FIRST;
        note_sent(c)
    };

    do
    :: atomic { w[c] == owns -> goto critical } /* there was a message */
    :: atomic {
        w[c] == waits && ans[cur[c]] != NONE ->
        d_step {
            r = ans[cur[c]];
            ans[cur[c]] = NONE;
            if
            :: r == granted -> own(c)
            :: r == over && ask[c] == last -> put(leaves, cur[c]); let_go(c)
            :: r == over && ask[c] != last -> ask[c] = NONE; recheck_due[c] = true
            :: busy_or_added && (ask[c] == try_once || ask[c] == setnx) ->
                ask[c] = join;
                req[cur[c]] = join;
                note_sent(c)
            :: busy_or_added && ask[c] == join ->
                ask[c] = NONE;
#ifndef M_NEVER_RESUBSCRIBES
                if
                :: r == added && is(joined, cur[c]) && is(since, cur[c]) -> break_socket(process(c))
                :: else
                fi;
#endif
                if
                :: is(since, cur[c]) -> put(joined, cur[c])
                :: else
                fi
            :: busy_or_added && ask[c] == last ->
                if
#ifndef M_LAST_ENDS_ALL
                :: recheck_due[c] -> put(leaves, cur[c]) /* since then a message came that it did not believe */
#endif
#ifndef M_LAST_ENDS_SETNX
                :: unclear(cur[c]) -> put(leaves, cur[c])
#endif
                :: else
                fi;
                let_go(c)
            fi;
            r = 0
        };
        if
        :: w[c] == owns -> goto critical
        :: w[c] == NONE -> goto next
        :: else
        fi }
    /* It was lost: again. */
    :: d_step { w[c] == waits && ask[c] != NONE && !unanswered(c) -> req[cur[c]] = ask[c]; note_sent(c) }
#ifndef COUNT
    :: d_step {
        quiet(c) && (recheck_due[c] || timer_fires(c)) ->
        recheck_due[c] = false;
        ask[c] = join;
        req[cur[c]] = join;
        note_sent(c) }
#endif
#ifdef DEADLINE
    :: d_step { gives_up(c) && quiet(c) ->
        ask[c] = last;
        req[cur[c]] = last;
        recheck_due[c] = false }
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
    :: atomic { faults < FAULTS -> faults++; note_fault; goto dies }
#endif
    od;

critical:
#ifdef RENEW
    if
    :: d_step { true -> put(renewals, cur[c]) }
    :: true
    fi;
#endif
    if
    :: d_step { true -> put(leaves, cur[c]); let_go(c) }
        goto next
#ifdef CRASH
    :: atomic { faults < FAULTS -> faults++; note_fault; goto dies }
#endif
    fi;

#ifdef CRASH
dies:
    atomic {
        d_step { break_socket(process(c)); ans[cur[c]] = NONE };
        if
        :: req[cur[c]] != NONE -> req[cur[c]] = NONE
        :: true
        fi;
        d_step { let_go(c) };
        if
        :: (leaves | returns) & tokens_of(c) -> leaves = leaves & ~tokens_of(c); returns = returns & ~tokens_of(c)
        :: true
        fi;
        if
        :: sub[process(c)] = closed
        :: sub[process(c)] = half_open
        fi
    };
#endif
left:
    finished++
}

#if defined(M_REGISTERED_LATE)
#define to_waiter (cur[c] == t && w[c] == waits && is(joined, t))
#elif defined(M_FORGOTTEN_EARLY)
#define to_waiter (cur[c] == t && w[c] == waits && ask[c] != last)
#else
#define to_waiter (cur[c] == t && w[c] == waits)
#endif
#define to_asker (cur[c] == t && w[c] == waits)
#define to_owner (cur[c] == t && w[c] == owns)
#ifdef OOM
#define memory_left (!no_memory)
#define may_leave(t) (!no_memory || K != t || size == 0)
#else
#define memory_left true
#define may_leave(t) true
#endif

/* A SET NX without an answer: the LEAVE of its token is repeated once it must have come. */
inline repeat_leave(t, mode) {
#ifndef M_SETNX_FORGOTTEN
    if
    :: mode == setnx && K == t && !any_client(mine, t) && alive(t) -> told = true; put(leaves, t)
    :: else
    fi
#else
    skip
#endif
}

/* What is on the way about a token: at the server, and back at its process. */
proctype in_flight(byte t) {
    byte c = (t - 1) / SPARE;
end:
    do
    :: d_step { req[t] != NONE && memory_left ->
        enter(t, req[t]);
        req[t] = NONE;
        ans[t] = (alive(t) && !to_owner -> r : NONE);
        r = 0;
        forget_dead(t) }
    :: d_step { late[t] != NONE && memory_left -> enter(t, late[t]); repeat_leave(t, late[t]); late[t] = NONE; r = 0; forget_dead(t) }
    :: d_step { is(leaves, t) && may_leave(t) -> take(leaves, t); leave(t, true); forget_dead(t) }
#ifdef TEXTLESS
    :: d_step { is(returns, t) && may_leave(t) -> take(returns, t); leave(t, false); forget_dead(t) }
#endif
#ifdef TWICE
    :: d_step { is(leaves, t) && faults < FAULTS -> faults++; note_fault; leave(t, true) }
#endif
#ifdef MINIMAL
    :: d_step { is(leaves, t) && faults < FAULTS ->
        faults++;
        note_fault;
        take(leaves, t);
        if
        :: K == t -> end_grant()
        :: else
        fi;
        forget_dead(t) }
#endif
#if defined(OOM) && defined(M_PUBLISH_FIRST)
    /* The message is sent, SET is refused, and nothing else is done. */
    :: d_step { is(leaves, t) && no_memory && K == t && size > 0 && socket_of(Q[0]) == up && !is(news, Q[0]) -> put(news, Q[0]) }
#endif
#ifdef RENEW
    :: d_step { is(renewals, t) ->
        take(renewals, t);
        if
#ifdef M_RENEW_SETS
        :: K != t -> end_grant(); K = t; whole = true
#endif
        :: K == t ->
            whole = true;
#ifndef M_RENEWED_IGNORED
            if
            :: !any_client(mine, t) && alive(t) -> told = true; send_back(t)
            :: else
            fi
#endif
        :: else
        fi }
#endif
#ifdef LOSE
    :: d_step { req[t] != NONE && faults < FAULTS -> faults++; note_fault; note_doubt(t); req[t] = NONE; forget_dead(t) }
    :: d_step { req[t] != NONE && faults < FAULTS && memory_left ->
        faults++;
        note_fault;
        note_doubt(t);
        enter(t, req[t]);
        repeat_leave(t, req[t]);
        req[t] = NONE;
        r = 0;
        forget_dead(t) }
    :: d_step { req[t] != NONE && faults < FAULTS && late[t] == NONE ->
        faults++;
        note_fault;
        note_doubt(t);
        late[t] = req[t];
        req[t] = NONE }
#endif

    /* Its messages. */
#ifdef DUP
    :: d_step { is(news, t) && !is(stale, t) && faults < FAULTS -> faults++; note_fault; put(stale, t) }
#endif
    :: d_step { is(news, t) && to_waiter -> take(news, t); told = true; own(c) }
#ifndef COUNT
    :: d_step { is(news, t) && to_waiter -> take(news, t); told = true; recheck_due[c] = true } /* it came late */
#endif
    :: d_step { is(stale, t) && to_waiter ->
        take(stale, t);
        if
        :: is(robbed, t) -> own(c)
        :: else -> recheck_due[c] = true
        fi }
    :: d_step { is(news | stale, t) && to_owner ->
#ifdef M_HELD_LEAVES
        put(leaves, t);
#endif
        take(news, t);
        take(stale, t) }
    :: d_step { is(news | stale, t) && !to_waiter && !to_owner ->
        if
        :: is(news, t) -> told = true
        :: else
        fi;
#ifndef M_UNKNOWN_IGNORED
        send_back(t);
#endif
        take(news, t);
        take(stale, t);
        forget_dead(t) }
    /* An answer about a dead token. */
    :: d_step { ans[t] != NONE && !to_asker ->
        if
        :: to_owner
        :: else ->
            if
            :: ans[t] == granted -> told = true
            :: else
            fi;
#ifndef M_ANSWER_IGNORED
            send_back(t)
#endif
        fi;
        ans[t] = NONE;
        forget_dead(t) }
    od
}

inline rob() {
    if
    :: K != NONE -> put(robbed, K); end_grant()
    :: else
    fi
}
inline subscribe(q) {
    sub[q] = up;
    p = 0;
    do
    :: p < N ->
        if
        :: process(p) == q && w[p] == waits ->
            recheck_due[p] = true;
#ifndef M_OLD_ANSWER
            take(since, cur[p]);
            take(joined, cur[p])
#endif
        :: else
        fi;
        p++
    :: else -> break
    od;
    p = 0
}

/* TTLs, sockets, strangers. */
active proctype environment() {
    byte p;
end:
    do
    :: d_step { K != NONE && lost(K) ->
        assert(lossy || K == PLAIN_TOKEN || is(robbed, K) || !alive(K) || (!told && !whole));
        end_grant() }
    :: d_step { K != NONE && unheard(K) -> end_grant() }
#ifdef SLOW
    :: d_step { K != NONE && !any_client(believes, K) && faults < FAULTS -> faults++; note_fault; end_grant() }
#endif
#ifdef REFUSED
    :: d_step { !refusing && faults < FAULTS -> faults++; note_fault; refusing = true }
#endif
#ifdef OOM
    :: d_step { !no_memory && faults < FAULTS -> faults++; note_fault; no_memory = true }
    :: d_step { no_memory -> no_memory = false }
    /* Until then a lock that nobody may release ends by its TTL. */
    :: d_step { no_memory && K != NONE && is(leaves, K) && !any_client(mine, K) -> end_grant() }
#endif
#ifdef FOREIGN
    :: d_step { K != NONE && faults < FAULTS -> faults++; note_fault; rob() }
#endif
#ifdef EVICT
    :: d_step { size > 0 && faults < FAULTS -> faults++; note_fault; clear_queue(); p = 0 }
#endif
#define BREAKS(p, how) :: d_step { sub[p] == up && faults < FAULTS -> faults++; note_fault; break_socket(p); sub[p] = how }
#ifdef SOCKET
    BREAKS(0, down)
    BREAKS(1, down)
    BREAKS(N - 1, down)
#endif
#ifdef DEAF
    BREAKS(0, deaf)
    BREAKS(1, deaf)
    BREAKS(N - 1, deaf)
#endif
#ifdef STALL
    BREAKS(0, stalled)
    BREAKS(1, stalled)
    BREAKS(N - 1, stalled)
#endif
    /* Subscribed on a new socket: every waiter of the process rechecks. */
    :: d_step { sub[0] == down -> subscribe(0) }
    :: d_step { sub[1] == down -> subscribe(1) }
#if N > 2
    :: d_step { sub[2] == down -> subscribe(2) }
#endif
#if defined(RESTART) || defined(AOF)
    :: d_step { faults < FAULTS && may_fall_back ->
        faults++;
        note_fault;
        lossy = true;
        rob();
        clear_queue();
        p = 0;
        do
        :: p < N ->
            if
            :: sub[p] == half_open -> sub[p] = closed
            :: sub[p] == closed
            :: else -> break_socket(p)
            fi;
            p++
        :: else -> break
        od;
        p = 0;
#ifdef AOF
        K = old_K;
        size = old_size;
        do
        :: p < old_size -> Q[p] = old_Q[p]; p++
        :: else -> break
        od;
        p = 0
#endif
        }
#endif
#ifdef AOF
    :: d_step { !saved ->
        saved = true;
        old_K = K;
        old_size = size;
        do
        :: p < size -> old_Q[p] = Q[p]; p++
        :: else -> break
        od;
        p = 0 }
#endif
    :: false
    od
}

init {
    byte i;
    atomic {
        /* Some faults are left out from the start: a stuck waiter must not be freed by a fault to come. */
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
    assert(K == NONE);
#ifdef EXACT
    assert(size == 0)
#endif
}
