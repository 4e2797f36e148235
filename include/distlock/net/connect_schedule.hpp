// When a socket that failed is connected anew.
//
//   class connect_schedule {
//     bool due(time_point now) const noexcept;
//     time_point next() const noexcept;          // of an attempt, at the earliest
//     void begin(time_point now) noexcept;       // an attempt
//   };
#pragma once

#include <algorithm>
#include <chrono>

#include <distlock/base/clock.hpp>

namespace distlock::detail {

/// Not thread-safe. The first attempt is due at once. The pauses double while attempts follow each
/// other within a second.
class connect_schedule {
  public:
    static constexpr std::chrono::milliseconds first_pause{10};
    static constexpr std::chrono::milliseconds longest_pause{500};

    bool due(clock::time_point now) const noexcept { return now >= next_; }
    clock::time_point next() const noexcept { return next_; }

    void begin(clock::time_point now) noexcept {
        const bool again =
            next_ != clock::time_point::min() && now - (next_ - pause_) < std::chrono::seconds{1};
        pause_ = again ? std::min<clock::duration>(2 * pause_, longest_pause) : first_pause;
        next_ = now + pause_;
    }

  private:
    clock::time_point next_ = clock::time_point::min();
    clock::duration pause_{};
};

}  // namespace distlock::detail
