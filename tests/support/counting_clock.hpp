// The time, and how often somebody asked for it.
#pragma once

#include <atomic>

#include <distlock/base/clock.hpp>

struct counting_clock : distlock::clock {
    static time_point now() noexcept {
        ++asked;
        return distlock::clock::now();
    }
    static inline std::atomic<int> asked{0};
};
