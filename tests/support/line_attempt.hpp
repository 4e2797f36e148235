// An attempt to take a lock that may wait in line, driven by hand: the machine and the time it lives in.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

#include <distlock/base/clock.hpp>
#include <distlock/base/lease.hpp>
#include <distlock/base/token.hpp>
#include <distlock/engine/acquire.hpp>
#include <distlock/wire/outcome.hpp>
#include <distlock/wire/place.hpp>

#include "catch.hpp"

namespace line_test {

using distlock::acquire_outcome;
using distlock::clock;
using distlock::errc;
using distlock::place;
using distlock::validity_end;
using distlock::engine::acquire;
using distlock::engine::acquire_limits;
using distlock::engine::acquire_step;
using namespace std::chrono_literals;
using kind = distlock::engine::acquire_step::kind;
using std::chrono::milliseconds;

inline constexpr clock::time_point start{1h};

inline const acquire_outcome granted = acquire_outcome::granted();
inline const acquire_outcome busy = acquire_outcome::busy(20'000);
inline const acquire_outcome taken = acquire_outcome::busy();  // what SET NX and a wait without an offer say
inline acquire_outcome later(errc cause = errc::unavailable) {
    return {acquire_outcome::kind::later, cause, {}};
}
inline acquire_outcome refused(errc cause) { return {acquire_outcome::kind::refused, cause, {}}; }
inline acquire_outcome lost(errc cause = errc::no_reply) {
    return {acquire_outcome::kind::unknown, cause, {}};
}
inline acquire_outcome offered(milliseconds lease = 30s) {
    return acquire_outcome::granted(distlock::offer{distlock::token::generate(), lease});
}

inline const acquire_limits defaults{.lease = 30s, .recheck = 50ms, .patience = 2s, .in_line = true};
inline acquire_limits with(clock::time_point deadline) {
    auto limits = defaults;
    limits.deadline = deadline;
    return limits;
}

/// A machine and the time it lives in.
class attempt {
  public:
    explicit attempt(const acquire_limits& limits = defaults, bool contended = true)
        : machine_(limits, start, 1), step_(machine_.begin(contended)) {}

    const acquire_step& step() const { return step_; }
    clock::time_point now() const { return now_; }
    bool open() const { return machine_.open(); }
    bool enters(place where) const { return step_.what == kind::send_enter && step_.where == where; }

    /// Effects: what was sent is answered, `took` after it was sent.
    const acquire_step& answer(const acquire_outcome& outcome, clock::duration took = 1ms) {
        REQUIRE((step_.what == kind::send_acquire || step_.what == kind::send_look ||
                 step_.what == kind::send_enter));
        const auto sent = now_;
        now_ += took;
        return step_ = machine_.on_outcome(outcome, sent, now_);
    }
    /// Effects: the wait in line ends after `span`.
    const acquire_step& waited(const acquire_outcome& outcome, clock::duration span, bool complete = true) {
        REQUIRE(step_.what == kind::wait);
        now_ += span;
        return step_ = machine_.on_waited(outcome, complete, now_);
    }
    const acquire_step& sleep() {
        REQUIRE(step_.what == kind::pause);
        now_ = std::max(now_, step_.at);
        return step_ = machine_.on_wake(now_);
    }
    void left() { machine_.on_left(); }
    const acquire_step& stop() { return step_ = machine_.on_stop(); }

  private:
    acquire machine_;
    clock::time_point now_ = start;
    acquire_step step_;
};

/// Returns: an attempt that waits in line, which it entered at the start.
inline attempt in_line(const acquire_limits& limits = defaults) {
    attempt a(limits);
    REQUIRE(a.enters(place::join));
    REQUIRE(a.answer(busy).what == kind::wait);
    return a;
}

/// Returns: an attempt that was offered a lock it has to confirm.
inline attempt adopting(const acquire_limits& limits = defaults) {
    attempt a = in_line(limits);
    a.waited(offered(), 1s, false);
    REQUIRE(a.enters(place::adopt));
    return a;
}

#define CHECK_NOTHING_FIRST(step)      \
    CHECK_FALSE((step).release_first); \
    CHECK_FALSE((step).leave_first);   \
    CHECK_FALSE((step).fresh_token)

#define CHECK_FAILED(step, why, releases, leaves) \
    CHECK((step).what == kind::failed);           \
    CHECK((step).cause == (why));                 \
    CHECK((step).release_first == (releases));    \
    CHECK((step).leave_first == (leaves))

}  // namespace line_test
