// Grants that replicas have acknowledged: real servers, whose replicas hang, go, and take over.
#include <array>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <stop_token>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include <distlock/distlock.hpp>
#include <distlock/hiredis.hpp>
#include <distlock/testing.hpp>
#include <distlock/wire/acknowledgement.hpp>
#include <distlock/wire/plain.hpp>

#include "support/catch.hpp"
#include "support/cluster.hpp"
#include "support/fake_sentinel.hpp"
#include "support/fake_server.hpp"
#include "support/fresh_name.hpp"
#include "support/lease_observers.hpp"
#include "support/minimal_connection.hpp"
#include "support/replicated_server.hpp"
#include "support/sentinels.hpp"
#include "support/server_counts.hpp"
#include "support/stepping_proxy.hpp"
#include "support/timing_tolerance.hpp"
#include "support/waiting.hpp"

namespace replicas_tests {

namespace {

using namespace std::chrono_literals;
using distlock::command;
using distlock::errc;
using distlock::hiredis_connection;
using distlock::lock_options;
using distlock::reply;
using distlock::testing::redis_server;
using clk = distlock::clock;
using lock = distlock::mutex<hiredis_connection>;

const lock_options one_replica{.replicas = 1};
// Where the replica answers, however late the machine is.
constexpr std::chrono::seconds patient{5};
// Where it does not, the server says so, however late the machine is.
const std::string slow_to_give_up = "?command_timeout=2s";
const lock_options patient_replica{.replicas = 1, .replica_timeout = patient};

/// One pair of servers for all tests that leave them as they were.
replicated_server& pair_of_servers() {
    static replicated_server servers;
    REQUIRE(servers.replicate());  // a replica that stood still takes a moment
    return servers;
}

/// The replica stands still as long as it lives.
struct paused {
    explicit paused(redis_server& which) : server(which) { server.pause(); }
    ~paused() { server.resume(); }
    paused(const paused&) = delete;
    paused& operator=(const paused&) = delete;
    redis_server& server;
};

bool there(const redis_server& server, const std::string& key) {
    return server.command({"EXISTS", key}) == "1";
}
bool gone(const redis_server& server, const std::string& key) {
    return eventually([&] { return server.command({"EXISTS", key}) == "0"; });
}
bool waits(const redis_server& server, const std::string& name, const char* count) {
    return eventually([&] { return server.command({"ZCARD", "{" + name + "}:distlock:queue"}) == count; });
}

// Of a short lease the wait for replicas is short, too.
void take(lock& m) {
    REQUIRE(eventually([&] {
        std::error_code ec;
        return m.try_lock(ec);
    }));
}

std::string why_not(lock& m) {
    try {
        m.lock();
    } catch (const distlock::error& e) {
        CHECK(e.code() == errc::not_replicated);
        return e.what();
    }
    return "it was granted";
}

}  // namespace

TEST_CASE(
    "WAIT on a socket that wrote nothing is answered at once, though no replica has what others wrote") {
    auto& servers = pair_of_servers();
    const paused hangs(servers.replica());
    const auto name = fresh_name();
    hiredis_connection writes(servers.master().uri());
    REQUIRE(writes.execute({"SET", name, "x", "PX", "30000"}).is_status("OK"));
    hiredis_connection asks(servers.master().uri());
    CHECK(asks.execute({"WAIT", "1", "100"}).is_integer(1));  // the trap
    const command write{{"SET", name, "y", "PX", "30000"}, name};
    const distlock::replica_wait wait(1, 100ms);
    CHECK(asks.execute_acknowledged(write, wait.behind(write)).replicated.is_integer(0));
}

TEST_CASE("a lease counts from before the write, however long its replicas take") {
    auto& servers = pair_of_servers();
    const auto name = fresh_name();
    hiredis_connection redis(servers.master().uri());
    lock m(redis, name, {.lease = 30s, .fencing = true, .replicas = 1, .replica_timeout = patient});
    auto hangs = std::make_unique<paused>(servers.replica());
    const auto asked = clk::now();
    std::jthread takes([&] { m.lock(); });
    REQUIRE(eventually([&] { return there(servers.master(), name); }));
    const auto written = clk::now();
    REQUIRE(eventually([&] { return clk::now() > written + 1s; }));
    hangs.reset();
    takes.join();
    CHECK(m.valid_until() > asked);
    CHECK(m.valid_until() <= written + 30s);
    m.unlock();
}

TEST_CASE("a lock that is granted is on the replica, whatever way it was taken") {
    auto& servers = pair_of_servers();
    hiredis_connection redis(servers.master().uri());
    for (const bool fencing : {false, true}) {
        for (const bool renew : {false, true}) {
            for (const auto release : {distlock::posted, distlock::confirmed}) {
                const lock_options options{.renew = renew,
                                           .fencing = fencing,
                                           .release = release,
                                           .replicas = 1,
                                           .replica_timeout = patient};
                const auto name = fresh_name();
                lock m(redis, name, options);
                m.lock();
                CHECK(there(servers.replica(), name));
                m.unlock();
                CHECK(gone(servers.master(), name));
                REQUIRE(m.try_lock());
                CHECK(there(servers.replica(), name));
                m.unlock();
                REQUIRE(m.try_lock_for(1s));
                CHECK(there(servers.replica(), name));
                m.unlock();
                const std::lock_guard guard(m);
                CHECK(there(servers.replica(), name));
            }
        }
    }
}

TEST_CASE("a lock that too few replicas acknowledge is not granted, and nothing is left of it") {
    auto& servers = pair_of_servers();
    hiredis_connection redis(servers.master().uri() + slow_to_give_up);
    for (const bool fencing : {false, true}) {
        const auto name = fresh_name();
        lock m(redis, name, {.fencing = fencing, .replicas = 1});
        {
            const paused hangs(servers.replica());
            std::string why;
            CHECK(time_of([&] { why = why_not(m); }) < 300ms + timing_tolerance);
            CHECK_THAT(why, contains_text(name) && contains_text("0 of 1 replicas have it") &&
                                contains_text("too few replicas"));
            CHECK(gone(servers.master(), name));
            std::error_code ec;
            CHECK_FALSE(m.try_lock(ec));
            CHECK(ec == errc::not_replicated);
            CHECK(gone(servers.master(), name));
            CHECK_FALSE(m.try_lock_for(10s, ec));
            CHECK(ec == errc::not_replicated);
            CHECK(gone(servers.master(), name));
        }
        CHECK(servers.replicate());
        take(m);
        CHECK(there(servers.replica(), name));
        m.unlock();
    }
}

TEST_CASE("two replicas are waited for when two are asked for") {
    const replicated_server servers(2);
    hiredis_connection redis(servers.master().uri() + slow_to_give_up);
    lock both(redis, fresh_name(), {.replicas = 2, .replica_timeout = patient});
    lock one(redis, fresh_name(), patient_replica);
    both.lock();
    CHECK(there(servers.replica(0), both.name()));
    CHECK(there(servers.replica(1), both.name()));
    both.unlock();
    const paused hangs(servers.replica(1));
    one.lock();
    one.unlock();
    lock in_time(redis, both.name(), {.replicas = 2, .replica_timeout = 1s});
    CHECK_THAT(why_not(in_time), contains_text("1 of 2 replicas have it"));
}

TEST_CASE("a server without replicas grants nothing that a replica is to have") {
    const redis_server alone;
    hiredis_connection redis(alone.uri() + slow_to_give_up);
    lock m(redis, "orders", one_replica);
    CHECK_THAT(why_not(m), contains_text("0 of 1 replicas have it"));
    CHECK(gone(alone, "orders"));
}

TEST_CASE("a lock that is handed over is on the replica before its new owner has it") {
    auto& servers = pair_of_servers();
    hiredis_connection first(servers.master().uri());
    hiredis_connection second(servers.master().uri());
    const auto name = fresh_name();
    lock owner(first, name, patient_replica);
    lock next(second, name, patient_replica);
    owner.lock();
    bool replicated = false;
    {
        const std::jthread waiter([&] {
            next.lock();
            replicated = servers.replica().command({"GET", name}) == servers.master().command({"GET", name});
            next.unlock();
        });
        REQUIRE(waits(servers.master(), name, "1"));
        owner.unlock();
    }
    CHECK(replicated);
}

TEST_CASE("a lock that is handed over while the replica hangs goes on to the next, and is free at the end") {
    auto& servers = pair_of_servers();
    const auto name = fresh_name();
    hiredis_connection first(servers.master().uri());
    lock owner(first, name, patient_replica);
    owner.lock();
    std::array<std::error_code, 2> said;
    {
        std::vector<std::jthread> waiters;
        for (auto& ec : said) {
            waiters.emplace_back([&servers, &ec, name] {
                hiredis_connection mine(servers.master().uri() + slow_to_give_up);
                lock next(mine, name, one_replica);
                if (next.try_lock_for(20s, ec)) next.unlock();
            });
        }
        REQUIRE(waits(servers.master(), name, "2"));
        const paused hangs(servers.replica());
        owner.unlock();
        waiters.clear();
    }
    CHECK(said[0] == errc::not_replicated);
    CHECK(said[1] == errc::not_replicated);
    CHECK(gone(servers.master(), name));
    CHECK(waits(servers.master(), name, "0"));
}

TEST_CASE(
    "a renewal that no replica has does not count: the lock is lost when the last one that counted ends") {
    auto& servers = pair_of_servers();
    hiredis_connection redis(servers.master().uri());
    const auto seen = std::make_shared<counting_observer>();
    lock m(redis, fresh_name(), {.lease = brief_lease, .replicas = 1}, seen);
    take(m);
    const paused hangs(servers.replica());
    const auto until = m.valid_until();
    const auto lost = m.lost();
    CHECK(eventually([&] { return lost.stop_requested(); }));
    CHECK(clk::now() >= until - 1ms);
    CHECK(clk::now() < until + 200ms + timing_tolerance);
    CHECK(seen->risks >= 1);
}

TEST_CASE("a renewal is tried again until a replica has it") {
    auto& servers = pair_of_servers();
    hiredis_connection redis(servers.master().uri());
    const auto seen = std::make_shared<counting_observer>();
    lock m(redis, fresh_name(), {.lease = 2s, .replicas = 1}, seen);
    take(m);
    const auto until = m.valid_until();
    {
        const paused hangs(servers.replica());
        CHECK(eventually([&] { return seen->risks >= 1; }));
        CHECK(m.valid_until() == until);
    }
    CHECK(eventually([&] { return m.valid_until() > until; }));
    CHECK(m.owns_lock());
    CHECK(m.unlock() == distlock::release_outcome::posted);
}

TEST_CASE("a thousand writes that are sent together wait for the replica together") {
    auto& servers = pair_of_servers();
    hiredis_connection redis(servers.master().uri());
    std::vector<std::string> names;
    for (int i = 0; i < 1000; ++i) names.push_back(fresh_name());
    const distlock::replica_wait wait(1, 1s);
    std::vector<command> commands;
    for (const auto& name : names) {
        commands.push_back(command({"SET", name, "x", "PX", "30000"}, name));
        commands.push_back(wait.behind(commands.back()));
    }
    std::vector<reply> replies(commands.size());
    const auto before = calls_at(servers.master(), "wait");
    distlock::execute_all(redis, commands, replies);
    for (std::size_t i = 0; i < replies.size(); i += 2) {
        REQUIRE(replies[i].is_status("OK"));
        REQUIRE(replies[i + 1].is_integer(1));
    }
    CHECK(calls_at(servers.master(), "wait") - before == 1);
}

TEST_CASE("a server that has lost the scripts is sent them, with the wait for replicas behind") {
    auto& servers = pair_of_servers();
    hiredis_connection redis(servers.master().uri());
    lock m(redis, fresh_name(), {.fencing = true, .replicas = 1, .replica_timeout = patient});
    servers.master().command({"SCRIPT", "FLUSH"});
    m.lock();
    CHECK(there(servers.replica(), m.name()));
    m.unlock();
    CHECK(gone(servers.master(), m.name()));
    const paused hangs(servers.replica());
    servers.master().command({"SCRIPT", "FLUSH"});
    lock in_time(redis, m.name(), {.fencing = true, .replicas = 1});
    CHECK_THAT(why_not(in_time), contains_text("0 of 1"));
}

TEST_CASE("a stop request ends the wait for replicas at once, and nothing is left") {
    auto& servers = pair_of_servers();
    hiredis_connection redis(servers.master().uri() + "?command_timeout=10s");
    lock m(redis, fresh_name(), {.lease = 60s, .replicas = 1, .replica_timeout = patient});
    const paused hangs(servers.replica());
    std::stop_source stop;
    std::error_code ec;
    clk::time_point asked{};
    std::jthread stopper([&] {
        static_cast<void>(eventually([&] { return there(servers.master(), m.name()); }));
        asked = clk::now();
        stop.request_stop();
    });
    CHECK_FALSE(m.try_lock_for(20s, stop.get_token(), ec));
    const auto ended = clk::now();
    stopper.join();
    CHECK(ec == errc::cancelled);
    CHECK(ended - asked < timing_tolerance);
    CHECK(gone(servers.master(), m.name()));
}

TEST_CASE("a wait for replicas has its time beside the command time-out") {
    const fake_server late([](fake_server::peer& client) {
        while (const auto asked = client.next_command()) {
            const bool waits = asked->front() == "WAIT";
            if (waits && !client.nap(1200ms)) return;
            if (!client.send(waits ? ":1\r\n" : "+OK\r\n")) return;
        }
    });
    hiredis_connection redis(late.uri("", "?command_timeout=1s"));
    const distlock::replica_wait one(1, 1s);
    const command write{"SET", "orders", "token"};
    const auto both = redis.execute_acknowledged(write, one.behind(write));
    CHECK(both.answer.is_status("OK"));
    CHECK(both.replicated.is_integer(1));
}

TEST_CASE("a call that waits for replicas is back by its deadline") {
    auto& servers = pair_of_servers();
    hiredis_connection redis(servers.master().uri() + "?command_timeout=10s");
    lock m(redis, fresh_name(), {.lease = 60s, .replicas = 1, .replica_timeout = patient});
    const paused hangs(servers.replica());
    std::error_code ec;
    CHECK(time_of([&] { CHECK_FALSE(m.try_lock_for(1s, ec)); }) < 1s + timing_tolerance);
    CHECK(ec == errc::not_replicated);
    CHECK(gone(servers.master(), m.name()));
}

TEST_CASE("a master that is demoted while it waits for its replicas grants nothing") {
    const replicated_server servers;
    hiredis_connection redis(servers.master().uri() + "?command_timeout=10s");
    lock m(redis, "orders", {.lease = 60s, .patience = 100ms, .replicas = 1, .replica_timeout = 5s});
    servers.replica().pause();
    std::error_code ec;
    {
        const std::jthread demotes([&] {
            static_cast<void>(eventually([&] { return there(servers.master(), "orders"); }));
            servers.master().command({"REPLICAOF", "127.0.0.1", std::to_string(servers.replica().port())});
        });
        CHECK_FALSE(m.try_lock_for(5s, ec));
    }
    CHECK(ec);
    CHECK_FALSE(m.owns_lock());
    servers.replica().resume();
}

TEST_CASE(
    "a lock whose replica is stopped or killed between a write and its WAIT is not granted, nothing is left "
    "of it, and the call is back in time") {
    const replicated_server servers;
    redis_server& replica = servers.replica();
    stepping_proxy between(servers.master().socket_path());
    hiredis_connection redis(between.uri("?command_timeout=2s"));  // longer than a step is held
    int refused = 0;
    for (const bool fencing : {false, true}) {
        for (const bool no_script : {false, true}) {
            for (const bool killed : {false, true}) {
                INFO("fencing " << fencing << ", NOSCRIPT " << no_script << ", killed " << killed);
                const auto name = fresh_name();
                lock m(redis, name, {.fencing = fencing, .replicas = 1});
                // The server has the scripts, or not; nothing of what is asked for then is in the way.
                take(m);
                m.unlock();
                REQUIRE(gone(servers.master(), name));
                servers.master().command({"SCRIPT", no_script ? "FLUSH" : "EXISTS", "0"});
                const auto written = [&servers, name] { return there(servers.master(), name); };
                // It must not acknowledge of its own accord before it is killed, as it does once a second.
                if (killed) {
                    for (const char* const write : {"SET request", "try request"})
                        between.at(write, [&replica] { replica.pause(); });
                }
                std::function<void()> at_the_wait = [&, written] {
                    // The WAIT behind a script that the server has not got is for nothing: both come again.
                    if (!written() && !eventually(written, 300ms))
                        return between.at("WAIT request", at_the_wait);
                    killed ? replica.kill() : replica.pause();
                };
                between.at("WAIT request", at_the_wait);
                std::error_code ec;
                bool granted = false;
                const auto took = time_of([&] { granted = m.try_lock(ec); });
                static_cast<void>(between.forget());
                killed ? replica.start() : replica.resume();
                if (granted) {  // it had acknowledged before it was stopped
                    CHECK_FALSE(killed);
                    CHECK(eventually([&] { return there(replica, name); }));
                    m.unlock();
                } else {
                    ++refused;
                    CHECK(ec == errc::not_replicated);
                    CHECK(took < 3s + timing_tolerance);
                }
                CHECK(gone(servers.master(), name));
                REQUIRE(servers.replicate());
                take(m);
                CHECK(there(replica, name));
                m.unlock();
                CHECK(gone(servers.master(), name));
            }
        }
    }
    CHECK(refused >= 5);  // one that is only stopped may have acknowledged before, as it does once a second
}

TEST_CASE(
    "a master that is demoted between a write and its WAIT grants nothing that the next one does not "
    "acknowledge, and nothing is left there") {
    for (const bool fencing : {false, true}) {
        INFO("fencing " << fencing);
        const replicated_server servers;
        redis_server& old = servers.master();
        redis_server& next = servers.replica();
        stepping_proxy between(old.socket_path());
        fake_sentinel watcher(between.port(), 1);
        distlock::sentinel_connection redis(sentinel_uri_of({watcher.port()}));
        distlock::mutex m(redis, "orders", {.fencing = fencing, .replicas = 1});
        const auto granted = [&] {
            std::error_code ec;
            return m.try_lock(ec);
        };
        REQUIRE(eventually(granted));
        m.unlock();
        REQUIRE(gone(old, "orders"));
        // The next master does not get what is written now.
        for (const char* const write : {"SET request", "try request", "join request"}) {
            between.at(write, [&] {
                next.pause();
                old.command({"CLIENT", "KILL", "TYPE", "replica"});
            });
        }
        between.at("WAIT request", [&] {
            static_cast<void>(eventually([&] { return there(old, "orders"); }));
            next.resume();
            next.command({"REPLICAOF", "NO", "ONE"});
            old.command({"REPLICAOF", "127.0.0.1", std::to_string(next.port())});
            watcher.name(next.port(), 2);
        });
        std::error_code ec;
        const auto took = time_of([&] {
            if (!m.try_lock_for(2s, ec)) return;
            CHECK(there(next, "orders"));
            m.unlock();
        });
        CHECK(took < 2s + 400ms + timing_tolerance);
        CHECK(between.forget().contains("WAIT request"));
        CHECK(old.command({"ROLE"}).starts_with("slave"));
        CHECK(gone(next, "orders"));
        REQUIRE(eventually(granted));
        CHECK(there(next, "orders"));
        CHECK(there(old, "orders"));
        m.unlock();
        CHECK(gone(next, "orders"));
    }
}

TEST_CASE("a connection that cannot pipeline is refused where replicas are to have the lock") {
    const redis_server server;
    minimal_connection plain(server.uri());
    const auto refused = [](auto make) {
        try {
            static_cast<void>(make());
            FAIL("it was made");
        } catch (const distlock::error& e) {
            CHECK(e.code() == errc::invalid_option);
            CHECK_THAT(e.what(), contains_text("cannot pipeline"));
        }
    };
    refused(
        [&] { return std::make_unique<distlock::mutex<minimal_connection>>(plain, "orders", one_replica); });
    refused([&] {
        return std::make_unique<distlock::mutex<minimal_connection, distlock::plain>>(plain, "orders",
                                                                                      one_replica);
    });
    refused([&] {
        return std::make_unique<distlock::shared_mutex<minimal_connection>>(plain, "orders", one_replica);
    });
    // A semaphore was made, and refused when a permit was wanted.
    refused([&] {
        return std::make_unique<distlock::counting_semaphore<minimal_connection>>(plain, "pool", 3,
                                                                                  one_replica);
    });
}

TEST_CASE("on a Cluster the replicas of the lock's own node count") {
    const cluster nodes(true);
    distlock::cluster_connection redis(nodes.uri("", slow_to_give_up));
    using locker = distlock::mutex<distlock::cluster_connection>;
    std::vector<std::unique_ptr<locker>> locks;
    const lock_options in_time{.replicas = 1, .replica_timeout = 1s};
    for (int i = 0; i < 9; ++i)
        locks.push_back(std::make_unique<locker>(redis, "orders:" + std::to_string(i), in_time));
    const auto& silent = *nodes.nodes()[0];
    auto& replica = *nodes.nodes()[cluster::masters];
    for (auto& m : locks) {
        INFO(m->name());
        REQUIRE(eventually([&] {  // a replica acknowledges nothing for a second after it was connected
            std::error_code ec;
            return m->try_lock(ec);
        }));
        m->unlock();
    }
    const paused hangs(replica);
    for (auto& m : locks) {
        std::error_code ec;
        const bool here = &nodes.owner_of(m->name()) == &silent;
        CHECK(m->try_lock(ec) != here);
        CHECK(ec == (here ? std::error_code(errc::not_replicated) : std::error_code()));
        if (!here) m->unlock();
        CHECK(gone(nodes.owner_of(m->name()), m->name()));
    }
}

TEST_CASE("a granted lock is on the replica that takes over, and is renewed there") {
    const sentinels group;
    distlock::sentinel_connection redis(group.uri());
    using locker = distlock::mutex<distlock::sentinel_connection>;
    const lock_options both{.lease = 60s, .patience = 30s, .replicas = 2, .replica_timeout = 1s};
    std::vector<std::unique_ptr<locker>> held;
    for (int i = 0; i < 20; ++i) {
        held.push_back(std::make_unique<locker>(redis, "orders:" + std::to_string(i), both));
        held.back()->lock();
    }
    auto& old = group.master();
    old.kill();
    REQUIRE(eventually([&] { return redis.execute({"PING"}).is_status("PONG"); }, 30s));
    // It may have been told by another Sentinel than the one that is asked here.
    REQUIRE(eventually([&] { return group.name_another_than(old); }, 30s));
    for (auto& m : held) {
        CHECK(m->owns_lock());
        CHECK(there(group.master(), m->name()));
        m->unlock();
        CHECK(gone(group.master(), m->name()));
    }
}

}  // namespace replicas_tests
