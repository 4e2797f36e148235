// distlock::recursive_mutex: a distlock::mutex that the thread which has it may lock again.
//
//   template <connection Conn, dialect Dialect = handoff, class Clock = clock>
//   class recursive_mutex {
//     recursive_mutex(Conn&, std::string name, lock_options = {}, std::shared_ptr<lease_observer> = {});
//     // the functions of mutex that lock, with the same overloads
//     release_outcome unlock() noexcept;          // nested: the thread has it still
//     std::size_t hold_count() const noexcept;    // of the calling thread
//     // owns_lock, valid_until, remaining, lost, fencing_token, residual, name: as mutex
//   };
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include <distlock/base/clock.hpp>
#include <distlock/base/error.hpp>
#include <distlock/base/observer.hpp>
#include <distlock/base/options.hpp>
#include <distlock/detail/printable.hpp>
#include <distlock/detail/thread_safety.hpp>
#include <distlock/engine/call_forms.hpp>
#include <distlock/mutex.hpp>
#include <distlock/net/connection.hpp>
#include <distlock/wire/dialect.hpp>
#include <distlock/wire/outcome.hpp>

namespace distlock {

/// As `mutex`, and as std::recursive_mutex: it is owned by a thread, which may lock it again and must unlock
/// it as often. The holds of a thread are counted in the process, so an inner lock() or unlock() asks no
/// server; others see one hold. Only the thread that locked it may unlock it: an unlock() by another says
/// `not_held`.
///
/// When the lease is lost, the thread must still unlock each hold, and cannot add one: locking again throws
/// errc::lease_expired, since an outer hold protects nothing any more. Other threads may lock it meanwhile. A
/// thread must not end before it has unlocked: the next may be known by the same std::thread::id.
///
/// All members may be called from several threads. `Conn` must outlive the mutex.
template <connection Conn, dialect Dialect = handoff, class Clock = clock>
class recursive_mutex {
  public:
    using connection_type = Conn;
    using clock_type = Clock;
    using time_point = clock::time_point;
    using duration = clock::duration;

    /// As mutex.
    recursive_mutex(Conn& connection, std::string name, lock_options options = {},
                    std::shared_ptr<lease_observer> observer = {})
        : mutex_(connection, std::move(name), options, std::move(observer)) {}
    recursive_mutex(const recursive_mutex&) = delete;
    recursive_mutex& operator=(const recursive_mutex&) = delete;
    /// As ~mutex(), however often it is held.
    ~recursive_mutex() = default;

    /// Effects: as mutex::lock(); when this thread has the lock, adds a hold instead, also
    /// after a stop request.
    /// Throws: error: what mutex::lock() throws; errc::lease_expired when this thread had the lock and lost
    /// it.
    /// Round trips: as mutex::lock(); none for a further hold.
    void lock() { lock(std::stop_token{}); }
    void lock(std::stop_token stop) { engine::throw_on_error(acquire(time_point::max(), {}, stop)); }
    bool lock(std::error_code& ec) noexcept { return lock(std::stop_token{}, ec); }
    bool lock(std::stop_token stop, std::error_code& ec) noexcept {
        return engine::taken_or_error(ec, [&] { return acquire(time_point::max(), {}, stop); });
    }

    /// Effects: as mutex::try_lock(); when this thread has the lock, adds a hold.
    /// Returns: whether it added a hold; false only when others have the lock, or wait for it.
    /// Throws: as lock().
    /// Round trips: as mutex::try_lock(); none for a further hold.
    [[nodiscard("unless the result is true, the lock was not taken")]] bool try_lock() {
        return try_lock(std::stop_token{});
    }
    [[nodiscard("unless the result is true, the lock was not taken")]] bool try_lock(std::stop_token stop) {
        return engine::taken_or_throw(acquire(time_point::max(), {.once = true}, stop));
    }
    [[nodiscard("unless the result is true, the lock was not taken")]] bool try_lock(
        std::error_code& ec) noexcept {
        return try_lock(std::stop_token{}, ec);
    }
    [[nodiscard("unless the result is true, the lock was not taken")]] bool try_lock(
        std::stop_token stop, std::error_code& ec) noexcept {
        return engine::taken_or_error(ec, [&] { return acquire(time_point::max(), {.once = true}, stop); });
    }

    /// As mutex::try_lock_for() and mutex::try_lock_until(); when this thread has the lock, adds a hold
    /// instead.
    template <class Rep, class Period>
    [[nodiscard("unless the result is true, the lock was not taken")]] bool try_lock_for(
        std::chrono::duration<Rep, Period> timeout, std::stop_token stop = {}) {
        return engine::taken_or_throw(acquire(engine::after<Clock>(timeout), {}, stop));
    }
    template <class Rep, class Period>
    [[nodiscard("unless the result is true, the lock was not taken")]] bool try_lock_for(
        std::chrono::duration<Rep, Period> timeout, std::error_code& ec) noexcept {
        return try_lock_for(timeout, std::stop_token{}, ec);
    }
    template <class Rep, class Period>
    [[nodiscard("unless the result is true, the lock was not taken")]] bool try_lock_for(
        std::chrono::duration<Rep, Period> timeout, std::stop_token stop, std::error_code& ec) noexcept {
        return engine::taken_or_error(ec, [&] { return acquire(engine::after<Clock>(timeout), {}, stop); });
    }
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

    /// Effects: takes one hold of this thread away; with the last, as mutex::unlock().
    /// Returns: `nested` while it has more; `not_held` when it had none; else as mutex::unlock().
    release_outcome unlock() noexcept {
        return leave([this](std::uint64_t last) { return mutex_.core_->unlock(last); });
    }

    /// Returns: how often the calling thread must still call unlock(), lost or not.
    std::size_t hold_count() const noexcept {
        if (mutex_.core_->in_forked_child()) return 0;
        const detail::annotated_lock guard(state_);
        const auto mine = std::find_if(holds_.begin(), holds_.end(), is_mine());
        return mine == holds_.end() ? 0 : mine->count;
    }

    /// As mutex.
    bool owns_lock() const noexcept { return mutex_.owns_lock(); }
    time_point valid_until() const noexcept { return mutex_.valid_until(); }
    duration remaining() const noexcept { return mutex_.remaining(); }
    std::stop_token lost() const { return mutex_.lost(); }
    std::uint64_t fencing_token() const noexcept { return mutex_.fencing_token(); }
    duration residual() const noexcept { return mutex_.residual(); }
    const std::string& name() const noexcept { return mutex_.name(); }

  private:
    friend detail::guard_access;
    friend detail::joint_access;
    using base = mutex<Conn, Dialect, Clock>;
    using result = typename base::result;

    const engine::lock_core& core() const noexcept { return mutex_.core(); }
    result acquire_guarded(const std::stop_token& stop) {
        return engine::throw_on_error(acquire(time_point::max(), {}, stop));
    }
    result adopt() noexcept {
        if (mutex_.core_->in_forked_child()) return {};
        const detail::annotated_lock guard(state_);
        const auto mine = find();
        return mine == holds_.end() ? result{} : result{.serial = mine->serial, .fence = mine->fence};
    }
    void end_guarded(std::uint64_t) noexcept { unlock(); }
    void undo(std::uint64_t = 0) noexcept {
        leave([this](std::uint64_t last) {
            mutex_.core_->undo(last);
            return release_outcome::released;
        });
    }

    // Of one thread. More than one thread has holds only when leases were lost.
    struct holds {
        std::thread::id thread;
        std::uint64_t serial;  // of the acquisition
        std::uint64_t fence;
        std::size_t count;
    };

    auto find() noexcept DISTLOCK_REQUIRES(state_) {
        return std::find_if(holds_.begin(), holds_.end(), is_mine());
    }
    static auto is_mine() noexcept {
        return [me = std::this_thread::get_id()](const holds& one) { return one.thread == me; };
    }

    // `end(serial)`: ends what the thread's last hold has.
    template <class End>
    release_outcome leave(End end) noexcept {
        if (mutex_.core_->in_forked_child()) return release_outcome::wrong_process;
        std::uint64_t last = 0;
        {
            const detail::annotated_lock guard(state_);
            const auto mine = find();
            if (mine == holds_.end()) return release_outcome::not_held;
            if (--mine->count > 0) return release_outcome::nested;
            last = mine->serial;
            *mine = holds_.back();
            holds_.pop_back();
        }
        return end(last);
    }

    // Returns: what to tell the caller; none when the server is to be asked.
    std::optional<result> again() {
        if (mutex_.core_->in_forked_child()) return std::nullopt;  // which says so
        const detail::annotated_lock guard(state_);
        const auto mine = find();
        if (mine == holds_.end()) return std::nullopt;
        const auto left = detail::left_until<Clock>(mutex_.core_->valid_until(mine->serial));
        if (left > clock::duration::zero()) {
            ++mine->count;
            return result{.serial = mine->serial, .fence = mine->fence};
        }
        return result{
            .cause = errc::lease_expired,
            .detail = detail::shown_lock(name()) +
                      ": this thread had it and lost it; unlock() it first, as often as it was locked"};
    }

    template <class Take>
    result enter(Take take) {
        if (auto known = again()) return *std::move(known);
        result taken = take();
        if (!taken.granted()) return taken;
        try {
            const detail::annotated_lock guard(state_);
            holds_.push_back({std::this_thread::get_id(), taken.serial, taken.fence, 1});
        } catch (...) {
            mutex_.core_->undo(taken.serial);
            throw;
        }
        return taken;
    }

    result acquire(time_point deadline, engine::lock_core::manner how, const std::stop_token& stop) {
        how.guarded = true;  // unlock() names the acquisition it means
        return enter([&] { return mutex_.core_->acquire(deadline, how, stop); });
    }
    template <detail::any_clock Other, class Duration>
    result acquire_until(std::chrono::time_point<Other, Duration> deadline, const std::stop_token& stop) {
        return enter([&] { return mutex_.acquire_until(deadline, stop, {.guarded = true}); });
    }

    base mutex_;
    mutable detail::annotated_mutex state_;
    std::vector<holds> holds_ DISTLOCK_GUARDED_BY(state_);
};

template <connection Conn>
recursive_mutex(Conn&, std::string) -> recursive_mutex<Conn>;
template <connection Conn>
recursive_mutex(Conn&, std::string, lock_options) -> recursive_mutex<Conn>;
template <connection Conn>
recursive_mutex(Conn&, std::string, lock_options, std::shared_ptr<lease_observer>) -> recursive_mutex<Conn>;
template <class C, class Name, class... More>
recursive_mutex(C&&, Name&&, More&&...) -> recursive_mutex<detail::refused_connection_t<C>>;

}  // namespace distlock
