// Locks over one connection to a whole Cluster.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include <distlock/diagnose.hpp>
#include <distlock/distlock.hpp>
#include <distlock/hiredis.hpp>
#include <distlock/interop.hpp>
#include <distlock/net/cluster_uri.hpp>
#include <distlock/net/hash_slot.hpp>
#include <distlock/net/uri.hpp>
#include <distlock/testing.hpp>

#include "support/catch.hpp"
#include "support/closed_port.hpp"
#include "support/cluster.hpp"
#include "support/error_of.hpp"
#include "support/fake_cluster.hpp"
#include "support/fake_server.hpp"
#include "support/fresh_name.hpp"
#include "support/lease_observers.hpp"
#include "support/permitted_user.hpp"
#include "support/sanitizers.hpp"
#include "support/timing_tolerance.hpp"
#include "support/waiting.hpp"

namespace cluster_connection_tests {

using namespace std::chrono_literals;
using distlock::cluster_connection;
using distlock::command;
using distlock::errc;
using distlock::hash_slot;
using distlock::release_outcome;
using distlock::reply;
using distlock::reply_kind;
using clk = distlock::clock;
using lock = distlock::mutex<cluster_connection>;

namespace {

const distlock::lock_options by_message_only{.lease = 1h, .recheck = 1h};

/// Returns: a fresh name whose slot the master number `place` had at the beginning.
std::string name_at(std::size_t place, const std::string& stem = "lock") {
    for (;;) {
        auto name = fresh_name(stem);
        if (hash_slot(name) * cluster::masters / distlock::slot_count == place) return name;
    }
}

/// A key for each slot.
std::vector<std::string> a_name_for_each_slot() {
    std::vector<std::string> names(distlock::slot_count);
    std::size_t missing = names.size();
    for (int i = 0; missing > 0; ++i) {
        auto name = "lock:" + std::to_string(i);
        auto& place = names[hash_slot(name)];
        if (!place.empty()) continue;
        place = std::move(name);
        --missing;
    }
    return names;
}

std::size_t queued(const distlock::testing::redis_server& node, const std::string& name) {
    return std::stoul(node.command({"ZCARD", "{" + name + "}:distlock:queue"}));
}

}  // namespace

TEST_CASE("a mutex works over a Cluster, in whatever slot its name is") {
    cluster_connection redis{three_masters().uri()};
    cluster_connection other{three_masters().uri()};
    for (const std::string& name : a_name_for_each_slot()) {
        const auto slot = hash_slot(name);
        if (instrumented && slot % 8 != 0) continue;
        lock mine{redis, name};
        REQUIRE(mine.try_lock());
        if (slot % 16 == 0) REQUIRE_FALSE(lock(other, name).try_lock());
        REQUIRE(mine.unlock() == release_outcome::posted);
    }
}

TEMPLATE_TEST_CASE("over a Cluster a lock of each kind has all it may have", "", distlock::handoff,
                   distlock::plain, distlock::getset, distlock::redisson, distlock::redigo,
                   distlock::go_zero) {
    using lock_of_kind = distlock::mutex<cluster_connection, TestType>;
    cluster_connection redis{three_masters().uri()};
    for (const std::string name : {"orders", "{tag}orders", "a{t}b", "orders:42", "x"}) {
        lock_of_kind m{redis, name, {.lease = 500ms, .fencing = true, .release = distlock::confirmed}};
        m.lock();
        const auto fence = m.fencing_token();
        CHECK(fence > 0);
        const auto until = m.valid_until();
        CHECK_FALSE(lock_of_kind(redis, name).try_lock());
        CHECK(eventually([&] { return m.valid_until() > until; }));
        CHECK(m.unlock() == release_outcome::released);
        m.lock();
        CHECK(m.fencing_token() > fence);
        CHECK(m.unlock() == release_outcome::released);
    }
}

TEST_CASE("waiters of two connections are served in order, and by messages alone, on each node") {
    const auto& nodes = three_masters();
    for (std::size_t place = 0; place < cluster::masters; ++place) {
        const auto name = name_at(place);
        const auto& node = *nodes.nodes()[place];
        cluster_connection first{nodes.uri()};
        cluster_connection second{nodes.uri()};
        lock owner{first, name, by_message_only};
        owner.lock();
        std::mutex guard;
        std::vector<std::size_t> order;
        std::vector<std::jthread> waiters;
        for (std::size_t i = 0; i < 6; ++i) {
            waiters.emplace_back([&, i] {
                lock mine{i % 2 == 0 ? first : second, name, by_message_only};
                if (!mine.try_lock_for(20s)) return;
                {
                    const std::lock_guard in(guard);
                    order.push_back(i);
                }
                mine.unlock();
            });
            REQUIRE(eventually([&] { return queued(node, name) == i + 1; }));
        }
        const auto start = clk::now();
        owner.unlock();
        waiters.clear();
        CHECK(order == std::vector<std::size_t>{0, 1, 2, 3, 4, 5});
        CHECK(clk::now() - start < 5s);
    }
}

namespace {

/// Effects: four threads call `take(connection, nth)`, one behind the other in the queue, and all are served
/// once `end()` was called; none of them looks by itself.
template <class Take, class End>
void served_by_messages(const std::string& name, Take take, End end) {
    cluster_connection first{three_masters().uri()};
    cluster_connection second{three_masters().uri()};
    std::atomic<int> served{0};
    std::vector<std::jthread> waiters;
    for (std::size_t i = 0; i < 4; ++i) {
        waiters.emplace_back([&, i] {
            if (take(i % 2 == 0 ? first : second, i)) ++served;
        });
        REQUIRE(eventually([&] { return queued(three_masters().owner_of(name), name) == i + 1; }));
    }
    const auto start = clk::now();
    end();
    waiters.clear();
    CHECK(served == 4);
    CHECK(clk::now() - start < 5s);
}

}  // namespace

TEST_CASE("over a Cluster waiters for permits are served by messages alone") {
    using semaphore = distlock::counting_semaphore<cluster_connection>;
    cluster_connection redis{three_masters().uri()};
    const auto name = name_at(0);
    semaphore pool{redis, name, 1, by_message_only};
    auto mine = pool.acquire();
    const auto take = [&](cluster_connection& by, std::size_t) {
        semaphore same{by, name, 1, by_message_only};
        return static_cast<bool>(same.try_acquire_for(20s));
    };
    served_by_messages(name, take, [&] { mine.release(); });
}

TEST_CASE("over a Cluster a waiter that is there keeps its place before those it keeps out") {
    using semaphore = distlock::counting_semaphore<cluster_connection>;
    cluster_connection redis{three_masters().uri()};
    const auto name = name_at(1);
    const auto& node = three_masters().owner_of(name);
    semaphore pool{redis, name, 4, by_message_only};
    const auto some = pool.acquire(1);
    const auto wait_for = [&](std::int64_t n) {
        return std::jthread([&name, n](const std::stop_token& stop) {
            cluster_connection own{three_masters().uri()};
            semaphore same{own, name, 4, by_message_only};
            std::error_code ec;
            static_cast<void>(same.acquire(n, stop, ec));
        });
    };
    const auto living = wait_for(4);
    REQUIRE(eventually([&] { return queued(node, name) == 1; }));
    const auto behind = wait_for(1);
    std::set<std::string> answers;  // to the question whether it is there
    CHECK(eventually(
        [&] {
            const auto known = node.command({"HGET", distlock::key(name).sibling("limit"), "first"});
            if (known.ends_with(" l")) answers.insert(known);
            return answers.size() == 3;
        },
        20s));
    CHECK(queued(node, name) == 2);
}

TEST_CASE("over a Cluster readers and writers are served by messages alone") {
    using shared_lock = distlock::shared_mutex<cluster_connection>;
    cluster_connection redis{three_masters().uri()};
    const auto name = name_at(0);
    shared_lock owner{redis, name, by_message_only};
    owner.lock();
    const auto take = [&](cluster_connection& by, std::size_t nth) {
        shared_lock mine{by, name, by_message_only};
        const bool reads = nth != 2;
        if (!(reads ? mine.try_lock_shared_for(20s) : mine.try_lock_for(20s))) return false;
        if (reads) mine.unlock_shared();
        if (!reads) mine.unlock();
        return true;
    };
    served_by_messages(name, take, [&] { owner.unlock(); });
}

TEST_CASE("one pipeline goes to all nodes, and each command has its own answer") {
    cluster_connection redis{three_masters().uri()};
    std::vector<std::string> keys;
    std::vector<command> commands;
    for (std::size_t i = 0; i < 60; ++i) keys.push_back(name_at(i % 3, "text"));
    for (std::size_t i = 0; i < keys.size(); ++i)
        commands.push_back(command({"SET", keys[i], keys[i]}, keys[i]));
    std::vector<reply> replies(keys.size());
    redis.pipeline(commands, replies);
    for (const reply& one : replies) CHECK(one.is_status("OK"));
    commands.clear();
    for (const std::string& key : keys) commands.push_back(command({"GET", std::string_view(key)}, key));
    redis.pipeline(commands, replies);
    for (std::size_t i = 0; i < keys.size(); ++i) CHECK(replies[i].is_string(keys[i]));
}

namespace {

/// Threads that lock one name for as long as it lives, half of them over each connection, and
/// never two at a time.
class rivals {
  public:
    rivals(cluster_connection& first, cluster_connection& second, const std::string& name, int count = 6) {
        for (int i = 0; i < count; ++i) {
            threads_.emplace_back([&, this, i, name](const std::stop_token& stop) {
                lock mine{i % 2 == 0 ? first : second, name, {.lease = 3s, .patience = 10s}};
                while (!stop.stop_requested()) {
                    std::error_code ec;
                    if (!mine.lock(ec)) {
                        ++errors_;
                        const std::lock_guard in(guard_);
                        last_error_ = ec.message();
                        continue;
                    }
                    if (inside_++ != 0) ++overlaps_;
                    ++granted_;
                    --inside_;
                    mine.unlock();
                }
            });
        }
    }
    rivals(const rivals&) = delete;
    rivals& operator=(const rivals&) = delete;

    int granted() const { return granted_; }
    int overlaps() const { return overlaps_; }
    int errors() const { return errors_; }
    std::string last_error() const {
        const std::lock_guard in(guard_);
        return last_error_;
    }

  private:
    std::atomic<int> granted_{0};
    std::atomic<int> overlaps_{0};
    std::atomic<int> inside_{0};
    std::atomic<int> errors_{0};
    mutable std::mutex guard_;
    std::string last_error_;
    std::vector<std::jthread> threads_;
};

}  // namespace

TEST_CASE("a master that hangs for a while costs no lock of another master") {
    const auto& nodes = three_masters();
    cluster_connection redis{nodes.uri()};
    lock here{redis, name_at(0), {.lease = 1s}};
    lock there{redis, name_at(1), {.lease = 10s}};
    here.lock();
    there.lock();
    const auto lost = here.lost();
    nodes.nodes()[1]->pause();
    const auto until = here.valid_until();
    for (int i = 0; i < 3; ++i) {
        const auto before = here.valid_until();
        CHECK(eventually([&] { return here.valid_until() > before; }, 2s));
        lock other{redis, name_at(2)};
        const auto start = clk::now();
        CHECK(other.try_lock());
        CHECK(clk::now() - start < 250ms + timing_tolerance);  // the one that hangs may be asked for the map
        other.unlock();
    }
    nodes.nodes()[1]->resume();
    CHECK(here.valid_until() > until);
    CHECK_FALSE(lost.stop_requested());
    CHECK(there.owns_lock());
    here.unlock();
    there.unlock();
    for (const auto& one : nodes.nodes()) {
        CHECK(eventually([&] {
            return one->command({"CLUSTER", "INFO"}).find("cluster_state:ok") != std::string::npos;
        }));
    }
}

namespace {

/// `move(slot, from, to)`: while it moves a slot back and forth, no lock is lost and nobody is let in twice.
template <class Move>
void move_back_and_forth(Move move) {
    const auto& nodes = three_masters();
    const auto name = name_at(0);
    const auto slot = hash_slot(name);
    const auto& home = *nodes.nodes()[0];
    const auto& away = *nodes.nodes()[1];
    cluster_connection first{nodes.uri()};
    cluster_connection second{nodes.uri()};
    const auto told = std::make_shared<recording_observer>();
    lock held{first, "{" + name + "}:held", {.lease = 2s}, told};
    held.lock();
    {
        rivals all(first, second, name);
        REQUIRE(eventually([&] { return all.granted() > 10; }));
        for (int i = 0; i < 20; ++i) {
            const bool out = i % 2 == 0;
            move(slot, out ? home : away, out ? away : home);
            const int before = all.granted();
            REQUIRE(eventually([&] { return all.granted() > before + 10; }));
            INFO("migration " << i << ", " << (held.valid_until() - clk::now()).count() / 1'000'000
                              << " ms left");
            REQUIRE(told->losses().empty());
        }
        INFO(all.last_error());
        CHECK(all.errors() == 0);
        CHECK(all.overlaps() == 0);
    }
    CHECK(told->losses().empty());
    CHECK(held.owns_lock());
    CHECK_FALSE(lock(second, held.name()).try_lock());
    held.unlock();
}

}  // namespace

TEST_CASE("a slot that is moved back and forth, key by key, loses no lock and lets nobody in twice") {
    move_back_and_forth([](std::uint16_t slot, const cluster::server& from, const cluster::server& to) {
        three_masters().migrate(slot, from, to);
    });
}

TEST_CASE("a slot that is moved back and forth in one piece loses no lock and lets nobody in twice") {
    std::string way;
    move_back_and_forth([&](std::uint16_t slot, const cluster::server& from, const cluster::server& to) {
        way = three_masters().migrate_whole(slot, from, to);
    });
    WARN("slots were moved: " << way);
}

TEST_CASE("a waiter whose slot moves is handed the lock on its new node, by a message") {
    const auto& nodes = three_masters();
    for (int round = 0; round < 4; ++round) {
        const auto name = name_at(1);
        const auto slot = hash_slot(name);
        const auto& home = *nodes.nodes()[1];
        const auto& away = *nodes.nodes()[2];
        cluster_connection first{nodes.uri()};
        cluster_connection second{nodes.uri()};
        lock owner{first, name, by_message_only};
        owner.lock();
        std::vector<int> order;
        std::mutex guard;
        std::vector<std::jthread> waiters;
        for (int i = 0; i < 3; ++i) {
            waiters.emplace_back([&, i] {
                lock mine{second, name, by_message_only};
                if (!mine.try_lock_for(30s)) return;
                {
                    const std::lock_guard in(guard);
                    order.push_back(i);
                }
                mine.unlock();
            });
            REQUIRE(eventually([&] { return queued(home, name) == std::size_t(i) + 1; }));
        }
        // By each of the ways that the server has.
        if (round % 2 == 0) {
            nodes.migrate(slot, home, away);
        } else {
            nodes.migrate_whole(slot, home, away);
        }
        const auto start = clk::now();
        // Each of the waiters has a channel of its own process, but they share the connection's.
        const auto listeners = [&] {
            const auto channels = away.command({"PUBSUB", "SHARDCHANNELS", "{" + name + "}*"});
            return !channels.empty() && away.command({"PUBSUB", "SHARDNUMSUB", channels}).ends_with("\n1");
        };
        CHECK(eventually(listeners));
        CHECK(clk::now() - start < 1s);
        owner.unlock();
        waiters.clear();
        CHECK(order == std::vector<int>{0, 1, 2});
        CHECK(clk::now() - start < 5s);
        nodes.migrate(slot, away, home);
    }
}

// A waiter for a permit was told of a server_error: "Script attempted to access a non local key".
TEST_CASE(
    "a waiter whose time is up while its slot moves key by key is told that the server is unavailable") {
    const cluster nodes;
    const auto name = name_at(0, "pool");
    const auto number = std::to_string(hash_slot(name));
    const auto& home = *nodes.nodes()[0];
    const auto& away = *nodes.nodes()[1];
    cluster_connection first{nodes.uri()};
    cluster_connection second{nodes.uri()};
    distlock::counting_semaphore mine{first, name, 1, {.lease = 10s}};
    distlock::counting_semaphore others{second, name, 1, {.lease = 10s}};
    distlock::permit held = mine.acquire();
    std::error_code ec;
    bool got = true;
    std::jthread waiter([&] { got = others.try_acquire_for(2s, ec).has_value(); });
    REQUIRE(eventually([&] { return queued(home, name) == 1; }));
    cluster::begin_migration(hash_slot(name), home, away);
    waiter.join();
    CHECK_FALSE(got);
    CHECK(ec == errc::unavailable);
    REQUIRE(home.command({"CLUSTER", "SETSLOT", number, "STABLE"}) == "OK");
    REQUIRE(away.command({"CLUSTER", "SETSLOT", number, "STABLE"}) == "OK");
    CHECK(eventually([&] { return queued(home, name) == 0; }));
    held.release();
    CHECK(eventually([&] { return others.try_acquire().has_value(); }));
}

TEST_CASE(
    "after CLUSTER FAILOVER locks go on at the new master, in order, and those that are held stay held") {
    const cluster nodes(true);
    const auto name = name_at(0);
    const distlock::lock_options patient_by_message{.lease = 10s, .recheck = 1h, .patience = 10s};
    cluster_connection first{nodes.uri()};
    cluster_connection second{nodes.uri()};
    lock owner{first, name, patient_by_message};
    // A server that is about to hand over writes nothing for a second.
    lock held{first, name + ":held", {.lease = 4s}};
    owner.lock();
    held.lock();
    std::vector<int> order;
    std::mutex guard;
    std::vector<std::jthread> waiters;
    for (int i = 0; i < 3; ++i) {
        waiters.emplace_back([&, i] {
            lock mine{second, name, patient_by_message};
            if (!mine.try_lock_for(30s)) return;
            {
                const std::lock_guard in(guard);
                order.push_back(i);
            }
            mine.unlock();
        });
        REQUIRE(eventually([&] { return queued(*nodes.nodes()[0], name) == std::size_t(i) + 1; }));
    }
    auto& next = *nodes.nodes()[cluster::masters];
    REQUIRE(next.command({"CLUSTER", "FAILOVER"}) == "OK");
    REQUIRE(eventually([&] { return next.command({"ROLE"}).starts_with("master"); }));
    const auto start = clk::now();
    const auto listeners = [&] {
        const auto channels = next.command({"PUBSUB", "SHARDCHANNELS", "{" + name + "}*"});
        return !channels.empty() && next.command({"PUBSUB", "SHARDNUMSUB", channels}).ends_with("\n1");
    };
    CHECK(eventually(listeners));
    owner.unlock();
    waiters.clear();
    CHECK(order == std::vector<int>{0, 1, 2});
    CHECK(clk::now() - start < 5s);
    const auto until = held.valid_until();
    CHECK(eventually([&] { return held.valid_until() > until; }));
    CHECK(held.owns_lock());
    held.unlock();
}

TEST_CASE("a master that is killed is followed by its replica, and nobody is stuck") {
    const cluster nodes(true);
    const auto name = name_at(0);
    cluster_connection first{nodes.uri()};
    cluster_connection second{nodes.uri()};
    rivals all(first, second, name);
    REQUIRE(eventually([&] { return all.granted() > 10; }));
    nodes.nodes()[0]->kill();
    auto& next = *nodes.nodes()[cluster::masters];
    REQUIRE(eventually([&] { return next.command({"ROLE"}).starts_with("master"); }, 30s));
    const auto start = clk::now();
    const int before = all.granted();
    REQUIRE(eventually([&] { return all.granted() > before; }, 30s));
    CHECK(clk::now() - start < 1s + timing_tolerance);
    REQUIRE(eventually([&] { return all.granted() > before + 100; }, 30s));
    INFO(all.last_error());
    CHECK(all.errors() == 0);
}

TEST_CASE("the least that a user must be allowed on a Cluster is enough to be served in order, by messages") {
    const auto& nodes = three_masters();
    for (const auto& one : nodes.nodes()) {
        make(*one, cluster_user());
        one->command({"ACL", "LOG", "RESET"});
    }
    cluster_connection first{nodes.uri("worker:secret@")};
    cluster_connection second{nodes.uri("worker:secret@")};
    for (int i = 0; i < 9; ++i) {
        const auto name = "orders:" + std::to_string(i);
        const distlock::lock_options options{.lease = 1h, .fencing = i % 2 == 0, .recheck = 1h};
        lock owner{first, name, options};
        lock next{second, name, options};
        REQUIRE(owner.try_lock());
        bool had = false;
        std::jthread waiter([&] {
            had = next.try_lock_for(20s);
            next.unlock();
        });
        CHECK(eventually([&] { return queued(nodes.owner_of(name), name) == 1; }));
        owner.unlock();
        waiter.join();
        CHECK(had);
    }
    for (const auto& one : nodes.nodes()) CHECK(one->command({"ACL", "LOG"}).empty());
    CHECK_THROWS(lock(first, "other").try_lock());
}

TEST_CASE("errors name the Cluster, and no password") {
    const closed_port closed;
    const auto nobody = std::to_string(closed.number());
    cluster_connection redis{"redis+cluster://worker:secret@127.0.0.1:" + nobody};
    CHECK(redis.identity() == "redis+cluster://worker@127.0.0.1:" + nobody);
    std::error_code ec;
    lock m{redis, "orders", {.patience = 100ms}};
    CHECK_FALSE(m.lock(ec));
    CHECK(ec == errc::unreachable);
    const std::string what = error_of([&] { m.lock(); }).what();
    CHECK_THAT(what, contains_text("127.0.0.1:" + nobody));
    CHECK(what.find("secret") == std::string::npos);
}

// One after the other was asked for the map, and was the one that locks were taken on: two owned one.
// Where the password was a word of that answer nobody understood it, since no error shows the password.
TEST_CASE("servers that are of no Cluster are refused: each would grant the same lock") {
    // Behind a long name it was cut off.
    const auto [user, password] = GENERATE(table<std::string, std::string>(
        {{"", ""}, {"default", "cluster"}, {std::string(170, 'u'), "cluster"}}));
    distlock::testing::redis_server_options with{.tcp = true};
    if (!password.empty()) with.arguments = {"--requirepass", password};
    const distlock::testing::redis_server one(with);
    const distlock::testing::redis_server other(with);
    if (user.size() > 100) {
        for (const auto* server : {&one, &other})
            REQUIRE(server->command({"ACL", "SETUSER", user, "on", ">" + password, "+@all", "~*"}) == "OK");
    }
    cluster_connection redis{"redis+cluster://" + (password.empty() ? "" : user + ":" + password + "@") +
                             "127.0.0.1:" + std::to_string(one.port()) +
                             ",127.0.0.1:" + std::to_string(other.port())};
    for (int i = 0; i < 3; ++i) {
        lock m{redis, "orders"};
        std::error_code ec;
        CHECK_FALSE(m.lock(ec));
        CHECK(ec == errc::invalid_uri);
        CHECK_THROWS_WITH(m.try_lock(),
                          contains_text("no Cluster") && contains_text("cluster support disabled"));
    }
    const std::vector<command> sent(2, {"SET", std::string_view("orders"), "x"});
    std::vector<reply> replies(sent.size());
    redis.pipeline(sent, replies);
    for (const reply& r : replies) {
        CHECK(r.is(reply_kind::not_sent));
        CHECK(r.cause() == errc::invalid_uri);
    }
    CHECK_FALSE(redis.post({"SET", "orders", "x"}, nullptr));
    CHECK(one.command({"DBSIZE"}) == "0");
    CHECK(other.command({"DBSIZE"}) == "0");
    CHECK(distlock::diagnose(redis).worst() == distlock::severity::problem);
}

TEST_CASE("a server of no Cluster among the nodes of one is not used, and keeps nobody from the others") {
    const distlock::testing::redis_server plain({.tcp = true});
    const fake_server slow([](fake_server::peer& p) {
        while (const auto cmd = p.next_command()) {
            if (cmd->at(0) == "CLUSTER" && !p.nap(1h)) return;
            if (!p.send("+OK\r\n")) return;
        }
    });
    cluster_connection redis{"redis+cluster://127.0.0.1:" + std::to_string(plain.port()) +
                             ",127.0.0.1:" + std::to_string(slow.port()) + "?command_timeout=20s"};
    const auto set = [&] {
        return redis.execute(command({"SET", "orders", "x"}).until(distlock::clock::now() + 500ms));
    };
    // Nobody knows what a server is before it was asked.
    CHECK(eventually([&] { return set().is_status("OK") && slow.commands("SET") > 0; }));
    CHECK(set().is_status("OK"));
    CHECK(plain.command({"DBSIZE"}) == "0");
}

// A plain server took the port of a node that had died: who knew the old map owned a lock there, and whoever
// came anew owned it on the Cluster.
TEST_CASE("a server of no Cluster that has the port of a node gets no command, until a node has it again") {
    const distlock::testing::redis_server plain({.tcp = true});
    SECTION("that says so to ASKING") {}
    SECTION("that says so to CLUSTER SLOTS, since the user may not do ASKING") {
        REQUIRE(plain.command({"ACL", "SETUSER", "default", "-asking"}) == "OK");
    }
    std::atomic<bool> replaced = false;
    const fake_cluster all(2, [&](const fake_cluster& of, std::size_t, const fake_server::words& said) {
        if (said[0] != "CLUSTER") return std::string("+OK\r\n");
        const auto map = of.slots({0, 1});
        return replaced ? map : fake_cluster::with_last_at(map, std::to_string(plain.port()));
    });
    const std::string key = "foo";  // slot 12182
    REQUIRE(all.share_of(distlock::hash_slot(key)) == 1);
    const auto uri = all.uri(0, "?command_timeout=500ms");
    cluster_connection redis{std::string_view(uri)};
    const auto in_time = [](command cmd) { return cmd.until(distlock::clock::now() + 500ms); };
    const std::string value = "x";
    const reply answer = redis.execute(in_time({"SET", key, value}));
    CHECK(answer.is(reply_kind::not_sent));
    CHECK(answer.cause() == errc::unreachable);
    CHECK(answer.text().find("127.0.0.1:" + std::to_string(plain.port()) + " is a server of no Cluster") !=
          std::string::npos);
    CHECK_FALSE(redis.post(in_time({"SET", key, value}), nullptr));
    const auto both = redis.execute_acknowledged(in_time({"SET", key, value}), in_time({"WAIT", "0", "100"}));
    CHECK(both.answer.is(reply_kind::not_sent));
    const std::vector<command> sent(2, in_time({"SET", key, value}));
    std::vector<reply> replies(sent.size());
    redis.pipeline(sent, replies);
    for (const reply& one : replies) CHECK(one.is(reply_kind::not_sent));
    lock m{redis, key};
    CHECK_THROWS(m.try_lock_for(300ms));
    CHECK(plain.command({"DBSIZE"}) == "0");

    replaced = true;
    CHECK(eventually([&] { return redis.execute(in_time({"SET", key, value})).is_status("OK"); }));
    CHECK(all.node(1).commands("SET") > 0);
    CHECK(plain.command({"DBSIZE"}) == "0");
}

// In a fail-over the replica of the master that died may be the only node that is known.
TEST_CASE("a node that refuses ASKING for a while is asked for the map, and redirects") {
    const auto answering = [](const fake_cluster& of, std::size_t, const fake_server::words& said) {
        return said[0] == "CLUSTER" ? of.slots({0}) : std::string("+OK\r\n");
    };
    const fake_cluster all(1, answering);
    const fake_server stale([&](fake_server::peer& p) {
        p.answers_greeting();
        while (const auto said = p.next_command()) {
            const bool map = said->at(0) == "CLUSTER";
            if (!p.send(map ? all.slots({0}) : "-MASTERDOWN Link with MASTER is down\r\n")) return;
        }
    });
    cluster_connection redis{"redis+cluster://127.0.0.1:" + std::to_string(stale.port())};
    const std::string key = "orders";
    CHECK(redis.execute(command({"GET", key}).until(distlock::clock::now() + 5s)).is_status("OK"));
    CHECK(all.node(0).commands("GET") == 1);
}

// A script kept it from both questions: no socket to it was opened, and where it alone was known no lock of
// other nodes could be had.
TEST_CASE("a node that a script keeps busy redirects, where it says that it is of a Cluster") {
    const std::string mode = GENERATE("cluster", "standalone");
    const fake_cluster all(1, [](const fake_cluster& of, std::size_t, const fake_server::words& said) {
        return said[0] == "CLUSTER" ? of.slots({0}) : std::string("+OK\r\n");
    });
    const std::string key = "orders";
    const fake_server busy([&](fake_server::peer& p) {
        p.answers_greeting();
        while (const auto said = p.next_command()) {
            const auto& word = said->at(0);
            const auto hello = "*4\r\n$6\r\nserver\r\n$5\r\nredis\r\n$4\r\nmode\r\n$" +
                               std::to_string(mode.size()) + "\r\n" + mode + "\r\n";
            if (!p.send(word == "HELLO" ? hello
                        : word == "GET" ? all.moved(distlock::hash_slot(key), 0)
                                        : "-BUSY Redis is busy running a script.\r\n"))
                return;
        }
    });
    cluster_connection redis{"redis+cluster://127.0.0.1:" + std::to_string(busy.port())};
    const reply answer = redis.execute(command({"GET", key}).until(distlock::clock::now() + 500ms));
    if (mode == "cluster") {
        CHECK(answer.is_status("OK"));
    } else {
        CHECK(answer.cause() == errc::unavailable);
        CHECK(answer.text().find("CLUSTER SLOTS was refused: BUSY") != std::string::npos);
        CHECK(busy.commands("GET") == 0);
    }
}

// Behind ASKING a node that does not have the slot yet would execute what another one has to.
TEST_CASE("the greeting on a new socket of a Cluster says nothing of the first command on it") {
    const fake_cluster all(1, [](const fake_cluster& of, std::size_t, const fake_server::words& said) {
        return said[0] == "CLUSTER" ? of.slots({0}) : std::string("+OK\r\n");
    });
    const auto uri = all.uri();
    cluster_connection redis{std::string_view(uri)};
    const std::string key = "orders";
    CHECK(redis.execute(command({"GET", key}).until(distlock::clock::now() + 5s)).is_status("OK"));
    const auto sent = all.node(0).received();
    const auto asked = sent.find("ASKING");
    REQUIRE(asked != std::string::npos);
    const auto between = sent.find("EVALSHA", asked);
    CHECK(between < sent.find("CLUSTER"));
    CHECK(between < sent.find("GET"));
}

namespace {

// Returns: with what error a connection could not be made; none: it could.
template <class Connect>
std::error_code code_of(Connect connect) {
    try {
        connect();
    } catch (const distlock::error& e) {
        return e.code();
    }
    return {};
}

}  // namespace

TEST_CASE("a cluster_connection takes the URI of a Cluster, and TLS only with its own") {
    const auto code_of_uri = [](const std::string& uri) {
        return code_of([&] { const cluster_connection made{uri}; });
    };
    CHECK(code_of_uri("redis://127.0.0.1:6379") == errc::invalid_uri);
    CHECK(code_of_uri("redis+cluster://127.0.0.1:6379/1") == errc::invalid_uri);
    CHECK(code_of_uri("redis+cluster://") == errc::invalid_uri);
    CHECK(code_of_uri("rediss+cluster://127.0.0.1") == errc::tls_unavailable);
    CHECK_FALSE(code_of_uri("redis+cluster://127.0.0.1"));
    // It named a node's URI, which nobody had written, and advised rediss://, which is no Cluster.
    struct no_layer final : distlock::secure_layer {
        std::unique_ptr<distlock::secure_session> start(const distlock::uri&) const override { return {}; }
    };
    const auto with_tls = error_of(
        [] { const cluster_connection made("redis+cluster://127.0.0.1", std::make_shared<no_layer>()); });
    CHECK(with_tls.code() == errc::invalid_uri);
    CHECK_THAT(with_tls.what(), contains_text("redis+cluster://127.0.0.1:6379 with TLS") &&
                                    contains_text("write rediss+cluster://"));
    const auto without = error_of([] { const cluster_connection made{"rediss+cluster://127.0.0.1"}; });
    CHECK_THAT(without.what(), contains_text("rediss+cluster://127.0.0.1:6379"));
}

// It read from address 0.
TEST_CASE("an environment variable that is not set is an empty URI, and no crash") {
    const char* const unset = nullptr;
    CHECK(code_of([&] { const distlock::hiredis_connection made{unset}; }) == errc::invalid_uri);
    CHECK(code_of([&] { const distlock::hiredis_connection made{unset, nullptr}; }) == errc::invalid_uri);
    CHECK(code_of([&] { const distlock::sentinel_connection made{unset}; }) == errc::invalid_uri);
    CHECK(code_of([&] { const distlock::sentinel_connection made{unset, nullptr}; }) == errc::invalid_uri);
    CHECK(code_of([&] { const cluster_connection made{unset}; }) == errc::invalid_uri);
    CHECK(code_of([&] { const cluster_connection made{unset, nullptr}; }) == errc::invalid_uri);
}

TEST_CASE("a URI that was filled in by hand is checked as one that is written") {
    distlock::sentinel_uri watched = distlock::parse_sentinel_uri("redis+sentinel://127.0.0.1:1/m");
    const auto follows = [&] { const distlock::sentinel_connection made{watched}; };
    CHECK_FALSE(code_of(follows));
    watched.master_name = "a name";
    CHECK(code_of(follows) == errc::invalid_uri);
    watched.master_name = "m";
    watched.sentinels.clear();
    CHECK(code_of(follows) == errc::invalid_uri);
    CHECK(code_of([] { const cluster_connection made{distlock::cluster_uri{}}; }) == errc::invalid_uri);
    distlock::uri one = distlock::parse_uri("redis://127.0.0.1:1");
    one.host.clear();
    CHECK(code_of([&] { const distlock::hiredis_connection made{one}; }) == errc::invalid_uri);
}

TEST_CASE("a connection says how long it takes until a command is sent, and for an answer") {
    const std::string times = "?connect_timeout=300ms&command_timeout=700ms";
    const distlock::hiredis_connection one{"redis://127.0.0.1" + times};
    CHECK(one.connect_timeout() == 300ms);
    CHECK(one.command_timeout() == 700ms);
    // The nodes, or the Sentinels, are asked first.
    const cluster_connection cluster{"redis+cluster://127.0.0.1" + times};
    CHECK(cluster.connect_timeout() == 1300ms);
    CHECK(cluster.command_timeout() == 700ms);
    const distlock::sentinel_connection sentinel{"redis+sentinel://127.0.0.1/mymaster" + times};
    CHECK(sentinel.connect_timeout() == 1300ms);
    CHECK(sentinel.command_timeout() == 700ms);
}

}  // namespace cluster_connection_tests
