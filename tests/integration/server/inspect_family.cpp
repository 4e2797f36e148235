// inspect() and force_release() that are not told which kind of lock it is.
#include <chrono>
#include <cstdint>
#include <optional>
#include <shared_mutex>
#include <string>
#include <system_error>
#include <thread>

#include <distlock/base/key.hpp>
#include <distlock/distlock.hpp>
#include <distlock/hiredis.hpp>
#include <distlock/testing.hpp>

#include "support/catch.hpp"
#include "support/fresh_name.hpp"
#include "support/waiting.hpp"

namespace inspect_family_tests {

using namespace std::chrono_literals;
using distlock::errc;
using distlock::force_release;
using distlock::hiredis_connection;
using distlock::inspect;
using distlock::lock_options;
using distlock::testing::redis_server;
using mutex = distlock::mutex<hiredis_connection>;
using shared_mutex = distlock::shared_mutex<hiredis_connection>;
using semaphore = distlock::counting_semaphore<hiredis_connection>;

namespace {

const redis_server& common() {
    static const redis_server server;
    return server;
}

const lock_options seen{.fencing = true, .owner_info = "who", .release = distlock::confirmed};

std::uint64_t waiters(hiredis_connection& redis, const std::string& name) {
    return inspect(redis, name).waiters.value_or(1000);
}

}  // namespace

TEST_CASE("a mutex is inspected as one, free, held and waited for") {
    hiredis_connection redis(common().uri()), other(common().uri());
    const auto name = fresh_name();
    auto report = inspect(redis, name);
    CHECK_FALSE(report.holder);
    CHECK_FALSE(report.shares);
    CHECK(report.waiters == 0U);
    mutex first(redis, name, seen), second(other, name, seen);
    first.lock();
    report = inspect(redis, name);
    REQUIRE(report.holder);
    CHECK(report.holder->label == "who");
    CHECK(report.fence == first.fencing_token());
    CHECK_FALSE(report.shares);
    std::jthread waiter([&] {
        second.lock();
        second.unlock();
    });
    CHECK(eventually([&] { return waiters(redis, name) == 1; }));
    CHECK(inspect(redis, name).queue.at(0).label == "who");
    CHECK(force_release(redis, name));
    waiter.join();
    CHECK_FALSE(force_release(redis, name));
    CHECK(first.unlock() != distlock::release_outcome::released);
}

TEST_CASE("a shared mutex tells who writes, or how many read, and readers that wait keep their places") {
    hiredis_connection redis(common().uri()), other(common().uri()), third(common().uri());
    const auto name = fresh_name();
    shared_mutex a(redis, name, seen), b(other, name, seen), c(third, name, seen);
    {
        const std::shared_lock reads(a), reads_too(b);
        const auto report = inspect(redis, name);
        CHECK_FALSE(report.holder);
        CHECK(report.shares == 2U);
        CHECK(report.remaining.value_or(0ms) > 0ms);
        CHECK(force_release(redis, name));
        CHECK_FALSE(inspect(redis, name).shares);
        CHECK(common().command({"EXISTS", name, distlock::key(name).sibling("readers")}) == "0");
    }
    a.lock();
    CHECK(inspect(redis, name).holder->label == "who");
    std::jthread reader([&] { const std::shared_lock reads(b); });
    CHECK(eventually([&] { return waiters(redis, name) == 1; }));
    CHECK(inspect(redis, name).queue.at(0).reads);
    std::jthread writer([&] {
        c.lock();
        c.unlock();
    });
    CHECK(eventually([&] { return waiters(redis, name) == 2; }));
    CHECK(force_release(redis, name));
    reader.join();
    writer.join();
    CHECK(a.unlock() != distlock::release_outcome::released);
    CHECK(eventually([&] { return common().command({"EXISTS", name}) == "0"; }));
}

TEST_CASE("a semaphore tells how many have permits, and all are taken away") {
    hiredis_connection redis(common().uri()), other(common().uri());
    const auto name = fresh_name();
    semaphore pool(redis, name, 3, seen), same(other, name, 3, seen);
    distlock::permit one = pool.acquire(), two = pool.acquire(2);
    auto report = inspect(redis, name);
    CHECK_FALSE(report.holder);
    CHECK(report.shares == 2U);
    CHECK(report.remaining.value_or(0ms) > 0ms);
    std::jthread waiter([&] { const distlock::permit all = same.acquire(3); });
    CHECK(eventually([&] { return waiters(redis, name) == 1; }));
    CHECK(force_release(redis, name));
    waiter.join();
    CHECK(eventually([&] { return inspect(redis, name).shares == 0U; }));
    CHECK_FALSE(force_release(redis, name));
    one.release();
    two.release();
    CHECK(pool.acquire(3).n() == 3);
}

TEST_CASE("what is no lock is neither inspected nor taken, and a name without keys beside it is a mutex's") {
    hiredis_connection redis(common().uri());
    const auto name = fresh_name();
    common().command({"LPUSH", name, "x"});
    std::error_code ec;
    inspect(redis, name, ec);
    CHECK(ec == errc::wrong_type);
    CHECK_FALSE(force_release(redis, name, ec));
    CHECK(ec == errc::wrong_type);
    CHECK(common().command({"LRANGE", name, "0", "-1"}) == "x");
    inspect(redis, "", ec);
    CHECK(ec == errc::invalid_name);

    const std::string alone = name + "}";
    mutex plain(redis, alone, {.release = distlock::confirmed});
    plain.lock();
    CHECK(inspect(redis, alone).holder);
    CHECK(force_release(redis, alone));
    CHECK_FALSE(inspect(redis, alone).holder);
}

}  // namespace inspect_family_tests
