// Locks on a real Cluster of three masters, through connections to each of them.
#include "support/cluster.hpp"

#include <chrono>
#include <string>
#include <system_error>
#include <thread>

#include <distlock/distlock.hpp>
#include <distlock/hiredis.hpp>
#include <distlock/interop.hpp>
#include <distlock/testing.hpp>

#include "support/catch.hpp"
#include "support/waiting.hpp"

namespace cluster_tests {

using namespace std::chrono_literals;
using distlock::errc;
using distlock::hiredis_connection;
using distlock::release_outcome;
using clk = distlock::clock;

TEMPLATE_TEST_CASE("on a Cluster a lock works through its node, whatever it is called, with all it may have",
                   "", distlock::handoff, distlock::plain, distlock::getset, distlock::redisson,
                   distlock::redigo, distlock::go_zero) {
    using lock = distlock::mutex<hiredis_connection, TestType>;
    for (const std::string name : {"orders", "{tag}orders", "a{t}b", "orders:42", "x"}) {
        hiredis_connection anywhere{three_masters().nodes()[0]->uri()};
        const std::string key = lock(anywhere, name).name();
        hiredis_connection redis{three_masters().owner_of(key).uri()};
        lock m{redis, name, {.lease = 500ms, .fencing = true, .release = distlock::confirmed}};
        m.lock();
        const auto fence = m.fencing_token();
        CHECK(fence > 0);
        const auto until = m.valid_until();
        CHECK_FALSE(lock(redis, name).try_lock());
        CHECK(eventually([&] { return m.valid_until() > until; }));
        CHECK(m.unlock() == release_outcome::released);
        m.lock();
        CHECK(m.fencing_token() > fence);
        CHECK(m.unlock() == release_outcome::released);
    }
}

TEMPLATE_TEST_CASE("on a Cluster, another node says at once that it is the wrong one", "", distlock::handoff,
                   distlock::getset, distlock::redisson) {
    const auto& right = three_masters().owner_of("orders");
    for (const auto& node : three_masters().nodes()) {
        if (node.get() == &right) continue;
        hiredis_connection redis{node->uri()};
        distlock::mutex<hiredis_connection, TestType> m{redis, "orders"};
        std::error_code ec;
        const auto start = clk::now();
        CHECK_FALSE(m.lock(ec));
        CHECK(ec == errc::wrong_node);
        CHECK(clk::now() - start < 2s);
    }
}

TEST_CASE("on a Cluster, a waiter for a Redisson lock is woken through its shard") {
    auto& node = three_masters().owner_of("orders");
    hiredis_connection redis{node.uri()};
    hiredis_connection other{node.uri()};
    distlock::mutex<hiredis_connection, distlock::redisson> first{redis, "orders", {.lease = 1h}};
    distlock::mutex<hiredis_connection, distlock::redisson> second{
        other, "orders", {.lease = 1h, .recheck = 1h}};
    first.lock();
    bool had = false;
    std::jthread waiter([&] { had = second.try_lock_for(20s); });
    REQUIRE(eventually([&] {
        return node.command({"PUBSUB", "SHARDNUMSUB", "redisson_lock__channel:{orders}"}).ends_with("\n1");
    }));
    first.unlock();
    waiter.join();
    CHECK(had);
}

}  // namespace cluster_tests
