// The threads of one process that want the same lock object: first come, first served.
//
//   class waiter_queue {
//     class waiter;                                // one thread, on its stack
//     void join(waiter&) noexcept;
//     void leave(waiter&) noexcept;
//     waiter* first() const noexcept;
//     waiter& dequeue(wake) noexcept;              // the first; it is woken by waiter::wake_up()
//     void recheck_first() noexcept;
//   };
//   struct recheck_on_stop;                        // a stop request wakes a waiter
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <thread>

#include <distlock/base/clock.hpp>
#include <distlock/base/error.hpp>
#include <distlock/base/time_source.hpp>
#include <distlock/detail/system.hpp>
#include <distlock/detail/thread_safety.hpp>

namespace distlock::engine {

/// Why a waiter is woken.
enum class wake : std::uint32_t {
    none,
    recheck,    ///< what it waits for
    go_remote,  ///< ask the server, on behalf of the process
    granted,    ///< a thread of the process passed the lock on to it
    told,       ///< the answer to another thread is its own, too
};

/// Intrusive: allocates nothing. Not thread-safe: used under the mutex of the lock object, but for
/// what says otherwise.
class waiter_queue {
  public:
    class waiter {
      public:
        waiter(std::thread::id whose, bool ends_by_guard) : thread(whose), guarded(ends_by_guard) {}
        waiter(const waiter&) = delete;
        waiter& operator=(const waiter&) = delete;

        const std::thread::id thread;
        const bool guarded;
        std::uint64_t serial = 0;  ///< of wake::granted: the acquisition that is its now
        std::uint64_t fence = 0;
        errc cause{};  ///< of wake::told: as of lock_core::result; or errc::holder_without_ttl

        /// Returns: why it was woken; none: for a recheck, or not at all. Without the mutex, too.
        wake reason() const noexcept {
            const auto now = static_cast<wake>(parker_.word());
            return now == wake::recheck ? wake::none : now;
        }
        /// Returns: whether it left the queue to be woken.
        bool dequeued() const noexcept { return reason_ != wake::none; }

        void recheck() noexcept { parker_.nudge(static_cast<std::uint32_t>(wake::recheck)); }

        /// Preconditions: it was dequeued, and not woken yet.
        /// Effects: its thread goes on, and may end the waiter before this returns. Without the mutex.
        void wake_up() noexcept { parker_.call(static_cast<std::uint32_t>(reason_)); }

        /// Effects: from now on a recheck is not missed.
        /// Returns: how long to sleep for `until`; none: no limit, since a timer costs more
        /// than the sleep itself.
        std::optional<std::chrono::nanoseconds> prepare_sleep(clock::time_point until,
                                                              time_source time) noexcept {
            if (dequeued()) return std::nullopt;
            parker_.rest();
            if (until == clock::time_point::max() && time.is_real()) return std::nullopt;
            return time.slice(until);
        }
        /// Effects: sleeps until it is woken, or `longest`, or sooner. Without the mutex.
        void sleep(std::optional<std::chrono::nanoseconds> longest) noexcept { parker_.sleep(longest); }

      private:
        friend waiter_queue;
        distlock::detail::parker parker_;
        wake reason_ = wake::none;
        waiter* previous_ = nullptr;
        waiter* next_ = nullptr;
    };

    bool empty() const noexcept { return first_ == nullptr; }
    waiter* first() const noexcept { return first_; }

    /// Preconditions: `w` is not in the queue.
    void join(waiter& w) noexcept {
        w.previous_ = last_;
        w.next_ = nullptr;
        (last_ != nullptr ? last_->next_ : first_) = &w;
        last_ = &w;
    }

    /// Preconditions: `w` is in the queue.
    void leave(waiter& w) noexcept {
        (w.previous_ != nullptr ? w.previous_->next_ : first_) = w.next_;
        (w.next_ != nullptr ? w.next_->previous_ : last_) = w.previous_;
    }

    /// Preconditions: not empty().
    /// Effects: the first leaves the queue, to be woken soon.
    waiter& dequeue(wake why) noexcept {
        waiter& w = *first_;
        leave(w);
        w.reason_ = why;
        return w;
    }

    void recheck_first() noexcept {
        if (first_ != nullptr) first_->recheck();
    }

  private:
    waiter* first_ = nullptr;
    waiter* last_ = nullptr;
};

/// A stop request wakes the waiter, under the mutex: else it would come between the look and the sleep.
struct recheck_on_stop {
    distlock::detail::annotated_mutex& mutex;
    waiter_queue::waiter& of;

    void operator()() const noexcept {
        const distlock::detail::annotated_lock guard(mutex);
        of.recheck();
    }
};

}  // namespace distlock::engine
