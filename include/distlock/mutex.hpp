// distlock::mutex: a std::mutex for a fleet of processes.
//
//   template <connection Conn, dialect Dialect = handoff, class Clock = clock>
//   class mutex {
//     mutex(Conn&, std::string name, lock_options = {}, std::shared_ptr<lease_observer> = {});
//     ~mutex();                                   // releases
//     void lock();
//     bool try_lock();
//     bool try_lock_for(duration);
//     bool try_lock_until(time_point);            // of any clock
//     release_outcome unlock() noexcept;
//     bool owns_lock() const noexcept;
//     time_point valid_until() const noexcept;
//     duration remaining() const noexcept;
//     std::stop_token lost() const;               // is stopped when the lock is lost
//     std::uint64_t fencing_token() const noexcept;
//     duration residual() const noexcept;         // of an unlock() the server did not confirm
//     const std::string& name() const noexcept;
//   };
//
// The four that take the lock also accept, as last arguments, a std::stop_token, a std::error_code&, or both
// in this order. With an error_code they return bool and do not throw.
#pragma once

#include <chrono>
#include <concepts>
#include <cstdint>
#include <memory>
#include <stop_token>
#include <string>
#include <system_error>
#include <utility>

#include <distlock/base/clock.hpp>
#include <distlock/base/error.hpp>
#include <distlock/base/observer.hpp>
#include <distlock/base/options.hpp>
#include <distlock/engine/call_forms.hpp>
#include <distlock/engine/lock_core.hpp>
#ifndef DISTLOCK_SEPARATE_COMPILATION
#include <distlock/engine/lock_core_impl.hpp>
#endif
#include <distlock/net/connection.hpp>
#include <distlock/wire/dialect.hpp>

namespace distlock {

namespace detail {
struct guard_access;
struct joint_access;
}  // namespace detail
template <connection Conn, dialect Dialect, class Clock>
class recursive_mutex;

/// A lock on a name, shared by all processes that use the same server and name.
///
/// Waiters over a subscribing_connection, such as hiredis_connection, are queued, and unlock() hands the lock
/// to the first of them (dialect handoff); or a message wakes them (redisson). All other waiters poll, in
/// jittered pauses of up to lock_options::recheck; so do those of handoff for a name with a `}` but no
/// `{hash tag}`. Where waiters poll, an owner that lately found the lock taken pauses before it locks again,
/// except in try_lock(): for a tenth of the time it held the lock, at most 50 ms and half of its time-out;
/// one that found nobody does so after each fourth release; for 2 ms with redisson.
///
/// The threads that share an object queue within the process, first come, first served. One of them waits on
/// the server for all, and unlock() passes the lock on to the next without a request to the server, for
/// lock_options::local_budget at most.
///
/// One object may be shared by the threads of a process, like a std::mutex; an acquisition may be released by
/// another thread than the one that took it. It meets the standard's TimedLockable requirements, so
/// std::lock_guard, std::unique_lock, std::scoped_lock and std::lock work.
///
/// A mutex here adds the lease: an owner may rely on the lock until valid_until(), and no longer. The
/// connection's background thread renews the lease while the lock is held; lost() tells when the lock was
/// lost. Then another thread may take it through the same object; the late unlock() of the thread that lost
/// it releases nothing and returns `expired`.
///
/// `lock` throws when retrying does not help; `try_*` return false only if the lock is held, be it by
/// this thread, or others wait for it, and throw if the server fails. The overloads with a `std::error_code&`
/// do not throw, and return whether they took the lock. They clear the code on success and on that false. But
/// if the owner's key has no TTL, they set errc::holder_without_ttl and return false. Where another thread of
/// the object asks the server, a try goes by what that thread heard in the last 200 ms; if it heard nothing,
/// one of the threads that try asks whether the server answers.
///
/// The overloads with a `std::stop_token` fail with errc::cancelled when a stop is requested: at once,
/// whatever the server does, over a connection that honours the stop request of a command (hiredis_connection
/// does). If a request that was already sent still takes the lock, the background thread releases it.
///
/// A call with a time-out returns by then, or with the server's last answers: a request that is sent just
/// before the time-out, or at it, may wait 50 to 200 ms for its answer.
///
/// `Conn` must outlive the mutex. `Clock` is for tests; its time points are those of distlock::clock,
/// and its now() does not throw.
template <connection Conn, dialect Dialect = handoff, class Clock = clock>
class mutex {
    static_assert(
        requires { requires std::same_as<typename Clock::time_point, clock::time_point>; },
        "Clock must use the time points of distlock::clock; shared_mutex and leader_election take no "
        "dialect");

  public:
    using connection_type = Conn;
    using clock_type = Clock;
    using time_point = clock::time_point;
    using duration = clock::duration;

    /// `observer` is told when the lease is at risk, and when it is lost.
    /// Effects: none on the server.
    /// Throws: error with errc::invalid_name, errc::invalid_lease, errc::invalid_option or
    /// errc::no_entropy; std::bad_alloc.
    mutex(Conn& connection, std::string name, lock_options options = {},
          std::shared_ptr<lease_observer> observer = {})
        : core_(engine::lock_core_of<Dialect, Clock>(connection, std::move(name), options,
                                                     std::move(observer))) {}

    mutex(const mutex&) = delete;
    mutex& operator=(const mutex&) = delete;

    /// Preconditions: no thread is in a member function.
    /// Effects: unlock(), if still locked; a renewal that is on its way is waited for: a command time-out at
    /// most, and connect_timeout() of the connection more where the server is to be found or reached first.
    /// In a child after fork(): none. The connection's destructor waits for callbacks that run; over a
    /// connection that is no service_hosting_connection (see connection.hpp) the destructor of its last mutex
    /// does.
    ~mutex() = default;

    /// Effects: waits until it has the lock, however long others hold it. Retries for lock_options::patience
    /// while the server is unreachable, loading, silent or a replica.
    /// Postconditions: owns_lock().
    /// Throws: error. errc::no_thread: no thread could be started to renew the lease; the lock was released
    /// again.
    /// Round trips: one if the lock is free. In the queue two, or one if this object found the lock taken by
    /// others the last time; one for each re-check; and one for a name of more than 179 bytes. None if
    /// another thread of this object passes the lock on.
    void lock() { lock(std::stop_token{}); }
    void lock(std::stop_token stop) {
        engine::throw_on_error(core_->acquire(clock::time_point::max(), {}, stop));
    }
    bool lock(std::error_code& ec) noexcept { return lock(std::stop_token{}, ec); }
    bool lock(std::stop_token stop, std::error_code& ec) noexcept {
        return engine::taken_or_error(ec, [&] { return core_->acquire(clock::time_point::max(), {}, stop); });
    }

    /// Effects: tries once, without waiting for another owner. If another thread of this object has asked the
    /// server and has no answer yet, waits for that answer: for command_timeout() and connect_timeout() of
    /// the connection at most, which over sentinel_connection and cluster_connection is twice the sum of
    /// those in the URI.
    /// Returns: whether it took the lock; false only when the lock is held, be it by this thread, or
    /// others wait for it.
    /// Throws: error.
    /// Round trips: one; two when somebody else has the lock, and this object did not find it taken the last
    /// time. While a posted release of this object is not confirmed, up to two more to ask about that, and
    /// two to try again.
    [[nodiscard("unless the result is true, the lock was not taken")]] bool try_lock() {
        return try_lock(std::stop_token{});
    }
    [[nodiscard("unless the result is true, the lock was not taken")]] bool try_lock(std::stop_token stop) {
        return engine::taken_or_throw(core_->acquire(clock::time_point::max(), {.once = true}, stop));
    }
    [[nodiscard("unless the result is true, the lock was not taken")]] bool try_lock(
        std::error_code& ec) noexcept {
        return try_lock(std::stop_token{}, ec);
    }
    [[nodiscard("unless the result is true, the lock was not taken")]] bool try_lock(
        std::stop_token stop, std::error_code& ec) noexcept {
        return engine::taken_or_error(
            ec, [&] { return core_->acquire(clock::time_point::max(), {.once = true}, stop); });
    }

    /// Effects: as lock(), for at most `timeout`; zero or less tries once.
    /// Returns: whether the lock was taken; false only as try_lock(), and when the time is up.
    /// Throws: error.
    /// Round trips: as lock(), and one when the time is up.
    template <class Rep, class Period>
    [[nodiscard("unless the result is true, the lock was not taken")]] bool try_lock_for(
        std::chrono::duration<Rep, Period> timeout, std::stop_token stop = {}) {
        return engine::taken_or_throw(core_->acquire(engine::after<Clock>(timeout), {}, stop));
    }
    template <class Rep, class Period>
    [[nodiscard("unless the result is true, the lock was not taken")]] bool try_lock_for(
        std::chrono::duration<Rep, Period> timeout, std::error_code& ec) noexcept {
        return try_lock_for(timeout, std::stop_token{}, ec);
    }
    template <class Rep, class Period>
    [[nodiscard("unless the result is true, the lock was not taken")]] bool try_lock_for(
        std::chrono::duration<Rep, Period> timeout, std::stop_token stop, std::error_code& ec) noexcept {
        return engine::taken_or_error(
            ec, [&] { return core_->acquire(engine::after<Clock>(timeout), {}, stop); });
    }

    /// Effects: as try_lock_for, until `Other`, any clock, reaches `deadline`. If that clock is set back
    /// during the wait, the call waits longer; if it is set forward, the call does not notice.
    template <detail::any_clock Other, class Duration>
    [[nodiscard("unless the result is true, the lock was not taken")]] bool try_lock_until(
        std::chrono::time_point<Other, Duration> deadline, std::stop_token stop = {}) {
        return engine::taken_or_throw(acquire_until(deadline, stop));
    }
    template <detail::any_clock Other, class Duration>
    [[nodiscard("unless the result is true, the lock was not taken")]] bool try_lock_until(
        std::chrono::time_point<Other, Duration> deadline, std::error_code& ec) noexcept {
        return try_lock_until(deadline, std::stop_token{}, ec);
    }
    template <detail::any_clock Other, class Duration>
    [[nodiscard("unless the result is true, the lock was not taken")]] bool try_lock_until(
        std::chrono::time_point<Other, Duration> deadline, std::stop_token stop,
        std::error_code& ec) noexcept {
        return engine::taken_or_error(ec, [&] { return acquire_until(deadline, stop); });
    }

    /// Effects: ends the calling thread's acquisition. A thread that has none ends a lost one that nobody has
    /// unlocked yet; if there is none, the present one of another thread, unless a distlock guard owns that.
    /// The server then hands the lock to the next waiter, or frees it. Another owner's lock is never touched.
    /// With release_mode::posted, over a posting_connection and while the lease lasts, unlock() sends the
    /// release and does not wait for the answer: the library reads it later, and repeats the release in the
    /// background thread if need be. unlock() waits 30 ms at most then, to connect or for room to send; for
    /// the answer, too, where 4,096 releases over this connection wait for theirs already. The object's next
    /// request is sent after the release.
    /// Before lock_options::hold_at_least is over, unlock() sends nothing, after a loss neither: the
    /// background thread sends the release at that time, even if the mutex was destroyed meanwhile.
    /// After a loss unlock() asks the server, unless another thread of this object has asked for the lock
    /// since: then it returns `expired`, whoever has the lock.
    /// Postconditions: that acquisition is over for this object, whatever the outcome.
    /// Returns: what happened; may be ignored. After `unreachable` and `refused` the library retries the
    /// release until the lease is over; see residual(). Retrying stops earlier, after a last try, when the
    /// connection is destroyed; or with the last mutex of a connection that is no service_hosting_connection.
    /// Round trips: none if posted or passed on to another thread of this object, or where it does not ask
    /// after a loss. Else one, or two if the answer is lost or the server refuses. unlock() does not wait for
    /// a renewal that is on its way.
    release_outcome unlock() noexcept { return core_->unlock(); }

    /// Returns: whether a lock is held through this object and not lost. In a thread that lost the lock and
    /// has not called unlock() since: false, whoever has it now. Local and cheap.
    bool owns_lock() const noexcept { return remaining() > duration::zero(); }

    /// Returns: until when the owner may rely on the present acquisition: each renewal moves it forward, only
    /// a loss moves it back. time_point{} if there is none.
    time_point valid_until() const noexcept { return core_->valid_until(); }

    /// Returns: how long until valid_until(); zero when the lock is not held.
    duration remaining() const noexcept { return detail::left_until<Clock>(valid_until()); }

    /// Returns: a token that is stopped once the present acquisition is lost: at valid_until() at the latest,
    /// whatever the server does, or when the server answers a renewal that the lock is no longer ours. One
    /// token for each acquisition, not stopped if it is released in time. After a loss, or while nothing is
    /// held: a stopped one. Callbacks run on a thread of the library that holds no mutex: they may block and
    /// call anything, unlock() as a lease_observer may. One that is registered after the loss runs at once,
    /// on the thread that registers it, and an unlock() there is that thread's own. An exception ends the
    /// program, as for any stop_callback.
    /// Throws: error(errc::no_thread), std::bad_alloc, on the first call for an acquisition.
    std::stop_token lost() const { return core_->lost(); }

    /// Returns: the fencing token of the present acquisition, lost or not: larger than any before it under
    /// this name. 0 when there is none, or without lock_options::fencing.
    std::uint64_t fencing_token() const noexcept { return core_->fence(); }

    /// Returns: how long an unconfirmed unlock(), one before the end of lock_options::hold_at_least, or an
    /// abandoned request that may still arrive, can keep others from the lock; zero if nothing can. Until the
    /// server has answered that hold_at_least is to be kept it may be a lease too long. Also zero where the
    /// library repeats the release no more: of those in doubt it repeats a thousand for each connection.
    duration residual() const noexcept { return core_->residual(); }

    /// Returns: the lock's key on the server: the name as it was given, behind what the dialect puts before
    /// it. inspect() and force_release() take the name without that.
    const std::string& name() const noexcept { return core_->name(); }

  protected:
    using result = engine::lock_core::result;
    using manner = engine::lock_core::manner;

    explicit mutex(std::unique_ptr<engine::lock_core> core) : core_(std::move(core)) {}

  private:
    friend detail::guard_access;
    friend detail::joint_access;
    friend recursive_mutex<Conn, Dialect, Clock>;

    const engine::lock_core& core() const noexcept { return *core_; }
    result acquire_guarded(const std::stop_token& stop) {
        return engine::throw_on_error(core_->acquire(clock::time_point::max(), {.guarded = true}, stop));
    }
    result adopt() noexcept { return core_->adopt(); }
    void end_guarded(std::uint64_t serial) noexcept { core_->unlock(serial); }
    void undo(std::uint64_t serial = 0) noexcept { core_->undo(serial); }
    result acquire(time_point until, const manner& how, const std::stop_token& stop) {
        return core_->acquire(until, how, stop);
    }

    template <detail::any_clock Other, class Duration>
    result acquire_until(std::chrono::time_point<Other, Duration> deadline, const std::stop_token& stop,
                         manner how = {}) {
        return engine::try_until(
            deadline, [&](auto left) { return core_->acquire(engine::after<Clock>(left), how, stop); });
    }

    const std::unique_ptr<engine::lock_core> core_;
};

template <connection Conn>
mutex(Conn&, std::string) -> mutex<Conn>;
template <connection Conn>
mutex(Conn&, std::string, lock_options) -> mutex<Conn>;
template <connection Conn>
mutex(Conn&, std::string, lock_options, std::shared_ptr<lease_observer>) -> mutex<Conn>;
template <class C, class Name, class... More>
mutex(C&&, Name&&, More&&...) -> mutex<detail::refused_connection_t<C>>;

}  // namespace distlock
