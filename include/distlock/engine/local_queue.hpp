// The threads of one process that want the same lock object: first come, first served.
//
//   class local_queue {
//     struct seat;                                // of one thread, on its stack
//     void join(seat&) noexcept;
//     void leave(seat&) noexcept;
//     seat* first() const noexcept;
//     seat& choose(turn) noexcept;                // the first leaves the queue to have its turn
//     static void call(seat&) noexcept;           // and is woken
//     void nudge_first() noexcept;                // to look again
//     static void sleep<Clock>(seat&, guard, until);   // until called, nudged, or the time is up
//   };
#pragma once

#include <algorithm>
#include <chrono>
#include <concepts>
#include <cstdint>
#include <mutex>
#include <optional>
#include <thread>

#include <distlock/base/clock.hpp>
#include <distlock/detail/parker.hpp>
#include <distlock/detail/pause.hpp>

namespace distlock::engine {

/// Not thread-safe: all but call() is used under one mutex, that of the lock object. Allocates nothing.
class local_queue {
  public:
    enum class turn : std::uint32_t {
        none,
        to_look,  ///< again at what it waits for
        to_ask,   ///< the server, on behalf of the process
        to_hold,  ///< the lock, which a thread of the process passed on
    };

    struct seat {
        seat(std::thread::id whose, bool ends_by_guard) : who(whose), guarded(ends_by_guard) {}
        seat(const seat&) = delete;
        seat& operator=(const seat&) = delete;

        const std::thread::id who;
        const bool guarded;
        std::uint64_t serial = 0;  ///< of to_hold: the acquisition that is its now
        std::uint64_t fence = 0;

        /// Returns: the turn it was called to, if it was.
        turn called() const noexcept {
            const turn now = static_cast<turn>(parker_.word());
            return now == turn::to_look ? turn::none : now;
        }
        /// Returns: whether it left the queue to be called; under the mutex.
        bool chosen() const noexcept { return chosen_ != turn::none; }

      private:
        friend local_queue;
        distlock::detail::parker parker_;
        turn chosen_ = turn::none;
        seat* before_ = nullptr;
        seat* behind_ = nullptr;
    };

    bool empty() const noexcept { return first_ == nullptr; }
    seat* first() const noexcept { return first_; }

    /// Preconditions: `s` is not in the queue.
    void join(seat& s) noexcept {
        s.before_ = last_;
        s.behind_ = nullptr;
        (last_ != nullptr ? last_->behind_ : first_) = &s;
        last_ = &s;
    }

    /// Preconditions: `s` is in the queue.
    void leave(seat& s) noexcept {
        (s.before_ != nullptr ? s.before_->behind_ : first_) = s.behind_;
        (s.behind_ != nullptr ? s.behind_->before_ : last_) = s.before_;
    }

    /// Preconditions: not empty().
    /// Postconditions: who was first is to be called, soon.
    seat& choose(turn what) noexcept {
        seat& s = *first_;
        leave(s);
        s.chosen_ = what;
        return s;
    }

    /// Preconditions: `s` was chosen, and not called yet.
    /// Effects: its thread has its turn, and may end the seat before this returns.
    static void call(seat& s) noexcept { s.parker_.call(static_cast<std::uint32_t>(s.chosen_)); }

    void nudge_first() noexcept {
        if (first_ != nullptr) nudge(*first_);
    }
    static void nudge(seat& s) noexcept { s.parker_.nudge(static_cast<std::uint32_t>(turn::to_look)); }

    /// Effects: sleeps without the mutex until called, nudged, or `until`, or for a while: see detail::next_slice.
    /// Postconditions: `guard` has the mutex again, unless it was called to hold.
    template <class Clock>
    static void sleep(seat& s, std::unique_lock<std::mutex>& guard, clock::time_point until) {
        const bool chosen = s.chosen();
        if (!chosen) s.parker_.rest();
        guard.unlock();
        std::optional<std::chrono::nanoseconds> longest;  // a timer costs more than the sleep itself
        if (!chosen && (until != clock::time_point::max() || !std::same_as<Clock, clock>))
            longest = std::max(distlock::detail::next_slice<Clock>(until), clock::duration::zero());
        s.parker_.sleep(longest);
        if (s.called() != turn::to_hold) guard.lock();
    }

  private:
    seat* first_ = nullptr;
    seat* last_ = nullptr;
};

}  // namespace distlock::engine
