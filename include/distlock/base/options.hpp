// The options of a lock, with defaults, units and ranges.
#pragma once

#include <chrono>
#include <initializer_list>
#include <string_view>

#include <distlock/base/error.hpp>
#include <distlock/base/lease.hpp>
#include <distlock/base/owner.hpp>
#include <distlock/detail/concat.hpp>
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
    /// How long the server keeps the lock after it was granted or renewed: its TTL. Then the lock is free,
    /// released or not. 10 ms to 24 h, and longer than the connection's command time-out. A lock that was
    /// handed over has a TTL of two seconds at most, until its first renewal.
    time_span lease = std::chrono::seconds{30};

    /// Whether the lease is renewed, at a third of it, for as long as the lock is held. One thread does it
    /// for all locks of a connection; it starts with the first of them that is taken.
    bool renew = true;

    /// The longest time an acquisition is kept. At its end the lock is lost, with loss_reason::max_hold;
    /// others can have it at unlock(), or when the lease that was granted or renewed last is over. `{}`: no
    /// limit. Else at least 10 ms.
    time_span max_hold = {};

    /// The shortest time an acquisition keeps others out, counted from the grant. An earlier unlock() ends
    /// the acquisition for its owner only: it returns release_outcome::posted at once, and the background
    /// releases the lock, and hands it over, when this time is over. The next lock() of the same object waits
    /// like everybody's. So a job that each process of a fleet tries once a minute is done once a minute:
    /// try_lock() with 40 s here.
    /// At unlock() the background thread tells the server when the key ends: a second after this time at the
    /// latest, even if the mutex, the connection or the process ends before; only readers and permits count
    /// until their lease ends, where that is later. If the process ends before the server was told, the key
    /// stays until the lease ends: so let `lease` be as long as this time. distlock's scoped_lock and
    /// try_lock_for release a lock at once if they give it back because another one of the set could not be
    /// taken; std::lock() and std::scoped_lock do not, and keep its name. At most `max_hold`, where that is
    /// given, and at most `lease`, where the lease is not renewed. In whole milliseconds, rounded down. Zero:
    /// none.
    time_span hold_at_least = {};

    /// Whether every acquisition gets a fencing token: a number larger than any before it under this name. It
    /// is made by the command that takes the lock and kept beside it, at a key of its own.
    bool fencing = false;

    /// How often the first waiter of the queue checks the lock itself, at least; it does so at the end of the
    /// lock's TTL, too. The lock is handed over in the queue, so a re-check only finds what nobody handed
    /// over: a lock that expired, or that another kind of client deleted. The other waiters re-check the less
    /// often the farther back they are: every 30 s at least, or every `recheck` if that is longer. The
    /// first four re-check every second or two while the first keeps out others before it can be served: it
    /// wants to write where others read, or more permits than are left. Waiters that are woken by a message
    /// (redisson) re-check every `recheck`. Where no message tells of a release, waiters poll: their pauses
    /// start at 1 ms, double up to `recheck` and are jittered. 1 ms to 1 h. `{}` stands for 1 s where waiters
    /// are queued or woken, for 50 ms where they poll.
    time_span recheck = {};

    /// The owner's label, for people who ask for the holder of a lock: it is kept beside the lock together
    /// with host name and process id, and shown by inspect(). Any text of up to 256 bytes; empty: nothing is
    /// kept.
    owner_label owner_info = {};

    /// How long lock() and the timed forms keep trying while the server is unreachable, loading, silent
    /// or a replica, before they fail with the cause; a shorter time-out of the caller ends that sooner.
    /// Zero: the first failure is final. Even so a request that may have been applied is repeated once,
    /// unless the time-out is over.
    time_span patience = std::chrono::seconds{2};

    /// How unlock() releases: `posted` where the connection can post and the lease has not run out; it costs
    /// no round trip then, and unlock() answers release_outcome::posted.
    release_mode release = release_mode::posted;

    /// How long the threads that share a mutex object may pass the lock on among themselves before the next
    /// process gets it. 0 ms to 1 h. Zero: never. They never do with `hold_at_least`, nor as writers of a
    /// shared_mutex with `fencing`. With a dialect that polls, the lock is free for a moment when this time
    /// is over, and a waiter elsewhere gets it at its next poll.
    time_span local_budget = std::chrono::milliseconds{5};

    /// How many replicas must acknowledge a grant, a hand-over or a renewal before it counts: the library
    /// sends WAIT behind the write. If fewer do, it releases the lock, and the call fails with
    /// errc::not_replicated; it retries a renewal for as long as the last one that counted is valid. That
    /// makes it unlikely, not impossible, that a fail-over loses the lock: a replica without the lock may be
    /// promoted. 0 (no WAIT) to 1000. The connection must have pipeline() or execute_acknowledged(). A lock
    /// that was handed over costs one round trip more, and so does one that is taken while others wait, and
    /// downgrade() and try_upgrade() of a shared_mutex.
    int replicas = 0;

    /// How long the server waits for the replicas, accurate to a tenth of a second. At least 1 ms. A larger
    /// value than a sixth of the lease, or than half of the time that the call has left, counts as that; over
    /// a connection without execute_acknowledged(), a larger value than half of its command time-out counts
    /// as that half.
    time_span replica_timeout = std::chrono::milliseconds{100};
};

namespace detail {

inline constexpr std::chrono::milliseconds polling_recheck{50};
inline constexpr std::chrono::milliseconds queued_recheck{1000};

/// Throws: error with the pieces as its detail, behind the name of the lock where there is one.
[[noreturn, gnu::cold]] DISTLOCK_INLINE void refuse_option(errc code, std::string_view lock,
                                                           std::initializer_list<text_piece> why);

/// Throws: `error` when an option is out of its range. `command_timeout` is the connection's; zero when
/// unknown.
DISTLOCK_INLINE void check_options(const lock_options& options, std::chrono::milliseconds command_timeout,
                                   std::string_view lock = {});

}  // namespace detail

}  // namespace distlock

#ifndef DISTLOCK_SEPARATE_COMPILATION
#include <distlock/base/options_impl.hpp>
#endif
