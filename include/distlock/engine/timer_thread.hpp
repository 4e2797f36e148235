// A thread and an agenda of what is due when.
//
//   class timer_thread {
//     timer_thread(time_source, std::unique_ptr<timer_runner>);
//     void schedule(item&, time_point at);
//     void schedule_by(item&, time_point at);          // or earlier, when it was to before
//     void advance_all(time_point at) noexcept;        // none runs later
//     void cancel(item&) noexcept;
//     bool adopt(std::shared_ptr<item>, time_point at, std::size_t most) noexcept;
//     bool on_own_thread();
//   };
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <limits>
#include <memory>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include <distlock/base/clock.hpp>
#include <distlock/base/time_source.hpp>
#include <distlock/detail/agenda.hpp>
#include <distlock/detail/leaked_in_child.hpp>
#include <distlock/detail/thread_group.hpp>
#include <distlock/detail/thread_safety.hpp>

namespace distlock::engine {

/// Base of what a timer thread runs.
class timer_item : public distlock::detail::agenda_item<clock::time_point> {
  protected:
    ~timer_item() = default;

    /// How much earlier than asked for it may run when others do.
    clock::duration early{};

  private:
    friend class timer_thread;

    // Rescheduled and cancelled: while it was running.
    enum class phase { waiting, running, rescheduled, cancelled };

    phase phase_ = phase::waiting;
    std::shared_ptr<const void> adopted_;  // itself
    bool counted_ = false;
};

/// Work that may block, for the thread itself: another one takes its place as soon as the system has one.
class blocking_work {
  public:
    blocking_work() = default;
    blocking_work(const blocking_work&) = delete;
    blocking_work& operator=(const blocking_work&) = delete;
    virtual ~blocking_work() = default;
    virtual void run() noexcept = 0;
};

/// What a timer thread does with items that are due.
class timer_runner {
  public:
    timer_runner() = default;
    timer_runner(const timer_runner&) = delete;
    timer_runner& operator=(const timer_runner&) = delete;
    virtual ~timer_runner() = default;

    /// Returns: how many items it takes at once.
    virtual std::size_t most() const noexcept = 0;
    /// Returns: the longest of one wait; the system's timers stand still while the machine is suspended.
    virtual std::chrono::milliseconds longest_wait() const noexcept = 0;
    /// Returns: how long it goes on with last runs, after the first.
    virtual std::chrono::milliseconds longest_end() const noexcept { return {}; }
    /// Effects: what is to be done every longest_wait() or so while nothing is due yet, but something will
    /// be. Called by the thread, without a lock.
    virtual void idle() noexcept {}
    /// Effects: gets the memory that run() needs. Called before the first thread starts.
    /// Throws: std::bad_alloc.
    virtual void reserve() = 0;
    /// Effects: puts those of `due` to the front, in their order, for which run() has something to do; sets
    /// when each of the others is `next` to run. Called right before run(), without a lock.
    /// Returns: how many are at the front. The others are not running any more.
    virtual std::size_t begin(std::span<timer_item*> due, clock::time_point /*now*/,
                              std::span<clock::time_point> /*next*/, bool /*last*/) noexcept {
        return due.size();
    }
    /// Effects: does what is `due`, in the order of the times; sets when each is `next` to run:
    /// time_point::max(): not until it is scheduled again. Called by one thread at a time, without a lock.
    /// `last`: none of them runs again, whatever is `next`.
    /// Returns: what the thread is to do afterwards though it may block; null: nothing.
    virtual std::shared_ptr<blocking_work> run(std::span<timer_item* const> due, clock::time_point now,
                                               std::span<clock::time_point> next, bool last) noexcept = 0;
};

/// Thread-safe. The thread starts with the first item and is joined by the destructor. Scheduling an item
/// that is listed allocates nothing, and an item stays listed until it is cancelled. In a child after fork()
/// nothing may be called, and the destructor does nothing.
class timer_thread {
    using time_point = clock::time_point;

  public:
    using item = timer_item;
    static constexpr std::size_t unlimited = std::numeric_limits<std::size_t>::max();

    [[gnu::cold]] timer_thread(time_source time, std::unique_ptr<timer_runner> runner) {
        state_.get() = std::make_shared<state>(time, std::move(runner));
    }
    timer_thread(const timer_thread&) = delete;
    timer_thread& operator=(const timer_thread&) = delete;

    /// Preconditions: no item is listed, but adopted ones.
    /// Effects: they run a last time, due or not, as many as go at once, and more until longest_end() is
    /// over; all are given up. Waits for the thread, except when that is the calling one.
    [[gnu::cold]] ~timer_thread() {
        if (state_.here()) state::end(state_.get());
    }

    /// Effects: `i` runs at `at`, or at once where that has passed, and no longer when it was to before.
    /// Throws: std::system_error, std::bad_alloc, and then nothing has changed; not for an
    /// item that is listed.
    void schedule(item& i, time_point at) { state_.get()->schedule(i, at); }

    /// Effects: as schedule(); but when it was to run earlier, it still does. Throws: as schedule().
    void schedule_by(item& i, time_point at) { state_.get()->schedule_by(i, at); }

    /// Effects: every item that is listed runs at `at`, also one that was to run no more; no later when it
    /// was to before. One that is running runs again, unless it was adopted and is over now.
    [[gnu::cold]] void advance_all(time_point at) noexcept { state_.get()->advance_all(at); }

    /// Preconditions: not called by the run of `i`.
    /// Effects: `i` does not run any more, and is not listed; waits for it when it runs just now.
    void cancel(item& i) noexcept { state_.get()->cancel(i); }

    /// Effects: as schedule_by(), and keeps `i` alive until it is not to run again, or is cancelled.
    /// Returns: false where there is no thread or no memory for it, or `most` were adopted already, but for
    /// those with the limit `unlimited`: they take no place of another.
    bool adopt(std::shared_ptr<item> i, time_point at, std::size_t most) noexcept {
        return state_.get()->adopt(std::move(i), at, most);
    }

    /// Returns: whether the calling thread is one of this timer's.
    bool on_own_thread() { return state_.get()->threads->has_this_thread(); }

  private:
    struct state : std::enable_shared_from_this<state> {
        using lock_type = distlock::detail::annotated_lock;
        enum class phase {
            unstarted,
            running,
            lent,  // the thread does blocking work, and there was none to take its place
            stopping,
        };
        struct batch {
            explicit batch(std::size_t most) {
                due.reserve(most);
                next.reserve(most);
                given_up.reserve(most);
            }
            std::vector<item*> due;
            std::vector<time_point> next;
            std::vector<std::shared_ptr<const void>> given_up;  // destroyed without the lock
        };

        [[gnu::cold]] state(time_source reads, std::unique_ptr<timer_runner> r)
            : time(reads), runner(std::move(r)) {}

        void schedule(item& i, time_point at) {
            const lock_type guard(lock);
            staff();
            put(i, at);
        }

        void schedule_by(item& i, time_point at) {
            const lock_type guard(lock);
            staff();
            put_by(i, at);
        }

        [[gnu::cold]] void advance_all(time_point at) noexcept {
            const lock_type guard(lock);
            items.advance_all(at);
            if (at < wake_at) wake.notify_one();
        }

        void cancel(item& i) noexcept {
            std::shared_ptr<const void> kept;  // destroyed without the lock
            lock_type guard(lock);
            while (i.phase_ != item::phase::waiting) {
                i.phase_ = item::phase::cancelled;
                settled.wait(guard.native());
            }
            items.drop(i);
            kept = give_up(i);
        }

        bool adopt(std::shared_ptr<item> i, time_point at, std::size_t most) noexcept {
            const lock_type guard(lock);
            const bool counts = most != unlimited;
            if (!i) return false;  // it never is; but -Wnull-dereference cannot know
            try {
                if (!i->adopted_ && counts && adopted >= most) return false;
                staff();
                put_by(*i, at);
            } catch (...) {
                return false;
            }
            if (i->adopted_) return true;
            if (counts) ++adopted;
            item& its = *i;
            its.counted_ = counts;
            its.adopted_ = std::move(i);
            return true;
        }

        [[gnu::cold]] static void end(std::shared_ptr<state> s) {
            {
                const lock_type guard(s->lock);
                s->now = phase::stopping;
                s->wake.notify_one();
            }
            s->threads->join();
            while (s->give_up_first()) continue;
        }

        // Effects: there is a thread; where it is lent, as soon as the system has another.
        [[gnu::cold]] void staff() DISTLOCK_REQUIRES(lock) {
            if (now == phase::unstarted) {
                runner->reserve();
                start();
            } else if (now == phase::lent) {
                try {
                    start();
                } catch (...) {}
            }
        }

        [[gnu::cold]] void start() DISTLOCK_REQUIRES(lock) {
            // The batch is made here, where somebody hears of it that there is no memory.
            threads->start([mine = this->shared_from_this(), b = batch(runner->most()),
                            nth = started + 1]() mutable { mine->keep_time(b, nth); });
            ++started;
            now = phase::running;
        }

        void put(item& i, time_point at) DISTLOCK_REQUIRES(lock) {
            items.put(i, at);
            if (i.phase_ == item::phase::running) i.phase_ = item::phase::rescheduled;
            if (at < wake_at) wake.notify_one();
        }
        void put_by(item& i, time_point at) DISTLOCK_REQUIRES(lock) {
            put(i, i.listed() ? std::min(at, i.at()) : at);
        }

        [[gnu::cold]] void keep_time(batch& b, unsigned nth) {
            lock_type guard(lock);
            bool busy = false;
            auto ends = time_point::max();
            for (;;) {
                const auto at = time.now();
                if (at >= ends) return;
                const bool last = now == phase::stopping;
                if (last && ends == time_point::max()) ends = at + runner->longest_end();
                collect(b, at, last);
                if (b.due.empty()) {
                    if (last) return;
                    if (!wait(at, std::exchange(busy, false), guard.native())) continue;
                    guard.unlock();
                    runner->idle();
                    guard.lock();
                    continue;
                }
                busy = true;
                guard.unlock();
                const auto running = runner->begin(b.due, at, b.next, last);
                if (running < b.due.size()) {
                    guard.lock();
                    put_back(b, running, last);
                    guard.unlock();
                }
                auto work = runner->run(b.due, at, b.next, last);
                guard.lock();
                put_back(b, 0, last);
                if (work && now == phase::running) now = phase::lent;
                if (!work && b.given_up.empty()) continue;
                guard.unlock();
                b.given_up.clear();
                if (work) work->run();
                work.reset();
                guard.lock();
                if (nth != started) return;  // another thread took its place
                if (now == phase::lent) now = phase::running;
            }
        }

        [[gnu::cold]] void collect(batch& b, time_point at, bool last) DISTLOCK_REQUIRES(lock) {
            b.due.clear();
            // A running item stays listed, at the end of time: to enter it again could need memory.
            for (item* i = items.first(); i != nullptr && b.due.size() < runner->most(); i = items.first()) {
                if (i->at() == time_point::max()) break;
                if (!last && i->at() > (b.due.empty() ? at : at + i->early)) break;
                i->phase_ = item::phase::running;
                items.put(*i, time_point::max());
                b.due.push_back(i);
            }
            b.next.assign(b.due.size(), time_point::max());
        }

        // From the first on. `last`: the items do not run again. Those that were running when the end came
        // have their last run still to come.
        [[gnu::cold]] void put_back(batch& b, std::size_t first, bool last) DISTLOCK_REQUIRES(lock) {
            for (std::size_t k = first; k < b.due.size(); ++k) {
                item& i = *b.due[k];
                const auto next = std::min(b.next[k], i.at());
                // An adopted item that has nothing more to do is over, also when all were advanced meanwhile.
                const auto wanted = i.phase_ == item::phase::rescheduled ? next : b.next[k];
                const bool over = i.adopted_ && wanted == time_point::max();
                if (i.phase_ != item::phase::cancelled && !last && !over) {
                    items.put(i, next);
                } else {
                    items.drop(i);
                    if (i.adopted_) b.given_up.push_back(give_up(i));
                }
                i.phase_ = item::phase::waiting;
            }
            b.due.resize(first);
            b.next.resize(first);
            settled.notify_all();
        }

        std::shared_ptr<const void> give_up(item& i) DISTLOCK_REQUIRES(lock) {
            if (std::exchange(i.counted_, false)) --adopted;
            return std::exchange(i.adopted_, nullptr);
        }

        // Returns: whether there was one.
        [[gnu::cold]] bool give_up_first() {
            std::shared_ptr<const void> kept;  // destroyed without the lock
            const lock_type guard(lock);
            item* const i = items.first();
            if (i == nullptr) return false;
            items.drop(*i);
            if (i->phase_ == item::phase::waiting) kept = give_up(*i);  // else this is its own thread
            return true;
        }

        // `busy`: something ran since the last wait. Then more is likely to come soon, and finds a thread
        // that looks by itself: to wake it costs more than the look.
        // Returns: whether it was long, and something is due later.
        [[gnu::cold]] bool wait(time_point at, bool busy, std::unique_lock<std::mutex>& guard)
            DISTLOCK_REQUIRES(lock) {
            constexpr std::chrono::milliseconds shortly{50};
            auto woken = std::cv_status::no_timeout;
            const item* const next = items.first();
            const auto due = next != nullptr ? next->at() : time_point::max();
            if (due == time_point::max() && !busy) {
                wake_at = due;
                wake.wait(guard);
            } else if (time.is_real()) {
                const auto longest = runner->longest_wait();
                wake_at = std::min(due, at + (busy ? std::min(longest, shortly) : longest));
                woken = wake.wait_for(guard, wake_at - at);
            } else {
                wake_at = due;
                woken = wake.wait_for(guard, std::chrono::milliseconds{1});
            }
            wake_at = time_point::min();
            return woken == std::cv_status::timeout && due != time_point::max();
        }

        const time_source time;
        distlock::detail::annotated_mutex lock;
        std::condition_variable wake;     // the thread
        std::condition_variable settled;  // an item does not run any more
        distlock::detail::agenda<item> items DISTLOCK_GUARDED_BY(lock);
        phase now DISTLOCK_GUARDED_BY(lock) = phase::unstarted;
        time_point wake_at DISTLOCK_GUARDED_BY(lock) = time_point::min();  // when the thread waits
        std::size_t adopted DISTLOCK_GUARDED_BY(lock) = 0;
        unsigned started DISTLOCK_GUARDED_BY(lock) = 0;  // threads: the last one is the one that keeps time
        const std::unique_ptr<timer_runner> runner;      // of the thread that is not lent
        const std::shared_ptr<distlock::detail::thread_group> threads =
            std::make_shared<distlock::detail::thread_group>();
    };

    distlock::detail::leaked_in_child<std::shared_ptr<state>> state_;
};

}  // namespace distlock::engine
