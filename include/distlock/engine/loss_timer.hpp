// Says in time that a lock is lost: a thread that waits for deadlines and does no I/O, and threads of their own for the
// user's code.
//
//   template <class Clock> class loss_timer {
//     struct alarm { virtual time_point ring(time_point now) noexcept = 0; };
//     struct job { virtual void run() = 0; };
//     void set(alarm&, time_point at);
//     void cancel(alarm&) noexcept;
//     void call(std::unique_ptr<job>) noexcept;
//   };
#pragma once

#include <algorithm>
#include <chrono>
#include <concepts>
#include <condition_variable>
#include <list>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include <distlock/base/clock.hpp>
#include <distlock/detail/agenda.hpp>
#include <distlock/detail/parent_only.hpp>
#include <distlock/detail/quiet_thread.hpp>

namespace distlock::engine {

/// Thread-safe. Threads start when they are needed first. In a child after fork() nothing may be called, and the
/// destructor does nothing.
template <class Clock>
class loss_timer {
    using time_point = clock::time_point;
    struct state;

  public:
    /// What is to be done at a time.
    class alarm : public distlock::detail::agenda_item<clock::time_point> {
      public:
        /// Called without a lock of the timer; must not run code of the user.
        /// Returns: when to be called next; time_point::max(): not until it is set again.
        virtual time_point ring(time_point now) noexcept = 0;

      protected:
        ~alarm() = default;
    };

    /// Code of the user. It may throw, which is ignored, block, and destroy this timer.
    class job {
      public:
        job() = default;
        job(const job&) = delete;
        job& operator=(const job&) = delete;
        virtual ~job() = default;
        virtual void run() = 0;

      private:
        friend class loss_timer;
        std::unique_ptr<job> next_;
        time_point came_{};
    };

    loss_timer() : state_() { state_.get() = std::make_shared<state>(); }
    loss_timer(const loss_timer&) = delete;
    loss_timer& operator=(const loss_timer&) = delete;

    /// Preconditions: no alarm is set.
    /// Effects: waits for the jobs that were called, except when it is destroyed by one of them.
    ~loss_timer() {
        if (state_.here()) state::end(state_.get());
    }

    /// Effects: `a` rings at `at`, or at once where that has passed, and no longer when it was to before.
    /// Throws: std::system_error, std::bad_alloc; not for an alarm that is set.
    void set(alarm& a, time_point at) {
        state& s = *state_.get();
        const std::lock_guard guard(s.lock);
        if (!s.keeping) {
            s.timekeeper = distlock::detail::quiet_thread([mine = state_.get()] { mine->keep_time(); });
            s.keeping = true;
        }
        s.alarms.put(a, at);
        if (at < s.wake_at) s.wake.notify_one();
    }

    /// Effects: `a` does not ring any more; waits for it when it does just now.
    void cancel(alarm& a) noexcept {
        state& s = *state_.get();
        std::unique_lock guard(s.lock);
        s.quiet.wait(guard, [&] { return s.ringing != &a; });
        s.alarms.drop(a);
    }

    /// Preconditions: an alarm was set once.
    /// Effects: runs `j` on a thread that holds no lock, soon, whatever other jobs do.
    void call(std::unique_ptr<job> j) noexcept { state_.get()->call(std::move(j)); }

  private:
    // A job that has waited so long gets another thread: the ones there are busy with code that blocks.
    static constexpr std::chrono::milliseconds patience{5};

    // A condition variable waits on a clock that stands still while the machine is suspended; an alarm must not.
    static constexpr std::chrono::milliseconds longest_wait{std::same_as<Clock, clock> ? 100 : 1};

    struct state : std::enable_shared_from_this<state> {
        struct caller {
            std::thread thread;
            std::list<caller> before;  // those that were done when it came
            bool done = false;
        };

        std::mutex lock;
        std::condition_variable wake;   // the timekeeper
        std::condition_variable quiet;  // no alarm rings
        distlock::detail::agenda<alarm> alarms;
        alarm* ringing = nullptr;
        std::unique_ptr<job> first;
        job* last = nullptr;
        std::list<caller> callers;
        std::thread timekeeper;
        time_point wake_at = time_point::max();
        bool keeping = false;
        bool ending = false;

        void keep_time() {
            std::unique_lock guard(lock);
            while (!ending) {
                const auto now = Clock::now();
                alarm* const next = alarms.first();
                if (next != nullptr && next->at() <= now) {
                    ring(*next, now, guard);
                    continue;
                }
                if (first && clock::now() - first->came_ >= patience) hire();
                wait(next, now, guard);
            }
        }

        // It stays listed meanwhile: to enter it again could need memory.
        void ring(alarm& a, time_point now, std::unique_lock<std::mutex>& guard) {
            alarms.put(a, time_point::max());
            ringing = &a;
            guard.unlock();
            const auto again = a.ring(now);
            guard.lock();
            ringing = nullptr;
            const auto at = std::min(again, a.at());
            if (at == time_point::max()) {
                alarms.drop(a);
            } else {
                alarms.put(a, at);
            }
            quiet.notify_all();
        }

        void wait(const alarm* next, time_point now, std::unique_lock<std::mutex>& guard) {
            if (next == nullptr && !first) {
                wake_at = time_point::max();
                wake.wait(guard);
                return;
            }
            wake_at = next != nullptr ? next->at() : time_point::max();
            clock::duration span = longest_wait;
            if (first) span = patience;
            if (std::same_as<Clock, clock> && wake_at - now < span) span = wake_at - now;
            wake.wait_for(guard, span);
        }

        void call(std::unique_ptr<job> j) noexcept {
            const std::lock_guard guard(lock);
            j->came_ = clock::now();
            job* const added = j.get();
            (last != nullptr ? last->next_ : first) = std::move(j);
            last = added;
            if (std::all_of(callers.begin(), callers.end(), [](const caller& c) { return c.done; })) hire();
            wake.notify_one();
        }

        // One more thread for jobs. When the system has none to give, the timekeeper asks again. It joins those that are
        // done: their thread_local objects are the user's, and end when they please.
        void hire() noexcept {
            std::list<caller> over;
            for (auto c = callers.begin(); c != callers.end();) {
                const auto one = c++;
                if (one->done) over.splice(over.end(), callers, one);
            }
            try {
                caller& c = callers.emplace_back();
                c.before.swap(over);
                try {
                    c.thread = distlock::detail::quiet_thread(
                        [mine = this->shared_from_this(), &c] { mine->serve(c); });
                } catch (...) {
                    over.swap(c.before);
                    callers.pop_back();
                }
            } catch (...) {}
            callers.splice(callers.end(), over);
        }

        void serve(caller& me) {
            std::unique_lock guard(lock);
            run_jobs(guard);
            me.done = true;
            guard.unlock();
            for (caller& c : me.before) c.thread.join();
            me.before.clear();
        }

        void run_jobs(std::unique_lock<std::mutex>& guard) {
            while (first) {
                std::unique_ptr<job> j = std::move(first);
                first = std::move(j->next_);
                if (!first) last = nullptr;
                guard.unlock();
                try {
                    j->run();
                } catch (...) {}
                j.reset();
                guard.lock();
            }
        }

        static void end(std::shared_ptr<state> s) {
            std::unique_lock guard(s->lock);
            s->ending = true;
            s->wake.notify_one();
            guard.unlock();
            if (s->timekeeper.joinable()) s->timekeeper.join();
            guard.lock();
            const bool by_a_job = std::any_of(s->callers.begin(), s->callers.end(), [](const caller& c) {
                return c.thread.get_id() == std::this_thread::get_id();
            });
            if (!by_a_job && s->first) s->hire();
            std::list<caller> left;
            left.splice(left.end(), s->callers);
            guard.unlock();
            for (caller& c : left) {
                if (c.thread.get_id() == std::this_thread::get_id()) {
                    c.thread.detach();
                } else {
                    c.thread.join();
                }
            }
            guard.lock();
            if (by_a_job) {
                // Its own entry is still referred to by the thread that is in it.
                s->callers.splice(s->callers.end(), left);
            } else {
                s->run_jobs(guard);  // those there was no thread for
            }
        }
    };

    distlock::detail::parent_only<std::shared_ptr<state>> state_;
};

}  // namespace distlock::engine
