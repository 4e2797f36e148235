// Every dialect beside the real client it is for, in both directions.
#include <algorithm>
#include <chrono>
#include <concepts>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include <distlock/distlock.hpp>
#include <distlock/hiredis.hpp>
#include <distlock/interop.hpp>
#include <distlock/testing.hpp>

#include "catch.hpp"
#include "interop/peer.hpp"
#include "lab/fenced_resource/owners.hpp"
#include "support/count.hpp"
#include "support/history.hpp"
#include "support/waiting.hpp"

using namespace std::chrono_literals;
using distlock::lock_options;
using distlock::release_outcome;
using distlock::testing::redis_server;
using clk = distlock::clock;
using interop::peer;

namespace {

redis_server& server() {
    static redis_server one({.tcp = true});
    return one;
}

std::string fresh_name() {
    static int count = 0;
    return "orders-" + std::to_string(++count);
}

// A client: what the program is called with, and what is told of it in figures.
struct client {
    std::vector<std::string> words;

    peer start() const {
        auto all = words;
        all.push_back(std::to_string(server().port()));
        return peer(all);
    }
};

client java(const std::string& version, const std::string& kind) {
    const auto folder = interop::built() + "/java-" + version;
    return {{"java", "-cp", folder + "/classes:" + folder + "/lib/*", "Peer", kind}};
}
client go(const std::string& kind) { return {{interop::built() + "/go/peer", kind}}; }
client python(const std::string& kind) {
    return {
        {interop::built() + "/python/bin/python", DISTLOCK_SOURCE_DIR "/tests/interop/python/peer.py", kind}};
}
client node(const std::string& kind) { return {{"node", interop::built() + "/node/peer.js", kind}}; }

// What is a row of the table: a dialect of ours and a client.
struct with_redigo {
    using dialect = distlock::redigo;
    static client theirs() { return go("redigo"); }
};
struct with_go_zero {
    using dialect = distlock::go_zero;
    static client theirs() { return go("gozero"); }
};
struct with_redsync {
    using dialect = distlock::plain;
    static client theirs() { return go("redsync"); }
};
struct handoff_with_redsync {
    using dialect = distlock::handoff;
    static client theirs() { return go("redsync"); }
};
struct with_redis_py {
    using dialect = distlock::plain;
    static client theirs() { return python("redispy"); }
};
struct with_python_redis_lock {
    using dialect = distlock::python_redis_lock;
    static client theirs() { return python("pythonredislock"); }
};
struct with_redlock {
    using dialect = distlock::plain;
    static client theirs() { return node("redlock"); }
};
struct with_redis_semaphore {
    using dialect = distlock::redis_semaphore;
    static client theirs() { return node("semaphore"); }
};
struct with_getset {
    using dialect = distlock::getset;
    static client theirs() { return java("4", "getset"); }
};
struct with_redisson_3 {
    using dialect = distlock::redisson;
    static client theirs() { return java("3", "redisson"); }
};
struct with_redisson_4 {
    using dialect = distlock::redisson;
    static client theirs() { return java("4", "redisson"); }
};
using rows = std::tuple<with_redigo, with_go_zero, with_redsync, handoff_with_redsync, with_redis_py,
                        with_python_redis_lock, with_redlock, with_redis_semaphore, with_getset,
                        with_redisson_3, with_redisson_4>;

template <class Row>
using lock_of = distlock::mutex<distlock::hiredis_connection, typename Row::dialect>;

// As long as a lock is kept without renewal: whole seconds, which are what some clients count in.
constexpr auto lease = 2s;
constexpr auto soon = 150ms;
constexpr lock_options unrenewed{.lease = lease, .renew = false};

// Who stands in line looks every second, unless told otherwise; theirs tell nobody.
template <class Row>
lock_options patient() {
    if (std::same_as<typename Row::dialect, distlock::handoff>) return {.recheck = 50ms};
    return {};
}

std::string acquire(const std::string& name, clk::duration wait, std::chrono::milliseconds ttl = lease) {
    return "acquire " + name + " " + std::to_string(ttl.count()) + " " +
           std::to_string(std::chrono::duration_cast<std::chrono::milliseconds>(wait).count());
}

double in_ms(clk::duration d) { return std::chrono::duration<double, std::milli>(d).count(); }

}  // namespace

TEMPLATE_LIST_TEST_CASE("while they have the lock we have not, and we have it soon after their release", "",
                        rows) {
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

TEMPLATE_LIST_TEST_CASE("while we have the lock they have not, and they have it soon after our release", "",
                        rows) {
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

TEMPLATE_LIST_TEST_CASE("when they are killed we have the lock at the end of its TTL, and not before", "",
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

TEMPLATE_LIST_TEST_CASE("when we are killed they have the lock at the end of its TTL, and not before", "",
                        rows) {
    const auto name = fresh_name();
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
    peer theirs = TestType::theirs().start();
    REQUIRE(theirs.ask(acquire(name, 10s)) == "got 0");
    const auto took = clk::now() - asked;
    CHECK(took >= lease - 200ms);
    CHECK(took < lease + 1500ms + soon);
    CHECK(theirs.ask("release") == "released");
}

TEMPLATE_LIST_TEST_CASE("neither frees nor renews what the other has", "", rows) {
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
        CHECK(*distlock::inspect<dialect>(redis, name).remaining > 10s);
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

TEMPLATE_LIST_TEST_CASE(
    "in a crowd of theirs and ours nobody has the lock beside another, and everybody has it", "", rows) {
    const auto name = fresh_name();
    const auto length = std::chrono::seconds(little_or_all(15, 60));
    constexpr int each = 4;
    history record;
    std::vector<int> turns(2 * each);
    std::vector<peer> theirs;
    for (int i = 0; i < each; ++i) theirs.push_back(TestType::theirs().start());
    const auto stamp = [] { return clk::time_point(std::chrono::steady_clock::now().time_since_epoch()); };
    for (auto& one : theirs) one.say("crowd " + name + " " + std::to_string(length.count()));
    {
        std::vector<std::jthread> ours;
        const auto end = clk::now() + length;
        for (int i = 0; i < each; ++i) {
            ours.emplace_back([&, i] {
                distlock::hiredis_connection redis{server().uri()};
                auto options = patient<TestType>();
                options.lease = 5s;
                lock_of<TestType> m{redis, name, options};
                while (clk::now() < end) {
                    m.lock();
                    const auto began = stamp();
                    ::poll(nullptr, 0, 1);
                    record.add({i, began, stamp()});
                    m.unlock();
                    ++turns[static_cast<std::size_t>(i)];
                }
            });
        }
    }
    for (int i = each; i < 2 * each; ++i) {
        auto& one = theirs[static_cast<std::size_t>(i - each)];
        for (auto said = one.line(); said != "done"; said = one.line()) {
            std::int64_t began = 0;
            std::int64_t ended = 0;
            REQUIRE(std::istringstream(said) >> began >> ended);
            record.add({i, clk::time_point(std::chrono::nanoseconds(began)),
                        clk::time_point(std::chrono::nanoseconds(ended))});
            ++turns[static_cast<std::size_t>(i)];
        }
    }
    CHECK(record.overlaps().empty());
    // Who stands in line hands it to who stands in line.
    const bool hand_over = std::same_as<typename TestType::dialect, distlock::handoff>;
    if (!hand_over) CHECK(*std::min_element(turns.begin(), turns.end()) > 0);
    const auto sum = [&](int from) {
        int all = 0;
        for (int i = from; i < from + each; ++i) all += turns[static_cast<std::size_t>(i)];
        return all;
    };
    figure("crowd of %d s: ours %d turns, theirs %d; the fewest of one %d", static_cast<int>(length.count()),
           sum(0), sum(each), *std::min_element(turns.begin(), turns.end()));
}

// Redisson beyond the table.

using redissons = std::tuple<with_redisson_3, with_redisson_4>;

TEMPLATE_LIST_TEST_CASE("Redisson sees our lock, and what it takes from us by force we know to be lost", "",
                        redissons) {
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

TEMPLATE_LIST_TEST_CASE("we see how often Redisson holds a lock, and its watchdog keeps it", "", redissons) {
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

TEST_CASE("fencing tokens grow over Redisson's fenced locks and ours") {
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
