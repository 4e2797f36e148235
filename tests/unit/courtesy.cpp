// When a lock that was given back may be asked for again, where others want it.
#include <chrono>
#include <functional>
#include <stop_token>
#include <system_error>
#include <utility>

#include <distlock/engine/courtesy.hpp>
#include <distlock/interop.hpp>
#include <distlock/mutex.hpp>
#include <distlock/testing/manual_clock.hpp>
#include <distlock/testing/scripted_connection.hpp>

#include "catch.hpp"

using namespace std::chrono_literals;
using distlock::command;
using distlock::reply;
using distlock::engine::courtesy;
using distlock::testing::manual_clock;
using distlock::testing::scripted_connection;
using others = courtesy::others;

namespace {

constexpr distlock::clock::time_point start{1h};

// Returns: for how long a lock is left alone that was held for `held`, when somebody else was seen to have it so long before.
std::chrono::nanoseconds left_alone(others what, std::chrono::nanoseconds held,
                                    std::chrono::seconds seen_before = 0s) {
    courtesy ours(what);
    ours.on_attempt(true, start - seen_before);
    ours.on_attempt(seen_before == 0s, start);
    if (!ours.due()) return 0ns;
    ours.on_release(start + held);
    return *ours.until() - (start + held);
}

// Moves a millisecond with each reading, so that who waits by it comes to an end.
struct ticking_clock : manual_clock {
    static time_point now() noexcept {
        advance(1ms);
        if (then && manual_clock::now() >= at) std::exchange(then, nullptr)();
        return manual_clock::now();
    }
    static inline std::function<void()> then;  // what is done
    static inline time_point at;               // when
};

// Knows when it was asked the last time.
struct timed_connection : scripted_connection {
    using scripted_connection::scripted_connection;
    reply execute(const command& cmd) {
        asked = manual_clock::now();
        return scripted_connection::execute(cmd);
    }
    distlock::clock::time_point asked{};
};

const reply ok = reply::status("OK");
const reply released = reply::integer(1);

using polled_mutex = distlock::mutex<timed_connection, distlock::plain, ticking_clock>;

struct polled_lock {
    // A single try and its look find it taken; then it is ours, twice.
    timed_connection server{reply::nil(), reply::integer(1000), ok, released, ok, released};
    polled_mutex m{server, "orders", {.lease = 10min, .renew = false}};

    // Effects: the lock is found taken, then taken, and had for `length`. Returns: when it was released.
    distlock::clock::time_point seen_taken_and_had_for(std::chrono::milliseconds length) {
        manual_clock::reset();
        REQUIRE_FALSE(m.try_lock());
        m.lock();
        manual_clock::advance(length);
        m.unlock();
        return manual_clock::now();
    }
};

}  // namespace

TEST_CASE("a lock that others poll for is left alone for a tenth of the time it was held, 50 ms at most") {
    CHECK(left_alone(others::poll, 1ms) == 100us);
    CHECK(left_alone(others::poll, 200ms) == 20ms);
    CHECK(left_alone(others::poll, 500ms) == 50ms);
    CHECK(left_alone(others::poll, 24h) == 50ms);
}

TEST_CASE("that others want it is remembered for ten seconds and ten acquisitions") {
    courtesy ours(others::poll);
    ours.on_attempt(true, start);
    for (int later = 1; later <= 100; ++later) {
        ours.on_attempt(false, start + later * 1min);
        CHECK(ours.due() == (later <= 10));
    }
    ours.on_attempt(true, start);
    for (int later = 1; later <= 100; ++later) {
        ours.on_attempt(false, start + later * 200ms);
        CHECK(ours.due() == (later <= 50));
    }
}

TEST_CASE("who has asked again owes no more courtesy until the next release") {
    courtesy ours(others::poll);
    CHECK_FALSE(ours.until());
    ours.on_attempt(true, start);
    ours.on_release(start + 1s);
    CHECK(ours.until() == start + 1s + 50ms);
    ours.on_attempt(false, start + 2s);
    CHECK_FALSE(ours.until());
}

TEST_CASE(
    "a lock that others are told of is left alone while they are on their way, if this acquisition waited "
    "for it") {
    CHECK(left_alone(others::are_told, 1ms) == 2ms);
    CHECK(left_alone(others::are_told, 1h) == 2ms);
    CHECK(left_alone(others::are_told, 1h, 1s) == 0ms);
}

TEST_CASE("a lock that others stand in line for is handed to them, and needs no courtesy") {
    CHECK(left_alone(others::stand_in_line, 1s) == 0ms);
}

TEST_CASE("a lock that nobody else was seen to have is asked for again at once") {
    courtesy ours(others::poll);
    CHECK_FALSE(ours.due());
    ours.on_attempt(false, start);
    CHECK_FALSE(ours.due());
}

// Four threads that locked again at once had a lock 7,357 times in ten seconds, and four real clients of another language,
// which asked 50 times a second each, 70 times; one of them once.
TEST_CASE("who had a lock that others poll for asks for it again only after they could have had it") {
    polled_lock one;
    const auto had_until = one.seen_taken_and_had_for(300ms);
    one.m.lock();
    CHECK(one.server.asked - had_until >= 30ms);
    CHECK(one.server.asked - had_until < 40ms);
    one.m.unlock();
}

TEST_CASE("a single try does not wait for others") {
    polled_lock one;
    const auto had_until = one.seen_taken_and_had_for(300ms);
    CHECK(one.m.try_lock());
    CHECK(one.server.asked - had_until < 5ms);
}

TEST_CASE("who has little time leaves a lock alone for half of it, and asks in the other") {
    polled_lock one;
    const auto had_until = one.seen_taken_and_had_for(300ms);
    CHECK(one.m.try_lock_for(20ms));
    CHECK(one.server.asked - had_until >= 10ms);
    CHECK(one.server.asked - had_until < 18ms);
}

TEST_CASE("who is told to stop while it leaves a lock alone has not asked, and the next one may") {
    polled_lock one;
    const auto had_until = one.seen_taken_and_had_for(1min);
    std::stop_source stop;
    ticking_clock::at = had_until + 20ms;
    ticking_clock::then = [&] { stop.request_stop(); };
    std::error_code ec;
    CHECK_FALSE(one.m.lock(stop.get_token(), ec));
    CHECK(ec == distlock::errc::cancelled);
    CHECK(one.server.asked <= had_until);
    CHECK(one.m.try_lock());
}

TEST_CASE("a Redisson lock that others wait for is left to those who are on their way") {
    manual_clock::reset();
    const auto mine = [](int waiters) {
        return reply::array({reply::integer(1), reply::string(""), reply::integer(waiters)});
    };
    timed_connection server{mine(1), released, mine(0), released, mine(0), released};
    distlock::mutex<timed_connection, distlock::redisson, ticking_clock> m{
        server, "orders", {.renew = false}};
    // Held for so long that a tenth of it would be longer.
    const auto left_for = [&] {
        manual_clock::advance(1s);
        m.unlock();
        const auto had_until = manual_clock::now();
        m.lock();
        return server.asked - had_until;
    };
    m.lock();
    const auto on_their_way = left_for();
    CHECK(on_their_way >= 2ms);
    CHECK(on_their_way < 10ms);
    CHECK(left_for() < on_their_way);
    m.unlock();
}
