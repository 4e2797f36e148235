// What a mutex, its guard or a semaphore must refuse to do, or to be ignored at. (How cases are written:
// cmake/dev/compile_fail.cmake.)
#include <chrono>
#include <mutex>
#include <shared_mutex>
#include <stop_token>
#include <system_error>
#include <utility>

#include <distlock/distlock.hpp>

struct silent_server {
    distlock::reply execute(const distlock::command&) { return {}; }
};

silent_server server;
distlock::mutex orders{server, "orders:42"};

// CASE_copy: use of deleted function|deleted constructor
#if defined(CASE_copy)
distlock::mutex<silent_server> copy{orders};
#elif defined(CASE_copy_ok)
distlock::mutex<silent_server> same_name{server, orders.name()};
#endif

// CASE_copy_assign: use of deleted function|overload resolution selected deleted operator
#if defined(CASE_copy_assign)
void assign(distlock::mutex<silent_server>& other) { orders = other; }
#elif defined(CASE_copy_assign_ok)
void assign(distlock::mutex<silent_server>*& other) { other = &orders; }
#endif

// CASE_move: use of deleted function|deleted constructor
#if defined(CASE_move)
distlock::mutex<silent_server> moved{std::move(orders)};
#elif defined(CASE_move_ok)
distlock::mutex<silent_server>& referred{orders};
#endif

// CASE_temporary_connection: cannot bind non-const lvalue reference|no matching constructor|no viable
#if defined(CASE_temporary_connection)
distlock::mutex<silent_server> dangling{silent_server{}, "orders:42"};
#elif defined(CASE_temporary_connection_ok)
distlock::mutex<silent_server> lasting{server, "orders:42"};
#endif

// CASE_try_lock_ignored: unless the result is true, the lock was not taken
#if defined(CASE_try_lock_ignored)
void hope() { orders.try_lock(); }
#elif defined(CASE_try_lock_ignored_ok)
bool look() { return orders.try_lock(); }
#endif

// CASE_try_lock_for_ignored: unless the result is true, the lock was not taken
#if defined(CASE_try_lock_for_ignored)
void hope() { orders.try_lock_for(std::chrono::seconds{1}); }
#elif defined(CASE_try_lock_for_ignored_ok)
bool look() { return orders.try_lock_for(std::chrono::seconds{1}); }
#endif

// What is no clock by the standard's rules (is_steady is missing) may tell another time than it is waited by.
struct no_clock {
    using duration = std::chrono::milliseconds;
    using rep = duration::rep;
    using period = duration::period;
    using time_point = std::chrono::time_point<no_clock>;
    static time_point now() { return {}; }
};

// CASE_until_of_no_clock: no matching (member )?function
#if defined(CASE_until_of_no_clock)
bool wait(no_clock::time_point end) { return orders.try_lock_until(end); }
#elif defined(CASE_until_of_no_clock_ok)
bool wait(std::chrono::system_clock::time_point end) { return orders.try_lock_until(end); }
#endif

// CASE_recursive_until_of_no_clock: no matching (member )?function
#if defined(CASE_recursive_until_of_no_clock)
bool wait(distlock::recursive_mutex<silent_server>& m, no_clock::time_point end) {
    return m.try_lock_until(end);
}
#elif defined(CASE_recursive_until_of_no_clock_ok)
bool wait(distlock::recursive_mutex<silent_server>& m, std::chrono::steady_clock::time_point end) {
    return m.try_lock_until(end);
}
#endif

// CASE_until_of_no_clock_by_code: no matching (member )?function
#if defined(CASE_until_of_no_clock_by_code)
bool wait(no_clock::time_point end, std::error_code& ec) {
    return orders.try_lock_until(end, ec) || orders.try_lock_until(end, std::stop_token{}, ec);
}
#elif defined(CASE_until_of_no_clock_by_code_ok)
bool wait(distlock::clock::time_point end, std::error_code& ec) {
    return orders.try_lock_until(end, ec) || orders.try_lock_until(end, std::stop_token{}, ec);
}
#endif

// CASE_unnamed_guard: an unnamed guard releases the lock at once
#if defined(CASE_unnamed_guard)
void work() { distlock::scoped_lock<distlock::mutex<silent_server>>{orders}; }
#elif defined(CASE_unnamed_guard_ok)
void work() { distlock::scoped_lock guard{orders}; }
#endif

// CASE_guard_copy: use of deleted function|deleted constructor
#if defined(CASE_guard_copy)
void work(distlock::scoped_lock<distlock::mutex<silent_server>>& guard) { auto copy = guard; }
#elif defined(CASE_guard_copy_ok)
void work(distlock::scoped_lock<distlock::mutex<silent_server>>& guard) { auto moved = std::move(guard); }
#endif

// It said that a member was missing, a hundred lines deep.
// CASE_guard_that_adopts_last: to adopt one write scoped_lock guard.std::adopt_lock, m.
#if defined(CASE_guard_that_adopts_last)
void work() { distlock::scoped_lock guard{orders, std::adopt_lock}; }
#elif defined(CASE_guard_that_adopts_last_ok)
void work() { distlock::scoped_lock guard{std::adopt_lock, orders}; }
#endif

// The first line was that types could not be deduced.
// CASE_guard_with_a_time_out: to wait no longer than a time-out if .m.try_lock_for.timeout.., and adopt it
// then
#if defined(CASE_guard_with_a_time_out)
void work() { distlock::scoped_lock guard{orders, std::chrono::milliseconds{200}}; }
#elif defined(CASE_guard_with_a_time_out_ok)
void work() {
    if (orders.try_lock_for(std::chrono::milliseconds{200})) {
        distlock::scoped_lock guard{std::adopt_lock, orders};
    }
}
#endif

// CASE_guard_of_another_mutex: a distlock::scoped_lock guards a distlock::mutex
#if defined(CASE_guard_of_another_mutex)
void work(std::mutex& here) { distlock::scoped_lock guard{orders, here}; }
#elif defined(CASE_guard_of_another_mutex_ok)
void work(std::mutex& here) { std::scoped_lock guard{orders, here}; }
#endif

// The permit would outlive its semaphore.
// CASE_permit_of_a_temporary: discards qualifiers|no matching (member )?function|cannot bind|passing
#if defined(CASE_permit_of_a_temporary)
void work() { auto mine = distlock::counting_semaphore{server, "service", 2}.acquire(); }
#elif defined(CASE_permit_of_a_temporary_ok)
void work(distlock::counting_semaphore<silent_server>& service) { auto mine = service.acquire(); }
#endif

// CASE_tried_permit_of_a_temporary: discards qualifiers|no matching (member )?function|cannot bind|passing
#if defined(CASE_tried_permit_of_a_temporary)
void work() { auto mine = distlock::counting_semaphore{server, "service", 2}.try_acquire(); }
#elif defined(CASE_tried_permit_of_a_temporary_ok)
void work(distlock::counting_semaphore<silent_server>& service) { auto mine = service.try_acquire(); }
#endif

// CASE_timed_permit_of_a_temporary: discards qualifiers|no matching (member )?function|cannot bind|passing
#if defined(CASE_timed_permit_of_a_temporary)
void work() {
    auto mine = distlock::counting_semaphore{server, "service", 2}.try_acquire_for(std::chrono::seconds{1});
}
#elif defined(CASE_timed_permit_of_a_temporary_ok)
void work(distlock::counting_semaphore<silent_server>& service) {
    auto mine = service.try_acquire_for(std::chrono::seconds{1});
}
#endif

// CASE_permit_of_a_temporary_until: discards qualifiers|no matching (member )?function|cannot bind|passing
#if defined(CASE_permit_of_a_temporary_until)
void work(distlock::clock::time_point end) {
    auto mine = distlock::counting_semaphore{server, "service", 2}.try_acquire_until(end);
}
#elif defined(CASE_permit_of_a_temporary_until_ok)
void work(distlock::counting_semaphore<silent_server>& service, distlock::clock::time_point end) {
    auto mine = service.try_acquire_until(end);
}
#endif

// These were explained by what the bodies of the guards miss, or by sixty lines of candidates.
// CASE_guard_of_a_semaphore: of a semaphore take a distlock::permit
#if defined(CASE_guard_of_a_semaphore)
void work(distlock::counting_semaphore<silent_server>& service) { distlock::scoped_lock guard{service}; }
#elif defined(CASE_guard_of_a_semaphore_ok)
void work(distlock::counting_semaphore<silent_server>& service) { auto mine = service.acquire(); }
#endif

// CASE_guard_of_a_const_mutex: which are not const
#if defined(CASE_guard_of_a_const_mutex)
void work(const distlock::mutex<silent_server>& m) { distlock::scoped_lock guard{m}; }
#elif defined(CASE_guard_of_a_const_mutex_ok)
void work(distlock::mutex<silent_server>& m) { distlock::scoped_lock guard{m}; }
#endif

// CASE_shared_guard_of_another_mutex: reads under a distlock::shared_mutex
#if defined(CASE_shared_guard_of_another_mutex)
void work(std::shared_mutex& m) { distlock::shared_scoped_lock guard{m}; }
#elif defined(CASE_shared_guard_of_another_mutex_ok)
void work(distlock::shared_mutex<silent_server>& m) { distlock::shared_scoped_lock guard{m}; }
#endif

// CASE_shared_guard_that_adopts_last: to adopt a read write shared_scoped_lock guard.std::adopt_lock, m.
#if defined(CASE_shared_guard_that_adopts_last)
void work(distlock::shared_mutex<silent_server>& m) {
    distlock::shared_scoped_lock guard{m, std::adopt_lock};
}
#elif defined(CASE_shared_guard_that_adopts_last_ok)
void work(distlock::shared_mutex<silent_server>& m) {
    distlock::shared_scoped_lock guard{std::adopt_lock, m};
}
#endif

// CASE_shared_guard_with_a_time_out: to wait no longer than a time-out write if
// .m.try_lock_shared_for.timeout.
#if defined(CASE_shared_guard_with_a_time_out)
void work(distlock::shared_mutex<silent_server>& m) {
    distlock::shared_scoped_lock guard{m, std::chrono::milliseconds{200}};
}
#elif defined(CASE_shared_guard_with_a_time_out_ok)
void work(distlock::shared_mutex<silent_server>& m) {
    if (m.try_lock_shared_for(std::chrono::milliseconds{200})) {
        distlock::shared_scoped_lock guard{std::adopt_lock, m};
    }
}
#endif

// CASE_uri_for_a_connection: the first argument is no connection, or is const
#if defined(CASE_uri_for_a_connection)
distlock::mutex of_a_uri{"redis://127.0.0.1", "orders:42"};
#elif defined(CASE_uri_for_a_connection_ok)
distlock::mutex of_a_connection{server, "orders:42"};
#endif

// CASE_name_before_the_connection: the first argument is no connection, or is const
#if defined(CASE_name_before_the_connection)
distlock::counting_semaphore of_a_name{"service", server, 2};
#elif defined(CASE_name_before_the_connection_ok)
distlock::counting_semaphore of_a_server{server, "service", 2};
#endif

// CASE_work_that_takes_nothing: calls work.const distlock::leadership&.
#if defined(CASE_work_that_takes_nothing)
void lead(distlock::leader_election<silent_server>& e, std::stop_token stop) {
    e.run(stop, [] {});
}
#elif defined(CASE_work_that_takes_nothing_ok)
void lead(distlock::leader_election<silent_server>& e, std::stop_token stop) {
    e.run(stop, [](const distlock::leadership&) {});
}
#endif
