// How often the map of a Cluster is asked for, whatever the number of callers that find it wrong.
#include <chrono>

#include <distlock/base/clock.hpp>
#include <distlock/net/refresh_schedule.hpp>

#include "support/catch.hpp"

using namespace std::chrono_literals;
using distlock::clock;
using distlock::detail::refresh_schedule;

namespace {

const clock::time_point start = clock::time_point{} + 1h;

}  // namespace

TEST_CASE("the first map is asked for at once, and by one caller") {
    refresh_schedule s;
    CHECK_FALSE(s.running());
    CHECK(s.begin(start));
    CHECK(s.running());
    CHECK_FALSE(s.begin(start));
    CHECK_FALSE(s.begin(start + 1h));
    s.end(true, 0ms);
    CHECK_FALSE(s.running());
    CHECK_FALSE(s.begin(start + 1h));
}

TEST_CASE(
    "a map that is wrong is asked for again, 100 ms and some jitter after the last time at the earliest") {
    refresh_schedule s;
    CHECK(s.begin(start));
    s.end(true, 30ms);
    for (int caller = 0; caller < 64; ++caller) s.invalidate();
    CHECK_FALSE(s.begin(start + 129ms));
    CHECK(s.begin(start + 130ms));
    s.end(true, 0ms);
    CHECK_FALSE(s.begin(start + 1h));
    s.invalidate();
    CHECK(s.begin(start + 1h));
}

TEST_CASE("a map that could not be had is asked for again after the pause") {
    refresh_schedule s;
    CHECK(s.begin(start));
    s.end(false, 0ms);
    CHECK_FALSE(s.begin(start + 99ms));
    CHECK(s.begin(start + 100ms));
}

TEST_CASE("a map that was found wrong while it was asked for is asked for again") {
    refresh_schedule s;
    CHECK(s.begin(start));
    s.invalidate();
    CHECK(s.running());
    s.end(true, 0ms);
    CHECK(s.begin(start + 100ms));
    s.end(true, 0ms);
    CHECK_FALSE(s.begin(start + 1h));
}

TEST_CASE("callers that find every map wrong get two of them in 200 ms") {
    refresh_schedule s;
    int maps = 0;
    for (auto now = start; now < start + 200ms; now += 1ms) {
        s.invalidate();
        if (!s.begin(now)) continue;
        ++maps;
        s.end(true, 0ms);
    }
    CHECK(maps == 2);
}

TEST_CASE("a map that is wrong is waited for until it may be asked for") {
    refresh_schedule s;
    CHECK(s.begin(start));
    CHECK_FALSE(s.waits(start));  // for the one who asks
    s.end(true, 0ms);
    CHECK_FALSE(s.waits(start + 50ms));
    s.invalidate();
    CHECK(s.waits(start + 50ms));
    CHECK(s.waits(start + 99ms));
    CHECK_FALSE(s.waits(start + 100ms));
    CHECK(s.begin(start + 100ms));
}
