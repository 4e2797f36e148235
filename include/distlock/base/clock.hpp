// The clock that leases are counted on: it never jumps, and it runs while the machine sleeps.
#pragma once

#include <chrono>
#include <time.h>

namespace distlock {

/// Meets the standard's Clock requirements ([time.clock.req]). It is CLOCK_BOOTTIME where there is one: a
/// lease goes on running out on the server while a laptop or a virtual machine is suspended, and
/// `std::chrono::steady_clock` stands still then. Elsewhere it is CLOCK_MONOTONIC, with just that hole.
struct clock {
    using duration = std::chrono::nanoseconds;
    using rep = duration::rep;
    using period = duration::period;
    using time_point = std::chrono::time_point<clock>;
    static constexpr bool is_steady = true;

    static time_point now() noexcept {
#ifdef CLOCK_BOOTTIME
        constexpr clockid_t id = CLOCK_BOOTTIME;
#else
        constexpr clockid_t id = CLOCK_MONOTONIC;
#endif
        timespec t{};
        ::clock_gettime(id, &t);
        return time_point(std::chrono::seconds(t.tv_sec) + std::chrono::nanoseconds(t.tv_nsec));
    }
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

}  // namespace detail

}  // namespace distlock
