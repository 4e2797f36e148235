// How long a lock is held: durations that cannot overflow, and the instant until which a grant may be
// believed.
#pragma once

#include <chrono>
#include <type_traits>

#include <distlock/base/clock.hpp>
#include <distlock/detail/saturate.hpp>

namespace distlock {

/// A duration in an options struct: any std::chrono duration converts to it, rounded down to whole
/// milliseconds (the unit a server counts a TTL in) and clamped where milliseconds cannot hold it, so that
/// hours::max() does not wrap.
class time_span {
  public:
    constexpr time_span() = default;

    template <class Rep, class Period>
    constexpr time_span(std::chrono::duration<Rep, Period> value)
        : value_(detail::saturating_cast<std::chrono::milliseconds, detail::rounding::down>(value)),
          given_(true) {}

    template <class number_without_a_unit>
    time_span(number_without_a_unit)  // write a std::chrono duration, such as 10s or 500ms
        requires(std::is_arithmetic_v<number_without_a_unit>) = delete;

    constexpr operator std::chrono::milliseconds() const noexcept { return value_; }
    constexpr std::chrono::milliseconds get() const noexcept { return value_; }

    /// Returns: whether it was made from a duration: `{}` is none, `0ms` is one of zero.
    constexpr bool given() const noexcept { return given_; }

    friend constexpr bool operator==(time_span a, time_span b) noexcept { return a.value_ == b.value_; }

  private:
    std::chrono::milliseconds value_{0};
    bool given_ = false;
};

/// Leases outside these bounds are refused: a shorter one is spent on the way, a longer one is a lock nobody
/// gets back.
inline constexpr std::chrono::milliseconds min_lease{10};
inline constexpr std::chrono::milliseconds max_lease = std::chrono::hours{24};

/// Returns: the part of a lease that its owner must leave unused: one per cent for clocks that run at
/// different rates, and 2 ms for the server's millisecond grid and for scheduling delays.
constexpr clock::duration drift_margin(std::chrono::milliseconds lease) noexcept {
    using namespace std::chrono_literals;
    return detail::saturating_cast<clock::duration, detail::rounding::up>(lease) / 100 + 2ms;
}

/// Returns: the instant until which a lock may be believed held. `sent` is read BEFORE the first byte of the
/// granting command is handed to the system: the server starts the TTL later than that, so the owner stops
/// first. Counting from the reply would let two owners overlap.
constexpr clock::time_point validity_end(clock::time_point sent, std::chrono::milliseconds lease) noexcept {
    const auto span = detail::saturating_cast<clock::duration, detail::rounding::down>(lease);
    return detail::saturating_add(sent, span - drift_margin(lease));
}

}  // namespace distlock
