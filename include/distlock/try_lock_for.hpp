// distlock::try_lock_for: several locks, all or none, under one deadline.
//
//   bool try_lock_for(duration timeout, Locks&... locks);
//   bool try_lock_until(time_point deadline, Locks&... locks);      // of any clock
//
// Each lock is a mutex, a shared_mutex (for writing) or a recursive_mutex; a std::unique_lock of one of them
// or a std::shared_lock of a shared_mutex, made with std::defer_lock; or a permit made with std::defer_lock:
//
//   auto prices = std::shared_lock(price_list, std::defer_lock);
//   auto slot = distlock::permit(workers, std::defer_lock);
//   if (distlock::try_lock_for(1s, account, prices, slot)) ...
//
// Both also accept, before the locks, a std::stop_token, a std::error_code&, or both in this order. With an
// error_code they do not throw.
#pragma once

#include <array>
#include <chrono>
#include <mutex>
#include <shared_mutex>
#include <stop_token>
#include <string>
#include <system_error>
#include <tuple>
#include <utility>

#include <distlock/base/clock.hpp>
#include <distlock/counting_semaphore.hpp>
#include <distlock/detail/saturate.hpp>
#include <distlock/engine/call_forms.hpp>
#include <distlock/engine/joint_acquire.hpp>
#include <distlock/engine/joint_mutex.hpp>
#include <distlock/engine/lock_core.hpp>
#include <distlock/mutex.hpp>
#include <distlock/net/any_connection.hpp>
#include <distlock/recursive_mutex.hpp>
#include <distlock/shared_mutex.hpp>

namespace distlock {

namespace detail {

template <class Mutex>
class joint_reader : public joint_mutex<Mutex> {
    using joint_mutex<Mutex>::mutex_;
    using joint_mutex<Mutex>::serial_;

  public:
    using joint_mutex<Mutex>::joint_mutex;

    engine::lock_core::result acquire(clock::time_point until, const engine::lock_core::manner& how,
                                      const std::stop_token& stop) override {
        auto got = joint_access::acquire_shared(mutex_, until, how, stop);
        serial_ = got.serial;
        return got;
    }
    clock::time_point valid_until() const noexcept override {
        return joint_access::shared_until(mutex_, serial_);
    }
    void undo() noexcept override { joint_access::undo_shared(mutex_, serial_); }
};

// Throws: std::system_error, as the members of a std::unique_lock that lock.
inline void check_deferred(bool has_mutex, bool owns) {
    if (!has_mutex) throw std::system_error(std::make_error_code(std::errc::operation_not_permitted));
    if (owns) throw std::system_error(std::make_error_code(std::errc::resource_deadlock_would_occur));
}

// A guard of the standard's, which owns the lock afterwards.
template <template <class> class Guard, class Mutex, class Member>
class joint_guard final : public Member {
  public:
    explicit joint_guard(Guard<Mutex>& guard) : Member(mutex_of(guard)), guard_(guard) {}
    void adopt() const { guard_ = Guard<Mutex>(*guard_.mutex(), std::adopt_lock); }

  private:
    static Mutex& mutex_of(const Guard<Mutex>& guard) {
        check_deferred(guard.mutex() != nullptr, guard.owns_lock());
        return *guard.mutex();
    }
    Guard<Mutex>& guard_;
};

class joint_permit final : public engine::joint_member {
  public:
    explicit joint_permit(permit& one) : permit_(one) {
        check_deferred(joint_access::semaphore(one) != nullptr, one.n() > 0);
    }

    const std::string& name() const noexcept override { return semaphore().name(); }
    any_connection& connection() const noexcept override { return semaphore().connection(); }
    bool may_join() const override { return semaphore().may_join(); }
    clock::time_point now() const noexcept override { return semaphore().now(); }

    engine::lock_core::result acquire(clock::time_point until, const engine::lock_core::manner& how,
                                      const std::stop_token& stop) override {
        return joint_access::acquire(permit_, until, how, stop);
    }
    clock::time_point valid_until() const noexcept override { return permit_.valid_until(); }
    void undo() noexcept override { joint_access::undo(permit_); }
    clock::duration residual() const noexcept override { return semaphore().residual(); }

    void adopt() const noexcept {}

  private:
    engine::permit_core& semaphore() const noexcept { return *joint_access::semaphore(permit_); }
    permit& permit_;
};

template <connection Conn, dialect Dialect, class Clock>
joint_mutex<mutex<Conn, Dialect, Clock>> joint_member_of(mutex<Conn, Dialect, Clock>&);
template <connection Conn, class Clock>
joint_mutex<shared_mutex<Conn, Clock>> joint_member_of(shared_mutex<Conn, Clock>&);
template <connection Conn, dialect Dialect, class Clock>
joint_mutex<recursive_mutex<Conn, Dialect, Clock>> joint_member_of(recursive_mutex<Conn, Dialect, Clock>&);
template <class Mutex>
joint_guard<std::unique_lock, Mutex, joint_mutex<Mutex>> joint_member_of(std::unique_lock<Mutex>&);
template <class Mutex>
joint_guard<std::shared_lock, Mutex, joint_reader<Mutex>> joint_member_of(std::shared_lock<Mutex>&);
joint_permit joint_member_of(permit&);

template <class Lock>
using joint_member_for = decltype(joint_member_of(std::declval<Lock&>()));

template <class Lock>
concept jointly_lockable = requires {
    typename joint_member_for<Lock>;
};

template <class... Locks>
engine::lock_core::result acquire_jointly(clock::duration timeout, const std::stop_token& stop,
                                          Locks&... locks) {
    std::tuple<joint_member_for<Locks>...> parts(locks...);
    const auto acquire = [&](auto&... each) {
        std::array<engine::joint_member*, sizeof...(Locks)> members{&each...};
        const auto until = saturating_add(members.front()->now(), timeout);
        auto got = engine::acquire_all(members, until, stop);
        if (got.granted()) (each.adopt(), ...);
        return got;
    };
    return std::apply(acquire, parts);
}

template <class Rep, class Period, class... Locks>
engine::lock_core::result acquire_jointly_for(std::chrono::duration<Rep, Period> timeout,
                                              const std::stop_token& stop, Locks&... locks) {
    return acquire_jointly(saturating_cast<clock::duration, rounding::up>(timeout), stop, locks...);
}

template <class Clock, class Duration, class... Locks>
engine::lock_core::result acquire_jointly_until(std::chrono::time_point<Clock, Duration> deadline,
                                                const std::stop_token& stop, Locks&... locks) {
    return engine::try_until(deadline, [&](auto left) { return acquire_jointly_for(left, stop, locks...); });
}

}  // namespace detail

/// Effects: takes all the locks, or none. Waits until `timeout` is over; then tries each lock that is not
/// taken yet once, one after the other, as with a `timeout` of zero or less. The locks are taken in the order
/// of their names, as by scoped_lock, so that callers of the same locks never wait for each other in a
/// circle. While all are free, one command takes neighbours in that order that have one connection and one
/// slot. If one is not free, the call waits for one lock after the other, and keeps those that it has
/// meanwhile. It tries one whose lease ended during the wait once more, and begins anew if somebody else has
/// it.
/// Preconditions: the guards and permits among them have a lock each, and do not own it.
/// Returns: whether they were taken; false only when others have one, or wait for it, and the time is up.
/// Afterwards each is released on its own: a mutex by unlock(), a guard or a permit by its end.
/// Throws: error, as mutex::try_lock_for(); errc::deadlock when two of them are the same lock;
/// errc::lease_expired when the time is up and one that it had taken has ended meanwhile. std::system_error
/// for a guard or a permit that owns its lock, or has none.
/// Round trips: one while all are free, for each run of such locks; else those that the locks take alone,
/// and one more for each. Up to two more for each object whose posted release is not confirmed.
template <class Rep, class Period, detail::jointly_lockable... Locks>
    requires(sizeof...(Locks) > 0)
[[nodiscard("unless the result is true, no lock was taken")]] bool try_lock_for(
    std::chrono::duration<Rep, Period> timeout, std::stop_token stop, Locks&... locks) {
    return engine::taken_or_throw(detail::acquire_jointly_for(timeout, stop, locks...));
}
template <class Rep, class Period, detail::jointly_lockable... Locks>
    requires(sizeof...(Locks) > 0)
[[nodiscard("unless the result is true, no lock was taken")]] bool try_lock_for(
    std::chrono::duration<Rep, Period> timeout, Locks&... locks) {
    return distlock::try_lock_for(timeout, std::stop_token{}, locks...);
}
template <class Rep, class Period, detail::jointly_lockable... Locks>
    requires(sizeof...(Locks) > 0)
[[nodiscard("unless the result is true, no lock was taken")]] bool try_lock_for(
    std::chrono::duration<Rep, Period> timeout, std::stop_token stop, std::error_code& ec,
    Locks&... locks) noexcept {
    return engine::taken_or_error(ec, [&] { return detail::acquire_jointly_for(timeout, stop, locks...); });
}
template <class Rep, class Period, detail::jointly_lockable... Locks>
    requires(sizeof...(Locks) > 0)
[[nodiscard("unless the result is true, no lock was taken")]] bool try_lock_for(
    std::chrono::duration<Rep, Period> timeout, std::error_code& ec, Locks&... locks) noexcept {
    return distlock::try_lock_for(timeout, std::stop_token{}, ec, locks...);
}

/// Effects: as try_lock_for, until `Clock`, any clock, reaches `deadline`. If that clock is set back during
/// the wait, the call waits longer; if it is set forward, the call does not notice.
template <detail::any_clock Clock, class Duration, detail::jointly_lockable... Locks>
    requires(sizeof...(Locks) > 0)
[[nodiscard("unless the result is true, no lock was taken")]] bool try_lock_until(
    std::chrono::time_point<Clock, Duration> deadline, std::stop_token stop, Locks&... locks) {
    return engine::taken_or_throw(detail::acquire_jointly_until(deadline, stop, locks...));
}
template <detail::any_clock Clock, class Duration, detail::jointly_lockable... Locks>
    requires(sizeof...(Locks) > 0)
[[nodiscard("unless the result is true, no lock was taken")]] bool try_lock_until(
    std::chrono::time_point<Clock, Duration> deadline, Locks&... locks) {
    return distlock::try_lock_until(deadline, std::stop_token{}, locks...);
}
template <detail::any_clock Clock, class Duration, detail::jointly_lockable... Locks>
    requires(sizeof...(Locks) > 0)
[[nodiscard("unless the result is true, no lock was taken")]] bool try_lock_until(
    std::chrono::time_point<Clock, Duration> deadline, std::stop_token stop, std::error_code& ec,
    Locks&... locks) noexcept {
    return engine::taken_or_error(ec,
                                  [&] { return detail::acquire_jointly_until(deadline, stop, locks...); });
}
template <detail::any_clock Clock, class Duration, detail::jointly_lockable... Locks>
    requires(sizeof...(Locks) > 0)
[[nodiscard("unless the result is true, no lock was taken")]] bool try_lock_until(
    std::chrono::time_point<Clock, Duration> deadline, std::error_code& ec, Locks&... locks) noexcept {
    return distlock::try_lock_until(deadline, std::stop_token{}, ec, locks...);
}

}  // namespace distlock
