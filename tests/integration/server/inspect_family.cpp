// inspect() and force_release() that are not told which kind of lock it is.
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <shared_mutex>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <vector>

#include <distlock/base/key.hpp>
#include <distlock/distlock.hpp>
#include <distlock/hiredis.hpp>
#include <distlock/testing.hpp>
#include <distlock/wire/permits.hpp>
#include <distlock/wire/shared_handoff.hpp>

#include "support/catch.hpp"
#include "support/fresh_name.hpp"
#include "support/hiredis_test.hpp"
#include "support/lease_observers.hpp"
#include "support/timing_tolerance.hpp"
#include "support/waiting.hpp"

namespace inspect_family_tests {

using namespace std::chrono_literals;
using distlock::errc;
using distlock::force_release;
using distlock::hiredis_connection;
using distlock::inspect;
using distlock::lock_options;
using distlock::testing::redis_server;
using hiredis_test::common;
using mutex = distlock::mutex<hiredis_connection>;
using shared_mutex = distlock::shared_mutex<hiredis_connection>;
using semaphore = distlock::counting_semaphore<hiredis_connection>;

namespace {

const lock_options described{.fencing = true, .owner_info = "who", .release = distlock::confirmed};

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
    mutex first(redis, name, described), second(other, name, described);
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
    shared_mutex a(redis, name, described), b(other, name, described), c(third, name, described);
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

// The mark was longer than the replies that connections take: owners were told "expired", and
// their sockets ended.
TEST_CASE("an owner of one of very many permits that are taken away by force is told so") {
    hiredis_connection redis(common().uri());
    const auto name = fresh_name();
    const auto seen = std::make_shared<recording_observer>();
    semaphore pool(redis, name, 10'000, {.lease = brief_lease}, seen);
    const distlock::permit mine = pool.acquire();
    REQUIRE(redis
                .execute({"EVAL",
                          "for i = 1, 3000 do redis.call('zadd', KEYS[1], 4000000000000 + i, "
                          "string.format('%032d', i)) end "
                          "return 1",
                          "1", name})
                .is_integer(1));
    CHECK(force_release(redis, name));
    CHECK(seen->hears({"forced: " + name}));
}

TEST_CASE("a semaphore tells how many have permits, and all are taken away") {
    hiredis_connection redis(common().uri()), other(common().uri());
    const auto name = fresh_name();
    semaphore pool(redis, name, 3, described), same(other, name, 3, described);
    distlock::permit one = pool.acquire(), two = pool.acquire(2);
    auto report = inspect(redis, name);
    CHECK_FALSE(report.holder);
    CHECK(report.shares == 3U);
    CHECK(report.limit == 3U);
    CHECK(report.remaining.value_or(0ms) > 0ms);
    std::jthread waiter([&] { const distlock::permit all = same.acquire(3); });
    CHECK(eventually([&] { return waiters(redis, name) == 1; }));
    report = inspect(redis, name);
    REQUIRE(report.queue.size() == 1);
    CHECK(report.queue[0].permits == 3);
    CHECK(report.queue[0].lease == 30s);
    CHECK_FALSE(report.queue[0].channel.empty());
    CHECK(force_release(redis, name));
    waiter.join();
    CHECK(eventually([&] { return inspect(redis, name).shares == 0U; }));
    CHECK_FALSE(force_release(redis, name));
    one.release();
    two.release();
    CHECK(pool.acquire(3).n() == 3);
}

TEST_CASE("readers and permits that are past their end are not counted, whatever they weigh") {
    hiredis_connection redis(common().uri()), other(common().uri());
    const auto name = fresh_name();
    const lock_options once{.renew = false};
    shared_mutex a(redis, name, once), b(other, name, once);
    const std::shared_lock reads(a), reads_too(b);
    const auto readers = distlock::key(name).sibling("readers");
    const auto first = [&](const std::string& set) { return common().command({"ZRANGE", set, "0", "0"}); };
    REQUIRE(inspect(redis, name).shares == 2U);
    common().command({"ZADD", readers, "1000", first(readers)});
    CHECK(inspect(redis, name).shares == 1U);

    const auto pool_name = fresh_name();
    semaphore pool(redis, pool_name, 5, once);
    const auto two = pool.acquire(2);
    const std::string token = first(pool_name);
    const auto one = pool.acquire();
    REQUIRE(inspect(redis, pool_name).shares == 3U);
    common().command({"ZADD", pool_name, "1000", token});
    CHECK(inspect(redis, pool_name).shares == 1U);
}

// The server was said to be no Redis. The next that asks for a permit writes the limit anew.
TEST_CASE("a semaphore whose limit is no number is told without one") {
    hiredis_connection redis(common().uri());
    const auto name = fresh_name();
    semaphore pool(redis, name, 5, lock_options{.renew = false});
    const auto two = pool.acquire(2);
    REQUIRE(inspect(redis, name).limit == 5U);
    const auto limit = distlock::key(name).sibling("limit");
    common().command({"HSET", limit, "limit", "five"});
    const auto report = inspect(redis, name);
    CHECK_FALSE(report.limit);
    CHECK(report.shares == 2U);
    const auto one = pool.acquire();
    CHECK(inspect(redis, name).limit == 5U);
    CHECK(inspect(redis, name).shares == 3U);
}

TEST_CASE(
    "an operator hands a lock to a reader that waits, also one that is told over a channel of its slot") {
    for (const auto kind : {distlock::channel_kind::ordinary, distlock::channel_kind::sharded}) {
        const auto name = fresh_name();
        hiredis_connection redis(common().uri());
        REQUIRE(common().command({"SET", name, "somebody", "PX", "60000"}) == "OK");
        const distlock::shared_handoff waits(name, {}, {}, kind);
        const auto mine = distlock::token::generate();
        REQUIRE(waits.read_enter(distlock::execute(redis, waits.enter(mine, distlock::enter_mode::join)))
                    .queued.ticket != 0);
        CHECK(force_release(redis, name));
        CHECK(common().command({"GET", name}).starts_with("distlock:readers"));
        CHECK(distlock::execute(redis, waits.release(mine)).is_integer(1));
    }
}

namespace {

/// A sorted set that is no semaphore, under a name where one is looked for.
struct foreign_set {
    foreign_set(std::string where, const std::vector<std::string>& members, bool ends)
        : name(std::move(where)) {
        std::vector<std::string_view> add{"ZADD", name};
        add.insert(add.end(), members.begin(), members.end());
        common().command(add);
        if (ends) common().command({"PEXPIRE", name, "600000"});
    }
    std::string seen() const { return common().command({"ZRANGE", name, "0", "-1", "WITHSCORES"}); }
    /// Effects: checks that inspect(), force_release() and try_acquire() refuse it.
    void check_refused(hiredis_connection& redis, semaphore& pool) const {
        std::error_code ec;
        CHECK_FALSE(inspect(redis, name, ec).shares);
        CHECK(ec == errc::wrong_type);
        CHECK_FALSE(force_release(redis, name, ec));
        CHECK(ec == errc::wrong_type);
        CHECK_FALSE(pool.try_acquire(ec));
        CHECK(ec == errc::wrong_type);
    }
    const std::string name;
};

}  // namespace

// Any sorted set was taken for a semaphore: an operator deleted a leaderboard by its name, and acquire()
// removed all of it that was in the past, and gave the rest a TTL.
TEST_CASE("a sorted set that is no semaphore is told from one, and left as it is") {
    const auto members = GENERATE(as<std::vector<std::string>>{},
                                  std::vector<std::string>{"100", "alice", "99999999999999", "bob"},
                                  std::vector<std::string>{"100", std::string(32, 'a')},
                                  std::vector<std::string>{"100", std::string(32, 'x')});
    const bool ends = members.size() == 2 && members[1][0] == 'x';
    INFO(members[1]);
    hiredis_connection redis(common().uri());
    const auto name = fresh_name();
    const foreign_set theirs(name, members, ends);
    const auto before = theirs.seen();

    semaphore pool(redis, name, 2, described);
    theirs.check_refused(redis, pool);
    CHECK_THROWS_WITH(pool.try_acquire(), contains_text("what it holds is no lock's"));
    CHECK_THROWS_AS(pool.resize(3), distlock::error);
    CHECK(theirs.seen() == before);
    CHECK((common().command({"PTTL", name}) == "-1") == !ends);
    CHECK(common().command({"EXISTS", distlock::key(name).sibling("limit")}) == "0");
}

// The limit, which the server knows for a while yet, made a semaphore's of any set: acquire() gave it a TTL,
// and force_release() deleted it.
TEST_CASE("a sorted set in the place of a semaphore that nobody uses any more is left as it is") {
    const bool owner_died = GENERATE(false, true);
    const bool ends = owner_died ? false : GENERATE(false, true);
    const auto members =
        GENERATE(as<std::vector<std::string>>{},
                 std::vector<std::string>{"99999999999999", "alice", "99999999999999", "bob"},
                 std::vector<std::string>{"99999999999999", std::string(32, 'x')},
                 std::vector<std::string>{"100", "alice"});
    INFO((owner_died ? "its owner died, " : "its permit was given back, ") << members[1]);
    hiredis_connection redis(common().uri());
    const auto name = fresh_name();
    semaphore pool(redis, name, 2, described);
    auto owned = pool.acquire();
    if (owner_died) {
        common().command({"DEL", name});  // as at the end of the lease
    } else {
        REQUIRE(owned.release() == distlock::release_outcome::released);
    }
    const foreign_set theirs(name, members, ends);
    const auto before = theirs.seen();

    theirs.check_refused(redis, pool);
    // A release that comes late.
    std::error_code ec;
    const distlock::permits ours(name, described, {}, distlock::channel_kind::ordinary, 2, 1);
    CHECK(
        distlock::execute(redis, ours.release(distlock::token::generate())).is(distlock::reply_kind::error));
    CHECK_FALSE(pool.try_acquire(ec));
    CHECK(ec == errc::wrong_type);
    CHECK_THROWS_AS(pool.resize(3), distlock::error);
    if (owner_died) owned.release();
    CHECK(theirs.seen() == before);
    CHECK((common().command({"PTTL", name}) == "-1") == !ends);
}

TEST_CASE(
    "a key that is no lock is neither inspected nor taken, and a name without keys beside it is a mutex's") {
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
