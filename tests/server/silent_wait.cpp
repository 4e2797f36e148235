// A wait in line whose connection falls silent: the other end is gone, and nobody says so.
#include <chrono>
#include <string>

#include <distlock/distlock.hpp>
#include <distlock/hiredis.hpp>
#include <distlock/testing.hpp>

#include "catch.hpp"
#include "support/slack.hpp"

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
