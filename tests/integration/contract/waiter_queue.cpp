// Threads that share one mutex object, over a real server: they pass the lock on among themselves,
// first come, first served.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <set>
#include <stop_token>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include <distlock/inspect.hpp>
#include <distlock/mutex.hpp>
#include <distlock/scoped_lock.hpp>
#include <distlock/testing.hpp>

#include "support/catch.hpp"
#include "support/connection_fixtures.hpp"
#include "support/history.hpp"
#include "support/lock_on_server.hpp"
#include "support/round_trip.hpp"
#include "support/sleepers.hpp"
#include "support/timing_tolerance.hpp"
#include "support/waiting.hpp"

namespace waiter_queue_tests {

using namespace std::chrono_literals;
using distlock::errc;
using distlock::lock_options;
using distlock::release_outcome;
using clk = distlock::clock;

namespace {

// Threads of one process may go on for ever.
constexpr lock_options among_us{.recheck = 1h, .local_budget = 1h};

bool until(clk::time_point when) {
    return eventually([&] { return clk::now() >= when; });
}

/// What each acquisition was, in order.
struct book {
    template <class Mutex>
    void write(int who, const lock_on_server& seen, const Mutex& m) {
        const auto hold = grants.granted("lock", clk::now(), m.valid_until(), m.fencing_token());
        {
            const std::lock_guard guard(lock);
            order.push_back(who);
            tokens.insert(seen.holder());
        }
        grants.released(hold, clk::now());
    }
    std::string wrong() const { return distlock::testing::check_history(grants.events()).text(); }

    distlock::testing::recorder grants;
    std::mutex lock;
    std::vector<int> order;
    std::set<std::string> tokens;
};

}  // namespace

TEST_CASE("sixteen threads are served in the order in which they came, by one acquisition from the server") {
    connection_fixtures::over_each fixture;
    const auto name = connection_fixtures::fresh_name();
    const lock_on_server seen(fixture.server(), name);
    auto options = among_us;
    options.fencing = true;
    distlock::mutex m{fixture.connection, name, options};
    m.lock();
    book all;
    std::uint64_t last = 0;  // of whoever has the lock
    all.write(-1, seen, m);
    std::vector<std::unique_ptr<sleeper>> threads;
    for (int i = 0; i < 16; ++i) {
        threads.push_back(std::make_unique<sleeper>([&, i] {
            m.lock();
            all.write(i, seen, m);
            last = std::max(last, m.fencing_token());
            m.unlock();
        }));
        REQUIRE(threads.back()->sleeps());
    }
    until(clk::now() + 2ms);  // a fence of a thread needs the time between two of the server's
    CHECK(m.unlock() == release_outcome::released);
    for (auto& one : threads) one->join();
    REQUIRE(all.order.size() == 17);
    for (int i = 0; i < 17; ++i) CHECK(all.order[static_cast<std::size_t>(i)] == i - 1);
    CHECK(all.tokens.size() == 1);
    CHECK(fenced(all.grants.events()) == 17);
    // The server hears of the tokens that threads gave each other: else the next one may be smaller,
    // should its clock go back.
    CHECK(eventually([&] { return distlock::inspect(fixture.connection, name).fence >= last; }));
    CHECK(all.wrong() == "");
    CHECK(eventually([&] { return seen.untouched(); }));
}

TEST_CASE("fencing tokens grow strictly over passes among threads and hand-overs to others") {
    connection_fixtures::over_each fixture;
    const auto name = connection_fixtures::fresh_name();
    const lock_options options{.fencing = true, .recheck = 5ms, .local_budget = 1ms};
    distlock::mutex one{fixture.connection, name, options};
    distlock::mutex two{fixture.connection, name, options};
    const auto told = take_turns(8, 40, [&](int who, auto inside) {
        const distlock::scoped_lock guard{who % 2 == 0 ? one : two};
        inside(guard);
    });
    CHECK(told.fenced == 320);
    CHECK(told.text() == "");
}

TEST_CASE("without a budget no thread passes the lock on to another") {
    connection_fixtures::over_each fixture;
    const auto name = connection_fixtures::fresh_name();
    const lock_on_server seen(fixture.server(), name);
    distlock::mutex m{fixture.connection, name, {.recheck = 5ms, .local_budget = 0ms}};
    book all;
    m.lock();
    std::vector<std::unique_ptr<sleeper>> threads;
    for (int i = 0; i < 8; ++i) {
        threads.push_back(std::make_unique<sleeper>([&, i] {
            m.lock();
            all.write(i, seen, m);
            m.unlock();
        }));
        REQUIRE(threads.back()->sleeps());
    }
    m.unlock();
    for (auto& one : threads) one->join();
    CHECK(all.tokens.size() == 8);
    CHECK(all.wrong() == "");
}

TEST_CASE("another process gets its turn within twice the budget") {
    std::atomic<int> turns{0};
    connection_fixtures::over_each fixture;
    const auto name = connection_fixtures::fresh_name();
    constexpr auto budget = 50ms;
    distlock::mutex crowded{fixture.connection, name, {.recheck = 5ms, .local_budget = budget}};
    auto elsewhere = fixture.another();
    distlock::mutex alone{elsewhere.connection, name, {.recheck = 5ms}};
    std::vector<std::jthread> threads;
    for (int i = 0; i < 4; ++i) {
        threads.emplace_back([&](const std::stop_token& over) {
            while (!over.stop_requested()) {
                const distlock::scoped_lock guard{crowded};
                ++turns;
            }
        });
    }
    REQUIRE(eventually([&] { return turns > 100; }));
    const bool in_queue = fixture.subscribes();
    for (int i = 0; i < 5; ++i) {
        const auto took = time_of([&] { alone.lock(); });
        if (in_queue) CHECK(took < 2 * budget + round_trip_tolerance);
        alone.unlock();
    }
    for (auto& one : threads) one.request_stop();
}

TEST_CASE("a pass does not stop the token of the loss, and the next thread has one of its own") {
    connection_fixtures::over_each fixture;
    const auto name = connection_fixtures::fresh_name();
    const lock_on_server seen(fixture.server(), name);
    distlock::mutex m{fixture.connection, name, {.lease = 600ms, .local_budget = 1h}};
    m.lock();
    const auto holder = seen.holder();
    const std::stop_token first = m.lost();
    CHECK_FALSE(first.stop_requested());
    std::stop_token second;
    const bool asks = GENERATE(true, false);
    sleeper next([&] {
        m.lock();
        if (asks) second = m.lost();
    });
    REQUIRE(next.sleeps());
    m.unlock();
    next.join();
    REQUIRE(seen.holder() == holder);  // it was passed on
    CHECK_FALSE(first.stop_requested());
    CHECK_FALSE(second.stop_requested());
    seen.strangers_release();
    REQUIRE(seen.strangers("20000"));
    const auto taken = clk::now();
    CHECK(eventually([&] { return asks ? second.stop_requested() : !m.owns_lock(); }));
    CHECK(clk::now() - taken < 600ms + round_trip_tolerance);
    CHECK_FALSE(m.owns_lock());
    CHECK_FALSE(first.stop_requested());
    m.unlock();
}

TEST_CASE("a guard whose lock was passed on does nothing to the next thread when it ends") {
    std::atomic<bool> had{false};
    std::atomic<bool> enough{false};
    connection_fixtures::over_each fixture;
    const auto name = connection_fixtures::fresh_name();
    distlock::mutex m{fixture.connection, name, among_us};
    std::unique_ptr<sleeper> next;
    {
        distlock::scoped_lock guard{m};
        next = std::make_unique<sleeper>([&] {
            const distlock::scoped_lock mine{m};
            had = mine.owns_lock();
            eventually([&] { return enough.load(); });
            had = mine.owns_lock();
        });
        REQUIRE(next->sleeps());
        CHECK(m.unlock() == release_outcome::released);
        REQUIRE(eventually([&] { return had.load(); }));
        CHECK_FALSE(guard.owns_lock());
    }
    CHECK(m.owns_lock());
    enough = true;
    next->join();
    CHECK(had);
    CHECK(connection_fixtures::gone(fixture, {name}));
}

TEST_CASE("a thread leaves the queue on time, by its time-out or by a stop request") {
    std::atomic<bool> served{false};
    connection_fixtures::over_each fixture;
    const auto name = connection_fixtures::fresh_name();
    distlock::mutex m{fixture.connection, name, among_us};
    m.lock();
    std::stop_source stop;
    std::error_code why;
    sleeper first([&] { static_cast<void>(m.lock(stop.get_token(), why)); });
    REQUIRE(first.sleeps());
    sleeper last([&] {
        m.lock();
        served = true;
        m.unlock();
    });
    REQUIRE(last.sleeps());
    bool got = true;
    CHECK(time_of([&] { std::jthread([&] { got = m.try_lock_for(100ms); }).join(); }) <
          100ms + round_trip_tolerance);
    CHECK_FALSE(got);
    CHECK(time_of([&] {
              stop.request_stop();
              first.join();
          }) < round_trip_tolerance);
    CHECK(why == errc::cancelled);
    CHECK_FALSE(served);
    m.unlock();
    last.join();
    CHECK(served);
    CHECK(connection_fixtures::gone(fixture, {name}));
}

TEST_CASE("a thread keeps its turn when another one gives up, and when it looks by itself") {
    connection_fixtures::over_each fixture;
    const auto name = connection_fixtures::fresh_name();
    distlock::mutex m{fixture.connection, name, among_us};
    m.lock();
    std::mutex lock;
    std::vector<int> order;
    std::vector<std::unique_ptr<sleeper>> threads;
    for (int i = 0; i < 4; ++i) {
        threads.push_back(std::make_unique<sleeper>([&, i] {
            if (!m.try_lock_for(1h)) return;
            {
                const std::lock_guard guard(lock);
                order.push_back(i);
            }
            m.unlock();
        }));
        REQUIRE(threads.back()->sleeps());
    }
    for (int i = 0; i < 3; ++i) {
        bool got = true;
        std::jthread([&] { got = m.try_lock_for(20ms); }).join();
        CHECK_FALSE(got);
    }
    until(clk::now() + 1100ms);  // longer than a thread sleeps at a time
    m.unlock();
    for (auto& one : threads) one->join();
    CHECK(order == std::vector{0, 1, 2, 3});
    CHECK(connection_fixtures::gone(fixture, {name}));
}

TEST_CASE("the longest hold counts anew for each thread") {
    connection_fixtures::over_each fixture;
    constexpr auto longest = 500ms;
    distlock::mutex m{
        fixture.connection, connection_fixtures::fresh_name(), {.max_hold = longest, .local_budget = 1h}};
    m.lock();
    const auto begun = clk::now();
    clk::time_point passed_by;
    sleeper next([&] {
        m.lock();
        passed_by = clk::now();
    });
    REQUIRE(next.sleeps());
    until(begun + 300ms);
    const auto passed_from = clk::now();
    m.unlock();
    next.join();
    until(begun + longest + 20ms);
    CHECK(m.owns_lock());
    CHECK(eventually([&] { return !m.owns_lock(); }));
    CHECK(clk::now() >= passed_from + longest - 20ms);
    CHECK(clk::now() < passed_by + longest + round_trip_tolerance);
    m.unlock();
}

TEST_CASE("a lease is renewed through many passes") {
    std::atomic<int> passes{0};
    std::atomic<bool> other{false};
    std::atomic<bool> renewed{false};
    connection_fixtures::over_each fixture;
    const auto name = connection_fixtures::fresh_name();
    const lock_on_server seen(fixture.server(), name);
    const auto lease = 2s + 10 * round_trip();
    distlock::mutex m{fixture.connection, name, {.lease = lease, .recheck = 1h, .local_budget = 1h}};
    m.lock();
    const auto holder = seen.holder();
    const auto granted = m.valid_until();
    std::vector<std::unique_ptr<sleeper>> threads;
    for (int i = 0; i < 3; ++i) {
        threads.push_back(std::make_unique<sleeper>([&] {
            while (!renewed || passes <= 20) {
                m.lock();
                ++passes;
                if (m.valid_until() > granted + lease / 2) renewed = true;  // twice
                if (seen.holder() != holder) other = true;
                until(clk::now() + 5ms);  // the others are in the queue again
                m.unlock();
            }
        }));
        REQUIRE(threads.back()->sleeps());
    }
    m.unlock();
    for (auto& one : threads) one->join();
    CHECK(passes > 20);
    CHECK_FALSE(other);
    CHECK(connection_fixtures::gone(fixture, {name}));
}

TEST_CASE("when a lease is lost while threads queue, the next one asks the server") {
    connection_fixtures::over_each fixture;
    const auto name = connection_fixtures::fresh_name();
    const lock_on_server seen(fixture.server(), name);
    distlock::mutex m{fixture.connection, name, {.lease = 1200ms, .recheck = 50ms, .local_budget = 1h}};
    m.lock();
    const auto holder = seen.holder();
    sleeper next([&] { m.lock(); });
    REQUIRE(next.sleeps());
    const auto lost = clk::now();
    seen.strangers_release();  // nobody unlocks
    next.join();
    CHECK(clk::now() - lost < 1200ms / 3 + 50ms + round_trip_tolerance);  // the renewal found it
    CHECK(seen.holder() != holder);
    CHECK(seen.taken());
    CHECK(m.unlock() == release_outcome::expired);  // of the one who lost it
    CHECK(m.owns_lock());
    std::jthread([&] { m.unlock(); }).join();
    CHECK(connection_fixtures::gone(fixture, {name}));
}

}  // namespace waiter_queue_tests
