// Who held a lock when, and whether two ever did at once.
#pragma once

#include <algorithm>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <distlock/base/clock.hpp>

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

    /// Returns: the overlaps, a line each; empty when there are none.
    std::string overlaps() const {
        auto sorted = holds();
        std::sort(sorted.begin(), sorted.end(), [](const hold& a, const hold& b) { return a.from < b.from; });
        std::string found;
        for (std::size_t i = 1; i < sorted.size(); ++i) {
            const auto overlap = sorted[i - 1].to - sorted[i].from;
            if (overlap <= overlap.zero()) continue;
            found += std::to_string(sorted[i - 1].who) + " and " + std::to_string(sorted[i].who) + " for " +
                     std::to_string(overlap.count()) + " ns\n";
        }
        return found;
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
