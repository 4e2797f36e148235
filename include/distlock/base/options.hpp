// What can be set on a lock, with defaults and units, and what is refused.
#pragma once

#include <chrono>
#include <string>

#include <distlock/base/error.hpp>
#include <distlock/base/lease.hpp>

namespace distlock {

/// An aggregate for designated initialisers: `lock_options{.lease = 10s}`. Every duration takes any
/// std::chrono unit.
struct lock_options {
    /// How long the server keeps the lock after it was granted: its TTL. It is over then, whether released or
    /// not. 10 ms to 24 h, and longer than the connection's command time-out.
    time_span lease = std::chrono::seconds{30};

    /// The longest pause between two looks at a lock that somebody else holds. Pauses start at 1 ms, double
    /// up to this and are jittered; none outlasts the holder's TTL. 1 ms to 1 h.
    time_span recheck = std::chrono::milliseconds{50};

    /// How long lock() and the timed forms ride out a server that is unreachable, loading, or does not
    /// answer, before they fail with what is wrong; a shorter time-out of the caller ends it sooner. Zero:
    /// the first failure is final.
    time_span patience = std::chrono::seconds{2};
};

namespace detail {

/// Throws: `error` when an option is out of its range. `command_timeout` is the connection's; zero when
/// unknown.
inline void check_options(const lock_options& options, std::chrono::milliseconds command_timeout) {
    const auto text = [](std::chrono::milliseconds ms) { return std::to_string(ms.count()) + " ms"; };
    const auto lease = options.lease.get();
    if (lease < min_lease || lease > max_lease) throw error(errc::invalid_lease, "a lease of " + text(lease));
    if (lease <= command_timeout) {
        throw error(errc::invalid_lease,
                    "a lease of " + text(lease) + " with a command time-out of " + text(command_timeout));
    }
    const auto recheck = options.recheck.get();
    if (recheck < std::chrono::milliseconds{1} || recheck > std::chrono::hours{1}) {
        throw error(errc::invalid_option, "recheck is " + text(recheck) + ", give one from 1 ms to 1 h");
    }
    if (options.patience.get() < std::chrono::milliseconds{0}) {
        throw error(errc::invalid_option, "patience is " + text(options.patience) + ", give zero or more");
    }
}

}  // namespace detail
}  // namespace distlock
