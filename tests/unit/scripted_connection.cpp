// The scripted connection: replies in order, commands written down.
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include <distlock/mutex.hpp>
#include <distlock/testing/manual_clock.hpp>
#include <distlock/testing/scripted_connection.hpp>

#include "support/catch.hpp"

namespace scripted_connection_tests {

namespace {

using distlock::command;
using distlock::errc;
using distlock::reply;
using distlock::reply_kind;
using distlock::testing::found_taken;
using distlock::testing::granted;
using distlock::testing::manual_clock;
using distlock::testing::scripted_connection;
using distlock::testing::taken;
using namespace std::chrono_literals;

const command ping({"PING"});

}  // namespace

TEST_CASE("a scripted connection plays its replies in order") {
    scripted_connection c{reply::integer(1), reply::integer(2)};
    c.then(reply::integer(3));
    CHECK(c.left() == 3);
    for (int expected = 1; expected <= 3; ++expected) CHECK(c.execute(ping).is_integer(expected));
    CHECK(c.left() == 0);
}

TEST_CASE("a scripted connection without a reply left is a server that is gone") {
    scripted_connection c;
    const reply r = c.execute(ping);
    CHECK(r.is(reply_kind::not_sent));
    CHECK(r.cause() == errc::unreachable);
    CHECK(c.commands().size() == 1);
    c.then(reply::nil());
    CHECK(c.execute(ping).is(reply_kind::nil));
}

TEST_CASE("a scripted connection writes down every command, and outlives what it was made from") {
    scripted_connection c{reply::nil()};
    {
        const std::string key("a\0b", 3);
        command get({"GET", key}, key);
        get.until(distlock::clock::time_point(4s));
        c.execute(get);
    }
    c.execute(ping);
    const auto asked = c.commands();
    REQUIRE(asked.size() == 2);
    CHECK(asked[0].argv == std::vector<std::string>{"GET", std::string("a\0b", 3)});
    CHECK(asked[0].routing_key == std::string("a\0b", 3));
    CHECK(asked[0].deadline == distlock::clock::time_point(4s));
    CHECK(asked[1].argv == std::vector<std::string>{"PING"});
    CHECK(asked[1].deadline == distlock::clock::time_point::max());
}

TEST_CASE("an action runs during the command whose reply it stands before, once") {
    scripted_connection c{reply::integer(1)};
    std::string order;
    c.then([&] { order += 'a'; }, reply::integer(2));
    c.then(reply::integer(3));
    c.then([&] { order += 'b'; }, reply::integer(4));
    c.then([&] { order += 'c'; }, reply::integer(5));
    const std::vector<std::string> expected{"", "a", "a", "ab", "abc", "abc"};
    for (std::size_t i = 0; i < expected.size(); ++i) {
        INFO(i);
        c.execute(ping);
        CHECK(order == expected[i]);
    }
}

TEST_CASE("an action added after the script ran out belongs to the next reply") {
    scripted_connection c{reply::integer(1)};
    c.execute(ping);
    c.execute(ping);  // finds nothing
    int runs = 0;
    c.then([&] { ++runs; }, reply::integer(2));
    CHECK(c.execute(ping).is_integer(2));
    CHECK(runs == 1);
}

TEST_CASE("an action may use the connection, and a command is written down before it") {
    scripted_connection c;
    std::size_t seen = 0;
    c.then(
        [&] {
            seen = c.commands().size();
            c.then(reply::integer(2));
        },
        reply::integer(1));
    CHECK(c.execute(ping).is_integer(1));
    CHECK(seen == 1);
    CHECK(c.execute(ping).is_integer(2));
}

// What users write who test with a lock that somebody else has.
TEST_CASE("taken() says that somebody else has the lock, and for how long") {
    scripted_connection c{reply::nil(), taken(5s), reply::nil(), taken(-1ms)};
    distlock::mutex orders{c, "orders"};
    distlock::mutex prices{c, "prices"};
    std::error_code ec = errc::no_reply;
    CHECK_FALSE(orders.try_lock(ec));
    CHECK_FALSE(ec);
    CHECK_FALSE(prices.try_lock(ec));
    CHECK(ec == errc::holder_without_ttl);
    CHECK(c.left() == 0);
}

TEST_CASE("time can pass during a command") {
    manual_clock::reset();
    scripted_connection c;
    c.then([] { manual_clock::advance(3s); }, reply::nil());
    const auto before = manual_clock::now();
    c.execute(ping);
    CHECK(manual_clock::now() == before + 3s);
}

TEST_CASE("threads that use a scripted connection at once get each reply once") {
    scripted_connection c;
    constexpr int threads = 4;
    constexpr int each = 200;
    for (int i = 0; i < threads * each; ++i) c.then(reply::integer(1));
    {
        std::vector<std::jthread> running;
        for (int t = 0; t < threads; ++t) {
            running.emplace_back([&] {
                for (int i = 0; i < each; ++i) c.execute(ping);
            });
        }
    }
    CHECK(c.left() == 0);
    CHECK(c.commands().size() == std::size_t{threads} * each);
}

// The guide had them wrong, and a test that followed it waited for ever.
TEST_CASE("a lock with a fencing token or a label is scripted as the guide says") {
    manual_clock::reset();
    const bool fencing = GENERATE(true, false);
    distlock::lock_options options{.renew = false, .patience = 0ms};
    options.fencing = fencing;
    if (!fencing) options.owner_info = "worker 7";
    const std::uint64_t fence = fencing ? 77 : 0;
    scripted_connection redis{granted(fence), reply::integer(1), found_taken(5s)};
    distlock::mutex<scripted_connection, distlock::handoff, manual_clock> m{redis, "orders", options};
    CHECK(m.try_lock());
    CHECK(m.fencing_token() == fence);
    CHECK(m.unlock() == distlock::release_outcome::released);
    CHECK_FALSE(m.try_lock());
    CHECK(redis.left() == 0);
    redis.then(granted(fence, 30s));  // it looks first now
    CHECK(m.try_lock());
    CHECK(m.fencing_token() == fence);
}

}  // namespace scripted_connection_tests
