// What a script counts that publishes on a Cluster, or on a server with replicas: the
// subscribers of its own server.
#include <memory>
#include <string>

#include <distlock/testing.hpp>
#include <distlock/wire/handoff.hpp>
#include <distlock/wire/reply.hpp>

#include "support/catch.hpp"
#include "support/cluster.hpp"
#include "support/handoff_lock.hpp"
#include "support/redis_link.hpp"
#include "support/waiting.hpp"

namespace handoff_cluster_tests {

using namespace handoff_test;
using distlock::channel_kind;
using distlock::handoff;

namespace {

struct waiter {
    waiter(redis_link& link, const std::string& name, const std::string& channel, channel_kind kind)
        : redis(link), dialect(name, all, channel, kind) {}
    acquire_outcome enter() { return dialect.read_enter(redis.ask(dialect.enter(owner, enter_mode::join))); }
    reply release() { return redis.ask(dialect.release(owner)); }

    redis_link& redis;
    handoff dialect;
    token owner = token::generate();
};

// Whether a waiter that is subscribed on `where` is handed the lock, and is told.
struct result {
    bool handed;
    bool told;
};
result hand_over(const redis_server& home, const redis_server& where, const std::string& name,
                 channel_kind kind) {
    const std::string channel = "{" + name + "}:distlock:process";
    redis_link redis(home.socket_path());
    redis_link messages(where.socket_path());
    messages.subscribe(channel, kind == channel_kind::sharded);
    waiter first(redis, name, channel, kind);
    waiter second(redis, name, channel, kind);
    CHECK(first.enter().what == got::granted);
    CHECK(second.enter().what == got::busy);
    const auto released = first.release();
    const bool handed = released.is_integer(2);
    CHECK((handed || released.is_integer(1)));
    // What was published before this has come before it.
    redis.ask({"PUBLISH", channel, "the end"});
    if (kind == channel_kind::sharded) redis.ask({"SPUBLISH", channel, "the end"});
    const auto text = messages.message();
    const auto heard = handoff::read_message(text.value_or(""));
    const bool told = heard && heard->owner == second.owner && handoff::name_in(*text) == name;
    if (handed) CHECK(second.release().is_integer(1));
    return {handed, told};
}

const redis_server& another_than(const redis_server& home) {
    for (const auto& node : three_masters().nodes()) {
        if (node.get() != &home) return *node;
    }
    return home;
}

}  // namespace

TEST_CASE("on a Cluster, a waiter that is subscribed on the lock's own node hears of the lock") {
    for (const std::string name : {"orders", "x", "lock:17"}) {
        const auto& home = three_masters().owner_of(name);
        for (const auto kind : {channel_kind::ordinary, channel_kind::sharded}) {
            const auto done = hand_over(home, home, name, kind);
            CHECK(done.handed);
            CHECK(done.told);
        }
    }
}

TEST_CASE(
    "on a Cluster, a waiter that is subscribed on another node is passed over, and is not told that it "
    "owns") {
    const auto& home = three_masters().owner_of("orders");
    const auto done = hand_over(home, another_than(home), "orders", channel_kind::ordinary);
    CHECK_FALSE(done.handed);
    CHECK_FALSE(done.told);
}

TEST_CASE("a waiter that is subscribed on a replica is passed over, and is not told that it owns") {
    const redis_server master({.tcp = true});
    const redis_server replica;
    replica.command({"REPLICAOF", "127.0.0.1", std::to_string(master.port())});
    REQUIRE(eventually([&] {
        return replica.command({"INFO", "replication"}).find("master_link_status:up") != std::string::npos;
    }));
    const auto done = hand_over(master, replica, "orders", channel_kind::ordinary);
    CHECK_FALSE(done.handed);
    CHECK_FALSE(done.told);
}

TEST_CASE("on a Cluster, nobody hears of a lock on a sharded channel of another slot") {
    const std::string name = "orders";
    const auto& home = three_masters().owner_of(name);
    std::string channel = "elsewhere";
    while (&three_masters().owner_of(channel) == &home) channel += "x";
    redis_link redis(home.socket_path());
    waiter first(redis, name, channel, channel_kind::sharded);
    waiter second(redis, name, channel, channel_kind::sharded);
    CHECK(first.enter().what == got::granted);
    CHECK(second.enter().what == got::busy);
    CHECK(first.release().is_integer(1));
    CHECK(second.enter().what == got::granted);
    CHECK(second.release().is_integer(1));
}

}  // namespace handoff_cluster_tests
