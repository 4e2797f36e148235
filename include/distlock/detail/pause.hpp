// Waiting for an instant or a stop request, whichever is first.
#pragma once

#include <algorithm>
#include <chrono>
#include <concepts>
#include <condition_variable>
#include <mutex>
#include <stop_token>

namespace distlock {
struct clock;
}

namespace distlock::detail {

// Waits are cut into slices. One second, since the system's timers stand still while the machine is suspended and our clock
// does not; next to nothing for a clock that a test moves.
template <class Clock>
auto next_slice(typename Clock::time_point until) {
    constexpr std::chrono::milliseconds slice{std::same_as<Clock, distlock::clock> ? 1000 : 1};
    return std::min<typename Clock::duration>(until - Clock::now(), slice);
}

/// Effects: waits until `ready()` holds, Clock reaches `until`, or `stop` is requested.
/// Returns: ready().
template <class Clock, class Predicate>
bool wait_until(std::condition_variable_any& wake, std::unique_lock<std::mutex>& lock,
                const std::stop_token& stop, typename Clock::time_point until, Predicate ready) {
    while (!ready()) {
        if (stop.stop_requested() || Clock::now() >= until) return ready();
        wake.wait_for(lock, stop, next_slice<Clock>(until), ready);
    }
    return true;
}

/// Effects: returns when Clock reaches `until` or `stop` is requested.
template <class Clock>
void pause_until(const std::stop_token& stop, typename Clock::time_point until) {
    std::mutex mutex;
    std::unique_lock lock(mutex);
    if (!stop.stop_possible()) {  // the plain condition variable allocates nothing
        std::condition_variable never;
        while (Clock::now() < until) never.wait_for(lock, next_slice<Clock>(until));
        return;
    }
    std::condition_variable_any never;
    wait_until<Clock>(never, lock, stop, until, [] { return false; });
}

}  // namespace distlock::detail
