// A clock that stands still until a test moves it.
#pragma once

#include <atomic>
#include <chrono>

#include <distlock/base/clock.hpp>

namespace distlock::testing {

/// Meets the standard's Clock requirements; its time points are those of distlock::clock, so it can be the
/// Clock of a mutex: `distlock::mutex<Conn, distlock::plain, distlock::testing::manual_clock>`, over a
/// connection that waits for nothing, such as scripted_connection: one to a server keeps the machine's time,
/// by which the deadlines of this clock are long over. One time for the whole program; thread-safe.
struct manual_clock {
    using rep = clock::rep;
    using period = clock::period;
    using duration = clock::duration;
    using time_point = clock::time_point;
    static constexpr bool is_steady = true;

    static time_point now() noexcept { return time_point(duration(ticks().load())); }

    /// Preconditions: `by` is zero or more.
    static void advance(duration by) noexcept { ticks() += by.count(); }

    /// Effects: sets the time back to where a program starts, one hour after the epoch: for the beginning of
    /// a test.
    static void reset() noexcept { ticks() = start; }

  private:
    static constexpr rep start = duration(std::chrono::hours{1}).count();
    static std::atomic<rep>& ticks() noexcept {
        static std::atomic<rep> value{start};
        return value;
    }
};

}  // namespace distlock::testing
