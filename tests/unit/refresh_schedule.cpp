// How often the map of a Cluster is asked for, whatever the number of callers that find it wrong.
#include <chrono>

#include <distlock/base/clock.hpp>
#include <distlock/net/refresh_schedule.hpp>

#include "support/catch.hpp"

namespace refresh_schedule_tests {

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

TEST_CASE("a map that is refused is asked for less and less often, until there is one") {
    refresh_schedule s;
    auto now = start;
    for (const auto pause : {200ms, 400ms, 800ms, 1600ms, 3200ms, 6400ms, 10000ms, 10000ms}) {
        CHECK(s.begin(now));
        s.end_refused(30ms);
        CHECK_FALSE(s.begin(now + pause + 29ms));
        CHECK(s.may_begin(now + pause + 30ms));
        now += pause + 30ms;
    }
    CHECK(s.begin(now));
    s.end(false, 0ms);  // nobody was reached: that says nothing of permissions
    CHECK(s.begin(now + 100ms));
    s.end(true, 0ms);
    s.invalidate();
    CHECK(s.begin(now + 200ms));
    s.end_refused(0ms);
    CHECK(s.begin(now + 400ms));
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

TEST_CASE("a question that its caller had no time for is said to be so until the next one ends") {
    refresh_schedule s;
    CHECK(s.begin(start));
    s.end_cut_short(20ms);
    CHECK(s.cut_short());
    CHECK_FALSE(s.begin(start + 119ms));
    CHECK(s.begin(start + 120ms));
    s.end_refused(0ms);
    CHECK_FALSE(s.cut_short());
}

TEST_CASE("a caller may do without a map for half of its time, or all but what a command takes") {
    const auto some_of = [](clock::time_point until) {
        return refresh_schedule::some_of(start, until, 700ms);
    };
    CHECK(some_of(start + 150ms) == start + 75ms);
    CHECK(some_of(start + 1400ms) == start + 700ms);
    CHECK(some_of(start + 2s) == start + 1300ms);
    CHECK(some_of(clock::time_point::max()) == clock::time_point::max() - 700ms);
    CHECK(some_of(clock::time_point::min()) == start);
}

}  // namespace refresh_schedule_tests
