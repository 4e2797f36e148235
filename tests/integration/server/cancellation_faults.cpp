// Waiting, and giving it up, where the server or the way to it fails.
#include <chrono>
#include <future>
#include <optional>
#include <stop_token>
#include <string>
#include <system_error>
#include <vector>

#include <distlock/hiredis.hpp>
#include <distlock/mutex.hpp>
#include <distlock/recursive_mutex.hpp>
#include <distlock/shared_mutex.hpp>
#include <distlock/testing.hpp>

#include "support/catch.hpp"
#include "support/handoff_names.hpp"
#include "support/lock_on_server.hpp"
#include "support/stoppable.hpp"
#include "support/timing_tolerance.hpp"
#include "support/waiting.hpp"

namespace cancellation_faults_tests {

using namespace std::chrono_literals;
using distlock::errc;
using distlock::hiredis_connection;
using distlock::lock_options;
using distlock::testing::fault_proxy;
using distlock::testing::redis_server;
using part = fault_proxy::part;
using clk = distlock::clock;
using locker = distlock::mutex<hiredis_connection>;

namespace {

constexpr lock_options no_looks{.recheck = 1h};

/// A waiter with a connection of its own, on a thread of its own.
struct waiter {
    explicit waiter(const std::string& uri, const lock_options& options = no_looks)
        : redis(uri), lock(redis, "orders", options) {}
    void wait(std::chrono::milliseconds timeout = 20s) {
        served = std::async(std::launch::async, [this, timeout] {
            got = lock.try_lock_for(timeout, stop.get_token(), ec);
            return clk::now();
        });
    }
    std::chrono::milliseconds ends_after(clk::time_point since) {
        return std::chrono::duration_cast<std::chrono::milliseconds>(served.get() - since);
    }

    hiredis_connection redis;
    locker lock;
    std::stop_source stop;
    std::error_code ec;
    bool got = false;
    std::future<clk::time_point> served;
};

/// A server with an owner.
struct owned {
    explicit owned(const lock_options& options = no_looks)
        : redis(server.uri()), owner(redis, "orders", options), seen(server, "orders") {
        owner.lock();
    }
    redis_server server;
    hiredis_connection redis;
    locker owner;
    lock_on_server seen;
};

// Returns: whether there are so many tickets by and by, and the waiters know it: what the server said before
// it answers a later question has come.
bool are_queued(const owned& it, int waiters, const std::string& way) {
    if (!it.seen.gets(waiters)) return false;
    hiredis_connection redis(way);
    return redis.execute({"PING"}).is_status("PONG");
}
bool are_queued(const owned& it, int waiters) { return are_queued(it, waiters, it.server.uri()); }

// Effects: checks that the waiter behind the one that gave up is served at once, and that nothing
// is left of all this.
void check_that_it_is_served(owned& it, waiter& next) {
    const auto released = clk::now();
    it.owner.unlock();
    CHECK(next.ends_after(released) < timing_tolerance);
    CHECK(next.got);
    next.lock.unlock();
    CHECK(eventually([&] { return it.seen.untouched(); }));
}

fault_proxy::which are(const std::string& name) {
    return [name](const fault_proxy::words& w) { return handoff_name_of(w) == name; };
}

}  // namespace

// ---- a slow way ------------------------------------------------------------------------------------------

TEST_CASE("a lock that is handed over a slow way to a waiter that gives up goes to the next in the queue") {
    const auto slow = GENERATE(part::reply, part::request);
    const bool somebody = GENERATE(false, true);
    owned it;
    fault_proxy proxy(it.server.socket_path());
    waiter one(proxy.uri());
    one.wait();
    REQUIRE(are_queued(it, 1, proxy.uri()));
    waiter next(it.server.uri());
    if (somebody) {
        next.wait();
        REQUIRE(are_queued(it, 2));
    }
    proxy.delay(slow, 120ms);
    proxy.hold(part::reply);  // and the message
    it.owner.unlock();
    const auto stopped = clk::now();
    one.stop.request_stop();
    CHECK(one.ends_after(stopped) < timing_tolerance);
    CHECK(one.ec == errc::cancelled);
    if (somebody) {
        CHECK(next.ends_after(stopped) < 120ms + timing_tolerance);
        CHECK(next.got);
        proxy.let_go();
        next.lock.unlock();
    }
    CHECK(eventually([&] { return it.seen.untouched(); }));
    CHECK(clk::now() - stopped < 240ms + timing_tolerance);
}

TEST_CASE("a waiter that gives up over a slow way leaves no ticket, even when its connection ends at once") {
    const auto slow = GENERATE(part::reply, part::request);
    const bool ends = GENERATE(false, true);
    owned it;
    fault_proxy proxy(it.server.socket_path());
    std::optional<waiter> one(std::in_place, proxy.uri());
    one->wait();
    REQUIRE(are_queued(it, 1, proxy.uri()));
    waiter next(it.server.uri());
    next.wait();
    REQUIRE(are_queued(it, 2));
    proxy.delay(slow, 120ms);
    one->stop.request_stop();
    one->ends_after(clk::now());
    if (ends) one.reset();
    CHECK(it.seen.gets(1));
    check_that_it_is_served(it, next);
}

TEST_CASE("a slow server that answers after the deadline still says that somebody has the lock") {
    owned it;
    fault_proxy proxy(it.server.socket_path());
    proxy.delay(part::reply, 80ms);
    waiter one(proxy.uri());
    CHECK_FALSE(one.lock.try_lock_for(400ms, one.ec));
    CHECK_FALSE(one.ec);
    CHECK(it.seen.gets(0));
}

// ---- what the server refuses -----------------------------------------------------------------------------

TEST_CASE("a waiter that hears nothing gives up at once, on time or by a stop, and leaves no ticket") {
    owned it;
    it.server.command({"ACL", "SETUSER", "deaf", "on", ">secret", "~*", "resetchannels", "+@all"});
    waiter one("unix://deaf:secret@" + it.server.socket_path());
    CHECK(time_of([&] { CHECK_FALSE(one.lock.try_lock_for(250ms, one.ec)); }) < 250ms + timing_tolerance);
    CHECK_FALSE(one.ec);
    CHECK(it.seen.queued() == 0);
    one.wait();
    REQUIRE(are_queued(it, 1));
    const auto stopped = clk::now();
    one.stop.request_stop();
    CHECK(one.ends_after(stopped) < timing_tolerance);
    CHECK(one.ec == errc::cancelled);
    CHECK(it.seen.gets(0));
    it.owner.unlock();
    CHECK(eventually([&] { return it.seen.untouched(); }));
}

TEST_CASE("a waiter whose leave is refused for a while leaves no ticket once it is not") {
    const std::string refused = GENERATE(as<std::string>{}, "-@scripting", "-zrem");
    INFO(refused);
    owned it;
    it.server.command({"ACL", "SETUSER", "worker", "on", ">secret", "~*", "&*", "+@all"});
    waiter one("unix://worker:secret@" + it.server.socket_path());
    one.wait();
    REQUIRE(are_queued(it, 1));
    waiter next(it.server.uri());
    next.wait();
    REQUIRE(are_queued(it, 2));
    it.server.command({"ACL", "SETUSER", "worker", refused});
    one.stop.request_stop();
    one.ends_after(clk::now());
    CHECK(one.ec == errc::cancelled);
    const auto tries = [&] {
        const std::string log = it.server.command({"ACL", "LOG"});
        return log.find("worker") != log.npos;
    };
    CHECK(eventually(tries));
    it.server.command({"ACL", "SETUSER", "worker", "+@all"});
    CHECK(it.seen.gets(1));
    check_that_it_is_served(it, next);
}

// ---- a server that hangs ---------------------------------------------------------------------------------

TEST_CASE("a wait at a server that hangs ends on time, and nothing of it is left when the server goes on") {
    owned it;
    waiter one(it.server.uri());
    const auto begun = clk::now();
    one.wait(3s);
    REQUIRE(are_queued(it, 1));
    waiter next(it.server.uri());
    next.wait();
    REQUIRE(are_queued(it, 2));
    it.server.pause();
    const auto took = one.ends_after(begun);
    it.server.resume();
    CHECK(took >= 3s);
    CHECK(took < 3s + 50ms + timing_tolerance);  // the last answer is given 50 ms
    CHECK_FALSE(one.got);
    CHECK(one.ec == errc::no_reply);
    CHECK(it.seen.gets(1));
    check_that_it_is_served(it, next);
}

// The thread that asked the server was told that it hung, the seven others that somebody else had the lock.
TEST_CASE("no thread of an object is told that somebody else has the lock while the server hangs") {
    owned it;
    hiredis_connection redis(it.server.uri() + "?command_timeout=1s");
    locker mine(redis, "orders", no_looks);
    distlock::recursive_mutex again(redis, "orders", no_looks);
    distlock::shared_mutex writers(redis, "orders", no_looks);
    const auto told = [&](auto& lock) {
        stoppable asks(lock);
        REQUIRE(are_queued(it, 1));
        const auto quick = [&](std::chrono::milliseconds timeout) {
            return std::async(std::launch::async, [&lock, timeout] {
                std::error_code ec;
                return lock.try_lock_for(timeout, ec) ? std::error_code(errc::deadlock) : ec;
            });
        };
        CHECK(quick(1ms).get() == std::error_code{});
        {
            const standstill now(it.server);
            std::vector<std::future<std::error_code>> others;
            for (int i = 0; i < 4; ++i) others.push_back(quick(400ms));
            const auto begun = clk::now();
            for (auto& one : others) CHECK(one.get() == errc::no_reply);
            CHECK(clk::now() - begun < 400ms + 200ms + timing_tolerance);
            std::error_code tried;
            CHECK_FALSE(lock.try_lock(tried));
            CHECK(tried == errc::no_reply);
        }
        CHECK(quick(400ms).get() == std::error_code{});
        asks.stop();
        REQUIRE(it.seen.gets(0));
    };
    told(mine);
    told(again);
    told(writers);
}

TEST_CASE("a stop request ends a wait at a server that hangs, and nothing of it is left when that goes on") {
    const bool ends = GENERATE(false, true);  // its connection, too
    owned it;
    std::optional<waiter> one(std::in_place, it.server.uri());
    one->wait();
    REQUIRE(are_queued(it, 1));
    waiter next(it.server.uri());
    next.wait();
    REQUIRE(are_queued(it, 2));
    it.server.pause();
    const auto stopped = clk::now();
    one->stop.request_stop();
    const auto took = one->ends_after(stopped);
    CHECK(one->ec == errc::cancelled);
    if (ends)
        CHECK(time_of([&] { one.reset(); }) < 200ms + timing_tolerance);  // an answer is waited for so long
    it.server.resume();
    CHECK(took < timing_tolerance);
    CHECK(it.seen.gets(1));
    check_that_it_is_served(it, next);
}

TEST_CASE("a stop request while the server hangs and the lock is on its way to the waiter loses nothing") {
    owned it;
    fault_proxy proxy(it.server.socket_path());
    waiter one(proxy.uri());
    one.wait();
    REQUIRE(are_queued(it, 1, proxy.uri()));
    waiter next(it.server.uri());
    next.wait();
    REQUIRE(are_queued(it, 2));
    proxy.hold(part::reply);
    it.owner.unlock();
    REQUIRE(it.seen.gets(1));
    it.server.pause();
    const auto stopped = clk::now();
    one.stop.request_stop();
    const auto took = one.ends_after(stopped);
    const auto resumed = clk::now();
    it.server.resume();
    proxy.let_go();
    CHECK(took < timing_tolerance);
    CHECK(one.ec == errc::cancelled);
    CHECK(next.ends_after(resumed) < timing_tolerance);
    CHECK(next.got);
    next.lock.unlock();
    CHECK(eventually([&] { return it.seen.untouched(); }));
}

TEST_CASE("a wait survives a server that hangs for a while") {
    owned it;
    waiter one(it.server.uri(), {.recheck = 50ms});
    one.wait();
    REQUIRE(are_queued(it, 1));
    it.server.pause();
    CHECK(one.served.wait_for(400ms) == std::future_status::timeout);
    it.server.resume();
    const auto released = clk::now();
    it.owner.unlock();
    CHECK(one.ends_after(released) < timing_tolerance);
    CHECK(one.got);
}

// ---- sockets that are killed -----------------------------------------------------------------------------

TEST_CASE("a wait whose sockets are all killed again and again keeps its place, and is served") {
    owned it;
    waiter one(it.server.uri());
    one.wait();
    REQUIRE(are_queued(it, 1));
    waiter next(it.server.uri());
    next.wait();
    REQUIRE(are_queued(it, 2));
    const std::string tickets = it.server.command({"ZRANGE", it.seen.queue_key, "0", "-1", "WITHSCORES"});
    const auto subscribed = [&] {
        const auto list = it.server.command({"CLIENT", "LIST", "TYPE", "pubsub"});
        return list.find("id=") != list.rfind("id=");
    };
    for (int i = 0; i < 3; ++i) {
        REQUIRE(eventually(subscribed));
        it.server.command({"CLIENT", "KILL", "TYPE", "normal"});
        CHECK(it.server.command({"CLIENT", "KILL", "TYPE", "pubsub"}) == "2");
    }
    REQUIRE(eventually(subscribed));
    CHECK(it.server.command({"ZRANGE", it.seen.queue_key, "0", "-1", "WITHSCORES"}) == tickets);
    const auto released = clk::now();
    it.owner.unlock();
    CHECK(one.ends_after(released) < timing_tolerance);
    CHECK(one.got);
    one.lock.unlock();
    CHECK(next.ends_after(released) < 2 * timing_tolerance);
    CHECK(next.got);
    next.lock.unlock();
    CHECK(eventually([&] { return it.seen.untouched(); }));
}

// It failed with no_reply when a proxy closed the connection that it waited on.
TEST_CASE("a waiter without patience keeps its place when all its sockets are closed, and is served") {
    owned it;
    waiter one(it.server.uri(), {.recheck = 1h, .patience = 0ms});
    one.wait();
    REQUIRE(are_queued(it, 1));
    waiter next(it.server.uri());
    next.wait();
    REQUIRE(are_queued(it, 2));
    const std::string tickets = it.server.command({"ZRANGE", it.seen.queue_key, "0", "-1", "WITHSCORES"});
    it.server.command({"CLIENT", "KILL", "TYPE", "normal"});
    CHECK(it.server.command({"CLIENT", "KILL", "TYPE", "pubsub"}) == "2");
    REQUIRE(eventually([&] {
        const auto list = it.server.command({"CLIENT", "LIST", "TYPE", "pubsub"});
        const auto first = list.find(" sub=1 ");
        return first != list.npos && first != list.rfind(" sub=1 ");
    }));
    CHECK(it.server.command({"ZRANGE", it.seen.queue_key, "0", "-1", "WITHSCORES"}) == tickets);
    const auto released = clk::now();
    it.owner.unlock();
    CHECK(one.ends_after(released) < timing_tolerance);
    CHECK(one.got);
    CHECK_FALSE(one.ec);
    one.lock.unlock();
    CHECK(next.ends_after(released) < 2 * timing_tolerance);
    CHECK(next.got);
}

TEST_CASE("a waiter that gives up while its subscription is down leaves no ticket") {
    owned it;
    fault_proxy proxy(it.server.socket_path());
    waiter one(proxy.uri());
    one.wait();
    REQUIRE(are_queued(it, 1, proxy.uri()));
    waiter next(it.server.uri());
    next.wait();
    REQUIRE(are_queued(it, 2));
    proxy.cut({.of = part::request, .command = are("SSUBSCRIBE"), .times = 1000});
    const auto list = it.server.command({"CLIENT", "LIST", "TYPE", "pubsub"});
    CHECK(it.server.command({"CLIENT", "KILL", "ID", list.substr(3, list.find(' ') - 3)}) == "1");
    REQUIRE(eventually([&] { return !proxy.cuts().empty(); }));
    const auto stopped = clk::now();
    one.stop.request_stop();
    CHECK(one.ends_after(stopped) < timing_tolerance);
    CHECK(one.ec == errc::cancelled);
    CHECK(it.seen.gets(1));
    check_that_it_is_served(it, next);
}

TEST_CASE("a message that is lost without a word keeps others waiting for no longer than the offer") {
    owned it({.lease = 600ms, .recheck = 1h});
    fault_proxy proxy(it.server.socket_path());
    waiter one(proxy.uri(), {.lease = 600ms, .recheck = 1h});
    one.wait();
    REQUIRE(are_queued(it, 1, proxy.uri()));
    proxy.cut({.of = part::message, .after = 0, .how = fault_proxy::ending::silence});
    const auto released = clk::now();
    it.owner.unlock();
    const auto took = one.ends_after(released);
    CHECK(one.got);
    CHECK(took < 600ms + timing_tolerance);
    CHECK(proxy.cuts().size() == 1);
    one.lock.unlock();
    CHECK(eventually([&] { return it.seen.untouched(); }));
}

}  // namespace cancellation_faults_tests
