// Messages over one socket of a connection, read by whoever waits: who is told, and what happens
// when the socket breaks.
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <poll.h>
#include <set>
#include <stop_token>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

#include <distlock/hiredis.hpp>
#include <distlock/mutex.hpp>
#include <distlock/net/receipt.hpp>
#include <distlock/testing.hpp>
#include <distlock/wire/redisson.hpp>

#include "support/allocations.hpp"
#include "support/catch.hpp"
#include "support/descriptors.hpp"
#include "support/fake_server.hpp"
#include "support/in_child.hpp"
#include "support/processor_time.hpp"
#include "support/timing_tolerance.hpp"
#include "support/waiting.hpp"
#include "support/waiting_listener.hpp"

namespace subscriptions_tests {

using namespace std::chrono_literals;
using distlock::hiredis_connection;
using distlock::listener;
using distlock::subscription;
using distlock::testing::fault_proxy;
using distlock::testing::redis_server;
using clk = distlock::clock;
using woken = listener::woken;
using channel = std::shared_ptr<subscription>;

namespace {

const std::string patient = "?connect_timeout=20s&command_timeout=20s";
constexpr auto long_time = 20s;

woken wait(listener& l, const std::stop_token& stop = {}) { return l.wait(clk::now() + long_time, stop); }

// Returns: whether the server has confirmed it; somebody who waits reads that.
bool in_force(const channel& c, std::uint64_t times = 1) {
    listener mine(c, "no message");
    const auto until = clk::now() + long_time;
    while (c->confirmations() < times) {
        if (mine.wait(until, {}) == woken::by_time) return false;
    }
    return true;
}

std::string next_message(const channel& c, const redis_server& server, const std::string& text) {
    listener mine(c, "");
    server.command({"PUBLISH", c->channel(), text});
    while (true) {
        const auto got = wait(mine);
        if (got == woken::by_message) return std::string(mine.message());
        if (got == woken::by_time) return "no message";
    }
}

std::size_t sockets_at(const redis_server& server, const std::string& type) {
    const std::string list = server.command({"CLIENT", "LIST", "TYPE", type});
    return static_cast<std::size_t>(std::count(list.begin(), list.end(), '\n'));
}
bool heard_by(const redis_server& server, const std::string& name, int how_many) {
    return server.command({"PUBSUB", "NUMSUB", name}) == name + "\n" + std::to_string(how_many);
}

using waiter = waiting_listener<true>;

std::string confirmation(const std::string& name) {
    return "*3\r\n$9\r\nsubscribe\r\n$" + std::to_string(name.size()) + "\r\n" + name + "\r\n:1\r\n";
}

// Does what a server does for subscribers, but where a test says otherwise: what it did is listed in order.
class listed_server {
  public:
    // What the nth connection is answered to a command; "hang up" and "" (nothing) are possible.
    using answers = std::function<std::string(int, const std::vector<std::string>&)>;
    explicit listed_server(answers a) : answers_(std::move(a)) {}

    std::string uri(const std::string& options = patient) const { return front_.uri("", options); }
    int accepted() const { return front_.accepted(); }
    int commands(const std::string& word) const { return front_.commands(word); }
    bool has(const std::string& what) const {
        const std::lock_guard guard(lock_);
        return std::find(list_.begin(), list_.end(), what) != list_.end();
    }

  private:
    void serve(fake_server::peer& p) {
        const std::string who = std::to_string(p.number()) + " ";
        while (const auto asked = p.next_command()) {
            note(who + asked->at(0));
            const std::string answer = answers_(p.number(), *asked);
            if (answer == "hang up" || (!answer.empty() && !p.send(answer))) return;
        }
        note(who + "ended");
    }
    void note(std::string what) {
        const std::lock_guard guard(lock_);
        list_.push_back(std::move(what));
    }

    const answers answers_;
    mutable std::mutex lock_;
    std::vector<std::string> list_;
    fake_server front_{[this](fake_server::peer& p) { serve(p); }};  // last: its threads use the others
};

std::string as_a_server(const std::vector<std::string>& asked) {
    if (asked.at(0) == "SUBSCRIBE") return confirmation(asked.at(1));
    if (asked.at(0) == "SSUBSCRIBE") return "-ERR unknown command 'SSUBSCRIBE'\r\n";
    if (asked.at(0) == "PING") return "*2\r\n$4\r\npong\r\n$0\r\n\r\n";
    return "+OK\r\n";
}

}  // namespace

TEST_CASE("two hundred waiters on one socket get each their own message") {
    constexpr std::size_t threads = 200;
    const redis_server server;
    hiredis_connection redis(server.uri() + patient);
    const bool one_channel = GENERATE(true, false);
    const auto before = open_descriptors();
    std::vector<channel> channels;
    std::vector<std::unique_ptr<waiter>> all;
    for (std::size_t i = 0; i < threads; ++i) {
        channels.push_back(redis.subscribe(one_channel ? "news" : "news" + std::to_string(i)));
        all.push_back(std::make_unique<waiter>(channels.back(), std::to_string(i) + " "));
    }
    REQUIRE(eventually([&] {
        return std::all_of(channels.begin(), channels.end(),
                           [](const channel& c) { return c->confirmations() > 0; });
    }));
    CHECK(sockets_at(server, "pubsub") == 1);
    CHECK(opened_since(before).size() == 2);  // with what wakes the thread that reads
    std::vector<std::string> texts;
    for (std::size_t i = 0; i < threads; ++i) {
        texts.push_back(all[i]->key + "for you");
        CHECK(server.command({"PUBLISH", channels[i]->channel(), texts.back()}) == "1");
    }
    for (std::size_t i = 0; i < threads; ++i) {
        REQUIRE(all[i]->returned());
        CHECK(all[i]->mine.message() == texts[i]);
    }
}

TEST_CASE("when the waiter that reads leaves, by a message or a stop request, another reads on") {
    const redis_server server;
    hiredis_connection redis(server.uri() + patient);
    const auto news = redis.subscribe("news");
    REQUIRE(in_force(news));
    constexpr std::size_t count = 10;
    std::vector<std::unique_ptr<waiter>> all;
    for (std::size_t i = 0; i < count; ++i)
        all.push_back(std::make_unique<waiter>(news, std::to_string(i) + " "));
    for (std::size_t i = 0; i < count; ++i) {
        const bool message = i % 2 == 0;
        if (message) {
            CHECK(server.command({"PUBLISH", "news", all[i]->key}) == "1");
        } else {
            all[i]->stop.request_stop();
        }
        REQUIRE(all[i]->returned());
        CHECK(all[i]->got == (message ? woken::by_message : woken::by_stop));
    }
}

TEST_CASE("a waiter for messages leaves the processor to others, also after another waiter has left") {
    const redis_server server;
    hiredis_connection redis(server.uri() + patient);
    const auto news = redis.subscribe("news");
    waiter one(news, "one");
    REQUIRE(eventually([&] { return news->in_force(); }));
    const waiter another(news, "another");
    one.stop.request_stop();
    REQUIRE(one.returned());
    CHECK(busy_percent() < idle_percent);
}

TEST_CASE("nothing is opened by a subscription, and one socket by the first wait") {
    const redis_server server;
    hiredis_connection redis(server.uri() + patient);
    const auto news = redis.subscribe("news");
    CHECK(redis.subscribe("news") == news);
    CHECK(sockets_at(server, "normal") == 1);  // who asks
    CHECK(in_force(news));
    CHECK(sockets_at(server, "pubsub") == 1);
    CHECK(sockets_at(server, "normal") == 1);
}

TEST_CASE("a subscription hears what is published to its shard, too") {
    const redis_server server;
    hiredis_connection redis(server.uri() + patient);
    const auto news = redis.subscribe("news");
    REQUIRE(in_force(news));
    NOT_TESTED_UNLESS(server.command({"PUBSUB", "SHARDNUMSUB", "news"}) == "news\n1",
                      "the server has no shard channels");
    listener mine(news, "");
    CHECK(server.command({"SPUBLISH", "news", "to the shard"}) == "1");
    REQUIRE(wait(mine) == woken::by_message);
    CHECK(mine.message() == "to the shard");
}

TEST_CASE("a stop request ends a wait while the socket is opened, and while nothing comes on it") {
    const bool connecting = GENERATE(true, false);
    const fake_server hanging(scripts::hang);
    const redis_server server;
    hiredis_connection redis(connecting ? hanging.uri(":secret@", patient) : server.uri() + patient);
    const auto news = redis.subscribe("news");
    waiter leader(news, "a");
    waiter follower(news, "b");
    REQUIRE(eventually([&] { return connecting ? !hanging.received().empty() : news->confirmations() > 0; }));
    for (waiter* const one : {&follower, &leader}) {
        const auto asked = clk::now();
        one->stop.request_stop();
        REQUIRE(one->returned());
        CHECK(one->got == woken::by_stop);
        CHECK(one->ended - asked <= timing_tolerance / 3);
    }
}

TEST_CASE("a wait ends at its deadline, also while the socket is opened") {
    const bool connecting = GENERATE(true, false);
    const fake_server hanging(scripts::hang);
    const redis_server server;
    hiredis_connection redis(connecting ? hanging.uri(":secret@", patient) : server.uri() + patient);
    const auto news = redis.subscribe("news");
    if (!connecting) REQUIRE(in_force(news));
    listener mine(news, "");
    woken got{};
    const auto took = time_of([&] { got = mine.wait(clk::now() + 100ms, {}); });
    CHECK(got == woken::by_time);
    CHECK(took >= 99ms);
    CHECK(took <= 100ms + timing_tolerance);
}

TEST_CASE("a server that does not answer is given the connect time-out, and then another attempt") {
    const fake_server hanging(scripts::hang);
    hiredis_connection redis(hanging.uri(":secret@", "?connect_timeout=50ms"));
    const auto news = redis.subscribe("news");
    const waiter one(news, "");
    CHECK(eventually([&] { return hanging.accepted() > 3; }));
}

TEST_CASE("subscriptions whose socket was killed are made anew, and later messages are heard") {
    const redis_server server;
    hiredis_connection redis(server.uri() + patient);
    const std::array<channel, 2> both{redis.subscribe("one"), redis.subscribe("two")};
    for (std::uint64_t round = 1; round < 4; ++round) {
        for (const auto& one : both) {
            REQUIRE(in_force(one, round));
            CHECK(next_message(one, server, "text") == "text");
        }
        REQUIRE(server.command({"CLIENT", "KILL", "TYPE", "pubsub"}) == "1");
    }
}

TEST_CASE("waiters are told that their subscription is in force again") {
    const redis_server server;
    hiredis_connection redis(server.uri() + patient);
    const auto news = redis.subscribe("news");
    REQUIRE(in_force(news));
    listener mine(news, "");
    REQUIRE(server.command({"CLIENT", "KILL", "TYPE", "pubsub"}) == "1");
    CHECK(wait(mine) == woken::by_confirmation);
    CHECK(news->confirmations() == 2);
}

TEST_CASE("subscriptions outlast a server that is restarted") {
    redis_server server;
    hiredis_connection redis(server.uri() + patient);
    const auto news = redis.subscribe("news");
    REQUIRE(in_force(news));
    waiter one(news, "one");
    server.kill();
    ::poll(nullptr, 0, 30);  // as a rule it was tried in vain by then
    server.start();
    REQUIRE(eventually([&] { return news->confirmations() == 2; }));
    CHECK(server.command({"PUBLISH", "news", "one"}) == "1");
    REQUIRE(one.returned());
    CHECK(one.got == woken::by_message);
}

TEST_CASE("a subscription whose socket is gone is not in force while no other can be had") {
    redis_server server;
    hiredis_connection redis(server.uri() + patient);
    const auto news = redis.subscribe("news");
    REQUIRE(in_force(news));
    const waiter one(news, "no message");
    server.kill();
    CHECK(eventually([&] { return !news->in_force(); }));
}

TEST_CASE("a server that hangs up on everybody is not connected to again and again") {
    const bool at_once = GENERATE(true, false);
    listed_server server([&](int, const auto& asked) {
        return at_once || asked.at(0) == "SUBSCRIBE" ? "hang up" : as_a_server(asked);
    });
    hiredis_connection redis(server.uri());
    const auto news = redis.subscribe("news");
    waiter one(news, "");
    REQUIRE(eventually([&] { return server.accepted() > 0; }));
    const waiter another(news, "");
    ::poll(nullptr, 0, 400);
    const int tries = server.accepted();
    CHECK(tries >= 2);
    CHECK(tries <= 7);  // after 0, 10, 30, 70, 150, 310, 630 ms
    // A pause does not keep those who give up, and is one for those who do not.
    REQUIRE(eventually([&] { return server.accepted() >= 7; }));
    const auto asked = clk::now();
    one.stop.request_stop();
    REQUIRE(one.returned());
    CHECK(one.ended - asked <= timing_tolerance / 3);
    CHECK(busy_percent() < idle_percent);
}

TEST_CASE("when the waiter that opens a socket leaves, the next one opens one other") {
    listed_server server([](int connection, const auto& asked) {
        if (connection == 0) return std::string();
        if (asked.at(0) == "SELECT") ::poll(nullptr, 0, 50);
        return as_a_server(asked);
    });
    hiredis_connection redis(server.uri("/2" + patient));
    const auto news = redis.subscribe("news");
    waiter one(news, "");
    REQUIRE(eventually([&] { return server.commands("SELECT") == 1; }));
    const auto opening = clk::now();
    const waiter another(news, "");
    REQUIRE(eventually([&] { return clk::now() - opening > 100ms; }));  // no pause is left
    one.stop.request_stop();
    CHECK(eventually([&] { return news->in_force(); }));
    CHECK(server.accepted() == 2);
}

// Behind a slow link there would have been no socket while callers subscribe, or meet a replica.
TEST_CASE(
    "a caller that subscribes, or trusts the old socket no more, does not break off the opening of a new "
    "one") {
    const bool subscribes = GENERATE(true, false);
    std::atomic<bool> selected{false};
    listed_server server([&](int connection, const auto& asked) {
        if (connection == 1 && asked.at(0) == "SELECT") eventually([&] { return selected.load(); });
        return as_a_server(asked);
    });
    hiredis_connection redis(server.uri("/2" + patient));
    const auto news = redis.subscribe("news");
    const waiter one(news, "no message");
    REQUIRE(eventually([&] { return news->confirmations() == 1; }));
    news->reconnect();
    REQUIRE(eventually([&] { return server.commands("SELECT") == 2; }));
    channel more;
    if (subscribes) more = redis.subscribe("more");
    if (!subscribes) news->reconnect();
    CHECK_FALSE(eventually([&] { return server.has("1 ended") || server.accepted() > 2; }, 300ms));
    selected = true;
    CHECK(eventually([&] { return news->confirmations() == 2; }));
    if (subscribes) CHECK(eventually([&] { return more->in_force(); }));
}

// The bell that rang for it broke off the new socket, and another one was opened.
TEST_CASE("a reader who is told of a message that it shall trust its socket no more opens one other") {
    listed_server server([](int connection, const auto& asked) {
        if (connection != 0 || asked.at(0) != "SUBSCRIBE") return as_a_server(asked);
        ::poll(nullptr, 0, 50);  // no pause is left
        return as_a_server(asked) + "*3\r\n$7\r\nmessage\r\n$4\r\nnews\r\n$4\r\nlate\r\n";
    });
    hiredis_connection redis(server.uri("/2" + patient));
    const auto news = redis.subscribe("news");
    news->on_unclaimed([&](std::string_view) { news->reconnect(); });
    const waiter one(news, "no message");
    CHECK(eventually([&] { return news->confirmations() == 2; }));
    CHECK(server.accepted() == 2);
}

TEST_CASE("a socket on which the server makes no sense is aborted, and replaced") {
    std::atomic<bool> aborted{false};
    const fake_server server([&](fake_server::peer& p) {
        while (const auto asked = p.next_command()) {
            if (p.number() > 0) {
                if (!p.send(as_a_server(*asked))) return;
            } else if (asked->at(0) == "SUBSCRIBE") {
                p.send("what?\r\n");
                aborted = p.wait_for_end() == fake_server::ending::reset;
                return;
            }
        }
    });
    hiredis_connection redis(server.uri("", patient));
    const auto news = redis.subscribe("news");
    const waiter one(news, "");
    CHECK(eventually([&] { return news->in_force(); }));
    CHECK(eventually([&] { return aborted.load(); }));
    CHECK(server.accepted() == 2);
}

// Waiters that hear nothing look every 50 ms: each look broke off a connect that took longer, and
// nobody ever heard again.
TEST_CASE("a socket that takes longer to open than waiters sleep is replaced all the same") {
    const redis_server server;
    fault_proxy proxy(server.socket_path());
    hiredis_connection redis(proxy.uri() + patient + "&db=2");  // SELECT: a round trip
    const auto news = redis.subscribe("news");
    REQUIRE(in_force(news));
    proxy.delay(fault_proxy::part::reply, 60ms);
    server.command({"CLIENT", "KILL", "TYPE", "pubsub"});
    listener mine(news, "");
    CHECK(eventually([&] {
        mine.wait(clk::now() + 1s, {}, {}, 25ms);
        return news->confirmations() == 2;
    }));
}

TEST_CASE("a socket that takes longer to open than a command may take is opened all the same") {
    listed_server server([](int, const auto& asked) {
        if (asked.at(0) == "SELECT") ::poll(nullptr, 0, 300);
        return as_a_server(asked);
    });
    hiredis_connection redis(server.uri("/2?connect_timeout=5s&command_timeout=200ms"));
    const auto news = redis.subscribe("news");
    listener mine(news, "");
    CHECK(mine.wait(clk::now() + 10s, {}) == woken::by_confirmation);
}

TEST_CASE("a waiter that opens a socket is back in time, though nothing answers") {
    const redis_server server;
    fault_proxy proxy(server.socket_path());
    hiredis_connection redis(proxy.uri() + patient + "&db=2");
    const auto news = redis.subscribe("news");
    REQUIRE(in_force(news));
    proxy.delay(fault_proxy::part::reply, long_time);
    server.command({"CLIENT", "KILL", "TYPE", "pubsub"});
    listener mine(news, "");
    for (int i = 0; i < 5; ++i) {
        const auto until = clk::now() + 100ms;
        while (clk::now() < until) mine.wait(until, {}, {}, 25ms);
        CHECK(clk::now() - until < timing_tolerance);
    }
}

// A full server turned the new socket away, and the working one was given up for it.
TEST_CASE("a socket that could not be replaced goes on bringing messages") {
    std::atomic<int> subscribed{0};
    listed_server server([&](int connection, const auto& asked) -> std::string {
        const bool subscribes = asked.at(0) == "SUBSCRIBE";
        if (connection > 0) return subscribes ? "hang up" : "-ERR max number of clients reached\r\n";
        if (!subscribes || ++subscribed == 1) return as_a_server(asked);
        return as_a_server(asked) + "*3\r\n$7\r\nmessage\r\n$4\r\nnews\r\n$3\r\none\r\n";
    });
    hiredis_connection redis(server.uri());
    const auto news = redis.subscribe("news");
    REQUIRE(in_force(news));
    const waiter one(news, "one");
    news->reconnect();
    REQUIRE(one.returned());
    CHECK(one.got == woken::by_message);
    CHECK(server.accepted() >= 2);
    CHECK_FALSE(server.has("0 ended"));
}

// It heard on until the next attempt, for half a second.
TEST_CASE("a stop request ends a wait at once while a socket that is in force is being replaced") {
    listed_server server([](int connection, const auto& asked) {
        return connection == 0 ? as_a_server(asked) : std::string();
    });
    hiredis_connection redis(server.uri("/2?connect_timeout=100ms&command_timeout=20s"));
    const auto news = redis.subscribe("news");
    REQUIRE(in_force(news));
    auto longest = clk::duration::zero();
    for (int i = 0; i < 3; ++i) {
        news->reconnect();
        std::stop_source stop;
        std::atomic<clk::time_point> returned{};
        std::jthread waits([&] {
            listener mine(news, "");
            mine.wait(clk::now() + 1h, stop.get_token());
            returned = clk::now();
        });
        // The pause after an attempt grows to half a second.
        const auto attempts = server.accepted() + (i == 0 ? 9 : 1);
        REQUIRE(eventually([&] { return server.accepted() >= attempts; }));
        const auto stopped = clk::now();
        stop.request_stop();
        waits.join();
        longest = std::max(longest, returned.load() - stopped);
    }
    CHECK(longest < 300ms);
}

// Each question moved the time by which the first had to be answered: where locks of new names were waited
// for all the time, a dead socket was kept.
TEST_CASE("a socket on which nothing is answered is replaced though more and more is asked on it") {
    std::atomic<bool> silent{false};
    listed_server server([&](int connection, const auto& asked) {
        return connection == 0 && silent ? std::string() : as_a_server(asked);
    });
    hiredis_connection redis(server.uri("?connect_timeout=20s&command_timeout=200ms"));
    const auto news = redis.subscribe("news");
    REQUIRE(in_force(news));
    const waiter one(news, "");
    silent = true;
    std::vector<channel> more;
    CHECK(eventually([&] {
        more.push_back(redis.subscribe("channel" + std::to_string(more.size())));
        return server.accepted() > 1;
    }));
    CHECK(eventually([&] { return news->confirmations() == 2 && more.front()->confirmations() == 1; }));
}

TEST_CASE("a socket that could not be replaced is replaced by and by, whatever became of the first attempt") {
    const bool connects = GENERATE(false, true);
    listed_server server([&](int connection, const auto& asked) -> std::string {
        if (connection != 1) return as_a_server(asked);
        if (asked.at(0) == "SELECT") return connects ? "+OK\r\n" : "";
        return "hang up";
    });
    hiredis_connection redis(server.uri("/2?connect_timeout=400ms&command_timeout=20s"));
    const auto news = redis.subscribe("news");
    REQUIRE(in_force(news));
    REQUIRE(server.accepted() == 1);
    const waiter one(news, "no message");
    news->reconnect();
    CHECK(eventually([&] { return server.has("2 SUBSCRIBE") && server.has("0 ended"); }));
    CHECK(eventually([&] { return news->in_force(); }));
    CHECK(server.accepted() == 3);
}

TEST_CASE("a server that knows no shard channels, or refuses them, is not believed to be broken") {
    listed_server old([](int, const auto& asked) { return as_a_server(asked); });
    hiredis_connection redis(old.uri());
    const auto news = redis.subscribe("news");
    CHECK(in_force(news));
    CHECK(old.accepted() == 1);

    const redis_server server;
    server.command({"ACL", "SETUSER", "worker", "on", ">secret", "~*", "&*", "+@all", "-ssubscribe"});
    hiredis_connection worker("unix://worker:secret@" + server.socket_path() + patient);
    const auto there = worker.subscribe("news");
    REQUIRE(in_force(there));
    CHECK(next_message(there, server, "text") == "text");
}

TEST_CASE("a subscription that is refused is not confirmed, and not asked for again at once") {
    const bool command = GENERATE(true, false);
    const redis_server server;
    server.command({"ACL", "SETUSER", "worker", "on", ">secret", "~*", command ? "&*" : "resetchannels",
                    "+@all", command ? "-subscribe" : "+subscribe", command ? "-ssubscribe" : "+ssubscribe"});
    hiredis_connection redis("unix://worker:secret@" + server.socket_path() + patient);
    {
        const auto news = redis.subscribe("news");
        listener mine(news, "");
        CHECK(mine.wait(clk::now() + 10s, {}) == woken::by_refusal);
        CHECK(news->refused());
        CHECK(mine.wait(clk::now() + 100ms, {}) == woken::by_time);
        CHECK(news->confirmations() == 0);
    }
    const std::string info = server.command({"INFO", "errorstats"});
    CHECK_THAT(info, contains_text("errorstat_NOPERM:count=2\r"));
    // A lock that comes later is not to wait for what was refused before.
    for (int i = 0; i < 2; ++i) CHECK(redis.subscribe("news")->refused());
    CHECK(redis.execute({"PING"}).is_status("PONG"));
}

// It stayed refused: the waiters of a process that had met a mistake in an ACL heard nothing any more.
TEST_CASE("a subscription that was refused comes into force on its socket once it is permitted") {
    const redis_server server;
    server.command({"ACL", "SETUSER", "worker", "on", ">secret", "~*", "resetchannels", "+@all"});
    hiredis_connection redis("unix://worker:secret@" + server.socket_path() + patient);
    const auto news = redis.subscribe("news");
    listener mine(news, "");
    REQUIRE(wait(mine) == woken::by_refusal);
    server.command({"ACL", "SETUSER", "worker", "&*"});
    CHECK(wait(mine) == woken::by_confirmation);
    CHECK_FALSE(news->refused());
    CHECK(next_message(news, server, "text") == "text");
    CHECK(sockets_at(server, "pubsub") == 1);
}

TEST_CASE("a subscription that stays refused is asked for every two seconds, and nobody is told again") {
    std::atomic<int> asked_for{0};
    listed_server server([&](int, const auto& asked) -> std::string {
        if (asked.at(0) == "PING") return as_a_server(asked);
        if (asked.at(0) == "SUBSCRIBE") ++asked_for;
        return "-NOPERM this user has no permissions\r\n";
    });
    hiredis_connection redis(server.uri());
    const auto news = redis.subscribe("news");
    listener mine(news, "");
    REQUIRE(wait(mine) == woken::by_refusal);
    const auto refused_at = clk::now();
    // Whoever waits for something else has them asked for as well.
    while (asked_for < 3) REQUIRE(mine.wait(clk::now() + 10ms, {}) == woken::by_time);
    CHECK(clk::now() - refused_at > 3500ms);
    CHECK(server.accepted() == 1);
}

// It was never confirmed: the waiters of a connection whose first one met a busy server heard nothing
// while its socket lived.
TEST_CASE(
    "a subscription that a busy server refuses is asked for again on the same socket, until it is in force") {
    std::atomic<int> refusals{0};
    listed_server server([&](int, const auto& asked) -> std::string {
        const bool subscribes = asked.at(0) == "SUBSCRIBE" || asked.at(0) == "SSUBSCRIBE";
        if (subscribes && ++refusals <= 4) return "-BUSY Redis is busy running a script.\r\n";
        return as_a_server(asked);
    });
    hiredis_connection redis(server.uri());
    const auto news = redis.subscribe("news");
    CHECK(in_force(news));
    CHECK(server.commands("SUBSCRIBE") == 3);
    CHECK(server.accepted() == 1);
}

// It was believed to be in force from then on, and was not.
TEST_CASE("a channel that is given up and asked for again is not confirmed by the first answer") {
    std::atomic<bool> again{false};
    std::atomic<int> asked_for{0};
    listed_server server([&](int, const auto& asked) -> std::string {
        const bool first = asked.size() > 1 && asked.at(1) == "first";
        if (asked.at(0) == "SUBSCRIBE" && first) return ++asked_for, "";
        // The thread that reads is to go.
        if (asked.at(0) == "SUNSUBSCRIBE") return "*3\r\n$7\r\nmessage\r\n$4\r\nnews\r\n$2\r\ngo\r\n";
        if (asked.at(0) != "UNSUBSCRIBE") return as_a_server(asked);
        again.wait(false);
        return confirmation("first") + "-ERR unknown command 'SUNSUBSCRIBE'\r\n" +
               "*3\r\n$11\r\nunsubscribe\r\n$5\r\nfirst\r\n:1\r\n";
    });
    hiredis_connection redis(server.uri());
    const auto news = redis.subscribe("news");
    auto first = redis.subscribe("first");
    {
        waiter reads(news, "go");
        REQUIRE(eventually([&] { return asked_for == 1; }));
        first.reset();
        REQUIRE(reads.returned());
    }
    first = redis.subscribe("first");
    again = true;
    again.notify_all();
    listener mine(first, "");
    CHECK(mine.wait(clk::now() + 200ms, {}) == woken::by_time);
    CHECK(asked_for == 2);
    CHECK(first->confirmations() == 0);
}

TEST_CASE("a new socket is subscribed before the old one is closed, when that is not trusted any more") {
    const std::string how = GENERATE(as<std::string>{}, "told to", "by a command", "by a post");
    std::atomic<bool> early{false};
    const listed_server* whole = nullptr;
    listed_server server([&](int who, const auto& asked) -> std::string {
        if (asked.at(0) == "SUBSCRIBE" && who > 0) {
            ::poll(nullptr, 0, 50);
            early = whole->has("0 ended");
        }
        return asked.at(0) == "SET" ? "-READONLY You can't write\r\n" : as_a_server(asked);
    });
    whole = &server;
    hiredis_connection redis(server.uri());
    const auto news = redis.subscribe("news");
    REQUIRE(in_force(news));
    const waiter one(news, "");
    const auto told = clk::now();
    if (how == "told to") news->reconnect();
    if (how == "by a command") CHECK(redis.execute({"SET", "a", "1"}).is(distlock::reply_kind::error));
    if (how == "by a post") CHECK(redis.post({"SET", "a", "1"}, std::make_shared<distlock::receipt>()));
    REQUIRE(eventually([&] {
        if (how == "by a post") redis.collect();
        return server.commands("SUBSCRIBE") == 2;
    }));
    CHECK(clk::now() - told <= timing_tolerance);
    REQUIRE(eventually([&] { return server.has("0 ended"); }));
    CHECK(eventually([&] { return news->confirmations() == 2; }));
    CHECK_FALSE(early);
    CHECK(server.commands("SUBSCRIBE") == 2);
}

// By itself it looks once a second.
TEST_CASE("a waiter who reads opens a new socket at once where messages are not trusted any more") {
    const redis_server server;
    hiredis_connection redis(server.uri() + patient);
    const auto news = redis.subscribe("news");
    const waiter one(news, "no message");
    REQUIRE(eventually([&] { return news->confirmations() == 1; }));
    const auto took = time_of([&] {
        for (std::uint64_t times = 2; times <= 6; ++times) {
            news->reconnect();
            CHECK(eventually([&] { return news->confirmations() == times; }));
        }
    });
    CHECK(took < 2s);
}

TEST_CASE("messages are heard while one socket follows another") {
    const redis_server server;
    hiredis_connection redis(server.uri() + patient);
    const auto news = redis.subscribe("news");
    REQUIRE(in_force(news));
    std::atomic<bool> over{false};
    std::atomic<int> unheard{0};
    std::thread publisher([&] {
        hiredis_connection other(server.uri() + patient);
        while (!over) {
            if (other.execute({"PUBLISH", "news", "text"}).is_integer(0)) ++unheard;
        }
    });
    const waiter one(news, "no message");
    for (std::uint64_t i = 2; i < 6; ++i) {
        news->reconnect();
        CHECK(eventually([&] { return news->confirmations() == i; }));
    }
    over = true;
    publisher.join();
    CHECK(unheard == 0);
    CHECK(eventually([&] { return sockets_at(server, "pubsub") == 1; }));
}

TEST_CASE(
    "a channel that is given up and wanted again at once is in force at once; one that is not is ended") {
    const redis_server server;
    hiredis_connection redis(server.uri() + patient);
    auto news = redis.subscribe("news");
    const auto other = redis.subscribe("other");
    REQUIRE(in_force(news));
    REQUIRE(in_force(other));
    for (int i = 0; i < 50; ++i) {
        news.reset();
        news = redis.subscribe("news");
        REQUIRE(news->confirmations() == 1);
    }
    CHECK(next_message(news, server, "text") == "text");
    CHECK(heard_by(server, "news", 1));
    const waiter one(other, "");
    news.reset();
    CHECK(eventually([&] { return heard_by(server, "news", 0); }));
    news = redis.subscribe("news");
    CHECK(eventually([&] { return news->confirmations() == 1; }));
    CHECK(heard_by(server, "news", 1));
}

TEST_CASE("a subscription that comes while somebody reads is made at once") {
    const redis_server server;
    hiredis_connection redis(server.uri() + patient);
    const auto first = redis.subscribe("first");
    REQUIRE(in_force(first));
    const waiter one(first, "");
    const auto took = time_of([&] {
        for (int i = 0; i < 20; ++i) {
            const auto next = redis.subscribe("channel" + std::to_string(i));
            CHECK(eventually([&] { return next->confirmations() == 1; }));
        }
    });
    CHECK(took < 5s);  // of itself the thread that reads looks every second
}

TEST_CASE("a message that nobody waits for is delivered by the thread that reads for something else") {
    const redis_server server;
    hiredis_connection redis(server.uri() + patient);
    const auto news = redis.subscribe("news");
    std::mutex lock;
    std::set<std::string> unclaimed;
    news->on_unclaimed([&](std::string_view text) {
        const auto posted = redis.post({"SET", text, "unclaimed"});
        const std::lock_guard guard(lock);
        if (posted) unclaimed.emplace(text);
    });
    REQUIRE(in_force(news));
    const waiter one(news, "mine");
    for (const std::string text : {"a", "b", "c"}) CHECK(server.command({"PUBLISH", "news", text}) == "1");
    CHECK(eventually([&] { return server.command({"EXISTS", "a", "b", "c"}) == "3"; }));
    const std::lock_guard guard(lock);
    CHECK(unclaimed == std::set<std::string>{"a", "b", "c"});
}

// The next waiter read them one by one, and looked after each.
TEST_CASE("messages that came while nobody waited cost the next waiter few looks, not one each") {
    std::atomic<bool> idle{false};
    std::atomic<bool> sent{false};
    const fake_server server([&](fake_server::peer& p) {
        while (const auto asked = p.next_command()) {
            const bool looks = asked->at(0) == "EVALSHA";
            if (!p.send(looks ? "*2\r\n:0\r\n:20000\r\n" : as_a_server(*asked))) return;
            if (asked->at(0) != "SUBSCRIBE") continue;
            const std::string& name = asked->at(1);
            const std::string one =
                "*3\r\n$7\r\nmessage\r\n$" + std::to_string(name.size()) + "\r\n" + name + "\r\n$1\r\n0\r\n";
            std::string all;
            for (int i = 0; i < 2000; ++i) all += one;
            idle.wait(false);
            sent = p.send(all);
        }
    });
    hiredis_connection redis(server.uri("", patient));
    distlock::mutex<hiredis_connection, distlock::redisson> m{redis, "orders"};
    REQUIRE(eventually([&] {
        CHECK_FALSE(m.try_lock_for(100ms));
        return server.commands("SUBSCRIBE") == 1;
    }));
    const int before = server.commands("EVALSHA");
    idle = true;
    idle.notify_all();
    REQUIRE(eventually([&] { return sent.load(); }));
    CHECK_FALSE(m.try_lock_for(500ms));
    const int looks = server.commands("EVALSHA") - before;
    CHECK(looks > 2);
    CHECK(looks < 20);
}

TEST_CASE("a warm wait and the message it is woken by call operator new for nothing") {
    const redis_server server;
    hiredis_connection redis(server.uri() + patient);
    const auto news = redis.subscribe("news");
    REQUIRE(in_force(news));
    const std::stop_source stop;
    std::size_t calls = 1;
    for (int i = 0; i < 5; ++i) {
        listener mine(news, "0123456789abcdef");
        CHECK(server.command({"PUBLISH", "news", "0123456789abcdef 1234567890123456 2000 0 orders:42"}) ==
              "1");
        const auto before = allocations();
        const auto got = mine.wait(clk::now() + long_time, stop.get_token());
        calls = allocations() - before;
        CHECK(got == woken::by_message);
    }
    CHECK(calls == 0);
}

TEST_CASE("a child after fork() is refused a subscription, and takes none from its parent") {
    const redis_server server;
    auto redis = std::make_unique<hiredis_connection>(server.uri() + patient);
    auto news = redis->subscribe("news");
    REQUIRE(in_force(news));
    {
        const waiter one(news, "");
        for (int i = 0; i < 5; ++i) {
            CHECK(in_child([&] {
                try {
                    redis->subscribe("news");
                    return false;
                } catch (const distlock::error& e) {
                    return e.code() == distlock::errc::wrong_process;
                }
            }));
            CHECK(in_child([&] {
                news.reset();
                redis.reset();
                return true;
            }));
        }
    }
    CHECK(next_message(news, server, "text") == "text");
    CHECK(news->confirmations() == 1);
}

TEST_CASE("two of the sockets that many threads needed at once are kept, while they wait for messages") {
    const bool posted = GENERATE(false, true);
    const redis_server server;
    hiredis_connection redis(server.uri() + patient);
    const auto news = redis.subscribe("news");
    const auto before = open_descriptors();
    constexpr int threads = 30;
    std::vector<std::unique_ptr<waiter>> all;
    std::vector<std::thread> busy;
    for (int i = 0; i < threads; ++i)
        busy.emplace_back([&] {
            static_cast<void>(redis.execute({"BLPOP", "list", "20"}));
            if (posted) redis.post({"INCR", "posted"});
        });
    const bool used = eventually([&] { return sockets_at(server, "normal") == threads + 1; });
    for (int i = 0; i < threads; ++i) server.command({"RPUSH", "list", "x"});
    for (std::thread& t : busy) t.join();
    REQUIRE(used);
    CHECK(opened_since(before).size() == 16);
    for (int i = 0; i < threads; ++i) all.push_back(std::make_unique<waiter>(news, "a"));
    CHECK(eventually([&] { return opened_since(before).size() == 2 + 1; }));
    CHECK(eventually([&] { return sockets_at(server, "normal") == 2 + 1; }));
}

}  // namespace subscriptions_tests
