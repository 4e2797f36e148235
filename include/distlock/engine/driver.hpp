// The thin shell around the decisions: sends what the machine asks for, waits as long as it says, reads the clock.
//
//   acquisition take(connection, dialect, limits, stop, contended)      // runs engine::acquire to its end
//   release_outcome give_back(connection, dialect, owner, until)        // compare-and-delete, asked twice if need be
#pragma once

#include <chrono>
#include <cstdint>
#include <cstring>
#include <stop_token>
#include <string>

#include <distlock/base/clock.hpp>
#include <distlock/base/token.hpp>
#include <distlock/detail/pause.hpp>
#include <distlock/engine/acquire.hpp>
#include <distlock/net/connection.hpp>
#include <distlock/wire/command.hpp>
#include <distlock/wire/outcome.hpp>

namespace distlock::engine {

/// The end of an attempt.
struct acquisition {
    acquire_step end;     ///< granted, gave_up or failed
    token owner;          ///< of granted
    std::string trouble;  ///< of failed: what the connection or the server said last
    bool contended = false;
};

namespace detail {

inline std::uint64_t seed_from(const token& t) noexcept {
    std::uint64_t seed = 0;
    std::memcpy(&seed, t.view().data(), sizeof seed);
    return seed;
}

// The lock may be ours on the server although we do not want it: free it, wait for next to nothing. If this
// fails too, the lease ends it. The body is sent, since nobody would see a NOSCRIPT.
template <class Clock, class Conn, class Dialect>
void disown(Conn& connection, const Dialect& dialect, const token& owner) noexcept {
    constexpr std::chrono::milliseconds shortly{50};
    command release = dialect.release(owner).with_body();
    release.until(Clock::now() + shortly);
    if constexpr (posting_connection<Conn>) {
        connection.post(release);
    } else {
        distlock::execute(connection, release);
    }
}

}  // namespace detail

/// Effects: tries to take the lock within `limits` and until `stop` is requested.
/// Throws: error(errc::no_entropy), std::bad_alloc; nothing is left on the server then but what a lost reply
/// can leave. Round trips: one when the lock is free; two when it is taken and this is a try.
template <class Clock, class Conn, class Dialect>
acquisition take(Conn& connection, const Dialect& dialect, const acquire_limits& limits,
                 const std::stop_token& stop, bool contended) {
    acquisition result;
    if (stop.stop_requested()) {
        result.end = {.what = acquire_step::kind::failed, .cause = errc::cancelled};
        return result;
    }
    result.owner = token::generate();
    acquire machine(limits, Clock::now(), detail::seed_from(result.owner));
    acquire_step step = machine.begin(contended);
    for (;;) {
        if (step.release_first) detail::disown<Clock>(connection, dialect, result.owner);
        if (step.fresh_token) result.owner = token::generate();
        switch (step.what) {
            case acquire_step::kind::send_acquire:
            case acquire_step::kind::send_look: {
                const bool look = step.what == acquire_step::kind::send_look;
                command cmd = look ? dialect.look(result.owner) : dialect.acquire(result.owner);
                cmd.until(step.at);
                const auto sent = Clock::now();
                const reply answer = distlock::execute(connection, cmd);
                const auto outcome = look ? dialect.read_look(answer) : dialect.read_acquire(answer);
                result.contended = result.contended || outcome.what == acquire_outcome::kind::busy;
                if (outcome.what != acquire_outcome::kind::granted &&
                    outcome.what != acquire_outcome::kind::busy) {
                    result.trouble = answer.text();
                }
                step = machine.on_outcome(outcome, sent, Clock::now());
                if (step.what != acquire_step::kind::granted && stop.stop_requested())
                    step = machine.on_stop();
                break;
            }
            case acquire_step::kind::pause:
                distlock::detail::pause_until<Clock>(stop, step.at);
                step = stop.stop_requested() ? machine.on_stop() : machine.on_wake(Clock::now());
                break;
            case acquire_step::kind::granted:
            case acquire_step::kind::gave_up:
            case acquire_step::kind::failed:
                result.end = step;
                return result;
        }
    }
}

/// Effects: frees the lock if `owner` still holds it; a lost answer is asked for once more, on whatever the
/// connection gives then. `until` is the end of the grant's validity. Round trips: one; two when an answer is
/// lost.
template <class Clock, class Conn, class Dialect>
release_outcome give_back(Conn& connection, const Dialect& dialect, const token& owner,
                          typename Clock::time_point until) noexcept {
    const bool in_time = Clock::now() < until;
    const command release = dialect.release(owner);
    release_verdict verdict = dialect.read_release(distlock::execute(connection, release));
    const bool first_answered = !verdict.again;
    if (verdict.again) verdict = dialect.read_release(distlock::execute(connection, release));
    // The lost answer may have been "released": finding nothing the second time proves no loss.
    if (verdict.what == release_outcome::expired && in_time && !first_answered)
        return release_outcome::released;
    if (verdict.what == release_outcome::released && !in_time) return release_outcome::expired;
    return verdict.what;
}

}  // namespace distlock::engine
