// An attempt to take a lock that may wait in the queue, driven by hand: the machine and the time it lives in.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "attempt.hpp"
#include "support/catch.hpp"

namespace queue_test {

using namespace attempt_test;
using distlock::clock;
using kind = acquire_step::kind;
using std::chrono::milliseconds;

inline constexpr clock::time_point start{1h};
inline constexpr milliseconds offer{2000};

inline const acquire_outcome taken = acquire_outcome::busy();  // what SET NX can say
inline acquire_outcome granted(milliseconds ttl = offer, std::uint64_t fence = 0) {
    auto outcome = acquire_outcome::granted(fence);
    outcome.granted_for = ttl;
    return outcome;
}
inline acquire_outcome queued(const queue_place& where = {.ticket = 7, .appended = true},
                              milliseconds ttl = 20s) {
    auto outcome = acquire_outcome::busy(ttl.count());
    outcome.queued = where;
    return outcome;
}
inline acquire_outcome later(errc cause = errc::unavailable) {
    return {acquire_outcome::kind::later, cause, {}};
}
inline acquire_outcome refused(errc cause) { return {acquire_outcome::kind::refused, cause, {}}; }
inline acquire_outcome lost(errc cause = errc::no_reply) {
    return {acquire_outcome::kind::unknown, cause, {}};
}
inline handover message(std::uint64_t ticket = 7, milliseconds ttl = offer, std::uint64_t fence = 0) {
    return {.owner = {}, .ticket = ticket, .ttl = ttl, .fence = fence};
}

inline const acquire_limits defaults{
    .lease = 30s, .recheck = 1s, .patience = 2s, .waits = waiting_manner::queues};
inline acquire_limits with(clock::time_point deadline) {
    auto limits = defaults;
    limits.deadline = deadline;
    return limits;
}

/// A machine and the time it lives in.
class attempt {
  public:
    explicit attempt(const acquire_limits& limits = defaults, bool contended = true, bool hears = true)
        : machine_(limits, 1), step_(machine_.begin(start, contended)) {
        if (hears) machine_.subscribed();
    }

    const acquire_step& step() const { return step_; }
    clock::time_point now() const { return now_; }
    bool enters(enter_mode mode) const { return step_.what == kind::send_enter && step_.mode == mode; }
    clock::duration pause() const {
        REQUIRE(step_.what == kind::pause);
        return step_.at - now_;
    }

    /// Effects: what was sent is answered, `took` after it was sent.
    const acquire_step& answer(const acquire_outcome& outcome, clock::duration took = 1ms) {
        REQUIRE((step_.what == kind::send_acquire || step_.what == kind::send_look ||
                 step_.what == kind::send_enter));
        const auto sent = now_;
        now_ += took;
        return step_ = machine_.on_outcome(outcome, sent, now_);
    }
    const acquire_step& claimed(renew_outcome::kind what, clock::duration took = 1ms) {
        REQUIRE(step_.what == kind::send_claim);
        const auto sent = now_;
        now_ += took;
        return step_ = machine_.on_claim({what}, sent, now_);
    }
    const acquire_step& sleep() {
        REQUIRE(step_.what == kind::pause);
        now_ = std::max(now_, step_.at);
        return step_ = machine_.on_wake(now_);
    }
    /// Effects: so much later a message comes.
    const acquire_step& told(const handover& what, clock::duration span) {
        REQUIRE(step_.what == kind::pause);
        now_ += span;
        return step_ = machine_.on_message(what, now_);
    }
    const acquire_step& subscribed(clock::duration span = 1ms) {
        now_ += span;
        return step_ = machine_.on_subscribed(now_);
    }
    const acquire_step& stop() { return step_ = machine_.on_stop(); }

  private:
    acquire machine_;
    clock::time_point now_ = start;
    acquire_step step_;
};

/// Returns: an attempt that waits in the queue, which it joined at the start.
inline attempt in_queue(const acquire_limits& limits = defaults) {
    attempt a(limits);
    REQUIRE(a.enters(enter_mode::join));
    REQUIRE(a.answer(queued()).what == kind::pause);
    return a;
}

#define CHECK_NOTHING_FIRST(step)    \
    CHECK_FALSE((step).leave_first); \
    CHECK_FALSE((step).fresh_token); \
    CHECK_FALSE((step).reconnect_first)

#define CHECK_FAILED(step, why, leaves, doubtful) \
    CHECK((step).what == kind::failed);           \
    CHECK((step).cause == (why));                 \
    CHECK((step).leave_first == (leaves));        \
    CHECK((step).in_doubt == (doubtful))

}  // namespace queue_test
