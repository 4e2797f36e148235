// Waiting, and giving it up, where the server or the way to it fails.
#include <chrono>
#include <future>
#include <optional>
#include <poll.h>
#include <stop_token>
#include <string>
#include <system_error>
#include <thread>

#include <distlock/hiredis.hpp>
#include <distlock/mutex.hpp>
#include <distlock/testing.hpp>

#include "catch.hpp"
#include "support/lock_on_server.hpp"
#include "support/slack.hpp"
#include "support/stepping_proxy.hpp"
#include "support/waiting.hpp"

using namespace std::chrono_literals;
using distlock::errc;
using distlock::hiredis_connection;
using distlock::lock_options;
using distlock::testing::fault_proxy;
using distlock::testing::redis_server;
using clk = distlock::clock;
using locker = distlock::mutex<hiredis_connection>;

namespace {

constexpr lock_options no_looks{.recheck = 1h};

/// One who waits for a lock of a server that is its own, on a thread of its own.
struct waiter {
    waiter(const std::string& uri, const lock_options& options)
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

// Returns: the URI of a user who may ask for its number, but not end a wait.
std::string limited_user(const redis_server& server) {
    server.command({"ACL", "SETUSER", "limited", "on", ">secret", "~*", "+@all", "-client", "+client|id"});
    return "unix://limited:secret@" + server.socket_path();
}

void kill_who_waits(const redis_server& server) {
    const std::string list = server.command({"CLIENT", "LIST"});
    const auto line = list.rfind("id=", list.find("cmd=blpop"));
    const auto id = list.substr(line + 3, list.find(' ', line) - line - 3);
    REQUIRE(server.command({"CLIENT", "KILL", "ID", id}) == "1");
}

}  // namespace

// ---- no permission to end a wait ----------------------------------------------------------------------------

TEST_CASE("who may not end a wait on the server is served at once all the same") {
    owned it;
    waiter one(limited_user(it.server), no_looks);
    one.wait();
    REQUIRE(it.seen.gets(1));
    const auto released = clk::now();
    it.owner.unlock();
    CHECK(one.ends_after(released) < slack);
    CHECK(one.got);
    one.lock.unlock();
    CHECK(eventually([&] { return it.seen.untouched(); }));
}

TEST_CASE("who may not end a wait on the server gives it up soon, on time or by a stop, and is not counted") {
    owned it;
    waiter one(limited_user(it.server), no_looks);
    CHECK(time_of([&] { CHECK_FALSE(one.lock.try_lock_for(250ms, one.ec)); }) < 250ms + slack);
    CHECK_FALSE(one.ec);
    CHECK(it.seen.counted() == 0);
    one.wait();
    REQUIRE(it.seen.gets(1));
    const auto stopped = clk::now();
    one.stop.request_stop();
    CHECK(one.ends_after(stopped) < 100ms + slack);
    CHECK(one.ec == errc::cancelled);
    CHECK(it.seen.counted() == 0);
}

TEST_CASE("a grant that a slow server has sent to one who gives up goes to the next in line") {
    // 50 ms after the end nobody listened any more, and the lock was nobody's for the rest of the lease.
    owned it;
    fault_proxy proxy(it.server.socket_path());
    waiter before(it.server.uri(), no_looks);  // now the server has the script by which one leaves
    before.wait();
    REQUIRE(it.seen.gets(1));
    before.stop.request_stop();
    before.ends_after(clk::now());
    waiter one(proxy.uri(), no_looks);
    one.wait();
    REQUIRE(it.seen.gets(1));
    waiter next(it.server.uri(), no_looks);
    const bool somebody = GENERATE(false, true);
    if (somebody) {
        next.wait();
        REQUIRE(it.seen.gets(2));
    }
    proxy.delay(fault_proxy::part::reply, 120ms);
    it.owner.unlock();
    const auto stopped = clk::now();
    one.stop.request_stop();
    CHECK(one.ends_after(stopped) < slack);
    CHECK(one.ec == errc::cancelled);
    if (somebody) {
        CHECK(next.ends_after(stopped) < 120ms + slack);
        CHECK(next.got);
        next.lock.unlock();
    }
    CHECK(eventually([&] { return it.seen.untouched(); }));
}

TEST_CASE("who gives up at a slow server before there is a grant is not counted, even when it ends at once") {
    const bool ends = GENERATE(false, true);
    owned it;
    fault_proxy proxy(it.server.socket_path());
    std::optional<waiter> one(std::in_place, proxy.uri(), no_looks);
    one->wait();
    REQUIRE(it.seen.gets(1));
    proxy.delay(fault_proxy::part::reply, 120ms);
    one->stop.request_stop();
    one->ends_after(clk::now());
    if (ends) one.reset();
    CHECK(eventually([&] { return it.seen.counted() == 0; }));
    it.owner.unlock();
    CHECK(it.seen.untouched());
}

TEST_CASE("of a lock that somebody has, a slow server says so after the deadline, too") {
    owned it;
    fault_proxy proxy(it.server.socket_path());
    proxy.delay(fault_proxy::part::reply, 80ms);
    waiter one(proxy.uri(), no_looks);
    CHECK_FALSE(one.lock.try_lock_for(400ms, one.ec));
    CHECK_FALSE(one.ec);
    CHECK(eventually([&] { return it.seen.counted() == 0; }));
}

TEST_CASE("a grant that is on its way to one who may not end a wait and gives up is not lost") {
    owned it;
    limited_user(it.server);
    stepping_proxy proxy(it.server.socket_path());
    waiter one(proxy.uri("", "limited:secret@"), no_looks);
    proxy.at("BLPOP request", [&] { it.owner.unlock(); });
    proxy.at("BLPOP reply", [&] {
        one.stop.request_stop();
        const auto until = clk::now() + 20ms;
        while (clk::now() < until) ::poll(nullptr, 0, 1);
    });
    one.wait();
    one.ends_after(clk::now());
    CHECK(one.got);
    one.lock.unlock();
    CHECK(it.owner.try_lock_for(10s));
    CHECK(it.seen.counted() == 0);
}

// ---- a server that hangs --------------------------------------------------------------------------------------

namespace {

// Who left unheard may still be counted: what is handed to nobody goes to who comes.
void check_that_the_next_is_served(owned& it) {
    waiter next(it.server.uri(), no_looks);
    const auto released = clk::now();
    it.owner.unlock();
    next.wait();
    CHECK(next.ends_after(released) < slack);
    CHECK(next.got);
    CHECK(std::stol(it.server.command({"PTTL", it.seen.W})) <= 2'000);
}

}  // namespace

TEST_CASE("a wait at a server that hangs ends on time, and not with somebody else having the lock") {
    owned it;
    waiter one(it.server.uri(), no_looks);
    const auto begun = clk::now();
    one.wait(300ms);
    REQUIRE(it.seen.gets(1));
    it.server.pause();
    const auto took = one.ends_after(begun);
    it.server.resume();
    CHECK(took >= 300ms);
    CHECK(took < 300ms + slack);
    CHECK_FALSE(one.got);
    CHECK(one.ec == errc::no_reply);
    check_that_the_next_is_served(it);
}

TEST_CASE("a stop request ends a wait at a server that hangs") {
    owned it;
    waiter one(it.server.uri(), no_looks);
    one.wait();
    REQUIRE(it.seen.gets(1));
    it.server.pause();
    const auto stopped = clk::now();
    one.stop.request_stop();
    const auto took = one.ends_after(stopped);
    it.server.resume();
    CHECK(took < slack);
    CHECK(one.ec == errc::cancelled);
    check_that_the_next_is_served(it);
}

TEST_CASE("a wait survives a server that hangs for a while") {
    owned it;
    waiter one(it.server.uri(), {.recheck = 50ms});
    one.wait();
    REQUIRE(it.seen.gets(1));
    it.server.pause();
    CHECK(one.served.wait_for(400ms) == std::future_status::timeout);
    it.server.resume();
    it.owner.unlock();
    CHECK(one.ends_after(clk::now()) < slack);
    CHECK(one.got);
}

// ---- sockets that are killed ----------------------------------------------------------------------------------

TEST_CASE("a wait whose socket is killed goes on in line, and is served") {
    owned it;
    waiter one(it.server.uri(), no_looks);
    one.wait();
    for (int i = 0; i < 3; ++i) {
        REQUIRE(it.seen.gets(1));
        kill_who_waits(it.server);
        REQUIRE(eventually([&] { return it.seen.blocked() == 0; }));
    }
    REQUIRE(it.seen.gets(1));
    const auto released = clk::now();
    it.owner.unlock();
    CHECK(one.ends_after(released) < slack);
    CHECK(one.got);
    one.lock.unlock();
    CHECK(eventually([&] { return it.seen.untouched(); }));
}

TEST_CASE("a grant that is lost with its socket keeps others waiting for no longer than its lease") {
    owned it({.lease = 600ms, .recheck = 1h});
    fault_proxy proxy(it.server.socket_path());
    waiter one(proxy.uri(), {.lease = 600ms, .recheck = 1h});
    one.wait();
    REQUIRE(it.seen.gets(1));
    proxy.cut({.of = fault_proxy::part::reply,
               .command = [](const fault_proxy::words& w) { return w[0] == "BLPOP"; },
               .after = 0});
    const auto released = clk::now();
    it.owner.unlock();
    const auto took = one.ends_after(released);
    CHECK(one.got);
    CHECK(took > 300ms);  // or nothing was lost
    CHECK(took < 600ms + slack);
    CHECK(proxy.cuts().size() == 1);
    one.lock.unlock();
    CHECK(eventually([&] { return it.seen.untouched(); }));
}
