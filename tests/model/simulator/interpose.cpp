// The program's own pthreads, futexes, clocks and random bytes. What the executable defines wins over the C
// library's, also for libstdc++: so std::mutex, std::condition_variable, std::thread, std::stop_token and the
// library's parker are the ones everybody uses, and run on fibers. On no fiber there is one thread and
// nothing to wait for: locks are free, and the rest is the system's. Nothing public.
#include <algorithm>
#include <cerrno>
#include <cstdarg>
#include <cstdint>
#include <cstring>
#include <dlfcn.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "model/simulator/fibers.hpp"

namespace {

using sim::end_of_time;
using sim::fiber;
using sim::nanos;
using sim::scheduler;

scheduler* here() {
    scheduler* const s = scheduler::present();
    return s != nullptr && s->running() != nullptr && !s->looks_on() ? s : nullptr;
}

template <class F>
F* real(const char* name) {
    return reinterpret_cast<F*>(::dlsym(RTLD_NEXT, name));
}

// First come, first served; in the memory of the mutex or the condition, which is all zero at first.
struct line {
    fiber* first;
    fiber* last;

    void join(fiber& one) {
        one.behind = nullptr;
        one.called = false;
        (last != nullptr ? last->behind : first) = &one;
        last = &one;
    }
    fiber* next() {
        fiber* const one = first;
        if (one == nullptr) return nullptr;
        first = one->behind;
        if (first == nullptr) last = nullptr;
        one->called = true;
        return one;
    }
    void leave(const fiber& gone) {
        fiber* before = nullptr;
        for (fiber* one = first; one != nullptr; before = one, one = one->behind) {
            if (one != &gone) continue;
            (before != nullptr ? before->behind : first) = one->behind;
            if (last == one) last = before;
            return;
        }
    }
};

struct our_mutex {
    std::uint64_t owner;  // id of a fiber; 0: free
    std::uint32_t depth;
    std::uint32_t unused;
    int kind;  // where the C library has it
    int unused_too;
    line waiting;
};
static_assert(sizeof(our_mutex) <= sizeof(pthread_mutex_t) && offsetof(our_mutex, kind) == 16);
our_mutex& ours(pthread_mutex_t* m) { return *reinterpret_cast<our_mutex*>(m); }

line& ours(pthread_cond_t* c) { return *reinterpret_cast<line*>(c); }
static_assert(sizeof(line) <= sizeof(pthread_cond_t));

bool take(our_mutex& m, const fiber& me) {
    if (m.owner == me.id() && m.kind == PTHREAD_MUTEX_RECURSIVE) {
        ++m.depth;
        return true;
    }
    if (m.owner != 0) return false;
    m.owner = me.id();
    m.depth = 1;
    return true;
}

void lock(scheduler& s, our_mutex& m) {
    fiber& me = *s.running();
    while (!take(m, me)) {
        if (m.owner == me.id()) s.where().fail("a thread locks a mutex that it has");
        m.waiting.join(me);
        while (!me.called) s.park(end_of_time);
    }
}

void unlock(scheduler& s, our_mutex& m) {
    if (m.owner != s.running()->id()) s.where().fail("a thread unlocks a mutex that it does not have");
    if (--m.depth > 0) return;
    m.owner = 0;
    if (fiber* const next = m.waiting.next()) s.wake(*next);
}

nanos span_of(const timespec& t) { return std::chrono::seconds(t.tv_sec) + nanos(t.tv_nsec); }

// Returns: whether it was signalled in time.
bool wait_for_signal(scheduler& s, pthread_cond_t* c, pthread_mutex_t* m, nanos until) {
    fiber& me = *s.running();
    ours(c).join(me);
    unlock(s, ours(m));
    while (!me.called && s.where().now() < until) s.park(until);
    const bool called = me.called;
    if (!called) ours(c).leave(me);
    lock(s, ours(m));
    return called;
}

long futex(scheduler& s, const std::uint32_t* word, int what, std::uint32_t value, const timespec* span) {
    fiber& me = *s.running();
    auto& sleepers = s.sleepers;
    if ((what & FUTEX_CMD_MASK) == FUTEX_WAKE) {
        long woken = 0;
        for (std::size_t i = 0; i < sleepers.size() && woken < static_cast<long>(value);) {
            if (sleepers[i]->waits_at != word) {
                ++i;
                continue;
            }
            fiber& one = *sleepers[i];
            one.waits_at = nullptr;
            sleepers.erase(sleepers.begin() + static_cast<std::ptrdiff_t>(i));
            s.wake(one);
            ++woken;
        }
        s.stray();
        return woken;
    }
    if ((what & FUTEX_CMD_MASK) != FUTEX_WAIT) s.where().fail("a futex operation that nobody models");
    s.stray();
    if (*word != value) {
        errno = EAGAIN;
        return -1;
    }
    nanos until = end_of_time;
    if (span != nullptr) {
        const nanos shown = me.home().local(s.where().now());
        until = me.home().when(shown + span_of(*span));
    }
    me.waits_at = word;
    sleepers.push_back(&me);
    while (me.waits_at != nullptr && s.where().now() < until) s.park(until);
    if (me.waits_at == nullptr) return 0;
    me.waits_at = nullptr;
    sleepers.erase(std::find(sleepers.begin(), sleepers.end(), &me));
    errno = ETIMEDOUT;
    return -1;
}

}  // namespace

extern "C" {

int pthread_mutex_init(pthread_mutex_t* m, const pthread_mutexattr_t* /*how*/) noexcept {
    std::memset(m, 0, sizeof *m);
    return 0;
}
int pthread_mutex_destroy(pthread_mutex_t* m) noexcept {
    if (scheduler* const s = here(); s != nullptr && ours(m).owner != 0)
        s->where().fail("a mutex ends while it is locked");
    return 0;
}
int pthread_mutex_lock(pthread_mutex_t* m) noexcept {
    scheduler* const s = here();
    if (s == nullptr) {
        if (scheduler* const any = scheduler::present(); any != nullptr && ours(m).owner != 0)
            any->saw_locked = true;
        return 0;
    }
    s->stray();
    lock(*s, ours(m));
    return 0;
}
int pthread_mutex_trylock(pthread_mutex_t* m) noexcept {
    scheduler* const s = here();
    if (s == nullptr) return 0;
    s->stray();
    return take(ours(m), *s->running()) ? 0 : EBUSY;
}
int pthread_mutex_unlock(pthread_mutex_t* m) noexcept {
    scheduler* const s = here();
    if (s == nullptr) return 0;
    unlock(*s, ours(m));
    s->stray();
    return 0;
}

int pthread_cond_init(pthread_cond_t* c, const pthread_condattr_t* /*how*/) noexcept {
    std::memset(c, 0, sizeof *c);
    return 0;
}
int pthread_cond_destroy(pthread_cond_t* c) noexcept {
    if (scheduler* const s = here(); s != nullptr && ours(c).first != nullptr)
        s->where().fail("a condition variable ends while a thread waits at it");
    return 0;
}
int pthread_cond_signal(pthread_cond_t* c) noexcept {
    if (scheduler* const s = scheduler::present()) {
        if (fiber* const next = ours(c).next()) s->wake(*next);
        s->stray();
    }
    return 0;
}
int pthread_cond_broadcast(pthread_cond_t* c) noexcept {
    if (scheduler* const s = scheduler::present()) {
        while (fiber* const next = ours(c).next()) s->wake(*next);
        s->stray();
    }
    return 0;
}
int pthread_cond_wait(pthread_cond_t* c, pthread_mutex_t* m) {
    if (scheduler* const s = here()) wait_for_signal(*s, c, m, end_of_time);
    return 0;
}
int pthread_cond_clockwait(pthread_cond_t* c, pthread_mutex_t* m, clockid_t /*which*/,
                           const timespec* until) {
    scheduler* const s = here();
    if (s == nullptr) return ETIMEDOUT;
    return wait_for_signal(*s, c, m, s->running()->home().when(span_of(*until))) ? 0 : ETIMEDOUT;
}
int pthread_cond_timedwait(pthread_cond_t* c, pthread_mutex_t* m, const timespec* until) {
    return pthread_cond_clockwait(c, m, CLOCK_REALTIME, until);
}

int pthread_create(pthread_t* made, const pthread_attr_t* how, void* (*body)(void*),
                   void* argument) noexcept {
    scheduler* const s = here();
    if (s == nullptr) return real<decltype(pthread_create)>("pthread_create")(made, how, body, argument);
    if (s->where().random().chance(s->how().no_thread)) return EAGAIN;
    *made = s->spawn(s->running()->home(), body, argument).id();
    return 0;
}
int pthread_join(pthread_t which, void** result) {
    scheduler* const s = here();
    if (s == nullptr) return real<decltype(pthread_join)>("pthread_join")(which, result);
    void* const got = s->join(which);
    if (result != nullptr) *result = got;
    return 0;
}
int pthread_detach(pthread_t which) noexcept {
    scheduler* const s = here();
    if (s == nullptr) return real<decltype(pthread_detach)>("pthread_detach")(which);
    s->detach(which);
    return 0;
}
pthread_t pthread_self() noexcept {
    scheduler* const s = here();
    return s == nullptr ? ~pthread_t{0} : s->running()->id();
}
int pthread_setname_np(pthread_t /*which*/, const char* /*name*/) noexcept { return 0; }
int pthread_sigmask(int /*how*/, const sigset_t* /*set*/, sigset_t* before) noexcept {
    if (before != nullptr) sigemptyset(before);
    return 0;
}

int clock_gettime(clockid_t which, timespec* shown) noexcept {
    scheduler* const s = here();
    if (s == nullptr) {
        static auto* const ask = real<decltype(clock_gettime)>("clock_gettime");
        return ask(which, shown);
    }
    const nanos now = s->running()->home().local(s->where().now());
    const auto whole = std::chrono::duration_cast<std::chrono::seconds>(now);
    shown->tv_sec = static_cast<time_t>(whole.count());
    shown->tv_nsec = static_cast<long>((now - whole).count());
    s->stray();
    return 0;
}

int sched_yield() noexcept {
    if (scheduler* const s = here()) s->sleep(nanos(1000));
    return 0;
}
int nanosleep(const timespec* span, timespec* /*left*/) {
    if (scheduler* const s = here()) s->sleep(span_of(*span));
    return 0;
}

ssize_t getrandom(void* into, size_t size, unsigned how) {
    scheduler* const s = here();
    if (s == nullptr) return real<decltype(getrandom)>("getrandom")(into, size, how);
    for (std::size_t i = 0; i < size; i += sizeof(std::uint64_t)) {
        const std::uint64_t word = s->where().random().next();
        std::memcpy(static_cast<char*>(into) + i, &word, std::min(sizeof word, size - i));
    }
    return static_cast<ssize_t>(size);
}

long syscall(long number, ...) noexcept {
    va_list given;
    va_start(given, number);
    long a[6];
    for (long& one : a) one = va_arg(given, long);
    va_end(given);
    scheduler* const s = here();
    if (number == SYS_futex && s != nullptr) {
        return futex(*s, reinterpret_cast<const std::uint32_t*>(a[0]), static_cast<int>(a[1]),
                     static_cast<std::uint32_t>(a[2]), reinterpret_cast<const timespec*>(a[3]));
    }
    static auto* const ask = real<long(long, ...)>("syscall");
    return ask(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

}  // extern "C"
