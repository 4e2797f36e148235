// Waiters of several connections in the queue on the server: their order, and what it is worth when a part of
// the way to them fails.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <stop_token>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include <distlock/distlock.hpp>
#include <distlock/hiredis.hpp>
#include <distlock/inspect.hpp>
#include <distlock/testing.hpp>

#include "support/catch.hpp"
#include "support/history.hpp"
#include "support/lock_on_server.hpp"
#include "support/timing_tolerance.hpp"
#include "support/waiting.hpp"

namespace queue_tests {

using namespace std::chrono_literals;
using distlock::errc;
using distlock::hiredis_connection;
using distlock::lock_options;
using distlock::testing::redis_server;
using clk = distlock::clock;
using locker = distlock::mutex<hiredis_connection>;

namespace {

constexpr lock_options no_looks{.recheck = 1h};

lock_options fenced() {
    lock_options all = no_looks;
    all.fencing = true;
    return all;
}

// Who was served, in order.
struct history {
    void add(int who, std::uint64_t fence) {
        const std::lock_guard guard(lock);
        order.push_back(who);
        rises = rises && fence > last_fence;
        last_fence = fence;
    }
    std::mutex lock;
    std::vector<int> order;
    std::uint64_t last_fence = 0;
    bool rises = true;
};

/// A client with a connection of its own, which waits for the lock on a thread, has it for a
/// moment, and releases it.
class waiter {
  public:
    waiter(const std::string& uri, const lock_options& options, history& told, int who)
        : redis_(uri), mutex_(redis_, "orders", options), thread_([this, &told, who] {
              if (mutex_.try_lock_for(20s, stop_.get_token(), error)) {
                  served = true;
                  told.add(who, mutex_.fencing_token());
                  if (keeps) return;
                  mutex_.unlock();
              }
              ended = clk::now();
          }) {}

    void stop() { stop_.request_stop(); }
    void join() { thread_.join(); }
    locker& lock() { return mutex_; }

    std::error_code error{};  // after join()
    std::atomic<bool> served{false};
    std::atomic<bool> keeps{false};
    std::atomic<clk::time_point> ended{};

  private:
    std::stop_source stop_;
    hiredis_connection redis_;
    locker mutex_;
    std::jthread thread_;
};

/// A server, an owner, and the waiters behind it.
struct scene {
    explicit scene(const lock_options& options = no_looks) : owner(redis, "orders", options) { owner.lock(); }
    waiter& add(const lock_options& options, const std::string& uri) {
        const auto before = seen.queued();
        line.push_back(std::make_unique<waiter>(uri, options, told, static_cast<int>(line.size())));
        REQUIRE(seen.gets(before + 1));
        return *line.back();
    }
    waiter& add(const lock_options& options = fenced()) { return add(options, server.uri()); }
    void join() {
        for (auto& one : line) one->join();
    }

    redis_server server;
    hiredis_connection redis{server.uri()};
    lock_on_server seen{server, "orders"};
    locker owner;
    history told;
    std::vector<std::unique_ptr<waiter>> line;
};

// Two owners, or one who is told of a fault that is none.
turns_taken turns_of(scene& it, int count, const lock_options& options) {
    it.owner.unlock();
    std::vector<std::unique_ptr<hiredis_connection>> connections;
    std::vector<std::unique_ptr<locker>> locks;
    for (int i = 0; i < count; ++i) {
        connections.push_back(std::make_unique<hiredis_connection>(it.server.uri()));
        locks.push_back(std::make_unique<locker>(*connections.back(), "orders", options));
    }
    return take_turns(count, 30, [&](int who, auto inside) {
        auto& m = *locks[static_cast<std::size_t>(who)];
        const std::lock_guard guard{m};
        inside(m);
    });
}

}  // namespace

// ---- order ------------------------------------------------------------------------------------------------

TEST_CASE(
    "waiters of many connections are served in the order in which they joined, those who gave up left out") {
    scene it;
    for (int i = 0; i < 10; ++i) it.add();
    it.line[4]->stop();
    it.line[4]->join();
    it.line[0]->stop();
    it.line[0]->join();
    CHECK(it.line[4]->error == errc::cancelled);
    REQUIRE(it.seen.gets(8));
    it.owner.unlock();
    for (const int i : {1, 2, 3, 5, 6, 7, 8, 9}) it.line[static_cast<std::size_t>(i)]->join();
    CHECK(it.told.order == std::vector{1, 2, 3, 5, 6, 7, 8, 9});
    CHECK(it.told.rises);
    CHECK(eventually([&] { return it.seen.untouched(); }));
}

TEST_CASE("waiters whose subscriptions are killed are served all the same, the others in their order") {
    scene it;
    for (int i = 0; i < 6; ++i) it.add();
    const bool at_once = GENERATE(false, true);
    CHECK(it.server.command({"CLIENT", "KILL", "TYPE", "pubsub"}) == "6");
    if (!at_once) {
        CHECK(eventually([&] {
            return std::stoi(it.server.command({"PUBSUB", "NUMPAT"})) == 0 &&
                   it.server.command({"CLIENT", "LIST", "TYPE", "pubsub"}).find("id=") != std::string::npos;
        }));
    }
    const auto released = clk::now();
    it.owner.unlock();
    it.join();
    CHECK(it.told.order.size() == 6);
    CHECK(it.told.rises);
    CHECK(clk::now() - released < 2s);  // nobody waits for an offer to end
    CHECK(eventually([&] { return it.seen.untouched(); }));
}

TEST_CASE("one waiter whose subscription is killed loses nothing once it has another") {
    scene it;
    it.add();
    const auto list = it.server.command({"CLIENT", "LIST", "TYPE", "pubsub"});
    it.add();
    it.add();
    const auto id = list.substr(3, list.find(' ') - 3);
    CHECK(it.server.command({"CLIENT", "KILL", "ID", id}) == "1");
    REQUIRE(eventually([&] {
        const auto now = it.server.command({"CLIENT", "LIST", "TYPE", "pubsub"});
        int heard = 0;  // with SSUBSCRIBE alone a client is in the list, too
        for (auto at = now.find(" sub=1 "); at != std::string::npos; at = now.find(" sub=1 ", at + 1))
            ++heard;
        return heard == 3;
    }));
    REQUIRE(it.seen.gets(3));
    it.owner.unlock();
    it.join();
    CHECK(it.told.order == std::vector{0, 1, 2});
}

// A waiter that was answered by an error once was passed by all that came later.
TEST_CASE("waiters keep their places while their server is a replica for a moment") {
    scene it;
    lock_options options = fenced();
    options.recheck = 50ms;
    options.patience = 20s;
    for (int i = 0; i < 3; ++i) it.add(options);
    const auto tickets = [&] {
        return it.server.command({"ZRANGE", it.seen.queue_key, "0", "-1", "WITHSCORES"});
    };
    const auto before = tickets();
    const auto refused = [&] {
        const std::string info = it.server.command({"INFO", "errorstats"});
        const std::string_view about = "errorstat_READONLY:count=";
        const auto at = info.find(about);
        return at == info.npos ? 0 : std::stoi(info.substr(at + about.size()));
    };
    REQUIRE(it.server.command({"REPLICAOF", "127.0.0.1", "1"}) == "OK");
    CHECK(eventually([&] { return refused() >= 12; }));
    REQUIRE(it.server.command({"REPLICAOF", "NO", "ONE"}) == "OK");
    CHECK(tickets() == before);
    it.add();
    it.owner.unlock();
    it.join();
    CHECK(it.told.order == std::vector{0, 1, 2, 3});
    CHECK(eventually([&] { return it.seen.untouched(); }));
}

TEST_CASE("owners with and without fences, labels, renewal, and with other leases take turns on one name") {
    scene it;
    it.add({.lease = 1s, .fencing = true, .recheck = 1h});
    it.add({.lease = 60s, .recheck = 1h, .owner_info = "night job"});
    it.add({.lease = 5s, .renew = false, .recheck = 1h});
    it.add({.lease = 300ms, .renew = false, .fencing = true, .recheck = 1h, .owner_info = "x"});
    it.add({.lease = 30s, .fencing = true, .recheck = 1h, .release = distlock::confirmed});
    it.add({.lease = 2s, .recheck = 1h});
    for (auto& one : it.line) one->keeps = true;
    it.owner.unlock();
    std::uint64_t last = 0;
    for (std::size_t i = 0; i < it.line.size(); ++i) {
        INFO("waiter " << i);
        auto& one = *it.line[i];
        one.join();
        REQUIRE(one.served);
        const bool has_fence = i == 0 || i == 3 || i == 4;
        const auto fence = one.lock().fencing_token();
        CHECK((fence != 0) == has_fence);
        if (has_fence) CHECK(fence > std::exchange(last, fence));
        const auto report = distlock::inspect(it.redis, "orders");
        REQUIRE(report.holder);
        CHECK(report.holder->label == (i == 1 ? "night job" : i == 3 ? "x" : ""));
        // Nothing renews it: the lease is there from the beginning.
        if (i == 2) CHECK(*report.remaining > 4s);
        CHECK(report.remaining <= (i == 2 ? 5s : 2s));
        if (i == 3) CHECK(report.remaining <= 300ms);
        one.lock().unlock();
    }
    CHECK(it.told.order == std::vector{0, 1, 2, 3, 4, 5});
    CHECK(eventually([&] { return it.seen.untouched(); }));
}

// ---- a server that does not answer ------------------------------------------------------------------------

TEST_CASE(
    "a stop request ends a wait at once though the server hangs, and the ticket is gone when it goes on") {
    scene it;
    auto& one = it.add();
    it.server.pause();
    const auto stopped = clk::now();
    one.stop();
    one.join();
    CHECK(one.ended.load() - stopped < timing_tolerance);
    CHECK(one.error == errc::cancelled);
    it.server.resume();
    CHECK(eventually([&] { return it.seen.queued() == 0; }, 2s));
    CHECK(it.owner.owns_lock());
    it.owner.unlock();
    CHECK(eventually([&] { return it.seen.untouched(); }));
}

TEST_CASE("a wait ends at its deadline though the server hangs, and the ticket is gone when it goes on") {
    scene it;
    hiredis_connection redis(it.server.uri());
    locker late(redis, "orders", no_looks);
    std::error_code ec;
    clk::time_point begun{}, ended{};
    bool got = true;
    std::jthread one([&] {
        begun = clk::now();
        got = late.try_lock_for(500ms, ec);
        ended = clk::now();
    });
    REQUIRE(it.seen.gets(1));
    it.server.pause();
    one.join();
    it.server.resume();
    CHECK_FALSE(got);
    CHECK(ended - begun >= 500ms);
    CHECK(ended - begun < 500ms + 50ms + timing_tolerance);  // the last answer is given 50 ms
    CHECK(ec == errc::no_reply);
    CHECK(eventually([&] { return it.seen.queued() == 0; }, 2s));
    it.owner.unlock();
    CHECK(eventually([&] { return it.seen.untouched(); }));
}

// ---- what strangers do to the keys ------------------------------------------------------------------------

TEST_CASE("a waiter finds that the lock is no lock any more, is told by the error, and leaves no ticket") {
    scene it({.renew = false});
    auto& one = it.add({.recheck = 50ms});
    it.server.command({"DEL", "orders"});
    it.server.command({"RPUSH", "orders", "no lock"});
    one.join();
    CHECK_FALSE(one.served);
    CHECK(one.error == errc::wrong_type);
    CHECK(it.server.command({"LRANGE", "orders", "0", "-1"}) == "no lock");
    CHECK(eventually([&] { return it.seen.queued() == 0; }));
}

TEST_CASE("a waiter that may not look any more is told by the error, and costs the others an offer at most") {
    scene it;
    auto& one = it.add({.recheck = 50ms});
    const auto last = [&] { return it.server.command({"ZRANGE", it.seen.queue_key, "-1", "-1"}); };
    const std::string first = last();
    it.server.command({"ACL", "SETUSER", "default", "-evalsha", "-eval"});
    one.join();
    it.server.command({"ACL", "SETUSER", "default", "+@all"});
    CHECK_FALSE(one.served);
    CHECK(one.error == errc::permission_denied);
    // Its ticket may be there still.
    it.line.push_back(std::make_unique<waiter>(it.server.uri(), lock_options{}, it.told, 1));
    auto& next = *it.line.back();
    REQUIRE(eventually([&] { return last() != first && it.seen.queued() > 0; }));
    const auto released = clk::now();
    it.owner.unlock();
    next.join();
    CHECK(next.served);
    CHECK(next.ended.load() - released < 2s + timing_tolerance);
    CHECK(eventually([&] { return it.seen.untouched(); }));
}

TEST_CASE("a queue that is evicted or deleted while they wait costs waiters their order at most") {
    scene it;
    for (int i = 0; i < 4; ++i) it.add({.fencing = true, .recheck = 100ms});
    it.server.command({"DEL", it.seen.queue_key});
    if (GENERATE(false, true)) REQUIRE(it.seen.gets(4));
    it.owner.unlock();
    const auto released = clk::now();
    it.join();
    CHECK(it.told.order.size() == 4);
    CHECK(it.told.rises);
    CHECK(clk::now() - released < 100ms + 2 * timing_tolerance);
    CHECK(eventually([&] { return it.seen.untouched(); }));
}

TEST_CASE("a queue that is deleted all the time makes nobody wait for ever, and no two owners") {
    scene it;
    std::jthread evicts([&](const std::stop_token& end) {
        while (!end.stop_requested()) it.server.command({"DEL", it.seen.queue_key});
    });
    const auto told = turns_of(it, 4, {.fencing = true, .recheck = 20ms});
    CHECK(told.grants == 120);
    CHECK(told.contended > 0);
    CHECK(told.text() == "");
}

TEST_CASE(
    "a queue of another type is told to those who would wait; who need not can take the lock and release "
    "it") {
    scene it;
    const char* const garbage = GENERATE("string", "list", "hash");
    const auto spoil = [&] {
        const std::string& key = it.seen.queue_key;
        it.server.command({"DEL", key});
        if (*garbage == 's') it.server.command({"SET", key, "x"});
        if (*garbage == 'l') it.server.command({"RPUSH", key, "x"});
        if (*garbage == 'h') it.server.command({"HSET", key, "a", "b"});
    };
    INFO(garbage);
    auto& one = it.add({.recheck = 50ms});
    spoil();
    one.join();
    CHECK(one.error == errc::wrong_type);
    CHECK_FALSE(one.served);
    std::error_code ec;
    hiredis_connection redis(it.server.uri());
    locker next(redis, "orders");
    CHECK_FALSE(next.try_lock_for(10s, ec));
    CHECK(ec == errc::wrong_type);
    it.owner.unlock();
    CHECK(eventually([&] { return !it.seen.taken(); }));
    CHECK(it.owner.try_lock());  // it has never needed the queue
    it.owner.unlock();
    CHECK(eventually([&] { return !it.seen.taken(); }));
    it.server.command({"DEL", it.seen.queue_key});
    CHECK(next.try_lock(ec));
    next.unlock();
}

TEST_CASE("a lock whose name a message has no room for is handed over at once, too") {
    redis_server server;
    for (const std::size_t size : {180U, 190U, 4000U}) {
        const std::string name(size, 'x');
        hiredis_connection one{server.uri()}, two{server.uri()};
        locker first{one, name, no_looks}, second{two, name, no_looks};
        first.lock();
        std::jthread waiting([&] {
            second.lock();
            second.unlock();
        });
        REQUIRE(lock_on_server(server, name).gets(1));
        const auto from = clk::now();
        first.unlock();
        waiting.join();
        CHECK(clk::now() - from < 2s + timing_tolerance);
    }
}

TEST_CASE("texts in the queue that are no tickets are passed over") {
    scene it;
    for (const char* text : {"", "x", "00000000000000000000000000000000", "\n\r\n", "{\"a\":1}"})
        it.server.command({"ZADD", it.seen.queue_key, "1", text});
    REQUIRE(it.seen.queued() == 5);
    it.add();
    it.add();
    it.server.command({"ZADD", it.seen.queue_key, "3000000000000000", "behind"});
    it.owner.unlock();
    it.join();
    CHECK(it.told.order == std::vector{0, 1});
    CHECK(eventually([&] { return it.seen.untouched(); }));
}

// ---- what the server does not permit ----------------------------------------------------------------------

TEST_CASE(
    "without permission to publish, to count listeners or to subscribe waiting is slower, and in order") {
    const std::string missing =
        GENERATE(as<std::string>{}, "-publish -spublish", "-pubsub", "-subscribe -ssubscribe",
                 "resetchannels", "-publish -pubsub -subscribe -ssubscribe");
    INFO(missing);
    scene it;
    std::vector<std::string_view> words{"ACL", "SETUSER", "default"};
    for (std::string_view rest = missing; !rest.empty();) {
        words.push_back(rest.substr(0, rest.find(' ')));
        rest.remove_prefix(std::min(rest.size(), words.back().size() + 1));
    }
    REQUIRE(it.server.command(words) == "OK");
    lock_options options = fenced();
    options.recheck = 300ms;
    for (int i = 0; i < 3; ++i) it.add(options);
    const auto released = clk::now();
    it.owner.unlock();
    it.join();
    CHECK(it.told.order == std::vector{0, 1, 2});
    CHECK(it.told.rises);
    for (auto& one : it.line) CHECK_FALSE(one->error);
    CHECK(clk::now() - released < 3 * 300ms + timing_tolerance);
    CHECK(eventually([&] { return it.seen.untouched(); }));
}

TEST_CASE("waiters that hear nothing exclude each other") {
    scene it;
    REQUIRE(it.server.command({"ACL", "SETUSER", "default", "resetchannels"}) == "OK");
    const auto told = turns_of(it, 3, {.fencing = true, .recheck = 20ms});
    CHECK(told.grants == 90);
    CHECK(told.contended > 0);
    CHECK(told.text() == "");
    CHECK_THAT(it.server.command({"INFO", "errorstats"}), contains_text("errorstat_NOPERM"));
}

}  // namespace queue_tests
