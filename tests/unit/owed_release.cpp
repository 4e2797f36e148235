// A release that nobody waits for.
#include <chrono>
#include <memory>
#include <string>
#include <utility>

#include <distlock/base/token.hpp>
#include <distlock/engine/lease_keeper.hpp>
#include <distlock/engine/owed_release.hpp>
#include <distlock/testing/manual_clock.hpp>
#include <distlock/testing/scripted_connection.hpp>
#include <distlock/wire/handoff.hpp>
#include <distlock/wire/handoff_scripts.hpp>
#include <distlock/wire/plain.hpp>

#include "catch.hpp"
#include "waiting.hpp"

namespace {

using distlock::errc;
using distlock::plain;
using distlock::reply;
using distlock::token;
using distlock::engine::debt;
using distlock::testing::manual_clock;
using distlock::testing::scripted_connection;
using namespace std::chrono_literals;
using keeper = distlock::engine::lease_keeper<scripted_connection, manual_clock>;
using release = distlock::engine::owed_release<scripted_connection, plain, manual_clock>;

constexpr distlock::clock::time_point start{1h};
constexpr auto never = distlock::clock::time_point::max();
const token owner = token::generate();

/// A release that is owed for ten seconds.
struct owing {
    std::shared_ptr<debt> owed = std::make_shared<debt>(start + 10s);
    release tested{plain("orders", {}), owner, owed};
    keeper::chore& chore = tested;
};

}  // namespace

TEST_CASE("a debt says until when it may last, and is in the past once it is settled") {
    debt one(start + 5s);
    CHECK(one.gone_by() == start + 5s);
    one.settle();
    CHECK(one.gone_by() < start);
}

TEST_CASE("an owed release compares and deletes by the token it was given") {
    owing o;
    const auto step = o.chore.begin(start);
    REQUIRE(step.send);
    CHECK(step.send->argv()[1] == distlock::detail::plain_release.sha1());
    CHECK(step.send->argv()[3] == "orders");
    CHECK(step.send->argv()[4] == owner.view());
}

TEST_CASE("an owed release is over with the server's word that the key is not ours") {
    for (const int word : {1, 0, -1}) {
        owing o;
        o.chore.begin(start);
        CHECK(o.chore.end(reply::integer(word), start, start) == never);
        CHECK(o.owed->gone_by() < start);
    }
}

TEST_CASE("an owed release that was not done is asked again, in pauses that grow up to 100 ms") {
    for (const auto& trouble :
         {reply::no_answer(errc::no_reply, "x"), reply::not_sent(errc::unreachable, "x"),
          reply::error("LOADING x"), reply::error("NOPERM x"), reply::string("1")}) {
        owing o;
        auto now = start;
        for (const auto pause : {50ms, 100ms, 100ms, 100ms}) {
            REQUIRE(o.chore.begin(now).send);
            const auto next = o.chore.end(trouble, now, now + 5ms);
            CHECK(next == now + 5ms + pause);
            CHECK(o.owed->gone_by() == start + 10s);
            now = next;
        }
    }
}

// A server that came back was asked for a mere delete, since it had been busy before; who waited in line was not served, and
// found the lock by looking, half a lease later.
TEST_CASE(
    "an owed release is asked again whole when the server was busy, and as a mere delete at once when it "
    "lacks memory") {
    using whole = distlock::engine::owed_release<scripted_connection, distlock::handoff, manual_clock>;
    const auto owed = std::make_shared<debt>(start + 10s);
    const auto made = std::make_unique<whole>(distlock::handoff("orders", {}), owner, owed);
    keeper::chore& chore = *made;
    const auto sends = [&](const distlock::script& what) {
        return chore.begin(start).send->argv()[1] == what.sha1();
    };
    for (const char* busy : {"BUSY x", "LOADING x", "MISCONF x", "NOREPLICAS x"}) {
        CHECK(sends(distlock::detail::handoff_pass));
        CHECK(chore.end(reply::error(busy), start, start) > start);
    }
    for (const char* too_much : {"OOM x", "TRYAGAIN x", "NOPERM x", "ERR x"}) {
        CHECK(sends(distlock::detail::handoff_pass));
        CHECK(chore.end(reply::error(too_much), start, start) == start);
        CHECK(sends(distlock::detail::plain_release));
        CHECK(chore.end(reply::error(too_much), start, start) > start);
    }
}

// What got lost may have been that the server lacks the script; then it would be asked by its digest for ever.
TEST_CASE("an owed release whose answer was lost is asked again with its script") {
    owing o;
    CHECK(o.chore.begin(start).send->argv()[0] == "EVALSHA");
    o.chore.end(reply::no_answer(errc::no_reply, "x"), start, start);
    CHECK(o.chore.begin(start).send->argv()[0] == "EVAL");
    o.chore.end(reply::error("OOM x"), start, start);
    CHECK(o.chore.begin(start).send->argv()[0] == "EVALSHA");
}

TEST_CASE("an owed release ends with its lease, whatever the server does") {
    owing o;
    CHECK(o.chore.end(reply::error("NOPERM x"), start, start + 10s - 1ms) == start + 10s);
    CHECK(o.chore.begin(start + 10s - 1ns).send);
    const auto step = o.chore.begin(start + 10s);
    CHECK_FALSE(step.send);
    CHECK(step.next == never);
}

TEST_CASE("an owed release is done in the background, and outlives who owed it") {
    manual_clock::reset();
    scripted_connection redis{reply::error("NOSCRIPT x"), reply::integer(1)};
    const auto owed = std::make_shared<debt>(manual_clock::now() + 10s);
    keeper k(redis);
    k.owe(std::make_unique<release>(plain(std::string("orders"), {}), owner, owed), manual_clock::now());
    CHECK(eventually([&] { return owed->gone_by() < manual_clock::now(); }));
    CHECK(eventually([&] { return owed.use_count() == 1; }));
    CHECK(redis.commands().size() == 2);
}
