// A clock that moves a millisecond with each reading: what waits by it comes to an end without
// anybody who moves it.
#pragma once

#include <chrono>

#include <distlock/testing/manual_clock.hpp>

struct ticking_clock : distlock::testing::manual_clock {
    static time_point now() noexcept {
        advance(std::chrono::milliseconds{1});
        return last();
    }
    /// Returns: the time that was read last; it stays as it is.
    static time_point last() noexcept { return manual_clock::now(); }
};
