// The machine that takes a lock, when it may wait in the queue: how it joins, what it is
// told, and how it leaves.
#include <chrono>
#include <cstdint>

#include <distlock/wire/outcome.hpp>

#include "support/catch.hpp"
#include "support/stepped_acquire.hpp"

namespace acquire_in_queue_tests {

namespace {

using namespace acquire_test;
using distlock::handover;
using distlock::queue_place;
using distlock::renew_outcome;

constexpr milliseconds offer{2000};

acquire_outcome granted(milliseconds ttl = offer, std::uint64_t fence = 0) {
    auto outcome = acquire_outcome::granted(fence);
    outcome.granted_for = ttl;
    return outcome;
}
acquire_outcome queued(const queue_place& where = {.ticket = 7, .appended = true}, milliseconds ttl = 20s) {
    auto outcome = acquire_outcome::busy(ttl.count());
    outcome.queued = where;
    return outcome;
}
handover message(std::uint64_t ticket = 7, milliseconds ttl = offer, std::uint64_t fence = 0) {
    return {.owner = {}, .ticket = ticket, .ttl = ttl, .fence = fence};
}
const handover watch{.owner = {}, .ticket = 7, .watch = true};

const acquire_limits defaults{.lease = 30s, .recheck = 1s, .patience = 2s, .waits = waiting_manner::queues};
acquire_limits with(clock::time_point deadline) {
    auto limits = defaults;
    limits.deadline = deadline;
    return limits;
}

struct attempt : stepped_acquire {
    explicit attempt(const acquire_limits& limits = defaults, bool contended = true,
                     bool is_subscribed = true)
        : stepped_acquire(limits, contended, 1ms) {
        if (is_subscribed) hears();
    }
};

/// Returns: an attempt that waits in the queue, which it joined at the start.
attempt in_queue(const acquire_limits& limits = defaults) {
    attempt a(limits);
    REQUIRE(a.enters(enter_mode::join));
    REQUIRE(a.answer(queued()).what == kind::pause);
    return a;
}

#define CHECK_FAILED(step, why, leaves, doubtful) \
    CHECK((step).what == kind::failed);           \
    CHECK((step).cause == (why));                 \
    CHECK((step).leave_first == (leaves));        \
    CHECK((step).in_doubt == (doubtful))

}  // namespace

// ---- joining ----------------------------------------------------------------------------------------------

TEST_CASE("a lock that was free the last time is asked for by the plain command, then in the queue at once") {
    attempt a(defaults, false);
    CHECK(a.step().what == kind::send_acquire);
    a.answer(taken);
    CHECK(a.enters(enter_mode::join));
    CHECK_NOTHING_FIRST(a.step());
    CHECK(a.step().at == defaults.deadline);
}

TEST_CASE(
    "a lock that was taken the last time is asked for in the queue at once, and granted for the offer") {
    attempt a;
    CHECK(a.enters(enter_mode::join));
    CHECK(a.answer(granted(), 1s).at == validity_end(start, offer));
    CHECK(a.step().what == kind::granted);
    CHECK(a.step().ttl == offer);
    CHECK(a.step().since == start);
    CHECK_NOTHING_FIRST(a.step());
}

TEST_CASE("a try joins no queue") {
    auto limits = defaults;
    limits.once = true;
    attempt a(limits, false);
    a.answer(taken);
    CHECK(a.step().what == kind::send_look);
    CHECK(a.answer(acquire_outcome::busy(20'000)).what == kind::gave_up);
    CHECK_NOTHING_FIRST(a.step());
    CHECK(attempt(limits).step().what == kind::send_look);
}

// It waited for ever.
TEST_CASE("a try gives up though a server answers it with a ticket") {
    auto limits = defaults;
    limits.once = true;
    attempt a(limits, false);
    a.answer(taken);
    CHECK(a.step().what == kind::send_look);
    CHECK(a.answer(queued()).what == kind::gave_up);
    CHECK(a.step().leave_first);
}

TEST_CASE("a deadline in the past joins no queue") {
    attempt a(with(start - 1s), false);
    a.answer(taken);
    CHECK(a.step().what == kind::send_look);
    CHECK(a.answer(acquire_outcome::busy(20'000)).what == kind::gave_up);
    CHECK_NOTHING_FIRST(a.step());
    CHECK(attempt(with(start - 1s)).step().what == kind::send_look);
}

TEST_CASE("an answer to the joining that comes after the deadline leads out of the queue again") {
    attempt a(with(start + 1s));
    a.answer(queued(), 1s);
    CHECK(a.enters(enter_mode::last));
    CHECK(a.step().at == a.now() + 200ms);
}

// ---- messages ---------------------------------------------------------------------------------------------

TEST_CASE(
    "a message for the ticket that was answered counts from before that sending, and not from when it came") {
    attempt a = in_queue();
    const auto& step = a.told(message(), 500ms);
    CHECK(step.what == kind::granted);
    CHECK(step.at == validity_end(start, offer));
    CHECK(step.since == start);
    CHECK(step.ttl == offer);
    CHECK_NOTHING_FIRST(step);
}

TEST_CASE("a look that finds the same ticket makes a later message count from it") {
    attempt a = in_queue();
    a.sleep();
    REQUIRE(a.enters(enter_mode::join));
    const auto looked = a.now();
    a.answer(queued({.ticket = 7}));
    CHECK(a.told(message(), 500ms).since == looked);
    CHECK(a.step().what == kind::granted);
}

TEST_CASE("a message for another ticket counts from the first sending with the token") {
    attempt a = in_queue();
    a.sleep();
    a.answer(queued({.ticket = 8}));
    REQUIRE(a.now() - start < 1s);
    CHECK(a.told(message(7), 1us).since == start);
    CHECK(a.step().what == kind::granted);
    CHECK(a.step().at == validity_end(start, offer));
}

TEST_CASE("a message of which half may be gone is confirmed before it is believed") {
    const auto margin = offer - (validity_end(start, offer) - start);
    attempt fresh = in_queue();
    CHECK(fresh.told(message(), offer / 2 - margin - 1ms).what == kind::granted);
    attempt old = in_queue();
    old.told(message(), offer / 2 - margin - 1ms + 1ns);
    CHECK(old.enters(enter_mode::join));
    CHECK_NOTHING_FIRST(old.step());
    const auto sent = old.now();
    CHECK(old.answer(granted(1500ms)).at == validity_end(sent, 1500ms));
    CHECK(old.step().what == kind::granted);
}

// It subscribed anew, and looked once a second however far back it stood.
TEST_CASE("a message that came too late to be believed was heard: messages arrive") {
    attempt a = in_queue();
    a.told(message(), 2100ms);
    REQUIRE(a.enters(enter_mode::join));
    a.answer(queued({.ticket = 8, .position = 1000, .appended = true}));
    CHECK_NOTHING_FIRST(a.step());
    CHECK(a.pause() > 5s);
}

TEST_CASE("a waiter that is asked whether it is there looks at once, and believes nothing") {
    attempt a = in_queue(with(start + 5s));
    // Also where its last look is not older than the message.
    a.told(message(7, 0ms), 0ms);
    CHECK(a.enters(enter_mode::join));
    CHECK(a.answer(queued({.ticket = 7})).what == kind::pause);
    a.told(message(7, 0ms), 5s);
    REQUIRE(a.enters(enter_mode::last));
    CHECK(a.answer(queued({})).what == kind::gave_up);
    CHECK_FALSE(a.step().leave_first);  // nothing was handed over
}

TEST_CASE("a waiter that was dropped though it was asked hears messages all the same") {
    attempt a = in_queue();
    a.told(message(7, 0ms), 2s);
    REQUIRE(a.enters(enter_mode::join));
    a.answer(queued({.ticket = 8, .position = 1000, .appended = true}));
    CHECK_NOTHING_FIRST(a.step());
    CHECK(a.pause() > 5s);
}

TEST_CASE("a waiter that is asked to watch polls when an offer may have ended, however far back it stands") {
    attempt a;
    a.answer(queued({.ticket = 7, .position = 900}, 20s));
    REQUIRE(a.pause() > 5s);
    CHECK(a.told(watch, 1s).what == kind::pause);  // no command: the lock was handed over just now
    CHECK(a.pause() == offer + 20ms);
    a.sleep();
    const auto pause_at = [&](std::uint32_t position, milliseconds ttl) {
        REQUIRE(a.enters(enter_mode::join));
        a.answer(queued({.ticket = 7, .position = position}, ttl));
        const auto span = a.pause();
        a.sleep();
        return span;
    };
    CHECK(pause_at(900, 2s) == 2s + 20ms);
    CHECK(pause_at(900, 20s) == 2s + 20ms);  // those before it may be served before this lease ends
    CHECK(pause_at(900, milliseconds::max()) == 2s + 20ms);
    CHECK(pause_at(32, 100ms) == 1s + 20ms);  // not all that watch at once
    CHECK(pause_at(31, 50ms) == 125ms + 20ms);
    CHECK(pause_at(0, 50ms) == 51ms);
    CHECK(pause_at(900, -1ms) > 5s);
    a.answer(granted(2s), 3s);
    REQUIRE(a.step().fresh_token);  // another waiter, as the server sees it
    a.sleep();
    a.answer(queued({.ticket = 9, .position = 900}, 20s));
    CHECK(a.pause() > 5s);
}

TEST_CASE("to be asked to watch says nothing of a ticket that is gone: messages do not arrive") {
    attempt a = in_queue();
    a.told(watch, 1ms);
    a.sleep();
    REQUIRE(a.enters(enter_mode::join));
    a.answer(queued({.ticket = 8, .appended = true}));
    CHECK(a.step().reconnect_first);
}

TEST_CASE("a waiter that is asked to watch polls no later than it would have") {
    attempt a;
    a.answer(queued({.ticket = 7, .position = 900}, 100ms));
    const auto planned = a.step().at;
    a.told(watch, planned - a.now() - 1s);
    CHECK(a.step().at == planned);
    auto limits = defaults;
    limits.lease = 300ms;
    attempt b(limits);
    b.answer(queued({.ticket = 7, .position = 20}, 200ms));
    b.told(watch, 1ms);
    CHECK(b.pause() == 300ms + 20ms);
}

TEST_CASE("a waiter without a ticket that is asked to watch goes on as before") {
    attempt a;
    a.answer(later());
    REQUIRE(a.step().what == kind::pause);
    const auto planned = a.step().at;
    CHECK(a.told(watch, 0ms).what == kind::pause);
    CHECK(a.step().at == planned);
}

TEST_CASE("a waiter whose message came too late polls as seldom as before") {
    attempt a = in_queue();
    a.told(message(), 2100ms);
    REQUIRE(a.enters(enter_mode::join));
    a.answer(queued({.ticket = 8, .position = 900}, 2s));
    CHECK(a.pause() > 5s);
}

TEST_CASE("a message without the fence that is wanted is confirmed") {
    auto limits = defaults;
    limits.wants_fence = true;
    attempt a = in_queue(limits);
    a.told(message(), 1ms);
    CHECK(a.enters(enter_mode::join));
    CHECK(a.answer(granted(offer, 42)).fence == 42);
    attempt b = in_queue(limits);
    CHECK(b.told(message(7, offer, 43), 1ms).fence == 43);
    CHECK(b.step().what == kind::granted);
}

TEST_CASE("a message that was not confirmed leaves nothing behind when the attempt ends") {
    attempt a = in_queue(with(start + 5s));
    a.told(message(9), 4s);
    REQUIRE(a.enters(enter_mode::join));
    a.answer(queued({.ticket = 9}));
    attempt stopped = a;
    stopped.stop();
    CHECK_FAILED(stopped.step(), errc::cancelled, true, false);
    while (a.step().what == kind::pause) {
        a.sleep();
        if (a.enters(enter_mode::join)) a.answer(queued({.ticket = 9}));
    }
    REQUIRE(a.enters(enter_mode::last));
    CHECK(a.answer(queued({})).what == kind::gave_up);
    CHECK(a.step().leave_first);  // it may have been handed over in between
}

TEST_CASE("a message that comes at the deadline is taken, or asked about for the last time") {
    attempt a = in_queue(with(start + 500ms));
    CHECK(a.told(message(), 500ms).what == kind::granted);
    attempt b = in_queue(with(start + 500ms));
    b.told(message(9, 100ms), 500ms);
    CHECK(b.enters(enter_mode::last));
}

// ---- claims -----------------------------------------------------------------------------------------------

TEST_CASE("the whole lease of a lock that nothing renews is claimed before it is believed") {
    auto limits = defaults;
    limits.claims_lease = true;
    attempt a = in_queue(limits);
    a.told(message(7, offer, 5), 10ms);
    CHECK(a.step().what == kind::send_claim);
    const auto sent = a.now();
    CHECK(a.claimed(renew_outcome::kind::kept).what == kind::granted);
    CHECK(a.step().at == validity_end(sent, 30s));
    CHECK(a.step().ttl == 30s);
    CHECK(a.step().fence == 5);

    attempt whole(limits);
    CHECK(whole.answer(granted(30s)).what == kind::granted);
}

TEST_CASE("a claim that is answered when its lease is over is given back, and another token is taken") {
    auto limits = defaults;
    limits.claims_lease = true;
    const auto valid = validity_end(start, 30s) - start;
    for (const clock::duration took : {valid, clock::duration(31s)}) {
        attempt a = in_queue(limits);
        a.told(message(), 10ms);
        a.claimed(renew_outcome::kind::kept, took);
        CHECK(a.step().what == kind::pause);
        CHECK(a.step().leave_first);
        CHECK(a.step().fresh_token);
    }
    attempt in_time = in_queue(limits);
    in_time.told(message(), 10ms);
    CHECK(in_time.claimed(renew_outcome::kind::kept, valid - 1ns).what == kind::granted);
}

// A server that refused claims was sent 39,560 of them within one offer.
TEST_CASE("a claim that is not answered is repeated after a pause while the offer lasts, then given back") {
    auto limits = defaults;
    limits.claims_lease = true;
    attempt a(limits);
    a.answer(granted());
    a.claimed(renew_outcome::kind::later, 1s);
    CHECK(a.step().what == kind::pause);
    CHECK_NOTHING_FIRST(a.step());
    CHECK(a.sleep().what == kind::send_claim);
    CHECK_NOTHING_FIRST(a.step());
    a.claimed(renew_outcome::kind::later, 990ms);
    CHECK(a.step().what == kind::pause);
    CHECK(a.step().leave_first);
    CHECK(a.step().fresh_token);
    attempt gone(limits);
    gone.answer(granted());
    gone.claimed(renew_outcome::kind::gone);
    CHECK(gone.step().what == kind::pause);
    CHECK(gone.step().fresh_token);
}

TEST_CASE("a new subscription is no reason to look for a waiter that claims what it was granted") {
    auto limits = defaults;
    limits.claims_lease = true;
    for (const bool by_message : {false, true}) {
        attempt a = in_queue(limits);
        if (by_message) {
            a.told(message(), 10ms);
        } else {
            a.sleep();
            a.answer(granted());
        }
        a.claimed(renew_outcome::kind::later, 10ms);
        REQUIRE(a.step().what == kind::pause);
        const auto until = a.step().at;
        CHECK(a.subscribed().what == kind::pause);
        CHECK(a.step().at == until);
    }
}

TEST_CASE("a waiter that gave back what it could not claim has no ticket to leave") {
    auto limits = defaults;
    limits.claims_lease = true;
    attempt a = in_queue(limits);
    a.told(message(), 10ms);
    a.claimed(renew_outcome::kind::later, 10ms);
    a.told(message(9), 1900ms);  // too late for a claim
    REQUIRE(a.enters(enter_mode::join));
    a.answer(queued({.ticket = 9}));
    a.sleep();
    if (a.step().what == kind::send_claim) a.claimed(renew_outcome::kind::gone);
    REQUIRE(a.step().leave_first);
    a.stop();
    CHECK_FAILED(a.step(), errc::cancelled, false, false);
}

// The simulator found a try_lock_for() that was half a second late.
TEST_CASE(
    "a claim that is not answered by the deadline is not repeated, and what was granted is given back") {
    auto limits = with(start + 300ms);
    limits.claims_lease = true;
    attempt a(limits);
    a.answer(granted());
    a.claimed(renew_outcome::kind::later, 500ms);
    CHECK_FAILED(a.step(), errc::no_reply, true, false);
}

// ---- looks ------------------------------------------------------------------------------------------------

TEST_CASE("the first waiter looks when the TTL is over, and at the latest after the recheck") {
    attempt soon(defaults);
    soon.answer(queued({.ticket = 7}, 300ms));
    CHECK(soon.pause() == 301ms);
    CHECK(soon.sleep().what == kind::send_enter);
    CHECK(soon.enters(enter_mode::join));
    const attempt late = in_queue();
    CHECK(late.pause() <= 1s);
    CHECK(late.pause() >= 500ms);
    for (const milliseconds ttl : {-1ms, -2ms, milliseconds::max()}) {
        attempt a;
        a.answer(queued({.ticket = 7}, ttl));
        CHECK(a.pause() <= 1s);
        CHECK(a.pause() >= 500ms);
    }
}

TEST_CASE("waiters farther back look less often: a thousand of them less than a hundred times a second") {
    double looks_per_second = 0;
    for (std::uint32_t position = 0; position < 1'000; ++position) {
        attempt a;
        a.answer(queued({.ticket = 7, .position = position}));
        looks_per_second += 1.0 / std::chrono::duration<double>(a.pause()).count();
        CHECK(a.pause() <= 30s);
    }
    CHECK(looks_per_second < 90);
    attempt far;
    far.answer(queued({.ticket = 7, .position = 0xFFFFFFFF}));
    CHECK(far.pause() <= 30s);
    CHECK(far.pause() > 20s);
}

TEST_CASE("the next waiters look a little later when the TTL is over, should the first one be gone") {
    for (std::uint32_t position = 0; position < 4; ++position) {
        attempt a;
        a.answer(queued({.ticket = 7, .position = position}, 100ms));
        CHECK(a.pause() == 101ms + 20ms * position);
    }
    attempt fifth;
    fifth.answer(queued({.ticket = 7, .position = 4}, 100ms));
    CHECK(fifth.pause() > 500ms);
}

// Where an owner and two hundred waiters behind it died together, the next one waited for 20 s after the
// lease had ended, with nobody before it.
TEST_CASE("a waiter far back looks within seconds when the TTL is over, should all in front of it be gone") {
    const auto pause_at = [](std::uint32_t position, milliseconds ttl) {
        attempt a;
        a.answer(queued({.ticket = 7, .position = position}, ttl));
        return a.pause();
    };
    CHECK(pause_at(200, 5s) == 5001ms + 8s);
    CHECK(pause_at(100, 5s) == 5001ms + 4s);
    CHECK(pause_at(100, 1s) == 2s + 4s);  // in front somebody may have an offer
    auto brief = defaults;
    brief.lease = 500ms;
    attempt of_brief(brief);
    of_brief.answer(queued({.ticket = 7, .position = 10}, 100ms));
    CHECK(of_brief.pause() == 500ms + 400ms);  // none is longer than the lease
    CHECK(pause_at(5, 5s) <= 1s + 5 * 125ms);
    double looks_per_second = 0;
    for (std::uint32_t position = 0; position < 1'000; ++position)
        looks_per_second += 1.0 / std::chrono::duration<double>(pause_at(position, 2s)).count();
    CHECK(looks_per_second < 100);
}

// Alone behind a stopped process with sixty waiters it took four seconds for each: it re-checked as if there
// were others to do it.
TEST_CASE("a waiter who is alone behind dead ones re-checks when the offer to each has ended") {
    constexpr std::uint32_t dead = 200;
    attempt a;
    a.answer(queued({.ticket = 7, .position = dead}, offer));
    auto begin = a.now();
    for (std::uint32_t left = dead; left > 4; --left) {
        clock::time_point ends = a.now() + offer;
        for (a.sleep(); a.now() < ends; a.sleep()) {  // the offer has not ended
            const auto rest = std::chrono::ceil<milliseconds>(ends - a.now());
            a.answer(queued({.ticket = 7, .position = left}, rest));
        }
        if (left == dead) begin = a.now();  // nobody knows before
        a.answer(queued({.ticket = 7, .position = left - 1}, offer));
    }
    CHECK(a.now() - begin <= (offer + 200ms) * dead);
}

TEST_CASE("a waiter looks as seldom as before where its queue moves on, or stands since an owner works") {
    const auto looks_again_after = [](std::uint32_t passed, milliseconds ttl, std::uint32_t position = 100,
                                      std::uint64_t ticket = 7) {
        attempt a;
        a.answer(queued({.ticket = 7, .position = position}, offer));
        a.sleep();
        a.answer(queued({.ticket = ticket, .position = position - passed}, ttl));
        return a.pause();
    };
    CHECK(looks_again_after(0, offer) <= offer + 100ms);
    CHECK(looks_again_after(0, 1500ms) <= 1500ms + 100ms);
    CHECK(looks_again_after(0, 10ms) >= 1s);
    CHECK(looks_again_after(0, 10ms, 31) >= 125ms);  // near the front a dead one costs little more
    CHECK(looks_again_after(0, 10ms, 31) <= 145ms);
    CHECK(looks_again_after(0, 10ms, 32) >= 1s);
    CHECK(looks_again_after(0, 1500ms, 31) <= 1500ms + 100ms);
    CHECK(looks_again_after(2, offer) <= offer + 100ms);
    CHECK(looks_again_after(7, offer) > 4s);          // others see to the dead
    CHECK(looks_again_after(1, offer + 1ms) > 4s);    // renewed: somebody works
    CHECK(looks_again_after(0, -1ms) > 4s);           // a key without a TTL ends with nothing
    CHECK(looks_again_after(1, offer, 100, 8) > 4s);  // queued anew
    CHECK(looks_again_after(0, offer, 255) <= offer + 100ms);
    CHECK(looks_again_after(0, offer, 256) > 4s);  // too many to poll so often
    CHECK(looks_again_after(1, offer, 300) > 4s);
}

TEST_CASE("without messages the waiter looks often") {
    attempt a(defaults, true, false);
    a.answer(queued());
    CHECK(a.pause() <= 50ms);
    CHECK(a.subscribed().what == kind::send_enter);
    CHECK(a.enters(enter_mode::join));
    a.answer(queued({.ticket = 7}));
    CHECK(a.pause() > 500ms);
    auto limits = defaults;
    limits.recheck = 5ms;
    attempt hurried(limits, true, false);
    hurried.answer(queued());
    CHECK(hurried.pause() <= 5ms);
}

// It slept for its second, though messages had ceased: until the socket was there again, and a released lock
// was nobody's as long.
TEST_CASE("a waiter that hears nothing any more looks as one that never did, until messages arrive again") {
    attempt a = in_queue();
    CHECK(a.pause() > 500ms);
    CHECK(a.step().unheard_for >= 25ms);
    CHECK(a.step().unheard_for <= 50ms);
    a.hear_nothing();
    CHECK(a.enters(enter_mode::join));
    a.answer(queued({.ticket = 7}));
    CHECK(a.pause() <= 50ms);
    CHECK(a.subscribed().what == kind::send_enter);
    a.answer(queued({.ticket = 7}));
    CHECK(a.pause() > 500ms);
}

TEST_CASE("a ticket that is gone while the waiter hears nothing is no reason to subscribe anew") {
    attempt a = in_queue();
    a.hear_nothing();
    a.answer(queued({.ticket = 8, .appended = true}));
    CHECK_FALSE(a.step().reconnect_first);
}

TEST_CASE("farther back a waiter that hears nothing any more looks later, too") {
    attempt a;
    a.answer(queued({.ticket = 7, .position = 80}));
    CHECK(a.step().unheard_for >= 275ms);
    CHECK(a.step().unheard_for <= 550ms);
}

// Each hand-over took the 25 to 50 ms until the next look.
TEST_CASE("a waiter who may not subscribe looks the more often, the nearer it is to the front") {
    const auto pause_at = [](std::uint32_t position) {
        acquire machine(defaults, 1);
        machine.begin(start, true);
        machine.expect_no_messages();
        return machine.on_outcome(queued({.ticket = 7, .position = position}), start, start).at - start;
    };
    CHECK(pause_at(0) <= 10ms);
    CHECK(pause_at(1) <= 23ms);
    CHECK(pause_at(2) > 15ms);
    CHECK(pause_at(4) > 35ms);
    CHECK(pause_at(4) <= 75ms);
    CHECK(pause_at(1000) <= 1s);
}

// A standby of a leader asked a hundred times a second, for days.
TEST_CASE("a waiter who may not subscribe looks the less often at the front, the longer the owner takes") {
    acquire machine(defaults, 1);
    machine.begin(start, true);
    machine.expect_no_messages();
    const auto pause_at = [&](clock::duration passed, std::uint32_t position = 0) {
        const auto now = start + passed;
        return machine.on_outcome(queued({.ticket = 7, .position = position}), now, now).at - now;
    };
    CHECK(pause_at(0ms, 1) <= 23ms);
    CHECK(pause_at(1h, 0) <= 10ms);  // the one before it has just left
    CHECK(pause_at(1h + 320ms) <= 10ms);
    CHECK(pause_at(1h + 1s) >= 15ms);
    CHECK(pause_at(1h + 1s) <= 32ms);
    CHECK(pause_at(2h) >= 25ms);
    CHECK(pause_at(2h) <= 50ms);
    machine.expect_no_messages();
    CHECK(pause_at(2h + 1ms) <= 10ms);  // a ticket of its own
}

TEST_CASE("after a new subscription the waiter looks at once: messages may have been lost") {
    attempt a = in_queue();
    a.subscribed();
    CHECK(a.enters(enter_mode::join));
    CHECK_NOTHING_FIRST(a.step());
    CHECK(a.answer(granted()).what == kind::granted);
    attempt polls(defaults);
    polls.answer(later());
    REQUIRE(polls.step().what == kind::pause);
    const auto until = polls.step().at;
    CHECK(polls.subscribed().what == kind::pause);
    CHECK(polls.step().at == until);
}

TEST_CASE(
    "a ticket that was gone without a word means that messages do not arrive, unless the subscription is "
    "new") {
    attempt deaf = in_queue();
    deaf.sleep();
    deaf.answer(queued({.ticket = 8, .appended = true}));
    CHECK(deaf.step().what == kind::pause);
    CHECK(deaf.step().reconnect_first);
    CHECK_FALSE(deaf.step().leave_first);

    attempt still_there = in_queue();
    still_there.sleep();
    CHECK_FALSE(still_there.answer(queued({.ticket = 7})).reconnect_first);

    attempt anew = in_queue();
    anew.subscribed();
    CHECK_FALSE(anew.answer(queued({.ticket = 8, .appended = true})).reconnect_first);

    attempt never(defaults, true, false);
    never.answer(queued());
    never.sleep();
    CHECK_FALSE(never.answer(queued({.ticket = 8, .appended = true})).reconnect_first);
}

// Far back it looked every thirty seconds, and was offered the lock for two, again and again.
TEST_CASE(
    "a waiter that was not told once looks often enough to be offered the lock, however far back it stands") {
    for (const milliseconds lease : {30'000ms, 400ms}) {
        auto limits = defaults;
        limits.lease = lease;
        attempt a(limits);
        a.answer(queued({.ticket = 7, .position = 900, .appended = true}));
        CHECK(a.pause() > 20s);
        a.sleep();
        a.answer(queued({.ticket = 8, .position = 900, .appended = true}));
        CHECK(a.pause() <= std::min(lease, offer) / 2);
        a.sleep();
        a.answer(queued({.ticket = 8, .position = 899}));
        CHECK(a.pause() <= std::min(lease, offer) / 2);
    }
}

// ---- leaving ----------------------------------------------------------------------------------------------

TEST_CASE("at the deadline the queue is left by one command that takes the lock if it can") {
    attempt a = in_queue(with(start + 500ms));
    a.sleep();
    CHECK(a.now() == start + 500ms);
    CHECK(a.enters(enter_mode::last));
    CHECK(a.step().at == a.now() + 50ms);
    attempt b = a;
    CHECK(a.answer(acquire_outcome::busy(20'000)).what == kind::gave_up);
    CHECK_NOTHING_FIRST(a.step());
    const auto sent = b.now();
    CHECK(b.answer(granted()).what == kind::granted);
    CHECK(b.step().at == validity_end(sent, offer));
    CHECK_NOTHING_FIRST(b.step());
}

TEST_CASE("a last look that is not answered is no contention, and the ticket is given back") {
    for (const auto& trouble : {lost(), later(errc::unreachable), refused(errc::permission_denied)}) {
        attempt a = in_queue(with(start + 500ms));
        a.sleep();
        a.answer(trouble, 50ms);
        CHECK_FAILED(a.step(), trouble.cause, true, trouble.what == acquire_outcome::kind::unknown);
    }
}

TEST_CASE("a stop gives the ticket back exactly when there may be one") {
    attempt waiting = in_queue();
    waiting.stop();
    CHECK_FAILED(waiting.step(), errc::cancelled, true, false);

    attempt leaving = in_queue(with(start + 500ms));
    leaving.sleep();
    leaving.stop();
    CHECK_FAILED(leaving.step(), errc::cancelled, true, false);

    attempt before_the_first;
    before_the_first.stop();  // nothing was sent yet
    CHECK_FAILED(before_the_first.step(), errc::cancelled, false, false);

    attempt before_the_queue(defaults, false);
    before_the_queue.answer(taken);
    before_the_queue.stop();  // instead of joining
    CHECK_FAILED(before_the_queue.step(), errc::cancelled, false, false);

    attempt unanswered;
    unanswered.answer(lost());
    unanswered.stop();
    CHECK_FAILED(unanswered.step(), errc::cancelled, true, true);

    attempt in_flight;
    in_flight.answer(lost(errc::cancelled));
    CHECK_FAILED(in_flight.step(), errc::cancelled, true, true);
}

// It stayed on the server for the time of an offer.
TEST_CASE("a stop while the whole lease is claimed gives the lock back") {
    auto limits = defaults;
    limits.claims_lease = true;
    attempt a(limits);
    a.answer(granted());
    REQUIRE(a.step().what == kind::send_claim);
    a.stop();
    CHECK_FAILED(a.step(), errc::cancelled, true, false);
}

// ---- trouble ----------------------------------------------------------------------------------------------

TEST_CASE(
    "a joining whose answer is lost is repeated with the same token, and given back when it stays lost") {
    attempt a;
    a.answer(lost(), 200ms);
    CHECK(a.enters(enter_mode::join));
    CHECK_NOTHING_FIRST(a.step());
    attempt answered = a;
    CHECK(answered.answer(queued()).what == kind::pause);
    while (a.step().what != kind::failed) {
        if (a.step().what == kind::pause) {
            a.sleep();
        } else {
            a.answer(lost(), 100ms);
        }
        REQUIRE(a.now() < start + 5s);
    }
    CHECK_FAILED(a.step(), errc::no_reply, true, true);
}

TEST_CASE("a look that is refused is told to the waiter at once, and its ticket is given back") {
    // It went unheard once: the waiter waited on, for a lock it could never have.
    for (const auto cause : {errc::wrong_type, errc::permission_denied, errc::authentication_failed}) {
        attempt a = in_queue();
        a.sleep();
        a.answer(refused(cause));
        CHECK_FAILED(a.step(), cause, true, false);
    }
}

TEST_CASE("a waiter without a ticket tries the plain command, which needs one key, while the server fails") {
    attempt a;
    a.answer(later());
    REQUIRE(a.step().what == kind::pause);
    CHECK(a.sleep().what == kind::send_acquire);
    attempt b = a;
    CHECK(a.answer(acquire_outcome::granted()).what == kind::granted);
    CHECK(a.step().ttl == 30s);
    b.answer(taken);
    CHECK(b.enters(enter_mode::join));
}

// With a recheck of a second the last pause overslept the patience by a quarter of it.
TEST_CASE("pauses in trouble stay short, however seldom the waiter looks") {
    auto limits = defaults;
    limits.patience = 1h;
    attempt a(limits, false);
    for (int i = 0; i < 30; ++i) {
        a.answer(later(errc::unreachable));
        CHECK(a.pause() <= 50ms);
        a.sleep();
    }
}

TEST_CASE("trouble in the queue is ridden out for the patience, with the ticket") {
    attempt a = in_queue();
    a.sleep();
    const auto trouble_since = a.now();
    while (a.step().what != kind::failed) {
        if (a.step().what == kind::pause) {
            a.sleep();
        } else {
            REQUIRE(a.enters(enter_mode::join));
            a.answer(later(errc::unreachable), 10ms);
        }
        REQUIRE(a.now() < trouble_since + 3s);
    }
    CHECK(a.now() >= trouble_since + 2s);
    CHECK_FAILED(a.step(), errc::unreachable, true, false);
}

TEST_CASE("a grant whose validity is over is given back, and asked for anew by another token") {
    attempt a;
    a.answer(granted(), 2s);
    CHECK(a.step().what == kind::pause);
    CHECK(a.step().leave_first);
    CHECK(a.step().fresh_token);
    CHECK_FALSE(a.step().in_doubt);
    a.sleep();
    CHECK(a.step().what == kind::send_acquire);
    const auto sent = a.now();
    a.answer(taken);
    a.answer(queued({.ticket = 9, .appended = true}));
    CHECK_FALSE(a.step().reconnect_first);
    CHECK(a.told(message(7), 100ms).since == sent);
}

TEST_CASE("a fresh token's new ticket is no sign that messages do not arrive") {
    attempt a = in_queue();
    a.sleep();
    a.answer(granted(), 2s);
    REQUIRE(a.step().fresh_token);
    a.sleep();
    a.answer(taken);
    a.answer(queued({.ticket = 9, .appended = true}));
    CHECK(a.step().what == kind::pause);
    CHECK_FALSE(a.step().reconnect_first);
}

}  // namespace acquire_in_queue_tests
