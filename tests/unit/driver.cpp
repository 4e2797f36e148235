// The driver: which commands go to the server, with which tokens, and what comes of the answers.
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <initializer_list>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <string_view>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

#include <distlock/base/lease.hpp>
#include <distlock/base/options.hpp>
#include <distlock/base/token.hpp>
#include <distlock/engine/driver.hpp>
#include <distlock/testing/manual_clock.hpp>
#include <distlock/testing/scripted_connection.hpp>
#include <distlock/wire/handoff.hpp>
#include <distlock/wire/handoff_scripts.hpp>
#include <distlock/wire/plain.hpp>

#include "catch.hpp"

namespace {

using distlock::command;
using distlock::errc;
using distlock::release_outcome;
using distlock::reply;
using distlock::token;
using distlock::validity_end;
using distlock::engine::acquire_limits;
using distlock::engine::acquisition;
using distlock::testing::manual_clock;
using distlock::testing::scripted_connection;
using namespace std::chrono_literals;
using kind = distlock::engine::acquire_step::kind;
using words = std::vector<std::string>;

const distlock::plain dialect("orders", {.lease = 30s});
const std::string look_text(distlock::detail::plain_look.text());
const std::string look_sha1(distlock::detail::plain_look.sha1());
const std::string release_text(distlock::detail::plain_release.text());
const std::string release_sha1(distlock::detail::plain_release.sha1());

const reply ok = reply::status("OK");
const reply taken = reply::nil();
const reply lost = reply::no_answer(errc::no_reply, "the answer was lost");
const reply gone = reply::not_sent(errc::unreachable, "nobody listens");

/// A clock that moves a millisecond whenever somebody looks: pauses end without anybody who moves it.
struct busy_clock {
    using rep = distlock::clock::rep;
    using period = distlock::clock::period;
    using duration = distlock::clock::duration;
    using time_point = distlock::clock::time_point;
    static time_point now() noexcept { return time_point(1ms * ++looks_); }

  private:
    static inline std::atomic<int> looks_{0};
};

acquire_limits limits(distlock::clock::duration timeout = 10s) {
    return {.lease = 30s, .recheck = 50ms, .patience = 2s, .deadline = manual_clock::now() + timeout};
}
acquire_limits one_try() { return {.lease = 30s, .recheck = 50ms, .patience = 2s, .once = true}; }

template <class Clock = manual_clock, class Conn>
acquisition take(Conn& c, const acquire_limits& within, const std::stop_token& stop = {},
                 bool contended = false) {
    std::atomic<errc> trouble{};
    return distlock::engine::take<Clock>(c, dialect, within, stop, contended, trouble);
}

// What a command is, and by which token: "SET", "look", "look with body", "release", "release with body".
std::string what_is(const words& argv) {
    if (argv.at(0) == "SET") return "SET";
    const bool body = argv.at(0) == "EVAL";
    const auto& script = argv.at(1);
    if (script == (body ? look_text : look_sha1)) return body ? "look with body" : "look";
    if (script == (body ? release_text : release_sha1)) return body ? "release with body" : "release";
    return "something else";
}
std::string token_of(const words& argv) { return argv.at(0) == "SET" ? argv.at(2) : argv.at(4); }

words what_was_sent(const scripted_connection& c) {
    words all;
    for (const auto& cmd : c.commands()) all.push_back(what_is(cmd.argv));
    return all;
}
words tokens_of(const scripted_connection& c) {
    words all;
    for (const auto& cmd : c.commands()) all.push_back(token_of(cmd.argv));
    return all;
}

/// A scripted connection that can post.
struct posting {
    scripted_connection inner;
    std::vector<words> posted = {};
    std::vector<std::size_t> posted_before = {};  // how many commands were executed by then

    reply execute(const command& cmd) { return inner.execute(cmd); }
    bool post(const command& cmd) {
        posted.emplace_back(cmd.argv().begin(), cmd.argv().end());
        posted_before.push_back(inner.commands().size());
        manual_clock::advance(1ms);  // the pause behind it is over, too
        return true;
    }
};

/// Returns: how a child process that runs `what` ends; 0 when it comes to its end.
template <class What>
int status_of_a_child_that_runs(What what) {
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        std::signal(SIGABRT, SIG_DFL);
        what();
        ::_exit(0);
    }
    int status = -1;
    REQUIRE(::waitpid(child, &status, 0) == child);
    return status;
}

}  // namespace

// ---- take ------------------------------------------------------------------------------------------------

TEST_CASE("a free lock costs one SET") {
    manual_clock::reset();
    scripted_connection c{ok};
    const auto got = take(c, limits());
    CHECK(got.end.what == kind::granted);
    CHECK(got.end.at == validity_end(manual_clock::now(), 30s));
    CHECK_FALSE(got.contended);
    CHECK(got.trouble.empty());
    const auto sent = c.commands();
    REQUIRE(sent.size() == 1);
    CHECK(sent[0].argv == words{"SET", "orders", std::string(got.owner.view()), "NX", "PX", "30000"});
    CHECK(sent[0].routing_key == "orders");
    CHECK(sent[0].deadline == manual_clock::now() + 10s);
}

TEST_CASE("a lock that was contended the last time costs one look") {
    manual_clock::reset();
    scripted_connection c{ok};
    const auto got = take(c, limits(), {}, true);
    CHECK(got.end.what == kind::granted);
    CHECK_FALSE(got.contended);
    REQUIRE(what_was_sent(c) == words{"look"});
    CHECK(c.commands()[0].argv ==
          words{"EVALSHA", look_sha1, "1", "orders", std::string(got.owner.view()), "30000"});
}

TEST_CASE("the clock is read before a command is sent, not when its answer is there") {
    manual_clock::reset();
    const auto before = manual_clock::now();
    scripted_connection c;
    c.then([] { manual_clock::advance(4s); }, ok);
    CHECK(take(c, limits()).end.at == validity_end(before, 30s));
}

TEST_CASE("every acquisition has a token of its own") {
    manual_clock::reset();
    scripted_connection c{ok, ok};
    const auto first = take(c, limits());
    const auto second = take(c, limits());
    CHECK_FALSE(first.owner == second.owner);
    CHECK_FALSE(first.owner.empty());
}

TEST_CASE("a try of a taken lock costs SET and one look, by the same token, and is no trouble") {
    manual_clock::reset();
    scripted_connection c{taken, reply::integer(20'000)};
    const auto got = take(c, one_try());
    CHECK(got.end.what == kind::gave_up);
    CHECK(got.contended);
    CHECK(got.trouble.empty());
    CHECK(what_was_sent(c) == words{"SET", "look"});
    const auto tokens = tokens_of(c);
    CHECK(tokens[0] == tokens[1]);
    CHECK(c.commands()[1].deadline == distlock::clock::time_point::max());
}

TEST_CASE("a holder without a TTL is passed on") {
    scripted_connection c{taken, reply::integer(-1)};
    CHECK(take(c, one_try()).end.without_ttl);
}

TEST_CASE("a server that does not have the script gets its body") {
    scripted_connection c{reply::error("NOSCRIPT x"), ok};
    const auto got = take(c, limits(), {}, true);
    CHECK(got.end.what == kind::granted);
    CHECK(what_was_sent(c) == words{"look", "look with body"});
    CHECK(tokens_of(c)[0] == got.owner.view());
    CHECK(tokens_of(c)[1] == got.owner.view());
}

TEST_CASE("a taken lock is looked at after pauses, by the same token, until it is granted") {
    scripted_connection c{taken, reply::integer(20'000), reply::integer(5), ok};
    const auto got = take<busy_clock>(c, {.lease = 30s, .recheck = 50ms, .patience = 2s});
    CHECK(got.end.what == kind::granted);
    CHECK(got.contended);
    CHECK(what_was_sent(c) == words{"SET", "look", "look", "look"});
    for (const auto& used : tokens_of(c)) CHECK(used == got.owner.view());
}

TEST_CASE("a wait for a taken lock ends at the deadline with nothing to release") {
    scripted_connection c;
    for (int i = 0; i < 100; ++i) c.then(reply::integer(20'000));
    const auto got = take<busy_clock>(
        c, {.lease = 30s, .recheck = 5ms, .patience = 2s, .deadline = busy_clock::now() + 40ms}, {}, true);
    CHECK(got.end.what == kind::gave_up);
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
    CHECK(got.end.what == kind::granted);
    CHECK(got.end.at == validity_end(before + 200ms, 30s));
    CHECK(what_was_sent(c) == words{"SET", "look"});
    for (const auto& used : tokens_of(c)) CHECK(used == got.owner.view());
}

TEST_CASE(
    "a try that stays without an answer gives back what may be ours, by the same token, with the body") {
    manual_clock::reset();
    scripted_connection c{lost, lost, reply::integer(1)};
    const auto got = take(c, one_try());
    CHECK(got.end.what == kind::failed);
    CHECK(got.end.cause == errc::no_reply);
    CHECK(got.trouble == "the answer was lost");
    CHECK_FALSE(got.contended);
    REQUIRE(what_was_sent(c) == words{"SET", "look", "release with body"});
    const auto tokens = tokens_of(c);
    CHECK(tokens[0] == tokens[1]);
    CHECK(tokens[0] == tokens[2]);
    CHECK(c.commands()[2].argv == words{"EVAL", release_text, "1", "orders", tokens[0]});
    CHECK(c.commands()[2].deadline == manual_clock::now() + 30ms);
    CHECK(c.left() == 0);
}

TEST_CASE("a clean-up that fails is not tried again while the caller waits") {
    scripted_connection c{lost, lost, lost, ok};
    CHECK(take(c, one_try()).end.what == kind::failed);
    CHECK(c.commands().size() == 3);
    CHECK(c.left() == 1);
}

TEST_CASE("a grant that comes too late is given back before anything else, and asked for by a fresh token") {
    manual_clock::reset();
    scripted_connection c;
    c.then([] { manual_clock::advance(30s); }, ok);
    c.then([] { manual_clock::advance(1ms); }, reply::integer(1));  // the pause behind it is over, too
    c.then(ok);
    auto unbounded = limits();
    unbounded.deadline = distlock::clock::time_point::max();
    const auto before = manual_clock::now();
    const auto got = take(c, unbounded);
    CHECK(got.end.what == kind::granted);
    CHECK(got.end.at > validity_end(before + 30s, 30s));
    REQUIRE(what_was_sent(c) == words{"SET", "release with body", "look"});
    const auto tokens = tokens_of(c);
    CHECK(tokens[0] == tokens[1]);
    CHECK(tokens[1] != tokens[2]);
    CHECK(tokens[2] == got.owner.view());
}

TEST_CASE("a try whose grant comes too late gives it back") {
    manual_clock::reset();
    scripted_connection c;
    c.then([] { manual_clock::advance(30s); }, ok);
    c.then(reply::integer(1));
    const auto got = take(c, one_try());
    CHECK(got.end.what == kind::failed);
    CHECK(got.end.cause == errc::lease_expired);
    CHECK(what_was_sent(c) == words{"SET", "release with body"});
    CHECK(tokens_of(c)[0] == tokens_of(c)[1]);
}

TEST_CASE("a refusal ends an attempt with its cause and what the server said") {
    scripted_connection c{reply::error("NOPERM this user has no permissions"), ok};
    const auto got = take(c, limits());
    CHECK(got.end.what == kind::failed);
    CHECK(got.end.cause == errc::permission_denied);
    CHECK(got.trouble == "NOPERM this user has no permissions");
    CHECK(what_was_sent(c) == words{"SET"});
}

TEST_CASE("a key of another type is told from a lock by the look, and both types are named") {
    scripted_connection c{taken, reply::error("WRONGTYPE Operation against a key"), reply::status("hash")};
    const auto got = take(c, one_try());
    CHECK(got.end.what == kind::failed);
    CHECK(got.end.cause == errc::wrong_type);
    CHECK(got.trouble ==
          "the key holds a hash where this lock needs a string (WRONGTYPE Operation against a key)");
    CHECK(what_was_sent(c) == words{"SET", "look", "something else"});
}

TEST_CASE("an unreachable server fails a try at once, with nothing to clean up") {
    scripted_connection c{gone};
    const auto got = take(c, one_try());
    CHECK(got.end.cause == errc::unreachable);
    CHECK(got.trouble == "nobody listens");
    CHECK(c.commands().size() == 1);
}

TEST_CASE("a server that is gone for a while is asked again, by the same token") {
    scripted_connection c{gone, reply::error("LOADING x"), ok};
    const auto got = take<busy_clock>(c, {.lease = 30s, .recheck = 50ms, .patience = 2s});
    CHECK(got.end.what == kind::granted);
    CHECK(what_was_sent(c) == words{"SET", "look", "look"});
    for (const auto& used : tokens_of(c)) CHECK(used == got.owner.view());
}

TEST_CASE("an answer that makes no sense is not a grant, and what may be ours is given back") {
    scripted_connection c{reply::string("OK"), reply::array({ok}), reply::integer(0)};
    const auto got = take(c, one_try());
    CHECK(got.end.what == kind::failed);
    CHECK(got.end.cause == errc::protocol_error);
    CHECK(what_was_sent(c) == words{"SET", "look", "release with body"});
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
    CHECK(got.end.what == kind::granted);
    CHECK(what_was_sent(sent) == words{"SET", "look"});
    CHECK(tokens_of(sent)[0] == tokens_of(sent)[1]);
}

// ---- stop requests ---------------------------------------------------------------------------------------

TEST_CASE("an attempt that is stopped beforehand sends nothing") {
    std::stop_source stop;
    stop.request_stop();
    scripted_connection c{ok};
    const auto got = take(c, limits(), stop.get_token());
    CHECK(got.end.what == kind::failed);
    CHECK(got.end.cause == errc::cancelled);
    CHECK(c.commands().empty());
}

TEST_CASE("a grant that is there when the stop is requested is kept") {
    manual_clock::reset();
    std::stop_source stop;
    scripted_connection c;
    c.then([&] { stop.request_stop(); }, ok);
    CHECK(take(c, limits(), stop.get_token()).end.what == kind::granted);
}

TEST_CASE("a stop ends a wait for somebody else's lock with nothing to release") {
    manual_clock::reset();
    std::stop_source stop;
    scripted_connection c{taken};
    c.then([&] { stop.request_stop(); }, reply::integer(20'000));
    const auto got = take(c, limits(), stop.get_token());
    CHECK(got.end.cause == errc::cancelled);
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
    CHECK(take(c, slow, stop.get_token()).end.cause == errc::cancelled);
}

TEST_CASE("a stop while an answer is lost gives back what may be ours") {
    manual_clock::reset();
    std::stop_source stop;
    scripted_connection c;
    c.then([&] { stop.request_stop(); }, lost);
    c.then(reply::integer(1));
    const auto got = take(c, limits(), stop.get_token());
    CHECK(got.end.cause == errc::cancelled);
    CHECK(what_was_sent(c) == words{"SET", "release with body"});
    CHECK(tokens_of(c)[0] == tokens_of(c)[1]);
}

TEST_CASE("a stop while a grant comes too late gives it back") {
    manual_clock::reset();
    std::stop_source stop;
    scripted_connection c;
    c.then(
        [&] {
            manual_clock::advance(30s);
            stop.request_stop();
        },
        ok);
    c.then(reply::integer(1));
    auto unbounded = limits();
    unbounded.deadline = distlock::clock::time_point::max();
    const auto got = take(c, unbounded, stop.get_token());
    CHECK(got.end.cause == errc::cancelled);
    REQUIRE(what_was_sent(c) == words{"SET", "release with body"});
    CHECK(tokens_of(c)[0] == tokens_of(c)[1]);
}

// ---- posting connections ---------------------------------------------------------------------------------

TEST_CASE("a connection that can post posts the clean-up, with the body, and waits for nothing") {
    posting c{{lost, lost}};
    const auto got = take(c, one_try());
    CHECK(got.end.what == kind::failed);
    CHECK(what_was_sent(c.inner) == words{"SET", "look"});
    REQUIRE(c.posted.size() == 1);
    CHECK(what_is(c.posted[0]) == "release with body");
    CHECK(token_of(c.posted[0]) == tokens_of(c.inner)[0]);
}

TEST_CASE("a late grant is posted back before the fresh token is sent") {
    manual_clock::reset();
    posting c;
    c.inner.then([] { manual_clock::advance(30s); }, ok);
    c.inner.then(ok);
    auto unbounded = limits();
    unbounded.deadline = distlock::clock::time_point::max();
    const auto got = take(c, unbounded);
    CHECK(got.end.what == kind::granted);
    REQUIRE(c.posted.size() == 1);
    CHECK(c.posted_before == std::vector<std::size_t>{1});
    CHECK(token_of(c.posted[0]) == tokens_of(c.inner)[0]);
    CHECK(token_of(c.posted[0]) != got.owner.view());
    CHECK(tokens_of(c.inner)[1] == got.owner.view());
}

TEST_CASE("a clean-up that could not be posted is executed") {
    struct never_posts {
        scripted_connection inner{lost, lost, reply::integer(1)};
        reply execute(const command& cmd) { return inner.execute(cmd); }
        bool post(const command&) { return false; }
    } c;
    static_cast<void>(take(c, one_try()));
    CHECK(what_was_sent(c.inner) == words{"SET", "look", "release with body"});
}

TEST_CASE("while an attempt goes on it says what the trouble is, and that there is none any more") {
    manual_clock::reset();
    std::atomic<errc> trouble{errc::no_reply};
    std::vector<errc> seen;
    scripted_connection c;
    const auto look_at_it = [&] { seen.push_back(trouble); };
    c.then(look_at_it, reply::error("LOADING x"));
    c.then(look_at_it, reply::integer(20'000));
    c.then(look_at_it, gone);
    c.then(look_at_it, ok);
    const auto got = distlock::engine::take<busy_clock>(
        c, dialect, {.lease = 30s, .recheck = 50ms, .patience = 2s}, {}, true, trouble);
    CHECK(got.end.what == kind::granted);
    CHECK(seen == std::vector<errc>{errc::no_reply, errc::unavailable, errc{}, errc::unreachable});
    CHECK(trouble.load() == errc{});
}

TEST_CASE("an exception out of a post does not end the program") {
    struct throwing {
        scripted_connection inner{lost, lost};
        reply execute(const command& cmd) { return inner.execute(cmd); }
        bool post(const command&) { throw std::runtime_error("post"); }
    };
    const int status = status_of_a_child_that_runs([] {
        throwing c;
        static_cast<void>(take(c, one_try()));
    });
    CHECK(status == 0);
}

// ---- what is owed ----------------------------------------------------------------------------------------

namespace {

/// Runs an attempt. Returns: the tokens under which something may be left on the server.
template <class Clock = manual_clock, class Conn>
std::pair<acquisition, words> take_and_owe(Conn& c, const acquire_limits& within,
                                           const std::stop_token& stop = {}) {
    words owed;
    std::atomic<errc> trouble{};
    auto got =
        distlock::engine::take<Clock>(c, dialect, within, stop, false, trouble,
                                      [&](const token& owner) noexcept { owed.emplace_back(owner.view()); });
    return {got, owed};
}

}  // namespace

TEST_CASE("an attempt that never left anything on the server owes nothing") {
    manual_clock::reset();
    scripted_connection granted{ok};
    CHECK(take_and_owe(granted, limits()).second.empty());
    scripted_connection busy{taken, reply::integer(20'000)};
    CHECK(take_and_owe(busy, one_try()).second.empty());
    scripted_connection nobody{gone};
    CHECK(take_and_owe(nobody, one_try()).second.empty());
    scripted_connection refused{reply::error("NOPERM x")};
    CHECK(take_and_owe(refused, one_try()).second.empty());
}

TEST_CASE("a clean-up that found and freed the key owes nothing") {
    manual_clock::reset();
    scripted_connection c{lost, lost, reply::integer(1)};
    CHECK(take_and_owe(c, one_try()).second.empty());
}

TEST_CASE("a clean-up that did not free the key owes it, by the token that may have it, once") {
    manual_clock::reset();
    // Nothing there: the acquire may still be on its way. Somebody else's: the same.
    for (const auto& answer : {reply::integer(0), reply::integer(-1), lost, gone, reply::error("LOADING x"),
                               reply::error("NOPERM x"), reply::string("1")}) {
        scripted_connection c{lost, lost, answer};
        const auto [got, owed] = take_and_owe(c, one_try());
        CHECK(got.end.what == kind::failed);
        REQUIRE(owed.size() == 1);
        CHECK(owed[0] == tokens_of(c)[0]);
        CHECK(c.commands().size() == 3);
    }
}

TEST_CASE("a clean-up that was only posted is owed: nobody has seen it done") {
    manual_clock::reset();
    posting c{{lost, lost}};
    const auto [got, owed] = take_and_owe(c, one_try());
    CHECK(c.posted.size() == 1);
    CHECK(owed == words{tokens_of(c.inner)[0]});
}

TEST_CASE("a grant that came too late is owed by its own token, not by the one that followed") {
    scripted_connection c;
    c.then([] { manual_clock::advance(30s); }, ok);
    c.then([] { manual_clock::advance(1ms); }, lost);
    c.then(ok);
    manual_clock::reset();
    auto unbounded = limits();
    unbounded.deadline = distlock::clock::time_point::max();
    const auto [got, owed] = take_and_owe(c, unbounded);
    CHECK(got.end.what == kind::granted);
    REQUIRE(what_was_sent(c) == words{"SET", "release with body", "look"});
    CHECK(owed == words{tokens_of(c)[0]});
    CHECK(owed[0] != got.owner.view());
}

TEST_CASE("a clean-up is sent although the caller has been cancelled, and is owed when it is not answered") {
    manual_clock::reset();
    std::stop_source stop;
    scripted_connection c;
    c.then([&] { stop.request_stop(); }, lost);
    c.then(lost);
    const auto [got, owed] = take_and_owe(c, limits(), stop.get_token());
    CHECK(got.end.cause == errc::cancelled);
    CHECK(what_was_sent(c) == words{"SET", "release with body"});
    CHECK(owed == words{tokens_of(c)[0]});
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
    std::atomic<errc> trouble{};
    const auto got = distlock::engine::take<manual_clock>(c, fenced, limits(), {}, false, trouble);
    CHECK(got.end.what == kind::granted);
    CHECK(got.fence == 1763718245123456U);
}

// ---- give_back -------------------------------------------------------------------------------------------

namespace {

const token owner = token::generate();

struct given_back {
    release_outcome outcome;
    words sent;
    bool owed;
};

/// Returns: what becomes of a release that is answered so; `valid` until the answers are there, or not.
given_back give_back(std::initializer_list<reply> answers, bool valid = true) {
    manual_clock::reset();
    scripted_connection c(answers);
    const auto until = valid ? manual_clock::now() + 1ns : manual_clock::now();
    const auto done = distlock::engine::give_back<manual_clock>(c, dialect, owner, until);
    for (const auto& used : tokens_of(c)) CHECK(used == owner.view());
    CHECK(c.left() == 0);
    return {done.what, what_was_sent(c), done.owed};
}

}  // namespace

TEST_CASE("a release is one script by the owner's token") {
    const auto back = give_back({reply::integer(1)});
    CHECK(back.outcome == release_outcome::released);
    CHECK(back.sent == words{"release"});
}

TEST_CASE("a release whose script the server does not have sends the body") {
    const auto back = give_back({reply::error("NOSCRIPT x"), reply::integer(1)});
    CHECK(back.outcome == release_outcome::released);
    CHECK(back.sent == words{"release", "release with body"});
}

TEST_CASE("a release that finds nothing, or somebody else's lock, says so") {
    CHECK(give_back({reply::integer(0)}).outcome == release_outcome::expired);
    CHECK(give_back({reply::integer(0)}, false).outcome == release_outcome::expired);
    CHECK(give_back({reply::integer(-1)}).outcome == release_outcome::taken);
    CHECK(give_back({reply::integer(-1)}, false).outcome == release_outcome::taken);
}

TEST_CASE("a release after the validity is expired, even if the key was still there") {
    CHECK(give_back({reply::integer(1)}, false).outcome == release_outcome::expired);
}

TEST_CASE("a release whose answer is lost is sent once more") {
    const auto back = give_back({lost, reply::integer(1)});
    CHECK(back.outcome == release_outcome::released);
    CHECK(back.sent == words{"release", "release"});
    CHECK(give_back({lost, lost}).outcome == release_outcome::unreachable);
    CHECK(give_back({gone, gone}).outcome == release_outcome::unreachable);
    CHECK(give_back({gone, reply::integer(1)}).outcome == release_outcome::released);
    CHECK(give_back({lost, reply::error("NOPERM x")}).outcome == release_outcome::refused);
}

TEST_CASE("nothing there after a lost answer is released within the validity, and expired after it") {
    CHECK(give_back({lost, reply::integer(0)}).outcome == release_outcome::released);
    CHECK(give_back({lost, reply::integer(0)}, false).outcome == release_outcome::expired);
    CHECK(give_back({reply::string("1"), reply::integer(0)}).outcome == release_outcome::released);
}

TEST_CASE("somebody else's lock after a lost answer is released within the validity, and taken after it") {
    // Within the validity nobody else can have come but after our release.
    CHECK(give_back({lost, reply::integer(-1)}).outcome == release_outcome::released);
    CHECK(give_back({lost, reply::integer(-1)}, false).outcome == release_outcome::taken);
}

TEST_CASE("nothing there after a release that certainly was not applied is expired: the lock was lost") {
    CHECK(give_back({gone, reply::integer(0)}).outcome == release_outcome::expired);
    CHECK(give_back({reply::error("LOADING x"), reply::integer(0)}).outcome == release_outcome::expired);
    CHECK(give_back({gone, reply::integer(-1)}).outcome == release_outcome::taken);
}

TEST_CASE("a release that the server refuses for good is sent once, a passing trouble is tried again") {
    const auto refused = give_back({reply::error("NOPERM x")});
    CHECK(refused.outcome == release_outcome::refused);
    CHECK(refused.sent.size() == 1);
    CHECK(give_back({reply::error("LOADING x"), reply::integer(1)}).outcome == release_outcome::released);
    CHECK(give_back({reply::error("LOADING x"), reply::error("LOADING x")}).outcome ==
          release_outcome::refused);
}

// A busy server was asked for a mere delete next: who waited in line was not served.
TEST_CASE(
    "a release that a busy server refused is asked again whole, one that wants memory as a mere delete") {
    const distlock::handoff in_line("orders", {});
    const auto second = [&](const char* refusal) {
        scripted_connection redis{reply::error(refusal), reply::integer(1)};
        distlock::engine::give_back<manual_clock>(redis, in_line, token::generate(),
                                                  manual_clock::now() + 1s);
        return redis.commands().at(1).argv.at(1);
    };
    CHECK(second("BUSY x") == distlock::detail::handoff_pass.sha1());
    CHECK(second("OOM x") == distlock::detail::plain_release.sha1());
}

TEST_CASE("a release is owed when the server may still have the key, and only then") {
    CHECK(give_back({lost, lost}).owed);
    CHECK(give_back({gone, gone}).owed);
    CHECK(give_back({lost, gone}, false).owed);
    CHECK(give_back({reply::error("LOADING x"), reply::error("LOADING x")}).owed);
    CHECK(give_back({reply::error("NOPERM x")}).owed);
    CHECK_FALSE(give_back({reply::integer(1)}).owed);
    CHECK_FALSE(give_back({reply::integer(1)}, false).owed);
    CHECK_FALSE(give_back({reply::integer(0)}).owed);
    CHECK_FALSE(give_back({reply::integer(-1)}).owed);
    CHECK_FALSE(give_back({lost, reply::integer(0)}).owed);
    CHECK_FALSE(give_back({reply::not_sent(errc::wrong_process, "")}).owed);
}

TEST_CASE("a release in a child after fork is sent once and is wrong_process") {
    const auto back = give_back({reply::not_sent(errc::wrong_process, "")});
    CHECK(back.outcome == release_outcome::wrong_process);
    CHECK(back.sent.size() == 1);
}

TEST_CASE("a release is not posted: its outcome is wanted") {
    posting c{{reply::integer(1)}};
    CHECK(distlock::engine::give_back<manual_clock>(c, dialect, owner, manual_clock::now() + 1s).what ==
          release_outcome::released);
    CHECK(c.posted.empty());
}

TEST_CASE("an exception out of a connection is a lost answer of a release") {
    int calls = 0;
    auto throws_once = [&](const command&) -> reply {
        if (++calls == 1) throw std::runtime_error("x");
        return reply::integer(0);
    };
    manual_clock::reset();
    CHECK(distlock::engine::give_back<manual_clock>(throws_once, dialect, owner, manual_clock::now() + 1s)
              .what == release_outcome::released);
    CHECK(calls == 2);
}
