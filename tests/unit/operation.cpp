// An attempt to take a lock as a resumable object: what it asks for, by which tokens, and what
// a stop leaves of it.
#include <chrono>
#include <string>
#include <type_traits>
#include <vector>

#include <distlock/wire/shared_handoff.hpp>

#include "support/catch.hpp"
#include "support/stepped_operation.hpp"

namespace operation_tests {

namespace {

using namespace attempt_test;
using kind = action::kind;
using ended = grant::kind;

const distlock::plain dialect("orders", {.lease = 30s});
using stepped = stepped_operation<distlock::plain>;
const distlock::shared_handoff readers("orders", {.lease = 30s});
using reading = stepped_operation<distlock::shared_handoff>;

const reply ok = reply::status("OK");
const reply taken = reply::nil();
const reply busy = reply::integer(20'000);
const reply lost = reply::no_answer(errc::no_reply, "the answer was lost");
const reply gone = reply::not_sent(errc::unreachable, "nobody listens");

const acquire_limits limits{.lease = 30s, .recheck = 50ms, .patience = 2s, .deadline = start + 10s};
const acquire_limits one_try{.lease = 30s, .recheck = 50ms, .patience = 2s, .once = true};

std::string name_of_next(const stepped& s) { return plain_name_of(s.sends()); }
std::string token_of_next(const stepped& s) { return plain_token_of(s.sends()); }

}  // namespace

TEST_CASE("an operation cannot be moved: its commands are views of its token") {
    CHECK_FALSE(std::is_move_constructible_v<operation>);
    CHECK_FALSE(std::is_move_assignable_v<operation>);
}

TEST_CASE("a free lock is one command by the token that is granted, then done") {
    stepped s(dialect, limits);
    s.begin();
    CHECK(s.sends() == words{"SET", "orders", s.token_now(), "NX", "PX", "30000"});
    CHECK(s.next.command->deadline() == start + 10s);
    CHECK(nothing_first(s.next));
    CHECK_FALSE(s.next.heard);
    s.answer(ok, 3ms);
    CHECK(s.next.what == kind::done);
    CHECK(nothing_first(s.next));
    CHECK(s.next.heard == errc{});
    CHECK(s.result().what == ended::granted);
    CHECK(s.result().sent == start);
    CHECK(s.result().came == start + 3ms);
    CHECK(s.result().until == validity_end(start, 30s));
    CHECK(s.result().ttl == 30s);
    CHECK_FALSE(s.result().contended);
    CHECK_FALSE(s.result().in_doubt);
}

TEST_CASE("a reader that knows of no waiter takes a free lock by one plain command") {
    reading s(readers, limits);
    s.op.assume_unqueued();
    s.begin();
    CHECK(s.sends() == words{"SET", "orders", "distlock:readers " + s.token_now(), "NX", "PX", "30000"});
    CHECK(s.next.command->routing_key() == "orders");
    s.answer(ok, 3ms);
    CHECK(s.next.what == kind::done);
    CHECK(s.result().what == ended::granted);
    CHECK(s.result().until == validity_end(start, 30s));
    CHECK_FALSE(s.result().contended);
    CHECK_FALSE(s.result().others_read);
}

TEST_CASE("a reader whose plain command found somebody in asks as any other, by the same token") {
    for (const bool alone : {true, false}) {
        reading s(readers, one_try);
        s.op.assume_unqueued();
        s.begin();
        const auto first = s.token_now();
        s.answer(reply::nil());
        REQUIRE(s.next.what == kind::send);
        CHECK(nothing_first(s.next));
        CHECK(s.sends().at(8) == first);
        CHECK(s.sends().at(10) == "try");
        auto granted = std::vector{reply::integer(1), reply::string(""), reply::integer(30'000)};
        if (!alone) granted.push_back(reply::integer(1));
        s.answer(reply::array(granted));
        CHECK(s.result().what == ended::granted);
        CHECK(s.result().token.view() == first);
        CHECK_FALSE(s.result().contended);
        CHECK_FALSE(s.result().in_doubt);
        CHECK(s.result().others_read == !alone);
    }
}

TEST_CASE("a plain command of a reader that is not answered is asked about by the script, and is in doubt") {
    reading s(readers, limits);
    s.op.assume_unqueued();
    s.begin();
    const auto first = s.token_now();
    s.answer(lost);
    CHECK(s.sends().at(8) == first);
    CHECK(s.sends().at(10) == "try");
    s.answer(reply::array({reply::integer(1), reply::string(""), reply::integer(30'000)}));
    CHECK(s.result().what == ended::granted);
    CHECK(s.result().in_doubt);
}

TEST_CASE("a reader that begins with the queue assumes nothing of it later") {
    acquire_limits queued = limits;
    queued.waits = waiting_manner::queues;
    stepped_operation<distlock::shared_handoff> s(readers, queued, true);
    s.op.assume_unqueued();
    s.begin();
    s.wake();  // without a subscription
    CHECK(s.sends().at(10) == "join");
    s.answer(gone);
    s.wake();
    REQUIRE(s.next.what == kind::send);
    CHECK(s.sends().at(0) == "EVALSHA");
}

TEST_CASE(
    "readers that are told a fence, and writers, have no cheaper command for a lock that nobody waits for") {
    const distlock::shared_handoff fenced("orders", {.lease = 30s, .fencing = true});
    reading reader(fenced, limits);
    reader.op.assume_unqueued();
    reader.begin();
    CHECK(reader.sends().at(0) == "EVALSHA");
    stepped writer(dialect, limits);
    writer.op.assume_unqueued();
    writer.begin();
    CHECK(writer.sends().at(1) == "orders");
    CHECK(writer.sends().at(2) == writer.token_now());
    writer.answer(reply::nil());
    CHECK(name_of_next(writer) == "look");
}

TEST_CASE("an operation goes on where it was, also when another one runs in between on the same thread") {
    stepped one(dialect, limits);
    stepped other(dialect, limits);
    one.begin();
    other.begin();
    CHECK(one.token_now() != other.token_now());
    one.answer(taken);
    other.answer(lost);
    CHECK(name_of_next(one) == "look");
    CHECK(token_of_next(one) == one.token_now());
    CHECK(name_of_next(other) == "look");
    CHECK(token_of_next(other) == other.token_now());
    one.answer(busy);
    other.answer(ok);
    CHECK(one.next.what == kind::pause);
    CHECK(one.next.until > one.now);
    CHECK(one.next.until <= start + 10s);
    CHECK(other.result().what == ended::granted);
    CHECK(other.result().in_doubt);
    one.wake();
    CHECK(name_of_next(one) == "look");
}

TEST_CASE("an attempt that is over sends nothing, and leaves nothing twice") {
    stepped s(dialect, one_try);
    s.begin();
    s.answer(lost);
    s.answer(lost);
    CHECK(s.next.what == kind::done);
    CHECK(leaves(s.next, s.token_now(), true));
    for (const auto& more : {event::stopped(), event::woke(s.now), event::answered(ok, s.now, s.now)}) {
        const action next = s.op.resume(more);
        CHECK(next.what == kind::done);
        CHECK(nothing_first(next));
    }
    CHECK(s.result().cause == errc::no_reply);
}

TEST_CASE("an earlier token that was not answered is not forgotten when a later one is left") {
    stepped s(dialect, {.lease = 30s, .recheck = 50ms, .patience = 1h});
    s.begin();
    const auto first = s.token_now();
    s.answer(lost);
    s.answer(ok, 30s);
    CHECK(leaves(s.next, first, true));
    s.wake();
    const auto second = s.token_now();
    s.answer(ok, 30s);
    CHECK(leaves(s.next, second, false));
    CHECK(s.result().in_doubt);
}

TEST_CASE("the token of a late grant is left at once, and its successor is sent after the pause") {
    stepped s(dialect, {.lease = 30s, .recheck = 50ms, .patience = 1h});
    s.begin();
    const auto first = s.token_now();
    s.answer(ok, 30s);
    CHECK(s.next.what == kind::pause);
    CHECK(leaves(s.next, first, false));
    s.wake();
    CHECK(nothing_first(s.next));
    CHECK(name_of_next(s) == "look");
    CHECK(token_of_next(s) == s.token_now());
    CHECK(token_of_next(s).size() == 32);
    CHECK(token_of_next(s) != first);
}

TEST_CASE("each answer says what it tells of the server") {
    stepped s(dialect, limits);
    s.begin();
    CHECK(s.answer(reply::error("LOADING x")).heard == errc::unavailable);
    CHECK_FALSE(s.wake().heard);
    CHECK(s.answer(busy).heard == errc{});
    s.wake();
    CHECK(s.answer(gone).heard == errc::unreachable);
    s.wake();
    CHECK(s.answer(lost).heard == errc::no_reply);
}

TEST_CASE("a key of another type costs one more question, asked for a short while") {
    stepped s(dialect, one_try);
    s.begin();
    s.answer(taken);
    s.answer(reply::error("WRONGTYPE x"));
    CHECK(s.sends() == words{"TYPE", "orders"});
    CHECK(s.next.command->deadline() == s.now + 1s);
    s.answer(reply::status("hash"));
    CHECK(s.next.what == kind::done);
    CHECK_FALSE(s.next.heard);
    CHECK(s.result().cause == errc::wrong_type);
    CHECK(s.result().detail ==
          "the key holds a hash where this lock needs a string: Redisson's locks are hashes, and "
          "mutex<Conn, redisson> takes them");
}

// ---- stops -----------------------------------------------------------------------------------------------

TEST_CASE("a stop before the start sends nothing and leaves nothing") {
    stepped s(dialect, limits);
    s.stop();
    CHECK(s.next.what == kind::done);
    CHECK(nothing_first(s.next));
    CHECK(s.result().what == ended::failed);
    CHECK(s.result().cause == errc::cancelled);
}

TEST_CASE("a stop instead of the first command leaves nothing") {
    stepped s(dialect, limits);
    s.begin();
    s.stop();
    CHECK(s.next.what == kind::done);
    CHECK(nothing_first(s.next));
    CHECK(s.result().cause == errc::cancelled);
}

TEST_CASE("a stop after the answer that somebody else has the lock leaves nothing") {
    stepped looks(dialect, limits);
    looks.begin();
    looks.answer(taken);
    CHECK(nothing_first(looks.stop()));
    CHECK(looks.result().contended);

    stepped pauses(dialect, limits);
    pauses.begin();
    pauses.answer(taken);
    pauses.answer(busy);
    REQUIRE(pauses.next.what == kind::pause);
    CHECK(nothing_first(pauses.stop()));
    CHECK(pauses.next.what == kind::done);
    CHECK(pauses.result().cause == errc::cancelled);
}

TEST_CASE("a stop after an answer that was lost leaves what may be ours, in doubt") {
    stepped s(dialect, limits);
    s.begin();
    s.answer(lost);
    REQUIRE(s.next.what == kind::send);
    CHECK(leaves(s.stop(), s.token_now(), true));
    CHECK(s.next.what == kind::done);
    CHECK(s.result().cause == errc::cancelled);
}

TEST_CASE("a stop in the pause after a late grant leaves its token once") {
    stepped s(dialect, {.lease = 30s, .recheck = 50ms, .patience = 1h});
    s.begin();
    s.answer(ok, 30s);
    REQUIRE(s.next.leave);
    CHECK(nothing_first(s.stop()));
    CHECK(s.next.what == kind::done);
}

TEST_CASE("a stop instead of the question for a type leaves the cause as it is") {
    stepped s(dialect, one_try);
    s.begin();
    s.answer(reply::error("WRONGTYPE x"));
    REQUIRE(s.sends().front() == "TYPE");
    s.stop();
    CHECK(s.next.what == kind::done);
    CHECK(s.result().cause == errc::wrong_type);
    CHECK(s.result().detail == "WRONGTYPE x");
}

// ---- what replicas have to acknowledge
// ---------------------------------------------------------------------

namespace {

acquire_limits replicated(acquire_limits all = limits) {
    all.replicas = 2;
    all.replica_timeout = 100ms;
    return all;
}
words behind(const stepped& s) {
    REQUIRE(s.next.behind);
    return {s.next.behind->argv().begin(), s.next.behind->argv().end()};
}

}  // namespace

TEST_CASE(
    "the wait for replicas goes behind the write that takes the lock, and behind a claim; not behind a "
    "look") {
    stepped s(dialect, replicated());
    s.begin();
    CHECK(behind(s) == words{"WAIT", "2", "100"});
    CHECK(s.next.behind->routing_key() == "orders");
    s.answer(taken, reply::integer(2));
    CHECK_FALSE(s.next.behind);
    s.answer(ok);
    CHECK(behind(s) == words{"WAIT", "2", "100"});
    CHECK(s.sends().front() == "EVALSHA");
    s.answer(reply::integer(1), reply::integer(2));
    CHECK(s.next.what == kind::done);
    CHECK(s.result().what == ended::granted);
}

TEST_CASE("replicas are waited for no longer than half of the time that is left") {
    auto all = replicated();
    all.deadline = start + 60ms;
    stepped s(dialect, all);
    s.begin();
    CHECK(behind(s) == words{"WAIT", "2", "30"});
}

TEST_CASE("too few replicas are counted in the error text, and the lock is left by its token") {
    stepped s(dialect, replicated());
    s.begin();
    const auto token = s.token_now();
    s.answer(ok, reply::integer(1));
    CHECK(s.next.what == kind::done);
    CHECK(leaves(s.next, token, false));
    CHECK(s.result().what == ended::failed);
    CHECK(s.result().cause == errc::not_replicated);
    CHECK(s.result().detail == "1 of 2 replicas have it");
}

TEST_CASE("too few replicas that acknowledge a claim are counted in the error text, too") {
    stepped s(dialect, replicated());
    s.begin();
    s.answer(taken, reply::integer(2));
    s.answer(ok);
    const auto token = s.token_now();
    s.answer(reply::integer(1), reply::integer(1));
    CHECK(s.next.what == kind::done);
    CHECK(leaves(s.next, token, false));
    CHECK(s.result().cause == errc::not_replicated);
    CHECK(s.result().detail == "1 of 2 replicas have it");
}

}  // namespace operation_tests
