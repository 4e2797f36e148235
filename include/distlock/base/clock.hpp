// The clock that leases are counted on: it never jumps, and it runs while the machine sleeps.
#pragma once

#include <algorithm>
#include <chrono>

#include <distlock/detail/system.hpp>

namespace distlock {

/// Meets the standard's Clock requirements ([time.clock.req]). It is CLOCK_BOOTTIME on Linux: a lease
/// goes on running out on the server while a laptop, or a virtual machine by its own system, is suspended,
/// and `std::chrono::steady_clock` stands still then. Elsewhere it is CLOCK_MONOTONIC, which counts that on
/// macOS and FreeBSD.
struct clock {
    using duration = std::chrono::nanoseconds;
    using rep = duration::rep;
    using period = duration::period;
    using time_point = std::chrono::time_point<clock>;
    static constexpr bool is_steady = true;

    static time_point now() noexcept { return time_point(detail::clock_time()); }
};

namespace detail {

// std::chrono::is_clock, which libc++ 19 lacks ([time.traits.is.clock]).
template <class C>
concept any_clock = requires {
    typename C::rep;
    typename C::period;
    typename C::duration;
    typename C::time_point;
    C::is_steady;
    C::now();
};

/// `end`: which may take long to find out, so the clock is read after that.
/// Returns: how long until then by that clock; zero when it is over.
template <any_clock C>
clock::duration left_until(clock::time_point end) noexcept {
    return std::max(end - C::now(), clock::duration::zero());
}

}  // namespace detail

}  // namespace distlock
