// A release that unlock() does not wait for: what it may do to whoever comes next, and to whoever
// goes, over a real server.
#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <distlock/mutex.hpp>
#include <distlock/scoped_lock.hpp>

#include "support/catch.hpp"
#include "support/connection_fixtures.hpp"
#include "support/lock_on_server.hpp"
#include "support/round_trip.hpp"
#include "support/waiting.hpp"

namespace posted_release_tests {

using namespace std::chrono_literals;
using distlock::lock_options;
using distlock::release_outcome;
using clk = distlock::clock;

namespace {

// No look comes to the help of who is to be served.
constexpr lock_options no_looks{.recheck = 1h};

// What takes longer than this was not there in time.
const auto soon = 50ms + round_trip_tolerance;

}  // namespace

TEST_CASE("a posted release is done soon, and known to be") {
    connection_fixtures::over_each_of_ours fixture;
    const auto name = connection_fixtures::fresh_name();
    distlock::mutex m{fixture.connection, name, no_looks};
    for (int i = 0; i < 3; ++i) {
        m.lock();
        CHECK(m.residual() == 0ms);
        const auto released = clk::now();
        CHECK(m.unlock() == release_outcome::posted);
        CHECK(eventually([&] { return lock_on_server(fixture.server(), name).untouched(); }));
        CHECK(clk::now() - released < soon);
        CHECK(eventually([&] { return m.residual() == 0ms; }));
        CHECK(clk::now() - released < 100ms + round_trip_tolerance);
    }
}

TEST_CASE("a try right after unlock() is never told that somebody else has the lock") {
    connection_fixtures::over_each_of_ours fixture;
    distlock::mutex m{fixture.connection, connection_fixtures::fresh_name(), no_looks};
    int refused = 0;
    for (int i = 0; i < repetitions(10'000); ++i) {
        if (!m.try_lock()) {
            ++refused;
            continue;
        }
        m.unlock();
    }
    CHECK(refused == 0);
}

TEST_CASE(
    "a try right after unlock() gets the lock although other threads use the connection and its sockets") {
    connection_fixtures::over_each_of_ours fixture;
    distlock::mutex m{fixture.connection, connection_fixtures::fresh_name(), no_looks};
    int refused = 0;
    {
        std::vector<std::jthread> others;
        for (int i = 0; i < 3; ++i) {
            others.emplace_back(
                [&fixture, name = connection_fixtures::fresh_name()](const std::stop_token& over) {
                    distlock::mutex other{fixture.connection, name, no_looks};
                    while (!over.stop_requested()) {
                        const distlock::scoped_lock guard{other};
                    }
                });
        }
        for (int i = 0; i < repetitions(2'000); ++i) {
            if (!m.try_lock()) {
                ++refused;
                continue;
            }
            m.unlock();
        }
    }
    CHECK(refused == 0);
}

TEST_CASE("a try right after an unlock() by another thread gets the lock") {
    std::atomic<int> round{0};  // even: to be taken; odd: to be released
    connection_fixtures::over_each_of_ours fixture;
    distlock::mutex m{fixture.connection, connection_fixtures::fresh_name(), no_looks};
    const int rounds = repetitions(2'000);
    std::jthread other([&] {
        for (int i = 0; i < rounds; ++i) {
            while (round.load() != 2 * i + 1) std::this_thread::yield();
            m.unlock();
            ++round;
        }
    });
    int refused = 0;
    for (int i = 0; i < rounds; ++i) {
        while (round.load() != 2 * i) std::this_thread::yield();
        while (!m.try_lock()) ++refused;
        ++round;
    }
    CHECK(refused == 0);
}

TEST_CASE("a lock() after unlock() of the same object waits for nothing") {
    connection_fixtures::over_each_of_ours fixture;
    const auto name = connection_fixtures::fresh_name();
    distlock::mutex m{fixture.connection, name, {.fencing = true, .recheck = 1h}};
    std::uint64_t last = 0;
    const int times = repetitions(500);
    const auto took = time_of([&] {
        for (int i = 0; i < times; ++i) {
            m.lock();
            CHECK(m.fencing_token() > last);
            last = m.fencing_token();
            m.unlock();
        }
    });
    CHECK(took < times * (5ms + 2 * round_trip()) + round_trip_tolerance);
}

TEST_CASE("a mutex that is destroyed right after unlock() leaves nothing behind") {
    connection_fixtures::over_each_of_ours fixture;
    const auto name = connection_fixtures::fresh_name();
    const lock_on_server seen(fixture.server(), name);
    distlock::mutex next{fixture.connection, name, no_looks};
    for (int i = 0; i < 50; ++i) {
        {
            distlock::mutex m{fixture.connection, name, no_looks};
            m.lock();
            if (i % 2 == 0) m.unlock();
        }
        const auto gone = clk::now();
        REQUIRE(next.try_lock_for(10s));
        CHECK(clk::now() - gone < soon);
        next.unlock();
    }
    CHECK(eventually([&] { return seen.untouched(); }));
}

TEST_CASE("a mutex whose release is not done yet may be destroyed: it is done all the same") {
    connection_fixtures::over_each_of_ours fixture;
    const auto name = connection_fixtures::fresh_name();
    {
        distlock::mutex m{fixture.connection, name, no_looks};
        m.lock();
        m.unlock();
        m.lock();  // the server has the script, and is sent no body any more
        REQUIRE(eventually([&] { return m.residual() == 0ms; }));
        fixture.server().command({"SCRIPT", "FLUSH"});
        CHECK(m.unlock() == release_outcome::posted);
    }
    const auto gone = clk::now();
    CHECK(eventually([&] { return lock_on_server(fixture.server(), name).untouched(); }));
    CHECK(clk::now() - gone < 400ms + round_trip_tolerance);  // the command time-out, twice
}

TEST_CASE("a connection that is destroyed right after unlock() has delivered it") {
    connection_fixtures::over_each_of_ours kind;
    const auto name = connection_fixtures::fresh_name();
    const lock_on_server seen(kind.server(), name);
    for (int i = 0; i < 50; ++i) {
        {
            auto fixture = kind.another();
            distlock::mutex m{fixture.connection, name, no_looks};
            REQUIRE(m.try_lock_for(10s));
            CHECK(m.unlock() == release_outcome::posted);
        }
        const auto gone = clk::now();
        REQUIRE(eventually([&] { return seen.untouched(); }));
        CHECK(clk::now() - gone < soon);
    }
}

TEST_CASE("a lease that ran out is not released blindly: unlock() asks, and says so") {
    connection_fixtures::over_each_of_ours fixture;
    const auto name = connection_fixtures::fresh_name();
    distlock::mutex m{fixture.connection, name, {.lease = 300ms, .renew = false}};
    m.lock();
    REQUIRE(eventually([&] { return !m.owns_lock(); }));
    CHECK(m.unlock() == release_outcome::expired);
}

}  // namespace posted_release_tests
