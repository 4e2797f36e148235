// distlock::counting_semaphore: so many permits under a name, for a fleet of processes.
//
//   template <connection Conn, class Clock = clock>
//   class counting_semaphore {
//     counting_semaphore(Conn&, std::string name, std::int64_t limit, lock_options = {},
//         std::shared_ptr<lease_observer> = {});
//     permit acquire(n = 1);
//     std::optional<permit> try_acquire(n = 1);
//     std::optional<permit> try_acquire_for(duration, n = 1);
//     std::optional<permit> try_acquire_until(time_point, n = 1);    // of any clock
//     std::int64_t resize(std::int64_t limit);  // for operators; or with a std::error_code&
//     std::int64_t limit() const noexcept;
//     duration residual() const noexcept;
//     const std::string& name() const noexcept;
//   };
//   class permit { permit(pool, std::defer_lock_t, n = 1); valid_until, remaining, lost, n, release };
//
// The four that take permits also accept, as last arguments, a std::stop_token, a std::error_code&, or both
// in this order. With an error_code they do not throw; on an error they return an empty permit or
// std::nullopt.
#pragma once

#include <algorithm>
#include <chrono>
#include <concepts>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <system_error>
#include <utility>

#include <distlock/base/clock.hpp>
#include <distlock/base/error.hpp>
#include <distlock/base/observer.hpp>
#include <distlock/base/options.hpp>
#include <distlock/detail/stop_token.hpp>
#include <distlock/detail/without_throwing.hpp>
#include <distlock/engine/call_forms.hpp>
#include <distlock/engine/permit_core.hpp>
#ifndef DISTLOCK_SEPARATE_COMPILATION
#include <distlock/engine/permit_pool.hpp>
#endif
#include <distlock/net/connection.hpp>
#include <distlock/wire/outcome.hpp>

namespace distlock {

template <connection Conn, class Clock>
class counting_semaphore;

namespace detail {
struct joint_access;
}

/// One or several permits of a semaphore, given back by the end of this object. It may move to another
/// thread. The semaphore must outlive it.
class permit {
  public:
    using time_point = clock::time_point;
    using duration = clock::duration;

    /// Postconditions: it has no permits.
    permit() noexcept = default;
    /// Postconditions: it has no permits yet. distlock::try_lock_for() takes `n`, or throws
    /// errc::invalid_option for n below 1 or above the limit.
    template <connection Conn, class Clock>
    permit(counting_semaphore<Conn, Clock>& pool, std::defer_lock_t, std::int64_t n = 1) noexcept
        : from_(pool.core_.get()), wants_(n) {}
    permit(permit&& other) noexcept
        : from_(std::exchange(other.from_, nullptr)),
          of_(std::exchange(other.of_, nullptr)),
          serial_(std::exchange(other.serial_, 0)),
          wants_(std::exchange(other.wants_, 0)) {}
    /// Effects: gives back what it has, then takes over what `other` has.
    permit& operator=(permit&& other) noexcept {
        if (this != &other) {
            release();
            from_ = std::exchange(other.from_, nullptr);
            of_ = std::exchange(other.of_, nullptr);
            serial_ = std::exchange(other.serial_, 0);
            wants_ = std::exchange(other.wants_, 0);
        }
        return *this;
    }
    permit(const permit&) = delete;
    permit& operator=(const permit&) = delete;
    ~permit() { release(); }

    /// Returns: whether it has permits, and has not lost them. Local and cheap.
    explicit operator bool() const noexcept { return remaining() > duration::zero(); }

    /// Returns: how many it was given; 0 before, and after a move or a release.
    std::int64_t n() const noexcept { return of_ == nullptr ? 0 : wants_; }

    /// Returns: until when the owner may rely on its permits: each renewal moves it forward, only a loss
    /// moves it back. time_point{} when it has none.
    time_point valid_until() const noexcept {
        return of_ == nullptr ? time_point{} : of_->valid_until(serial_);
    }

    /// Returns: how long until valid_until(); zero when it has no permits, or has lost them.
    duration remaining() const noexcept {
        if (of_ == nullptr) return duration::zero();
        const auto until = valid_until();
        return std::max(until - from_->now(), duration::zero());
    }

    /// Returns: a token that is stopped once they are lost: at valid_until() at the latest, whatever the
    /// server does; see mutex::lost(). When it has none: a stopped one.
    /// Throws: error(errc::no_thread), std::bad_alloc, on the first call.
    std::stop_token lost() const { return of_ == nullptr ? detail::stopped_token() : of_->lost(serial_); }

    /// Effects: gives the permits back. In the same step the server hands permits to the waiters at the front
    /// of the queue, in order, as long as there are enough.
    /// Returns: what happened, as mutex::unlock(); after a loss `expired`, whoever has them now, unless the
    /// server does not say; `not_held` when it has none.
    /// Round trips: as mutex::unlock().
    release_outcome release() noexcept {
        if (of_ == nullptr) return release_outcome::not_held;
        return from_->release(*std::exchange(of_, nullptr), std::exchange(serial_, 0));
    }

  private:
    template <connection Conn, class Clock>
    friend class counting_semaphore;
    friend detail::joint_access;
    permit(engine::permit_core& from, engine::lock_core& of, std::uint64_t serial, std::int64_t n) noexcept
        : from_(&from), of_(&of), serial_(serial), wants_(n) {}

    // Preconditions: it has a semaphore, and no permits.
    engine::lock_core::result acquire(time_point until, const engine::lock_core::manner& how,
                                      const std::stop_token& stop) {
        auto got = from_->acquire(wants_, until, how, stop);
        of_ = got.of;
        serial_ = got.serial;
        return got;
    }
    void undo() noexcept { from_->undo(*std::exchange(of_, nullptr), std::exchange(serial_, 0)); }

    engine::permit_core* from_ = nullptr;
    engine::lock_core* of_ = nullptr;
    std::uint64_t serial_ = 0;
    std::int64_t wants_ = 0;
};

/// At most `limit` permits are out, in all processes that use the same server and name. Those of a process
/// that dies come back when its lease ends.
///
/// First come, first served: a request for three is not overtaken by requests for one. Waiters over a
/// subscribing_connection are queued, and a release hands the permits over; all others poll.
///
/// There is no release() of the semaphore: it could give back somebody else's.
///
/// lock_options as for a mutex; each acquisition has a lease of its own. Without effect: `fencing`,
/// `owner_info`, `local_budget`.
///
/// Every process must give the same limit. The server keeps the limit while permits are out or waited for,
/// and after one was given back for 90 s, a lease or three re-checks, whichever is longest. A process that
/// gives another limit meanwhile gets errc::limit_mismatch; the message names both limits.
///
/// All members may be called from several threads. `Conn` must outlive the semaphore.
template <connection Conn, class Clock = clock>
class counting_semaphore {
    static_assert(
        requires { requires std::same_as<typename Clock::time_point, clock::time_point>; },
        "Clock must use the time points of distlock::clock; counting_semaphore<Conn, Clock> takes no "
        "dialect");
    using result = engine::permit_core::result;

  public:
    using connection_type = Conn;
    using clock_type = Clock;
    using time_point = clock::time_point;
    using duration = clock::duration;

    /// `observer` is told when a permit's lease is at risk, and when it is lost.
    /// Effects: none on the server.
    /// Throws: error with errc::invalid_name, errc::invalid_lease, errc::invalid_option (a limit is from 1 to
    /// 2^31) or errc::no_entropy; std::bad_alloc.
    counting_semaphore(Conn& connection, std::string name, std::int64_t limit,
                       const lock_options& options = {}, std::shared_ptr<lease_observer> observer = {})
        : core_(engine::permit_core_of<Clock>(connection, std::move(name), limit, options,
                                              std::move(observer))) {}

    counting_semaphore(const counting_semaphore&) = delete;
    counting_semaphore& operator=(const counting_semaphore&) = delete;
    /// Preconditions: no thread is in a member function, and no permit is out.
    ~counting_semaphore() = default;

    /// Effects: waits until there are `n` permits for this caller, however long. Retries a server that is
    /// unreachable, loading, silent or a replica for lock_options::patience.
    /// Throws: error, as mutex::lock(); errc::invalid_option for n below 1 or above the limit,
    /// errc::limit_mismatch.
    /// Round trips: one if they are there; two in the queue, or one if they were not there the last time.
    [[nodiscard("a permit that is dropped is given back at once")]] permit acquire(
        std::int64_t n = 1, std::stop_token stop = {}) & {
        return *given_or_throw(n, core_->acquire(n, time_point::max(), {}, stop));
    }
    [[nodiscard("a permit that is dropped is given back at once")]] permit acquire(std::stop_token stop) & {
        return acquire(1, std::move(stop));
    }
    [[nodiscard("a permit that is dropped is given back at once")]] permit acquire(
        std::int64_t n, std::stop_token stop, std::error_code& ec) & noexcept {
        return given_or_error(n, ec, [&] { return core_->acquire(n, time_point::max(), {}, stop); })
            .value_or(permit());
    }
    [[nodiscard("a permit that is dropped is given back at once")]] permit acquire(
        std::int64_t n, std::error_code& ec) & noexcept {
        return acquire(n, std::stop_token{}, ec);
    }
    [[nodiscard("a permit that is dropped is given back at once")]] permit acquire(
        std::stop_token stop, std::error_code& ec) & noexcept {
        return acquire(1, std::move(stop), ec);
    }
    [[nodiscard("a permit that is dropped is given back at once")]] permit acquire(
        std::error_code& ec) & noexcept {
        return acquire(1, std::stop_token{}, ec);
    }

    /// Effects: tries once, without waiting for others.
    /// Returns: the permits; none only when they are out, or others wait.
    /// Throws: error, as acquire().
    /// Round trips: one, and more while a posted release of this object is not confirmed, as
    /// mutex::try_lock().
    [[nodiscard("a permit that is dropped is given back at once")]] std::optional<permit> try_acquire(
        std::int64_t n = 1, std::stop_token stop = {}) & {
        return given_or_throw(n, core_->acquire(n, time_point::max(), {.once = true}, stop));
    }
    [[nodiscard("a permit that is dropped is given back at once")]] std::optional<permit> try_acquire(
        std::stop_token stop) & {
        return try_acquire(1, std::move(stop));
    }
    [[nodiscard("a permit that is dropped is given back at once")]] std::optional<permit> try_acquire(
        std::int64_t n, std::stop_token stop, std::error_code& ec) & noexcept {
        return given_or_error(n, ec,
                              [&] { return core_->acquire(n, time_point::max(), {.once = true}, stop); });
    }
    [[nodiscard("a permit that is dropped is given back at once")]] std::optional<permit> try_acquire(
        std::int64_t n, std::error_code& ec) & noexcept {
        return try_acquire(n, std::stop_token{}, ec);
    }
    [[nodiscard("a permit that is dropped is given back at once")]] std::optional<permit> try_acquire(
        std::stop_token stop, std::error_code& ec) & noexcept {
        return try_acquire(1, std::move(stop), ec);
    }
    [[nodiscard("a permit that is dropped is given back at once")]] std::optional<permit> try_acquire(
        std::error_code& ec) & noexcept {
        return try_acquire(1, std::stop_token{}, ec);
    }

    /// Effects: as acquire(), for at most `timeout`; zero or less tries once.
    /// Returns: the permits; none only as try_acquire(), and when the time is up.
    /// Throws: error, as acquire().
    /// Round trips: as acquire(), and one when the time is up.
    template <class Rep, class Period>
    [[nodiscard("a permit that is dropped is given back at once")]] std::optional<permit> try_acquire_for(
        std::chrono::duration<Rep, Period> timeout, std::int64_t n = 1, std::stop_token stop = {}) & {
        return given_or_throw(n, core_->acquire(n, engine::after<Clock>(timeout), {}, stop));
    }
    template <class Rep, class Period>
    [[nodiscard("a permit that is dropped is given back at once")]] std::optional<permit> try_acquire_for(
        std::chrono::duration<Rep, Period> timeout, std::stop_token stop) & {
        return try_acquire_for(timeout, 1, std::move(stop));
    }
    template <class Rep, class Period>
    [[nodiscard("a permit that is dropped is given back at once")]] std::optional<permit> try_acquire_for(
        std::chrono::duration<Rep, Period> timeout, std::int64_t n, std::stop_token stop,
        std::error_code& ec) & noexcept {
        return given_or_error(n, ec,
                              [&] { return core_->acquire(n, engine::after<Clock>(timeout), {}, stop); });
    }
    template <class Rep, class Period>
    [[nodiscard("a permit that is dropped is given back at once")]] std::optional<permit> try_acquire_for(
        std::chrono::duration<Rep, Period> timeout, std::int64_t n, std::error_code& ec) & noexcept {
        return try_acquire_for(timeout, n, std::stop_token{}, ec);
    }
    template <class Rep, class Period>
    [[nodiscard("a permit that is dropped is given back at once")]] std::optional<permit> try_acquire_for(
        std::chrono::duration<Rep, Period> timeout, std::stop_token stop, std::error_code& ec) & noexcept {
        return try_acquire_for(timeout, 1, std::move(stop), ec);
    }
    template <class Rep, class Period>
    [[nodiscard("a permit that is dropped is given back at once")]] std::optional<permit> try_acquire_for(
        std::chrono::duration<Rep, Period> timeout, std::error_code& ec) & noexcept {
        return try_acquire_for(timeout, 1, std::stop_token{}, ec);
    }

    /// Effects: as try_acquire_for, until `Other`, any clock, reaches `deadline`. If that clock is set back
    /// during the wait, the call waits longer; if it is set forward, the call does not notice.
    template <detail::any_clock Other, class Duration>
    [[nodiscard("a permit that is dropped is given back at once")]] std::optional<permit> try_acquire_until(
        std::chrono::time_point<Other, Duration> deadline, std::int64_t n = 1, std::stop_token stop = {}) & {
        return given_or_throw(n, acquire_until(deadline, n, stop));
    }
    template <detail::any_clock Other, class Duration>
    [[nodiscard("a permit that is dropped is given back at once")]] std::optional<permit> try_acquire_until(
        std::chrono::time_point<Other, Duration> deadline, std::stop_token stop) & {
        return try_acquire_until(deadline, 1, std::move(stop));
    }
    template <detail::any_clock Other, class Duration>
    [[nodiscard("a permit that is dropped is given back at once")]] std::optional<permit> try_acquire_until(
        std::chrono::time_point<Other, Duration> deadline, std::int64_t n, std::stop_token stop,
        std::error_code& ec) & noexcept {
        return given_or_error(n, ec, [&] { return acquire_until(deadline, n, stop); });
    }
    template <detail::any_clock Other, class Duration>
    [[nodiscard("a permit that is dropped is given back at once")]] std::optional<permit> try_acquire_until(
        std::chrono::time_point<Other, Duration> deadline, std::int64_t n, std::error_code& ec) & noexcept {
        return try_acquire_until(deadline, n, std::stop_token{}, ec);
    }
    template <detail::any_clock Other, class Duration>
    [[nodiscard("a permit that is dropped is given back at once")]] std::optional<permit> try_acquire_until(
        std::chrono::time_point<Other, Duration> deadline, std::stop_token stop,
        std::error_code& ec) & noexcept {
        return try_acquire_until(deadline, 1, std::move(stop), ec);
    }
    template <detail::any_clock Other, class Duration>
    [[nodiscard("a permit that is dropped is given back at once")]] std::optional<permit> try_acquire_until(
        std::chrono::time_point<Other, Duration> deadline, std::error_code& ec) & noexcept {
        return try_acquire_until(deadline, 1, std::stop_token{}, ec);
    }

    /// Effects: there are `limit` permits from now on, here, and on the server for as long as it keeps the
    /// limit (see above): after that the first request sets it anew. If more are out, none is given
    /// until enough have come back. Other objects with the old limit fail with errc::limit_mismatch when they
    /// ask for permits meanwhile. A queued waiter keeps its position; its call fails only if it asked for
    /// more permits than there are now. A waiter over a connection that cannot subscribe polls, and so fails,
    /// too.
    /// Returns: how many are out.
    /// Throws: error; errc::invalid_option for a limit that is not from 1 to 2^31.
    /// If no answer came, or the user may not do all that it needs, the limit on the server may be either:
    /// then resize() again.
    /// Round trips: one, or two where the first had no answer; after those of other threads that resize this
    /// object at the moment.
    std::int64_t resize(std::int64_t limit) { return core_->resize(limit); }
    /// Returns: 0 where it failed.
    std::int64_t resize(std::int64_t limit, std::error_code& ec) noexcept {
        return detail::without_throwing(ec, [&] { return core_->resize(limit); });
    }

    /// Returns: the limit that this object was given, or resized to; nothing of the server's.
    std::int64_t limit() const noexcept { return core_->limit(); }

    /// Returns: how long unconfirmed releases, or abandoned requests that may still arrive, can keep
    /// others from permits; zero if nothing can, and where the library repeats the release no more: see
    /// mutex::residual().
    duration residual() const noexcept { return core_->residual(); }

    /// Returns: as mutex::name().
    const std::string& name() const noexcept { return core_->name(); }

  private:
    friend permit;

    template <detail::any_clock Other, class Duration>
    result acquire_until(std::chrono::time_point<Other, Duration> deadline, std::int64_t n,
                         const std::stop_token& stop) {
        return engine::try_until(
            deadline, [&](auto left) { return core_->acquire(n, engine::after<Clock>(left), {}, stop); });
    }

    std::optional<permit> given(std::int64_t n, const result& got) noexcept {
        if (got.of == nullptr) return std::nullopt;
        return permit(*core_, *got.of, got.serial, n);
    }
    std::optional<permit> given_or_throw(std::int64_t n, result got) {
        return given(n, engine::throw_on_error(std::move(got)));
    }
    template <class Attempt>
    std::optional<permit> given_or_error(std::int64_t n, std::error_code& ec, Attempt attempt) noexcept {
        return given(n, engine::result_or_error(ec, attempt));
    }

    const std::unique_ptr<engine::permit_core> core_;
};

template <connection Conn>
counting_semaphore(Conn&, std::string, std::int64_t) -> counting_semaphore<Conn>;
template <connection Conn>
counting_semaphore(Conn&, std::string, std::int64_t, lock_options) -> counting_semaphore<Conn>;
template <connection Conn>
counting_semaphore(Conn&, std::string, std::int64_t, lock_options, std::shared_ptr<lease_observer>)
    -> counting_semaphore<Conn>;
template <class C, class Name, class... More>
counting_semaphore(C&&, Name&&, More&&...) -> counting_semaphore<detail::refused_connection_t<C>>;

}  // namespace distlock
