// A manual clock that goes on while a test waits.
#pragma once

#include <chrono>
#include <stop_token>
#include <thread>

#include <distlock/base/clock.hpp>
#include <distlock/base/time_source.hpp>
#include <distlock/testing/manual_clock.hpp>

/// A millisecond each time that about a tenth of one is over.
class passing_time {
    std::jthread mover_{[](const std::stop_token& over) {
        while (!over.stop_requested()) {
            distlock::testing::manual_clock::advance(std::chrono::milliseconds{1});
            distlock::detail::pause_until(over, distlock::clock::now() + std::chrono::microseconds{100});
        }
    }};
};
