// A clock at half the speed of another, as one that is set back again and again.
#pragma once

#include <chrono>

template <class Clock>
struct slow_clock {
    using duration = std::chrono::nanoseconds;
    using rep = duration::rep;
    using period = duration::period;
    using time_point = std::chrono::time_point<slow_clock, duration>;
    static constexpr bool is_steady = false;
    static time_point now() { return time_point(Clock::now().time_since_epoch() / 2); }
};
