// Waiters whose connection may not subscribe: each is served in its turn all the same, though nobody tells
// it.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <distlock/distlock.hpp>
#include <distlock/hiredis.hpp>
#include <distlock/testing.hpp>
#include <distlock/wire/redisson.hpp>

#include "support/catch.hpp"
#include "support/cluster.hpp"
#include "support/fresh_name.hpp"
#include "support/gate.hpp"
#include "support/hiredis_test.hpp"
#include "support/lock_on_server.hpp"
#include "support/timing_tolerance.hpp"
#include "support/waiting.hpp"

namespace refused_subscriptions_tests {

using namespace std::chrono_literals;
using distlock::cluster_connection;
using distlock::hiredis_connection;
using distlock::lock_options;
using distlock::reply;
using distlock::testing::fault_proxy;
using distlock::testing::redis_server;
using hiredis_test::confirmed;
using clk = distlock::clock;

namespace {

// As Redis 7 makes users, who may use no channel; proxies that do not know the command.
enum class refusal { by_user, by_hanging_up, by_silence };

struct place {
    explicit place(refusal how) {
        if (how == refusal::by_user) {
            server.command({"ACL", "SETUSER", "worker", "on", ">secret", "~*", "resetchannels", "+@all"});
            uri = "unix://worker:secret@" + server.socket_path();
            return;
        }
        proxy.emplace(server.socket_path());
        uri = proxy->uri();
        proxy->cut(
            {.of = fault_proxy::part::request,
             .command = [](const auto& words) { return words.at(0) == "SSUBSCRIBE"; },
             .how = how == refusal::by_silence ? fault_proxy::ending::silence : fault_proxy::ending::close,
             .times = 1000});
    }
    redis_server server;
    std::optional<fault_proxy> proxy;
    std::string uri;  // over which nobody can subscribe
};

// It says that there are no messages.
class without_messages {
  public:
    explicit without_messages(const std::string& uri) : inner_(uri) {}
    reply execute(const distlock::command& cmd) {
        ++asked;
        return inner_.execute(cmd);
    }
    static std::shared_ptr<distlock::subscription> subscribe(std::string_view) { return nullptr; }
    std::atomic<int> asked{0};

  private:
    hiredis_connection inner_;
};

// Returns: how many wait there who know that nobody will tell them: their tickets have no channel.
int untold(const lock_on_server& seen) {
    const std::string tickets = seen.at.command({"ZRANGE", seen.queue_key, "0", "-1"});
    const std::string ways = "pPqsSQ";
    int count = 0;
    for (auto at = tickets.find("0 "); at != std::string::npos; at = tickets.find("0 ", at + 1))
        count += at > 0 && ways.find(tickets[at - 1]) != std::string::npos;
    return count;
}
// Returns: whether so many do by and by. One that learned of it late has lost its place.
bool wait_untold(const lock_on_server& seen, int count) {
    return eventually([&] { return untold(seen) == count; });
}

// A thread that waits for what `take` returns, a guard or a permit, and keeps it until it may end.
class keeper {
  public:
    template <class Take>
    explicit keeper(Take take)
        : thread_([this, take] {
              const auto mine = take();
              has_ = true;
              may_end_.pass();
          }) {}
    ~keeper() { may_end_.open(); }
    bool has() const { return has_; }
    void let_end() { may_end_.open(); }

  private:
    gate may_end_;
    std::atomic<bool> has_{false};
    std::jthread thread_;
};

template <class Connection>
void is_served_in_order(const redis_server& server, const std::string& uri) {
    hiredis_connection redis(server.uri());
    distlock::mutex owner{redis, "orders", confirmed};
    const lock_on_server seen(server, "orders");
    owner.lock();
    std::atomic<int> next{0};
    std::vector<int> order(3, -1);
    gate may_end;
    std::vector<std::jthread> waiters;
    for (int i = 0; i < 3; ++i) {
        waiters.emplace_back([&, i] {
            Connection own(uri);
            distlock::mutex mine{own, "orders", confirmed};
            mine.lock();
            order[static_cast<std::size_t>(next++)] = i;
            may_end.pass();
            mine.unlock();
        });
        REQUIRE(wait_untold(seen, i + 1));
    }
    owner.unlock();
    CHECK_FALSE(owner.try_lock());  // it is theirs, before they know
    may_end.open();
    owner.lock();
    waiters.clear();
    CHECK(order == std::vector{0, 1, 2});
    owner.unlock();
    CHECK(eventually([&] { return seen.untouched(); }));
}

}  // namespace

// The owner took the lock again and again before any of them looked.
TEST_CASE("waiters who may not subscribe have the lock in order, however soon its owner comes back") {
    const place at(GENERATE(refusal::by_user, refusal::by_hanging_up, refusal::by_silence));
    is_served_in_order<hiredis_connection>(at.server, at.uri);
}

TEST_CASE("waiters over a connection whose subscriptions are null have the lock in order") {
    const redis_server server;
    is_served_in_order<without_messages>(server, server.uri());
}

TEST_CASE("a waiter over a connection whose subscriptions are null looks, where releases are told to all") {
    const redis_server server;
    hiredis_connection redis(server.uri());
    without_messages silent(server.uri());
    using lock = distlock::mutex<hiredis_connection, distlock::redisson>;
    lock owner{redis, "orders", confirmed};
    owner.lock();
    distlock::mutex<without_messages, distlock::redisson> waiter{silent, "orders", confirmed};
    std::atomic<bool> has{false};
    std::jthread waits([&] {
        waiter.lock();
        has = true;
        waiter.unlock();
    });
    REQUIRE(eventually([&] { return silent.asked >= 2; }));
    owner.unlock();
    CHECK(eventually([&] { return has.load(); }));
}

// While readers overlapped the lock was never free, and each release dropped the writer's ticket.
TEST_CASE("a writer who may not subscribe is not overtaken by readers who come later") {
    const place at(GENERATE(refusal::by_user, refusal::by_hanging_up, refusal::by_silence));
    hiredis_connection redis(at.server.uri());
    hiredis_connection deaf(at.uri);
    distlock::shared_mutex reader{redis, "orders", confirmed};
    distlock::shared_mutex later{redis, "orders", confirmed};
    distlock::shared_mutex writer{deaf, "orders", confirmed};
    const lock_on_server seen(at.server, "orders");
    reader.lock_shared();
    later.lock_shared();
    keeper writes([&] { return distlock::scoped_lock(writer); });
    REQUIRE(wait_untold(seen, 1));
    reader.unlock_shared();
    CHECK_FALSE(reader.try_lock_shared());
    later.unlock_shared();
    CHECK_FALSE(later.try_lock_shared());
    writes.let_end();
    const auto released = clk::now();
    reader.lock_shared();
    CHECK(clk::now() - released < 2s + timing_tolerance);
    reader.unlock_shared();
}

TEST_CASE("readers who may not subscribe are let in together, before a writer who comes later") {
    const place at(refusal::by_user);
    hiredis_connection redis(at.server.uri());
    hiredis_connection deaf(at.uri);
    distlock::shared_mutex writer{redis, "orders", confirmed};
    distlock::shared_mutex reader{deaf, "orders", confirmed};
    distlock::shared_mutex another{deaf, "orders", confirmed};
    const lock_on_server seen(at.server, "orders");
    writer.lock();
    keeper reads([&] { return distlock::shared_scoped_lock(reader); });
    REQUIRE(wait_untold(seen, 1));
    keeper reads_too([&] { return distlock::shared_scoped_lock(another); });
    REQUIRE(wait_untold(seen, 2));
    writer.unlock();
    CHECK_FALSE(writer.try_lock());
    CHECK(eventually([&] { return reads.has() && reads_too.has(); }));  // neither ends before
    reads.let_end();
    reads_too.let_end();
    writer.lock();
    writer.unlock();
}

TEST_CASE("a request for three permits by one who may not subscribe is not overtaken by requests for one") {
    const place at(GENERATE(refusal::by_user, refusal::by_hanging_up, refusal::by_silence));
    hiredis_connection redis(at.server.uri());
    hiredis_connection deaf(at.uri);
    distlock::counting_semaphore pool{redis, "pool", 3, confirmed};
    distlock::counting_semaphore waiting{deaf, "pool", 3, confirmed};
    const lock_on_server seen(at.server, "pool");
    auto one = pool.acquire();
    keeper wants([&] { return waiting.acquire(3); });
    REQUIRE(wait_untold(seen, 1));
    CHECK_FALSE(pool.try_acquire());
    one.release();
    CHECK_FALSE(pool.try_acquire());
    wants.let_end();
    CHECK(pool.acquire().n() == 1);
    CHECK(wants.has());
}

// A socket that broke at the wrong moment: the process heard nothing any more, since each look of its waiter
// broke off the connect.
TEST_CASE(
    "a waiter whose subscription was not answered subscribes, though it takes longer than between looks") {
    const redis_server server;
    server.command({"ACL", "SETUSER", "worker", "on", ">secret", "~*", "&*", "+@all"});
    fault_proxy proxy(server.socket_path());
    proxy.cut({.of = fault_proxy::part::request,
               .command = [](const auto& words) { return words.at(0) == "SSUBSCRIBE"; },
               .how = fault_proxy::ending::close,
               .times = 2});
    proxy.delay(fault_proxy::part::reply, 60ms);
    hiredis_connection redis(server.uri());
    hiredis_connection far("redis://worker:secret@127.0.0.1:" + std::to_string(proxy.port()));
    distlock::mutex owner{redis, "orders", confirmed};
    distlock::mutex waiter{far, "orders", confirmed};
    const lock_on_server seen(server, "orders");
    for (const int deaf : {1, 0}) {
        owner.lock();
        keeper waits([&] { return distlock::scoped_lock(waiter); });
        REQUIRE(seen.gets(1));
        CHECK(wait_untold(seen, deaf));
        std::string channel;
        REQUIRE(eventually([&] { return (channel = server.command({"PUBSUB", "CHANNELS"})) != ""; }));
        CHECK(eventually([&] { return far.subscribe(channel)->in_force(); }));
        CHECK(untold(seen) == deaf);
        owner.unlock();
        CHECK(eventually([&] { return waits.has(); }));
    }
}

// It took a ticket without a channel, and each turn of all the others waited for it to look.
TEST_CASE("one socket that ends before the server answers to a subscription is no refusal") {
    const redis_server server;
    fault_proxy proxy(server.socket_path());
    proxy.cut({.of = fault_proxy::part::request,
               .command = [](const auto& words) { return words.at(0) == "SSUBSCRIBE"; },
               .how = GENERATE(fault_proxy::ending::close, fault_proxy::ending::silence)});
    hiredis_connection redis(server.uri());
    hiredis_connection cut(proxy.uri());
    distlock::mutex owner{redis, "orders", confirmed};
    distlock::mutex waiter{cut, "orders", confirmed};
    const lock_on_server seen(server, "orders");
    owner.lock();
    keeper waits([&] { return distlock::scoped_lock(waiter); });
    REQUIRE(eventually([&] { return server.command({"PUBSUB", "CHANNELS"}) != ""; }));
    CHECK(seen.gets(1));
    CHECK(untold(seen) == 0);
    owner.unlock();
    CHECK(eventually([&] { return waits.has(); }));
}

TEST_CASE("over a Cluster a waiter who may not subscribe has the lock in its turn, too") {
    const auto& nodes = three_masters();
    for (const auto& one : nodes.nodes())
        REQUIRE(one->command({"ACL", "SETUSER", "deaf", "on", ">secret", "~*", "resetchannels", "+@all"}) ==
                "OK");
    auto uri = nodes.uri();
    uri.insert(uri.find("//") + 2, "deaf:secret@");
    cluster_connection redis(nodes.uri());
    cluster_connection deaf(uri);
    const auto name = fresh_name();
    distlock::mutex owner{redis, name, confirmed};
    for (int i = 0; i < 3; ++i) {
        owner.lock();
        distlock::mutex waiter{deaf, name, confirmed};  // of a job: it asks for the channel anew
        keeper waits([&] { return distlock::scoped_lock(waiter); });
        const auto waits_untold = [&] {
            return std::any_of(nodes.nodes().begin(), nodes.nodes().end(),
                               [&](const auto& node) { return untold(lock_on_server(*node, name)) == 1; });
        };
        // Before the channel is asked for again, two seconds after it was refused.
        REQUIRE(eventually(waits_untold, 1s));
        owner.unlock();
        CHECK_FALSE(owner.try_lock());
        waits.let_end();
        owner.lock();
        owner.unlock();
    }
}

TEST_CASE("a waiter that may not subscribe and dies when it is served keeps the others out for two seconds") {
    const place at(refusal::by_user);
    hiredis_connection redis(at.server.uri());
    distlock::mutex owner{redis, "orders", confirmed};
    owner.lock();
    const lock_on_server seen(at.server, "orders");
    at.server.command({"ZADD", seen.queue_key, "1", std::string(32, 'd') + " 30000 0 p0 "});
    owner.unlock();
    const auto released = clk::now();
    CHECK(at.server.command({"GET", "orders"}) == std::string(32, 'd'));
    owner.lock();
    CHECK(clk::now() - released > 2s - timing_tolerance);
    CHECK(clk::now() - released < 2s + timing_tolerance);
    owner.unlock();
}

}  // namespace refused_subscriptions_tests
