// The forms of a call that acquires: it throws, or an error code says why nothing was acquired; it waits for
// a while, or until an instant of any clock.
#pragma once

#include <chrono>
#include <ratio>
#include <system_error>
#include <utility>

#include <distlock/base/clock.hpp>
#include <distlock/base/error.hpp>
#include <distlock/base/time_source.hpp>
#include <distlock/detail/saturate.hpp>
#include <distlock/detail/without_throwing.hpp>
#include <distlock/engine/lock_core.hpp>

namespace distlock::engine {

/// Throws: error, where `got` is a failure.
template <class Result>
Result throw_on_error(Result got) {
    if (got.cause != errc{}) throw error(got.cause, got.detail);
    return got;
}
/// Throws: error, where `got` is a failure.
inline bool taken_or_throw(lock_core::result got) { return throw_on_error(std::move(got)).granted(); }

/// Returns: what `attempt` came to. `ec` says why nothing was acquired, and is clear where
/// somebody else has the lock.
template <class Attempt>
auto result_or_error(std::error_code& ec, Attempt attempt) noexcept {
    auto got = distlock::detail::without_throwing(ec, attempt);  // moved: it may have no memory for a copy
    if (got.cause != errc{}) ec = got.cause;
    if (got.without_ttl) ec = errc::holder_without_ttl;
    return got;
}
template <class Attempt>
bool taken_or_error(std::error_code& ec, Attempt attempt) noexcept {
    return engine::result_or_error(ec, attempt).granted();
}

/// Returns: the instant of `Clock` that is `timeout` from now, or the last that there is.
template <class Clock, class Rep, class Period>
clock::time_point after(std::chrono::duration<Rep, Period> timeout) {
    using namespace distlock::detail;
    return saturating_add(Clock::now(), saturating_cast<clock::duration, rounding::up>(timeout));
}

/// Effects: calls `attempt` with the time that is left until `deadline`, again where its clock
/// was set back meanwhile.
/// Returns: what the last attempt came to.
template <distlock::detail::any_clock Other, class Duration, class Attempt>
auto try_until(std::chrono::time_point<Other, Duration> deadline, Attempt attempt) {
    // In long double, which neither the ends of a clock's range nor a coarser unit can overflow.
    using wide = std::chrono::duration<long double, std::nano>;
    const auto time_left = [&] {
        return wide(deadline.time_since_epoch()) - wide(Other::now().time_since_epoch());
    };
    for (;;) {
        auto got = attempt(time_left());
        if (!got.taken()) return got;
        if (!(time_left().count() > 0)) return got;  // also where it is no number
    }
}

}  // namespace distlock::engine
