// Messages of a Cluster: heard on the node of their slot, wherever that is, and whatever the others do.
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <distlock/base/clock.hpp>
#include <distlock/base/error.hpp>
#include <distlock/hiredis.hpp>
#include <distlock/net/hash_slot.hpp>
#include <distlock/net/subscription.hpp>
#include <distlock/wire/command.hpp>
#include <distlock/wire/reply.hpp>

#include "support/catch.hpp"
#include "support/fake_cluster.hpp"
#include "support/fake_server.hpp"
#include "support/in_child.hpp"
#include "support/no_threads.hpp"
#include "support/processor_time.hpp"
#include "support/sanitizers.hpp"
#include "support/timing_tolerance.hpp"
#include "support/waiting.hpp"

namespace cluster_subscriptions_tests {

using namespace std::chrono_literals;
using distlock::cluster_connection;
using distlock::command;
using distlock::hash_slot;
using distlock::listener;
using distlock::subscription;
using clk = distlock::clock;
using words = fake_cluster::words;
using woken = listener::woken;
using channel = std::shared_ptr<subscription>;

namespace {

std::string bulk(const std::string& text) {
    return "$" + std::to_string(text.size()) + "\r\n" + text + "\r\n";
}
std::string said_of(const std::string& word, const std::string& name) {
    return "*3\r\n" + bulk(word) + bulk(name) + ":1\r\n";
}
std::string message(const std::string& name, const std::string& text) {
    return "*3\r\n" + bulk("smessage") + bulk(name) + bulk(text);
}

/// What a node that has every slot answers to what a subscriber says; no commands.
std::string to_a_subscriber(const words& said) {
    if (said[0] == "SSUBSCRIBE") return said_of("ssubscribe", said[1]);
    if (said[0] == "SUNSUBSCRIBE") return said_of("sunsubscribe", said[1]);
    return "*2\r\n" + bulk("pong") + bulk("");
}

/// Returns: whether it was confirmed so often; somebody who waits reads that.
bool in_force(const channel& c, std::uint64_t times = 1) {
    listener mine(c, "no message");
    const auto until = clk::now() + 20s;
    while (c->confirmations() < times) {
        if (mine.wait(until, {}) == woken::by_time) return false;
    }
    return true;
}
std::string next_message(const channel& c) {
    listener mine(c, "");
    const auto until = clk::now() + 20s;
    for (;;) {
        const auto why = mine.wait(until, {});
        if (why == woken::by_message) return std::string(mine.message());
        if (why == woken::by_time) return "no message";
    }
}

std::string as_the_only_node(const fake_cluster& of, std::size_t, const words& said) {
    return said[0] == "CLUSTER" ? of.slots({0, 0}) : to_a_subscriber(said);
}

/// Returns: what a node that has every slot answers to a user who may not listen until that is `permitted`.
fake_cluster::answering once(const std::atomic<bool>& permitted) {
    return [&permitted](const fake_cluster& of, std::size_t node, const words& said) {
        if (said[0] == "SSUBSCRIBE" && !permitted) return std::string("-NOPERM no permissions\r\n");
        return as_the_only_node(of, node, said);
    };
}

/// Returns: what a node answers while `owner` has all slots; no other says by itself that they have left it.
fake_cluster::answering all_at(const std::atomic<std::size_t>& owner) {
    return [&owner](const fake_cluster& of, std::size_t node, const words& said) {
        if (said[0] == "CLUSTER") return of.slots({owner, owner});
        if (said[0] != "GET") return to_a_subscriber(said);
        return owner == node ? std::string("$-1\r\n") : of.moved(hash_slot(said[1]), owner);
    };
}

/// Returns: what the node of the low slots answers; `other` is the one of the high slots.
fake_cluster::answering next_to(const fake_server& other) {
    return [&other](const fake_cluster& of, std::size_t, const words& said) {
        if (said[0] != "CLUSTER") return to_a_subscriber(said);
        return fake_cluster::with_last_at(of.slots({0, 0}), std::to_string(other.port()));
    };
}

/// Effects: tells who listens more than it can hear.
void talk_without_end(fake_server::peer& to) {
    while (const auto said = to.next_command()) {
        if (said->at(0) != "SSUBSCRIBE") continue;
        std::string much = said_of("ssubscribe", said->at(1));
        for (int i = 0; i < 5000; ++i) much += message(said->at(1), "news");
        while (to.send(much)) continue;
        return;
    }
}

/// Returns: a thread that waits for messages that never come, and so reads all others, until it is destroyed.
std::jthread keep_reading(const channel& c) {
    return std::jthread([c](const std::stop_token& stop) {
        listener none(c, "no message");
        while (!stop.stop_requested()) none.wait(clk::now() + 20s, stop);
    });
}

const std::string low = "hello";  // slot 866, the first node's of two
const std::string low_too = "{hello}:2";
const std::string low_again = "{hello}:3";
const std::string high = "foo";  // slot 12182, the second's

}  // namespace

TEST_CASE("a channel is heard on the node of its slot, and a message when it is confirmed") {
    const fake_cluster all(2, [](const fake_cluster& of, std::size_t node, const words& said) {
        if (said[0] == "CLUSTER") return of.slots({0, 1});
        if (said[0] == "GET") return std::string("$-1\r\n");
        const bool begins = said[0] == "SSUBSCRIBE";
        return to_a_subscriber(said) + (begins ? message(said[1], "from " + std::to_string(node)) : "");
    });
    cluster_connection redis{all.uri()};
    static_cast<void>(redis.execute(command({"GET", std::string_view(low)})));
    const auto first = redis.subscribe(low);
    const auto second = redis.subscribe(high);
    CHECK(redis.subscribe(low) == first);
    CHECK(next_message(first) == "from 0");
    CHECK(in_force(second));
    CHECK(all.node(0).commands("SSUBSCRIBE") == 1);
    CHECK(all.node(1).commands("SSUBSCRIBE") == 1);
}

TEST_CASE("a channel that is redirected is heard where its slot is, whoever knew the map") {
    const fake_cluster all(2, [](const fake_cluster& of, std::size_t node, const words& said) {
        if (said[0] == "CLUSTER") return of.slots({1, 0});
        const auto slot = hash_slot(said[1]);
        if (said[0] == "SSUBSCRIBE" && of.share_of(slot) != node) return of.moved(slot, of.share_of(slot));
        return to_a_subscriber(said);
    });
    cluster_connection redis{all.uri()};
    const auto first = redis.subscribe(low);
    const auto second = redis.subscribe(high);
    CHECK(in_force(first));
    CHECK(in_force(second));
}

TEST_CASE("a channel that is redirected leaves the others of its node as they are") {
    const fake_cluster all(2, [](const fake_cluster& of, std::size_t node, const words& said) {
        if (said[0] == "CLUSTER") return of.slots({0, 0});
        if (said[0] == "SSUBSCRIBE" && said[1] == high && node == 0) return of.moved(hash_slot(high), 1);
        return to_a_subscriber(said);
    });
    cluster_connection redis{all.uri()};
    const auto stays = redis.subscribe(low);
    CHECK(in_force(stays));
    const auto goes = redis.subscribe(high);
    CHECK(in_force(goes));
    CHECK(stays->in_force());
    CHECK(stays->confirmations() == 1);
    CHECK(all.node(0).commands("SSUBSCRIBE") == 2);
    CHECK(all.node(1).commands("SSUBSCRIBE") == 1);
}

TEST_CASE("a channel whose slot leaves its node is heard on the next one") {
    std::atomic<int> subscribed{0};
    std::atomic<bool> moved{false};
    // The first node ends the subscription by itself, as servers do when a slot leaves them.
    const fake_cluster all(2, [&](const fake_cluster& of, std::size_t node, const words& said) {
        if (said[0] == "CLUSTER") return of.slots({0, 0});
        if (said[0] == "SSUBSCRIBE" && node == 0) {
            if (moved.exchange(true)) return of.moved(hash_slot(said[1]), 1);
            ++subscribed;
            return to_a_subscriber(said) + said_of("sunsubscribe", said[1]);
        }
        return to_a_subscriber(said);
    });
    cluster_connection redis{all.uri()};
    const auto mine = redis.subscribe(low);
    CHECK(in_force(mine, 2));
    CHECK(subscribed == 1);
    CHECK(all.node(0).commands("SSUBSCRIBE") == 2);
    CHECK(all.node(1).commands("SSUBSCRIBE") == 1);
    CHECK(mine->in_force());
}

TEST_CASE("a channel follows the map when commands find that its slot has moved") {
    std::atomic<bool> moved{false};
    const fake_cluster all(2, [&](const fake_cluster& of, std::size_t node, const words& said) {
        const std::vector<std::size_t> owners =
            moved ? std::vector<std::size_t>{1, 1} : std::vector<std::size_t>{0, 1};
        if (said[0] == "CLUSTER") return of.slots(owners);
        const auto slot = hash_slot(said[1]);
        if (said[0] == "GET")
            return owners[of.share_of(slot)] == node ? std::string("$-1\r\n") : of.moved(slot, 1);
        return to_a_subscriber(said);  // also a replica: it says nothing of a move
    });
    cluster_connection redis{all.uri()};
    const auto mine = redis.subscribe(low);
    CHECK(in_force(mine));
    CHECK(all.node(1).commands("SSUBSCRIBE") == 0);
    moved = true;
    bool again = false;
    std::jthread waiter([&] { again = in_force(mine, 2); });
    static_cast<void>(redis.execute(command({"GET", std::string_view(low)})));
    waiter.join();
    CHECK(again);
    CHECK(all.node(1).commands("SSUBSCRIBE") == 1);
    CHECK(eventually([&] { return all.node(0).commands("SUNSUBSCRIBE") == 1; }));  // nobody waits for it
}

namespace {

// A channel that somebody reads, while all slots move from one node to the other and back.
struct channel_that_moves {
    channel_that_moves() {
        CHECK(eventually([&] { return mine->confirmations() == 1; }));
    }
    void get(std::string_view key) { static_cast<void>(redis.execute(command({"GET", key}))); }
    /// Returns: how long five moves took, each of which `find(confirmations)` has commands find.
    template <class Find>
    std::chrono::milliseconds five_times(Find find) {
        return time_of([&] {
            for (std::uint64_t times = 2; times <= 6; ++times) {
                owner = 1 - owner;
                find(times);
            }
        });
    }

    std::atomic<std::size_t> owner{0};
    const fake_cluster all{2, all_at(owner)};
    cluster_connection redis{all.uri()};
    const channel mine = redis.subscribe(low);
    const std::jthread reading = keep_reading(mine);
};

}  // namespace

// By itself it looks once a second: a waiter's place was lost where the lock was released meanwhile.
TEST_CASE("a channel that somebody reads follows its slot as soon as a command finds that it has moved") {
    channel_that_moves c;
    const auto took = c.five_times([&](std::uint64_t times) {
        c.get(low);
        CHECK(eventually([&] { return c.mine->confirmations() == times; }));
    });
    CHECK(took < 2s);
}

TEST_CASE("a channel that somebody reads follows its slot as soon as a new map says that it has moved") {
    channel_that_moves c;
    const auto took = c.five_times([&](std::uint64_t times) {
        // A redirection of another slot; then the map is asked for.
        CHECK(eventually([&] {
            c.get(high);
            return c.mine->confirmations() == times;
        }));
    });
    CHECK(took < 3s);
}

TEST_CASE("a node that a channel has left neither confirms it, nor refuses it, nor ends it") {
    const bool refuses = GENERATE(false, true);
    std::atomic<bool> moved{false};
    std::atomic<bool> confirms{false};
    // The first node answers when the second was asked, then ends by itself what it is asked to end.
    const fake_cluster all(2, [&](const fake_cluster& of, std::size_t node, const words& said) {
        if (said[0] == "CLUSTER") return of.slots({moved ? 1U : 0U, 0});
        if (said[0] == "GET") return node == 0 ? of.moved(hash_slot(said[1]), 1) : std::string("$-1\r\n");
        if (said[0] == "SSUBSCRIBE" && said[1] == low && node == 0) {
            eventually([&] { return of.node(1).commands("SSUBSCRIBE") >= 1; });
            return (refuses ? "-NOPERM not here\r\n" : to_a_subscriber(said)) + said_of("sunsubscribe", low);
        }
        if (said[0] == "SSUBSCRIBE" && said[1] == low) eventually([&] { return confirms.load(); });
        return to_a_subscriber(said) + (said[0] == "SUNSUBSCRIBE" ? message(high, "ended") : "");
    });
    cluster_connection redis{all.uri(0, "?command_timeout=20s")};
    const auto stays = redis.subscribe(high);
    REQUIRE(in_force(stays));
    const auto goes = redis.subscribe(low);
    {
        const auto reading = keep_reading(goes);
        REQUIRE(eventually([&] { return all.node(0).commands("SSUBSCRIBE") == 2; }));
        moved = true;
        std::jthread caller([&] {
            static_cast<void>(redis.execute(command({"GET", std::string_view(low)})));
        });
        CHECK(next_message(stays) == "ended");
    }
    CHECK(goes->confirmations() == 0);
    CHECK_FALSE(goes->refused());
    confirms = true;
    CHECK(in_force(goes));
    CHECK(in_force(redis.subscribe(low_too)));
    CHECK(all.node(1).commands("SSUBSCRIBE") == 2);
}

TEST_CASE("two nodes that each name the other are asked in pauses") {
    const fake_cluster all(2, [&](const fake_cluster& of, std::size_t node, const words& said) {
        if (said[0] == "CLUSTER") return of.slots({0, 1});
        return of.moved(hash_slot(said[1]), 1 - node);
    });
    cluster_connection redis{all.uri()};
    const auto mine = redis.subscribe(low);
    listener none(mine, "no message");
    CHECK(none.wait(clk::now() + 1s, {}) == woken::by_time);
    // 0, 10, 20, 40, ... 320 ms; as many again where a pause ends as the map comes.
    CHECK(all.commands("SSUBSCRIBE") >= 4);
    CHECK(all.commands("SSUBSCRIBE") <= 16);
}

TEST_CASE("a channel that its node ends after it was in force is asked for again at once, however often") {
    std::atomic<int> ends{0};
    const fake_cluster all(1, [&](const fake_cluster& of, std::size_t node, const words& said) {
        const bool ended = said[0] == "SSUBSCRIBE" && ++ends <= 12;
        return as_the_only_node(of, node, said) + (ended ? said_of("sunsubscribe", said[1]) : "");
    });
    cluster_connection redis{all.uri()};
    const auto news = redis.subscribe(low);
    // Pauses that only grew would make it three seconds.
    CHECK(time_of([&] { CHECK(in_force(news, 13)); }) < 2s);
}

TEST_CASE("a node that cannot be reached delays no message of another") {
    fake_server silent(scripts::hang);
    const fake_cluster all(1, [&](const fake_cluster& of, std::size_t, const words& said) -> std::string {
        if (said[0] == "AUTH") return "+OK\r\n";
        if (said[0] == "CLUSTER") {
            const std::string map = of.slots({0, 0});
            return fake_cluster::with_last_at(map, std::to_string(silent.port()));
        }
        if (said[0] == "GET") return "$-1\r\n";
        return to_a_subscriber(said) + message(said[1], "hello");
    });
    // The password makes the silent node hold up whoever connects.
    cluster_connection redis{"redis+cluster://:password@127.0.0.1:" + std::to_string(all.node(0).port()) +
                             "?connect_timeout=5s"};
    static_cast<void>(redis.execute(command({"GET", std::string_view(low)})));
    const auto there = redis.subscribe(high);
    const auto here = redis.subscribe(low);
    const auto start = clk::now();
    CHECK(next_message(here) == "hello");
    CHECK(clk::now() - start < timing_tolerance);
    CHECK(eventually([&] { return silent.accepted() == 1; }));
    CHECK_FALSE(there->in_force());
}

TEST_CASE("a socket that breaks is replaced, and its channels alone are heard anew") {
    std::atomic<bool> broke{false};
    fake_server breaking([&](fake_server::peer& p) {
        while (const auto said = p.next_command()) {
            p.send(to_a_subscriber(*said));
            if (!broke.exchange(true)) return p.close();
        }
    });
    const fake_cluster all(1, next_to(breaking));
    cluster_connection redis{all.uri()};
    static_cast<void>(redis.execute(command({"PING", std::string_view(low)})));
    const auto here = redis.subscribe(low);
    const auto there = redis.subscribe(high);
    CHECK(in_force(there, 2));
    CHECK(in_force(here));
    CHECK(here->confirmations() == 1);
    CHECK(all.node(0).commands("SSUBSCRIBE") == 1);
}

TEST_CASE(
    "a new socket is subscribed before the old one is closed, where messages are not trusted any more") {
    std::atomic<int> open{0};
    std::atomic<int> open_when_asked{0};
    fake_server trusted_once([&](fake_server::peer& p) {
        ++open;
        while (const auto said = p.next_command()) {
            open_when_asked = open.load();
            p.send(to_a_subscriber(*said));
        }
        --open;
    });
    const fake_cluster all(1, next_to(trusted_once));
    cluster_connection redis{all.uri()};
    static_cast<void>(redis.execute(command({"PING", std::string_view(low)})));
    const auto here = redis.subscribe(low);
    const auto there = redis.subscribe(high);
    CHECK(in_force(here));
    CHECK(in_force(there));
    CHECK(open_when_asked == 1);
    here->reconnect();
    CHECK(in_force(here, 2));
    CHECK(in_force(there, 2));
    CHECK(trusted_once.commands("SSUBSCRIBE") == 2);
    CHECK(open_when_asked == 2);
    CHECK(eventually([&] { return open == 1; }));
}

namespace {

/// Who listens at a node that ends the sockets after the first one that `ends` tells: before it has said that
/// it is of a Cluster, or after that.
struct listening_at_a_full_node {
    listening_at_a_full_node(bool greets, std::function<bool(int number)> ends)
        : full([greets, ends = std::move(ends), this](fake_server::peer& p) {
              const bool over = ends(p.number());
              if (over && greets) p.next_command();
              if (over) return;
              while (const auto said = p.next_command()) p.send(to_a_subscriber(*said));
              if (p.number() == 0) replaced = true;
          }) {
        static_cast<void>(redis.execute(command({"PING", std::string_view(low)})));
        mine = redis.subscribe(high);
        reading = keep_reading(mine);
        CHECK(eventually([&] { return mine->confirmations() == 1; }));
    }

    std::atomic<bool> replaced{false};  // the first socket
    fake_server full;
    const fake_cluster all{1, next_to(full)};
    cluster_connection redis{all.uri()};
    channel mine;
    std::jthread reading;
};

bool not_the_first(int number) { return number > 0; }

}  // namespace

// By itself it looks once a second.
TEST_CASE("the channels of a node that ends the new socket at once are confirmed anew on the old one") {
    const bool greets = GENERATE(false, true);
    listening_at_a_full_node s(greets, not_the_first);
    const auto took = time_of([&] {
        for (std::uint64_t times = 2; times <= 6; ++times) {
            s.mine->reconnect();
            CHECK(eventually([&] { return s.mine->confirmations() >= times; }));
        }
    });
    CHECK(took < (instrumented ? 2s : 1s));
}

// Each attempt made the subscription lapse, and forgot what the old socket had not answered yet.
TEST_CASE("the channels of a node that ends each new socket at once are asked for once more on the old one") {
    listening_at_a_full_node s(false, not_the_first);
    s.mine->reconnect();
    CHECK(eventually([&] { return s.full.accepted() >= 7; }));
    CHECK(s.mine->confirmations() == 2);
    CHECK(s.mine->in_force());
    CHECK(s.full.commands("SSUBSCRIBE") == 2);
}

TEST_CASE("a node that ends the new socket at once is connected to again, until the old one is replaced") {
    const bool greets = GENERATE(false, true);
    listening_at_a_full_node s(greets, [](int number) { return number == 1; });
    s.mine->reconnect();
    CHECK(eventually([&] { return s.replaced.load(); }));
    CHECK(eventually([&] { return s.mine->in_force(); }));
    CHECK(s.full.accepted() == 3);
}

TEST_CASE("a subscription that a node does not answer is made on another socket") {
    std::atomic<int> asked{0};
    const fake_cluster all(1, [&](const fake_cluster& of, std::size_t, const words& said) -> std::string {
        if (said[0] == "CLUSTER") return of.slots({0, 0});
        if (said[0] == "SSUBSCRIBE" && asked++ == 0) return "";
        return to_a_subscriber(said);
    });
    cluster_connection redis{all.uri(0, "?command_timeout=100ms")};
    const auto mine = redis.subscribe(low);
    const auto took = time_of([&] { CHECK(in_force(mine)); });
    CHECK(took < 2s);  // sooner than a socket that owes no answer is asked
    CHECK(asked == 2);
}

// By itself it looks once a second.
TEST_CASE("a new socket is asked for at once where messages are not trusted any more while somebody reads") {
    const fake_cluster all(1, as_the_only_node);
    cluster_connection redis{all.uri()};
    const auto mine = redis.subscribe(low);
    const auto reading = keep_reading(mine);
    CHECK(eventually([&] { return mine->confirmations() == 1; }));
    const auto took = time_of([&] {
        for (std::uint64_t times = 2; times <= 6; ++times) {
            mine->reconnect();
            CHECK(eventually([&] { return mine->confirmations() == times; }));
        }
    });
    CHECK(took < 2s);
}

TEST_CASE("a socket that was replaced since messages were not trusted is trusted") {
    const fake_cluster all(1, as_the_only_node);
    cluster_connection redis{all.uri()};
    const auto mine = redis.subscribe(low);
    const auto reading = keep_reading(mine);
    CHECK(eventually([&] { return mine->confirmations() == 1; }));
    const int before = all.node(0).accepted();
    mine->reconnect();
    CHECK(eventually([&] { return mine->confirmations() == 2; }));
    CHECK_FALSE(eventually([&] { return mine->confirmations() > 2; }, 500ms));
    CHECK(all.node(0).accepted() == before + 1);
}

TEST_CASE("without threads a channel is heard all the same, on the thread that waits for its messages") {
    NOT_TESTED_UNLESS(threads_in_a_child, child_has_no_threads);
    const fake_cluster all(1, as_the_only_node);
    CHECK(in_child([&]() noexcept {
        if (!let_no_thread_start()) return false;
        cluster_connection redis{all.uri()};
        return in_force(redis.subscribe(low));
    }));
}

TEST_CASE("a waiter for messages of a Cluster leaves the processor to others, also after another has left") {
    const fake_cluster all(1, as_the_only_node);
    cluster_connection redis{all.uri()};
    const auto mine = redis.subscribe(low);
    auto leaves = keep_reading(mine);
    REQUIRE(eventually([&] { return mine->in_force(); }));
    const auto stays = keep_reading(mine);
    leaves.request_stop();
    leaves.join();
    CHECK(busy_percent() < idle_percent);
}

TEST_CASE("a subscription that a node refuses for a while is asked for again on the same socket") {
    std::atomic<int> asked{0};
    const fake_cluster all(1, [&](const fake_cluster& of, std::size_t, const words& said) -> std::string {
        if (said[0] == "CLUSTER") return of.slots({0, 0});
        if (said[0] == "SSUBSCRIBE" && ++asked <= 3) return "-CLUSTERDOWN The cluster is down\r\n";
        return to_a_subscriber(said);
    });
    cluster_connection redis{all.uri()};
    const auto news = redis.subscribe(low);
    listener mine(news, "no message");
    CHECK(mine.wait(clk::now() + 20s, {}) == woken::by_confirmation);
    CHECK(in_force(news));
    CHECK(asked == 4);
}

TEST_CASE(
    "a subscription that a node refused comes into force once it is permitted, and is asked for in pauses") {
    std::atomic<bool> permitted{false};
    const fake_cluster all(1, once(permitted));
    cluster_connection redis{all.uri()};
    const auto news = redis.subscribe(low);
    listener mine(news, "no message");
    REQUIRE(mine.wait(clk::now() + 20s, {}) == woken::by_refusal);
    const auto refused_at = clk::now();
    while (all.commands("SSUBSCRIBE") < 2) REQUIRE(mine.wait(clk::now() + 10ms, {}) == woken::by_time);
    CHECK(clk::now() - refused_at > 1500ms);
    permitted = true;
    CHECK(mine.wait(clk::now() + 20s, {}) == woken::by_confirmation);
    CHECK_FALSE(news->refused());
    CHECK(all.commands("SSUBSCRIBE") == 3);
}

TEST_CASE("a channel that a node refused is asked for on the next socket at once") {
    std::atomic<bool> permitted{false};
    const fake_cluster all(1, once(permitted));
    for (int i = 0; i < 3; ++i) {
        permitted = false;
        cluster_connection redis{all.uri()};
        const auto news = redis.subscribe(low);
        listener mine(news, "no message");
        REQUIRE(mine.wait(clk::now() + 20s, {}) == woken::by_refusal);
        permitted = true;
        news->reconnect();
        const auto before = clk::now();
        REQUIRE(mine.wait(clk::now() + 20s, {}) == woken::by_confirmation);
        CHECK(clk::now() - before < 500ms);
    }
}

// Each question moved the time by which the first had to be answered.
TEST_CASE("a socket on which a node answers nothing is replaced though more and more is asked on it") {
    std::atomic<bool> silent{true};
    const fake_cluster all(1, [&](const fake_cluster& of, std::size_t, const words& said) -> std::string {
        if (said[0] == "CLUSTER") return of.slots({0, 0});
        return silent ? "" : to_a_subscriber(said);
    });
    cluster_connection redis{all.uri(0, "?command_timeout=200ms")};
    const auto first = redis.subscribe(low);
    const auto reading = keep_reading(first);
    REQUIRE(eventually([&] { return all.commands("SSUBSCRIBE") == 1; }));
    const int sockets = all.node(0).accepted();
    std::vector<channel> more;
    CHECK(eventually([&] {
        more.push_back(redis.subscribe(low + std::to_string(more.size())));
        return all.node(0).accepted() > sockets;
    }));
    silent = false;
    CHECK(eventually([&] { return first->in_force() && more.front()->in_force(); }));
}

// The waiter that read ended neither by its time nor by a stop request.
TEST_CASE("a waiter ends in time though a node tells more than it can hear") {
    const fake_server talks(talk_without_end);
    const fake_cluster all(1, next_to(talks));
    cluster_connection redis{all.uri()};
    const auto mine = redis.subscribe(high);
    listener none(mine, "no message");
    REQUIRE(eventually([&] {
        none.wait(clk::now() + 10ms, {});
        return mine->confirmations() > 0;
    }));
    const auto until = clk::now() + 300ms;
    while (clk::now() < until) none.wait(until, {});
    CHECK(clk::now() - until < timing_tolerance);
}

// Who had heard something looked at no other socket.
TEST_CASE("a node that tells more than anybody can hear hides no other that does not answer") {
    const fake_server talks(talk_without_end);
    std::atomic<int> asked{0};
    const fake_cluster all(1,
                           [&](const fake_cluster& of, std::size_t node, const words& said) -> std::string {
                               if (said[0] == "SSUBSCRIBE" && asked++ == 0) return "";
                               return next_to(talks)(of, node, said);
                           });
    cluster_connection redis{all.uri(0, "?command_timeout=200ms")};
    const auto news = redis.subscribe(high);
    const auto reading = keep_reading(news);
    REQUIRE(eventually([&] { return news->confirmations() > 0; }));
    const auto mine = redis.subscribe(low);
    CHECK(eventually([&] { return mine->in_force(); }));
}

TEST_CASE("a silent node that answers when it is asked whether it lives keeps its socket") {
    const fake_cluster all(1, as_the_only_node);
    cluster_connection redis{all.uri()};
    const auto mine = redis.subscribe(low);
    const auto reading = keep_reading(mine);
    REQUIRE(eventually([&] { return all.node(0).commands("PING") == 1; }));
    const auto asked = clk::now();
    REQUIRE(eventually([&] { return clk::now() - asked > 100ms; }));
    CHECK(all.node(0).commands("SSUBSCRIBE") == 1);
    CHECK(mine->in_force());
}

TEST_CASE("a channel that nobody wants any more is given up") {
    const fake_cluster all(2, [](const fake_cluster& of, std::size_t, const words& said) {
        return said[0] == "CLUSTER" ? of.slots({0, 1}) : to_a_subscriber(said);
    });
    cluster_connection redis{all.uri()};
    static_cast<void>(redis.execute(command({"PING", std::string_view(low)})));
    const auto here = redis.subscribe(low);
    auto there = redis.subscribe(high);
    CHECK(in_force(there));
    CHECK(in_force(here));
    there.reset();
    listener mine(here, "no message");
    CHECK(eventually([&] {
        mine.wait(clk::now() + 10ms, {});
        return all.node(1).commands("SUNSUBSCRIBE") == 1;
    }));
}

TEST_CASE("a channel that is given up and wanted again at once is in force at once") {
    const fake_cluster all(1, as_the_only_node);
    cluster_connection redis{all.uri()};
    auto mine = redis.subscribe(low);
    REQUIRE(in_force(mine));
    for (int i = 0; i < 50; ++i) {
        mine.reset();
        mine = redis.subscribe(low);
        REQUIRE(mine->confirmations() == 1);
    }
    CHECK(all.node(0).commands("SSUBSCRIBE") == 1);
}

// It was believed to be in force from then on, and the node ended it with its next answer.
TEST_CASE(
    "a channel of a Cluster that is given up and asked for again is not confirmed by the first answer") {
    std::atomic<int> asked_for{0};
    const fake_cluster all(1, [&](const fake_cluster& of, std::size_t node, const words& said) {
        if (said[0] == "SUNSUBSCRIBE") return std::string();
        if (said[0] == "SSUBSCRIBE" && said[1] == low) {
            const bool first = ++asked_for == 1;
            return first ? std::string() : said_of("ssubscribe", low) + said_of("sunsubscribe", low);
        }
        const bool at_last = said[0] == "SSUBSCRIBE" && said[1] == low_too;
        return (at_last ? said_of("ssubscribe", low) : "") + as_the_only_node(of, node, said);
    });
    cluster_connection redis{all.uri(0, "?command_timeout=20s")};
    const auto news = redis.subscribe(high);
    REQUIRE(in_force(news));
    listener reads(news, "no message");
    const auto reads_until = [&](const std::string& word, int times) {
        return eventually([&] {
            reads.wait(clk::now() + 10ms, {});
            return all.commands(word) == times;
        });
    };
    auto first = redis.subscribe(low);
    REQUIRE(reads_until("SSUBSCRIBE", 2));
    first.reset();
    REQUIRE(reads_until("SUNSUBSCRIBE", 1));
    first = redis.subscribe(low);
    REQUIRE(reads_until("SSUBSCRIBE", 3));
    listener mine(first, "");
    CHECK(mine.wait(clk::now() + 200ms, {}) == woken::by_time);
    CHECK(asked_for == 2);
    CHECK(first->confirmations() == 0);
    CHECK(in_force(redis.subscribe(low_too)));
    CHECK(first->confirmations() == 1);
}

TEST_CASE("a channel that a node ends while it is asked to end another is heard anew") {
    const fake_cluster all(1, [](const fake_cluster& of, std::size_t node, const words& said) {
        const bool ends = said[0] == "SUNSUBSCRIBE";
        return (ends ? said_of("sunsubscribe", low) : "") + as_the_only_node(of, node, said);
    });
    cluster_connection redis{all.uri()};
    const auto stays = redis.subscribe(low);
    auto goes = redis.subscribe(high);
    REQUIRE(in_force(stays));
    REQUIRE(in_force(goes));
    goes.reset();
    const auto more = redis.subscribe(low_too);  // what is to be said is said at once
    CHECK(in_force(stays, 2));
}

TEST_CASE("the socket to a node is closed when nobody listens there any more") {
    std::atomic<int> ended{0};
    fake_server left([&](fake_server::peer& p) {
        while (const auto said = p.next_command()) p.send(to_a_subscriber(*said));
        ++ended;
    });
    const fake_cluster all(1, next_to(left));
    cluster_connection redis{all.uri()};
    static_cast<void>(redis.execute(command({"PING", std::string_view(low)})));
    const auto here = redis.subscribe(low);
    auto there = redis.subscribe(high);
    REQUIRE(in_force(here));
    REQUIRE(in_force(there));
    there.reset();
    const auto more = redis.subscribe(low_too);  // what is to be said is said at once
    CHECK(in_force(more));
    CHECK(eventually([&] { return left.commands("SUNSUBSCRIBE") == 1; }));
    CHECK(ended == 0);
    CHECK(in_force(redis.subscribe(low_again)));
    CHECK(eventually([&] { return ended == 1; }));
    CHECK(left.accepted() == 1);
}

TEST_CASE(
    "two of the sockets to a node that many threads needed at once are kept, while they wait for messages") {
    constexpr int threads = 8;
    std::atomic<int> open{0};
    std::atomic<int> asked{0};
    fake_server busy([&](fake_server::peer& p) {
        ++open;
        while (const auto said = p.next_command()) {
            ++asked;
            eventually([&] { return asked == threads; });
            p.send("$-1\r\n");
        }
        --open;
    });
    const fake_cluster all(1, next_to(busy));
    cluster_connection redis{all.uri(0, "?connect_timeout=20s&command_timeout=20s")};
    {
        std::vector<std::jthread> callers;
        for (int i = 0; i < threads; ++i)
            callers.emplace_back([&] {
                static_cast<void>(redis.execute(command({"GET", std::string_view(high)})));
            });
    }
    REQUIRE(busy.accepted() == threads);
    const auto reading = keep_reading(redis.subscribe(low));
    CHECK(eventually([&] { return open == 2; }));
}

TEST_CASE("a stop request ends a wait while a node is being connected to, and the connection ends at once") {
    fake_server silent(scripts::hang);
    const auto start = clk::now();
    {
        cluster_connection redis{"redis+cluster://:password@127.0.0.1:" + std::to_string(silent.port()) +
                                 "?connect_timeout=20s"};
        const auto mine = redis.subscribe(low);
        std::stop_source stop;
        woken by = woken::by_time;
        std::jthread caller([&] {
            listener none(mine, "");
            by = none.wait(clk::now() + 20s, stop.get_token());
        });
        REQUIRE(eventually([&] { return silent.accepted() > 0; }));
        stop.request_stop();
        caller.join();
        CHECK(by == woken::by_stop);
    }
    CHECK(clk::now() - start < 5s);
}

TEST_CASE("a child after fork can only destroy a connection that listened") {
    const fake_cluster all(1, [](const fake_cluster& of, std::size_t, const words& said) {
        return said[0] == "CLUSTER" ? of.slots({0}) : to_a_subscriber(said);
    });
    auto redis = std::make_unique<cluster_connection>(all.uri());
    auto mine = redis->subscribe(low);
    CHECK(in_force(mine));
    CHECK(in_child([&] {
        const auto answer = redis->execute(command({"GET", std::string_view(low)}));
        bool right =
            answer.is(distlock::reply_kind::not_sent) && answer.cause() == distlock::errc::wrong_process;
        right = right && !redis->post(command({"GET", std::string_view(low)}));
        redis->collect();
        try {
            redis->subscribe(low);
            right = false;
        } catch (const distlock::error& e) {
            right = right && e.code() == distlock::errc::wrong_process;
        }
        redis.reset();
        return right;
    }));
    CHECK(mine->in_force());
}

// The question took all the time of the socket, and the node was taken for silent.
TEST_CASE("a channel is in force in a connect time-out though its node gives no map") {
    const std::string no_map = GENERATE("", "-NOPERM no permissions\r\n");
    const fake_server silent(scripts::hang);
    const fake_cluster all(1, [&](const fake_cluster&, std::size_t, const words& said) {
        return said[0] == "CLUSTER" ? no_map : to_a_subscriber(said);
    });
    cluster_connection redis{all.uri() + ",127.0.0.1:" + std::to_string(silent.port()) +
                             "?connect_timeout=4s&command_timeout=4s"};
    const auto start = clk::now();
    CHECK(in_force(redis.subscribe(low)));
    CHECK(clk::now() - start < 3600ms);
}

// The node that ASK had named took the place of the one that was in use, and its channels broke off.
TEST_CASE("a node that ASK named, and then MOVED, keeps its sockets when the map names it, too") {
    enum { asks, moves, mapped };
    std::atomic<int> stage{asks};
    std::atomic<int> maps{0};
    const fake_cluster all(2, [&](const fake_cluster& of, std::size_t node, const words& said) {
        if (said[0] == "ASKING") return std::string("+OK\r\n");
        if (said[0] == "CLUSTER") {
            if (stage == asks) return of.slots({0, 0});
            if (stage == moves) return std::string("-LOADING the dataset\r\n");
            ++maps;
            return of.slots({0, 1});
        }
        if (said[0] != "GET") return to_a_subscriber(said);
        const auto slot = hash_slot(said[1]);
        return node == 1 ? std::string("+OK\r\n") : stage == asks ? of.ask(slot, 1) : of.moved(slot, 1);
    });
    cluster_connection redis{all.uri()};
    const auto executed = [&] {
        return redis.execute(command({"GET", std::string_view(high)}, high)).is_status("OK");
    };
    CHECK(executed());
    stage = moves;
    CHECK(executed());
    const auto first = redis.subscribe(high);
    CHECK(in_force(first));
    const int sockets = all.node(1).accepted();
    stage = mapped;
    CHECK(eventually([&] { return executed() && maps == 1; }));
    CHECK(in_force(redis.subscribe("{foo}:2")));
    CHECK(first->confirmations() == 1);
    CHECK(all.node(1).accepted() == sockets);
}

}  // namespace cluster_subscriptions_tests
