// Who held a lock when, and whether two ever did at once.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
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
        time_point asked = {};  ///< when lock() was called
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

    /// Returns: how many asked while another had the lock. Where nobody did, there was nothing to exclude.
    int contended() const {
        auto in_order = holds();
        std::sort(in_order.begin(), in_order.end(),
                  [](const hold& a, const hold& b) { return a.from < b.from; });
        int count = 0;
        for (std::size_t i = 1; i < in_order.size(); ++i) {
            const hold& before = in_order[i - 1];
            count += in_order[i].who != before.who && in_order[i].asked < before.to;
        }
        return count;
    }

  private:
    mutable std::mutex lock_;
    std::vector<hold> holds_;
};

/// Effects: `threads` threads, two or more, take `turns` turns each and record them. `turn(who, inside)` takes the lock, calls
/// inside() and releases it. The first to be inside waits until another one asks, so that a run without contention cannot be.
template <class Turn>
void take_turns(history& record, int threads, int turns, Turn turn) {
    std::atomic<int> asked{0};  // threads that have called turn() at least once
    std::vector<std::jthread> running;
    for (int who = 0; who < threads; ++who) {
        running.emplace_back([&record, &asked, turns, turn, who]() mutable {
            history::hold mine{who, {}, {}};
            const auto inside = [&] {
                mine.from = distlock::clock::now();
                const auto longest = mine.from + std::chrono::seconds{5};
                do {
                    std::this_thread::yield();
                } while (asked < 2 && distlock::clock::now() < longest);
                mine.to = distlock::clock::now();
            };
            for (int i = 0; i < turns; ++i) {
                mine.asked = distlock::clock::now();
                if (i == 0) ++asked;
                turn(who, inside);
                record.add(mine);
            }
        });
    }
}
