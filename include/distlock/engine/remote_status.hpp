// Whether the server answers the one thread of a lock object that asks it, for the threads that
// want to know meanwhile.
//
//   class remote_status {
//     void begin() noexcept;                       // a thread begins to ask: it has heard nothing yet
//     void answered(errc cause, now) noexcept;   // errc{}, errc::holder_without_ttl: the server answers
//     void end() noexcept;                         // that thread will hear nothing more
//     bool known() const noexcept;                 // whether it has heard something
//     errc last_error() const noexcept;               // what was heard last, by that thread or one before
//     time_point failing_since() const noexcept;
//         // no answer without trouble came from then on, whoever asked
//     bool wait(until, stop, time);               // until it is known, or was
//     errc confirm(since, until, stop, time, ask);   // asks where nothing was heard since then, once for all
//     void pause(until, stop, time);              // by that thread, unless another one waits
//   };
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <optional>
#include <stop_token>

#include <distlock/base/clock.hpp>
#include <distlock/base/error.hpp>
#include <distlock/base/time_source.hpp>
#include <distlock/detail/leaked_in_child.hpp>
#include <distlock/detail/thread_safety.hpp>

namespace distlock::engine {

/// Thread-safe. An answer that nobody waits for costs six atomic operations at most.
class remote_status {
  public:
    void begin() noexcept { known_ = false; }

    /// errc::cancelled is no answer: that thread's own stop says nothing of the server.
    void answered(errc cause, clock::time_point now) noexcept {
        if (cause == errc::cancelled) return;
        if (cause == errc{} || cause == errc::holder_without_ttl) {
            heard_at_.store(now, std::memory_order_relaxed);
            failing_since_ = clock::time_point::max();
        } else if (failing_since() == clock::time_point::max()) {
            failing_since_ = now;
        }
        record(cause);
    }
    void end() noexcept {
        if (!known_) record(errc::cancelled);
    }

    bool known() const noexcept { return known_; }
    errc last_error() const noexcept { return last_error_; }
    /// Returns: time_point::max() where the last answer was without trouble.
    clock::time_point failing_since() const noexcept { return failing_since_; }

    /// Effects: waits for the first answer that comes from now on, until `until` or a request of `stop`; for
    /// nothing where one is known.
    /// Returns: whether there is one. By then another thread may have begun to ask.
    bool wait(clock::time_point until, const std::stop_token& stop, time_source time = {}) {
        const auto before = answers_.load();
        bool heard = false;  // once: by the time this returns another thread may have begun
        ++waiting_;
        wake();
        sleep(until, stop, time, [&] { return heard = known_ || answers_ != before; });
        --waiting_;
        return heard;
    }

    /// Effects: where the last answer without trouble came before `since`, calls `ask()`, or waits until
    /// `until` for another thread that does so. `ask()` says what keeps the server from answering, or errc{}.
    /// Returns: what was heard, or errc::no_reply; errc{}: the server has answered since.
    template <class Ask>
    errc confirm(clock::time_point since, clock::time_point until, const std::stop_token& stop,
                 time_source time, Ask ask) {
        for (;;) {
            if (heard_at_.load() >= since) return {};
            if (stop.stop_requested()) return errc::cancelled;
            std::uint64_t before = 0;
            {
                const distlock::detail::annotated_lock guard(lock_);
                if (asked_.heard) {
                    asked_ = {.until = until, .heard = std::nullopt, .times = asked_.times};
                    break;
                }
                before = asked_.times;
            }
            // It is called with the mutex.
            sleep(until, stop, time, [&]() DISTLOCK_UNCHECKED { return asked_.times != before; });
            const distlock::detail::annotated_lock guard(lock_);
            if (asked_.times == before) return stop.stop_requested() ? errc::cancelled : errc::no_reply;
            const auto heard = asked_.heard;
            // That thread's own stop says nothing of the server.
            const bool tells = heard && heard != errc{} && heard != errc::cancelled;
            const bool waited_less = heard == errc::no_reply && asked_.until < until;
            if (tells && !waited_less) return *heard;
        }
        const auto end = [&](errc heard) {
            if (heard == errc{}) heard_at_ = time.now();
            const distlock::detail::annotated_lock guard(lock_);
            asked_ = {.until = until, .heard = heard, .times = asked_.times + 1};
            wake_.get().notify_all();
            return heard;
        };
        try {
            return end(ask());
        } catch (...) {
            end(errc::cancelled);
            throw;
        }
    }

    /// Effects: waits until `until`, a request of `stop`, or another thread waits for an answer.
    void pause(clock::time_point until, const std::stop_token& stop, time_source time = {}) {
        sleep(until, stop, time, [&] { return waiting_ > 0; });
    }

  private:
    // Whether the server answers, by one thread for all.
    struct question {
        clock::time_point until{};
        std::optional<errc> heard = errc{};  // none: it is under way
        std::uint64_t times = 0;             // that it was answered, or given up
    };

    void record(errc cause) noexcept {
        last_error_ = cause;
        ++answers_;
        if (!known_.exchange(true) && waiting_ > 0) wake();
    }
    void wake() {
        const distlock::detail::annotated_lock guard(lock_);
        wake_.get().notify_all();
    }
    template <class Over>
    void sleep(clock::time_point until, const std::stop_token& stop, time_source time, Over over) {
        const std::stop_callback on_stop(stop, [this] { wake(); });
        for (;;) {
            const auto span = time.slice(until);  // a clock may run code of a test
            distlock::detail::annotated_lock guard(lock_);
            if (over() || stop.stop_requested() || span <= clock::duration::zero()) return;
            wake_.get().wait_for(guard.native(), span);
        }
    }

    std::atomic<errc> last_error_ = errc{};
    std::atomic<clock::time_point> failing_since_ = clock::time_point::max();
    std::atomic<clock::time_point> heard_at_ = clock::time_point::min();
    std::atomic<bool> known_ = true;
    std::atomic<std::uint64_t> answers_ = 0;
    std::atomic<int> waiting_ = 0;
    distlock::detail::annotated_mutex lock_;
    question asked_ DISTLOCK_GUARDED_BY(lock_);
    distlock::detail::leaked_in_child<std::condition_variable> wake_;
};

}  // namespace distlock::engine
