// Every dialect beside the real client it is for, in both directions.
#include <chrono>
#include <concepts>
#include <cstdint>
#include <poll.h>
#include <string>
#include <thread>
#include <tuple>
#include <unistd.h>

#include <distlock/distlock.hpp>
#include <distlock/hiredis.hpp>
#include <distlock/interop.hpp>

#include "interop/peer.hpp"
#include "interop/rows.hpp"
#include "support/catch.hpp"
#include "support/lab_figures.hpp"
#include "support/owner_process.hpp"
#include "support/waiting.hpp"

namespace exclusion_tests {

using namespace interop;
using distlock::release_outcome;

TEMPLATE_LIST_TEST_CASE(
    "distlock cannot lock while the other client owns the lock, and can soon after its release", "", rows) {
    const auto name = fresh_name();
    peer theirs = TestType::theirs().start();
    distlock::hiredis_connection redis{server().uri()};
    lock_of<TestType> m{redis, name, patient<TestType>()};
    REQUIRE(theirs.ask(acquire(name, 0s, 10s)) == "got 0");
    CHECK_FALSE(m.try_lock());
    CHECK_FALSE(m.try_lock_for(50ms));
    clk::time_point had{};
    std::jthread waiter([&] {
        m.lock();
        had = clk::now();
    });
    ::poll(nullptr, 0, 300);  // it waits by then, or the wait is shorter
    const auto released = clk::now();
    CHECK(theirs.ask("release") == "released");
    waiter.join();
    CHECK(had - released < soon);
    figure("we, after their release: %.1f ms", in_ms(had - released));
    m.unlock();
}

TEMPLATE_LIST_TEST_CASE(
    "the other client cannot lock while distlock owns the lock, and can soon after its release", "", rows) {
    const auto name = fresh_name();
    peer theirs = TestType::theirs().start();
    distlock::hiredis_connection redis{server().uri()};
    lock_of<TestType> m{redis, name, {.lease = 10s}};
    m.lock();
    CHECK(theirs.ask(acquire(name, 0s)) == "busy");
    theirs.say(acquire(name, 10s));
    ::poll(nullptr, 0, 300);
    const auto released = clk::now();
    m.unlock();
    CHECK(theirs.line() == "got 0");
    const auto took = clk::now() - released;
    CHECK(took < soon);
    figure("they, after our release: %.1f ms", in_ms(took));
    CHECK(theirs.ask("release") == "released");
    CHECK(m.try_lock());
}

TEMPLATE_LIST_TEST_CASE(
    "when the other client is killed, distlock owns the lock at the end of its TTL, and not before", "",
    rows) {
    const auto name = fresh_name();
    peer theirs = TestType::theirs().start();
    distlock::hiredis_connection redis{server().uri()};
    lock_of<TestType> m{redis, name};
    const auto asked = clk::now();
    REQUIRE(theirs.ask(acquire(name, 0s)) == "got 0");
    const auto had = clk::now();
    theirs.kill();
    m.lock();
    CHECK(clk::now() - asked >= lease);
    CHECK(clk::now() - had < lease + 500ms + soon);  // go-zero adds half a second
    m.unlock();
}

TEMPLATE_LIST_TEST_CASE(
    "when distlock is killed, the other client owns the lock at the end of its TTL, and not before", "",
    rows) {
    const auto name = fresh_name();
    peer theirs = TestType::theirs().start();
    // A Java program that locks for the first time takes seconds where others run.
    REQUIRE(theirs.ask(acquire(fresh_name(), 0s)) == "got 0");
    CHECK(theirs.ask("release") == "released");
    clk::time_point asked{};
    {
        owner_process ours([&] {
            distlock::hiredis_connection redis{server().uri()};
            lock_of<TestType> m{redis, name, unrenewed};
            m.lock();
            for (;;) ::pause();
            return true;
        });
        REQUIRE(eventually([&] {
            distlock::hiredis_connection redis{server().uri()};
            asked = clk::now();
            return distlock::inspect<typename TestType::dialect>(redis, name).holder.has_value();
        }));
    }
    REQUIRE(theirs.ask(acquire(name, 10s)) == "got 0");
    const auto took = clk::now() - asked;
    CHECK(took >= lease - 200ms);
    CHECK(took < lease + 3s);  // they may poll
    CHECK(theirs.ask("release") == "released");
}

TEMPLATE_LIST_TEST_CASE("neither client releases or renews the lock of the other", "", rows) {
    const auto name = fresh_name();
    peer theirs = TestType::theirs().start();
    distlock::hiredis_connection redis{server().uri()};
    using dialect = typename TestType::dialect;
    const auto holder = [&] { return distlock::inspect<dialect>(redis, name).holder->token; };
    {
        REQUIRE(theirs.ask(acquire(name, 0s)) == "got 0");
        lock_of<TestType> m{redis, name, {.lease = 20s}};
        m.lock();  // theirs ran out
        const auto ours = holder();
        CHECK(theirs.ask("renew") != "renewed");
        CHECK(theirs.ask("release") == "not mine");
        CHECK(holder() == ours);
        // A lock that was waited for has the whole lease from its first renewal on.
        CHECK(eventually([&] { return *distlock::inspect<dialect>(redis, name).remaining > 10s; }));
        CHECK(m.owns_lock());
        m.unlock();
    }
    {
        lock_of<TestType> m{redis, name, unrenewed};
        m.lock();
        REQUIRE(theirs.ask(acquire(name, 10s, 20s)) == "got 0");
        const auto other = holder();
        CHECK(m.unlock() != release_outcome::released);
        CHECK_FALSE(m.try_lock());
        CHECK(holder() == other);
        CHECK(theirs.ask("release") == "released");
    }
}

TEMPLATE_LIST_TEST_CASE("both clients have one key for each lock name", "", rows) {
    peer theirs = TestType::theirs().start();
    distlock::hiredis_connection redis{server().uri()};
    for (const std::string part : {"a{t}b", "{t}", "x->y", "{", "b}", "a}b{c", "lock:", "**", "\xc3\xa4"}) {
        const std::string name = fresh_name() + part;
        try {
            lock_of<TestType> m{redis, name};
            REQUIRE(theirs.ask(acquire(name, 0s)) == "got 0");
            CHECK_FALSE(m.try_lock());
            REQUIRE(theirs.ask("release") == "released");
            REQUIRE(m.try_lock_for(1s));
            CHECK(theirs.ask(acquire(name, 0s)) == "busy");
        } catch (const distlock::error& e) {
            // What cannot have a key beside it is refused where one is needed.
            CHECK(e.code() == distlock::errc::invalid_name);
            const bool needs_keys = std::same_as<typename TestType::dialect, distlock::getset>;
            CHECK(needs_keys);
        }
    }
}

// Redisson beyond the table.

using redissons = std::tuple<with_redisson_3, with_redisson_4>;

TEMPLATE_LIST_TEST_CASE(
    "Redisson sees the lock of distlock, and distlock knows a lock to be lost that Redisson takes by force",
    "", redissons) {
    const auto name = fresh_name();
    peer theirs = TestType::theirs().start();
    distlock::hiredis_connection redis{server().uri()};
    lock_of<TestType> m{redis, name, {.lease = 600ms}};
    m.lock();
    const auto lost = m.lost();
    REQUIRE(theirs.ask("look " + name) == "looking");
    CHECK(theirs.ask("locked") == "true");
    CHECK(theirs.ask("holds") == "0");
    CHECK(std::stol(theirs.ask("remaining")) > 0);
    CHECK(theirs.ask("force") == "true");
    CHECK(eventually([&] { return lost.stop_requested(); }));
    CHECK_FALSE(m.owns_lock());
    CHECK(m.unlock() == release_outcome::expired);
}

TEMPLATE_LIST_TEST_CASE("distlock sees how often Redisson holds a lock, and Redisson's watchdog keeps it", "",
                        redissons) {
    const auto name = fresh_name();
    peer theirs = TestType::theirs().start();
    distlock::hiredis_connection redis{server().uri()};
    REQUIRE(theirs.ask(acquire(name, 0s, 0s)) == "got 0");
    CHECK(theirs.ask("again") == "got 0");
    auto seen = distlock::inspect<distlock::redisson>(redis, name);
    REQUIRE(seen.holder);
    CHECK(seen.holder->holds == 2);
    CHECK(*seen.remaining > 20s);
    CHECK(theirs.ask("release") == "released");
    seen = distlock::inspect<distlock::redisson>(redis, name);
    CHECK(seen.holder->holds == 1);
    lock_of<TestType> m{redis, name};
    CHECK_FALSE(m.try_lock());
    CHECK(theirs.ask("release") == "released");
    CHECK(m.try_lock());
}

TEST_CASE("fencing tokens grow over the fenced locks of Redisson and of distlock") {
    for (const char* version : {"3", "4"}) {
        const auto name = fresh_name();
        peer theirs = java(version, "fenced").start();
        distlock::hiredis_connection redis{server().uri()};
        distlock::mutex<distlock::hiredis_connection, distlock::redisson> m{redis, name, {.fencing = true}};
        std::uint64_t last = 0;
        for (int i = 0; i < 10; ++i) {
            m.lock();
            CHECK(m.fencing_token() == last + 1);
            last = m.fencing_token();
            m.unlock();
            CHECK(theirs.ask(acquire(name, 1s)) == "got " + std::to_string(++last));
            CHECK(theirs.ask("release") == "released");
        }
    }
}

}  // namespace exclusion_tests
