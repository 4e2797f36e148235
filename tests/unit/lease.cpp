// Leases: durations that cannot overflow, and the instant until which a grant may be believed.
#include <chrono>
#include <cstdint>
#include <limits>
#include <random>
#include <ratio>
#include <type_traits>

#include <distlock/base/clock.hpp>
#include <distlock/base/lease.hpp>

#include "support/catch.hpp"

namespace lease_tests {

namespace {

using distlock::clock;
using distlock::drift_margin;
using distlock::time_span;
using distlock::validity_end;
using namespace std::chrono;
using namespace std::chrono_literals;

constexpr clock::time_point sent{100h};

static_assert(time_span{}.get() == 0ms);
static_assert(time_span(30s).get() == 30'000ms);
static_assert(time_span(1ms).get() == 1ms);
static_assert(time_span(999us).get() == 0ms);
static_assert(time_span(1999us).get() == 1ms);
static_assert(time_span(-1ns).get() == -1ms);
static_assert(time_span(hours::max()).get() == milliseconds::max());
static_assert(time_span(hours::min()).get() == milliseconds::min());
static_assert(time_span(nanoseconds::max()).get() == 9223372036854ms);
static_assert(time_span(nanoseconds::min()).get() == -9223372036855ms);
static_assert(time_span(2s) == time_span(2000ms));
static_assert(!(time_span(2s) == time_span(2001ms)));
static_assert(milliseconds(time_span(5s)) == 5s);
static_assert(std::is_convertible_v<minutes, time_span> && std::is_convertible_v<duration<float>, time_span>);
static_assert(!std::is_convertible_v<int, time_span>, "a bare number has no unit");

static_assert(validity_end(sent, 30s) == sent + 30s - 300ms - 2ms);
static_assert(validity_end(sent, 10ms) == sent + 10ms - 100us - 2ms);
static_assert(drift_margin(24h) == 864s + 2ms);

}  // namespace

TEST_CASE("a lease of floating point is rounded down, and clamped when there is no such number of ms") {
    CHECK(time_span(duration<double>(1.5)).get() == 1500ms);
    CHECK(time_span(duration<double, std::milli>(10.9)).get() == 10ms);
    CHECK(time_span(duration<double>(std::numeric_limits<double>::infinity())).get() == milliseconds::max());
    CHECK(time_span(duration<double>(-std::numeric_limits<double>::infinity())).get() == milliseconds::min());
    CHECK(time_span(duration<double>(std::numeric_limits<double>::quiet_NaN())).get() < 0ms);
}

TEST_CASE("validity ends one per cent of the lease and 2 ms before the lease, from the sending") {
    for (const milliseconds lease : {10ms, 11ms, 99ms, 100ms, 12'345ms, 30'000ms, 86'400'000ms}) {
        INFO(lease.count());
        CHECK(validity_end(sent, lease) == sent + nanoseconds(lease.count() * 990'000 - 2'000'000));
        CHECK(validity_end(sent, lease) < sent + lease);
    }
    CHECK(validity_end(sent, distlock::min_lease) > sent);
    CHECK(distlock::min_lease == 10ms);
    CHECK(distlock::max_lease == 24h);
}

TEST_CASE("a lease of two milliseconds or less is over before it was sent") {
    for (const milliseconds lease : {2ms, 1ms, 0ms, -1ms, -30'000ms}) {
        INFO(lease.count());
        CHECK(validity_end(sent, lease) < sent);
    }
}

TEST_CASE("the end of validity does not overflow, whatever the lease and the instant") {
    // Compared one way only: what the margin takes off the end of the range may stay or go.
    CHECK(validity_end(sent, milliseconds::max()) > sent + 24h * 365 * 200);
    CHECK(validity_end(sent, hours(24 * 365 * 1000)) > sent + 24h * 365 * 200);
    CHECK(validity_end(sent, milliseconds::min()) < clock::time_point(-24h * 365 * 200));
    CHECK(validity_end(clock::time_point::max(), 30s) == clock::time_point::max());
    CHECK(validity_end(clock::time_point::max(), milliseconds::max()) == clock::time_point::max());
    CHECK(validity_end(clock::time_point::min(), 0ms) == clock::time_point::min());
    CHECK(validity_end(clock::time_point::min(), milliseconds::min()) == clock::time_point::min());
    CHECK(drift_margin(milliseconds::max()) > 0ns);
}

TEST_CASE("a longer lease or a later sending never ends earlier") {
    std::mt19937_64 random(7);
    for (int i = 0; i < 10'000; ++i) {
        const milliseconds lease(static_cast<std::int64_t>(random() % 86'400'000));
        const nanoseconds later(static_cast<std::int64_t>(random() % 1'000'000'000'000));
        const auto end = validity_end(sent, lease);
        if (!(validity_end(sent, lease + 1ms) > end && validity_end(sent + later, lease) == end + later)) {
            FAIL(lease.count() << " ms, " << later.count() << " ns later");
        }
    }
}

}  // namespace lease_tests
