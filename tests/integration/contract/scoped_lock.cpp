// What distlock::scoped_lock promises, over every kind of connection and a real server.
#include <atomic>
#include <chrono>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include <distlock/recursive_mutex.hpp>
#include <distlock/scoped_lock.hpp>
#include <distlock/shared_mutex.hpp>
#include <distlock/try_lock_for.hpp>

#include "support/catch.hpp"
#include "support/connection_fixtures.hpp"
#include "support/history.hpp"
#include "support/round_trip.hpp"

namespace scoped_lock_tests {

using namespace std::chrono_literals;
using distlock::errc;
using distlock::error;
using clk = distlock::clock;

namespace {

template <class F>
std::error_code code_of(F f) {
    try {
        f();
    } catch (const error& e) {
        return e.code();
    }
    return {};
}

}  // namespace

TEST_CASE("a guard holds the lock as long as it lives") {
    connection_fixtures::over_each fixture;
    const auto how = GENERATE(distlock::posted, distlock::confirmed);
    const auto name = connection_fixtures::fresh_name();
    distlock::mutex m{fixture.connection, name, {.release = how}};
    {
        const distlock::scoped_lock guard{m};
        CHECK(guard.owns_lock());
        CHECK(guard.name() == name);
        CHECK(guard.valid_until() == m.valid_until());
        CHECK(guard.remaining() > 29s);
        CHECK(fixture.server().command({"EXISTS", name}) == "1");
    }
    CHECK(connection_fixtures::gone(fixture, {name}, how));
}

TEST_CASE("a guard that is moved from owns nothing, and the lock is released once") {
    connection_fixtures::over_each fixture;
    const auto how = GENERATE(distlock::posted, distlock::confirmed);
    const auto name = connection_fixtures::fresh_name();
    const auto other = connection_fixtures::fresh_name();
    distlock::mutex m{fixture.connection, name, {.release = how}};
    distlock::mutex n{fixture.connection, other, {.release = how}};
    {
        distlock::scoped_lock first{m};
        distlock::scoped_lock second{std::move(first)};
        CHECK_FALSE(first.owns_lock());  // NOLINT: what a moved-from guard says is the point
        CHECK(second.owns_lock());
        distlock::scoped_lock third{n};
        third = std::move(second);  // releases what it held before
        CHECK(connection_fixtures::gone(fixture, {other}, how));
        CHECK(third.owns_lock());
        CHECK(third.name() == name);
    }
    CHECK(connection_fixtures::gone(fixture, {name}, how));
}

TEST_CASE("a guard ends with the exception that ends its scope") {
    connection_fixtures::over_each fixture;
    const auto how = GENERATE(distlock::posted, distlock::confirmed);
    const auto name = connection_fixtures::fresh_name();
    distlock::mutex m{fixture.connection, name, {.release = how}};
    try {
        const distlock::scoped_lock guard{m};
        throw std::runtime_error("the work failed");
    } catch (const std::runtime_error& e) {
        CHECK(std::string(e.what()) == "the work failed");
    }
    CHECK(connection_fixtures::gone(fixture, {name}, how));
}

TEST_CASE("several locks are taken all or none") {
    connection_fixtures::over_each fixture;
    const auto how = GENERATE(distlock::posted, distlock::confirmed);
    const std::vector<std::string> names{connection_fixtures::fresh_name(), connection_fixtures::fresh_name(),
                                         connection_fixtures::fresh_name()};
    distlock::mutex a{fixture.connection, names[0], {.release = how}};
    distlock::mutex b{fixture.connection, names[1], {.release = how}};
    distlock::mutex c{fixture.connection, names[2], {.release = how}};
    const auto held = [&] { return connection_fixtures::count_of(fixture.server(), names); };
    {
        const distlock::scoped_lock guard{c, a, b};
        CHECK(guard.owns_lock());
        CHECK(held() == 3);
    }
    CHECK(connection_fixtures::gone(fixture, names, how));

    fixture.server().command({"HSET", names[2], "not", "a lock"});
    CHECK(code_of([&] { distlock::scoped_lock guard{a, b, c}; }) == errc::wrong_type);
    CHECK(connection_fixtures::gone(fixture, {names[0], names[1]}, how));
    CHECK(held() == 1);  // the hash
}

TEST_CASE("guards that name the same locks in another order do not wait for each other in a circle") {
    std::atomic<int> owned{0};
    connection_fixtures::over_each fixture;
    const auto one = connection_fixtures::fresh_name();
    const auto two = connection_fixtures::fresh_name();
    const auto told = take_turns(2, 20, [&](int who, auto inside) {
        distlock::mutex a{fixture.connection, one, {.recheck = 2ms}};
        distlock::mutex b{fixture.connection, two, {.recheck = 2ms}};
        const auto work = [&](auto&& guard) {
            inside(guard);
            if (guard.owns_lock()) ++owned;
        };
        if (who == 0) work(distlock::scoped_lock{a, b});
        if (who == 1) work(distlock::scoped_lock{b, a});
    });
    CHECK(owned == 40);
    CHECK(told.grants == 40);
    CHECK(told.contended > 0);
    CHECK(told.text() == "");
}

TEST_CASE("the same lock twice in one guard is errc::deadlock, and takes nothing") {
    connection_fixtures::over_each fixture;
    const auto name = connection_fixtures::fresh_name();
    distlock::mutex m{fixture.connection, name};
    distlock::mutex same{fixture.connection, name};
    CHECK(code_of([&] { distlock::scoped_lock guard{m, same}; }) == errc::deadlock);
    CHECK(code_of([&] { distlock::scoped_lock guard{m, m}; }) == std::errc::resource_deadlock_would_occur);
    distlock::mutex next{fixture.connection, name + ".next"};
    CHECK_THROWS_WITH(distlock::scoped_lock(m, next, next), contains_text("lock " + name + ".next"));
    CHECK(fixture.server().command({"EXISTS", name}) == "0");
}

TEST_CASE("a guard whose token is stopped throws errc::cancelled and holds nothing") {
    connection_fixtures::over_each fixture;
    const auto one = connection_fixtures::fresh_name();
    const auto two = connection_fixtures::fresh_name();
    distlock::mutex a{fixture.connection, one};
    distlock::mutex b{fixture.connection, two};
    distlock::mutex owner{fixture.connection, two};
    std::stop_source stop;
    {
        const distlock::scoped_lock guard{a, stop.get_token()};
        CHECK(guard.owns_lock());
    }
    owner.lock();
    std::jthread stopper([&] {
        while (fixture.server().command({"EXISTS", one}) == "0") std::this_thread::yield();
        stop.request_stop();  // the guard has the first lock and waits for the second
    });
    CHECK(code_of([&] { distlock::scoped_lock guard{a, b, stop.get_token()}; }) == errc::cancelled);
    // The stop may have come before the answer to the first lock: that is released in the background.
    CHECK(eventually([&] { return connection_fixtures::gone(fixture, {one}); }));
    CHECK(code_of([&] { distlock::scoped_lock guard{a, stop.get_token()}; }) == errc::cancelled);
    CHECK(owner.unlock() == fixture.said());
}

TEST_CASE("a guard whose lease ran out does not release the next owner's lock") {
    connection_fixtures::over_each fixture;
    const auto name = connection_fixtures::fresh_name();
    distlock::mutex m{fixture.connection, name, {.lease = 300ms, .renew = false}};
    {
        std::optional<distlock::scoped_lock<std::remove_cvref_t<decltype(m)>>> stale(std::in_place, m);
        const distlock::scoped_lock next{m};  // the same object, the same thread, after the lease has run out
        CHECK_FALSE(stale->owns_lock());
        CHECK(next.owns_lock());
        const auto token = fixture.server().command({"GET", name});
        stale.reset();
        CHECK(fixture.server().command({"GET", name}) == token);
        CHECK(next.owns_lock());
    }
    CHECK(connection_fixtures::gone(fixture, {name}));
}

TEST_CASE("a guard adopts what its thread has locked, and ends it on any thread") {
    connection_fixtures::over_each fixture;
    const auto how = GENERATE(distlock::posted, distlock::confirmed);
    const std::vector<std::string> names{connection_fixtures::fresh_name(), connection_fixtures::fresh_name(),
                                         connection_fixtures::fresh_name()};
    distlock::mutex a{fixture.connection, names[0], {.fencing = true, .release = how}};
    distlock::recursive_mutex b{fixture.connection, names[1], {.release = how}};
    distlock::shared_mutex c{fixture.connection, names[2], {.release = how}};
    REQUIRE(distlock::try_lock_for(10s, a, b, c));
    {
        const distlock::scoped_lock guard{std::adopt_lock, a, b, c};
        CHECK(guard.owns_lock());
        CHECK_FALSE(guard.lost().stop_requested());
        CHECK(connection_fixtures::count_of(fixture.server(), names) == 3);
    }
    CHECK(connection_fixtures::gone(fixture, names, how));

    REQUIRE(a.try_lock());
    {
        distlock::scoped_lock guard{std::adopt_lock, a};
        static_assert(std::is_same_v<decltype(guard), distlock::scoped_lock<decltype(a)>>);
        CHECK(guard.fencing_token() == a.fencing_token());
        CHECK(guard.fencing_token() != 0);
        CHECK(guard.valid_until() == a.valid_until());
        std::jthread([last = std::move(guard)] {}).join();
    }
    CHECK(connection_fixtures::gone(fixture, {names[0]}, how));
    a.lock();  // and the thread is told nothing of what another one has ended
    CHECK(a.owns_lock());
    CHECK(a.unlock() == fixture.said(how));
}

TEST_CASE("a guard that adopts one hold of several ends that one") {
    connection_fixtures::over_unix_socket fixture;
    const auto name = connection_fixtures::fresh_name();
    distlock::recursive_mutex m{fixture.connection, name};
    m.lock();
    m.lock();
    { const distlock::scoped_lock guard{std::adopt_lock, m}; }
    CHECK(m.hold_count() == 1);
    CHECK(m.owns_lock());
    m.unlock();
    CHECK(connection_fixtures::gone(fixture, {name}));
}

TEST_CASE("a guard that adopts what was lost holds nothing, and ends nobody else's lock") {
    connection_fixtures::over_each fixture;
    const auto name = connection_fixtures::fresh_name();
    distlock::mutex m{fixture.connection, name, {.lease = 300ms, .renew = false}};
    m.lock();
    std::jthread([&] { m.lock(); }).join();  // after the lease has run out
    const auto token = fixture.server().command({"GET", name});
    {
        const distlock::scoped_lock late{std::adopt_lock, m};
        CHECK_FALSE(late.owns_lock());
        CHECK(late.lost().stop_requested());
    }
    CHECK(fixture.server().command({"GET", name}) == token);
    m.unlock();
    CHECK(eventually([&] { return connection_fixtures::gone(fixture, {name}); }));
}

TEST_CASE("a guard does not adopt what another guard has, nor what nobody has") {
    connection_fixtures::over_unix_socket fixture;
    const auto name = connection_fixtures::fresh_name();
    distlock::mutex m{fixture.connection, name};
    CHECK_FALSE(distlock::scoped_lock(std::adopt_lock, m).owns_lock());
    m.lock();
    {
        const distlock::scoped_lock adopts{std::adopt_lock, m};
        CHECK_FALSE(distlock::scoped_lock(std::adopt_lock, m).owns_lock());
        CHECK(adopts.owns_lock());
    }
    const distlock::scoped_lock first{m};
    CHECK_FALSE(distlock::scoped_lock(std::adopt_lock, m).owns_lock());
    CHECK(first.owns_lock());
    CHECK(fixture.server().command({"EXISTS", name}) == "1");
}

TEST_CASE("a guard can be moved and not copied, and neither moving nor ending it throws") {
    using guard = distlock::scoped_lock<distlock::mutex<distlock::hiredis_connection>>;
    STATIC_REQUIRE(std::is_nothrow_move_constructible_v<guard>);
    STATIC_REQUIRE(std::is_nothrow_move_assignable_v<guard>);
    STATIC_REQUIRE(std::is_nothrow_destructible_v<guard>);
    STATIC_REQUIRE_FALSE(std::is_copy_constructible_v<guard>);
    STATIC_REQUIRE_FALSE(std::is_copy_assignable_v<guard>);
}

TEST_CASE("guards that end when the server is gone end quietly") {
    const auto how = GENERATE(distlock::posted, distlock::confirmed);
    distlock::testing::redis_server server;
    distlock::hiredis_connection redis{server.uri()};
    distlock::mutex a{redis, "a", {.release = how}};
    distlock::mutex b{redis, "b", {.release = how}};
    {
        const distlock::scoped_lock ours{a};
        const std::lock_guard standard{b};
        server.stop();
    }
    CHECK_FALSE(a.owns_lock());
    CHECK_FALSE(b.owns_lock());
    CHECK(a.residual() > 0s);
    CHECK(b.residual() > 0s);
}

TEST_CASE("one lock behind two connections to the same server is the same lock") {
    distlock::hiredis_connection one{uri_of(connection_fixtures::unix_server())};
    distlock::hiredis_connection two{uri_of(connection_fixtures::unix_server())};
    const auto name = connection_fixtures::fresh_name();
    distlock::mutex a{one, name};
    distlock::mutex b{two, name};
    CHECK(code_of([&] { distlock::scoped_lock guard{a, b}; }) == errc::deadlock);
}

TEST_CASE("one name on two servers is two locks, which every guard takes in one order") {
    distlock::hiredis_connection one{uri_of(connection_fixtures::unix_server())};
    distlock::hiredis_connection two{uri_of(connection_fixtures::tcp_server())};
    const auto name = connection_fixtures::fresh_name();
    std::atomic<int> owned{0};
    const auto told = take_turns(2, 20, [&](int who, auto inside) {
        distlock::mutex a{one, name, {.recheck = 2ms}};
        distlock::mutex b{two, name, {.recheck = 2ms}};
        const auto work = [&](auto&& guard) {
            inside(guard);
            if (guard.owns_lock()) ++owned;
        };
        if (who == 0) work(distlock::scoped_lock{a, b});
        if (who == 1) work(distlock::scoped_lock{b, a});
    });
    CHECK(owned == 40);
    CHECK(told.grants == 40);
    CHECK(told.contended > 0);
    CHECK(told.text() == "");
}

}  // namespace scoped_lock_tests
