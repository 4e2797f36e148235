// The machine that takes a lock, driven by hand in a time of its own: without a server, a thread or a wait.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>

#include <distlock/base/clock.hpp>
#include <distlock/base/lease.hpp>
#include <distlock/engine/acquire.hpp>
#include <distlock/wire/acknowledgement.hpp>
#include <distlock/wire/outcome.hpp>

#include "support/catch.hpp"

namespace acquire_test {

using distlock::acquire_outcome;
using distlock::clock;
using distlock::enter_mode;
using distlock::errc;
using distlock::validity_end;
using distlock::engine::acquire;
using distlock::engine::acquire_limits;
using distlock::engine::acquire_step;
using distlock::engine::waiting_manner;
using namespace std::chrono_literals;
using kind = acquire_step::kind;
using std::chrono::milliseconds;

inline constexpr clock::time_point start{1h};

inline const acquire_outcome taken = acquire_outcome::busy();  // what SET NX can say
inline acquire_outcome later(errc cause = errc::unavailable) {
    return {acquire_outcome::kind::later, cause, {}};
}
inline acquire_outcome refused(errc cause) { return {acquire_outcome::kind::refused, cause, {}}; }
inline acquire_outcome lost(errc cause = errc::no_reply) {
    return {acquire_outcome::kind::unknown, cause, {}};
}

/// A machine and the time it lives in.
class stepped_acquire {
  public:
    /// An answer comes `round_trip` after what was sent, where a test says nothing else.
    stepped_acquire(const acquire_limits& limits, bool contended, clock::duration round_trip,
                    std::uint64_t seed = 1)
        : queues_(limits.waits == waiting_manner::queues),
          round_trip_(round_trip),
          machine_(limits, seed),
          step_(machine_.begin(start, contended)) {}

    const acquire_step& step() const { return step_; }
    clock::time_point now() const { return now_; }
    bool enters(enter_mode mode) const { return step_.what == kind::send_enter && step_.mode == mode; }
    clock::duration pause() const {
        REQUIRE(step_.what == kind::pause);
        return step_.at - now_;
    }

    /// Effects: what was sent is answered.
    const acquire_step& answer(const acquire_outcome& outcome) { return answer(outcome, round_trip_); }
    /// Effects: what was sent is answered, `took` after it was sent.
    const acquire_step& answer(const acquire_outcome& outcome, clock::duration took,
                               const std::optional<distlock::acknowledgement>& replicated = {}) {
        REQUIRE((step_.what == kind::send_acquire || step_.what == kind::send_look ||
                 (queues_ && step_.what == kind::send_enter)));
        const auto sent = now_;
        now_ += took;
        return step_ = machine_.on_outcome(outcome, sent, now_, replicated);
    }
    const acquire_step& claimed(distlock::renew_outcome::kind what, clock::duration took = 1ms,
                                const std::optional<distlock::acknowledgement>& replicated = {}) {
        REQUIRE(step_.what == kind::send_claim);
        const auto sent = now_;
        now_ += took;
        return step_ = machine_.on_claim({what}, sent, now_, replicated);
    }
    /// Effects: messages do not arrive any more, and so much of the pause is slept as is slept then.
    const acquire_step& hear_nothing() {
        REQUIRE(step_.what == kind::pause);
        now_ += step_.unheard_for;
        machine_.unheard();
        return step_ = machine_.on_wake(now_);
    }
    /// Effects: the pause is slept to its end.
    const acquire_step& sleep() {
        REQUIRE(step_.what == kind::pause);
        now_ = std::max(now_, step_.at);
        return step_ = machine_.on_wake(now_);
    }
    /// Effects: so much later a message comes.
    const acquire_step& told(const distlock::handover& what, clock::duration span) {
        REQUIRE(step_.what == kind::pause);
        now_ += span;
        return step_ = machine_.on_message(what, now_);
    }
    /// Effects: it is subscribed from the start.
    void hears() { machine_.subscribed(); }
    const acquire_step& subscribed(clock::duration span = 1ms) {
        now_ += span;
        return step_ = machine_.on_subscribed(now_);
    }
    const acquire_step& stop() { return step_ = machine_.on_stop(); }

  private:
    bool queues_;
    clock::duration round_trip_;
    acquire machine_;
    clock::time_point now_ = start;
    acquire_step step_;
};

#define CHECK_NOTHING_FIRST(step)    \
    CHECK_FALSE((step).leave_first); \
    CHECK_FALSE((step).fresh_token); \
    CHECK_FALSE((step).reconnect_first)

}  // namespace acquire_test
