/* How long an owner of queue.pml may believe, on a clock. There are two clients, and time goes from 0 to MAXT.

   The token's K ends OFFER ticks after a grant by ENTER or a hand-over, LEASE ticks after a renewal or a SET NX, and never
   earlier than it would have. Requests, answers and messages take any time. LATE of the requests are done once more, later, or
   only then. A cancelled client posts a LEAVE and starts again. RENEW: owners renew. SETNX: the first command is SET NX PX.
   What must hold: at any time one client at most believes that it owns.

   A message says the token and the number of its ticket. -DBASE=... says from when a client counts the validity that a
   message brings:
     1 from its first sending with this token                                                         holds
     2 from the last sending that was answered 'busy' if that answer spoke of the same ticket, else as 1 holds
     3 from the last sending that was answered 'busy', whatever ticket that answer spoke of           FAILS
     4 from the last sending, answered or not                                                         FAILS
     5 as 2, but from when the answer came                                                            FAILS
     6 from when the message came                                                                     FAILS
   An answer 'granted' counts from its sending. These FAIL, too:
     M_KEEP_TTL     an ENTER of the owner does not extend the TTL
     M_FROM_ANSWER  'granted' counts from when the answer came
     M_LEASE        'granted' by ENTER is believed for the whole lease after SET NX was sent
     M_RENEWED_CAME a renewal counts from when its answer came

   spin -DBASE=2 -a queue_clock.pml && gcc -O2 -DSAFETY -DCOLLAPSE -o pan pan.c && ./pan -m1000000 */
#ifndef BASE
#define BASE 2
#endif
#ifndef ATTEMPTS
#define ATTEMPTS 2 /* of client 1; client 0 has one */
#endif
#ifndef OFFER
#define OFFER 2
#endif
#ifndef LEASE
#define LEASE 3
#endif
#ifndef MAXT
#define MAXT 5
#endif
#ifndef LATE
#define LATE 1
#endif
#define N 2
#define TOKENS (N * ATTEMPTS)
#define NONE 0
mtype = { waits, owns, join, setnx, granted, busy };
#ifdef SETNX
#define FIRST setnx
#else
#define FIRST join
#endif

byte now;
/* The server. */
byte K, end_of_K;
byte Q[TOKENS + 1], size;
byte ticket[TOKENS + 1]; /* the number of its ticket that is queued */
byte number[TOKENS + 1]; /* the last one, of this token's */

/* Of the current token of each client. */
byte attempts[N], token[N];
mtype w[N], req[N], asked[N], ans[N]; /* asked: what the answer on its way is to */
bool renewing[N], renewed[N];
byte first[N], sent[N], renewed_from[N], until[N];
byte ans_number[N];                   /* of an answer 'busy' on its way */
byte base[N], base_number[N];         /* of the last one that came */
bool message[N], message2[N];
byte m_number[N], m2_number[N];

byte lates, late_token;
mtype late;
byte leaves; /* a set of tokens */
byte f, g, h;
bool r;

#define client_of(t) (((t) - 1) / ATTEMPTS)
#define current(t) (token[client_of(t)] == (t) && w[client_of(t)] != NONE)
#define believes(c) (w[c] == owns && now < until[c])

inline expire() {
    if
    :: K != NONE && now >= end_of_K -> K = NONE; end_of_K = 0
    :: else
    fi
}
inline extend(ticks) {
    if
    :: end_of_K < now + (ticks) -> end_of_K = now + (ticks)
    :: else
    fi
}
inline remove_at(i) {
    g = i;
    ticket[Q[i]] = 0;
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
inline tell(c, n) {
    if
    :: !message[c] -> message[c] = true; m_number[c] = n
    :: message[c] && !message2[c] -> message2[c] = true; m2_number[c] = n
    :: else /* one too many: it is lost */
    fi
}
inline pass(me) {
    do
    :: K == NONE && size > 0 ->
        f = Q[0];
        if
        :: f != me && current(f) -> tell(client_of(f), ticket[f])
        :: else /* its own, or of a dead token, which is answered by LEAVE: in queue.pml */
        fi;
        if
        :: f == me || current(f) -> K = f; extend(OFFER)
        :: else
        fi;
        remove_at(0)
    :: else -> break
    od;
    f = 0
}
/* r: granted */
inline enter(t, mode) {
    expire();
    r = false;
    if
    :: K == NONE && mode == setnx -> K = t; extend(LEASE); r = true
    :: K == t && mode != setnx ->
        r = true;
        remove(t);
#ifndef M_KEEP_TTL
        extend(OFFER)
#endif
    :: K == NONE && mode != setnx ->
        pass(t);
        if
        :: K == NONE -> K = t; extend(OFFER)
        :: else
        fi;
        r = K == t
    :: else
    fi;
    if
    :: !r && mode != setnx && ticket[t] == 0 -> number[t] = number[t] % 3 + 1; ticket[t] = number[t]; Q[size] = t; size++
    :: else
    fi
}
inline forget(c) {
    number[token[c]] = 0;
    w[c] = NONE;
    req[c] = NONE;
    asked[c] = NONE;
    ans[c] = NONE;
    renewing[c] = false;
    renewed[c] = false;
    first[c] = 0;
    sent[c] = 0;
    renewed_from[c] = 0;
    until[c] = 0;
    ans_number[c] = 0;
    base[c] = 0;
    base_number[c] = 0;
    message[c] = false;
    message2[c] = false;
    m_number[c] = 0;
    m2_number[c] = 0
}
inline own(c, from, ticks) {
    until[c] = (from) + (ticks);
    if
    :: now < until[c] -> w[c] = owns; base[c] = 0; base_number[c] = 0
    :: else -> until[c] = 0
    fi
}
#define one_owner assert(!(believes(0) && believes(1)))

/* What a message about ticket n is worth. */
inline judge(c, n) {
#if BASE == 1
    own(c, first[c], OFFER)
#elif BASE == 2 || BASE == 5
    if
    :: base_number[c] != 0 && base_number[c] == n -> own(c, base[c], OFFER)
    :: else -> own(c, first[c], OFFER)
    fi
#elif BASE == 3
    if
    :: base_number[c] != 0 -> own(c, base[c], OFFER)
    :: else -> own(c, first[c], OFFER)
    fi
#elif BASE == 4
    own(c, sent[c], OFFER)
#else
    own(c, now, OFFER)
#endif
}

proctype client(byte c) {
end:
    do
    :: d_step { w[c] == NONE && attempts[c] < (c == 0 -> 1 : ATTEMPTS) ->
        attempts[c]++;
        token[c] = c * ATTEMPTS + attempts[c];
        w[c] = waits;
        first[c] = now;
        sent[c] = now;
        req[c] = FIRST;
        asked[c] = FIRST }
    :: d_step { w[c] == waits && req[c] == NONE && ans[c] == NONE -> sent[c] = now; req[c] = join; asked[c] = join }
    :: d_step { req[c] != NONE && late == NONE && lates < LATE -> lates++; late_token = token[c]; late = req[c] }
    :: d_step { req[c] != NONE && late == NONE && lates < LATE ->
        lates++;
        late_token = token[c];
        late = req[c];
        req[c] = NONE;
        asked[c] = NONE }
    :: d_step { req[c] != NONE ->
        enter(token[c], req[c]);
        req[c] = NONE;
        ans[c] = (r -> granted : busy);
        if
        :: !r -> ans_number[c] = ticket[token[c]]
        :: else
        fi;
        r = false }
    :: d_step { ans[c] != NONE ->
        if
        :: ans[c] == granted && w[c] == waits ->
#if defined(M_FROM_ANSWER)
            own(c, now, OFFER)
#elif defined(M_LEASE)
            own(c, sent[c], LEASE)
#else
            own(c, sent[c], (asked[c] == setnx -> LEASE : OFFER))
#endif
        :: ans[c] == busy && w[c] == waits ->
#if BASE == 5
            base[c] = now;
#elif BASE != 1
            base[c] = sent[c];
#endif
#if BASE != 1
            base_number[c] = ans_number[c]
#endif
        :: else
        fi;
        ans[c] = NONE;
        asked[c] = NONE;
        ans_number[c] = 0;
#if BASE != 4
        sent[c] = 0;
#endif
        one_owner }
    :: d_step { message[c] ->
        if
        :: w[c] == waits -> judge(c, m_number[c])
        :: else
        fi;
        message[c] = message2[c];
        m_number[c] = m2_number[c];
        message2[c] = false;
        m2_number[c] = 0;
        one_owner }
#ifdef RENEW
    :: d_step { believes(c) && !renewing[c] && !renewed[c] -> renewing[c] = true; renewed_from[c] = now }
    :: d_step { renewing[c] -> renewing[c] = false; expire();
        if
        :: K == token[c] -> extend(LEASE); renewed[c] = true
        :: else
        fi }
    :: d_step { renewed[c] ->
        renewed[c] = false;
#ifdef M_RENEWED_CAME
        renewed_from[c] = now;
#endif
        if
        :: believes(c) && until[c] < renewed_from[c] + LEASE -> until[c] = renewed_from[c] + LEASE
        :: else
        fi;
        renewed_from[c] = 0;
        one_owner }
#endif
    /* It releases, or sees that its time is over, or is cancelled: the LEAVE comes at any time. */
    :: d_step { w[c] != NONE -> leaves = leaves | (1 << token[c]); forget(c) }
    od
}

#define LEAVE(t) :: d_step { (leaves >> t) & 1 -> \
        leaves = leaves & ~(1 << t); \
        expire(); \
        remove(t); \
        if \
        :: K == t -> K = NONE; end_of_K = 0; pass(NONE) \
        :: else \
        fi }

init {
    atomic { run client(0); run client(1) };
end:
    do
    :: d_step { now < MAXT -> now++; expire(); one_owner }
    :: d_step { late != NONE -> enter(late_token, late); late = NONE; late_token = 0; r = false }
    LEAVE(1)
    LEAVE(2)
#if TOKENS > 2
    LEAVE(3)
    LEAVE(4)
#endif
    od
}
