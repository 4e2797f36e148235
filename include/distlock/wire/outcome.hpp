// What a reply means to a lock: the few answers the engine decides by.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string_view>

#include <distlock/base/error.hpp>
#include <distlock/base/token.hpp>
#include <distlock/detail/separate.hpp>
#include <distlock/wire/reply.hpp>

namespace distlock {

/// What became of a release. After `released`, `expired` and `taken` the lock is this owner's no longer;
/// after `posted`, `unreachable` and `refused` it may be until its lease ends.
enum class release_outcome {
    released,       ///< it was ours, and is free now, or passed on
    posted,         ///< on its way to the server, or kept for hold_at_least; the background sees to it
    expired,        ///< the lock had been lost; nobody has it now, or the server was not asked: see unlock()
    taken,          ///< the lock had been lost, and somebody else has it: left alone
    unreachable,    ///< no server answered, or could be sent to at once; the background goes on
    refused,        ///< the server answered that it will not
    not_held,       ///< unlock() without owning: nothing was sent
    wrong_process,  ///< unlock() in a child after fork(): nothing was sent
    nested,         ///< of a recursive_mutex: the thread has the lock still, having taken it more often
};

constexpr std::string_view to_string(release_outcome what) noexcept {
    constexpr std::string_view words[] = {"released", "posted",   "expired",       "taken", "unreachable",
                                          "refused",  "not_held", "wrong_process", "nested"};
    return words[static_cast<unsigned>(what)];
}

/// A waiter's place in the queue, as the server answered it.
struct queue_place {
    std::uint64_t ticket = 0;    ///< tells the tickets of one token apart; 0: it has none
    std::uint32_t position = 0;  ///< how many tickets stand before it
    bool appended = false;       ///< the ticket was not there before

    /// Returns: whether the ticket is the same, and nobody before it has left.
    bool same_as(const queue_place& before) const noexcept {
        return ticket == before.ticket && position == before.position;
    }
};

/// The TTL of a lock that was handed over, until it is renewed, unless its lease is shorter.
inline constexpr std::chrono::milliseconds longest_offer{2000};

/// The longest that a waiter in a queue pauses between two re-checks, unless lock_options::recheck is longer.
/// The queue lasts three times that, or a lease where that is longer.
inline constexpr std::chrono::milliseconds longest_recheck{30'000};

/// The message to a waiter that a lock was handed over to it; or what it is asked.
struct handover {
    token owner;
    std::uint64_t ticket = 0;         ///< the one it was handed over for
    std::chrono::milliseconds ttl{};  ///< of the lock, from the hand-over on; 0: something is asked
    std::uint64_t fence = 0;          ///< 0: the waiter wanted none
    bool watch = false;  ///< it is asked to poll for those before it; else, to look: it keeps out others, or
                         ///< was dropped

    bool asks() const noexcept { return ttl.count() == 0; }
};

/// Answers to "give me the lock".
struct acquire_outcome {
    enum class kind {
        granted,  ///< ours
        busy,     ///< somebody else's
        later,    ///< not applied; worth asking again
        refused,  ///< not applied; asking again will not help
        unknown,  ///< may have been applied
    };

    kind what = kind::unknown;
    errc cause = errc::no_reply;  ///< of later, refused and unknown
    /// Of busy: what is left; -1 when the holder's key has no TTL.
    std::optional<std::chrono::milliseconds> ttl = {};
    std::uint64_t fence = 0;  ///< of granted: the fencing token; 0: none was asked for
    queue_place queued = {};  ///< of busy
    /// Of granted: the TTL it has; none: the whole lease.
    std::optional<std::chrono::milliseconds> granted_for = {};
    bool awaited = false;      ///< of granted: somebody is to be told of its release
    bool others_read = false;  ///< of granted: to a reader; others have it, too
    bool certain = false;      ///< of refused: see server_error::certain

    /// Returns: whether a script was refused at a command in its middle: what it wrote stays.
    bool broke_off() const noexcept {
        const bool by_command = cause == errc::permission_denied || cause == errc::unsupported_command;
        return what == kind::refused && by_command && !certain;
    }

    /// Returns: whether somebody else's key never expires.
    bool without_ttl() const noexcept { return ttl && ttl->count() == -1; }

    static acquire_outcome granted(std::uint64_t fence = 0) { return {kind::granted, {}, {}, fence}; }
    static acquire_outcome busy() { return {kind::busy, {}, {}}; }
    static acquire_outcome busy(std::int64_t ttl) { return {kind::busy, {}, std::chrono::milliseconds(ttl)}; }

    /// Returns: what a reply that is none of the dialect's answers means.
    static acquire_outcome failure(const reply& r);
};

/// Answers to "I still need it".
struct renew_outcome {
    enum class kind {
        kept,   ///< ours, with a whole lease before it
        gone,   ///< the server has no such lock
        taken,  ///< somebody else's
        later,  ///< no answer, or one that says nothing about the owner: perhaps renewed
    };

    kind what = kind::later;
    errc cause = errc::no_reply;  ///< of later
};

/// Answers to "I am done with it".
struct release_verdict {
    release_outcome what = release_outcome::unreachable;
    bool again = false;      ///< the key may still be ours: worth asking again while the lease lasts
    bool in_doubt = false;   ///< it may have been applied all the same, or may still be
    bool minimal = false;    ///< what was refused may be granted to the command that needs least
    bool transient = false;  ///< of minimal: the whole release may succeed a little later

    /// Returns: whether the server did what it was asked to.
    bool executed() const noexcept {
        return what != release_outcome::refused && what != release_outcome::unreachable;
    }

    static release_verdict failure(const reply& r);

    /// Effects: where `r` refuses a release that needs several keys, notes what is worth trying then.
    void note_refusal(const reply& r);
};

}  // namespace distlock

#ifndef DISTLOCK_SEPARATE_COMPILATION
#include <distlock/wire/outcome_impl.hpp>
#endif
