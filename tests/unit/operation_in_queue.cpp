// An attempt to take a lock as a resumable object, where it may wait in the queue: when it subscribes, what
// messages do, and what a stop leaves in the queue.
#include <chrono>
#include <string>

#include <distlock/wire/handoff.hpp>

#include "support/catch.hpp"
#include "support/handoff_answers.hpp"
#include "support/handoff_names.hpp"
#include "support/stepped_operation.hpp"

namespace operation_in_queue_tests {

namespace {

using namespace attempt_test;
using handoff_answers::queued;
using kind = action::kind;
using ended = grant::kind;

const distlock::handoff dialect("orders", {.lease = 30s}, "distlock:here");
using stepped = stepped_operation<distlock::handoff>;

const reply granted = handoff_answers::granted();
const reply busy = handoff_answers::taken();
const reply lost = reply::no_answer(errc::no_reply, "the answer was lost");

const acquire_limits limits{
    .lease = 30s, .recheck = 1s, .patience = 2s, .deadline = start + 10s, .waits = waiting_manner::queues};

std::string name_of_next(const stepped& s) { return handoff_name_of(s.sends()); }
std::string token_of_next(const stepped& s) {
    return s.sends().at(0) == "SET" ? s.sends().at(2) : s.sends().at(7);
}
std::string handed_over(const stepped& s, int ticket = 7) {
    return s.token_now() + ' ' + std::to_string(ticket) + " 2000 0 orders";
}

struct waiter : stepped {
    explicit waiter(const acquire_limits& within = limits) : stepped(dialect, within, true) {
        begin();
        subscribed();
        REQUIRE(name_of_next(*this) == "join");
        answer(queued());
        REQUIRE(next.what == kind::wait);
    }
};

}  // namespace

// ---- messages --------------------------------------------------------------------------------------------

TEST_CASE("before it joins a waiter subscribes, for 200 ms and half of its time at most") {
    for (const auto time : {10s, 1s}) {
        auto within = limits;
        within.deadline = start + time;
        stepped s(dialect, within, true);
        s.begin();
        CHECK(s.next.what == kind::subscribe);
        CHECK(s.next.until == start + 200ms);
        s.wake();  // without messages it joins all the same
        CHECK(name_of_next(s) == "join");
        CHECK(s.next.command->deadline() == start + time);
    }
    auto within = limits;
    within.deadline = start + 100ms;
    stepped s(dialect, within, true);
    CHECK(s.begin().until == start + 50ms);
}

TEST_CASE("a waiter is kept by a socket no longer than half an offer, nor beyond its deadline") {
    const auto kept = [](std::chrono::milliseconds lease, std::chrono::milliseconds until) {
        auto within = limits;
        within.lease = lease;
        within.deadline = start + until;
        const waiter w(within);
        return w.next.patience - w.now;
    };
    CHECK(kept(30s, 10s) == 1s);
    CHECK(kept(100ms, 10s) == 50ms);
    CHECK(kept(30s, 300ms) < 300ms);
}

TEST_CASE("a waiter subscribes once, and again each time it joins without messages") {
    waiter hears;
    hears.wake();
    CHECK(name_of_next(hears) == "join");

    stepped deaf(dialect, limits, true);
    deaf.begin();
    deaf.wake();
    deaf.answer(queued());
    deaf.wake();
    CHECK(deaf.next.what == kind::subscribe);
    deaf.subscribed();
    deaf.answer(queued(7, false));
    deaf.wake();
    CHECK(name_of_next(deaf) == "join");
}

// Its ticket was dropped at each release, since nobody listened on its channel: it might wait for ever.
TEST_CASE("a waiter whose subscription is refused takes a ticket without a channel, and looks often") {
    stepped s(dialect, limits, true);
    s.begin();
    s.refused();
    REQUIRE(name_of_next(s) == "join");
    CHECK(s.sends().at(8) == " 30000 0 p0 ");
    const auto token = s.token_now();
    s.answer(handoff_answers::taken(20'000, 7, 40, 1));
    CHECK(s.next.what == kind::wait);
    CHECK(s.next.until - s.now <= 300ms);
    CHECK(s.next.unheard_for <= 300ms);
    SECTION("under the same token, without asking again") {
        s.wake();
        REQUIRE(name_of_next(s) == "join");
        CHECK(s.sends().at(8) == " 30000 0 p0 ");
        CHECK(s.token_now() == token);
        s.answer(granted);
        CHECK(s.result().what == ended::granted);
        const auto release = dialect.release(s.result().token);
        CHECK(release.argv()[8] == " 30000 0 p0 ");
    }
    SECTION("also where the subscription comes into force while it waits") {
        const auto until = s.next.until;
        s.subscribed();
        CHECK(s.next.what == kind::wait);
        CHECK(s.next.until == until);
    }
    SECTION("and leaves by it") {
        s.stop();
        REQUIRE(s.next.leave);
        CHECK(dialect.release(s.next.leave->token).argv()[8] == " 30000 0 p0 ");
    }
}

TEST_CASE("a waiter in the queue whose subscription is refused from now on takes another ticket") {
    waiter w;
    const auto token = w.token_now();
    w.hear_nothing();
    w.refused();
    CHECK(leaves(w.next, token, false));
    REQUIRE(name_of_next(w) == "join");
    CHECK(w.sends().at(8) == " 30000 0 p0 ");
    CHECK(w.token_now() != token);
    CHECK(w.token_now() == w.sends().at(7));
}

// One answer that was lost was enough to let it starve.
TEST_CASE("a waiter in doubt whose subscription is refused takes another ticket, too") {
    stepped s(dialect, limits, true);
    s.begin();
    s.wake();
    const auto token = s.token_now();
    s.answer(lost);
    s.refused();
    CHECK(leaves(s.next, token, true));
    CHECK(s.sends().at(7) != token);
    CHECK(s.sends().at(7) == s.token_now());
    CHECK(s.sends().at(8) == " 30000 0 p0 ");
}

TEST_CASE("a waiter in the queue that hears nothing any more looks without waiting for a subscription") {
    waiter w;
    CHECK(w.next.unheard_for <= 50ms);
    w.hear_nothing();
    REQUIRE(w.next.what == kind::subscribe);
    CHECK(w.next.until == w.now);
    w.wake();
    CHECK(name_of_next(w) == "join");
    w.answer(queued(7, false));
    CHECK(w.next.until - w.now <= 50ms);
    w.subscribed();
    w.answer(queued(7, false));
    CHECK(w.next.until - w.now >= 500ms);
}

// The listener of an earlier token brought the news; the waiter never listened for its own, and a hand-over
// to it was answered with a release while it waited.
TEST_CASE("a subscription that comes into force before a waiter listens for its token is none of its own") {
    stepped s(dialect, limits);
    s.begin();
    REQUIRE(s.answer(reply::error("BUSY Redis is busy running a script")).what == kind::wait);
    const auto until = s.next.until;
    CHECK(s.subscribed().what == kind::wait);
    CHECK(s.next.until == until);
    s.wake();
    CHECK(s.sends().at(0) == "SET");
    s.answer(reply::nil());
    CHECK(s.next.what == kind::subscribe);
}

TEST_CASE("a waiter that is in trouble with the server does not wait for its subscription") {
    stepped s(dialect, limits, true);
    s.begin();
    s.wake();
    s.answer(reply::error("LOADING x"));
    s.wake();  // to SET, which needs one key only
    CHECK(name_of_next(s) == "SET");
    s.answer(lost);
    REQUIRE(s.next.what == kind::subscribe);
    CHECK(s.next.until == s.now);
}

TEST_CASE("a message for the token is the grant, without a command") {
    waiter w;
    w.tell(handed_over(w), 600ms);
    CHECK(w.next.what == kind::done);
    CHECK(nothing_first(w.next));
    CHECK(w.next.heard == errc{});
    CHECK(w.result().what == ended::granted);
    CHECK(w.result().sent == start);
    CHECK(w.result().came == start + 601ms);
    CHECK(w.result().ttl == 2s);
    CHECK(w.result().contended);
}

// An operator copied the queue of a lock to another one's: who was handed that one had this one, too.
TEST_CASE("a message that makes no sense, or is for another token or lock, makes a waiter look") {
    for (const std::string& text : {std::string("what is this?"), std::string(32, 'a') + " 7 2000 0 orders",
                                    std::string("ours 7 2000 0 other"), std::string("ours 7 2000 0 order")}) {
        waiter w;
        w.tell(text.starts_with("ours") ? w.token_now() + text.substr(4) : text);
        CHECK(name_of_next(w) == "join");
        CHECK(token_of_next(w) == w.token_now());
        CHECK_FALSE(w.next.heard);
    }
}

// It took itself for deaf, subscribed anew and polled.
TEST_CASE("a message that was too long to be kept makes a waiter look, and was heard all the same") {
    waiter w;
    w.tell("");
    CHECK(name_of_next(w) == "join");
    w.answer(queued(8, true));
    CHECK(w.next.what == kind::wait);
    CHECK_FALSE(w.next.reconnect);
}

TEST_CASE("a subscription that comes into force makes a waiter look, and is not asked for again") {
    stepped s(dialect, limits, true);
    s.begin();
    s.wake();
    s.answer(queued());
    s.subscribed();
    CHECK(name_of_next(s) == "join");
}

TEST_CASE("a ticket that was gone without a message makes the process subscribe anew, while it waits on") {
    waiter w;
    w.wake();
    w.answer(queued(8, true));
    CHECK(w.next.what == kind::wait);
    CHECK(w.next.reconnect);
    CHECK_FALSE(w.next.leave);
}

TEST_CASE("messages for a fresh token are subscribed to anew") {
    auto patient = limits;
    patient.deadline = distlock::clock::time_point::max();
    patient.patience = 1h;
    stepped s(dialect, patient, true);
    s.begin();
    s.subscribed();
    const auto first = s.token_now();
    s.answer(granted, 5s);  // too late
    CHECK(leaves(s.next, first, false));
    CHECK(s.next.what == kind::wait);
    s.wake();
    CHECK(token_of_next(s) != first);
    CHECK(token_of_next(s).size() == 32);
    s.answer(reply::nil());
    CHECK(s.next.what == kind::subscribe);
    s.subscribed();
    CHECK(name_of_next(s) == "join");
    CHECK(token_of_next(s) == s.token_now());
}

// ---- stops -----------------------------------------------------------------------------------------------

TEST_CASE("a stop before the ticket is asked for leaves nothing") {
    stepped subscribing(dialect, limits, true);
    subscribing.begin();
    CHECK(nothing_first(subscribing.stop()));
    CHECK(subscribing.next.what == kind::done);

    stepped entering(dialect, limits, true);
    entering.begin();
    entering.subscribed();
    REQUIRE(name_of_next(entering) == "join");
    CHECK(nothing_first(entering.stop()));
    CHECK(entering.result().cause == errc::cancelled);
}

TEST_CASE("a stop in the queue leaves the ticket, not in doubt") {
    waiter w;
    CHECK(leaves(w.stop(), w.token_now(), false));
    CHECK(w.next.what == kind::done);
    CHECK(w.result().cause == errc::cancelled);

    waiter looks;
    looks.wake();
    REQUIRE(name_of_next(looks) == "join");
    CHECK(leaves(looks.stop(), looks.token_now(), false));

    waiter looks_last;
    looks_last.now = limits.deadline;
    looks_last.wake();
    REQUIRE(name_of_next(looks_last) == "last");
    CHECK(leaves(looks_last.stop(), looks_last.token_now(), false));
}

TEST_CASE("a stop after an entering that was not answered leaves a ticket in doubt") {
    stepped s(dialect, limits, true);
    s.begin();
    s.subscribed();
    s.answer(lost);
    REQUIRE(name_of_next(s) == "join");
    CHECK(leaves(s.stop(), s.token_now(), true));
}

TEST_CASE("a stop before a message is confirmed leaves what was handed over") {
    waiter w;
    w.tell(handed_over(w), 1500ms);
    REQUIRE(name_of_next(w) == "join");
    CHECK(leaves(w.stop(), w.token_now(), false));
}

// It was left to its TTL, and nobody was served before.
TEST_CASE("a stop before the whole lease is claimed leaves what was granted") {
    auto unrenewed = limits;
    unrenewed.claims_lease = true;
    waiter told(unrenewed);
    told.tell(handed_over(told));
    CHECK(told.sends() == words{"EVALSHA", told.sends().at(1), "1", "orders", told.token_now(), "30000"});
    CHECK(leaves(told.stop(), told.token_now(), false));
    CHECK(told.result().what == ended::failed);

    waiter answered(unrenewed);
    answered.wake();
    answered.answer(granted);
    REQUIRE(answered.next.what == kind::send);
    CHECK(leaves(answered.stop(), answered.token_now(), false));
}

TEST_CASE("a claim that is answered is the grant; one that is not is sent again by the same token") {
    auto unrenewed = limits;
    unrenewed.claims_lease = true;
    waiter w(unrenewed);
    w.tell(handed_over(w));
    w.answer(lost);
    CHECK_FALSE(w.next.heard);
    CHECK(w.next.what == kind::wait);  // for a while, by the same means as in the queue
    w.wake();
    CHECK(w.sends().at(4) == w.token_now());
    const auto sent = w.now;
    w.answer(reply::integer(1));
    CHECK(w.next.what == kind::done);
    CHECK(nothing_first(w.next));
    CHECK(w.result().what == ended::granted);
    CHECK(w.result().ttl == 30s);
    CHECK(w.result().sent == sent);
}

TEST_CASE("the server's answer to a claim is in the error, with its cause") {
    auto unrenewed = limits;
    unrenewed.claims_lease = true;
    unrenewed.patience = 0s;
    waiter w(unrenewed);
    w.tell(handed_over(w));
    const auto token = w.token_now();
    w.answer(reply::error("NOREPLICAS Not enough good replicas to write."));
    CHECK(w.next.what == kind::done);
    CHECK(leaves(w.next, token, false));
    CHECK(w.result().what == ended::failed);
    CHECK(w.result().cause == errc::writes_refused);
    CHECK_THAT(w.result().detail, contains_text("NOREPLICAS"));
}

}  // namespace operation_in_queue_tests
