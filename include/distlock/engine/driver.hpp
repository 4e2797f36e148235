// The thin shell around the decisions: sends what the machine asks for, waits as long as it says, reads the clock.
//
//   acquisition take(connection, dialect, limits, stop, contended, trouble, owe)  // runs engine::acquire to its end
//   given_back give_back(connection, dialect, owner, until)       // compare-and-delete, asked twice if need be
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <stop_token>
#include <string>

#include <distlock/base/clock.hpp>
#include <distlock/base/error.hpp>
#include <distlock/base/token.hpp>
#include <distlock/detail/pause.hpp>
#include <distlock/engine/acquire.hpp>
#include <distlock/net/connection.hpp>
#include <distlock/wire/command.hpp>
#include <distlock/wire/outcome.hpp>

namespace distlock::engine {

/// The end of an attempt.
struct acquisition {
    acquire_step end;          ///< granted, gave_up or failed
    token owner;               ///< of granted
    std::uint64_t fence = 0;   ///< of granted: the fencing token; 0: none was asked for
    clock::time_point sent{};  ///< of granted: before the first byte of the command that was answered
    clock::time_point came{};  ///< of granted: when its answer had come
    std::string trouble;       ///< of failed: what the connection or the server said last
    bool contended = false;
    bool open = false;  ///< of granted: an earlier sending was not answered, and may still be on its way
};

/// What became of a release.
struct given_back {
    release_outcome what;
    bool owed = false;  ///< the key may still be ours on the server
};

namespace detail {

inline std::uint64_t seed_from(const token& t) noexcept {
    std::uint64_t seed = 0;
    std::memcpy(&seed, t.view().data(), sizeof seed);
    return seed;
}

// The lock may be ours on the server although we do not want it: free it, wait for next to nothing. The body is
// sent, since nobody would see a NOSCRIPT. Returns: whether it is certain that nothing of ours is left there, and
// that nothing is still on its way: only a key that was found and deleted says both.
template <class Clock, class Conn, class Dialect>
bool disown(Conn& connection, const Dialect& dialect, const token& owner) noexcept {
    constexpr std::chrono::milliseconds shortly{30};
    command release = dialect.release(owner).with_body();
    release.until(Clock::now() + shortly);
    if constexpr (posting_connection<Conn>) {
        try {
            if (connection.post(release)) return false;
        } catch (...) {  // of a user's client: as good as not posted
        }
    }
    return dialect.read_release(distlock::execute(connection, release)).what == release_outcome::released;
}

// Leaves to the lease what could not be released.
struct nothing_is_owed {
    void operator()(const token&) const noexcept {}
};

}  // namespace detail

/// Effects: tries to take the lock within `limits` and until `stop` is requested. `trouble` says at any time
/// what keeps the server from answering; errc{} when it does. `owe(owner)`, which does not throw, is called for
/// every token under which the server may have, or may still get, a lock that nobody wants.
/// Throws: error(errc::no_entropy), std::bad_alloc; nothing is left on the server then but what a lost reply
/// can leave.
/// Round trips: one when the lock is free; two when it is taken and this is a try.
template <class Clock, class Conn, class Dialect, class Owe = detail::nothing_is_owed>
acquisition take(Conn& connection, const Dialect& dialect, const acquire_limits& limits,
                 const std::stop_token& stop, bool contended, std::atomic<errc>& trouble, Owe owe = {}) {
    acquisition result;
    result.owner = token::generate();
    acquire machine(limits, Clock::now(), detail::seed_from(result.owner));
    acquire_step step = machine.begin(contended || dialect.looks_at_once());
    for (;;) {
        const bool goes_on = step.what == acquire_step::kind::send_acquire ||
                             step.what == acquire_step::kind::send_look ||
                             step.what == acquire_step::kind::pause;
        if (goes_on && stop.stop_requested()) {
            const bool owed = step.release_first;
            step = machine.on_stop();
            step.release_first = step.release_first || owed;
        }
        if (step.release_first && !detail::disown<Clock>(connection, dialect, result.owner))
            owe(result.owner);
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
                trouble = outcome.cause;
                if (outcome.what != acquire_outcome::kind::granted &&
                    outcome.what != acquire_outcome::kind::busy) {
                    result.trouble = answer.text();
                }
                result.fence = outcome.fence;
                result.sent = sent;
                result.came = Clock::now();
                step = machine.on_outcome(outcome, sent, result.came);
                break;
            }
            case acquire_step::kind::pause:
                distlock::detail::pause_until<Clock>(stop, step.at);
                step = machine.on_wake(Clock::now());
                break;
            case acquire_step::kind::granted:
            case acquire_step::kind::gave_up:
            case acquire_step::kind::failed:
                result.end = step;
                result.open = machine.open();
                return result;
        }
    }
}

/// Effects: frees the lock if `owner` still holds it; a lost answer is asked for once more, on whatever the
/// connection gives then. `until` is the end of the grant's validity.
/// Round trips: one; two when an answer is lost.
template <class Clock, class Conn, class Dialect>
given_back give_back(Conn& connection, const Dialect& dialect, const token& owner,
                     typename Clock::time_point until) noexcept {
    const bool in_time = Clock::now() < until;
    const command release = dialect.release(owner);
    release_verdict verdict = dialect.read_release(distlock::execute(connection, release));
    const bool open = verdict.open;
    if (verdict.again) verdict = dialect.read_release(distlock::execute(connection, release));
    switch (verdict.what) {
        case release_outcome::released:
            return {in_time ? release_outcome::released : release_outcome::expired};
        case release_outcome::expired:
        case release_outcome::taken:
            // The answer that was lost may have been "released", and the next owner may be in already.
            return {open && in_time ? release_outcome::released : verdict.what};
        case release_outcome::unreachable:
        case release_outcome::refused:
            return {verdict.what, true};
        default:
            return {verdict.what};
    }
}

}  // namespace distlock::engine
