// One lock object shared by threads: which of them asks the server, whose the acquisition is, and how it ends.
//
//   template <connection Conn, class Dialect, class Clock> class lock_core {
//     result acquire(time_point deadline, manner, const std::stop_token&);
//     release_outcome unlock() noexcept;                    // by a thread
//     release_outcome unlock(std::uint64_t serial) noexcept;  // by a guard
//     ...                                                   // and what there is to know about the acquisition
//   };
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
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
#include <distlock/base/observer.hpp>
#include <distlock/base/options.hpp>
#include <distlock/base/token.hpp>
#include <distlock/detail/parent_only.hpp>
#include <distlock/detail/pause.hpp>
#include <distlock/detail/printable.hpp>
#include <distlock/detail/process.hpp>
#include <distlock/engine/driver.hpp>
#include <distlock/engine/held_lock.hpp>
#include <distlock/engine/strays.hpp>
#include <distlock/net/connection.hpp>

namespace distlock::engine {

/// Thread-safe. One thread at a time asks the server, the others of the process wait for it. In a child after fork()
/// every function says so, and the destructor does nothing.
template <connection Conn, class Dialect, class Clock>
class lock_core {
    using time_point = clock::time_point;
    using duration = clock::duration;

  public:
    struct manner {
        bool once = false;     ///< do not wait for another owner
        bool guarded = false;  ///< a guard ends this acquisition, by its serial
    };
    struct result {
        std::uint64_t serial = 0;  ///< of the acquisition; 0: none
        std::uint64_t fence = 0;
        errc cause = {};           ///< {}: somebody else has the lock
        bool without_ttl = false;  ///< of a lock somebody else has
        std::string detail = {};
    };

    /// Throws: error with errc::invalid_name, errc::invalid_lease or errc::invalid_option.
    lock_core(Conn& connection, std::string name, const lock_options& options,
              std::shared_ptr<lease_observer> observer)
        : connection_(connection),
          options_((check(options, connection), options)),
          dialect_(std::move(name), options_),
          held_(connection_, dialect_, {options.lease, options.renew, options.max_hold}, std::move(observer),
                state_, gate_.get()) {}

    lock_core(const lock_core&) = delete;
    lock_core& operator=(const lock_core&) = delete;

    /// Preconditions: no thread is in a member function.
    ~lock_core() {
        if (foreign()) return;
        std::unique_lock guard(state_);
        if (held_.get() != nullptr) release_hold(guard);
    }

    const std::string& name() const noexcept { return dialect_.name(); }
    const Conn& connection() const noexcept { return connection_; }

    /// Throws: error(errc::no_entropy), error(errc::no_thread), std::bad_alloc; nothing is held then.
    result acquire(time_point deadline, manner how, const std::stop_token& stop) {
        if (foreign()) return failed(errc::wrong_process);
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
                    return trouble == errc{} ? result{} : failed(trouble);
                }
                const auto seen = serial_;
                const auto wake_at = busy_ ? deadline : std::min(deadline, held_.until());
                distlock::detail::wait_until<Clock>(gate_.get(), guard, stop, wake_at,
                                                    [&] { return open() || serial_ != seen; });
            }
            if (failures_ != failures && Clock::now() - came >= options_.patience.get()) {
                // The thread before us has spent our patience with the server, too.
                gate_.get().notify_one();
                return failed(last_failure_);
            }
            // A guard's end needs no book, it names the acquisition it means; nor does an unlock() that has come already.
            if (const auto* lost = held_.get(); lost != nullptr && !lost->guarded && !lost->ending)
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

    /// As mutex::unlock().
    release_outcome unlock() noexcept {
        if (foreign()) return release_outcome::wrong_process;
        std::unique_lock guard(state_);
        // An unlock() still owed by somebody whose lease ran out must not free the lock of the one who has it now.
        const auto* const held = held_.get();
        const bool mine = held != nullptr && held->taker == std::this_thread::get_id();
        if (!mine && strays_.forget(std::this_thread::get_id())) return release_outcome::expired;
        return held != nullptr ? release_hold(guard) : release_outcome::not_held;
    }
    /// Effects: ends that acquisition and no other.
    release_outcome unlock(std::uint64_t serial) noexcept {
        if (foreign()) return release_outcome::wrong_process;
        std::unique_lock guard(state_);
        return has(serial) ? release_hold(guard) : release_outcome::expired;
    }

    /// Of the present acquisition, where none is named.
    time_point valid_until(std::uint64_t serial = 0) const noexcept {
        if (foreign()) return {};
        const std::lock_guard guard(state_);
        return has(serial) ? held_.until() : time_point{};
    }
    std::stop_token lost(std::uint64_t serial = 0) const {
        if (foreign()) return stopped_token();
        const std::lock_guard guard(state_);
        if (!has(serial)) return stopped_token();
        try {
            return held_.lost();
        } catch (const std::system_error& e) {
            throw no_thread(e);
        }
    }
    std::uint64_t fence() const noexcept {
        if (foreign()) return 0;
        const std::lock_guard guard(state_);
        return has(0) ? held_.get()->fence : 0;
    }
    duration residual() const noexcept {
        if (foreign()) return {};
        const std::lock_guard guard(state_);
        const auto left = debt_ ? debt_->gone_by() - Clock::now() : duration::zero();
        return std::max(left, duration::zero());
    }

  private:
    bool foreign() const noexcept { return distlock::detail::current_process() != process_; }

    bool has(std::uint64_t serial) const noexcept {
        return held_.get() != nullptr && (serial == 0 || held_.get()->serial == serial);
    }

    static void check(const lock_options& options, const Conn& connection) {
        std::chrono::milliseconds command_timeout{0};
        if constexpr (timed_connection<Conn>) command_timeout = connection.command_timeout();
        distlock::detail::check_options(options, command_timeout);
    }

    // How long an answer may be on its way.
    std::chrono::milliseconds answer_time() const {
        if constexpr (timed_connection<Conn>) return connection_.command_timeout();
        return std::chrono::milliseconds{200};
    }

    result failed(errc cause, const std::string& trouble = {}) const {
        result o{.cause = cause, .detail = "lock " + distlock::detail::printable(name(), 100)};
        if (!trouble.empty()) o.detail += ": " + distlock::detail::printable(trouble);
        return o;
    }

    error no_thread(const std::system_error& why) const {
        return {errc::no_thread, "lock " + distlock::detail::printable(name(), 100) + ": " + why.what()};
    }

    std::chrono::milliseconds recheck() const noexcept {
        return options_.recheck.given() ? options_.recheck.get() : distlock::detail::default_recheck;
    }

    // Preconditions: busy_ was set by this thread.
    result acquire_from_server(const acquire_limits& limits, bool guarded, const std::stop_token& stop) {
        using kind = acquire_step::kind;
        acquisition got;
        try {
            // What the server may still get under a token nobody wants is looked for when it must have come.
            const auto on_its_way = answer_time();
            const auto owe = [&](const token& owner) noexcept {
                const std::lock_guard guard(state_);
                held_.owe(owner, on_its_way, Clock::now() + on_its_way + limits.lease);
            };
            got = take<Clock>(connection_, dialect_, limits, stop, contended_, trouble_, owe);
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
    void begin_hold(const acquisition& got, bool guarded) {
        try {
            const std::lock_guard guard(state_);
            held_.begin(got, ++serial_, guarded);
            late_until_ = got.open ? got.came + answer_time() : time_point{};
        } catch (const std::system_error& e) {
            give_back(got.owner, got.end.at, got.came + options_.lease.get());
            throw no_thread(e);
        } catch (...) {
            give_back(got.owner, got.end.at, got.came + options_.lease.get());
            throw;
        }
    }

    // Preconditions: there is an acquisition, and `guard` holds state_. Effects: as unlock().
    release_outcome release_hold(std::unique_lock<std::mutex>& guard) noexcept {
        const auto last = held_.end(guard);
        if (!last) return release_outcome::expired;
        busy_ = true;  // a thread of ours that tried now would only find the key still there
        trouble_ = errc{};
        guard.unlock();
        const auto done = give_back(last->owner, last->until, last->gone_by);
        if (Clock::now() < late_until_) {
            // It would bring the lock back, under a token nobody has any more.
            const std::lock_guard again(state_);
            const auto on_its_way = answer_time();
            held_.owe(last->owner, on_its_way, Clock::now() + on_its_way + options_.lease.get());
        }
        open_gate();
        return done;
    }

    release_outcome give_back(const token& owner, time_point until, time_point gone_by) noexcept {
        const auto done = engine::give_back<Clock>(connection_, dialect_, owner, until);
        if (done.owed) {
            const std::lock_guard guard(state_);
            debt_ = held_.owe(owner, {}, gone_by);
        }
        return done.what;
    }

    void open_gate() noexcept {
        const std::lock_guard guard(state_);
        busy_ = false;
        gate_.get().notify_one();
    }

    Conn& connection_;
    const lock_options options_;
    const Dialect dialect_;
    const pid_t process_ = distlock::detail::current_process();

    mutable std::mutex state_;
    distlock::detail::parent_only<std::condition_variable_any> gate_;
    bool busy_ = false;       // a thread of ours is talking to the server about this lock
    bool contended_ = false;  // the lock was found taken the last time
    std::uint64_t serial_ = 0;
    time_point late_until_{};  // until when a sending of the acquisition that was not answered may still come
    engine::strays strays_;
    std::uint64_t failures_ = 0;   // attempts that ended in trouble
    errc last_failure_{};          // of the last of them
    std::atomic<errc> trouble_{};  // of the thread that is busy: why the server does not answer it
    std::shared_ptr<debt> debt_;   // of the last release that was not confirmed
    mutable held_lock<Conn, Dialect, Clock> held_;  // last: its threads use the others until it ends
};

}  // namespace distlock::engine
