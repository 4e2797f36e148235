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
/// other within `quiet`.
class connect_schedule {
  public:
    static constexpr std::chrono::milliseconds first_pause{10};
    static constexpr std::chrono::milliseconds longest_pause{500};

    connect_schedule() = default;
    connect_schedule(clock::duration first, clock::duration longest, clock::duration quiet) noexcept
        : first_(first), longest_(longest), quiet_(quiet) {}

    bool due(clock::time_point now) const noexcept { return now >= next_; }
    clock::time_point next() const noexcept { return next_; }

    void begin(clock::time_point now) noexcept {
        const bool again = next_ != clock::time_point::min() && now - (next_ - pause_) < quiet_;
        pause_ = again ? std::min(2 * pause_, longest_) : first_;
        next_ = now + pause_;
    }

  private:
    clock::duration first_ = first_pause;
    clock::duration longest_ = longest_pause;
    clock::duration quiet_ = std::chrono::seconds{1};
    clock::time_point next_ = clock::time_point::min();
    clock::duration pause_{};
};

}  // namespace distlock::detail
