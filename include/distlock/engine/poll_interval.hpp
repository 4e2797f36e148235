// How long a waiter in the queue waits until it polls.
//
//   poll_interval poll_interval_of(const poll_conditions&, jitter&);
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>

#include <distlock/base/clock.hpp>
#include <distlock/engine/jitter.hpp>
#include <distlock/wire/outcome.hpp>

namespace distlock::engine {

/// The recheck while messages do not arrive, unless lock_options::recheck is shorter.
inline constexpr std::chrono::milliseconds unheard_recheck{50};

struct poll_conditions {
    std::chrono::milliseconds recheck{};  ///< lock_options::recheck
    std::chrono::milliseconds lease{};
    std::optional<std::chrono::milliseconds> ttl{};  ///< of the lock, as the server answered; -1: none
    std::uint32_t position = 0;                      ///< how many tickets stand before the waiter's
    bool hears = false;                              ///< messages arrive
    bool deaf = false;         ///< one did not, although they should have arrived; or none will
    bool stalls = false;       ///< the queue: see below
    bool watches = false;      ///< the server has asked for it
    clock::duration waited{};  ///< at this position
};

struct poll_interval {
    clock::duration span;
    clock::duration unheard;  ///< the same from when messages do not arrive any more
};

/// Returns: whether a queue moved on by less than one ticket for each offer that may have ended in `span`:
/// those in front may be dead, and nobody near them alive.
inline bool stalls(const queue_place& before, const queue_place& now, clock::duration span) noexcept {
    return before.ticket != 0 && before.ticket == now.ticket &&
           longest_offer * (before.position - now.position) < span;
}

/// The first waiter polls every `recheck`, and the others the later the farther back they stand, so that a
/// thousand waiters cost the server less than a hundred commands a second. All poll when the lock may have
/// expired, one after the other, for those in front may have died with the owner: the first at once, those
/// behind them not before an offer to one in front could have ended. In a queue that stalls, those that stand
/// near enough poll when it has. One that watches polls when an offer may have ended, wherever it stands and
/// whoever has the lock: those before it may have been served meanwhile, and the last of them may be dead.
inline poll_interval poll_interval_of(const poll_conditions& of, jitter& random) noexcept {
    constexpr std::uint32_t sharing = 8;  // so many positions double the interval
    constexpr std::uint32_t near = 4;     // so many poll at once when the TTL ends
    constexpr std::chrono::milliseconds apart{20};
    const auto position = std::min<std::uint32_t>(of.position, 1'000'000);
    const auto span_of = [&](clock::duration recheck) {
        clock::duration span = recheck + recheck / sharing * position;
        span = std::min(span, std::max<clock::duration>(longest_recheck, recheck));
        // A waiter that was not told once may never be: it polls while it would be offered the lock.
        if (of.deaf) span = std::min<clock::duration>(span, std::min(longest_offer, of.lease) / 2);
        return span - random.up_to(span / 2);
    };
    clock::duration span = span_of(of.recheck);
    // One that is never told makes the others wait until it looks, at its turn: a small part of the time that
    // the owner before it has taken.
    constexpr std::chrono::milliseconds at_the_front{10};
    constexpr int part = 32;
    const auto soon = std::max<clock::duration>(at_the_front * (position + 1), of.waited / part);
    const auto often = of.deaf ? std::min<clock::duration>(unheard_recheck, soon) : unheard_recheck;
    const auto unheard = span_of(std::min<clock::duration>(of.recheck, often));
    if (!of.hears) span = unheard;
    if (!of.ttl || of.ttl->count() < 0) return {span, unheard};
    constexpr std::chrono::milliseconds grid{1};  // a TTL is rounded down
    const auto left = std::min<std::chrono::milliseconds>(*of.ttl, std::chrono::hours{1});
    const auto over = left + grid;
    const auto offer = std::min(longest_offer, of.lease);
    span = std::min<clock::duration>(
        span, position < near ? over + apart * position : std::max(over, offer) + 2 * apart * position);
    constexpr std::uint32_t near_enough = 256;
    constexpr std::uint32_t closely = 32;
    // So either kind costs the server 256 commands a second at most.
    const std::chrono::milliseconds shortest{position < closely ? 125 : 1000};
    if (of.watches || (of.stalls && position < near_enough && left <= longest_offer))
        span = std::min<clock::duration>(span, std::max(std::min(left, longest_offer), shortest) + apart);
    return {span, unheard};
}

}  // namespace distlock::engine
