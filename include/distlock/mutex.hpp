// distlock::mutex: a std::mutex for a fleet of processes.
//
//   template <connection Conn, class Dialect = plain, class Clock = clock>
//   class mutex {
//     mutex(Conn&, std::string name, lock_options = {});
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
// The four that take the lock have overloads with a std::stop_token, with a std::error_code& (which throw nothing and
// return bool), and with both, in this order, behind their own arguments.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <concepts>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <stop_token>
#include <string>
#include <sys/types.h>
#include <system_error>
#include <thread>
#include <utility>

#include <distlock/base/clock.hpp>
#include <distlock/base/error.hpp>
#include <distlock/base/options.hpp>
#include <distlock/base/token.hpp>
#include <distlock/detail/parent_only.hpp>
#include <distlock/detail/pause.hpp>
#include <distlock/detail/printable.hpp>
#include <distlock/detail/process.hpp>
#include <distlock/detail/saturate.hpp>
#include <distlock/engine/driver.hpp>
#include <distlock/engine/held_lock.hpp>
#include <distlock/engine/strays.hpp>
#include <distlock/net/connection.hpp>
#include <distlock/wire/plain.hpp>

namespace distlock {

namespace detail {
struct guard_access;
}

/// A lock on a name, shared by all processes that use the same server and name.
///
/// One object may be shared by the threads of a process, like a std::mutex; an acquisition may be released by
/// another thread than the one that took it. It meets the standard's TimedLockable requirements, so
/// std::lock_guard, std::unique_lock, std::scoped_lock and std::lock work. What it adds is the lease: a grant
/// is believed until valid_until() and no longer. It is renewed in the background for as long as the lock is held,
/// and lost() tells when that did not succeed. When the lease of one thread is lost, another may take the lock
/// through the same object; the late unlock() of the first releases nothing and says `expired`.
///
/// The functions that take a lock: `lock` throws on what cannot be waited out; `try_*` return false only
/// because somebody else has the lock, and throw when the server is the trouble. The overloads with a
/// `std::error_code&` throw nothing, clear it on success and when somebody else has the lock, and return
/// whether the lock was taken; beside false they may say errc::holder_without_ttl. The overloads with a
/// `std::stop_token` fail with errc::cancelled when it is requested. A time-out bounds the whole call, round
/// trips included.
///
/// `Conn` must outlive the mutex. `Clock` is for tests; its time points are those of distlock::clock.
template <connection Conn, class Dialect = plain, class Clock = clock>
class mutex {
    static_assert(std::same_as<typename Clock::time_point, clock::time_point>,
                  "Clock must use the time points of distlock::clock");

  public:
    using connection_type = Conn;
    using clock_type = Clock;
    using time_point = clock::time_point;
    using duration = clock::duration;

    /// Effects: none on the server.
    /// Throws: error with errc::invalid_name, errc::invalid_lease or errc::invalid_option.
    mutex(Conn& connection, std::string name, lock_options options = {})
        : connection_(connection),
          options_((check(options, connection), std::move(options))),
          dialect_(std::move(name), options_),
          held_(connection_, dialect_, options_, state_, gate_.get()) {}

    mutex(const mutex&) = delete;
    mutex& operator=(const mutex&) = delete;

    /// Preconditions: no thread is in a member function.
    /// Effects: unlock(), if a thread forgot. In a child after fork(): none.
    ~mutex() {
        if (detail::current_process() != process_) return;
        std::unique_lock guard(state_);
        if (held_.get() != nullptr) release_hold(guard);
    }

    /// Effects: waits until the lock is taken. A server that is unreachable, loading or silent is ridden out
    /// for lock_options::patience.
    /// Postconditions: owns_lock().
    /// Throws: error, with what cannot be waited out.
    /// Round trips: one when the lock is free.
    void lock() { lock(std::stop_token{}); }
    void lock(std::stop_token stop) { must(acquire(clock::time_point::max(), {}, stop)); }
    bool lock(std::error_code& ec) noexcept { return lock(std::stop_token{}, ec); }
    bool lock(std::stop_token stop, std::error_code& ec) noexcept {
        return quietly(ec, [&] { return acquire(clock::time_point::max(), {}, stop); });
    }

    /// Effects: tries once, without waiting for another owner.
    /// Returns: whether the lock was taken; false only when somebody else has it.
    /// Throws: error.
    /// Round trips: one; two when the lock was found taken.
    [[nodiscard("unless the result is true, the lock was not taken")]] bool try_lock() {
        return try_lock(std::stop_token{});
    }
    [[nodiscard("unless the result is true, the lock was not taken")]] bool try_lock(std::stop_token stop) {
        return may(acquire(clock::time_point::max(), {.once = true}, stop));
    }
    [[nodiscard("unless the result is true, the lock was not taken")]] bool try_lock(
        std::error_code& ec) noexcept {
        return try_lock(std::stop_token{}, ec);
    }
    [[nodiscard("unless the result is true, the lock was not taken")]] bool try_lock(
        std::stop_token stop, std::error_code& ec) noexcept {
        return quietly(ec, [&] { return acquire(clock::time_point::max(), {.once = true}, stop); });
    }

    /// Effects: as lock(), for at most `timeout`; zero or less tries once.
    /// Returns: whether the lock was taken; false only when somebody else has it and the time is up.
    /// Throws: error.
    template <class Rep, class Period>
    [[nodiscard("unless the result is true, the lock was not taken")]] bool try_lock_for(
        std::chrono::duration<Rep, Period> timeout, std::stop_token stop = {}) {
        return may(acquire(after(timeout), {}, stop));
    }
    template <class Rep, class Period>
    [[nodiscard("unless the result is true, the lock was not taken")]] bool try_lock_for(
        std::chrono::duration<Rep, Period> timeout, std::error_code& ec) noexcept {
        return try_lock_for(timeout, std::stop_token{}, ec);
    }
    template <class Rep, class Period>
    [[nodiscard("unless the result is true, the lock was not taken")]] bool try_lock_for(
        std::chrono::duration<Rep, Period> timeout, std::stop_token stop, std::error_code& ec) noexcept {
        return quietly(ec, [&] { return acquire(after(timeout), {}, stop); });
    }

    /// Effects: as try_lock_for, until `Other`, any clock, reaches `deadline`. A clock that is set back
    /// meanwhile prolongs the wait.
    template <class Other, class Duration>
    [[nodiscard("unless the result is true, the lock was not taken")]] bool try_lock_until(
        std::chrono::time_point<Other, Duration> deadline, std::stop_token stop = {}) {
        return may(acquire_until(deadline, stop));
    }
    template <class Other, class Duration>
    [[nodiscard("unless the result is true, the lock was not taken")]] bool try_lock_until(
        std::chrono::time_point<Other, Duration> deadline, std::error_code& ec) noexcept {
        return try_lock_until(deadline, std::stop_token{}, ec);
    }
    template <class Other, class Duration>
    [[nodiscard("unless the result is true, the lock was not taken")]] bool try_lock_until(
        std::chrono::time_point<Other, Duration> deadline, std::stop_token stop,
        std::error_code& ec) noexcept {
        return quietly(ec, [&] { return acquire_until(deadline, stop); });
    }

    /// Effects: frees the lock if it is still ours, by compare-and-delete; nobody else's lock is ever
    /// touched. It ends the acquisition of the calling thread if that has the lock; else one whose lease ran
    /// out and that was not unlocked yet; else the present one, taken by another thread.
    /// Postconditions: that acquisition is over for this object, whatever the outcome.
    /// Returns: what happened; may be ignored. After `unreachable` and `refused` the release is tried again in the
    /// background until the lease is over, for as long as the connection lives; see residual().
    /// Round trips: one; two when the answer is lost. When the lease is just being renewed, that is waited for.
    release_outcome unlock() noexcept {
        if (detail::current_process() != process_) return release_outcome::wrong_process;
        std::unique_lock guard(state_);
        // An unlock() still owed by somebody whose lease ran out must not free the lock of the one who has it now.
        const auto* const held = held_.get();
        const bool mine = held != nullptr && held->taker == std::this_thread::get_id();
        if (!mine && strays_.forget(std::this_thread::get_id())) return release_outcome::expired;
        return held != nullptr ? release_hold(guard) : release_outcome::not_held;
    }

    /// Returns: whether a lock is held through this object and not lost. Local and cheap.
    bool owns_lock() const noexcept { return Clock::now() < valid_until(); }

    /// Returns: the end of the present acquisition's validity, as far as it is renewed; it never goes back, but by a
    /// loss. time_point{} when there is none.
    time_point valid_until() const noexcept {
        if (detail::current_process() != process_) return {};
        const std::lock_guard guard(state_);
        return held_.until();
    }

    /// Returns: how long the lock may still be believed held; zero when it is not.
    duration remaining() const noexcept {
        const auto left = valid_until() - Clock::now();
        return left > duration::zero() ? left : duration::zero();
    }

    /// Returns: a token that is stopped once the present acquisition is lost: at valid_until() at the latest, whatever
    /// the server does, or when the server says that somebody else has the lock. The same for the whole of an
    /// acquisition; never stopped when that is released in time. Without an acquisition: one that is stopped.
    /// Callbacks run on a thread of the library that holds no lock: they may block and call anything.
    /// Throws: std::system_error, std::bad_alloc, when the first call for an acquisition finds no thread or memory.
    std::stop_token lost() const {
        if (detail::current_process() != process_) return engine::stopped_token();
        const std::lock_guard guard(state_);
        return held_.get() != nullptr ? held_.lost() : engine::stopped_token();
    }

    /// Returns: the fencing token of the present acquisition, lost or not: larger than any before it under this name.
    /// 0 when there is none, or without lock_options::fencing.
    std::uint64_t fencing_token() const noexcept {
        if (detail::current_process() != process_) return 0;
        const std::lock_guard guard(state_);
        return held_.get() != nullptr ? held_.get()->fence : 0;
    }

    /// Returns: how long the last unlock() that the server did not confirm may keep others from the lock; zero when
    /// none does, or when it was confirmed meanwhile.
    duration residual() const noexcept {
        if (detail::current_process() != process_) return {};
        const std::lock_guard guard(state_);
        const auto left = debt_ ? debt_->gone_by() - Clock::now() : duration::zero();
        return std::max(left, duration::zero());
    }

    const std::string& name() const noexcept { return dialect_.name(); }

  private:
    friend detail::guard_access;

    struct manner {
        bool once = false;     // do not wait for another owner
        bool guarded = false;  // a guard ends this acquisition, by its serial
    };
    struct outcome {
        std::uint64_t serial = 0;  // of the acquisition; 0: none
        std::uint64_t fence = 0;
        errc cause = {};  // {}: somebody else has the lock
        bool without_ttl = false;
        std::string detail = {};
    };

    static void check(const lock_options& options, const Conn& connection) {
        std::chrono::milliseconds command_timeout{0};
        if constexpr (timed_connection<Conn>) command_timeout = connection.command_timeout();
        detail::check_options(options, command_timeout);
    }

    // How long an answer may be on its way.
    std::chrono::milliseconds answer_time() const {
        if constexpr (timed_connection<Conn>) return connection_.command_timeout();
        return std::chrono::milliseconds{200};
    }

    template <class Rep, class Period>
    static time_point after(std::chrono::duration<Rep, Period> timeout) {
        return detail::saturating_add(Clock::now(),
                                      detail::saturating_cast<duration, detail::rounding::up>(timeout));
    }

    outcome failed(errc cause, const std::string& trouble = {}) const {
        outcome o{.cause = cause, .detail = "lock " + detail::printable(name(), 100)};
        if (!trouble.empty()) o.detail += ": " + detail::printable(trouble);
        return o;
    }

    std::chrono::milliseconds recheck() const noexcept {
        const std::chrono::milliseconds chosen = options_.recheck;
        return chosen.count() == 0 ? detail::default_recheck : chosen;
    }

    outcome acquire(time_point deadline, manner how, const std::stop_token& stop) {
        if (detail::current_process() != process_) return failed(errc::wrong_process);
        if (stop.stop_requested()) return failed(errc::cancelled);
        {
            std::unique_lock guard(state_);
            const auto open = [this] { return !busy_ && Clock::now() >= held_.until(); };
            const auto failures = failures_;
            const auto came = Clock::now();
            while (!open()) {
                if (stop.stop_requested()) return failed(errc::cancelled);
                if (how.once || Clock::now() >= deadline) {
                    // The thread of ours that asks the server knows whether "somebody else has it" would be true.
                    const errc trouble = busy_ ? trouble_.load() : errc{};
                    return trouble == errc{} ? outcome{} : failed(trouble);
                }
                const auto seen = serial_;
                const auto wake_at = busy_ ? deadline : std::min(deadline, held_.until());
                detail::wait_until<Clock>(gate_.get(), guard, stop, wake_at,
                                          [&] { return open() || serial_ != seen; });
            }
            if (failures_ != failures && Clock::now() - came >= options_.patience.get()) {
                // The thread before us has spent our patience with the server, too.
                gate_.get().notify_one();
                return failed(last_failure_);
            }
            // A guard's end needs no book: it names the acquisition it means.
            if (const auto* lost = held_.get(); lost != nullptr && !lost->guarded)
                strays_.remember(lost->taker);
            held_.forget();
            busy_ = true;
            trouble_ = errc{};
        }
        return acquire_from_server({.lease = dialect_.lease(),
                                    .recheck = recheck(),
                                    .patience = options_.patience,
                                    .deadline = deadline,
                                    .once = how.once},
                                   how.guarded, stop);
    }

    // Preconditions: busy_ was set by this thread.
    outcome acquire_from_server(const engine::acquire_limits& limits, bool guarded,
                                const std::stop_token& stop) {
        using kind = engine::acquire_step::kind;
        engine::acquisition got;
        try {
            // What the server may still have under a token nobody wants is looked for when it must have come.
            const auto owe = [&](const token& owner) noexcept {
                const std::lock_guard guard(state_);
                held_.owe(owner, answer_time(), Clock::now() + answer_time() + limits.lease);
            };
            got = engine::take<Clock>(connection_, dialect_, limits, stop, contended_, trouble_, owe);
            if (got.end.what == kind::granted) begin_hold(got, guarded);
        } catch (...) {
            open_gate();
            throw;
        }
        const std::lock_guard guard(state_);
        contended_ = got.contended;
        busy_ = false;
        if (got.end.what == kind::granted) {
            gate_.get().notify_all();  // all wait for the end of this lease now
            return {.serial = serial_, .fence = got.fence};
        }
        if (got.end.what == kind::failed && got.end.cause != errc::cancelled) {
            ++failures_;
            last_failure_ = got.end.cause;
        }
        gate_.get().notify_one();
        if (got.end.what == kind::failed) return failed(got.end.cause, got.trouble);
        return {.without_ttl = got.end.without_ttl};
    }

    // Throws: when the lease cannot be watched; the lock is given back then.
    void begin_hold(const engine::acquisition& got, bool guarded) {
        try {
            const std::lock_guard guard(state_);
            held_.begin(got, ++serial_, guarded);
        } catch (const std::system_error& e) {
            give_back(got.owner, got.end.at, got.came + options_.lease.get());
            throw error(errc::no_thread, "lock " + detail::printable(name(), 100) + ": " + e.what());
        } catch (...) {
            give_back(got.owner, got.end.at, got.came + options_.lease.get());
            throw;
        }
    }

    // In long double, which neither the ends of a clock's range nor a coarser unit can overflow.
    template <class Other, class Duration>
    static auto time_left(std::chrono::time_point<Other, Duration> deadline) {
        using wide = std::chrono::duration<long double, std::nano>;
        return wide(deadline.time_since_epoch()) - wide(Other::now().time_since_epoch());
    }

    template <class Other, class Duration>
    outcome acquire_until(std::chrono::time_point<Other, Duration> deadline, const std::stop_token& stop) {
        for (;;) {
            outcome o = acquire(after(time_left(deadline)), {}, stop);
            if (o.serial != 0 || o.cause != errc{} || time_left(deadline).count() <= 0) return o;
        }
    }

    // Preconditions: there is an acquisition, and `guard` holds state_. Effects: as unlock().
    release_outcome release_hold(std::unique_lock<std::mutex>& guard) noexcept {
        const auto last = held_.end(guard);
        if (!last) return release_outcome::expired;
        busy_ = true;  // a thread of ours that tried now would only find the key still there
        trouble_ = errc{};
        guard.unlock();
        const auto result = give_back(last->owner, last->until, last->gone_by);
        open_gate();
        return result;
    }

    release_outcome give_back(const token& owner, time_point until, time_point gone_by) noexcept {
        const auto result = engine::give_back<Clock>(connection_, dialect_, owner, until);
        if (result.owed) {
            const std::lock_guard guard(state_);
            debt_ = held_.owe(owner, {}, gone_by);
        }
        return result.what;
    }

    release_outcome unlock(std::uint64_t serial) noexcept {
        if (detail::current_process() != process_) return release_outcome::wrong_process;
        std::unique_lock guard(state_);
        return has(serial) ? release_hold(guard) : release_outcome::expired;
    }

    time_point valid_until(std::uint64_t serial) const noexcept {
        if (detail::current_process() != process_) return {};
        const std::lock_guard guard(state_);
        return has(serial) ? held_.until() : time_point{};
    }

    std::stop_token lost(std::uint64_t serial) const {
        if (detail::current_process() != process_) return engine::stopped_token();
        const std::lock_guard guard(state_);
        return has(serial) ? held_.lost() : engine::stopped_token();
    }

    bool has(std::uint64_t serial) const noexcept {
        return held_.get() != nullptr && held_.get()->serial == serial;
    }

    void open_gate() noexcept {
        const std::lock_guard guard(state_);
        busy_ = false;
        gate_.get().notify_one();
    }

    static outcome must(outcome o) {
        if (o.cause != errc{}) throw error(o.cause, o.detail);
        return o;
    }
    static bool may(outcome o) { return must(std::move(o)).serial != 0; }

    template <class Attempt>
    bool quietly(std::error_code& ec, Attempt attempt) noexcept {
        ec.clear();
        try {
            const outcome o = attempt();
            if (o.cause != errc{}) ec = o.cause;
            if (o.without_ttl) ec = errc::holder_without_ttl;
            return o.serial != 0;
        } catch (const std::system_error& e) {
            ec = e.code();
        } catch (...) {
            ec = std::make_error_code(std::errc::not_enough_memory);
        }
        return false;
    }

    Conn& connection_;
    lock_options options_;
    Dialect dialect_;
    const pid_t process_ = detail::current_process();

    mutable std::mutex state_;
    detail::parent_only<std::condition_variable_any> gate_;
    bool busy_ = false;       // a thread of ours is talking to the server about this lock
    bool contended_ = false;  // the lock was found taken the last time
    std::uint64_t serial_ = 0;
    engine::strays strays_;
    std::uint64_t failures_ = 0;          // attempts that ended in trouble
    errc last_failure_{};                 // of the last of them
    std::atomic<errc> trouble_{};         // of the thread that is busy: why the server does not answer it
    std::shared_ptr<engine::debt> debt_;  // of the last release that was not confirmed
    mutable engine::held_lock<Conn, Dialect, Clock> held_;  // last: its threads use the others until it ends
};

template <connection Conn>
mutex(Conn&, std::string) -> mutex<Conn>;
template <connection Conn>
mutex(Conn&, std::string, lock_options) -> mutex<Conn>;

}  // namespace distlock
