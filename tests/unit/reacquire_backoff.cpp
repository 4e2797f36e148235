// The pause that a previous owner makes before it takes a lock again that others want.
#include <chrono>
#include <functional>
#include <stop_token>
#include <system_error>
#include <utility>

#include <distlock/engine/reacquire_backoff.hpp>
#include <distlock/interop.hpp>
#include <distlock/mutex.hpp>
#include <distlock/testing/manual_clock.hpp>
#include <distlock/testing/scripted_connection.hpp>

#include "support/catch.hpp"
#include "support/ticking_clock.hpp"

namespace reacquire_backoff_tests {

using namespace std::chrono_literals;
using distlock::command;
using distlock::reply;
using distlock::engine::reacquire_backoff;
using distlock::testing::manual_clock;
using distlock::testing::scripted_connection;
using contenders = reacquire_backoff::contenders;

namespace {

constexpr distlock::clock::time_point start{1h};

// Returns: the pause after a lock was held for `held`, when somebody else was found to
// have it so long before.
std::chrono::nanoseconds pause_after(contenders how, std::chrono::nanoseconds held,
                                     std::chrono::seconds seen_before = 0s) {
    reacquire_backoff backoff(how);
    backoff.on_attempt(true, start - seen_before);
    backoff.on_attempt(seen_before == 0s, start);
    backoff.on_release(start + held);
    return backoff.until() ? *backoff.until() - (start + held) : 0ns;
}

// Does something when it comes to a time.
struct acting_clock : ticking_clock {
    static time_point now() noexcept {
        const auto read = ticking_clock::now();
        if (then && read >= at) std::exchange(then, nullptr)();
        return read;
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

using polled_mutex = distlock::mutex<timed_connection, distlock::plain, acting_clock>;

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

TEST_CASE("the pause is a tenth of the time that the lock was held where others poll, 50 ms at most") {
    CHECK(pause_after(contenders::poll, 1ms) == 100us);
    CHECK(pause_after(contenders::poll, 200ms) == 20ms);
    CHECK(pause_after(contenders::poll, 500ms) == 50ms);
    CHECK(pause_after(contenders::poll, 24h) == 50ms);
}

TEST_CASE("contention is remembered for ten seconds and ten acquisitions") {
    reacquire_backoff backoff(contenders::poll);
    unsigned unseen = 0;
    const auto needed_after = [&](distlock::clock::time_point sent) {
        backoff.on_attempt(false, sent);
        backoff.on_release(sent + 1s);
        return backoff.until().has_value();
    };
    backoff.on_attempt(true, start);
    for (int later = 1; later <= 100; ++later)
        CHECK(needed_after(start + later * 1min) == (later <= 10 || ++unseen % 4 == 0));
    backoff.on_attempt(true, start);
    for (int later = 1; later <= 100; ++later)
        CHECK(needed_after(start + later * 200ms) == (later <= 50 || ++unseen % 4 == 0));
}

TEST_CASE("an attempt is contended when it found somebody else to have the lock, and the next may not be") {
    reacquire_backoff backoff(contenders::queue);
    CHECK_FALSE(backoff.contended());
    backoff.on_attempt(true, start);
    CHECK(backoff.contended());
    backoff.on_release(start + 1s);
    CHECK(backoff.contended());
    backoff.on_attempt(false, start + 2s);
    CHECK_FALSE(backoff.contended());
}

TEST_CASE("after another attempt there is no pause until the next release") {
    reacquire_backoff backoff(contenders::poll);
    CHECK_FALSE(backoff.until());
    backoff.on_attempt(true, start);
    backoff.on_release(start + 1s);
    CHECK(backoff.until() == start + 1s + 50ms);
    backoff.on_attempt(false, start + 2s);
    CHECK_FALSE(backoff.until());
}

TEST_CASE(
    "the pause is a message's way where others are told of the release, if this acquisition was contended") {
    CHECK(pause_after(contenders::are_told, 1ms) == 2ms);
    CHECK(pause_after(contenders::are_told, 1h) == 2ms);
    CHECK(pause_after(contenders::are_told, 1h, 1s) == 0ms);
}

TEST_CASE("the lock is handed to others that queue, and there is no pause") {
    CHECK(pause_after(contenders::queue, 1s) == 0ms);
}

// One of three had the lock 240 times, and the others never: who polls is only seen once it had the lock.
TEST_CASE("while nobody is seen to poll there is a pause after each fourth release, and no other") {
    reacquire_backoff backoff(contenders::poll);
    for (int release = 1; release <= 40; ++release) {
        backoff.on_attempt(false, start);
        backoff.on_release(start + 1s);
        CHECK(backoff.until().has_value() == (release % 4 == 0));
    }
}

TEST_CASE("no pause into which no look could fall is made where nobody is seen to poll") {
    reacquire_backoff backoff(contenders::poll);
    for (int release = 1; release <= 40; ++release) {
        backoff.on_attempt(false, start);
        backoff.on_release(start + 900us);
        CHECK_FALSE(backoff.until());
    }
}

TEST_CASE("without contention nobody waits for those who are told, or queue") {
    for (const auto how : {contenders::are_told, contenders::queue}) {
        reacquire_backoff backoff(how);
        for (int release = 0; release < 40; ++release) {
            backoff.on_attempt(false, start);
            backoff.on_release(start + 1s);
            CHECK_FALSE(backoff.until());
        }
    }
}

// Four threads that locked again at once had a lock 7,357 times in ten seconds, and four real clients of
// another language, which asked 50 times a second each, 70 times; one of them once.
TEST_CASE("the previous owner asks again for a lock that others poll for only after they could have had it") {
    polled_lock one;
    const auto had_until = one.seen_taken_and_had_for(300ms);
    one.m.lock();
    CHECK(one.server.asked - had_until >= 30ms);
    CHECK(one.server.asked - had_until < 40ms);
    one.m.unlock();
}

TEST_CASE("contention that a failed try met is remembered for ten seconds, too") {
    manual_clock::reset();
    timed_connection server{reply::nil(), reply::integer(1000)};
    for (int i = 0; i < 21; ++i) {
        server.then(ok);
        server.then(released);
    }
    polled_mutex m{server, "orders", {.lease = 10min, .renew = false}};
    REQUIRE_FALSE(m.try_lock());
    for (int i = 0; i < 20; ++i) {
        const auto had_until = manual_clock::now();
        m.lock();
        if (i > 0) CHECK(server.asked - had_until >= 20ms);
        manual_clock::advance(200ms);
        m.unlock();
    }
    manual_clock::advance(10s);
    const auto had_until = manual_clock::now();
    m.lock();
    CHECK(server.asked - had_until < 5ms);
    m.unlock();
}

TEST_CASE("a single try does not back off") {
    polled_lock one;
    const auto had_until = one.seen_taken_and_had_for(300ms);
    CHECK(one.m.try_lock());
    CHECK(one.server.asked - had_until < 5ms);
}

TEST_CASE("a caller with little time backs off for half of it, and asks in the other") {
    polled_lock one;
    const auto had_until = one.seen_taken_and_had_for(300ms);
    CHECK(one.m.try_lock_for(20ms));
    CHECK(one.server.asked - had_until >= 10ms);
    CHECK(one.server.asked - had_until < 18ms);
}

TEST_CASE("a caller that is cancelled while it backs off has not asked, and the next one may") {
    polled_lock one;
    const auto had_until = one.seen_taken_and_had_for(1min);
    std::stop_source stop;
    acting_clock::at = had_until + 20ms;
    acting_clock::then = [&] { stop.request_stop(); };
    std::error_code ec;
    CHECK_FALSE(one.m.lock(stop.get_token(), ec));
    CHECK(ec == distlock::errc::cancelled);
    CHECK(one.server.asked <= had_until);
    CHECK(one.m.try_lock());
}

TEST_CASE("the previous owner of a Redisson lock leaves it to waiters that were told of the release") {
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

}  // namespace reacquire_backoff_tests
