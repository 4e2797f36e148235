// The driver when it may wait in line: what goes to the server, by which tokens, and what is done before it goes on.
#include <atomic>
#include <chrono>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include <distlock/base/lease.hpp>
#include <distlock/base/options.hpp>
#include <distlock/base/token.hpp>
#include <distlock/engine/driver.hpp>
#include <distlock/testing/manual_clock.hpp>
#include <distlock/testing/scripted_connection.hpp>
#include <distlock/wire/handoff.hpp>

#include "catch.hpp"
#include "support/handoff_names.hpp"

namespace {

using distlock::command;
using distlock::errc;
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

const distlock::handoff dialect("orders", {.lease = 30s});
const token theirs = token::from("0123456789abcdef0123456789abcdef");

const reply granted = reply::array({reply::integer(1), reply::string("")});
const reply busy = reply::array({reply::integer(0), reply::integer(20'000)});
const reply lost = reply::no_answer(errc::no_reply, "the answer was lost");
reply offered(const std::string& lease = "30000") {
    return reply::array({reply::string("{orders}:distlock:offers"),
                         reply::string(std::string(theirs.view()) + ":" + lease + ":1700000000000000:")});
}

/// Waits are commands of the script, too.
struct waiting {
    reply execute(const command& cmd) { return inner.execute(cmd); }
    reply wait(const command& cmd, distlock::clock::time_point deadline, const std::stop_token&) {
        ends.push_back(deadline);
        return inner.execute(cmd);
    }
    scripted_connection inner;
    std::vector<distlock::clock::time_point> ends = {};
};

/// Somebody who looks after the lock, and says what the driver told it.
struct watcher {
    bool begin(std::optional<std::chrono::milliseconds> ttl) noexcept {
        said += "begin(" + (ttl ? std::to_string(ttl->count()) : "") + ") ";
        return willing;
    }
    void end() noexcept { said += "end "; }
    void settle() noexcept { said += "settle "; }
    bool willing = true;
    std::string said = {};
};

acquire_limits limits(distlock::clock::duration timeout = 10s) {
    return {.lease = 30s,
            .recheck = 50ms,
            .patience = 2s,
            .deadline = manual_clock::now() + timeout,
            .in_line = true};
}

struct attempt {
    explicit attempt(std::initializer_list<reply> replies) : redis{{replies}} { manual_clock::reset(); }
    acquisition take(bool contended = true) {
        return distlock::engine::take<manual_clock>(
            redis, dialect, limits(), stop.get_token(), contended, trouble,
            [this](const token& t) noexcept { owed.emplace_back(t.view()); }, watch);
    }
    words sent() const {
        words all;
        for (const auto& one : redis.inner.commands()) all.push_back(handoff_name_of(one.argv));
        return all;
    }
    std::string token_of(std::size_t i) const {
        const auto argv = redis.inner.commands().at(i).argv;
        return argv[0] == "SET" ? argv.at(2) : argv.at(6);
    }

    waiting redis;
    std::stop_source stop;
    std::atomic<errc> trouble{};
    words owed;
    watcher watch;
};

}  // namespace

TEST_CASE("a lock in line costs an entering and a wait, and is held under the token that was offered") {
    attempt a{busy, offered()};
    const auto got = a.take();
    REQUIRE(got.end.what == kind::granted);
    CHECK(a.sent() == words{"join", "BLPOP"});
    CHECK(got.owner.view() == theirs.view());
    CHECK(a.token_of(0) != theirs.view());
    CHECK(got.end.at == validity_end(manual_clock::now(), 30s));
    CHECK(a.owed.empty());
    CHECK(a.watch.said == "begin(20000) end ");
}

TEST_CASE("validity counts from before the entering, however long the wait was") {
    attempt a{};
    const auto before = manual_clock::now();
    a.redis.inner.then([] { manual_clock::advance(1s); }, busy);
    a.redis.inner.then([] { manual_clock::advance(5s); }, offered());
    const auto got = a.take();
    CHECK(got.end.at == validity_end(before, 30s));
    CHECK(got.sent == before);
    CHECK(got.came == before + 6s);
}

TEST_CASE("an offer that is not enough is adopted by its own token") {
    attempt a{busy, offered("1000"), granted};
    const auto got = a.take();
    CHECK(got.end.what == kind::granted);
    CHECK(a.sent() == words{"join", "BLPOP", "adopt"});
    CHECK(a.token_of(2) == theirs.view());
    CHECK(got.owner.view() == theirs.view());
}

TEST_CASE("an offer that had run out is forgotten: neither its token nor one that is owed is sent again") {
    attempt plain{busy, offered("1000"), busy, granted};
    const auto got = plain.take();
    CHECK(plain.sent() == words{"join", "BLPOP", "adopt", "join"});
    CHECK(got.owner.view() == plain.token_of(3));
    CHECK(got.owner.view() != theirs.view());

    // The first entering was not answered: its token is released later, by whoever looks after what is owed.
    attempt open{lost, busy, offered("1000"), busy, granted};
    const auto mine = open.take();
    REQUIRE(mine.end.what == kind::granted);
    CHECK(open.sent() == words{"join", "stay", "BLPOP", "adopt", "join"});
    REQUIRE(open.owed == words{open.token_of(0)});
    CHECK(mine.owner.view() != open.owed[0]);
}

TEST_CASE(
    "the token of an offer whose confirmation was not answered is released when the offer had run out") {
    attempt a{busy, offered("1000"), lost, busy, reply::integer(0), granted};
    const auto got = a.take();
    REQUIRE(got.end.what == kind::granted);
    CHECK(a.sent() == words{"join", "BLPOP", "adopt", "adopt", "release", "join"});
    CHECK(a.owed == words{std::string(theirs.view())});  // "nothing there" may be followed by the late one
    CHECK(got.owner.view() != theirs.view());
}

TEST_CASE("a grant that comes with a stop request is kept; what would have to be confirmed is given back") {
    attempt kept{};
    kept.redis.inner.then(busy);
    kept.redis.inner.then([&] { kept.stop.request_stop(); }, offered());
    CHECK(kept.take().end.what == kind::granted);

    attempt given_back{};
    given_back.redis.inner.then(busy);
    given_back.redis.inner.then([&] { given_back.stop.request_stop(); }, offered("1000"));
    given_back.redis.inner.then(reply::integer(1));
    const auto got = given_back.take();
    CHECK(got.end.cause == errc::cancelled);
    CHECK(given_back.sent() == words{"join", "BLPOP", "release"});
    CHECK(given_back.token_of(2) == theirs.view());
}

TEST_CASE("a stop request leaves the line exactly when we are in it") {
    const auto stopped_at = [](int step, std::vector<reply> replies) {
        attempt a{};
        for (int i = 0; i < static_cast<int>(replies.size()); ++i) {
            const auto& next = replies[static_cast<std::size_t>(i)];
            i == step ? a.redis.inner.then([&a] { a.stop.request_stop(); }, next) : a.redis.inner.then(next);
        }
        CHECK(a.take(false).end.cause == errc::cancelled);
        CHECK(a.redis.inner.left() == 0);
        return a.sent();
    };
    const reply left = reply::integer(0);
    CHECK(stopped_at(0, {reply::nil()}) == words{"SET"});
    CHECK(stopped_at(1, {reply::nil(), busy, left}) == words{"SET", "join", "leave"});
    CHECK(stopped_at(2, {reply::nil(), busy, reply::no_answer(errc::cancelled, "stopped"), left}) ==
          words{"SET", "join", "BLPOP", "leave"});
    // The wait was not even begun.
    CHECK(stopped_at(2, {reply::nil(), busy, reply::not_sent(errc::cancelled, "stopped"), left}) ==
          words{"SET", "join", "BLPOP", "leave"});
    // Or is not permitted.
    CHECK(stopped_at(2, {reply::nil(), busy, reply::error("NOPERM x"), left}) ==
          words{"SET", "join", "BLPOP", "leave"});
}

TEST_CASE("the wait is bounded by the deadline, and by half a second when nobody looks after the lock") {
    attempt watched{busy, offered()};
    watched.take();
    CHECK(watched.redis.ends.at(0) == manual_clock::now() + 10s + 20ms);
    CHECK(watched.redis.inner.commands().at(1).argv.back() == "10.000");

    attempt alone{busy, offered()};
    alone.watch.willing = false;
    alone.take();
    CHECK(alone.redis.ends.at(0) == manual_clock::now() + 500ms + 20ms);
    CHECK(alone.redis.inner.commands().at(1).argv.back() == "0.500");
}

TEST_CASE("no look is on its way when the line is left") {
    attempt a{busy};
    a.redis.inner.then([] { manual_clock::advance(10s); }, reply::nil());
    a.redis.inner.then(busy);
    CHECK(a.take().end.what == kind::gave_up);
    CHECK(a.sent() == words{"join", "BLPOP", "quit"});
    CHECK(a.watch.said == "begin(20000) end settle ");

    attempt stopped{busy};
    stopped.redis.inner.then([&] { stopped.stop.request_stop(); },
                             reply::no_answer(errc::cancelled, "stopped"));
    stopped.redis.inner.then(reply::integer(0));
    CHECK(stopped.take().end.cause == errc::cancelled);
    CHECK(stopped.sent() == words{"join", "BLPOP", "leave"});
    CHECK(stopped.watch.said == "begin(20000) end settle ");
}
