// Who held a lock when, and whether two ever did at once.
#pragma once

#include <algorithm>
#include <chrono>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <distlock/base/clock.hpp>
#include <distlock/testing.hpp>

/// Holds are recorded as the holder believes them: from the return of lock() to the call of unlock(), or to the end of
/// validity where that comes first.
class history {
  public:
    using time_point = distlock::clock::time_point;

    struct hold {
        int who;
        time_point from;
        time_point to;
    };

    void add(hold h) {
        const std::lock_guard guard(lock_);
        holds_.push_back(h);
    }

    std::vector<hold> holds() const {
        const std::lock_guard guard(lock_);
        return holds_;
    }

    /// Returns: what the checker of histories says, a line each; empty when all can be true.
    std::string overlaps() const {
        std::vector<distlock::testing::history_event> events;
        for (const hold& h : holds()) {
            distlock::testing::history_event e;
            e.what = distlock::testing::history_event::kind::granted;
            e.process = h.who;
            e.hold = events.size() + 1;
            e.from = e.at = h.from;
            e.until = std::max(h.to, h.from + std::chrono::nanoseconds{1});
            events.push_back(e);
        }
        return distlock::testing::check_history(std::move(events)).text();
    }

  private:
    mutable std::mutex lock_;
    std::vector<hold> holds_;
};

/// Effects: `threads` threads take `turns` turns each and record them. `turn(who, inside)` takes the lock, calls inside() and
/// releases it.
template <class Turn>
void take_turns(history& record, int threads, int turns, Turn turn) {
    std::vector<std::jthread> running;
    for (int who = 0; who < threads; ++who) {
        running.emplace_back([&record, turns, turn, who]() mutable {
            history::hold mine{who, {}, {}};
            const auto inside = [&] {
                mine.from = distlock::clock::now();
                std::this_thread::yield();
                mine.to = distlock::clock::now();
            };
            for (int i = 0; i < turns; ++i) {
                turn(who, inside);
                record.add(mine);
            }
        });
    }
}
