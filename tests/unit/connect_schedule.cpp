// When a socket that failed is connected anew.
#include <chrono>

#include <distlock/base/clock.hpp>
#include <distlock/net/connect_schedule.hpp>

#include "support/catch.hpp"

namespace connect_schedule_tests {

using namespace std::chrono_literals;
using distlock::clock;
using distlock::detail::connect_schedule;

TEST_CASE("the first attempt is due at once, and the next after ten milliseconds") {
    connect_schedule attempts;
    const clock::time_point start{1h};
    REQUIRE(attempts.due(start));
    attempts.begin(start);
    CHECK_FALSE(attempts.due(start + 10ms - 1ns));
    CHECK(attempts.due(start + 10ms));
    CHECK(attempts.next() == start + 10ms);
}

TEST_CASE("pauses double up to half a second while attempts follow each other within a second") {
    connect_schedule attempts;
    clock::time_point now{1h};
    attempts.begin(now);
    for (const auto pause : {20ms, 40ms, 80ms, 160ms, 320ms, 500ms, 500ms}) {
        now = attempts.next();
        attempts.begin(now);
        CHECK(attempts.next() == now + pause);
    }
    attempts.begin(now += 1s - 1ns);
    CHECK(attempts.next() == now + 500ms);
    attempts.begin(now += 1s);
    CHECK(attempts.next() == now + 10ms);
}

}  // namespace connect_schedule_tests
