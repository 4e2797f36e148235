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
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
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
#include <distlock/detail/pause.hpp>
#include <distlock/detail/printable.hpp>
#include <distlock/detail/process.hpp>
#include <distlock/engine/courtesy.hpp>
#include <distlock/engine/driver.hpp>
#include <distlock/engine/held_lock.hpp>
#include <distlock/engine/local_queue.hpp>
#include <distlock/engine/lookout.hpp>
#include <distlock/engine/releaser.hpp>
#include <distlock/engine/strays.hpp>
#include <distlock/net/connection.hpp>

namespace distlock::engine {

/// Thread-safe. One thread at a time asks the server, the others of the process wait for it. In a child after fork()
/// every function says so, and the destructor does nothing.
template <connection Conn, class Dialect, class Clock>
class lock_core {
    using time_point = clock::time_point;
    using duration = clock::duration;
    using held_type = held_lock<Conn, Dialect, Clock>;
    struct no_lookout {
        no_lookout(Conn&, const Dialect&, std::chrono::milliseconds) noexcept {}
    };
    using lookout_type = typename lookout_for<Conn, Dialect, Clock, no_lookout>::type;

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
          courtesy_(others()),
          held_(connection_, dialect_, {options.lease, options.renew, options.max_hold}, std::move(observer),
                state_, queue_),
          releaser_(connection_, dialect_, options_, held_, state_, answer_time()),
          lookout_(connection_, dialect_, look_interval()) {}

    lock_core(const lock_core&) = delete;
    lock_core& operator=(const lock_core&) = delete;

    /// Preconditions: no thread is in a member function.
    ~lock_core() {
        if (foreign()) return;
        {
            std::unique_lock guard(state_);
            if (held_.get() != nullptr) release_hold(guard);
        }
        releaser_.retire();
    }

    const std::string& name() const noexcept { return dialect_.name(); }
    const Conn& connection() const noexcept { return connection_; }

    /// Throws: error(errc::no_entropy), error(errc::no_thread), std::bad_alloc; nothing is held then.
    result acquire(time_point deadline, manner how, const std::stop_token& stop) {
        if (foreign()) return failed(errc::wrong_process);
        if (stop.stop_requested()) return failed(errc::cancelled);
        {
            std::unique_lock guard(state_);
            if (!queue_.empty() || !may_ask(Clock::now)) {
                if (how.once) return not_now();
                if (auto done = queue_up(guard, deadline, how.guarded, stop)) return *std::move(done);
            }
            begin_to_ask();
        }
        return acquire_from_server(
            {.lease = dialect_.lease(),
             .recheck = recheck_or(wakes_waiters<Conn, Dialect> ? distlock::detail::default_look
                                                                : distlock::detail::default_recheck),
             .patience = options_.patience,
             .deadline = deadline,
             .once = how.once,
             .in_line = !how.once && serves_in_line<Conn>(dialect_),
             .woken = wakes_waiters<Conn, Dialect>},
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
        return std::max(releaser_.gone_by() - Clock::now(), duration::zero());
    }

    /// Returns: whether this is a child after fork(), whose parent the lock belongs to.
    bool foreign() const noexcept { return distlock::detail::current_process() != process_; }

  private:
    // 0: the present acquisition; but a thread that lost its own, and has not unlocked since, asks about that one.
    bool has(std::uint64_t serial) const noexcept {
        const auto* const held = held_.get();
        if (held == nullptr || serial != 0) return held != nullptr && held->serial == serial;
        const auto me = std::this_thread::get_id();
        return held->taker == me || !strays_.owes(me);
    }

    static void check(const lock_options& options, const Conn& connection) {
        std::chrono::milliseconds command_timeout{0};
        if constexpr (timed_connection<Conn>) command_timeout = connection.command_timeout();
        distlock::detail::check_options(options, command_timeout);
    }

    courtesy::others others() const noexcept {
        if (telling_dialect<Dialect>) return courtesy::others::are_told;
        return serves_in_line<Conn>(dialect_) ? courtesy::others::stand_in_line : courtesy::others::poll;
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

    std::chrono::milliseconds recheck_or(std::chrono::milliseconds unless_given) const noexcept {
        return options_.recheck.given() ? options_.recheck.get() : unless_given;
    }

    // Every look lengthens the life of the count of those who wait, which is a lease; of a count that was given back, it is half
    // of one (handoff_enter).
    std::chrono::milliseconds look_interval() const noexcept {
        const std::chrono::milliseconds quarter = options_.lease.get() / 4;
        return std::min(recheck_or(distlock::detail::default_look), quarter);
    }

    // Whether a thread of ours may ask the server. The clock is only read when it matters.
    template <class Now>
    bool may_ask(Now now) const {
        return !busy_ && (held_.get() == nullptr || now() >= held_.until());
    }

    // What a thread is told whose time is up: the one of ours that asks the server knows whether "somebody else has it"
    // would be true.
    result not_now() const {
        const errc trouble = busy_ ? trouble_.load() : errc{};
        // That thread's own stop is no trouble of anybody else's.
        return trouble == errc{} || trouble == errc::cancelled ? result{} : failed(trouble);
    }

    // Preconditions: `guard` holds state_; and afterwards, unless the thread was given the lock.
    // Returns: what became of it; none when it is for this thread to ask the server.
    std::optional<result> queue_up(std::unique_lock<std::mutex>& guard, time_point deadline, bool guarded,
                                   const std::stop_token& stop) {
        local_queue::seat mine(std::this_thread::get_id(), guarded);
        const auto nudge = [&] {
            const std::lock_guard again(state_);
            local_queue::nudge(mine);
        };
        std::optional<std::stop_callback<decltype(nudge)>> on_stop;
        if (stop.stop_possible()) {  // the callback may run at once, or while it is unhooked
            guard.unlock();
            on_stop.emplace(stop, nudge);
            guard.lock();
        }
        auto done = wait_for_turn(mine, guard, deadline, stop);
        if (on_stop) {
            const bool relock = guard.owns_lock();
            if (relock) guard.unlock();
            on_stop.reset();
            if (relock) guard.lock();
        }
        return done;
    }

    // As queue_up().
    std::optional<result> wait_for_turn(local_queue::seat& mine, std::unique_lock<std::mutex>& guard,
                                        time_point deadline, const std::stop_token& stop) {
        const auto failures = failures_;
        const auto came = Clock::now();
        queue_.join(mine);
        for (;;) {
            if (!mine.chosen()) {
                const bool asks = queue_.first() == &mine && may_ask(Clock::now);
                if (asks || stop.stop_requested() || reached(deadline)) {
                    queue_.leave(mine);
                    if (asks) {
                        begin_to_ask();
                        return std::nullopt;
                    }
                    queue_.nudge_first();
                    return stop.stop_requested() ? failed(errc::cancelled) : not_now();
                }
            }
            const bool told = busy_ || held_.await_end();
            queue_.sleep<Clock>(mine, guard, told ? deadline : std::min(deadline, held_.until()));
            if (mine.called() == local_queue::turn::to_hold)
                return result{.serial = mine.serial, .fence = mine.fence};
            if (mine.called() == local_queue::turn::to_ask) {
                if (failures_ == failures || Clock::now() - came < options_.patience.get())
                    return std::nullopt;
                // The thread before us has spent our patience with the server, too.
                call_next();
                return failed(last_failure_);
            }
        }
    }

    // In one step with the decision to: the late unlock() of a hold that is over must not find it any more.
    // Preconditions: state_ is held, and a thread of ours may ask.
    void begin_to_ask() {
        // A guard's end needs no book, it names the acquisition it means; nor does an unlock() that has come already.
        if (const auto* lost = held_.get(); lost != nullptr && !lost->guarded && !lost->ending)
            strays_.remember(lost->taker);
        held_.abandon();
        busy_ = true;
        trouble_ = errc{};
    }

    static bool reached(time_point deadline) {
        return deadline != time_point::max() && Clock::now() >= deadline;
    }

    // Effects: the next thread of ours asks the server, if there is one.
    void call_next() noexcept {
        busy_ = !queue_.empty();
        if (busy_) local_queue::call(queue_.choose(local_queue::turn::to_ask));
    }

    // Preconditions: busy_ was set by this thread.
    result acquire_from_server(const acquire_limits& limits, bool guarded, const std::stop_token& stop) {
        using kind = acquire_step::kind;
        acquisition got;
        try {
            if (!limits.once) leave_to_others(limits.deadline, stop);
            // A release of ours that was posted on another socket may come too late for a single try, even if it is
            // heard of before the try's own answer.
            const bool on_its_way = limits.once && releaser_.posted_open();
            got = ask(limits, stop);
            if (on_its_way && got.end.what == kind::gave_up) {
                releaser_.settle_posted();
                got = ask(limits, stop);
            }
            if (got.end.what == kind::granted) begin_hold(got, guarded);
        } catch (...) {
            open_gate();
            throw;
        }
        const std::lock_guard guard(state_);
        contended_ = got.contended;
        courtesy_.on_attempt(got.contended, got.sent);
        if (got.end.what == kind::granted) {
            busy_ = false;
            // Who waits must hear when this lease ends.
            if (!queue_.empty() && !held_.await_end()) queue_.nudge_first();
            return {.serial = serial_, .fence = got.fence};
        }
        if (got.end.what == kind::failed && got.end.cause != errc::cancelled) {
            ++failures_;
            last_failure_ = got.end.cause;
        }
        call_next();
        if (got.end.what == kind::failed) return failed(got.end.cause, got.trouble);
        return {.without_ttl = got.end.without_ttl};
    }

    // Half of the time is left to ask in.
    void leave_to_others(time_point deadline, const std::stop_token& stop) const {
        const auto until = courtesy_.until();
        if (!until) return;
        const auto now = Clock::now();
        if (now < *until && now < deadline)
            distlock::detail::pause_until<Clock>(stop, std::min(*until, now + (deadline - now) / 2));
    }

    acquisition ask(const acquire_limits& limits, const std::stop_token& stop) {
        const auto owe = [this](const token& owner) noexcept { releaser_.owe(owner); };
        if constexpr (handing_dialect<Dialect>) {
            return take<Clock>(connection_, dialect_, limits, stop, contended_, trouble_, owe, lookout_);
        }
        return take<Clock>(connection_, dialect_, limits, stop, contended_, trouble_, owe);
    }

    // Throws: when the lease cannot be watched; the lock is given back then.
    void begin_hold(const acquisition& got, bool guarded) {
        try {
            const std::lock_guard guard(state_);
            held_.begin(got, ++serial_, guarded);
            releaser_.on_grant(got);
            granted_ = got.came;
            first_fence_ = got.fence;
        } catch (const std::system_error& e) {
            releaser_.give_back(got.owner, got.end.at, got.came + options_.lease.get());
            throw no_thread(e);
        } catch (...) {
            releaser_.give_back(got.owner, got.end.at, got.came + options_.lease.get());
            throw;
        }
    }

    // Preconditions: there is an acquisition, and `guard` holds state_. Effects: as unlock().
    release_outcome release_hold(std::unique_lock<std::mutex>& guard) noexcept {
        if (!queue_.empty()) {
            if (auto* const next = pass(Clock::now())) {
                guard.unlock();
                local_queue::call(*next);
                return release_outcome::released;
            }
        }
        const auto last = held_.end(guard);
        if (!last) return release_outcome::expired;
        busy_ = true;  // a thread of ours that tried now would only find the key still there
        trouble_ = errc{};
        guard.unlock();
        const auto done = releaser_.release(*last);
        const std::lock_guard again(state_);
        if (courtesy_.due()) courtesy_.on_release(Clock::now());
        call_next();
        return done;
    }

    // Effects: the first thread in the queue has the lock, without the server, unless other processes have waited long
    // enough.
    // Returns: whom to call; null: the lock was not passed on.
    local_queue::seat* pass(time_point now) noexcept {
        const auto& held = *held_.get();
        const auto since = now - granted_;
        if (held.ending || now >= held_.until() || since >= duration(options_.local_budget.get()))
            return nullptr;
        if (held.lease.lease_end() - now < duration(options_.lease.get()) / 2) return nullptr;
        auto& next = *queue_.first();
        next.fence = held.fence;
        if (held.fence != 0) {
            if constexpr (requires { dialect_.leaves_room(); }) {
                if (!dialect_.leaves_room()) return nullptr;
            }
            // The server makes fences of its clock, or far beyond the last one: those in between are ours.
            constexpr std::uint64_t room = 1'000'000;
            const auto used = ++next.fence - first_fence_;
            const auto microseconds = static_cast<std::uint64_t>(since / std::chrono::microseconds{1});
            if (used >= room || used > microseconds / 4 * 3) return nullptr;
        }
        next.serial = ++serial_;
        held_.pass(next);
        return &queue_.choose(local_queue::turn::to_hold);
    }

    void open_gate() noexcept {
        const std::lock_guard guard(state_);
        call_next();
    }

    Conn& connection_;
    const lock_options options_;
    const Dialect dialect_;
    const pid_t process_ = distlock::detail::current_process();

    mutable std::mutex state_;
    local_queue queue_;       // threads of ours that wait for their turn
    bool busy_ = false;       // a thread of ours is talking to the server about this lock
    bool contended_ = false;  // the lock was found taken the last time
    std::uint64_t serial_ = 0;
    engine::strays strays_;
    courtesy courtesy_;
    std::uint64_t failures_ = 0;     // attempts that ended in trouble
    errc last_failure_{};            // of the last of them
    std::atomic<errc> trouble_{};    // of the thread that is busy: why the server does not answer it
    time_point granted_{};           // when the server gave us what we hold
    std::uint64_t first_fence_ = 0;  // that it gave us then
    mutable held_type held_;         // the last three: their threads use the others until they end
    releaser<Conn, Dialect, Clock> releaser_;
    lookout_type lookout_;
};

}  // namespace distlock::engine
