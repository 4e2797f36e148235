// Who held a lock when, and whether two ever did at once.
#pragma once

#include <algorithm>
#include <mutex>
#include <string>
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
