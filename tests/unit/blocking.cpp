// An attempt on the caller's thread: which commands go to the server, with which tokens, and what
// comes of the answers.
#include <chrono>
#include <cstddef>
#include <new>
#include <optional>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "support/allocations.hpp"
#include "support/attempt.hpp"
#include "support/catch.hpp"
#include "support/ticking_clock.hpp"

namespace blocking_tests {

namespace {

using namespace attempt_test;
using kind = grant::kind;

const distlock::plain dialect("orders", {.lease = 30s});
const std::string look_sha1(distlock::detail::plain_look.sha1());

const reply ok = reply::status("OK");
const reply taken = reply::nil();
const reply lost = reply::no_answer(errc::no_reply, "the answer was lost");
const reply gone = reply::not_sent(errc::unreachable, "nobody listens");

acquire_limits limits(distlock::clock::duration timeout = 10s) {
    return {.lease = 30s, .recheck = 50ms, .patience = 2s, .deadline = manual_clock::now() + timeout};
}
acquire_limits one_try() { return {.lease = 30s, .recheck = 50ms, .patience = 2s, .once = true}; }

template <class Clock = manual_clock, class Conn>
grant take(Conn& c, const acquire_limits& within, const std::stop_token& stop = {}, bool contended = false) {
    distlock::engine::remote_status status;
    auto messages = inbox_of<Clock>(c, dialect);
    return attempt_test::take<Clock>(c, dialect, within, stop, contended, status, messages);
}

/// An attempt, and what it may have left.
struct attempt {
    template <class Clock = manual_clock, class Conn>
    static attempt run(Conn& c, const acquire_limits& within, const std::stop_token& stop = {}) {
        attempt done;
        distlock::engine::remote_status status;
        auto messages = inbox_of<Clock>(c, dialect);
        done.got = attempt_test::take<Clock>(c, dialect, within, stop, false, status, messages,
                                             [&](const distlock::engine::action::leaving& what) noexcept {
                                                 done.left.add(what);
                                                 done.left_after.push_back(c.commands().size());
                                                 manual_clock::advance(1ms);  // the pause behind it is over
                                             });
        return done;
    }
    grant got;
    left_tokens left;
    std::vector<std::size_t> left_after;  // how many commands
};

}  // namespace

// ---- take ------------------------------------------------------------------------------------------------

TEST_CASE("a free lock costs one SET") {
    manual_clock::reset();
    scripted_connection c{ok};
    const auto got = take(c, limits());
    CHECK(got.what == kind::granted);
    CHECK(got.until == validity_end(manual_clock::now(), 30s));
    CHECK_FALSE(got.contended);
    CHECK(got.detail.empty());
    const auto sent = c.commands();
    REQUIRE(sent.size() == 1);
    CHECK(sent[0].argv == words{"SET", "orders", std::string(got.token.view()), "NX", "PX", "30000"});
    CHECK(sent[0].routing_key == "orders");
    CHECK(sent[0].deadline == manual_clock::now() + 10s);
}

TEST_CASE("a lock that was contended the last time costs one look") {
    manual_clock::reset();
    scripted_connection c{ok};
    const auto got = take(c, limits(), {}, true);
    CHECK(got.what == kind::granted);
    CHECK_FALSE(got.contended);
    REQUIRE(what_was_sent(c) == words{"look"});
    CHECK(c.commands()[0].argv ==
          words{"EVALSHA", look_sha1, "1", "orders", std::string(got.token.view()), "30000"});
}

TEST_CASE("the clock is read before a command is sent, not when its answer is there") {
    manual_clock::reset();
    const auto before = manual_clock::now();
    scripted_connection c;
    c.then([] { manual_clock::advance(4s); }, ok);
    CHECK(take(c, limits()).until == validity_end(before, 30s));
}

TEST_CASE("every acquisition has a token of its own") {
    manual_clock::reset();
    scripted_connection c{ok, ok};
    const auto first = take(c, limits());
    const auto second = take(c, limits());
    CHECK_FALSE(first.token == second.token);
    CHECK_FALSE(first.token.empty());
}

TEST_CASE("a try of a taken lock costs SET and one look, by the same token, and is no trouble") {
    manual_clock::reset();
    scripted_connection c{taken, reply::integer(20'000)};
    const auto got = take(c, one_try());
    CHECK(got.what == kind::gave_up);
    CHECK(got.contended);
    CHECK(got.detail.empty());
    CHECK(what_was_sent(c) == words{"SET", "look"});
    const auto tokens = tokens_of(c);
    CHECK(tokens[0] == tokens[1]);
    CHECK(c.commands()[1].deadline == distlock::clock::time_point::max());
}

TEST_CASE("a holder without a TTL is passed on") {
    scripted_connection c{taken, reply::integer(-1)};
    CHECK(take(c, one_try()).without_ttl);
}

TEST_CASE("a server that does not have the script gets its body") {
    scripted_connection c{reply::error("NOSCRIPT x"), ok};
    const auto got = take(c, limits(), {}, true);
    CHECK(got.what == kind::granted);
    CHECK(what_was_sent(c) == words{"look", "look with body"});
    CHECK(tokens_of(c)[0] == got.token.view());
    CHECK(tokens_of(c)[1] == got.token.view());
}

TEST_CASE("a taken lock is looked at after pauses, by the same token, until it is granted") {
    scripted_connection c{taken, reply::integer(20'000), reply::integer(5), ok};
    const auto got = take<ticking_clock>(c, {.lease = 30s, .recheck = 50ms, .patience = 2s});
    CHECK(got.what == kind::granted);
    CHECK(got.contended);
    CHECK(what_was_sent(c) == words{"SET", "look", "look", "look"});
    for (const auto& used : tokens_of(c)) CHECK(used == got.token.view());
}

TEST_CASE("a wait for a taken lock ends at the deadline with nothing to release") {
    scripted_connection c;
    for (int i = 0; i < 100; ++i) c.then(reply::integer(20'000));
    const auto got = take<ticking_clock>(
        c, {.lease = 30s, .recheck = 5ms, .patience = 2s, .deadline = ticking_clock::now() + 40ms}, {}, true);
    CHECK(got.what == kind::gave_up);
    CHECK(got.contended);
    for (const auto& what : what_was_sent(c)) CHECK((what == "look"));
    CHECK(c.commands().size() > 2);
}

TEST_CASE("a lost answer is asked for by the same token and counts from the asking") {
    manual_clock::reset();
    scripted_connection c;
    c.then([] { manual_clock::advance(200ms); }, lost);
    c.then([] { manual_clock::advance(10ms); }, ok);
    const auto before = manual_clock::now();
    const auto got = take(c, limits());
    CHECK(got.what == kind::granted);
    CHECK(got.until == validity_end(before + 200ms, 30s));
    CHECK(what_was_sent(c) == words{"SET", "look"});
    for (const auto& used : tokens_of(c)) CHECK(used == got.token.view());
}

TEST_CASE(
    "a try that stays without an answer leaves what may be ours, in doubt, by the token it was sent by") {
    manual_clock::reset();
    scripted_connection c{lost, lost};
    const auto [got, left, after] = attempt::run(c, one_try());
    CHECK(got.what == kind::failed);
    CHECK(got.cause == errc::no_reply);
    CHECK(got.detail == "the answer was lost");
    CHECK_FALSE(got.contended);
    CHECK(what_was_sent(c) == words{"SET", "look"});
    const auto tokens = tokens_of(c);
    CHECK(tokens[0] == tokens[1]);
    CHECK(left.tokens == words{tokens[0]});
    CHECK(left.in_doubt == std::vector<bool>{true});
}

TEST_CASE("a grant that comes too late is left before anything else, and asked for by a fresh token") {
    manual_clock::reset();
    scripted_connection c;
    c.then([] { manual_clock::advance(30s); }, ok);
    c.then(ok);
    auto unbounded = limits();
    unbounded.deadline = distlock::clock::time_point::max();
    const auto before = manual_clock::now();
    const auto [got, left, after] = attempt::run(c, unbounded);
    CHECK(got.what == kind::granted);
    CHECK(got.until > validity_end(before + 30s, 30s));
    REQUIRE(what_was_sent(c) == words{"SET", "look"});
    const auto tokens = tokens_of(c);
    CHECK(left.tokens == words{tokens[0]});
    CHECK(left.in_doubt == std::vector<bool>{false});
    CHECK(after == std::vector<std::size_t>{1});
    CHECK(tokens[0] != tokens[1]);
    CHECK(tokens[1] == got.token.view());
}

TEST_CASE("a try whose grant comes too late leaves it") {
    manual_clock::reset();
    scripted_connection c;
    c.then([] { manual_clock::advance(30s); }, ok);
    const auto [got, left, after] = attempt::run(c, one_try());
    CHECK(got.what == kind::failed);
    CHECK(got.cause == errc::lease_expired);
    CHECK(what_was_sent(c) == words{"SET"});
    CHECK(left.tokens == tokens_of(c));
}

TEST_CASE("a refusal ends an attempt with its cause and what the server said") {
    scripted_connection c{reply::error("NOPERM this user has no permissions"), ok};
    const auto got = take(c, limits());
    CHECK(got.what == kind::failed);
    CHECK(got.cause == errc::permission_denied);
    CHECK(got.detail == "NOPERM this user has no permissions");
    CHECK(what_was_sent(c) == words{"SET"});
}

TEST_CASE("a key of another type is told from a lock by the look, and both types are named") {
    scripted_connection c{taken, reply::error("WRONGTYPE Operation against a key"), reply::status("hash")};
    const auto got = take(c, one_try());
    CHECK(got.what == kind::failed);
    CHECK(got.cause == errc::wrong_type);
    CHECK(got.detail ==
          "the key holds a hash where this lock needs a string: Redisson's locks are hashes, and "
          "mutex<Conn, redisson> takes them");
    CHECK(what_was_sent(c) == words{"SET", "look", "something else"});
}

TEST_CASE("the type of a key is asked for as long as the call may last, a second at most") {
    const auto time_for_it = [](distlock::clock::duration timeout) {
        scripted_connection c{reply::error("WRONGTYPE Operation against a key"), reply::status("hash")};
        const auto begun = manual_clock::now();
        take(c, {.lease = 30s, .recheck = 50ms, .patience = 2s, .deadline = begun + timeout});
        return c.commands().at(1).deadline - begun;
    };
    CHECK(time_for_it(10ms) == distlock::engine::shortest_answer_time);
    CHECK(time_for_it(300ms) == 300ms);
    CHECK(time_for_it(1h) == 1s);
}

TEST_CASE("an unreachable server fails a try at once, with nothing to clean up") {
    scripted_connection c{gone};
    const auto got = take(c, one_try());
    CHECK(got.cause == errc::unreachable);
    CHECK(got.detail == "nobody listens");
    CHECK(c.commands().size() == 1);
}

TEST_CASE("a server that is gone for a while is asked again, by the same token") {
    scripted_connection c{gone, reply::error("LOADING x"), ok};
    const auto got = take<ticking_clock>(c, {.lease = 30s, .recheck = 50ms, .patience = 2s});
    CHECK(got.what == kind::granted);
    CHECK(what_was_sent(c) == words{"SET", "look", "look"});
    for (const auto& used : tokens_of(c)) CHECK(used == got.token.view());
}

TEST_CASE("an answer that makes no sense is not a grant, and what may be ours is left") {
    scripted_connection c{reply::string("OK"), reply::array({ok})};
    const auto [got, left, after] = attempt::run(c, one_try());
    CHECK(got.what == kind::failed);
    CHECK(got.cause == errc::protocol_error);
    CHECK(what_was_sent(c) == words{"SET", "look"});
    CHECK(left.tokens == words{tokens_of(c)[0]});
    CHECK(left.in_doubt == std::vector<bool>{true});
}

TEST_CASE("an exception out of a connection may have been a grant") {
    scripted_connection sent;
    auto throws_once = [&, first = true](const command& cmd) mutable -> reply {
        const reply r = sent.execute(cmd);
        if (std::exchange(first, false)) throw std::runtime_error("x");
        return r;
    };
    sent.then(ok);
    sent.then(ok);
    const auto got = take(throws_once, limits());
    CHECK(got.what == kind::granted);
    CHECK(what_was_sent(sent) == words{"SET", "look"});
    CHECK(tokens_of(sent)[0] == tokens_of(sent)[1]);
}

// ---- stop requests ---------------------------------------------------------------------------------------

TEST_CASE("an attempt that is stopped beforehand sends nothing") {
    std::stop_source stop;
    stop.request_stop();
    scripted_connection c{ok};
    const auto got = take(c, limits(), stop.get_token());
    CHECK(got.what == kind::failed);
    CHECK(got.cause == errc::cancelled);
    CHECK(c.commands().empty());
}

TEST_CASE("a grant that is there when the stop is requested is kept") {
    manual_clock::reset();
    std::stop_source stop;
    scripted_connection c;
    c.then([&] { stop.request_stop(); }, ok);
    CHECK(take(c, limits(), stop.get_token()).what == kind::granted);
}

TEST_CASE("a stop ends a wait for somebody else's lock with nothing to release") {
    manual_clock::reset();
    std::stop_source stop;
    scripted_connection c{taken};
    c.then([&] { stop.request_stop(); }, reply::integer(20'000));
    const auto got = take(c, limits(), stop.get_token());
    CHECK(got.cause == errc::cancelled);
    CHECK(got.contended);
    CHECK(what_was_sent(c) == words{"SET", "look"});
}

TEST_CASE("a stop ends a pause") {
    manual_clock::reset();  // and nobody moves it: only the stop can end the pause
    std::stop_source stop;
    scripted_connection c{taken, reply::integer(20'000)};
    auto slow = limits();
    slow.recheck = 1h;
    slow.deadline = distlock::clock::time_point::max();
    std::jthread stopper([&] {
        while (c.left() != 0) std::this_thread::yield();
        stop.request_stop();
    });
    CHECK(take(c, slow, stop.get_token()).cause == errc::cancelled);
}

TEST_CASE("a stop while an answer is lost leaves what may be ours, in doubt, and sends nothing more") {
    manual_clock::reset();
    std::stop_source stop;
    scripted_connection c;
    c.then([&] { stop.request_stop(); }, lost);
    const auto [got, left, after] = attempt::run(c, limits(), stop.get_token());
    CHECK(got.cause == errc::cancelled);
    CHECK(what_was_sent(c) == words{"SET"});
    CHECK(left.tokens == tokens_of(c));
    CHECK(left.in_doubt == std::vector<bool>{true});
}

TEST_CASE("a stop while a grant comes too late leaves it once, and sends nothing more") {
    manual_clock::reset();
    std::stop_source stop;
    scripted_connection c;
    c.then(
        [&] {
            manual_clock::advance(30s);
            stop.request_stop();
        },
        ok);
    auto unbounded = limits();
    unbounded.deadline = distlock::clock::time_point::max();
    const auto [got, left, after] = attempt::run(c, unbounded, stop.get_token());
    CHECK(got.cause == errc::cancelled);
    CHECK(what_was_sent(c) == words{"SET"});
    CHECK(left.tokens == tokens_of(c));
    CHECK(left.in_doubt == std::vector<bool>{false});
}

TEST_CASE("every command of an attempt that can be stopped carries its stop token, and no other does") {
    manual_clock::reset();
    const std::stop_source stop;
    struct watching {
        scripted_connection inner{taken, reply::error("WRONGTYPE x"), reply::status("hash")};
        std::vector<bool> stoppable = {};
        reply execute(const command& cmd) {
            stoppable.push_back(cmd.stop() != nullptr);
            return inner.execute(cmd);
        }
    };
    watching with;
    static_cast<void>(take(with, one_try(), stop.get_token()));
    CHECK(what_was_sent(with.inner) == words{"SET", "look", "something else"});
    CHECK(with.stoppable == std::vector<bool>{true, true, true});
    watching without;
    static_cast<void>(take(without, one_try()));
    CHECK(without.stoppable == std::vector<bool>{false, false, false});
}

TEST_CASE(
    "a command that its stop request ended says nothing about the server, and is asked no second time") {
    manual_clock::reset();
    const std::stop_source stop;  // whether the request is seen by now or not
    const reply stopped =
        GENERATE(reply::no_answer(errc::cancelled, "stopped"), reply::not_sent(errc::cancelled, "stopped"));
    distlock::engine::remote_status status;
    status.begin();
    scripted_connection c{stopped};
    auto messages = inbox_of<manual_clock>(c, dialect);
    left_tokens left;
    const auto got = attempt_test::take<manual_clock>(
        c, dialect, limits(), stop.get_token(), false, status, messages,
        [&](const distlock::engine::action::leaving& what) noexcept { left.add(what); });
    CHECK(got.what == kind::failed);
    CHECK(got.cause == errc::cancelled);
    CHECK(got.detail.empty());
    CHECK_FALSE(status.known());
    CHECK(what_was_sent(c) == words{"SET"});
    const bool may_be_applied = !stopped.is(distlock::reply_kind::not_sent);
    CHECK(left.tokens == (may_be_applied ? tokens_of(c) : words{}));
    CHECK(left.in_doubt == (may_be_applied ? std::vector<bool>{true} : std::vector<bool>{}));
}

TEST_CASE("while an attempt goes on it says what the trouble is, and that there is none any more") {
    manual_clock::reset();
    distlock::engine::remote_status status;
    status.begin();
    std::vector<std::optional<errc>> seen;  // none: nothing was heard yet
    scripted_connection c;
    const auto look_at_it = [&] {
        seen.push_back(status.known() ? std::optional(status.last_error()) : std::nullopt);
    };
    c.then(look_at_it, reply::error("LOADING x"));
    c.then(look_at_it, reply::integer(20'000));
    c.then(look_at_it, gone);
    c.then(look_at_it, ok);
    auto messages = inbox_of<ticking_clock>(c, dialect);
    const auto got = attempt_test::take<ticking_clock>(
        c, dialect, {.lease = 30s, .recheck = 50ms, .patience = 2s}, {}, true, status, messages);
    CHECK(got.what == kind::granted);
    CHECK(seen ==
          std::vector<std::optional<errc>>{std::nullopt, errc::unavailable, errc{}, errc::unreachable});
    CHECK(status.last_error() == errc{});
    CHECK(status.known());
}

// Nobody had it for a lease.
TEST_CASE("a lock that too few replicas have is left also by who has no memory to say so") {
    NOT_TESTED_UNLESS(allocations_can_fail(), operator_new_is_not_ours);
    struct replicated {
        reply execute(const command& cmd) { return inner.execute(cmd); }
        distlock::acknowledged_reply execute_acknowledged(const command& write, const command&) {
            auto answer = inner.execute(write);
            fail_allocation(nth);
            return {std::move(answer), reply::integer(1)};
        }
        long nth;
        scripted_connection inner{ok};
    };
    auto within = one_try();
    within.replicas = 2;
    within.replica_timeout = 100ms;
    bool failed = true;
    for (long nth = 1; failed; ++nth) {
        INFO("allocation " << nth);
        replicated c{.nth = nth};
        distlock::engine::remote_status status;
        auto messages = inbox_of<manual_clock>(c, dialect);
        left_tokens left;
        failed = false;
        const auto leave = [&](const distlock::engine::action::leaving& what) noexcept {
            failed = allocation_failed();
            fail_allocation(-1);
            left.add(what);
        };
        try {
            attempt_test::take<manual_clock>(c, dialect, within, {}, false, status, messages, leave);
        } catch (const std::bad_alloc&) {
            CHECK(failed);
        }
        fail_allocation(0);
        CHECK(left.tokens == tokens_of(c.inner));
    }
}

TEST_CASE("an attempt that cannot have left anything on the server leaves nothing") {
    manual_clock::reset();
    scripted_connection granted{ok};
    CHECK(attempt::run(granted, limits()).left.tokens.empty());
    scripted_connection busy{taken, reply::integer(20'000)};
    CHECK(attempt::run(busy, one_try()).left.tokens.empty());
    scripted_connection nobody{gone};
    CHECK(attempt::run(nobody, one_try()).left.tokens.empty());
    scripted_connection refused{reply::error("NOPERM x")};
    CHECK(attempt::run(refused, one_try()).left.tokens.empty());
}

TEST_CASE("a grant says when it was sent and when its answer came") {
    manual_clock::reset();
    const auto before = manual_clock::now();
    scripted_connection c;
    c.then([] { manual_clock::advance(200ms); }, lost);
    c.then([] { manual_clock::advance(3s); }, ok);
    const auto got = take(c, limits());
    CHECK(got.sent == before + 200ms);
    CHECK(got.came == before + 3200ms);
    CHECK(got.fence == 0);
}

TEST_CASE("a grant with a fencing token passes it on") {
    const distlock::plain fenced("orders", {.fencing = true});
    scripted_connection c{reply::array({reply::integer(1), reply::string("1763718245123456")})};
    distlock::engine::remote_status status;
    auto messages = inbox_of<manual_clock>(c, fenced);
    const auto got = attempt_test::take<manual_clock>(c, fenced, limits(), {}, false, status, messages);
    CHECK(got.what == kind::granted);
    CHECK(got.fence == 1763718245123456U);
}

}  // namespace blocking_tests
