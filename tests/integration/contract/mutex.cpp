// What distlock::mutex promises, over every kind of connection and a real server.
#include <atomic>
#include <chrono>
#include <latch>
#include <mutex>
#include <stop_token>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include <distlock/mutex.hpp>

#include "support/answered.hpp"
#include "support/catch.hpp"
#include "support/connection_fixtures.hpp"
#include "support/error_of.hpp"
#include "support/history.hpp"
#include "support/round_trip.hpp"
#include "support/sleepers.hpp"
#include "support/waiting.hpp"

namespace mutex_tests {

using namespace std::chrono_literals;
using distlock::errc;
using distlock::error;
using distlock::lock_options;
using distlock::release_outcome;
using clk = distlock::clock;

namespace {

constexpr lock_options short_lease{.lease = 300ms, .renew = false};

}  // namespace

TEST_CASE("a lock taken once is not taken a second time until it is released") {
    connection_fixtures::over_each fixture;
    const auto how = GENERATE(distlock::posted, distlock::confirmed);
    const auto name = connection_fixtures::fresh_name();
    distlock::mutex first{fixture.connection, name, {.release = how}};
    distlock::mutex second{fixture.connection, name, {.release = how}};
    first.lock();
    CHECK(first.owns_lock());
    CHECK_FALSE(second.try_lock());
    CHECK_FALSE(second.owns_lock());
    CHECK(first.unlock() == fixture.said(how));
    CHECK_FALSE(first.owns_lock());
    REQUIRE(second.try_lock());
    CHECK(second.owns_lock());
    CHECK(second.unlock() == fixture.said(how));
    CHECK(connection_fixtures::gone(fixture, {name}, how));
}

TEST_CASE("the key is the name, its value a token of 32 digits, its TTL the lease") {
    connection_fixtures::over_each fixture;
    const auto name = connection_fixtures::fresh_name();
    const auto how = GENERATE(distlock::posted, distlock::confirmed);
    distlock::mutex m{fixture.connection, name, {.lease = 20s, .release = how}};
    m.lock();
    CHECK(fixture.server().command({"GET", name}).size() == 32);
    const auto ttl = std::stol(fixture.server().command({"PTTL", name}));
    CHECK(ttl > 10'000);
    CHECK(ttl <= 20'000);
    m.unlock();
    CHECK(connection_fixtures::gone(fixture, {name}, how));
}

TEST_CASE("an error that the server answers names the lock and, where the connection says it, the server") {
    connection_fixtures::over_each fixture;
    const auto name = connection_fixtures::fresh_name();
    fixture.server().command({"RPUSH", name, "x"});
    const auto server = fixture.connection.on_it([](auto& it) {
        if constexpr (distlock::identified_connection<decltype(it.connection)>) {
            return std::string(it.connection.identity());
        } else {
            return std::string();
        }
    });
    distlock::mutex m{fixture.connection, name};
    const auto e = error_of([&] { return m.try_lock(); });
    CHECK(e.code() == errc::wrong_type);
    const std::string what = e.what();
    INFO(what);
    CHECK(what.starts_with("lock " + name + ": " + (server.empty() ? "" : server + ": ")));
    CHECK(what.find("the key holds a list") != std::string::npos);
}

TEST_CASE("every acquisition has a token of its own") {
    connection_fixtures::over_each fixture;
    const auto name = connection_fixtures::fresh_name();
    distlock::mutex m{fixture.connection, name};
    m.lock();
    const auto first = fixture.server().command({"GET", name});
    m.unlock();
    m.lock();
    CHECK(fixture.server().command({"GET", name}) != first);
    m.unlock();
}

TEST_CASE("a name may hold any bytes") {
    connection_fixtures::over_each fixture;
    const std::string name =
        connection_fixtures::fresh_name() + std::string("\0\r\n*1\r\n$4\r\nPING\r\n\xff {}", 22);
    distlock::mutex m{fixture.connection, name};
    m.lock();
    CHECK(fixture.server().command({"EXISTS", name}) == "1");
    CHECK(m.name() == name);
    CHECK(m.unlock() == fixture.said());
    CHECK(connection_fixtures::gone(fixture, {name}));
}

TEST_CASE("lock() waits for another owner's release") {
    std::atomic<bool> released{false};
    bool had_after_it = false;
    connection_fixtures::over_each fixture;
    const auto name = connection_fixtures::fresh_name();
    distlock::mutex first{fixture.connection, name};
    distlock::mutex second{fixture.connection, name};
    first.lock();
    sleeper waiter([&] {
        second.lock();
        had_after_it = released;
        second.unlock();
    });
    CHECK(waiter.sleeps());
    CHECK_FALSE(waiter.done());
    released = true;
    first.unlock();
    waiter.join();
    CHECK(had_after_it);
}

TEST_CASE("try_lock_for gives up when the time is up, and not before") {
    connection_fixtures::over_each fixture;
    const auto name = connection_fixtures::fresh_name();
    distlock::mutex first{fixture.connection, name};
    distlock::mutex second{fixture.connection, name};
    first.lock();
    clk::time_point start;
    std::error_code ec = errc::no_reply;
    CHECK_FALSE(answered(ec, [&] {
        start = clk::now();
        return second.try_lock_for(120ms, ec);
    }));
    CHECK_FALSE(ec);
    CHECK(clk::now() - start >= 120ms);
    CHECK(clk::now() - start < 120ms + round_trip_tolerance);
    if (answers_come_at_once()) {
        using std::chrono::steady_clock;
        using std::chrono::system_clock;
        CHECK_FALSE(answered([&] { return second.try_lock_for(0ms); }));
        CHECK_FALSE(answered([&] { return second.try_lock_for(-1h); }));
        CHECK_FALSE(answered([&] { return second.try_lock_for(std::chrono::duration<double>(0.01)); }));
        CHECK_FALSE(answered([&] { return second.try_lock_until(system_clock::now() + 20ms); }));
        CHECK_FALSE(answered([&] { return second.try_lock_until(steady_clock::time_point::min()); }));
    }
    CHECK_FALSE(second.try_lock_until(clk::now() + 20ms, ec));
    first.unlock();
}

TEST_CASE("a free lock is taken even when there is no time to wait") {
    connection_fixtures::over_each fixture;
    const auto how = GENERATE(distlock::posted, distlock::confirmed);
    distlock::mutex m{fixture.connection, connection_fixtures::fresh_name(), {.release = how}};
    for (const auto timeout : {0ns, std::chrono::nanoseconds(-1), std::chrono::nanoseconds::min(),
                               std::chrono::nanoseconds::max()}) {
        if (timeout < 1h && !answers_come_at_once()) continue;
        REQUIRE(obtains([&] { return m.try_lock_for(timeout); }));
        CHECK(m.unlock() == fixture.said(how));
    }
    REQUIRE(m.try_lock_for(std::chrono::hours::max()));
    CHECK(m.unlock() == fixture.said(how));
    REQUIRE(m.try_lock_until(clk::time_point::max()));
    CHECK(m.unlock() == fixture.said(how));
    NOT_TESTED_UNLESS(answers_come_at_once(),
                      "DISTLOCK_TEST_ROUND_TRIP is longer than an answer is waited for");
    REQUIRE(obtains([&] { return m.try_lock_until(clk::time_point::min()); }));
    CHECK(m.unlock() == fixture.said(how));
}

TEST_CASE("a lease that runs out frees the lock for others, and the owner knows before") {
    connection_fixtures::over_each fixture;
    const auto name = connection_fixtures::fresh_name();
    distlock::mutex first{fixture.connection, name, short_lease};
    distlock::mutex second{fixture.connection, name};
    first.lock();
    CHECK(first.remaining() > 0ms);
    CHECK(first.remaining() <= 295ms);  // one per cent and 2 ms of the lease are not the owner's
    const auto end = first.valid_until();
    second.lock();
    CHECK(clk::now() >= end);
    CHECK_FALSE(first.owns_lock());
    CHECK(first.remaining() == 0ms);
    CHECK(first.unlock() == release_outcome::taken);
    CHECK(second.owns_lock());
    CHECK(second.unlock() == fixture.said());
}

TEST_CASE("releasing after the lease says expired, and a second time not_held") {
    connection_fixtures::over_each fixture;
    const auto name = connection_fixtures::fresh_name();
    distlock::mutex m{fixture.connection, name, short_lease};
    m.lock();
    REQUIRE(eventually([&] { return fixture.server().command({"EXISTS", name}) == "0"; }));
    CHECK(m.unlock() == release_outcome::expired);
    CHECK(m.unlock() == release_outcome::not_held);
}

TEST_CASE("nobody's key but our own is ever deleted") {
    connection_fixtures::over_each fixture;
    const auto name = connection_fixtures::fresh_name();
    const auto how = GENERATE(distlock::posted, distlock::confirmed);
    distlock::mutex m{fixture.connection, name, {.release = how}};
    m.lock();
    const auto token = fixture.server().command({"GET", name});
    fixture.server().command({"SET", name, token.substr(0, 16)});  // a prefix of our token is not our token
    CHECK(m.unlock() == fixture.said(how, release_outcome::taken));
    CHECK(eventually([&] { return m.residual() == 0ms; }));  // the server has answered
    CHECK(fixture.server().command({"GET", name}) == token.substr(0, 16));
}

TEST_CASE("a stop request ends the wait with errc::cancelled") {
    connection_fixtures::over_each fixture;
    const auto name = connection_fixtures::fresh_name();
    distlock::mutex first{fixture.connection, name};
    distlock::mutex second{fixture.connection, name, {.recheck = 10s}};
    first.lock();
    std::stop_source stop;
    std::error_code ec;
    bool locked = true;
    sleeper waiter([&] { locked = second.lock(stop.get_token(), ec); });
    CHECK(waiter.sleeps());
    CHECK_FALSE(waiter.done());
    const auto stopped_at = clk::now();
    stop.request_stop();
    waiter.join();
    CHECK(clk::now() - stopped_at < round_trip_tolerance);
    CHECK_FALSE(locked);
    CHECK(ec == errc::cancelled);
    CHECK(ec == std::errc::operation_canceled);
    CHECK_THROWS_AS(second.lock(stop.get_token()), error);
    CHECK_FALSE(second.try_lock_for(10s, stop.get_token(), ec));
    CHECK(ec == errc::cancelled);
    CHECK_FALSE(second.try_lock(stop.get_token(), ec));
    CHECK(ec == errc::cancelled);
    first.unlock();
    CHECK_FALSE(second.owns_lock());
    CHECK(connection_fixtures::gone(fixture, {name}));
}

TEST_CASE("threads that share one mutex exclude each other") {
    connection_fixtures::over_each fixture;
    distlock::mutex m{fixture.connection, connection_fixtures::fresh_name()};
    const auto told = take_turns(4, 25, [&](int, auto inside) {
        const std::lock_guard guard{m};
        inside(m);
    });
    CHECK(told.grants == 100);
    CHECK(told.contended > 0);
    CHECK(told.text() == "");
}

TEST_CASE("mutexes in different threads on one name exclude each other") {
    connection_fixtures::over_each fixture;
    const auto name = connection_fixtures::fresh_name();
    const auto told = take_turns(4, 15, [&](int, auto inside) {
        distlock::mutex m{fixture.connection, name, {.recheck = 5ms}};
        const std::lock_guard guard{m};
        inside(m);
    });
    CHECK(told.grants == 60);
    CHECK(told.contended > 0);
    CHECK(told.text() == "");
}

TEST_CASE("an acquisition may be released by another thread") {
    connection_fixtures::over_each fixture;
    const auto name = connection_fixtures::fresh_name();
    const auto how = GENERATE(distlock::posted, distlock::confirmed);
    distlock::mutex m{fixture.connection, name, {.release = how}};
    m.lock();
    auto outcome = release_outcome::not_held;
    std::jthread([&] { outcome = m.unlock(); }).join();
    CHECK(outcome == fixture.said(how));
    CHECK(connection_fixtures::gone(fixture, {name}, how));
    REQUIRE(m.try_lock());
    m.unlock();
}

// redis-plus-plus: a stale owner's unlock frees the next owner's lock when threads share one mutex object.
TEST_CASE("a late unlock by a thread whose lease ran out leaves the next thread's lock alone") {
    std::latch taken{1};
    std::latch looked{1};
    connection_fixtures::over_each fixture;
    const auto name = connection_fixtures::fresh_name();
    distlock::mutex m{fixture.connection, name, short_lease};
    m.lock();
    std::jthread next([&] {
        m.lock();  // through the same object, after the lease of the first has run out
        taken.count_down();
        looked.wait();
        m.unlock();
    });
    taken.wait();
    const auto token = fixture.server().command({"GET", name});
    CHECK(m.unlock() == release_outcome::expired);
    CHECK(fixture.server().command({"GET", name}) == token);
    looked.count_down();
}

TEST_CASE("the standard's guards and algorithms work as they are") {
    connection_fixtures::over_each fixture;
    const auto one = connection_fixtures::fresh_name();
    const auto two = connection_fixtures::fresh_name();
    distlock::mutex a{fixture.connection, one};
    distlock::mutex b{fixture.connection, two};
    const auto held = [&] { return connection_fixtures::count_of(fixture.server(), {one, two}); };
    {
        const std::lock_guard guard{a};
        CHECK(held() == 1);
    }
    {
        std::unique_lock guard{a, 1s};
        CHECK(guard.owns_lock());
        guard.unlock();
        CHECK(guard.try_lock());
    }
    {
        const std::scoped_lock guard{a, b};
        CHECK(held() == 2);
    }
    std::lock(a, b);
    CHECK(held() == 2);
    a.unlock();
    CHECK(std::try_lock(a, b) == 1);
    CHECK_FALSE(a.owns_lock());
    b.unlock();
    CHECK(connection_fixtures::gone(fixture, {one, two}));
}

TEST_CASE("a mutex destroyed while it holds releases the lock") {
    connection_fixtures::over_each fixture;
    const auto how = GENERATE(distlock::posted, distlock::confirmed);
    const auto name = connection_fixtures::fresh_name();
    {
        distlock::mutex m{fixture.connection, name, {.release = how}};
        m.lock();
    }
    CHECK(connection_fixtures::gone(fixture, {name}, how));
}

TEST_CASE("scripts the server has forgotten are sent again") {
    connection_fixtures::over_each fixture;
    const auto how = GENERATE(distlock::posted, distlock::confirmed);
    const auto name = connection_fixtures::fresh_name();
    distlock::mutex m{fixture.connection, name, {.release = how}};
    for (int i = 0; i < 3; ++i) {
        fixture.server().command({"SCRIPT", "FLUSH"});
        CHECK(time_of([&] { m.lock(); }) <
              100ms + round_trip_tolerance);  // whatever became of the last release
        fixture.server().command({"SCRIPT", "FLUSH"});
        CHECK(m.unlock() == fixture.said(how));
    }
    CHECK(connection_fixtures::gone(fixture, {name}, how));
}

}  // namespace mutex_tests
