// A broken contract of a mutex, which clang finds (-Wthread-safety). With other compilers
// there is nothing to find.
#include <distlock/detail/thread_safety.hpp>

using distlock::detail::annotated_lock;
using distlock::detail::annotated_mutex;

struct account {
    int balance() DISTLOCK_REQUIRES(lock) { return money; }
    annotated_mutex lock;
    int money DISTLOCK_GUARDED_BY(lock) = 0;
};

// CASE_read_without_lock: reading variable .money. requires holding mutex
#if defined(CASE_read_without_lock)
int look(account& a) { return a.money; }
#elif defined(CASE_read_without_lock_ok)
int look(account& a) {
    const annotated_lock guard(a.lock);
    return a.money;
}
#endif

// CASE_write_after_unlock: writing variable .money. requires holding mutex
#if defined(CASE_write_after_unlock)
void pay(account& a) {
    annotated_lock guard(a.lock);
    guard.unlock();
    ++a.money;
}
#elif defined(CASE_write_after_unlock_ok)
void pay(account& a) {
    annotated_lock guard(a.lock);
    guard.unlock();
    guard.lock();
    ++a.money;
}
#endif

// CASE_call_without_lock: calling function .balance. requires holding mutex
#if defined(CASE_call_without_lock)
int look(account& a) { return a.balance(); }
#elif defined(CASE_call_without_lock_ok)
int look(account& a) {
    const annotated_lock guard(a.lock);
    return a.balance();
}
#endif

// CASE_lock_of_another: requires holding mutex .a.lock.
#if defined(CASE_lock_of_another)
int look(account& a, account& b) {
    const annotated_lock guard(b.lock);
    return a.money;
}
#elif defined(CASE_lock_of_another_ok)
int look(account& a, account& b) {
    const annotated_lock guard(a.lock);
    const annotated_lock other(b.lock);
    return a.money + b.money;
}
#endif

// CASE_locked_twice: acquiring mutex .a.lock. that is already held
#if defined(CASE_locked_twice)
void pay(account& a) {
    const annotated_lock guard(a.lock);
    const annotated_lock again(a.lock);
    ++a.money;
}
#elif defined(CASE_locked_twice_ok)
void pay(account& a) {
    {
        const annotated_lock guard(a.lock);
        ++a.money;
    }
    const annotated_lock again(a.lock);
    ++a.money;
}
#endif
