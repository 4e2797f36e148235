// A wait in line whose connection falls silent: the other end is gone, and nobody says so.
#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include <distlock/distlock.hpp>
#include <distlock/hiredis.hpp>
#include <distlock/testing.hpp>

#include "catch.hpp"
#include "support/lock_on_server.hpp"
#include "support/slack.hpp"
#include "support/stepping_proxy.hpp"
#include "support/waiting.hpp"

using namespace std::chrono_literals;
using distlock::hiredis_connection;
using distlock::testing::fault_proxy;
using distlock::testing::redis_server;

namespace {

fault_proxy::which waits() {
    return [](const fault_proxy::words& request) { return !request.empty() && request[0] == "BLPOP"; };
}

}  // namespace

TEST_CASE("a wait that the server never heard of, or whose answer is lost, does not last for ever") {
    for (const auto where : {fault_proxy::part::request, fault_proxy::part::reply}) {
        redis_server server;
        fault_proxy proxy(server.socket_path());
        hiredis_connection near(server.uri());
        hiredis_connection far(proxy.uri());
        distlock::mutex theirs(near, "orders", {.lease = 2s, .renew = false});
        distlock::mutex ours(far, "orders", {.lease = 2s});
        theirs.lock();
        proxy.cut({.of = where, .command = waits(), .how = fault_proxy::ending::silence});
        const auto began = std::chrono::steady_clock::now();
        REQUIRE(ours.try_lock_for(60s));
        // Their lease ends, and ours where the grant was lost; the wait is found to be none every three seconds.
        CHECK(std::chrono::steady_clock::now() - began < 20s);
        CHECK(proxy.cuts().size() == 1);
        ours.unlock();
    }
}

// To ask whether the server knows of the wait took a whole command's time-out, whatever was left of the wait.
TEST_CASE("a wait over a link that fell silent ends at its deadline") {
    redis_server server;
    fault_proxy proxy(server.socket_path());
    hiredis_connection redis(proxy.uri("?command_timeout=3s"));
    CHECK(redis.execute({"SET", "a", "1"}).is_status("OK"));
    proxy.hold(fault_proxy::part::reply);
    const auto deadline = distlock::clock::now() + 3200ms;  // the question comes after three seconds
    redis.wait({"BLPOP", "orders", "0"}, deadline, {});
    const auto late =
        std::chrono::duration_cast<std::chrono::milliseconds>(distlock::clock::now() - deadline);
    CHECK(late <= 100ms + slack);
}

namespace {

// A wait of 50 ms over a link on which replies are held.
struct given_up {
    given_up() {
        CHECK(redis.execute({"SET", "a", "1"}).is_status("OK"));
        CHECK(redis.wait({"BLPOP", "orders", "0.01"}, distlock::clock::time_point::max(), {}).answered());
        proxy.hold(fault_proxy::part::reply);
        const auto answer = redis.wait({"BLPOP", "orders", "0"}, distlock::clock::now() + 50ms, {}, late);
        CHECK_FALSE(answer.answered());
        CHECK(late != nullptr);
    }
    std::optional<distlock::reply> heard() {
        std::optional<distlock::reply> answer;
        eventually([&] {
            redis.collect();
            return (answer = late->answer()).has_value();
        });
        return answer;
    }
    redis_server server;
    fault_proxy proxy{server.socket_path()};
    hiredis_connection redis{proxy.uri()};
    std::shared_ptr<distlock::receipt> late;
};

}  // namespace

TEST_CASE("what comes after a wait was given up is heard") {
    given_up it;
    it.proxy.let_go();
    const auto answer = it.heard();
    REQUIRE(answer);
    CHECK(answer->is(distlock::reply_kind::nil));
    CHECK(it.redis.execute({"GET", "a"}).is_string("1"));
}

TEST_CASE("a wait whose end is answered a moment later is not late") {
    // Its answer was waited for once more, and its place in line kept for five seconds.
    redis_server server;
    stepping_proxy proxy(server.socket_path());
    hiredis_connection redis(proxy.uri());
    CHECK(redis.wait({"BLPOP", "orders", "0.01"}, distlock::clock::time_point::max(), {}).answered());
    proxy.at("BLPOP reply", [] {
        const auto until = distlock::clock::now() + 12ms;
        CHECK(eventually([&] { return distlock::clock::now() >= until; }));
    });
    std::shared_ptr<distlock::receipt> late;
    redis.wait({"BLPOP", "orders", "0"}, distlock::clock::now() + 50ms, {}, late);
    CHECK_FALSE(late);
}

TEST_CASE("a wait that could not be ended on the server keeps no other command waiting") {
    redis_server server;
    fault_proxy proxy(server.socket_path());
    hiredis_connection redis(proxy.uri());
    CHECK(redis.wait({"BLPOP", "orders", "0.01"}, distlock::clock::time_point::max(), {}).answered());
    const auto ending = [](const fault_proxy::words& w) { return w.size() > 1 && w[1] == "UNBLOCK"; };
    proxy.cut({.command = ending, .how = fault_proxy::ending::silence});
    std::shared_ptr<distlock::receipt> late;
    redis.wait({"BLPOP", "orders", "0"}, distlock::clock::now() + 50ms, {}, late);
    REQUIRE(late);
    for (int i = 0; i < 3; ++i) CHECK(redis.execute({"SET", "a", "1"}).is_status("OK"));
    server.command({"RPUSH", "orders", "offer"});
    CHECK(eventually([&] {
        redis.collect();
        const auto answer = late->answer();
        return answer && answer->elements().size() == 2 && answer->elements()[1].is_string("offer");
    }));
}

TEST_CASE(
    "who does not hear of a wait that was given up is told so after two seconds, and leaves no socket") {
    const auto began = distlock::clock::now();
    given_up it;
    const auto answer = it.heard();
    REQUIRE(answer);
    CHECK_FALSE(answer->answered());
    CHECK(distlock::clock::now() - began > 2s);
    CHECK(distlock::clock::now() - began < 2s + 2 * slack);
    CHECK(eventually([&] { return lock_on_server(it.server, "orders").blocked() == 0; }));
}

TEST_CASE("who may not end a wait any more leaves the line by closing the socket") {
    redis_server server;
    server.command({"ACL", "SETUSER", "worker", "on", ">secret", "~*", "+@all"});
    hiredis_connection redis("unix://worker:secret@" + server.socket_path());
    CHECK(redis.wait({"BLPOP", "orders", "0.01"}, distlock::clock::time_point::max(), {}).answered());
    server.command({"ACL", "SETUSER", "worker", "-client|unblock"});
    std::shared_ptr<distlock::receipt> late;
    redis.wait({"BLPOP", "orders", "0"}, distlock::clock::now() + 50ms, {}, late);
    CHECK_FALSE(late);
    CHECK(eventually([&] { return lock_on_server(server, "orders").blocked() == 0; }));
}
