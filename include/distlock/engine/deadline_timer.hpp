// A thread that waits for deadlines and does no I/O.
//
//   class deadline { virtual time_point on_deadline(time_point now) noexcept = 0; };
//   class deadline_timer {
//     void schedule(deadline&, time_point at);  void schedule_by(deadline&, time_point at);
//     void cancel(deadline&) noexcept;
//     bool on_own_thread();
//   };
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <span>

#include <distlock/base/clock.hpp>
#include <distlock/engine/timer_thread.hpp>

namespace distlock::engine {

/// What is to be done at a time.
class deadline : public timer_item {
  public:
    /// Called without a lock of the timer; must not run code of the user, nor block.
    /// Returns: when to be called next; time_point::max(): not until it is scheduled again.
    virtual clock::time_point on_deadline(clock::time_point now) noexcept = 0;

    /// Returns: what the thread is to do afterwards though it may block, null for nothing. Asked
    /// after on_deadline().
    virtual std::shared_ptr<blocking_work> take_blocking_work() noexcept { return nullptr; }

  protected:
    ~deadline() = default;
};

/// A timer thread: see there.
class deadline_timer {
  public:
    explicit deadline_timer(time_source time = {}) : timer_(time, std::make_unique<runner>()) {}

    void schedule(deadline& d, clock::time_point at) { timer_.schedule(d, at); }
    void schedule_by(deadline& d, clock::time_point at) { timer_.schedule_by(d, at); }
    void cancel(deadline& d) noexcept { timer_.cancel(d); }
    bool on_own_thread() { return timer_.on_own_thread(); }

  private:
    class runner final : public timer_runner {
        std::size_t most() const noexcept override { return 1; }
        std::chrono::milliseconds longest_wait() const noexcept override {
            return std::chrono::milliseconds{100};
        }
        void reserve() override {}
        std::shared_ptr<blocking_work> run(std::span<timer_item* const> due, clock::time_point now,
                                           std::span<clock::time_point> next, bool) noexcept override {
            auto& first = static_cast<deadline&>(*due[0]);
            next[0] = first.on_deadline(now);
            return first.take_blocking_work();
        }
    };

    timer_thread timer_;
};

}  // namespace distlock::engine
