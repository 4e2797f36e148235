// A posted release that fails: it is repeated in the background, and the lock is free soon all the same.
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include <distlock/hiredis.hpp>
#include <distlock/mutex.hpp>
#include <distlock/testing.hpp>
#include <distlock/wire/handoff_scripts.hpp>

#include "support/catch.hpp"
#include "support/lock_on_server.hpp"
#include "support/timing_tolerance.hpp"
#include "support/waiting.hpp"

namespace posted_release_tests {

using namespace std::chrono_literals;
using distlock::hiredis_connection;
using distlock::lock_options;
using distlock::release_outcome;
using distlock::testing::fault_proxy;
using distlock::testing::redis_server;
using clk = distlock::clock;
using locker = distlock::mutex<hiredis_connection>;

namespace {

constexpr lock_options no_looks{.recheck = 1h};

/// A server of its own, a way to it that can be cut, and a mutex that was released once: the server has the
/// script, and is sent no body any more.
struct place {
    place() {
        m.lock();
        m.unlock();
        REQUIRE(eventually([&] { return m.residual() == 0ms; }));
    }
    /// Effects: checks that the lock is free, and known to be, within 200 ms.
    void check_that_it_is_done(clk::time_point released) {
        CHECK(eventually([&] { return !seen.taken(); }));
        CHECK(clk::now() - released < 200ms + timing_tolerance);
        CHECK(eventually([&] { return m.residual() == 0ms; }));
        CHECK(clk::now() - released < 400ms + timing_tolerance);
    }

    redis_server server;
    fault_proxy proxy{server.socket_path()};
    hiredis_connection redis{proxy.uri()};
    locker m{redis, "orders", no_looks};
    lock_on_server seen{server, "orders"};
};

bool is_release(const fault_proxy::words& w) {
    return w[0].starts_with("EVAL") &&
           (w[1] == distlock::detail::handoff_leave.sha1() || w[1] == distlock::detail::handoff_leave.text());
}

// Effects: posts a release to a server that has lost its script; the mutex ends then.
void post_without_script(const redis_server& server, hiredis_connection& redis) {
    locker m(redis, "orders", no_looks);
    m.lock();
    m.unlock();
    REQUIRE(eventually([&] { return m.residual() == 0ms; }));
    m.lock();
    server.command({"SCRIPT", "FLUSH"});
    CHECK(m.unlock() == release_outcome::posted);
}

}  // namespace

TEST_CASE("a posted release that is answered OK is confirmed, and not asked again") {
    place it;
    it.proxy.forget();
    it.m.lock();
    const auto released = clk::now();
    CHECK(it.m.unlock() == release_outcome::posted);
    it.check_that_it_is_done(released);
    CHECK(it.proxy.requests(is_release).size() == 1);
    CHECK(it.seen.untouched());
}

TEST_CASE("a posted release whose script the server forgot is sent again with it") {
    place it;
    it.m.lock();
    it.server.command({"SCRIPT", "FLUSH"});
    const auto released = clk::now();
    CHECK(it.m.unlock() == release_outcome::posted);
    CHECK(it.m.residual() > 0ms);
    it.check_that_it_is_done(released);
    CHECK(it.seen.untouched());
}

TEST_CASE(
    "a posted release whose script the server forgot is sent again with it although its mutex is gone") {
    const redis_server server;
    hiredis_connection redis(server.uri());
    const lock_on_server seen(server, "orders");
    post_without_script(server, redis);
    CHECK(redis.execute({"PING"}).is_status("PONG"));  // the refusal is read before it
    CHECK(eventually([&] { return !seen.taken(); }, 2s));
    CHECK(eventually([&] { return seen.untouched(); }));
}

// Nothing was sent once the connection had gone: the lock stayed for its lease.
TEST_CASE(
    "a posted release whose script the server forgot frees the lock although its connection ends at once") {
    const redis_server server;
    const lock_on_server seen(server, "orders");
    {
        hiredis_connection redis(server.uri());
        post_without_script(server, redis);
    }
    CHECK_FALSE(seen.taken());
    CHECK(seen.untouched());
}

// What the full server said of its socket was not read by then.
TEST_CASE(
    "a posted release that a full server did not take frees the lock although its connection ends at once") {
    const redis_server server(distlock::testing::redis_server_options{.arguments = {"--maxclients", "2"}});
    std::optional<hiredis_connection> other;
    {
        hiredis_connection redis(server.uri() + "?command_timeout=20s");
        locker m(redis, "orders", {.lease = 60s});
        m.lock();
        std::thread busy([&] { static_cast<void>(redis.execute({"BLPOP", "list", "0"})); });
        const auto blocks = [&] { return server.command({"INFO", "clients"}).find("blocked_clients:1\r"); };
        const bool has_its_socket = eventually([&] { return blocks() != std::string::npos; });
        other.emplace(server.uri() + "?command_timeout=20s");
        // The one that asked may be there for a moment.
        const bool full = eventually([&] { return other->execute({"PING"}).is_status("PONG"); });
        const auto said = m.unlock();  // posted, but where the server was quicker than the post
        CHECK((said == release_outcome::posted || said == release_outcome::refused ||
               said == release_outcome::unreachable));
        CHECK(other->execute({"LPUSH", "list", "1"}).is_integer(1));
        busy.join();
        CHECK(has_its_socket);
        CHECK(full);
    }
    CHECK(other->execute({"EXISTS", "orders"}).is_integer(0));
}

TEST_CASE("a posted release hands the lock over although the server is out of memory") {
    place it;
    hiredis_connection other(it.server.uri());
    locker waiting(other, "orders", {.recheck = 1h});
    it.m.lock();
    clk::time_point served{};
    std::jthread one([&] {
        if (waiting.try_lock_for(20s)) served = clk::now();
    });
    REQUIRE(it.seen.gets(1));
    it.server.command({"CONFIG", "SET", "maxmemory", "1"});
    const auto released = clk::now();
    CHECK(it.m.unlock() == release_outcome::posted);
    one.join();
    CHECK(waiting.owns_lock());
    CHECK(served - released < timing_tolerance);
    CHECK(eventually([&] { return it.m.residual() == 0ms; }));
    waiting.unlock();
    CHECK(eventually([&] { return it.seen.untouched(); }));
}

TEST_CASE("a posted release whose socket dies before its reply is read is asked for again") {
    for (const auto how : {fault_proxy::ending::reset, fault_proxy::ending::close}) {
        for (const auto of : {fault_proxy::part::request, fault_proxy::part::reply}) {
            place it;
            it.m.lock();
            it.proxy.cut({.of = of, .command = is_release, .after = 0, .how = how});
            const auto released = clk::now();
            CHECK(it.m.unlock() == release_outcome::posted);
            it.check_that_it_is_done(released);
            CHECK(it.proxy.cuts().size() == 1);
            CHECK(it.seen.untouched());
        }
    }
}

TEST_CASE("a posted release that is never answered is asked for again after the command time-out") {
    constexpr auto command_timeout = 200ms;
    for (const auto of : {fault_proxy::part::request, fault_proxy::part::reply}) {
        place it;
        it.m.lock();
        it.proxy.cut({.of = of, .command = is_release, .after = 0, .how = fault_proxy::ending::silence});
        const auto released = clk::now();
        CHECK(it.m.unlock() == release_outcome::posted);
        CHECK(eventually([&] { return it.m.residual() == 0ms; }));
        CHECK(clk::now() - released <
              2 * command_timeout + 50ms + 5 * timing_tolerance);  // the second may be on that socket, too
        CHECK(it.seen.untouched());
    }
}

TEST_CASE("a mutex takes its lock again although its posted release was lost") {
    for (const bool once : {true, false}) {
        place it;
        it.m.lock();
        it.proxy.cut({.of = fault_proxy::part::request,
                      .command = is_release,
                      .after = 0,
                      .how = fault_proxy::ending::reset});
        CHECK(it.m.unlock() == release_outcome::posted);
        const auto begun = clk::now();
        CHECK((once ? it.m.try_lock() : it.m.try_lock_for(10s)));
        CHECK(clk::now() - begun < 300ms + timing_tolerance);
        it.m.unlock();
        CHECK(eventually([&] { return it.seen.untouched(); }));
    }
}

TEST_CASE("a server that hangs when a release is posted frees the lock when it goes on") {
    place it;
    it.m.lock();
    it.server.pause();
    CHECK(time_of([&] { CHECK(it.m.unlock() == release_outcome::posted); }) < timing_tolerance);
    CHECK(it.m.residual() > 0ms);
    it.server.resume();
    it.check_that_it_is_done(clk::now());
    CHECK(it.seen.untouched());
}

TEST_CASE(
    "a release that cannot be posted at once is the background's, and a try of the object comes after it") {
    struct unwilling {
        distlock::reply execute(const distlock::command& cmd) { return inner.execute(cmd); }
        bool post(const distlock::command&) { return false; }
        explicit unwilling(const std::string& uri) : inner(uri) {}
        hiredis_connection inner;
    };
    const redis_server server;
    unwilling redis(server.uri());
    distlock::mutex m{redis, "orders", no_looks};
    for (int i = 0; i < 3; ++i) {
        REQUIRE(m.try_lock());
        CHECK(m.unlock() == release_outcome::unreachable);
    }
    CHECK(eventually([&] { return m.residual() == 0ms; }));
    CHECK(lock_on_server(server, "orders").untouched());
}

TEST_CASE("a server that is gone is not posted to: unlock() says unreachable, and owes the release") {
    place it;
    it.m.lock();
    it.server.kill();
    const auto what = it.m.unlock();
    CHECK((what == release_outcome::unreachable || what == release_outcome::posted));
    CHECK(it.m.residual() > 0ms);
    it.server.start();  // empty
    CHECK(eventually([&] { return it.m.residual() == 0ms; }));
}

}  // namespace posted_release_tests
