// The way of a command through a Cluster, without a Cluster.
#include <algorithm>
#include <chrono>
#include <optional>
#include <string>

#include <distlock/base/clock.hpp>
#include <distlock/base/error.hpp>
#include <distlock/net/command_route.hpp>
#include <distlock/net/redirection.hpp>
#include <distlock/wire/reply.hpp>

#include "support/catch.hpp"

namespace command_route_tests {

using namespace std::chrono_literals;
using distlock::clock;
using distlock::errc;
using distlock::node_address;
using distlock::reply;
using distlock::detail::command_route;
using distlock::detail::concluded;
using kind = distlock::detail::command_route::kind;

namespace {

const node_address a{"a", 7000};
const node_address b{"b", 7001};
const clock::time_point now = clock::time_point{} + 1h;

const reply moved_to_b = reply::error("MOVED 7 b:7001");

command_route::step first(const reply& answer) { return command_route().on_answer(answer, a, now); }

}  // namespace

TEST_CASE("a node's answer is the caller's, errors of the command too") {
    for (const reply& answer :
         {reply::nil(), reply::integer(1), reply::status("OK"), reply::array({}), reply::error("WRONGTYPE x"),
          reply::error("NOSCRIPT x"), reply::error("LOADING x"), reply::error("OOM x"),
          reply::error("CROSSSLOT x"), reply::error("MOVED nonsense")}) {
        const auto next = first(answer);
        CHECK(next.what == kind::done);
        CHECK_FALSE(next.invalidates);
    }
}

TEST_CASE("MOVED leads to its node, which has the slot from now on; the map is wrong") {
    const auto next = first(moved_to_b);
    CHECK(next.what == kind::follow);
    CHECK(next.to == b);
    CHECK(next.moved == 7);
    CHECK_FALSE(next.asking);
    CHECK(next.invalidates);
}

TEST_CASE("ASK leads to its node once; the map is right") {
    const auto next = first(reply::error("ASK 7 b:7001"));
    CHECK(next.what == kind::follow);
    CHECK(next.to == b);
    CHECK(next.asking);
    CHECK_FALSE(next.moved);
    CHECK_FALSE(next.invalidates);
}

TEST_CASE("MOVED to a node without an address needs a new map") {
    const auto next = first(reply::error("MOVED 7 ?:7001"));
    CHECK(next.what == kind::reroute);
    CHECK(next.invalidates);
    CHECK_FALSE(next.moved);
}

TEST_CASE("a command that was not sent may be sent elsewhere, one that was not answered may not") {
    for (const errc cause : {errc::unreachable, errc::no_reply, errc::unavailable, errc::tls_failed}) {
        const auto next = first(reply::not_sent(cause, "connect: refused"));
        CHECK(next.what == kind::reroute);
        CHECK(next.invalidates);
    }
    const auto silent = first(reply::no_answer(errc::no_reply, "no reply in time"));
    CHECK(silent.what == kind::done);
    CHECK(silent.invalidates);
}

TEST_CASE("a caller that stopped is not sent elsewhere, and says nothing of the map") {
    for (const reply& answer :
         {reply::not_sent(errc::cancelled, "stopped"), reply::not_sent(errc::wrong_process, ""),
          reply::no_answer(errc::cancelled, "stopped")}) {
        const auto next = first(answer);
        CHECK(next.what == kind::done);
        CHECK_FALSE(next.invalidates);
    }
}

TEST_CASE("a master that became a replica needs a new map") {
    for (const char* const text : {"READONLY You can't write against a read only replica.", "MASTERDOWN x"}) {
        const auto next = first(reply::error(text));
        CHECK(next.what == kind::reroute);
        CHECK(next.invalidates);
    }
}

TEST_CASE("a slot that is between two nodes is waited for, longer each time; in the end the caller is told") {
    command_route route;
    clock::duration last{};
    for (int i = 0; i < command_route::max_hops; ++i) {
        const auto next = route.on_answer(reply::error("TRYAGAIN Multiple keys request"), a, now);
        CHECK(next.what == kind::wait);
        CHECK(next.at - now >= std::max<clock::duration>(last, 10ms));
        CHECK(next.at - now <= 80ms);
        CHECK_FALSE(next.invalidates);
        last = next.at - now;
    }
    CHECK(route.on_answer(reply::error("TRYAGAIN Multiple keys request"), a, now).what == kind::done);
}

TEST_CASE("a slot without a node is waited for with a new map") {
    const auto next = first(reply::error("CLUSTERDOWN Hash slot not served"));
    CHECK(next.what == kind::wait);
    CHECK(next.invalidates);
}

TEST_CASE("after five redirections a command is lost, and was not executed") {
    command_route route;
    for (int i = 0; i < 5; ++i) {
        CHECK(route.on_answer(reply::error(i % 2 == 0 ? "MOVED 7 b:7001" : "ASK 7 a:7000"), a, now).what ==
              kind::follow);
    }
    const auto last = route.on_answer(moved_to_b, a, now);
    CHECK(last.what == kind::done);
    CHECK(last.invalidates);
    const auto told = concluded(moved_to_b, a);
    CHECK(told.is(distlock::reply_kind::not_sent));
    CHECK(told.cause() == errc::unavailable);
    CHECK_THAT(told.text(), contains_text("MOVED 7 b:7001"));
}

TEST_CASE("an answer that is no redirection is concluded as it is") {
    for (const reply& answer :
         {reply::integer(1), reply::error("TRYAGAIN x"), reply::error("MOVED nonsense"),
          reply::no_answer(errc::no_reply, "x"), reply::not_sent(errc::unreachable, "x")}) {
        const auto told = concluded(answer, a);
        CHECK(told.kind() == answer.kind());
        CHECK(told.text() == answer.text());
    }
}

TEST_CASE("all ways of being sent again count together, and an answer counts after the fifth, too") {
    command_route route;
    CHECK(route.on_answer(moved_to_b, a, now).what == kind::follow);
    CHECK(route.on_answer(reply::not_sent(errc::unreachable, ""), b, now).what == kind::reroute);
    CHECK(route.on_answer(reply::error("CLUSTERDOWN x"), a, now).what == kind::wait);
    CHECK(route.on_answer(reply::error("READONLY x"), a, now).what == kind::reroute);
    CHECK(route.on_answer(moved_to_b, a, now).what == kind::follow);
    SECTION("the answer") {
        const auto next = route.on_answer(reply::integer(1), b, now);
        CHECK(next.what == kind::done);
        CHECK_FALSE(next.invalidates);
    }
    SECTION("no answer") {
        const auto next = route.on_answer(reply::not_sent(errc::unreachable, ""), b, now);
        CHECK(next.what == kind::done);
        CHECK(next.invalidates);
    }
}

}  // namespace command_route_tests
