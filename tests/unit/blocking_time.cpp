// How long a command may block, as text for a server: never "0" by accident, which is for ever.
#include <chrono>
#include <string>

#include <distlock/wire/blocking_time.hpp>

#include "catch.hpp"

using namespace std::chrono_literals;
using distlock::blocking_time;

TEST_CASE("a blocking time is rounded up to milliseconds, and has three digits of them") {
    CHECK(blocking_time(2500ms).view() == "2.500");
    CHECK(blocking_time(59'999'000'001ns).view() == "60.000");
    CHECK(blocking_time(7ms).view() == "0.007");
    CHECK(blocking_time(24h).view() == "86400.000");
    CHECK(blocking_time(distlock::clock::duration::max()).view() == "86400.000");
    CHECK(blocking_time().view() == "0");
}

// Redis 6.2 reads 0.001 as 0: a wait with a millisecond left was never ended by the server.
TEST_CASE("no time left is two milliseconds, never what a server takes for ever") {
    for (const auto left : {2ms, 1ms, 0ms, -1ms}) CHECK(blocking_time(left).view() == "0.002");
    CHECK(blocking_time(1ns).view() == "0.002");
    CHECK(blocking_time(distlock::clock::duration::min()).view() == "0.002");
}
