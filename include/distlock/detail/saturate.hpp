// Time arithmetic that stops at the ends of its range instead of overflowing.
#pragma once

#include <chrono>
#include <ratio>
#include <type_traits>

namespace distlock::detail {

enum class rounding { down, up };

/// Returns: `value` in the unit `To`, rounded as asked; the nearest end of To's range where it does not fit.
/// A value that is not a number becomes To::min().
template <class To, rounding Direction, class Rep, class Period>
constexpr To saturating_cast(std::chrono::duration<Rep, Period> value) {
    // Compared as long double, which holds every 64-bit count exactly on the platforms we build on.
    const auto wide = std::chrono::duration<long double, typename To::period>(value).count();
    if (!(wide >= static_cast<long double>(To::min().count()))) return To::min();
    if (wide >= static_cast<long double>(To::max().count())) return To::max();
    using factor = std::ratio_divide<Period, typename To::period>;
    // A factor that is neither a whole number nor one over it makes chrono multiply first, and
    // overflow on the way.
    if constexpr (std::is_floating_point_v<Rep> || (factor::num != 1 && factor::den != 1)) {
        const To truncated(static_cast<typename To::rep>(wide));
        const auto back = static_cast<long double>(truncated.count());
        if (Direction == rounding::down && back > wide) return truncated - To(1);
        if (Direction == rounding::up && back < wide) return truncated + To(1);
        return truncated;
    } else if constexpr (Direction == rounding::down) {
        return std::chrono::floor<To>(value);
    } else {
        return std::chrono::ceil<To>(value);
    }
}

/// Returns: `at` + `by`, or the end of the range it would run over.
template <class Clock, class Duration>
constexpr std::chrono::time_point<Clock, Duration> saturating_add(std::chrono::time_point<Clock, Duration> at,
                                                                  Duration by) {
    using point = std::chrono::time_point<Clock, Duration>;
    if (by > Duration::zero() && at > point::max() - by) return point::max();
    if (by < Duration::zero() && at < point::min() - by) return point::min();
    return at + by;
}

}  // namespace distlock::detail
