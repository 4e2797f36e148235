// What becomes of commands that a Cluster redirects, where it lies, and where a node is gone.
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <poll.h>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <distlock/base/clock.hpp>
#include <distlock/base/error.hpp>
#include <distlock/distlock.hpp>
#include <distlock/hiredis.hpp>
#include <distlock/interop.hpp>
#include <distlock/net/hash_slot.hpp>
#include <distlock/net/receipt.hpp>
#include <distlock/wire/acknowledgement.hpp>
#include <distlock/wire/command.hpp>
#include <distlock/wire/plain.hpp>
#include <distlock/wire/reply.hpp>

#include "support/catch.hpp"
#include "support/closed_port.hpp"
#include "support/collected.hpp"
#include "support/fake_cluster.hpp"
#include "support/fake_server.hpp"
#include "support/in_child.hpp"
#include "support/lease_observers.hpp"
#include "support/no_threads.hpp"
#include "support/sanitizers.hpp"
#include "support/sleepers.hpp"
#include "support/timing_tolerance.hpp"
#include "support/waiting.hpp"

namespace cluster_redirections_tests {

using namespace std::chrono_literals;
using distlock::cluster_connection;
using distlock::command;
using distlock::errc;
using distlock::hash_slot;
using distlock::reply;
using distlock::reply_kind;
using clk = distlock::clock;
using words = fake_cluster::words;

namespace {

/// Effects: waits; a map is asked for once in 100 ms.
bool the_next_map_may_be_asked_for() {
    const auto learned = clk::now();
    return eventually([&] { return clk::now() - learned > 200ms; });
}

/// A key whose slot is node number `place`'s share.
std::string key_at(const fake_cluster& all, std::size_t place, int number = 0) {
    for (;; number += 1000) {
        auto key = "k" + std::to_string(number);
        if (all.share_of(hash_slot(key)) == place) return key;
    }
}
command get(const std::string& key) { return command({"GET", std::string_view(key)}, key); }

const std::string no_map = "-NOPERM this user has no permissions to run the 'cluster|slots' command\r\n";
const std::string found = "$5\r\nfound\r\n";

/// Returns: what a node answers that has these slots; its first map says that nobody has the last of them.
/// `maps`: how many were asked for.
fake_cluster::answering with_nobody_last_at_first(std::atomic<int>& maps, std::vector<std::size_t> nodes) {
    const auto nobody = std::make_shared<const closed_port>();
    return [&maps, nobody, nodes = std::move(nodes)](const fake_cluster& of, std::size_t, const words& said) {
        if (said[0] != "CLUSTER") return found;
        const std::string map = of.slots(nodes);
        return ++maps == 1 ? fake_cluster::with_last_at(map, std::to_string(nobody->number())) : map;
    };
}

/// Each node has its share, and says so; CLUSTER SLOTS says `owners`.
fake_cluster::answering honest_but_for_the_map(std::vector<std::size_t> owners) {
    return [owners = std::move(owners)](const fake_cluster& all, std::size_t node, const words& said) {
        if (said[0] == "CLUSTER") return all.slots(owners);
        const auto slot = hash_slot(said[1]);
        return all.share_of(slot) == node ? found : all.moved(slot, all.share_of(slot));
    };
}

}  // namespace

TEST_CASE(
    "64 threads that find the map wrong for every slot ask for two new ones in 200 ms, and all get their "
    "answers") {
    std::mutex guard;
    std::vector<clk::time_point> asked;
    const auto honest = honest_but_for_the_map({1, 2, 0});
    const fake_cluster all(3, [&](const fake_cluster& of, std::size_t node, const words& said) {
        if (said[0] == "CLUSTER") {
            const std::lock_guard in(guard);
            asked.push_back(clk::now());
        }
        return honest(of, node, said);
    });
    cluster_connection redis{all.uri(0, "?connect_timeout=20s&command_timeout=20s")};
    std::atomic<int> wrong{0};
    std::atomic<int> calls{0};
    const auto start = clk::now();
    {
        std::vector<std::jthread> threads;
        for (int t = 0; t < 64; ++t) {
            threads.emplace_back([&, t] {
                for (int i = 0; clk::now() < start + 300ms; ++i) {
                    const auto key = "k" + std::to_string(t) + ":" + std::to_string(i);
                    if (!redis.execute(get(key)).is_string("found")) ++wrong;
                    ++calls;
                }
            });
        }
    }
    CHECK(wrong == 0);
    const auto in_time =
        std::count_if(asked.begin(), asked.end(), [&](auto at) { return at < start + 200ms; });
    CHECK(in_time <= 2);
    CHECK(in_time >= 1);
    // Each call was redirected once, at most.
    CHECK(all.commands("GET") <= 2 * calls);
    CHECK(all.commands("GET") > calls);
}

TEST_CASE("a command that is redirected for ever is sent six times, and was not executed") {
    const fake_cluster all(2, [](const fake_cluster& of, std::size_t node, const words& said) {
        if (said[0] == "CLUSTER") return of.slots({0, 1});
        return of.moved(hash_slot(said[1]), 1 - node);
    });
    cluster_connection redis{all.uri()};
    const std::string key = "orders";
    const auto start = clk::now();
    const auto answer = redis.execute(get(key));
    CHECK(clk::now() - start < 2s);
    CHECK(answer.is(reply_kind::not_sent));
    CHECK(answer.cause() == errc::unavailable);
    CHECK(all.commands("GET") == 6);

    const std::vector<command> commands{get(key)};
    std::vector<reply> replies(1);
    redis.pipeline(commands, replies);
    CHECK(replies[0].is(reply_kind::not_sent));
    CHECK(all.commands("GET") == 12);
}

TEST_CASE("a slot that is between two nodes is waited for, until the time is over or the caller stops") {
    std::atomic<int> asked{0};
    const fake_cluster all(1, [&](const fake_cluster& of, std::size_t, const words& said) {
        if (said[0] == "CLUSTER") return of.slots({0});
        ++asked;
        return std::string(said[1] == "soon" && asked >= 3 ? found : "-TRYAGAIN Multiple keys request\r\n");
    });
    cluster_connection redis{all.uri(0, "?connect_timeout=20s&command_timeout=20s")};
    const std::string soon = "soon";
    CHECK(redis.execute(get(soon)).is_string("found"));
    CHECK(asked == 3);

    const std::string key = "orders";
    asked = 0;
    CHECK(redis.execute(get(key)).is(reply_kind::error));
    CHECK(asked == 6);

    // Six questions take 230 ms. One that a busy machine did not answer until then says nothing.
    CHECK(eventually([&] {
        asked = 0;
        command hurried = get(key);
        const auto deadline = clk::now() + 100ms;
        hurried.until(deadline);
        const auto answer = redis.execute(hurried);
        const auto ended = clk::now();
        if (!answer.answered()) return false;
        CHECK_THAT(answer.text(), contains_text("TRYAGAIN"));
        CHECK(ended >= deadline);
        CHECK(asked <= 5);
        return ended < deadline + 30ms;  // the pause that it falls in lasts 50 ms longer
    }));

    // The pause after the fourth question is of 80 ms; a stop that comes while another one is on its way says
    // nothing.
    CHECK(eventually([&] {
        asked = 0;
        std::stop_source stop;
        const std::jthread stops([&] {
            if (eventually([&] { return asked >= 4; })) stop.request_stop();
        });
        const auto token = stop.get_token();
        command stopped = get(key);
        stopped.until(token);
        const auto answer = redis.execute(stopped);
        if (!answer.is(reply_kind::not_sent)) return false;
        CHECK(answer.cause() == errc::cancelled);
        return true;
    }));
}

TEST_CASE("a caller who stops is not kept by nodes that do not answer which slots they have") {
    const bool has_a_map = GENERATE(false, true);
    const closed_port closed;
    const auto nobody = std::to_string(closed.number());
    std::atomic<int> maps{0};
    std::atomic<bool> hangs{!has_a_map};
    // What is sent to the last slots finds nobody there.
    const fake_cluster all(2, [&](const fake_cluster& of, std::size_t, const words& said) {
        if (said[0] != "CLUSTER") return found;
        ++maps;
        return hangs ? std::string() : fake_cluster::with_last_at(of.slots({0, 0}), nobody);
    });
    cluster_connection redis{"redis+cluster://127.0.0.1:" + std::to_string(all.node(0).port()) +
                             ",127.0.0.1:" + std::to_string(all.node(1).port()) +
                             "?connect_timeout=10s&command_timeout=10s"};
    if (has_a_map) {
        REQUIRE(redis.execute(get("hello")).is_string("found"));
        REQUIRE(the_next_map_may_be_asked_for());
        hangs = true;
    }
    const int before = maps;
    std::stop_source stop;
    reply answer;
    clk::time_point ended;
    std::jthread caller([&, token = stop.get_token()] {
        const std::string key = "foo";  // 12182
        command stopped = get(key);
        answer = redis.execute(stopped.until(token));
        ended = clk::now();
    });
    REQUIRE(eventually([&] { return maps > before; }));
    const auto asked = clk::now();
    stop.request_stop();
    caller.join();
    CHECK(ended - asked < 3s);
    CHECK_FALSE(answer.answered());
}

// The first one had all the time.
TEST_CASE("a node that does not say which slots it has leaves the next one the time to") {
    fake_server silent(scripts::hang);
    const fake_cluster all(1, honest_but_for_the_map({0}));
    cluster_connection redis{"redis+cluster://127.0.0.1:" + std::to_string(silent.port()) + "," +
                             all.uri(0, "?connect_timeout=20s&command_timeout=20s").substr(16)};
    const std::string key = "orders";
    command in_time = get(key);
    CHECK(redis.execute(in_time.until(clk::now() + 800ms)).is_string("found"));
    CHECK(all.commands("CLUSTER") == 1);
}

// One of twenty threads waited for ten seconds: each time that a question ended, another thread began the
// next.
TEST_CASE("over silent nodes each of many threads fails in the time that one needs") {
    const fake_server silent(scripts::hang);
    cluster_connection redis{"redis+cluster://127.0.0.1:" + std::to_string(silent.port()) +
                             "?connect_timeout=400ms&command_timeout=50ms"};
    // A question for the map, and the command.
    const clk::duration most = 2 * (400ms + 50ms) + timing_tolerance;
    const auto end = clk::now() + 2 * most;
    std::array<clk::duration, 12> longest{};
    {
        std::vector<std::jthread> threads;
        for (auto& mine : longest) {
            threads.emplace_back([&] {
                while (clk::now() < end) {
                    const auto took = time_of([&] { static_cast<void>(redis.execute(get("orders"))); });
                    mine = std::max<clk::duration>(mine, took);
                }
            });
        }
    }
    for (const auto& each : longest) CHECK(each <= most);
}

// By itself it looks once a second.
TEST_CASE("a thread that waits for another one's question for the map goes on when that is answered") {
    const fake_cluster all(1, [](const fake_cluster& of, std::size_t, const words& said) {
        if (said[0] != "CLUSTER") return found;
        ::poll(nullptr, 0, 100);
        return of.slots({0});
    });
    cluster_connection redis{all.uri(0, "?connect_timeout=20s&command_timeout=20s")};
    std::jthread asker([&] { static_cast<void>(redis.execute(get("orders"))); });
    REQUIRE(eventually([&] { return all.commands("CLUSTER") == 1; }));
    const auto took = time_of([&] { CHECK(redis.execute(get("orders")).is_string("found")); });
    CHECK(took < 100ms + std::max(500ms, timing_tolerance));
    CHECK(all.commands("CLUSTER") == 1);
}

TEST_CASE("a thread that waits for another one's question for the map gives up when it is stopped") {
    fake_server silent(scripts::hang);
    std::stop_source asks;
    std::stop_source waits;
    reply answer;
    clk::time_point ended;
    cluster_connection redis{"redis+cluster://127.0.0.1:" + std::to_string(silent.port()) +
                             "?connect_timeout=20s&command_timeout=20s"};
    const auto ping = [&](const std::stop_token& stop) {
        command one{distlock::argument("PING")};
        return redis.execute(one.until(stop));
    };
    sleeper asker([&] { static_cast<void>(ping(asks.get_token())); });
    REQUIRE(eventually([&] { return !silent.received().empty(); }));
    sleeper waiter([&] {
        answer = ping(waits.get_token());
        ended = clk::now();
    });
    REQUIRE(waiter.sleeps());
    const auto asked = clk::now();
    waits.request_stop();
    waiter.join();
    asks.request_stop();
    CHECK(ended - asked < std::max(500ms, timing_tolerance));
    CHECK(answer.cause() == errc::cancelled);
}

TEST_CASE("ASK is followed behind ASKING, on one socket and in one round trip") {
    // The second node answers nothing before it has both.
    fake_server importing([](fake_server::peer& p) {
        while (const auto first = p.next_command()) {
            if (first->at(0) != "ASKING") {
                p.send("-MOVED 0 127.0.0.1:1\r\n");
                continue;
            }
            const auto second = p.next_command();
            if (!second || !p.send("+OK\r\n" + found)) return;
        }
    });
    const fake_cluster all(1, [&](const fake_cluster& of, std::size_t, const words& said) {
        if (said[0] == "CLUSTER") return of.slots({0});
        return "-ASK " + std::to_string(hash_slot(said[1])) +
               " 127.0.0.1:" + std::to_string(importing.port()) + "\r\n";
    });
    cluster_connection redis{all.uri()};
    const std::string key = "orders";
    CHECK(redis.execute(get(key)).is_string("found"));
    CHECK(redis.execute(get(key)).is_string("found"));

    const std::string other = "orders:2";
    const std::vector<command> commands{get(key), get(other), get(key)};
    std::vector<reply> replies(3);
    redis.pipeline(commands, replies);
    for (const reply& one : replies) CHECK(one.is_string("found"));
    CHECK(importing.commands("GET") == 5);
    CHECK(importing.commands("ASKING") == 5);
    // The slot did not move.
    CHECK(all.commands("GET") == 5);
    CHECK(all.commands("CLUSTER") == 1);
}

TEST_CASE("a pipeline sends behind ASKING only what ASK sent to that node") {
    std::string moves, is_asked_for;  // of the first node's slots; the second has them, or will have
    const fake_cluster all(2,
                           [&](const fake_cluster& of, std::size_t node, const words& said) -> std::string {
                               // Of one socket, each of which has a thread: two are used at once.
                               static thread_local bool asking = false;
                               if (said[0] == "CLUSTER") return of.slots({0, 1});
                               if (said[0] == "ASKING") {
                                   asking = true;
                                   return "+OK\r\n";
                               }
                               const bool behind_asking = std::exchange(asking, false);
                               const auto slot = hash_slot(said[1]);
                               if (node == 0) return said[1] == moves ? of.moved(slot, 1) : of.ask(slot, 1);
                               return behind_asking == (said[1] == is_asked_for) ? found : of.moved(slot, 0);
                           });
    moves = key_at(all, 0);
    is_asked_for = key_at(all, 0, 1);
    REQUIRE(moves != is_asked_for);
    cluster_connection redis{all.uri()};
    const std::vector<command> commands{get(moves), get(is_asked_for)};
    std::vector<reply> replies(2);
    redis.pipeline(commands, replies);
    for (const reply& one : replies) CHECK(one.is_string("found"));
    CHECK(all.commands("GET") == 4);
}

TEST_CASE("the last sixteen of the nodes that are in no map keep their sockets") {
    std::array<std::atomic<int>, 18> ended{};
    std::vector<std::unique_ptr<fake_server>> importing;
    for (std::size_t i = 0; i < ended.size(); ++i) {
        importing.push_back(std::make_unique<fake_server>([&, i](fake_server::peer& p) {
            while (const auto said = p.next_command()) p.send(said->at(0) == "ASKING" ? "+OK\r\n" : found);
            ++ended[i];
        }));
    }
    std::atomic<std::size_t> next{0};
    const fake_cluster all(1, [&](const fake_cluster& of, std::size_t, const words& said) {
        if (said[0] == "CLUSTER") return of.slots({0});
        return "-ASK " + std::to_string(hash_slot(said[1])) +
               " 127.0.0.1:" + std::to_string(importing[next++]->port()) + "\r\n";
    });
    cluster_connection redis{all.uri(0, "?connect_timeout=20s&command_timeout=20s")};
    for (std::size_t i = 0; i < ended.size(); ++i) CHECK(redis.execute(get("orders")).is_string("found"));
    CHECK(eventually([&] { return ended[0] == 1 && ended[1] == 1; }));
    CHECK(std::count(ended.begin(), ended.end(), 0) == 16);
}

TEST_CASE("a pipeline is sorted by nodes, and what was redirected is sent again") {
    const fake_cluster all(3, honest_but_for_the_map({1, 2, 0}));
    cluster_connection redis{all.uri()};
    std::vector<std::string> keys;
    for (int i = 0; i < 30; ++i) keys.push_back("k" + std::to_string(i));
    std::vector<command> commands;
    for (const std::string& key : keys) commands.push_back(get(key));
    std::vector<reply> replies(keys.size());
    redis.pipeline(commands, replies);
    for (const reply& one : replies) CHECK(one.is_string("found"));
    CHECK(all.commands("GET") == 60);
    for (std::size_t i = 0; i < 3; ++i) CHECK(all.node(i).accepted() <= 2);
}

TEST_CASE("a command that was redirected too late is not sent again, and the rest of its pipeline is") {
    const auto honest = honest_but_for_the_map({1, 0});
    const fake_cluster all(2, [&](const fake_cluster& of, std::size_t node, const words& said) {
        if (said[0] == "GET" && node == 1) ::poll(nullptr, 0, 50);
        return honest(of, node, said);
    });
    cluster_connection redis{all.uri()};
    const std::string key = key_at(all, 0);
    std::vector<command> commands{get(key), get(key)};
    commands[0].until(clk::now() + 20ms);
    std::vector<reply> replies(2);
    redis.pipeline(commands, replies);
    CHECK_FALSE(replies[0].answered());
    CHECK(replies[1].is_string("found"));
    CHECK(all.node(0).commands("GET") == 1);
    CHECK(all.node(1).commands("GET") == 2);
}

TEST_CASE("a node that does not answer delays no command for others, in a pipeline or alone") {
    std::atomic<bool> hangs{false};
    fake_server silent([&](fake_server::peer& p) {
        while (const auto said = p.next_command()) {
            if (hangs || !p.send(found)) break;
        }
        p.wait_for_end();
    });
    std::atomic<int> answered{0};
    const fake_cluster all(1, [&](const fake_cluster& of, std::size_t, const words& said) {
        if (said[0] == "CLUSTER") {
            std::string map = of.slots({0, 0});
            return fake_cluster::with_last_at(map, std::to_string(silent.port()));
        }
        ++answered;
        return found;
    });
    cluster_connection redis{all.uri()};
    const std::string there = "foo";   // 12182
    const std::string here = "hello";  // 866
    CHECK(redis.execute(get(there)).is_string("found"));
    hangs = true;
    const std::vector<command> commands{get(there), get(here)};
    std::vector<reply> replies(2);
    std::jthread caller([&] { redis.pipeline(commands, replies); });
    const auto start = clk::now();
    CHECK(eventually([&] { return answered == 1; }));
    CHECK(clk::now() - start < timing_tolerance);
    CHECK(redis.execute(get(here)).is_string("found"));
    caller.join();
    CHECK(clk::now() - start < 1s);
    CHECK(replies[0].is(reply_kind::no_answer));
    CHECK(replies[1].is_string("found"));
}

TEST_CASE("a node that did not answer a pipeline is not waited for by the next, until it answers again") {
    std::atomic<bool> hangs{false};
    fake_server silent([&](fake_server::peer& p) {
        while (const auto said = p.next_command()) {
            if (hangs || !p.send(found)) break;
        }
        p.wait_for_end();
    });
    const fake_cluster all(1, [&](const fake_cluster& of, std::size_t, const words& said) {
        if (said[0] != "CLUSTER") return found;
        const std::string map = of.slots({0, 0});
        return fake_cluster::with_last_at(map, std::to_string(silent.port()));
    });
    cluster_connection redis{all.uri(0, "?command_timeout=1s")};
    const std::string there = "foo";   // 12182
    const std::string here = "hello";  // 866
    const std::vector<command> commands{get(there), get(here)};
    std::vector<reply> replies(2);
    redis.pipeline(commands, replies);
    CHECK(replies[0].is_string("found"));
    hangs = true;
    redis.pipeline(commands, replies);
    CHECK(replies[0].is(reply_kind::no_answer));
    const int sent = silent.commands("GET");
    for (int i = 0; i < 10; ++i) {
        CHECK(time_of([&] { redis.pipeline(commands, replies); }) < 1s);
        CHECK(replies[0].is(reply_kind::not_sent));
        CHECK_THAT(replies[0].text(), contains_text("did not answer"));
        CHECK(replies[1].is_string("found"));
    }
    CHECK(silent.commands("GET") == sent);
    // One question for many of them is whether it lives.
    CHECK(eventually([&] { return silent.commands("PING") >= 1; }));
    CHECK(silent.commands("PING") < 10);
    hangs = false;
    CHECK(eventually([&] {
        redis.pipeline(commands, replies);
        return replies[0].is_string("found");
    }));
    // When it falls silent once more, it is asked once more.
    hangs = true;
    redis.pipeline(commands, replies);
    CHECK(replies[0].is(reply_kind::no_answer));
    const int asked = silent.commands("PING");
    CHECK(eventually([&] {
        redis.pipeline(commands, replies);
        return silent.commands("PING") > asked;
    }));
}

namespace {

std::string the_second_is_silent(const fake_cluster& of, std::size_t node, const words& said) {
    if (said[0] == "CLUSTER") return of.slots({0, 1});
    return node == 1 ? "" : found;
}

/// A pipeline to both of two nodes.
struct to_both {
    explicit to_both(const fake_cluster& all) : here(key_at(all, 0)), there(key_at(all, 1)) {}
    void send(cluster_connection& redis) { redis.pipeline(commands, replies); }
    const std::string here;
    const std::string there;
    const std::vector<command> commands{get(here), get(there)};
    std::vector<reply> replies = std::vector<reply>(2);
};

}  // namespace

TEST_CASE("a node that did not answer a pipeline is tried by no other for as long as it answers nothing") {
    const fake_cluster all(2, [](const fake_cluster& of, std::size_t node, const words& said) {
        return node == 1 ? std::string() : the_second_is_silent(of, node, said);
    });
    cluster_connection redis{all.uri(0, "?connect_timeout=300ms&command_timeout=300ms")};
    to_both pipe(all);
    pipe.send(redis);
    REQUIRE(all.node(1).commands("GET") == 1);
    // A node that nobody asks whether it lives is tried again after two seconds.
    const auto until = clk::now() + 2500ms;
    CHECK(eventually([&] {
        pipe.send(redis);
        return clk::now() > until;
    }));
    CHECK(all.node(1).commands("GET") == 1);
}

TEST_CASE("the end of a connection does not wait for a node that is just asked whether it lives") {
    const fake_cluster all(2, the_second_is_silent);
    auto redis = std::make_unique<cluster_connection>(all.uri(0, "?command_timeout=1s"));
    to_both pipe(all);
    pipe.send(*redis);
    pipe.send(*redis);
    CHECK(pipe.replies[0].is_string("found"));
    CHECK(pipe.replies[1].is(reply_kind::not_sent));
    CHECK(eventually([&] { return all.node(1).commands("PING") == 1; }));
    CHECK(time_of([&] { redis.reset(); }) < 500ms);
}

TEST_CASE("a child after fork() that ends its copy of a connection ends no question of its parent") {
    std::atomic<bool> hangs{true};
    const fake_cluster all(2, [&](const fake_cluster& of, std::size_t node, const words& said) {
        if (said[0] == "CLUSTER") return of.slots({0, 1});
        if (said[0] == "PING") eventually([&] { return !hangs; });
        return node == 1 && hangs ? std::string() : found;
    });
    auto redis = std::make_unique<cluster_connection>(all.uri(0, "?command_timeout=2s"));
    to_both pipe(all);
    pipe.send(*redis);
    pipe.send(*redis);
    REQUIRE(eventually([&] { return all.node(1).commands("PING") == 1; }));
    CHECK(in_child([&] {
        redis.reset();
        return true;
    }));
    hangs = false;
    CHECK(eventually([&] {
        pipe.send(*redis);
        return pipe.replies[1].is_string("found");
    }));
    CHECK(all.node(1).commands("PING") == 1);
}

// It was never asked again.
TEST_CASE("every other pipeline tries a silent node where no thread can ask it whether it lives") {
    const fake_cluster all(2, the_second_is_silent);
    CHECK(in_child([&] {
        if (!let_no_thread_start()) return false;
        cluster_connection redis{all.uri()};
        to_both pipe(all);
        bool good = true;
        for (int i = 0; i < 5; ++i) {
            pipe.send(redis);
            good = good && pipe.replies[0].is_string("found") && !pipe.replies[1].answered();
        }
        return good;
    }));
    CHECK(eventually([&] { return all.node(1).commands("GET") == 3; }));
    CHECK(all.node(1).commands("PING") == 0);
}

// A command took two questions for the map and a connect, half as long again as the connection said.
TEST_CASE("a command asks once for a map that nobody gives, and is over in the time that is said") {
    std::atomic<bool> hangs{false};
    std::string map;
    const fake_server node([&](fake_server::peer& p) {
        p.answers_greeting();
        while (const auto said = p.next_command()) {
            const auto& word = said->at(0);
            const bool told = !hangs && p.send(word == "CLUSTER"   ? map
                                               : word == "ASKING"  ? "+OK\r\n"
                                               : word == "EVALSHA" ? "-NOSCRIPT none\r\n"
                                                                   : found);
            if (!told) break;
        }
        p.wait_for_end();
    });
    map = "*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$9\r\n127.0.0.1\r\n:" + std::to_string(node.port()) + "\r\n";
    cluster_connection redis{"redis+cluster://127.0.0.1:" + std::to_string(node.port()) +
                             "?connect_timeout=300ms&command_timeout=300ms"};
    REQUIRE(redis.execute(get("hello")).is_string("found"));
    hangs = true;
    CHECK_FALSE(redis.execute(get("hello")).answered());  // the map is due now
    const auto all_at_once = GENERATE(false, true);
    std::vector<reply> replies(1);
    int asked = 0;
    // A map may be asked for ten times a second.
    REQUIRE(eventually([&] {
        const int before = node.commands("ASKING");
        const auto begun = clk::now();
        if (all_at_once) {
            redis.pipeline(std::vector{get("hello")}, replies);
        } else {
            replies[0] = redis.execute(get("hello"));
        }
        CHECK(clk::now() - begun < redis.connect_timeout() + redis.command_timeout() + timing_tolerance);
        asked = node.commands("ASKING") - before;
        return asked > 1;
    }));
    CHECK(replies[0].is(reply_kind::not_sent));
    CHECK(asked == 2);  // for the map, and for the command
}

TEST_CASE("a node that did not answer is the last one to be asked for a new map") {
    std::atomic<bool> hangs{false};
    std::string map;
    fake_server first([&](fake_server::peer& p) {
        while (const auto said = p.next_command()) {
            if (hangs || !p.send(said->at(0) == "CLUSTER" ? map : found)) break;
        }
        p.wait_for_end();
    });
    const fake_cluster second(1, [&](const fake_cluster&, std::size_t, const words& said) {
        return said[0] == "CLUSTER" ? map : found;
    });
    map = second.slots({0, 0});
    const auto port = map.find(':', map.find("127.0.0.1"));
    map.replace(port, map.find("\r\n", port) - port, ":" + std::to_string(first.port()));
    cluster_connection redis{"redis+cluster://127.0.0.1:" + std::to_string(first.port())};
    const std::string low = "hello";  // 866
    const std::string high = "foo";   // 12182
    CHECK(redis.execute(get(low)).is_string("found"));
    CHECK(first.commands("CLUSTER") == 1);
    hangs = true;
    CHECK(redis.execute(get(low)).is(reply_kind::no_answer));
    const auto start = clk::now();
    CHECK(redis.execute(get(high)).is_string("found"));
    CHECK(clk::now() - start < timing_tolerance);
    CHECK(second.commands("CLUSTER") == 1);
    CHECK(first.commands("CLUSTER") == 1);
}

TEST_CASE("nodes that did not answer are the last ones to be asked for a new map, however many") {
    std::atomic<bool> hangs{false};
    const auto honest = honest_but_for_the_map({0, 1, 2});
    const fake_cluster all(3, [&](const fake_cluster& of, std::size_t node, const words& said) {
        return hangs && node != 0 ? std::string() : honest(of, node, said);
    });
    for (const std::size_t seed : {1U, 2U}) {
        INFO("seed " << seed);
        hangs = false;
        cluster_connection redis{all.uri(seed)};
        const std::array keys{key_at(all, 0), key_at(all, 1), key_at(all, 2)};
        CHECK(redis.execute(get(keys[0])).is_string("found"));
        const std::array asked{all.node(0).commands("CLUSTER"), all.node(1).commands("CLUSTER"),
                               all.node(2).commands("CLUSTER")};
        hangs = true;
        const std::vector<command> commands{get(keys[1]), get(keys[2])};
        std::vector<reply> replies(2);
        redis.pipeline(commands, replies);
        CHECK(replies[0].is(reply_kind::no_answer));
        CHECK(replies[1].is(reply_kind::no_answer));
        CHECK(eventually([&] {
            return redis.execute(get(keys[0])).is_string("found") &&
                   all.node(0).commands("CLUSTER") > asked[0];
        }));
        CHECK(all.node(1).commands("CLUSTER") == asked[1]);
        CHECK(all.node(2).commands("CLUSTER") == asked[2]);
    }
}

TEST_CASE("a command without time in a pipeline leaves the others the time to ask for the map") {
    std::atomic<int> maps{0};
    const fake_cluster all(1, with_nobody_last_at_first(maps, {0, 0}));
    cluster_connection redis{all.uri(0, "?connect_timeout=20s&command_timeout=20s")};
    const std::string there = "foo";  // 12182
    CHECK(redis.execute(get("hello")).is_string("found"));
    REQUIRE(the_next_map_may_be_asked_for());
    std::vector<command> commands{get(there), get(there)};
    commands[0].until(clk::now());
    std::vector<reply> replies(2);
    redis.pipeline(commands, replies);
    CHECK_FALSE(replies[0].answered());
    CHECK(replies[1].is_string("found"));
    CHECK(maps == 2);
}

TEST_CASE("a command that a node refuses is not sent to it again where the next map still names it") {
    std::atomic<bool> demoted{false};
    const fake_cluster all(1, [&](const fake_cluster& of, std::size_t, const words& said) {
        if (said[0] == "CLUSTER") return of.slots({0});
        return demoted ? std::string("-READONLY You can't write against a read only replica.\r\n") : found;
    });
    cluster_connection redis{all.uri(0, "?connect_timeout=20s&command_timeout=20s")};
    const std::string key = "orders";
    CHECK(redis.execute(get(key)).is_string("found"));
    REQUIRE(the_next_map_may_be_asked_for());
    demoted = true;
    CHECK(redis.execute(get(key)).is(reply_kind::error));
    CHECK(all.commands("CLUSTER") == 2);
    CHECK(all.commands("GET") == 2);
}

TEST_CASE("a node that cannot be reached is replaced by the one that the next map names") {
    std::atomic<int> maps{0};
    const fake_cluster all(1, with_nobody_last_at_first(maps, {0}));
    cluster_connection redis{all.uri()};
    const std::string key = "orders";
    const auto first = redis.execute(get(key));
    CHECK(first.is(reply_kind::not_sent));
    CHECK(first.cause() == errc::unreachable);
    CHECK(eventually([&] { return redis.execute(get(key)).is_string("found"); }));
    CHECK(maps == 2);
}

TEST_CASE(
    "a command that could not be sent to its node goes to the one that the next map names, in one call") {
    std::atomic<int> maps{0};
    const fake_cluster all(1, with_nobody_last_at_first(maps, {0, 0}));
    cluster_connection redis{all.uri()};
    const std::string here = "hello";  // 866
    const std::string there = "foo";   // 12182
    CHECK(redis.execute(get(here)).is_string("found"));
    REQUIRE(the_next_map_may_be_asked_for());
    CHECK(redis.execute(get(there)).is_string("found"));
    CHECK(maps == 2);
}

TEST_CASE("a post that does not reach its node is a reason to ask for the map") {
    std::atomic<int> maps{0};
    const fake_cluster all(1, with_nobody_last_at_first(maps, {0, 0}));
    cluster_connection redis{all.uri()};
    CHECK(redis.execute(get("hello")).is_string("found"));
    REQUIRE(the_next_map_may_be_asked_for());
    CHECK_FALSE(redis.post(get("foo")));
    CHECK(redis.execute(get("hello")).is_string("found"));
    CHECK(maps == 2);
    CHECK(redis.post(get("foo")));
}

// The next one took "no map" for the answer of all nodes.
TEST_CASE("a caller without time for the answer does not keep others from the next map") {
    const closed_port closed;
    const auto nobody = std::to_string(closed.number());
    std::atomic<int> maps{0};
    const fake_cluster all(1, [&](const fake_cluster& of, std::size_t, const words& said) {
        if (said[0] != "CLUSTER") return found;
        const std::string map = of.slots({0, 0});
        if (++maps == 1) return fake_cluster::with_last_at(map, nobody);
        ::poll(nullptr, 0, 150);
        return map;
    });
    cluster_connection redis{all.uri(0, "?connect_timeout=20s&command_timeout=20s")};
    const std::string here = "hello";  // 866
    const std::string there = "foo";   // 12182
    CHECK(redis.execute(get(here)).is_string("found"));
    REQUIRE(the_next_map_may_be_asked_for());
    std::jthread hasty([&] {
        auto late = get(there);
        late.until(clk::now() + 50ms);
        static_cast<void>(redis.execute(late));
    });
    REQUIRE(eventually([&] { return maps == 2; }));
    CHECK(redis.execute(get(there)).is_string("found"));
}

// A place that looked like the password was shown, and followed, as "***".
// The URI names where the Cluster was found: of twenty nodes nobody was told which has no memory.
TEST_CASE("an error of a node names it") {
    const fake_cluster all(2, [](const fake_cluster& of, std::size_t, const words& said) -> std::string {
        return said[0] == "CLUSTER" ? of.slots({0, 1}) : "-OOM no memory\r\n";
    });
    cluster_connection redis{all.uri()};
    const std::string key = key_at(all, 1);
    const auto ask = get(key);
    std::vector<reply> replies(1);
    redis.pipeline(std::vector{ask}, replies);
    for (const reply& said : {redis.execute(ask), replies[0]}) {
        CHECK(said.said() == "OOM no memory");
        CHECK(said.text() == "OOM no memory (at 127.0.0.1:" + std::to_string(all.node(1).port()) + ")");
    }
}

// Where its text was cut for messages the port was gone.
TEST_CASE("a redirection is followed to a host whose name is as long as names may be") {
    const std::string host = std::string(244, '0') + "177.0.0.1";  // octal: 127.0.0.1
    const fake_cluster all(2, [&](const fake_cluster& of, std::size_t node, const words& said) {
        if (said[0] == "CLUSTER") return of.slots({0, 0});
        if (node == 1) return found;
        return "-MOVED " + std::to_string(hash_slot(said[1])) + " " + host + ":" +
               std::to_string(of.node(1).port()) + "\r\n";
    });
    cluster_connection redis{all.uri()};
    CHECK(redis.execute(get("key")).is_string("found"));
}

TEST_CASE("a redirection is followed whatever the password is") {
    const fake_cluster all(2, [](const fake_cluster& of, std::size_t node, const words& said) -> std::string {
        if (said[0] == "AUTH") return "+OK\r\n";
        if (said[0] == "CLUSTER") return "-NOPERM this user has no permissions\r\n";
        return node == 1 ? found : of.moved(hash_slot(said[1]), 1);
    });
    cluster_connection redis{"redis+cluster://:" + std::to_string(all.node(1).port()) +
                             "@127.0.0.1:" + std::to_string(all.node(0).port())};
    CHECK(redis.execute(get("orders")).is_string("found"));
}

TEST_CASE("the map is not asked for again as long as the nodes answer") {
    const fake_cluster all(2, honest_but_for_the_map({0, 1}));
    cluster_connection redis{all.uri(0, "?connect_timeout=20s&command_timeout=20s")};
    const std::string here = key_at(all, 0);
    const std::string there = key_at(all, 1);
    // Time enough to ask for it five times.
    for (const auto until = clk::now() + 500ms; clk::now() < until;) {
        CHECK(redis.execute(get(here)).is_string("found"));
        CHECK(redis.execute(get(there)).is_string("found"));
        redis.follow();
        ::poll(nullptr, 0, 10);
    }
    CHECK(all.commands("CLUSTER") == 1);
}

TEST_CASE("a node that left the map is closed") {
    std::atomic<bool> left{false};
    std::atomic<int> ended{0};
    std::atomic<std::uint16_t> heir{0};
    fake_server leaving([&](fake_server::peer& p) {
        while (const auto said = p.next_command())
            p.send(left ? "-MOVED 12182 127.0.0.1:" + std::to_string(heir) + "\r\n" : found);
        ++ended;
    });
    const fake_cluster all(1, [&](const fake_cluster& of, std::size_t, const words& said) {
        if (said[0] != "CLUSTER") return found;
        std::string map = of.slots({0, 0});
        return left ? map : fake_cluster::with_last_at(map, std::to_string(leaving.port()));
    });
    heir = all.node(0).port();
    cluster_connection redis{all.uri()};
    const std::string key = "foo";  // 12182
    CHECK(redis.execute(get(key)).is_string("found"));
    CHECK(leaving.commands("GET") == 1);
    CHECK(ended == 0);
    left = true;
    // The first call is redirected; the next one that may asks for the map.
    CHECK(eventually([&] { return redis.execute(get(key)).is_string("found") && ended > 0; }));
    CHECK(leaving.commands("GET") == 2);
    CHECK(leaving.accepted() == ended);
}

TEST_CASE("a node that left the map and still answers ends no command that is under way to it") {
    std::atomic<bool> left{false};
    std::atomic<bool> under_way{false};
    std::atomic<int> maps{0};
    std::atomic<std::uint16_t> heir{0};
    fake_server leaving([&](fake_server::peer& p) {
        while (const auto said = p.next_command()) {
            if (said->at(1) == "late{foo}") {
                under_way = true;
                eventually([&] { return maps >= 2; });
                if (!p.nap(50ms) || !p.send(found)) return;
            } else {
                p.send(left ? "-MOVED 12182 127.0.0.1:" + std::to_string(heir) + "\r\n" : found);
            }
        }
    });
    const fake_cluster all(1, [&](const fake_cluster& of, std::size_t, const words& said) {
        if (said[0] != "CLUSTER") return found;
        if (left) ++maps;
        std::string map = of.slots({0, 0});
        return left ? map : fake_cluster::with_last_at(map, std::to_string(leaving.port()));
    });
    heir = all.node(0).port();
    cluster_connection redis{all.uri(0, "?command_timeout=20s")};
    REQUIRE(redis.execute(get("foo")).is_string("found"));
    maps = 1;
    reply answer;
    std::jthread caller([&] { answer = redis.execute(get("late{foo}")); });
    REQUIRE(eventually([&] { return under_way.load(); }));
    left = true;
    CHECK(eventually([&] { return redis.execute(get("foo")).is_string("found") && maps >= 2; }));
    caller.join();
    CHECK(answer.is_string("found"));
}

TEST_CASE("a node that left the map and does not answer ends every command that is under way to it") {
    std::atomic<bool> left{false};
    fake_server leaving([&](fake_server::peer& p) {
        while (const auto said = p.next_command()) {
            if (said->at(1) != "foo") break;
            p.send(found);
        }
        p.wait_for_end();
    });
    const fake_cluster all(1, [&](const fake_cluster& of, std::size_t, const words& said) {
        if (said[0] != "CLUSTER") return found;
        const std::string map = of.slots({0, 0});
        return left ? map : fake_cluster::with_last_at(map, std::to_string(leaving.port()));
    });
    cluster_connection redis{all.uri(0, "?command_timeout=10s")};
    REQUIRE(redis.execute(get("foo")).is_string("found"));
    reply answer;
    std::atomic<bool> ended{false};
    std::jthread caller([&] {
        answer = redis.execute(get("late{foo}"));
        ended = true;
    });
    REQUIRE(eventually([&] { return leaving.commands("GET") == 2; }));
    left = true;
    const std::string too_late = "too late{foo}";
    command hasty = get(too_late);
    CHECK(redis.execute(hasty.until(clk::now() + 50ms)).is(reply_kind::no_answer));
    CHECK(eventually(
        [&] {
            static_cast<void>(redis.execute(get("hello")));
            return ended.load();
        },
        5s));
    caller.join();
    CHECK(answer.is(reply_kind::no_answer));
    CHECK(redis.execute(get("foo")).is_string("found"));
}

TEST_CASE("a map in which each slot is a range of its own is read, and no command is redirected") {
    std::vector<std::size_t> owners(distlock::slot_count);
    for (std::size_t slot = 0; slot < owners.size(); ++slot) owners[slot] = slot % 3;
    std::once_flag once;
    std::string map;
    const fake_cluster all(3, [&](const fake_cluster& of, std::size_t node, const words& said) {
        std::call_once(once, [&] { map = of.slots(owners); });
        if (said[0] == "CLUSTER") return map;
        const auto slot = hash_slot(said[1]);
        return owners[slot] == node ? found : of.moved(slot, owners[slot]);
    });
    cluster_connection redis{all.uri(0, "?command_timeout=20s")};
    for (int i = 0; i < 100; ++i) {
        const auto key = "k" + std::to_string(i);
        CHECK(redis.execute(get(key)).is_string("found"));
    }
    CHECK(all.commands("GET") == 100);
    CHECK(all.commands("CLUSTER") == 1);
}

TEST_CASE("a map with a host name beside each address is read, and no command is redirected") {
    const auto honest = honest_but_for_the_map({0, 1});
    const fake_cluster all(2, [&](const fake_cluster& of, std::size_t node, const words& said) {
        std::string answer = honest(of, node, said);
        if (said[0] != "CLUSTER") return answer;
        const std::string plain = "*2\r\n$9\r\n127.0.0.1\r\n";
        for (auto at = answer.find(plain); at != std::string::npos;
             at = answer.find(plain, at + plain.size())) {
            const auto end = answer.find("\r\n", at + plain.size()) + 2;
            answer.insert(end, "$2\r\nid\r\n*2\r\n$8\r\nhostname\r\n$4\r\nhost\r\n");
            answer[at + 1] = '4';
        }
        return answer;
    });
    cluster_connection redis{all.uri()};
    for (const char* const key : {"foo", "hello", "bar"}) CHECK(redis.execute(get(key)).is_string("found"));
    CHECK(all.commands("GET") == 3);
    CHECK(all.commands("CLUSTER") == 1);
}

TEST_CASE("a Cluster whose user may not ask for the map is used by its redirections") {
    const auto honest = honest_but_for_the_map({});
    const fake_cluster all(3, [&](const fake_cluster& of, std::size_t node, const words& said) {
        if (said[0] == "CLUSTER") return no_map;
        return honest(of, node, said);
    });
    cluster_connection redis{all.uri()};
    for (int round = 0; round < 2; ++round) {
        for (std::size_t place = 0; place < 3; ++place) {
            const auto key = key_at(all, place);
            CHECK(redis.execute(get(key)).is_string("found"));
        }
    }
    // The first time two of three were redirected.
    CHECK(all.commands("GET") == 8);
    for (std::size_t i = 0; i < 3; ++i) CHECK(all.node(i).accepted() == 1);
    for (std::size_t place = 0; place < 3; ++place) {
        const auto key = key_at(all, place);
        const auto wanted = std::make_shared<distlock::receipt>();
        wanted->expect();
        REQUIRE(redis.post(get(key), wanted));
        CHECK(collected(redis, *wanted));
    }
}

TEST_CASE("a Cluster that refuses its map is asked for it less and less often, and errors say so") {
    const auto honest = honest_but_for_the_map({});
    const fake_cluster all(2, [&](const fake_cluster& of, std::size_t node, const words& said) {
        if (said[0] == "CLUSTER") return no_map;
        if (said[1] == "nowhere") return of.moved(hash_slot(said[1]), 1 - node);
        return honest(of, node, said);
    });
    cluster_connection redis{all.uri()};
    const auto start = clk::now();
    const auto key = key_at(all, 0);
    bool answered = true;
    // Asked ten times a second it would be 15 times; the pauses are 200, 400 and 800 ms, and some jitter.
    while (clk::now() < start + 1500ms) answered = redis.execute(get(key)).is_string("found") && answered;
    CHECK(answered);
    CHECK(all.node(0).commands("CLUSTER") <= 4);
    CHECK(all.node(0).commands("CLUSTER") >= 2);
    const std::string nowhere = "nowhere";
    const std::string failed = redis.execute(get(nowhere)).text();
    CHECK_THAT(failed, contains_text("redirects again and again") &&
                           contains_text("CLUSTER SLOTS, which says where else, is refused: NOPERM"));
    const std::vector<command> commands{get(nowhere)};
    std::vector<reply> replies(1);
    redis.pipeline(commands, replies);
    CHECK_THAT(replies[0].text(), contains_text("is refused: NOPERM"));
}

TEST_CASE("a Cluster that is busy is asked for its map as often as before, and no error says it is refused") {
    const auto honest = honest_but_for_the_map({});
    const fake_cluster all(2, [&](const fake_cluster& of, std::size_t node, const words& said) {
        if (said[0] == "CLUSTER")
            return std::string("-BUSY Redis is busy running a script. You can only call SCRIPT KILL\r\n");
        if (said[1] == "nowhere") return of.moved(hash_slot(said[1]), 1 - node);
        return honest(of, node, said);
    });
    cluster_connection redis{all.uri(0, "?connect_timeout=20s&command_timeout=20s")};
    const auto key = key_at(all, 0);
    // Ten times a second. With pauses of 200, 400, ... 3200 ms the sixth question would come after six
    // seconds.
    CHECK(eventually(
        [&] {
            CHECK(redis.execute(get(key)).is_string("found"));
            return all.commands("CLUSTER") >= 6;
        },
        5s));
    const std::string nowhere = "nowhere";
    const std::string failed = redis.execute(get(nowhere)).text();
    CHECK_THAT(failed, contains_text("redirects again and again"));
    CHECK(failed.find("is refused") == std::string::npos);
}

// It would have been asked for as seldom as one that nobody gives.
TEST_CASE("a map that one node gives is not refused, though another one refuses it: no error says so") {
    const fake_cluster all(2, [](const fake_cluster& of, std::size_t node, const words& said) {
        if (said[0] == "CLUSTER") return node == 0 ? no_map : of.slots({0, 1});
        return of.moved(hash_slot(said[1]), 1 - node);
    });
    cluster_connection redis{all.uri() + ",127.0.0.1:" + std::to_string(all.node(1).port())};
    const std::string key = "nowhere";
    const std::string failed = redis.execute(get(key)).text();
    CHECK(all.node(0).commands("CLUSTER") == 1);
    CHECK_THAT(failed, contains_text("redirects again and again"));
    CHECK(failed.find("is refused") == std::string::npos);
}

namespace {

/// Three nodes that refuse their map; the last one takes the place of the second when that is dead.
fake_cluster::answering until_the_second_is_dead(const std::atomic<bool>& dead) {
    return [&dead](const fake_cluster& of, std::size_t node, const words& said) {
        if (dead && node == 1) return std::string();
        if (said[0] == "CLUSTER") return no_map;
        const auto slot = hash_slot(said[1]);
        const auto share = of.share_of(slot);
        const auto owner = dead && share == 1 ? 2 : share;
        return owner == node ? found : of.moved(slot, owner);
    };
}

}  // namespace

TEST_CASE("the node that took the place of a dead one is found though the Cluster refuses its map") {
    std::atomic<bool> dead{false};
    const fake_cluster all(3, until_the_second_is_dead(dead));
    cluster_connection redis{all.uri()};
    const auto key = key_at(all, 1);
    const auto another = key_at(all, 1, 1);
    CHECK(redis.execute(get(key)).is_string("found"));
    CHECK(redis.execute(get(another)).is_string("found"));
    // The one that dies is the last that was asked for the map.
    CHECK(eventually(
        [&] { return redis.execute(get(key)).is_string("found") && all.node(1).commands("CLUSTER") > 0; }));
    dead = true;
    CHECK(redis.execute(get(key)).is(reply_kind::no_answer));
    CHECK(redis.execute(get(key)).is_string("found"));
    CHECK(redis.execute(get(another)).is_string("found"));
    const std::vector<command> both{get(key), get(another)};
    std::vector<reply> replies(2);
    redis.pipeline(both, replies);
    CHECK(replies[0].is_string("found"));
    CHECK(replies[1].is_string("found"));
}

TEST_CASE(
    "the node that took the place of the URI's only one is found by way of one that a redirection named") {
    std::atomic<bool> dead{false};
    const fake_cluster all(3, until_the_second_is_dead(dead));
    cluster_connection redis{all.uri(1)};
    const auto elsewhere = key_at(all, 0);
    const auto key = key_at(all, 1);
    CHECK(redis.execute(get(elsewhere)).is_string("found"));
    CHECK(redis.execute(get(key)).is_string("found"));
    dead = true;
    CHECK(redis.execute(get(key)).is(reply_kind::no_answer));
    CHECK(redis.execute(get(key)).is_string("found"));
}

TEST_CASE("the first of the URI's nodes that answers is enough; where none does, the error says so at once") {
    const fake_cluster all(1, honest_but_for_the_map({0}));
    const closed_port closed;
    const auto nobody = std::to_string(closed.number());
    const auto port = std::to_string(all.node(0).port());
    const std::string key = "orders";
    cluster_connection redis{"redis+cluster://127.0.0.1:" + nobody + ",127.0.0.1:" + port};
    CHECK(redis.execute(get(key)).is_string("found"));
    cluster_connection none{"redis+cluster://127.0.0.1:" + nobody};
    const auto start = clk::now();
    const auto answer = none.execute(get(key));
    CHECK(clk::now() - start < 1s);
    CHECK(answer.is(reply_kind::not_sent));
    CHECK(answer.cause() == errc::unreachable);
}

TEST_CASE("the nodes of the URI are asked again when every one of the last map is gone") {
    constexpr std::size_t both = 2, none = 3;
    std::atomic<std::size_t> answers{both};  // else only the node of that number does
    std::atomic<std::size_t> owner{1};
    const fake_cluster all(2, [&](const fake_cluster& of, std::size_t node, const words& said) {
        if (answers != both && answers != node) return std::string();
        return said[0] == "CLUSTER" ? of.slots({owner, owner}) : found;
    });
    cluster_connection redis{all.uri(0, "?command_timeout=50ms")};
    const std::string key = "orders";
    REQUIRE(redis.execute(get(key)).is_string("found"));
    // The node of the URI is gone for a while, and the map was last asked of the other one.
    answers = none;
    CHECK(redis.execute(get(key)).is(reply_kind::no_answer));
    answers = 1;
    REQUIRE(eventually(
        [&] { return redis.execute(get(key)).is_string("found") && all.node(1).commands("CLUSTER") > 0; }));
    answers = owner = 0;
    CHECK(eventually([&] { return redis.execute(get(key)).is_string("found"); }));
}

TEST_CASE("a node that the map does not name by a host is where the map came from") {
    const std::string host = GENERATE("$0\r\n", "$-1", "+?");
    const fake_cluster all(1, [&](const fake_cluster& of, std::size_t, const words& said) {
        if (said[0] != "CLUSTER") return found;
        std::string map = of.slots({0});
        const std::string named = "$9\r\n127.0.0.1";
        return map.replace(map.find(named), named.size(), host);
    });
    const closed_port closed;
    const auto nobody = std::to_string(closed.number());
    cluster_connection redis{"redis+cluster://127.0.0.2:" + nobody + "," + all.uri().substr(16)};
    const std::string key = "orders";
    CHECK(redis.execute(get(key)).is_string("found"));
}

TEST_CASE("a command that a node did not answer is not sent to another") {
    fake_server silent([](fake_server::peer& p) {
        p.next_command();
        p.wait_for_end();
    });
    const fake_cluster all(1, [&](const fake_cluster& of, std::size_t, const words& said) {
        if (said[0] != "CLUSTER") return found;
        std::string map = of.slots({0});
        return fake_cluster::with_last_at(map, std::to_string(silent.port()));
    });
    cluster_connection redis{all.uri()};
    const std::string key = "orders";
    const auto answer = redis.execute(get(key));
    CHECK(answer.is(reply_kind::no_answer));
    CHECK(silent.commands("GET") == 1);
    CHECK(all.commands("GET") == 0);
}

TEST_CASE("a redirection of a posted command is noted as it is") {
    const fake_cluster all(2, honest_but_for_the_map({1, 0}));
    cluster_connection redis{all.uri()};
    const auto elsewhere = key_at(all, 1);
    CHECK(redis.execute(get(elsewhere)).is_string("found"));
    for (const bool known : {false, true}) {
        const auto key = known ? elsewhere : key_at(all, 0);
        const auto wanted = std::make_shared<distlock::receipt>();
        wanted->expect();
        REQUIRE(redis.post(get(key), wanted));
        const auto answer = collected(redis, *wanted);
        REQUIRE(answer);
        CHECK(answer->is(known ? reply_kind::string : reply_kind::error));
        if (!known) CHECK_THAT(answer->text(), contains_text("MOVED"));
    }
}

TEST_CASE(
    "when a master has left the map, the locks in its slots are renewed by its successor at once, and no "
    "others") {
    // The third node takes the place of the second, without one of its locks.
    std::atomic<bool> failed_over{false};
    std::mutex guard;
    std::vector<std::string> renewed;
    const fake_cluster all(3, [&](const fake_cluster& of, std::size_t node, const words& said) {
        if (said[0] == "CLUSTER") return of.slots({0, failed_over ? 2U : 1U});
        if (said[0] == "SET") return std::string("+OK\r\n");
        if (said[0] == "GET") return failed_over && node == 1 ? of.moved(hash_slot(said[1]), 2) : found;
        if (said[0] != "EVAL" && said[0] != "EVALSHA") return std::string("$-1\r\n");
        const std::lock_guard in(guard);
        renewed.push_back(said[3] + " by " + std::to_string(node));
        return std::string(said[3] == "{foo}:gone" ? ":0\r\n" : ":1\r\n");
    });
    const auto renewals = [&] {
        const std::lock_guard in(guard);
        std::sort(renewed.begin(), renewed.end());
        return renewed;
    };
    cluster_connection redis{all.uri()};
    const auto of_hello = std::make_shared<counting_observer>();
    const auto of_foo = std::make_shared<counting_observer>();
    using lock = distlock::mutex<cluster_connection, distlock::plain>;
    lock stays{redis, "hello", {}, of_hello};     // 866
    lock moves{redis, "{foo}:held", {}, of_foo};  // 12182
    lock gone{redis, "{foo}:gone", {}, of_foo};
    stays.lock();
    moves.lock();
    gone.lock();
    CHECK(renewals().empty());
    failed_over = true;
    const std::string key = "foo";
    const auto start = clk::now();
    CHECK(redis.execute(get(key)).is_string("found"));
    CHECK(eventually([&] { return of_foo->losses == 1; }));
    CHECK(clk::now() - start < 300ms + timing_tolerance);
    CHECK(eventually([&] { return of_foo->masters == 2; }));
    CHECK(renewals() == std::vector<std::string>{"{foo}:gone by 2", "{foo}:held by 2"});
    CHECK(of_hello->masters == 0);
    CHECK(moves.owns_lock());
    CHECK_FALSE(gone.owns_lock());
}

// Its successor was known only by a redirection, at the next renewal.
TEST_CASE("a slot that has no master for a while has another one when the map names it") {
    std::atomic<int> stage{0};
    std::atomic<int> mapped{0};
    const fake_cluster all(3, [&](const fake_cluster& of, std::size_t, const words& said) {
        if (said[0] == "SET") return std::string("+OK\r\n");
        if (said[0] == "GET") return mapped < stage ? of.moved(hash_slot(said[1]), 0) : found;
        if (said[0] != "CLUSTER") return std::string(":1\r\n");
        mapped = stage.load();
        if (stage != 1) return of.slots({0, stage == 0 ? 1U : 2U});
        return "*1\r\n*3\r\n:0\r\n:8191\r\n*2\r\n$9\r\n127.0.0.1\r\n:" + std::to_string(of.node(0).port()) +
               "\r\n";
    });
    cluster_connection redis{all.uri()};
    const auto seen = std::make_shared<counting_observer>();
    distlock::mutex<cluster_connection, distlock::plain> held{redis, "foo", {}, seen};
    held.lock();
    const std::string other = "hello";
    for (int next = 1; next <= 2; ++next) {
        stage = next;
        CHECK(eventually([&] {
            static_cast<void>(redis.execute(get(other)));  // a redirection has the map asked for
            return mapped == next;
        }));
    }
    CHECK(eventually([&] { return seen->masters == 1; }));
}

TEST_CASE("an owner that only holds a lock is told of a new master once the old one has ended its sockets") {
    std::atomic<bool> failed_over{false};
    fake_server dying([&](fake_server::peer& p) {
        while (const auto said = p.next_command()) {
            p.send("+OK\r\n");
            if (!eventually([&] { return failed_over.load(); })) return;
            p.reset();
        }
    });
    std::atomic<int> maps{0};
    const fake_cluster all(1, [&](const fake_cluster& of, std::size_t, const words& said) {
        if (said[0] != "CLUSTER") return std::string(":0\r\n");
        const std::string map = of.slots({0});
        // For a while nobody has taken its place.
        if (failed_over && ++maps > 2) return map;
        return fake_cluster::with_last_at(map, std::to_string(dying.port()));
    });
    cluster_connection redis{all.uri()};
    const auto seen = std::make_shared<counting_observer>();
    distlock::mutex<cluster_connection, distlock::plain> held{redis, "orders", {}, seen};
    held.lock();
    const auto start = clk::now();
    failed_over = true;
    CHECK(eventually([&] { return seen->losses == 1; }));
    CHECK(clk::now() - start < 1s + timing_tolerance);
    CHECK(seen->masters == 1);
    CHECK(maps <= 4);
}

// It was never heard again, as nothing was sent to it: the map was asked for twice a second, for hours.
TEST_CASE("a node that only ends an idle socket is asked whether it lives, and then left in peace") {
    const fake_server resting([&](fake_server::peer& p) {
        while (p.next_command() && p.send("+OK\r\n") && p.number() > 0) continue;
    });
    const fake_cluster all(1, [&](const fake_cluster& of, std::size_t, const words& said) {
        if (said[0] != "CLUSTER") return std::string("+OK\r\n");
        return fake_cluster::with_last_at(of.slots({0, 0}), std::to_string(resting.port()));
    });
    cluster_connection redis{all.uri()};
    const std::string there = "foo";
    CHECK(redis.execute(get(there)).is_status("OK"));
    CHECK(eventually([&] {
        redis.follow();
        return resting.commands("PING") == 1;
    }));
    const auto maps_in = [&](std::chrono::milliseconds span) {
        const int before = all.commands("CLUSTER");
        const auto end = clk::now() + span;
        static_cast<void>(eventually([&] {
            redis.follow();
            return clk::now() >= end;
        }));
        return all.commands("CLUSTER") - before;
    };
    CHECK(eventually([&] { return maps_in(1200ms) == 0; }));
    CHECK(resting.commands("PING") == 1);
}

TEST_CASE("for a silent node the map is asked for twice a second, and once more when it speaks again") {
    // It ends its first socket, and does not say that it lives.
    const fake_server resting([](fake_server::peer& p) {
        while (const auto said = p.next_command()) {
            if (said->at(0) == "PING") continue;
            if (!p.send(found) || p.number() == 0) return;
        }
    });
    const fake_cluster all(1, [&](const fake_cluster& of, std::size_t, const words& said) {
        if (said[0] != "CLUSTER") return found;
        return fake_cluster::with_last_at(of.slots({0, 0}), std::to_string(resting.port()));
    });
    cluster_connection redis{all.uri(0, "?connect_timeout=20s&command_timeout=20s")};
    const std::string there = "foo";
    const auto map_is_asked_for = [&] {
        const int before = all.commands("CLUSTER");
        return eventually([&] {
            redis.follow();
            return all.commands("CLUSTER") > before;
        });
    };
    CHECK(redis.execute(get(there)).is_string("found"));
    REQUIRE(eventually([&] {
        redis.follow();
        return resting.commands("PING") == 1;
    }));
    REQUIRE(map_is_asked_for());
    // After pauses of 100, 200 and 400 ms.
    const auto took = time_of([&] {
        for (int times = 0; times < 6; ++times) CHECK(map_is_asked_for());
    });
    CHECK(took < 4500ms);
    CHECK(redis.execute(get(there)).is_string("found"));
    CHECK(map_is_asked_for());
}

// Each question to them took half of what time was left, and it was as much the next time.
TEST_CASE("a node of the URI that answers slowly is found behind others that do not answer at all") {
    const fake_server deaf(scripts::hang);
    const fake_server dead(scripts::hang);
    const fake_server gone(scripts::hang);
    const fake_cluster all(1, [&](const fake_cluster& of, std::size_t, const words& said) {
        if (said[0] != "CLUSTER") return std::string("+OK\r\n");
        const auto then = clk::now() + 100ms;
        static_cast<void>(eventually([&] { return clk::now() >= then; }));
        return of.slots({0});
    });
    const auto port = [](const fake_server& of) { return ",127.0.0.1:" + std::to_string(of.port()); };
    const std::string uri = "redis+cluster://" + port(deaf).substr(1) + port(dead) + port(gone) +
                            port(all.node(0)) + "?connect_timeout=300ms&command_timeout=300ms";
    cluster_connection redis{uri};
    const std::string key = "foo";
    bool reached = false;
    for (int calls = 0; calls < 6 && !reached; ++calls) {
        command asked = get(key);
        asked.until(clk::now() + 600ms);
        reached = redis.execute(asked).is_status("OK");
    }
    CHECK(reached);
}

// Its question got half of the time, though nobody else was to be asked, and a socket of its own.
TEST_CASE("the only node of a URI gives its map though it needs most of both time-outs") {
    const fake_cluster all(1, [](const fake_cluster& of, std::size_t, const words& said) {
        if (said[0] == "GET") return found;
        const auto then = clk::now() + 600ms;
        static_cast<void>(eventually([&] { return clk::now() >= then; }));
        return said[0] == "CLUSTER" ? of.slots({0}) : std::string("+OK\r\n");
    });
    cluster_connection redis{"redis+cluster://:secret@127.0.0.1:" + std::to_string(all.node(0).port()) +
                             "?connect_timeout=1s&command_timeout=1s"};
    CHECK(redis.execute(get("orders")).is_string("found"));
    REQUIRE(the_next_map_may_be_asked_for());
    CHECK(redis.execute(get("orders")).is_string("found"));
    CHECK(all.commands("CLUSTER") == 1);
}

TEST_CASE("a node that is alone among silent ones gives its map though it needs most of both time-outs") {
    const fake_server deaf(scripts::hang);
    std::atomic<bool> slow{false};
    const fake_cluster all(1, [&](const fake_cluster& of, std::size_t, const words& said) {
        if (said[0] != "CLUSTER") return found;
        const auto then = clk::now() + (slow ? 1200ms : 0ms);
        static_cast<void>(eventually([&] { return clk::now() >= then; }));
        const auto map = of.slots({0, 0});
        return slow ? map : fake_cluster::with_last_at(map, std::to_string(deaf.port()));
    });
    cluster_connection redis{all.uri(0, "?connect_timeout=200ms&command_timeout=2s")};
    CHECK(redis.execute(get("hello")).is_string("found"));
    slow = true;
    const std::string at_the_deaf = "foo";
    command lost = get(at_the_deaf);
    CHECK(redis.execute(lost.until(clk::now() + 300ms)).is(reply_kind::not_sent));
    CHECK(redis.execute(get("hello")).is_string("found"));
    REQUIRE(the_next_map_may_be_asked_for());
    const int before = all.commands("CLUSTER");
    CHECK(redis.execute(get("hello")).is_string("found"));
    CHECK(redis.execute(get(at_the_deaf)).is_string("found"));
    CHECK(all.commands("CLUSTER") == before + 1);
}

TEST_CASE("the question for a map goes over the socket of the commands where there is none") {
    std::atomic<int> maps{0};
    const fake_cluster all(1, [&](const fake_cluster& of, std::size_t, const words& said) {
        if (said[0] != "CLUSTER") return found;
        return ++maps == 1 ? std::string() : of.slots({0});
    });
    cluster_connection redis{all.uri(0, "?command_timeout=500ms")};
    CHECK(redis.execute(get("orders")).is_string("found"));
    CHECK(eventually([&] { return redis.execute(get("orders")).is_string("found") && maps == 2; }));
    CHECK(all.node(0).accepted() == 2);
}

// Of what fell silent, only sixteen nodes were known; those before them were asked first again.
TEST_CASE("a node of the URI is found behind any number of others that do not answer") {
    std::vector<std::unique_ptr<fake_server>> silent;
    std::string uri = "redis+cluster://";
    for (int i = 0; i < 23; ++i) {
        silent.push_back(std::make_unique<fake_server>(scripts::hang));
        uri += "127.0.0.1:" + std::to_string(silent.back()->port()) + ",";
    }
    const fake_cluster all(1, honest_but_for_the_map({0}));
    cluster_connection redis{uri + all.uri(0, "?connect_timeout=100ms&command_timeout=50ms").substr(16)};
    CHECK(eventually([&] { return redis.execute(get("orders")).is_string("found"); }, 60s));
}

// It was asked first for ever, and its map believed: what the others gave a new master stayed unreachable.
TEST_CASE("a node that still names a dead one is not the only one to be asked for the map") {
    const closed_port closed;
    const auto nobody = std::to_string(closed.number());
    const fake_cluster all(2, [&](const fake_cluster& of, std::size_t node, const words& said) {
        if (said[0] != "CLUSTER") return found;
        const std::string map = of.slots({0, 1, 1});
        return node == 1 ? map : fake_cluster::with_last_at(map, nobody);
    });
    cluster_connection redis{all.uri()};
    CHECK(eventually([&] { return redis.execute(get("foo")).is_string("found"); }));
}

// ---- a write, and what waits for its replicas

namespace {

// Two nodes that have each other's slots by the first map. Whoever writes nothing is told at once
// that a replica has it.
std::string write_or_wait(const fake_cluster& of, std::size_t node, const words& said) {
    if (said[0] == "CLUSTER") return of.slots({1, 0});
    if (said[0] == "WAIT") return ":1\r\n";
    const auto slot = hash_slot(said[1]);
    return of.share_of(slot) == node ? std::string("+OK\r\n") : of.moved(slot, of.share_of(slot));
}

command set(std::string_view key) { return command({"SET", key, "x"}, key); }

}  // namespace

TEST_CASE("an owner is told of no new master when its slot only moves, and its lock with it") {
    std::atomic<bool> moved{false};
    std::atomic<int> renewed{0};
    const fake_cluster all(2, [&](const fake_cluster& of, std::size_t node, const words& said) {
        if (said[0] == "CLUSTER")
            return of.slots(moved ? std::vector<std::size_t>{1, 0} : std::vector<std::size_t>{0, 1});
        if (said[0] == "SET") return std::string("+OK\r\n");
        if (said[0] == "GET") return moved && node == 0 ? of.moved(hash_slot(said[1]), 1) : found;
        ++renewed;
        return std::string(":1\r\n");
    });
    cluster_connection redis{all.uri()};
    const auto seen = std::make_shared<counting_observer>();
    const std::string key = key_at(all, 0);
    distlock::mutex<cluster_connection, distlock::plain> held{redis, key, {.lease = 3s}, seen};
    held.lock();
    moved = true;
    CHECK(redis.execute(get(key)).is_string("found"));
    REQUIRE(
        eventually([&] { return all.node(1).commands("CLUSTER") + all.node(0).commands("CLUSTER") > 1; }));
    REQUIRE(eventually([&] { return renewed > 1; }));
    CHECK(seen->masters == 0);
    CHECK(seen->losses == 0);
    CHECK(held.owns_lock());
}

TEST_CASE("a write that was redirected is waited for where it was executed, and not where it was refused") {
    const fake_cluster all(2, write_or_wait);
    cluster_connection redis{all.uri()};
    const std::string key = "orders";
    const auto there = all.share_of(hash_slot(key));
    const distlock::replica_wait wait(1, 100ms);
    const auto write = set(key);
    const auto both = redis.execute_acknowledged(write, wait.behind(write));
    CHECK(both.answer.is_status("OK"));
    CHECK(both.replicated.is_integer(1));
    CHECK(all.node(there).commands("WAIT") == 1);
}

TEST_CASE("in a pipeline, too, a write that was redirected takes what waits for its replicas with it") {
    const fake_cluster all(2, write_or_wait);
    cluster_connection redis{all.uri()};
    const distlock::replica_wait wait(1, 100ms);
    std::vector<std::string> keys;
    for (int i = 0; i < 10; ++i) keys.push_back("k" + std::to_string(i));
    std::vector<command> commands;
    for (const auto& key : keys) {
        commands.push_back(set(key));
        commands.push_back(wait.behind(commands.back()));
    }
    std::vector<reply> replies(commands.size());
    redis.pipeline(commands, replies);
    for (std::size_t i = 0; i < replies.size(); i += 2) {
        CHECK(replies[i].is_status("OK"));
        CHECK(replies[i + 1].is_integer(1));
    }
    // One for each node and each sending: the first to the wrong ones.
    CHECK(all.commands("WAIT") == 4);
    CHECK(all.commands("SET") == 20);
}

TEST_CASE("a write to a slot on its way goes behind ASKING, and what waits for its replicas behind it") {
    std::vector<std::string> order;
    std::mutex guard;
    fake_server importing([&](fake_server::peer& p) {
        while (const auto said = p.next_command()) {
            {
                const std::lock_guard in(guard);
                order.push_back(said->at(0));
            }
            if (!p.send(said->at(0) == "WAIT" ? ":1\r\n" : "+OK\r\n")) return;
        }
    });
    const fake_cluster all(1, [&](const fake_cluster& of, std::size_t, const words& said) {
        if (said[0] == "CLUSTER") return of.slots({0});
        if (said[0] == "WAIT") return std::string(":0\r\n");
        return "-ASK " + std::to_string(hash_slot(said[1])) +
               " 127.0.0.1:" + std::to_string(importing.port()) + "\r\n";
    });
    cluster_connection redis{all.uri()};
    const std::string key = "orders";
    const distlock::replica_wait wait(1, 100ms);
    const auto write = set(key);
    const auto both = redis.execute_acknowledged(write, wait.behind(write));
    CHECK(both.answer.is_status("OK"));
    CHECK(both.replicated.is_integer(1));
    const std::vector<command> commands{write, wait.behind(write), set(key)};
    std::vector<reply> replies(3);
    redis.pipeline(commands, replies);
    CHECK(replies[0].is_status("OK"));
    CHECK(replies[1].is_integer(1));
    CHECK(replies[2].is_status("OK"));
    CHECK(importing.accepted() <=
          2);  // one for commands, and one for pipelines: a node that is in no map is kept, too
    const std::lock_guard in(guard);
    CHECK(order ==
          std::vector<std::string>{"ASKING", "SET", "WAIT", "ASKING", "SET", "WAIT", "ASKING", "SET"});
}

// ---- a map that is refused, and a node that does not answer

namespace {

std::string refusing_the_map(const fake_cluster&, std::size_t, const words& said) {
    return said[0] == "CLUSTER" ? no_map : found;
}

/// A node that has all slots and refuses the map, and behind it one that says nothing.
std::string uri_behind_which_one_is_silent(const fake_cluster& all, const fake_server& silent,
                                           const std::string& options = "") {
    return all.uri() + ",127.0.0.1:" + std::to_string(silent.port()) + options;
}

}  // namespace

// The silent one was given all the time that was left, and the command sent when that was over.
TEST_CASE("a node that refuses the map has time for the command, though another one is silent") {
    const fake_server silent(scripts::hang);
    const fake_cluster all(1, refusing_the_map);
    cluster_connection redis{uri_behind_which_one_is_silent(all, silent)};
    const std::string key = "orders";
    const auto time_enough = instrumented ? 1500ms : 400ms;
    int lost = 0;
    CHECK(eventually([&] {
        command hurried = get(key);
        if (!redis.execute(hurried.until(clk::now() + time_enough)).is_string("found")) ++lost;
        return all.commands("CLUSTER") > 3 && silent.accepted() > 1;
    }));
    CHECK(lost == 0);
}

TEST_CASE("a thread does not wait for another one's question for the map where that was refused") {
    const fake_server silent(scripts::hang);
    const fake_cluster all(1, refusing_the_map);
    cluster_connection redis{
        uri_behind_which_one_is_silent(all, silent, "?connect_timeout=2s&command_timeout=2s")};
    const std::string key = "orders";
    command hurried = get(key);
    CHECK(redis.execute(hurried.until(clk::now() + 800ms)).is_string("found"));
    const int before = silent.accepted();
    std::atomic<bool> over{false};
    bool asked = false;
    std::jthread asker([&] {
        asked = eventually(
            [&] { return redis.execute(get(key)).is_string("found") && silent.accepted() > before; });
        over = true;
    });
    REQUIRE(eventually([&] { return silent.accepted() > before; }));
    CHECK(redis.execute(get(key)).is_string("found"));
    CHECK_FALSE(over);
    asker.join();
    CHECK(asked);
}

TEST_CASE("a command whose time the question for the map took is not sent") {
    const fake_cluster all(1, [](const fake_cluster&, std::size_t, const words& said) {
        return said[0] == "CLUSTER" ? std::string() : found;
    });
    cluster_connection redis{all.uri()};
    const std::string key = "orders";
    command hurried = get(key);
    const auto answer = redis.execute(hurried.until(clk::now() + 100ms));
    CHECK(answer.is(reply_kind::not_sent));
    CHECK(answer.cause() == errc::unreachable);
    CHECK(all.commands("GET") == 0);
}

TEST_CASE("commands of a pipeline whose time the question for the map took are not sent") {
    const fake_cluster all(1, [](const fake_cluster&, std::size_t, const words& said) {
        return said[0] == "CLUSTER" ? std::string() : found;
    });
    cluster_connection redis{all.uri(0, "?command_timeout=300ms")};
    const std::string key = "orders";
    std::vector<command> commands{get(key), get(key), get(key)};
    commands[0].until(clk::now() + 100ms);
    commands[1].until(clk::now() + 100ms).bind_to_previous(0ms);
    commands[2].until(clk::now() + 10s);
    std::vector<reply> replies(3);
    redis.pipeline(commands, replies);
    for (const std::size_t late : {0U, 1U}) {
        CHECK(replies[late].is(reply_kind::not_sent));
        CHECK(replies[late].cause() == errc::unreachable);
    }
    CHECK(replies[2].is_string("found"));
    CHECK(all.commands("GET") == 1);
}

// ---- a node behind ASK that does not execute the command

namespace {

/// A node that has all slots, and sends who wants any of them to another server.
fake_cluster::answering asks_at(const fake_server& other) {
    return [port = std::to_string(other.port())](const fake_cluster& of, std::size_t, const words& said) {
        if (said[0] == "CLUSTER") return of.slots({0});
        return "-ASK " + std::to_string(hash_slot(said[1])) + " 127.0.0.1:" + port + "\r\n";
    };
}

}  // namespace

// ASKING had no deadline, and the pipeline has the last one of its commands.
TEST_CASE("a pipeline keeps its deadline behind ASK, where the node that is named does not answer") {
    const bool greets = GENERATE(false, true);
    const fake_server silent(greets ? scripts::hang_after_greeting : scripts::hang);
    const fake_cluster all(1, asks_at(silent));
    cluster_connection redis{all.uri(0, "?command_timeout=5s")};
    const std::string key = "orders";
    std::vector<command> commands{get(key)};
    std::vector<reply> replies(1);
    const auto took = time_of([&] {
        commands[0].until(clk::now() + 1s);
        redis.pipeline(commands, replies);
    });
    CHECK(replies[0].is(greets ? reply_kind::no_answer : reply_kind::not_sent));
    CHECK(silent.accepted() > 0);
    CHECK(silent.accepted() <= 2);  // the second after the connect time-out
    CHECK(took <= 1s + timing_tolerance);
}

// With an ASKING that nobody wanted the answer to, the socket was closed in good order.
TEST_CASE("a command that is given up behind ASK arrives no more: its socket is reset") {
    std::atomic<bool> reset{false};
    const fake_server halted([&](fake_server::peer& p) {
        p.next_command();
        p.next_command();
        reset = p.wait_for_end() == fake_server::ending::reset;
    });
    const fake_cluster all(1, asks_at(halted));
    cluster_connection redis{all.uri(0, "?command_timeout=100ms")};
    const std::string key = "orders";
    CHECK(redis.execute(get(key)).is(reply_kind::no_answer));
    CHECK(eventually([&] { return reset.load(); }));
}

// The refusal was taken for the answer to ASKING, and the command for one that may have been executed.
TEST_CASE("a node behind ASK that has its fill of clients is unavailable, and has executed nothing") {
    const fake_server full([](fake_server::peer& p) {
        while (const auto said = p.next_command()) {
            if (said->at(0) == "ASKING") continue;
            p.send("-ERR max number of clients reached\r\n");
            return p.close();
        }
    });
    const fake_cluster all(1, asks_at(full));
    cluster_connection redis{all.uri()};
    const std::string key = "orders";
    const auto refused = [](const reply& answer) {
        return answer.is(reply_kind::not_sent) && answer.cause() == errc::unavailable;
    };
    CHECK(refused(redis.execute(get(key))));
    const distlock::replica_wait wait(1, 100ms);
    const auto write = set(key);
    const auto both = redis.execute_acknowledged(write, wait.behind(write));
    CHECK(refused(both.answer));
    CHECK(refused(both.replicated));
    const std::vector<command> commands{get(key), write};
    std::vector<reply> replies(2);
    redis.pipeline(commands, replies);
    CHECK(refused(replies[0]));
    CHECK(refused(replies[1]));
}

}  // namespace cluster_redirections_tests
