// Threads for the user's code.
//
//   class callback_pool {
//     struct callback { explicit callback(bool urgent = false); virtual void run() = 0; subject about; };
//     explicit callback_pool(deadline_timer&, time_source);
//     void reserve_thread();
//     void post(std::unique_ptr<callback>) noexcept;
//   };
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include <distlock/base/clock.hpp>
#include <distlock/base/time_source.hpp>
#include <distlock/detail/leaked_in_child.hpp>
#include <distlock/detail/thread_group.hpp>
#include <distlock/detail/thread_safety.hpp>
#include <distlock/engine/deadline_timer.hpp>

namespace distlock::engine {

/// An acquisition, as callbacks name it.
struct subject {
    std::size_t lock = 0;      ///< tells locks apart, whichever object has them
    std::uint64_t serial = 0;  ///< of the acquisition; 0: there is none
    bool lost = false;
    std::uint64_t began = 0;  ///< the last serial that there was when the callback began
};

/// Code of the user. It may throw, which is ignored, block, and destroy the pool and its timer.
class callback {
  public:
    /// Returns: the last serial; each acquisition has its own, of whatever lock object: callbacks outlive
    /// them.
    static std::atomic<std::uint64_t>& last_serial() noexcept {
        static std::atomic<std::uint64_t> last{0};
        return last;
    }
    /// Returns: what the callback that runs on this thread tells of.
    static subject& current() noexcept {
        static thread_local subject of;
        return of;
    }

    /// `urgent`: it goes first; where the system gives no thread, the one that waits for deadlines runs it.
    explicit callback(bool urgent = false) : urgent_(urgent) {}
    callback(const callback&) = delete;
    callback& operator=(const callback&) = delete;
    virtual ~callback() = default;
    virtual void run() = 0;

    subject about;

  private:
    friend class callback_queue;
    friend class callback_pool;

    const bool urgent_;
    std::unique_ptr<callback> next_;
    clock::time_point posted_{};
};

/// First in, first out; allocates nothing.
class callback_queue {
  public:
    void push(std::unique_ptr<callback> c) noexcept {
        callback* const added = c.get();
        (first_ ? last_->next_ : first_) = std::move(c);
        last_ = added;
        ++size_;
    }
    /// Returns: null when there is none.
    std::unique_ptr<callback> pop() noexcept {
        auto c = std::move(first_);
        if (!c) return c;
        first_ = std::move(c->next_);
        --size_;
        return c;
    }
    bool empty() const noexcept { return first_ == nullptr; }
    std::size_t size() const noexcept { return size_; }
    /// Returns: since when the first has waited; time_point::max() when there is none.
    clock::time_point since() const noexcept { return first_ ? first_->posted_ : clock::time_point::max(); }

  private:
    std::unique_ptr<callback> first_;
    callback* last_ = nullptr;  // when there is a first
    std::size_t size_ = 0;
};

/// Thread-safe. Threads start when they are needed: a callback that blocks delays the next by its patience.
/// In a child after fork() nothing may be called, and the destructor does nothing.
class callback_pool {
    using time_point = clock::time_point;

  public:
    /// `timer`: lives longer; it looks after callbacks that wait for a thread.
    [[gnu::cold]] explicit callback_pool(deadline_timer& timer, time_source time = {}) : timer_(timer) {
        state_.get() = std::make_shared<state>(time);
    }
    callback_pool(const callback_pool&) = delete;
    callback_pool& operator=(const callback_pool&) = delete;

    /// Effects: waits for the callbacks that were posted. When one of them destroys it, those behind that one
    /// are run within it: they may need what is destroyed next.
    [[gnu::cold]] ~callback_pool() {
        if (!state_.here()) return;
        const std::shared_ptr<state> s = state_.get();
        s->begin_end();
        timer_.cancel(*s);
        s->end(s->threads->has_this_thread() || timer_.on_own_thread());
    }

    /// Effects: from now on there is a thread for callbacks, when they come: the system may
    /// have none to give then.
    /// Throws: std::system_error, std::bad_alloc.
    [[gnu::cold]] void reserve_thread() {
        timer_.schedule_by(*state_.get(), time_point::max());  // listed, it will need no memory
        state_.get()->reserve();
    }

    /// Preconditions: reserve_thread() was called, or the callback waits for a thread as
    /// long as there is none.
    /// Effects: runs `c` on a thread that holds no lock, soon, whatever other callbacks do.
    void post(std::unique_ptr<callback> c) noexcept {
        const std::shared_ptr<state> s = state_.get();  // the callback may destroy this
        s->post(std::move(c), timer_);
    }

  private:
    // A callback that has waited so long gets another thread: the ones there are busy with code that blocks.
    // Each urgent one that waits then gets one, so many at a time: it tells of a lease that is over before
    // the server can give the lock away, which is 2 ms and a hundredth of the lease later.
    static constexpr std::chrono::milliseconds patience{5};
    static constexpr std::chrono::milliseconds patience_of_urgent{1};
    static constexpr std::size_t most_at_a_time = 64;

    // As a deadline it looks after callbacks that wait for a thread.
    struct state final : deadline, blocking_work, std::enable_shared_from_this<state> {
        enum class phase { serving, stopping };
        enum class reserved { none, busy, waiting };

        explicit state(time_source reads) : time(reads) {}

        clock::duration until_looked_at() const noexcept DISTLOCK_REQUIRES(lock) {
            if (!time.is_real()) return clock::duration::zero();
            return urgent.empty() ? patience : patience_of_urgent;
        }

        [[gnu::cold]] void reserve() {
            const distlock::detail::annotated_lock guard(lock);
            if (reserve_thread != reserved::none) return;
            start(&state::serve_to_the_end);
            reserve_thread = reserved::busy;
        }

        void post(std::unique_ptr<callback> c, deadline_timer& timer) noexcept {
            const distlock::detail::annotated_lock guard(lock);
            c->posted_ = clock::now();
            (c->urgent_ ? urgent : others).push(std::move(c));
            if (now == phase::stopping) return;  // what ends it runs it
            if (reserve_thread == reserved::waiting) {
                wake.notify_one();
            } else if (workers == 0) {
                spawn();
            }
            try {
                timer.schedule_by(*this, time.now() + until_looked_at());
            } catch (...) {}
        }

        [[gnu::cold]] void begin_end() {
            const distlock::detail::annotated_lock guard(lock);
            now = phase::stopping;
            wake.notify_all();
        }

        // `inside`: a callback of this pool does it.
        [[gnu::cold]] void end(bool inside) {
            distlock::detail::annotated_lock guard(lock);
            if (!inside && first_due() != time_point::max()) spawn();
            while (workers > (inside ? 1U : 0U)) done.wait(guard.native());
            guard.unlock();
            threads->join();
            guard.lock();
            run_all();  // those there was no thread for, or that are behind the one that ends it
        }

        [[gnu::cold]] time_point on_deadline(time_point at) noexcept override {
            distlock::detail::annotated_lock guard(lock);
            const auto due = first_due();
            const bool waited = due <= clock::now();
            const auto wanted = waited ? std::clamp(urgent.size(), std::size_t{1}, most_at_a_time) : 0;
            while (coming < wanted && spawn()) {}
            lends = waited && coming == 0 && !urgent.empty();
            if (due == time_point::max() || lends) return lends ? at : due;
            if (!time.is_real()) {
                done.wait_for(guard.native(), std::chrono::milliseconds{1});
                return at;
            }
            return waited ? clock::now() + until_looked_at() : due;
        }

        std::shared_ptr<blocking_work> take_blocking_work() noexcept override {
            const distlock::detail::annotated_lock guard(lock);
            return lends ? this->shared_from_this() : nullptr;
        }

        // On the thread of the timer.
        [[gnu::cold]] void run() noexcept override {
            const distlock::detail::annotated_lock guard(lock);
            ++workers;
            if (auto c = urgent.pop()) call(std::move(c));
            if (now == phase::stopping) run_all();
            leave();
        }

        [[gnu::cold]] void serve() {
            const distlock::detail::annotated_lock guard(lock);
            --coming;
            run_all();
            leave();
        }

        [[gnu::cold]] void serve_to_the_end() {
            distlock::detail::annotated_lock guard(lock);
            for (;;) {
                run_all();
                if (now == phase::stopping) break;
                reserve_thread = reserved::waiting;
                wake.wait(guard.native());
                reserve_thread = reserved::busy;
            }
            leave();
        }

        // One more thread. Returns: false when the system has none.
        [[gnu::cold]] bool spawn() noexcept DISTLOCK_REQUIRES(lock) {
            try {
                start(&state::serve);
                ++coming;
                return true;
            } catch (...) {
                return false;
            }
        }

        [[gnu::cold]] void start(void (state::*serving)()) DISTLOCK_REQUIRES(lock) {
            threads->start([mine = this->shared_from_this(), serving] { (*mine.*serving)(); });
            ++workers;
        }

        void leave() DISTLOCK_REQUIRES(lock) {
            --workers;
            done.notify_all();
        }

        [[gnu::cold]] void run_all() DISTLOCK_REQUIRES(lock) {
            while (auto c = urgent.empty() ? others.pop() : urgent.pop()) call(std::move(c));
        }

        [[gnu::cold]] void call(std::unique_ptr<callback> c) noexcept DISTLOCK_REQUIRES(lock) {
            lock.unlock();
            c->about.began = callback::last_serial();
            const auto outer = std::exchange(callback::current(), c->about);
            try {
                c->run();
            } catch (...) {}
            callback::current() = outer;
            c.reset();
            lock.lock();
        }

        // When the first callback that waits has waited so long; time_point::max(): none waits.
        time_point first_due() const DISTLOCK_REQUIRES(lock) {
            auto due = time_point::max();
            if (!urgent.empty()) due = urgent.since() + patience_of_urgent;
            if (!others.empty()) due = std::min<time_point>(due, others.since() + patience);
            return due;
        }

        const time_source time;
        distlock::detail::annotated_mutex lock;
        std::condition_variable wake;  // the reserved thread
        std::condition_variable done;  // a worker
        callback_queue urgent DISTLOCK_GUARDED_BY(lock);
        callback_queue others DISTLOCK_GUARDED_BY(lock);
        phase now DISTLOCK_GUARDED_BY(lock) = phase::serving;
        reserved reserve_thread DISTLOCK_GUARDED_BY(lock) = reserved::none;
        bool lends DISTLOCK_GUARDED_BY(lock) = false;    // the timer's thread is asked to run what is urgent
        unsigned workers DISTLOCK_GUARDED_BY(lock) = 0;  // threads that take callbacks
        std::size_t coming DISTLOCK_GUARDED_BY(lock) = 0;  // of those: have taken none yet
        const std::shared_ptr<distlock::detail::thread_group> threads =
            std::make_shared<distlock::detail::thread_group>();
    };

    deadline_timer& timer_;
    distlock::detail::leaked_in_child<std::shared_ptr<state>> state_;
};

}  // namespace distlock::engine
