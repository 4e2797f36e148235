// Threads of the library that are joined together.
//
//   class thread_group {
//     void start(f);                   // a thread that runs f()
//     bool has_this_thread();
//     void join() noexcept;            // all of them but the calling one
//   };
#pragma once

#include <list>
#include <memory>
#include <thread>
#include <utility>

#include <distlock/detail/signal_masked_thread.hpp>
#include <distlock/detail/thread_safety.hpp>

namespace distlock::detail {

/// Thread-safe. Owned by a std::shared_ptr, as its threads use it to their end. A thread that comes to its
/// end joins the one that did before it: nobody else waits for the thread_local objects of the user's code.
class thread_group : public std::enable_shared_from_this<thread_group> {
  public:
    /// Preconditions: join() was not called.
    /// Effects: starts a signal-masked thread that runs `f`.
    /// Throws: std::system_error, std::bad_alloc.
    template <class F>
    void start(F f) {
        start_work(std::make_unique<work_of<F>>(std::move(f)));
    }

    /// Preconditions: join() was not called.
    [[gnu::cold]] bool has_this_thread() {
        const annotated_lock guard(lock_);
        for (const std::thread& one : threads_) {
            if (is_this(one)) return true;
        }
        return is_this(last_to_leave_);
    }

    /// Effects: waits for the end of all threads; the calling one, if it is one of them, is
    /// detached. Called once.
    [[gnu::cold]] void join() noexcept {
        std::list<std::thread> left;
        {
            const annotated_lock guard(lock_);
            joined_ = true;
            left.swap(threads_);
        }
        for (std::thread& one : left) end(one);
        end(last_to_leave());
    }

  private:
    using place = std::list<std::thread>::iterator;

    // std::thread costs a compiler much for each type that it is made of.
    struct work {
        virtual ~work() = default;
        virtual void run() = 0;
    };
    template <class F>
    struct work_of final : work {
        explicit work_of(F f) : call(std::move(f)) {}
        void run() override { call(); }
        F call;
    };

    [[gnu::cold]] void start_work(std::unique_ptr<work> what) {
        const annotated_lock guard(lock_);
        const auto mine = threads_.emplace(threads_.end());
        try {
            *mine = signal_masked_thread([group = shared_from_this(), mine, what = std::move(what)] {
                what->run();
                group->leave(mine);
            });
        } catch (...) {
            threads_.erase(mine);
            throw;
        }
    }

    static bool is_this(const std::thread& one) { return one.get_id() == std::this_thread::get_id(); }

    static void end(std::thread& one) noexcept {
        if (is_this(one)) {
            one.detach();
        } else if (one.joinable()) {
            one.join();
        }
    }

    [[gnu::cold]] void leave(place mine) noexcept {
        std::thread before;
        {
            const annotated_lock guard(lock_);
            if (joined_) return;
            before = std::exchange(last_to_leave_, std::move(*mine));
            threads_.erase(mine);
        }
        if (before.joinable()) before.join();
    }

    // Nobody else uses it once joined_ is true.
    std::thread& last_to_leave() noexcept DISTLOCK_UNCHECKED { return last_to_leave_; }

    annotated_mutex lock_;
    std::list<std::thread> threads_ DISTLOCK_GUARDED_BY(lock_);
    std::thread last_to_leave_ DISTLOCK_GUARDED_BY(lock_);
    bool joined_ DISTLOCK_GUARDED_BY(lock_) = false;
};

}  // namespace distlock::detail
