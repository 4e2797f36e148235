// What can be set on a lock, with defaults and units, and what is refused.
#pragma once

#include <chrono>
#include <string>

#include <distlock/base/error.hpp>
#include <distlock/base/lease.hpp>
#include <distlock/base/owner.hpp>
#include <distlock/detail/separate.hpp>

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
    /// not. 10 ms to 24 h, and longer than the connection's command time-out. A lock that was handed over has
    /// two seconds of it, at most, until its first renewal.
    time_span lease = std::chrono::seconds{30};

    /// Whether the lease is renewed, at a third of it, for as long as the lock is held. One thread does it
    /// for all locks of a connection; it starts with the first of them that is taken.
    bool renew = true;

    /// The longest time an acquisition is kept: at its end the lock is lost, with loss_reason::max_hold, and
    /// free at unlock(), or when the lease ends that was begun last. `{}`: no limit. Else at least 10 ms.
    time_span max_hold = {};

    /// The shortest time an acquisition keeps others out, from the grant on: a lock that is unlocked earlier
    /// is released, and handed over, when it is over. unlock() does not wait for that, and answers
    /// release_outcome::posted; it is over for its owner, and the next lock() of the same object waits like
    /// everybody's. So a job that each process of a fleet tries once a minute is done once a minute:
    /// try_lock() with 40 s here. For so long the background renews the lease, also when the mutex is gone.
    /// When the process or the connection ends earlier, or the last mutex of a connection that is no
    /// service_hosting_connection, which has no background without one, the key is left to its lease: `lease`
    /// is how long others are kept out then, so let it be as long as this. A lock that scoped_lock or
    /// try_lock_for gives back, because another of the set could not be taken, is released at once. At most
    /// `max_hold`, where that is given, and at most `lease`, where it is not renewed. In whole milliseconds,
    /// rounded down. Zero: none.
    time_span hold_at_least = {};

    /// Whether every acquisition gets a fencing token: a number larger than any before it under this name. It
    /// is made by the command that takes the lock and kept beside it, at a key of its own.
    bool fencing = false;

    /// How often the first waiter of the queue checks the lock itself, at least; it does so at the end of the
    /// lock's TTL, too. The lock is handed over in the queue, so a re-check only finds what nobody handed
    /// over: a lock that expired, or that another kind of client deleted. The other waiters re-check the less
    /// often the farther back they are: every 30 s at least, or every `recheck` if that is longer. Waiters
    /// that are woken by a message (redisson) re-check every `recheck`. Where no message tells of a release,
    /// waiters poll: their pauses start at 1 ms, double up to `recheck` and are jittered. 1 ms to 1 h. `{}`
    /// stands for 1 s where waiters are queued or woken, for 50 ms where they poll.
    time_span recheck = {};

    /// The owner's label, for people who ask for the holder of a lock: it is kept beside the lock together
    /// with host name and process id, and shown by inspect(). Any text of up to 256 bytes; empty: nothing is
    /// kept.
    owner_label owner_info = {};

    /// How long lock() and the timed forms ride out a server that is unreachable, loading, or does not
    /// answer, before they fail with what is wrong; a shorter time-out of the caller ends it sooner. Zero:
    /// the first failure is final; but what may have been applied is asked for once more in any case.
    time_span patience = std::chrono::seconds{2};

    /// How unlock() releases: `posted` where the connection can post and the lease has not run out; it costs
    /// no round trip then, and unlock() answers release_outcome::posted.
    release_mode release = release_mode::posted;

    /// How long the threads that share a mutex object may pass the lock on among themselves before it is
    /// handed to the next process. Zero: never, and never with `hold_at_least`, nor a writer of a
    /// shared_mutex with `fencing`. 0 ms to 1 h. A dialect that polls hands it to nobody: it is free for a
    /// moment then, and a waiter elsewhere gets it at its next poll.
    time_span local_budget = std::chrono::milliseconds{5};

    /// How many replicas must have a grant, a hand-over or a renewal before it counts: WAIT goes behind the
    /// write. Where fewer acknowledge it, the lock is released, and the call fails with errc::not_replicated;
    /// a renewal is tried again as long as the last one that counted is valid. It makes it unlikely that a
    /// fail-over loses the lock, not impossible: a replica without it may be promoted. 0 (none is waited for)
    /// to 1000. The connection must be able to pipeline. A lock that was handed over costs one round trip
    /// more, and so does one that is taken while others wait.
    int replicas = 0;

    /// How long the server waits for them, to a tenth of a second. Less than 1 ms is refused; more than a
    /// sixth of the lease counts as that, and over a connection without execute_acknowledged() more than half
    /// of its command time-out as that.
    time_span replica_timeout = std::chrono::milliseconds{100};
};

namespace detail {

inline constexpr std::chrono::milliseconds default_recheck{50};
inline constexpr std::chrono::milliseconds default_look{1000};

/// Throws: `error` when an option is out of its range. `command_timeout` is the connection's; zero when
/// unknown.
DISTLOCK_INLINE void check_options(const lock_options& options, std::chrono::milliseconds command_timeout);

}  // namespace detail

}  // namespace distlock

#ifndef DISTLOCK_SEPARATE_COMPILATION
#include <distlock/base/options_impl.hpp>
#endif
