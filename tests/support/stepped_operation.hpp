// An operation that a test resumes by hand: without a connection, a thread, or a clock that moves by itself.
#pragma once

#include <algorithm>
#include <chrono>
#include <string>
#include <string_view>

#include <distlock/base/clock.hpp>

#include "attempt.hpp"
#include "support/catch.hpp"

namespace attempt_test {

inline constexpr distlock::clock::time_point start{1h};

template <class Dialect>
struct stepped_operation {
    using duration = distlock::clock::duration;
    using kind = action::kind;

    stepped_operation(const Dialect& dialect, const acquire_limits& limits, bool contended = false)
        : spoken(dialect), op(spoken, limits, contended) {}

    const action& begin() { return next = op.resume(event::started(now)); }
    /// Effects: what was sent is answered, `took` after it was sent.
    const action& answer(const reply& r, duration took = 1ms) {
        REQUIRE(next.what == kind::send);
        const auto sent = now;
        now += took;
        return next = op.resume(event::answered(r, sent, now));
    }
    /// Effects: what was sent, and what goes behind it, is answered.
    const action& answer(const reply& r, const reply& replicated, duration took = 1ms) {
        REQUIRE(next.what == kind::send);
        REQUIRE(next.behind);
        const distlock::acknowledged_reply both{r, replicated};
        const auto sent = now;
        now += took;
        return next = op.resume(event::answered(both, sent, now));
    }
    /// Effects: the time is up.
    const action& wake() {
        REQUIRE((next.what == kind::wait || next.what == kind::pause || next.what == kind::subscribe));
        now = std::max(now, next.until);
        return next = op.resume(event::woke(now));
    }
    /// Effects: messages have not arrived for so long that it is not to wait on.
    const action& hear_nothing() {
        REQUIRE(next.what == kind::wait);
        REQUIRE(next.unheard_for < next.until - now);
        now += next.unheard_for;
        return next = op.resume(event::woke(now, true));
    }
    const action& subscribed() {
        REQUIRE((next.what == kind::wait || next.what == kind::subscribe));
        return next = op.resume(event::subscribed(now));
    }
    const action& refused() {
        REQUIRE(next.what == kind::subscribe);
        return next = op.resume(event::refused(now));
    }
    /// Effects: so much later a message comes.
    const action& tell(std::string_view text, duration span = 1ms) {
        REQUIRE(next.what == kind::wait);
        now += span;
        return next = op.resume(event::message(text, now));
    }
    const action& stop() { return next = op.resume(event::stopped()); }

    const grant& result() const { return op.result(); }
    std::string token_now() const { return std::string(result().token.view()); }
    /// Returns: the arguments of the command that is to be sent.
    words sends() const {
        REQUIRE(next.what == kind::send);
        return {next.command->argv().begin(), next.command->argv().end()};
    }

    distlock::clock::time_point now = start;
    const distlock::any_dialect_of<Dialect> spoken;
    operation op;
    action next;
};

/// Returns: whether nothing is to be done before the action.
inline bool nothing_first(const action& what) { return !what.leave && !what.reconnect; }
inline bool leaves(const action& what, std::string_view token, bool in_doubt) {
    return what.leave && what.leave->token.view() == token && what.leave->in_doubt == in_doubt;
}

}  // namespace attempt_test
