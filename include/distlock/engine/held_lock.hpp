// The acquisition that a mutex has, from its grant to its end: renewed in the background, and known to be lost when it is.
//
//   template <connection Conn, class Dialect, class Clock> class held_lock {
//     void begin(const acquisition&, bool guarded);           // after a grant
//     void pass(const local_queue::seat&) noexcept;           // to another thread
//     ended end(std::unique_lock<std::mutex>&) noexcept;      // before a release
//     void forget() noexcept;                                 // when it is lost and another follows
//     std::stop_token lost();                                 // is stopped when the acquisition is lost
//     const held* get() const noexcept;                       // null: none
//     void owe(const token&, ...) noexcept;                   // releases that nobody waits for
//   };
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>

#include <distlock/base/clock.hpp>
#include <distlock/base/observer.hpp>
#include <distlock/base/token.hpp>
#include <distlock/detail/parent_only.hpp>
#include <distlock/engine/driver.hpp>
#include <distlock/engine/lease_keeper.hpp>
#include <distlock/engine/local_queue.hpp>
#include <distlock/engine/loss_timer.hpp>
#include <distlock/engine/owed_release.hpp>
#include <distlock/engine/renewal.hpp>
#include <distlock/wire/outcome.hpp>
#include <distlock/wire/reply.hpp>

namespace distlock::engine {

/// Returns: a token whose stop was requested: of a lock that is not held.
inline std::stop_token stopped_token() {
    std::stop_source source;
    source.request_stop();
    return source.get_token();
}

/// Every function but the destructor wants the caller to hold the mutex that was given to the constructor. No code
/// of the user ever runs under it. In a child after fork() nothing may be called, and the destructor does nothing.
template <connection Conn, class Dialect, class Clock>
class held_lock {
    using keeper_type = lease_keeper<Conn, Clock>;
    using timer_type = loss_timer<Clock>;
    using time_point = clock::time_point;

    struct stop_job final : timer_type::job {
        explicit stop_job(std::stop_source of) : source(std::move(of)) {}
        void run() override { source.request_stop(); }
        std::stop_source source;
    };
    struct risk_job final : timer_type::job {
        risk_job(std::shared_ptr<lease_observer> who, std::string of, clock::duration for_so_long)
            : observer(std::move(who)), name(std::move(of)), left(for_so_long) {}
        void run() override { observer->at_risk(name, left); }
        std::shared_ptr<lease_observer> observer;
        std::string name;
        clock::duration left;
    };
    struct loss_job final : timer_type::job {
        loss_job(std::shared_ptr<lease_observer> who, std::string of)
            : observer(std::move(who)), name(std::move(of)) {}
        void run() override { observer->lost(name, why); }
        std::shared_ptr<lease_observer> observer;
        std::string name;
        loss_reason why = loss_reason::expired;
    };

  public:
    struct held {
        token owner;
        renewal lease;
        std::thread::id taker;
        std::uint64_t grant;   ///< tells what the server granted apart
        std::uint64_t serial;  ///< tells acquisitions of one mutex apart: threads pass on what was granted
        std::uint64_t fence;
        bool guarded;                             ///< a guard ends it, by its serial
        bool ending = false;                      ///< not to be renewed any more
        bool awaited = false;                     ///< the first in the queue is to be told of its end
        std::stop_source stop{std::nostopstate};  ///< once somebody asked for its token
        std::unique_ptr<stop_job> stopping = {};  ///< until it was lost
        std::unique_ptr<loss_job> loss = {};
    };
    /// What is left of it to be released.
    struct ended {
        token owner;
        time_point until;
        time_point gone_by;
    };

    /// The first in `queue` is nudged when an acquisition ends before its time.
    held_lock(Conn& connection, const Dialect& dialect, const lease_terms& terms,
              std::shared_ptr<lease_observer> observer, std::mutex& state, local_queue& queue)
        : connection_(connection),
          dialect_(dialect),
          terms_(terms),
          observer_(std::move(observer)),
          state_(state),
          queue_(queue) {}
    held_lock(const held_lock&) = delete;
    held_lock& operator=(const held_lock&) = delete;

    /// Preconditions: get() == nullptr; the caller does not hold the mutex.
    ~held_lock() {
        if (!settled_.here() || !keeper_) return;
        keeper_->strike(renewer_);
        keeper_->timer().cancel(watcher_);
        if (asking_) keeper_->timer().call(std::move(asking_));
    }

    const held* get() const noexcept { return hold_ ? &*hold_ : nullptr; }
    /// Returns: the end of validity; in the past when there is no acquisition.
    time_point until() const noexcept { return hold_ ? hold_->lease.until() : time_point{}; }

    /// Preconditions: get() == nullptr; `got` was granted.
    /// Throws: std::system_error, std::bad_alloc; there is no acquisition then, but on the server.
    void begin(const acquisition& got, std::uint64_t serial, bool guarded) {
        std::uint64_t seed = 0;
        std::memcpy(&seed, got.owner.view().data() + sizeof seed, sizeof seed);
        hold_.emplace(held{got.owner, renewal(terms_, got.sent, got.came, seed), std::this_thread::get_id(),
                           serial, serial, got.fence, guarded});
        try {
            if (observer_) {
                hold_->loss = std::make_unique<loss_job>(observer_, dialect_.name());
                watch_until(hold_->lease.until());
            }
            if (hold_->lease.due() != time_point::max() && !renewing_on_) {
                shared_keeper()->list(renewer_, hold_->lease.due());
                renewing_on_ = true;
            }
        } catch (...) {
            hold_.reset();
            throw;
        }
    }

    /// Preconditions: get() != nullptr.
    /// Returns: the token that is stopped when the acquisition is lost.
    std::stop_token lost() {
        if (hold_->lease.lost(Clock::now())) {
            fall(Clock::now());
            // What is said now must be true now, and not when a thread got round to it.
            return hold_->stop.stop_requested() ? hold_->stop.get_token() : stopped_token();
        }
        if (!hold_->stop.stop_possible()) {
            std::stop_source source;
            auto job = std::make_unique<stop_job>(source);
            watch_until(hold_->lease.until());
            hold_->stop = std::move(source);
            hold_->stopping = std::move(job);
        }
        return hold_->stop.get_token();
    }

    /// Effects: the first in the queue is nudged if the lease ends before its time.
    /// Returns: whether somebody can do that.
    bool await_end() noexcept {
        if (!hold_ || hold_->awaited) return true;
        try {
            watch_until(hold_->lease.until());
            return hold_->awaited = true;
        } catch (...) {
            return false;
        }
    }

    /// Effects: ends the acquisition for this process, once nothing that would renew it is on its way.
    /// Returns: what is to be released; none when it ended meanwhile.
    std::optional<ended> end(std::unique_lock<std::mutex>& guard) noexcept {
        if (!hold_) return std::nullopt;
        const auto grant = hold_->grant;
        hold_->ending = true;
        settled_.get().wait(guard, [&] { return renewing_ != grant || !hold_ || hold_->grant != grant; });
        if (!hold_ || hold_->grant != grant) return std::nullopt;
        const ended last{hold_->owner, hold_->lease.until(), hold_->lease.gone_by()};
        forget();
        return last;
    }

    /// Preconditions: get() != nullptr, and neither lost nor ending.
    /// Effects: it is the acquisition of another thread now, which has it by the same grant.
    void pass(const local_queue::seat& to) noexcept {
        hold_->taker = to.who;
        hold_->serial = to.serial;
        hold_->fence = to.fence;
        hold_->guarded = to.guarded;
        hold_->lease.pass(Clock::now());
        if (!hold_->stop.stop_possible()) return;
        hold_->stop = std::stop_source(std::nostopstate);
        hold_->stopping.reset();
    }

    /// Effects: there is no acquisition any more; who asked is told if it was lost before.
    void forget() noexcept {
        if (!hold_) return;
        fall(Clock::now());
        hold_.reset();
    }

    /// Preconditions: it is lost, if there is an acquisition. Effects: as forget(); what its owner would have released, is: after
    /// the longest hold the key has much of a lease before it.
    void abandon() noexcept {
        if (hold_ && !hold_->ending) {
            const auto gone_by = hold_->lease.gone_by();
            if (gone_by - Clock::now() > clock::duration(terms_.lease) / 8) owe(hold_->owner, {}, gone_by);
        }
        forget();
    }

    /// Effects: releases by `owner` in the background, beginning after `delay`, until `gone_by`; where there is no
    /// memory or no thread for it, the lease ends it.
    /// Returns: what is owed; null without memory.
    std::shared_ptr<debt> owe(const token& owner, clock::duration delay, time_point gone_by) noexcept {
        std::shared_ptr<debt> owed;
        try {
            owed = std::make_shared<debt>(gone_by);
            shared_keeper()->owe(std::make_unique<owed_release<Conn, Dialect, Clock>>(dialect_, owner, owed),
                                 Clock::now() + delay);
        } catch (...) {}
        return owed;
    }

    /// Throws: std::bad_alloc.
    const std::shared_ptr<keeper_type>& shared_keeper() {
        if (!keeper_) keeper_ = keeper_of<Clock>(connection_);
        return keeper_;
    }

  private:
    using chore = typename keeper_type::chore;

    struct renewer final : chore {
        explicit renewer(held_lock& of) : mine(of) { this->early = clock::duration(of.terms_.lease) / 48; }
        typename chore::step begin(time_point now) noexcept override { return mine.begin_renewal(now); }
        time_point end(const reply& answer, time_point sent, time_point now) noexcept override {
            return mine.end_renewal(answer, sent, now);
        }
        held_lock& mine;
        token owner;  // of the acquisition that is being renewed, whatever becomes of it meanwhile
    };
    struct watcher final : timer_type::alarm {
        explicit watcher(held_lock& of) : mine(of) {}
        time_point ring(time_point now) noexcept override { return mine.watch(now); }
        held_lock& mine;
    };

    // Throws: as loss_timer::set.
    void watch_until(time_point at) {
        shared_keeper()->timer().set(watcher_, asking_ ? std::min(at, ask_until_) : at);
    }

    // Tells who asked, if it is lost.
    void fall(time_point now) noexcept {
        const auto why = hold_->lease.lost(now);
        if (!why) return;
        if (hold_->stopping) keeper_->timer().call(std::move(hold_->stopping));
        if (!hold_->loss) return;
        hold_->loss->why = *why;
        keeper_->timer().call(std::move(hold_->loss));
    }

    time_point watch(time_point now) noexcept {
        const std::lock_guard guard(state_);
        if (asking_ && now >= ask_until_) keeper_->timer().call(std::move(asking_));
        const auto next = asking_ ? ask_until_ : time_point::max();
        if (!hold_ || (!hold_->stopping && !hold_->loss && !hold_->awaited)) return next;
        if (!hold_->lease.lost(now)) return std::min(next, hold_->lease.until());
        fall(now);
        if (std::exchange(hold_->awaited, false)) queue_.nudge_first();
        return next;
    }

    typename chore::step begin_renewal(time_point now) noexcept {
        const std::lock_guard guard(state_);
        if (asking_) {
            asked_ = true;
            return {inspector_->forced(), {}};
        }
        if (!hold_ || hold_->ending || hold_->lease.due() == time_point::max() ||
            now >= hold_->lease.until()) {
            renewing_on_ = false;
            return {{}, time_point::max()};
        }
        if (!hold_->lease.ready(now)) return {{}, hold_->lease.due()};
        renewer_.owner = hold_->owner;
        renewing_ = hold_->grant;
        command renew = dialect_.renew(renewer_.owner);
        renew.until(hold_->lease.until());
        return {renew, {}};
    }

    time_point end_renewal(const reply& answer, time_point sent, time_point came) noexcept {
        const std::lock_guard guard(state_);
        // The loss may have been told since the answer came.
        const auto now = std::max(came, Clock::now());
        if (std::exchange(asked_, false)) {
            if (asking_ && inspector_->was_forced(answer, renewer_.owner)) asking_->why = loss_reason::forced;
            if (asking_) keeper_->timer().call(std::move(asking_));
        } else {
            const auto grant = std::exchange(renewing_, 0);
            settled_.get().notify_all();
            const auto outcome = dialect_.read_renew(answer);
            if (hold_ && hold_->grant == grant) {
                renewed(outcome, sent, now);
            } else if (outcome.what == renew_outcome::kind::kept ||
                       outcome.what == renew_outcome::kind::later) {
                // Its lease ran out, and another followed, while the answer was on its way: it may stand in that one's way.
                owe(renewer_.owner, {}, now + terms_.lease);
            }
            if (asking_) return now;
        }
        renewing_on_ = hold_ && !hold_->ending && hold_->lease.due() != time_point::max();
        return renewing_on_ ? hold_->lease.due() : time_point::max();
    }

    void renewed(const renew_outcome& outcome, time_point sent, time_point now) noexcept {
        switch (hold_->lease.on_outcome(outcome, sent, now)) {
            case renewal::news::none:
                break;
            case renewal::news::at_risk:
                tell_of_risk(now);
                break;
            case renewal::news::lost:
                ask_why(now);
                fall(now);
                queue_.nudge_first();
                break;
            case renewal::news::too_late:
                owe(renewer_.owner, {}, hold_->lease.gone_by());
                break;
        }
    }

    void tell_of_risk(time_point now) noexcept {
        if (!observer_) return;
        try {
            keeper_->timer().call(
                std::make_unique<risk_job>(observer_, dialect_.name(), hold_->lease.until() - now));
        } catch (...) {
            // No memory for a warning; a loss has its own.
        }
    }

    // The server only says that the lock is not ours. Whether an operator took it costs a question, for which the
    // stop token does not wait, nor the observer for long.
    void ask_why(time_point now) noexcept {
        if (!hold_->loss) return;
        try {
            if (!inspector_) inspector_ = inspector_of(dialect_.name());
            ask_until_ = now + std::chrono::seconds{1};
            keeper_->timer().set(watcher_, ask_until_);
        } catch (...) {
            return;
        }
        hold_->loss->why = *hold_->lease.lost(hold_->lease.until());
        asking_ = std::move(hold_->loss);
    }

    static typename Dialect::inspector inspector_of(const std::string& key) {
        using inspector = typename Dialect::inspector;
        if constexpr (requires { inspector::of_key(key); }) {
            return inspector::of_key(key);
        } else {
            return inspector(key);
        }
    }

    Conn& connection_;
    const Dialect& dialect_;
    const lease_terms terms_;
    const std::shared_ptr<lease_observer> observer_;
    std::mutex& state_;
    local_queue& queue_;
    distlock::detail::parent_only<std::condition_variable> settled_;  // no renewal is on its way
    std::shared_ptr<keeper_type> keeper_;                             // once it was needed
    std::optional<held> hold_;
    std::uint64_t renewing_ = 0;        // the acquisition whose renewal is on its way; 0: none
    bool renewing_on_ = false;          // the keeper has the renewer on its list
    std::unique_ptr<loss_job> asking_;  // while the server is asked why
    bool asked_ = false;                // what is on its way is that question
    time_point ask_until_{};
    std::optional<typename Dialect::inspector> inspector_;
    renewer renewer_{*this};
    watcher watcher_{*this};
};

}  // namespace distlock::engine
