// Where the engine reads the time, and how it waits for an instant of it.
#pragma once

#include <algorithm>
#include <chrono>
#include <concepts>
#include <condition_variable>
#include <mutex>

#include <distlock/base/clock.hpp>
#include <distlock/detail/stop_token.hpp>
#include <distlock/detail/system.hpp>

namespace distlock {

/// distlock::clock, or another one with its time points: a test moves it.
class time_source {
  public:
    constexpr time_source() noexcept = default;

    template <class Clock>
    static constexpr time_source of() noexcept {
        time_source made;
        if constexpr (!std::same_as<Clock, clock>) made.other_ = [] { return Clock::now(); };
        return made;
    }

    clock::time_point now() const { return other_ == nullptr ? clock::now() : other_(); }

    /// Returns: whether the system's timers keep this time. Another clock says nothing of how long a wait
    /// takes: it is read again and again.
    constexpr bool is_real() const noexcept { return other_ == nullptr; }

    /// Returns: how long to wait for `until` before the clock is read again, zero when it is over: one second
    /// at most, since the system's timers stand still while the machine is suspended.
    clock::duration slice(clock::time_point until) const {
        const std::chrono::milliseconds longest{is_real() ? 1000 : 1};
        const auto at = now();
        return until <= at ? clock::duration::zero() : std::min<clock::duration>(until - at, longest);
    }

  private:
    clock::time_point (*other_)() = nullptr;
};

namespace detail {

/// Effects: waits until `ready()` holds or distlock::clock reaches `until`.
/// Returns: ready().
template <class Predicate>
bool wait_until(std::condition_variable& wake, std::unique_lock<std::mutex>& lock, clock::time_point until,
                Predicate ready) {
    while (!ready()) {
        const auto span = time_source().slice(until);
        if (span == clock::duration::zero()) return ready();
        wake.wait_for(lock, span);
    }
    return true;
}

/// Effects: returns when the time is `until` or `stop` is requested.
inline void pause_until(const std::stop_token& stop, clock::time_point until, time_source time = {}) {
    parker sleeper;
    const auto wake = [&sleeper]() noexcept { sleeper.call(1); };
    const std::stop_callback on_stop(stop, wake);
    while (!stop.stop_requested()) {
        const auto span = time.slice(until);
        if (span == clock::duration::zero()) return;
        sleeper.sleep(span);
    }
}

}  // namespace detail

}  // namespace distlock
