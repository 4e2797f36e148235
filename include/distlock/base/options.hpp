// What can be set on a lock, with defaults and units, and what is refused.
#pragma once

#include <chrono>
#include <string>

#include <distlock/base/error.hpp>
#include <distlock/base/lease.hpp>
#include <distlock/base/owner.hpp>

namespace distlock {

/// Whether unlock() waits for the server's answer.
enum class release_mode {
    posted,     ///< no: the release is on its way when unlock() returns, and confirmed in the background
    confirmed,  ///< yes: unlock() says what became of it
};
using enum release_mode;

/// An aggregate for designated initialisers: `lock_options{.lease = 10s}`. Every duration takes any
/// std::chrono unit.
struct lock_options {
    /// How long the server keeps the lock after it was granted: its TTL. It is over then, whether released or
    /// not. 10 ms to 24 h, and longer than the connection's command time-out. Those who share a lock should have leases of about
    /// the same length: whose lease is less than a quarter of the owner's may lose its place in line, and is served by looking.
    time_span lease = std::chrono::seconds{30};

    /// Whether the lease is renewed, at a third of it, for as long as the lock is held. One thread does it for
    /// all locks of a connection; it starts with the first of them that is taken.
    bool renew = true;

    /// The longest time an acquisition is kept: at its end the lock is lost, with loss_reason::max_hold, and free at
    /// unlock(), or when the lease ends that was begun last. `{}`: no limit. Else at least 10 ms.
    time_span max_hold = {};

    /// Whether every acquisition gets a fencing token: a number larger than any before it under this name. It
    /// is made by the command that takes the lock and kept beside it, at a key of its own.
    bool fencing = false;

    /// The longest time between two looks at a lock that somebody else holds; none is later than the end of its TTL. In line,
    /// where the lock is handed over, looks only find what nobody handed over: a lock that expired, or that another
    /// kind of client deleted; at least four times in a lease. Over a connection that cannot wait, they are all there is: pauses
    /// start at 1 ms, double up to this and are jittered. 1 ms to 1 h; `{}` stands for 1 s in line, else for 50 ms.
    time_span recheck = {};

    /// Who we are, for people who ask who holds a lock: it is kept beside the lock together with host name and
    /// process id, and shown by inspect(). Any text of up to 256 bytes; empty: nothing is kept.
    owner_label owner_info = {};

    /// How long lock() and the timed forms ride out a server that is unreachable, loading, or does not
    /// answer, before they fail with what is wrong; a shorter time-out of the caller ends it sooner. Zero:
    /// the first failure is final.
    time_span patience = std::chrono::seconds{2};

    /// How unlock() releases: `posted` where the connection can post and the lease has not run out; it costs no round
    /// trip then, and unlock() answers release_outcome::posted.
    release_mode release = release_mode::posted;

    /// How long the threads that share a mutex object may pass the lock on among themselves before it is handed to the next
    /// process. Zero: never. 0 ms to 1 h.
    time_span local_budget = std::chrono::milliseconds{5};
};

namespace detail {

inline constexpr std::chrono::milliseconds default_recheck{50};
inline constexpr std::chrono::milliseconds default_look{1000};

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
    const std::chrono::milliseconds max_hold = options.max_hold;
    if (options.max_hold.given() && max_hold < min_lease) {
        throw error(errc::invalid_option,
                    "max_hold is " + text(max_hold) + ", give 10 ms or more, or {} for no limit");
    }
    const std::chrono::milliseconds recheck = options.recheck;
    if (options.recheck.given() &&
        (recheck < std::chrono::milliseconds{1} || recheck > std::chrono::hours{1})) {
        throw error(errc::invalid_option, "recheck is " + text(recheck) + ", give one from 1 ms to 1 h");
    }
    if (options.owner_info.size() > owner_label::max_size) {
        throw error(errc::invalid_option, "owner_info has " + std::to_string(options.owner_info.size()) +
                                              " bytes, give 256 at most");
    }
    if (options.patience.get() < std::chrono::milliseconds{0}) {
        throw error(errc::invalid_option, "patience is " + text(options.patience) + ", give zero or more");
    }
    const std::chrono::milliseconds budget = options.local_budget;
    if (budget < std::chrono::milliseconds{0} || budget > std::chrono::hours{1}) {
        throw error(errc::invalid_option, "local_budget is " + text(budget) + ", give one from 0 ms to 1 h");
    }
}

}  // namespace detail
}  // namespace distlock
