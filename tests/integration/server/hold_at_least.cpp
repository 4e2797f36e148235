// lock_options::hold_at_least over a real server: once in a period, in a fleet.
#include <array>
#include <atomic>
#include <chrono>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include <distlock/counting_semaphore.hpp>
#include <distlock/hiredis.hpp>
#include <distlock/mutex.hpp>
#include <distlock/recursive_mutex.hpp>
#include <distlock/scoped_lock.hpp>
#include <distlock/shared_mutex.hpp>
#include <distlock/testing.hpp>
#include <distlock/try_lock_for.hpp>

#include "support/answered.hpp"
#include "support/catch.hpp"
#include "support/lock_on_server.hpp"
#include "support/waiting.hpp"

namespace hold_at_least_tests {

using namespace std::chrono_literals;
using distlock::hiredis_connection;
using distlock::lock_options;
using distlock::release_outcome;
using distlock::testing::redis_server;
using clk = distlock::clock;
using locker = distlock::mutex<hiredis_connection>;

namespace {

// Nobody looks in time: who gets the lock was handed it.
constexpr lock_options for_2s{.lease = 60s, .hold_at_least = 2s, .recheck = 1h};

int ttl(const redis_server& server, const std::string& name) {
    return std::stoi(server.command({"PTTL", name}));
}

}  // namespace

TEST_CASE("the queue is handed a lock that was unlocked early when its time is over, and not before") {
    redis_server server;
    hiredis_connection one{server.uri()}, two{server.uri()};
    lock_on_server seen{server, "job"};
    locker first{one, "job", for_2s};
    locker second{two, "job", {.lease = 60s, .recheck = 1h}};
    const auto asked = clk::now();
    first.lock();
    std::optional<clk::time_point> entered;
    std::thread waiting([&] {
        second.lock();
        entered = clk::now();
    });
    REQUIRE(seen.gets(1));
    CHECK(first.unlock() == release_outcome::posted);
    CHECK(clk::now() - asked < 1900ms);
    SECTION("the mutex lives on") { CHECK_FALSE(first.try_lock()); }
    SECTION("the same object stands in the queue behind others") {
        bool after = false;
        std::thread again([&] {
            first.lock();
            after = entered.has_value();
            first.unlock();
        });
        REQUIRE(seen.gets(2));
        waiting.join();
        second.unlock();
        again.join();
        CHECK(after);
        waiting = std::thread([] {});
    }
    waiting.join();
    REQUIRE(entered);
    CHECK(*entered - asked >= 2s);
    CHECK(*entered - asked < 20s);
}

TEST_CASE("a fleet that tries again and again gets the lock once in a period") {
    redis_server server;
    constexpr auto period = 200ms;
    std::mutex writing;
    std::vector<std::array<clk::time_point, 2>> grants;  // between which the server granted it
    std::atomic<bool> over{false};
    std::vector<std::thread> fleet;
    for (int k = 0; k < 4; ++k) {
        fleet.emplace_back([&] {
            hiredis_connection redis{server.uri()};
            locker job{redis, "job", {.lease = 1s, .hold_at_least = period}};
            while (!over) {
                const auto sent = clk::now();
                std::error_code ec;  // a try that is not answered is none
                if (job.try_lock(ec)) {
                    const std::lock_guard guard(writing);
                    grants.push_back({sent, clk::now()});
                    job.unlock();
                }
            }
        });
    }
    CHECK(eventually([&] {
        const std::lock_guard guard(writing);
        return grants.size() >= 8;
    }));
    over = true;
    for (auto& one : fleet) one.join();
    for (std::size_t k = 1; k < grants.size(); ++k) CHECK(grants[k][1] - grants[k - 1][0] >= period);
}

// A process that ended right after its job kept the fleet out until its lease had ended.
TEST_CASE("the key of a lock that was unlocked early ends with its time, and so does what says whose it is") {
    redis_server server;
    hiredis_connection redis{server.uri()};
    const auto lease = GENERATE(2s, 200s);
    locker job{redis, "job", {.lease = lease, .hold_at_least = 100s, .owner_info = "us"}};
    job.lock();
    CHECK(job.unlock() == release_outcome::posted);
    for (const char* const key : {"job", "{job}:distlock:owner"})
        CHECK(eventually([&] {
            const int left = ttl(server, key);
            return left > 90'000 && left <= 101'000;
        }));
}

TEST_CASE("a process that ends early leaves the key until its time, also of a lock that was handed over") {
    redis_server server;
    const bool handed_over = GENERATE(false, true);
    hiredis_connection holding{server.uri()};
    locker before{holding, "job", {.recheck = 1h}};
    std::optional<std::thread> ending;
    {
        hiredis_connection redis{server.uri()};
        locker job{redis, "job", {.lease = 60s, .hold_at_least = 60s, .recheck = 1h}};
        if (handed_over) {
            before.lock();
            ending.emplace([&] {
                REQUIRE(lock_on_server(server, "job").gets(1));
                before.unlock();
            });
        }
        job.lock();
        if (ending) ending->join();
        CHECK(ttl(server, "job") > 50'000);  // also where it ends by a kill
        job.unlock();
    }
    CHECK(ttl(server, "job") > 50'000);
    CHECK_FALSE(before.try_lock());
}

// It kept all others out for the whole time, though nobody had had it.
TEST_CASE("a lock that was taken in vain, since others could not be had with it, is not kept") {
    redis_server server;
    hiredis_connection redis{server.uri()}, elsewhere{server.uri()};
    constexpr lock_options for_60s{.lease = 60s, .hold_at_least = 60s};
    locker first{redis, "a", for_60s}, last{redis, "b"}, taken{elsewhere, "b"};
    distlock::recursive_mutex again{redis, "a again", for_60s};
    distlock::shared_mutex writes{redis, "a shared", for_60s};
    distlock::counting_semaphore pool{redis, "a pool", 1, for_60s};
    distlock::permit slot{pool, std::defer_lock};
    taken.lock();
    SECTION("all of them for some time") {
        CHECK_FALSE(answered([&] { return distlock::try_lock_for(50ms, first, again, writes, slot, last); }));
    }
    SECTION("a guard of several") {
        std::stop_source stop;
        std::thread stops([&] {
            lock_on_server(server, "b").gets(1);
            stop.request_stop();
        });
        CHECK_THROWS(distlock::scoped_lock(first, again, writes, last, stop.get_token()));
        stops.join();
    }
    CHECK(again.hold_count() == 0);
    for (const char* const name : {"a", "a again", "a shared", "a pool"})
        CHECK(eventually([&] { return server.command({"EXISTS", name}) == "0"; }));
    CHECK(first.try_lock());
}

}  // namespace hold_at_least_tests
