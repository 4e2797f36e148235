// The limits of an attempt to take a lock, and the next step of it. Plain data.
#pragma once

#include <chrono>
#include <cstdint>

#include <distlock/base/clock.hpp>
#include <distlock/base/error.hpp>
#include <distlock/base/token.hpp>
#include <distlock/detail/saturate.hpp>
#include <distlock/wire/enter_mode.hpp>

namespace distlock::engine {

/// Even a caller without time gets one honest answer: less than a round trip would make every try fail.
inline constexpr std::chrono::milliseconds shortest_answer_time{50};
/// A caller whose time is up waits no longer for the last one.
inline constexpr std::chrono::milliseconds longest_answer_time{200};

/// A lock object's waiters wait so long for the first subscription, all together. A waiter that joins the
/// queue before may be passed over.
inline constexpr std::chrono::milliseconds longest_subscribing{200};

/// Returns: whether trouble with the server that began at `since` has lasted so long; time_point::max():
/// there is none.
[[gnu::cold]] inline bool out_of_patience(std::chrono::milliseconds patience, clock::time_point since,
                                          clock::time_point now) noexcept {
    using distlock::detail::rounding;
    return since <= now &&
           now - since >= distlock::detail::saturating_cast<clock::duration, rounding::up>(patience);
}

/// How a waiter learns that the lock is free.
enum class waiting_manner {
    polls,   ///< it asks again and again
    woken,   ///< the same, but its pauses end when there is something to see
    queues,  ///< it has a ticket, and is handed the lock
};

/// The limits of an attempt to take a lock.
struct acquire_limits {
    std::chrono::milliseconds lease{};
    /// Longest pause between two looks; in the queue, of the first waiter.
    std::chrono::milliseconds recheck{};
    std::chrono::milliseconds patience{};  ///< longest trouble that is ridden out
    /// As lock_core::manner::failing_since: it counts for the patience.
    clock::time_point failing_since = clock::time_point::max();
    /// Of the whole attempt, every round trip included, but for the last answers: see acquire_step::at.
    clock::time_point deadline = clock::time_point::max();
    bool once = false;  ///< do not wait for another owner
    waiting_manner waits = waiting_manner::polls;
    bool wants_fence = false;   ///< a message without one does not do
    bool claims_lease = false;  ///< nothing renews it afterwards: the whole lease is asked for at once
    int replicas = 0;           ///< so many must have acknowledged the grant
    std::chrono::milliseconds replica_timeout{};
    /// Of `once`: a token of ours whose lock this one takes over in one step.
    const token* in_exchange_for = nullptr;
};

struct acquire_step {
    enum class kind {
        send_acquire,  ///< the plain command
        send_look,     ///< the script that also finds an earlier success of ours
        send_enter,    ///< the same about the queue, with `mode`
        send_claim,    ///< a renewal: the lock was granted for less than the lease
        pause,         ///< until `at`, or `unheard_for`, a message, a new subscription, or a stop request
        granted,       ///< the lock is ours until `at`
        gave_up,       ///< somebody else has it, and the time is up
        failed,        ///< with `cause`
    };

    kind what = kind::failed;
    /// Of pause and granted. Of a sending, when its answer must have come: at the deadline of the attempt, or
    /// 50 to 200 ms from now where that is later.
    clock::time_point at{};
    /// Of pause: once messages have not arrived for so long.
    clock::duration unheard_for = clock::duration::max();
    errc cause = errc::no_reply;             ///< of failed
    enter_mode mode = enter_mode::try_once;  ///< of send_enter
    std::chrono::milliseconds ttl{};         ///< of granted: what it was granted for
    clock::time_point since{};               ///< of granted: from when that counts
    std::uint64_t fence = 0;                 ///< of granted
    /// The token used so far may own the key, or have a ticket: release by it, wait for nothing.
    bool leave_first = false;
    /// Of leave_first: a sending with that token was not answered, and may still arrive.
    bool in_doubt = false;
    bool broke_off = false;  ///< of leave_first: a script wrote something before it was refused, if anything
    bool fresh_token = false;      ///< the token used so far is dead, take another one
    bool reconnect_first = false;  ///< messages do not arrive: subscribe anew
    bool without_ttl = false;      ///< of gave_up: the holder's key never expires
};

}  // namespace distlock::engine
