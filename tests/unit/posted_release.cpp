// A release that unlock() does not wait for: when it counts as done, and what is asked when nothing is heard of it.
#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <distlock/base/options.hpp>
#include <distlock/base/token.hpp>
#include <distlock/engine/lease_keeper.hpp>
#include <distlock/engine/posted_release.hpp>
#include <distlock/net/receipt.hpp>
#include <distlock/testing/manual_clock.hpp>
#include <distlock/testing/scripted_connection.hpp>
#include <distlock/wire/handoff.hpp>

#include "catch.hpp"
#include "waiting.hpp"

namespace {

using distlock::command;
using distlock::errc;
using distlock::receipt;
using distlock::reply;
using distlock::token;
using distlock::testing::manual_clock;
using distlock::testing::scripted_connection;
using namespace std::chrono_literals;
using words = std::vector<std::string>;

constexpr auto answer_time = 200ms;
const distlock::handoff dialect("orders", {.lease = 30s});
const token first = token::generate();
const token second = token::generate();

/// Posts into a list; the test says what was answered.
struct confirming {
    reply execute(const command& cmd) { return inner.execute(cmd); }
    bool post(const command& cmd, std::shared_ptr<receipt> wanted = nullptr) {
        if (throws) throw std::runtime_error("of a user's client");
        if (!takes) return false;
        posted.emplace_back(cmd.argv().begin(), cmd.argv().end());
        receipts.push_back(std::move(wanted));
        return true;
    }
    void collect() { ++collected; }

    scripted_connection inner;
    std::vector<words> posted;
    std::vector<std::shared_ptr<receipt>> receipts;
    bool takes = true;
    bool throws = false;
    std::atomic<int> collected{0};
};

using keeper = distlock::engine::lease_keeper<confirming, manual_clock>;
using tested = distlock::engine::posted_release<confirming, distlock::handoff, manual_clock>;

struct release {
    release() { manual_clock::reset(); }
    bool post(const token& owner = first) { return it->post(work, owner, manual_clock::now() + 30s); }
    /// Returns: the commands that were executed by and by, when there are so many.
    words asked(std::size_t count) {
        words all;
        if (!eventually([&] { return redis.inner.commands().size() >= count; })) return all;
        for (const auto& one : redis.inner.commands()) {
            const auto& script = one.argv.at(1);
            const auto& free = distlock::detail::plain_release;
            const bool frees = script == free.sha1() || script == free.text();
            all.push_back((frees ? "free " : "release ") + one.argv.at(frees ? 4 : 6));
        }
        return all;
    }
    /// Returns: whether the keeper has looked for the answer after the time was moved.
    bool looked_for_after(distlock::clock::duration span) {
        const int before = redis.collected;
        manual_clock::advance(span);
        return eventually([&] { return redis.collected > before; });
    }

    confirming redis;
    std::shared_ptr<keeper> work = std::make_shared<keeper>(redis);
    std::unique_ptr<tested> it = std::make_unique<tested>(redis, dialect, answer_time);
};

std::string release_by(const token& owner) { return "release " + std::string(owner.view()); }
std::string free_by(const token& owner) { return "free " + std::string(owner.view()); }

}  // namespace

TEST_CASE("a posted release is open until the server has said that the key is not ours") {
    for (const int word : {1, 2, 0, -1}) {
        release r;
        CHECK_FALSE(r.it->open());
        REQUIRE(r.post());
        CHECK(r.it->open());
        CHECK(r.it->owner() == first);
        CHECK(r.it->gone_by() == manual_clock::now() + 30s);
        r.redis.receipts[0]->settle(reply::integer(word));
        CHECK_FALSE(r.it->open());
        r.it->retire();
        CHECK(r.redis.inner.commands().empty());
    }
}

TEST_CASE("a posted release is open no longer than its lease") {
    release r;
    REQUIRE(r.post());
    manual_clock::advance(30s - 1ns);
    CHECK(r.it->open());
    manual_clock::advance(1ns);
    CHECK_FALSE(r.it->open());
    r.it->retire();
}

TEST_CASE("a release that could not be posted is not open, and is not asked for") {
    for (const bool throws : {false, true}) {
        release r;
        r.redis.takes = false;
        r.redis.throws = throws;
        CHECK_FALSE(r.post());
        CHECK_FALSE(r.it->open());
        manual_clock::advance(1s);
        r.it->retire();
        CHECK(r.redis.inner.commands().empty());
    }
}

TEST_CASE("a posted release carries the script until the server is known to have it") {
    release r;
    const auto post = [&](const reply& answer) {
        REQUIRE(r.post());
        r.redis.receipts.back()->settle(answer);
        CHECK(r.it->open() == answer.is(distlock::reply_kind::error));
        return r.redis.posted.back().at(0);
    };
    CHECK(post(reply::integer(1)) == "EVAL");
    CHECK(post(reply::integer(1)) == "EVALSHA");
    CHECK(post(reply::error("NOSCRIPT No matching script")) == "EVALSHA");
    r.it->settle();
    CHECK(post(reply::integer(2)) == "EVAL");
    CHECK(post(reply::integer(1)) == "EVALSHA");
    r.it->retire();
}

TEST_CASE("an answer that has come is looked for before the server is asked") {
    release r;
    r.redis.inner.then(reply::integer(1));
    REQUIRE(r.post());
    REQUIRE(r.looked_for_after(50ms));
    CHECK(r.redis.inner.commands().empty());
    REQUIRE(r.looked_for_after(50ms));
    CHECK(r.redis.inner.commands().empty());
    CHECK(r.it->open());
    manual_clock::advance(100ms);
    CHECK(r.asked(1) == words{release_by(first)});
    CHECK(eventually([&] { return !r.it->open(); }));
    r.it->retire();
    CHECK(r.redis.inner.commands().size() == 1);
}

TEST_CASE("a posted release whose answer will not come, or makes no sense, is asked for at the next look") {
    for (const auto& answer : {reply::no_answer(errc::no_reply, "the connection broke"), reply::string("1"),
                               reply::error("NOSCRIPT No matching script")}) {
        release r;
        r.redis.inner.then(reply::integer(1));
        REQUIRE(r.post());
        r.redis.receipts[0]->settle(answer);
        CHECK(r.it->open());
        manual_clock::advance(50ms);
        CHECK(r.asked(1) == words{release_by(first)});
        CHECK(eventually([&] { return !r.it->open(); }));
        r.it->retire();
    }
}

TEST_CASE("a posted release that is refused is asked for by the command that needs least, and by turns") {
    release r;
    const reply refusal = reply::error("OOM command not allowed when used memory > 'maxmemory'.");
    r.redis.inner.then(reply::no_answer(errc::no_reply, "x"));
    r.redis.inner.then(refusal);
    r.redis.inner.then(reply::integer(1));
    REQUIRE(r.post());
    r.redis.receipts[0]->settle(refusal);
    REQUIRE(eventually([&] {
        manual_clock::advance(10ms);
        return r.redis.inner.left() == 0;
    }));
    CHECK(r.asked(3) == words{free_by(first), free_by(first), release_by(first)});
    CHECK(eventually([&] { return !r.it->open(); }));
    r.it->retire();
}

TEST_CASE("what is settled is not asked for") {
    release r;
    REQUIRE(r.post());
    r.it->settle();
    CHECK_FALSE(r.it->open());
    manual_clock::advance(1s);
    r.it->retire();
    CHECK(r.redis.inner.commands().empty());
}

TEST_CASE("an answer to one release is not taken for that of the next") {
    release r;
    REQUIRE(r.post(first));
    REQUIRE(r.post(second));
    CHECK(r.it->owner() == second);
    r.redis.receipts[0]->settle(reply::integer(0));
    CHECK(r.it->open());
    r.redis.receipts[1]->settle(reply::integer(1));
    CHECK_FALSE(r.it->open());
    r.it->retire();
}

TEST_CASE("an answer that comes late for one that was settled is not taken for that of the next") {
    release r;
    REQUIRE(r.post(first));
    r.it->settle();
    REQUIRE(r.post(second));
    CHECK(r.it->open());
    r.redis.receipts[0]->settle(reply::integer(1));
    CHECK(r.it->open());
    r.redis.receipts[1]->settle(reply::integer(1));
    CHECK_FALSE(r.it->open());
    r.it->retire();
}

TEST_CASE("a release that is open when its lock goes is asked for by the keeper, until it is done") {
    release r;
    r.redis.inner.then(reply::no_answer(errc::no_reply, "x"));
    r.redis.inner.then(reply::integer(1));
    REQUIRE(r.post());
    r.it->retire();
    r.it.reset();
    CHECK(r.redis.inner.commands().empty());
    manual_clock::advance(answer_time);
    CHECK(r.asked(1).size() == 1);
    REQUIRE(eventually([&] {
        manual_clock::advance(10ms);
        return r.redis.inner.commands().size() == 2;
    }));
    CHECK(r.asked(2) == words{release_by(first), release_by(first)});
}

TEST_CASE("a release that is open when its lock goes, and answered then, is not asked for") {
    release r;
    REQUIRE(r.post());
    r.it->retire();
    r.it.reset();
    r.redis.receipts[0]->settle(reply::integer(1));
    manual_clock::advance(answer_time);
    CHECK(eventually([&] { return r.redis.receipts[0].use_count() == 1; }));  // the keeper has done with it
    CHECK(r.redis.inner.commands().empty());
}
