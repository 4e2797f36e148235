// Time arithmetic at the ends of its range.
#include <chrono>
#include <cstdint>
#include <limits>
#include <ratio>

#include <distlock/base/clock.hpp>
#include <distlock/detail/saturate.hpp>

#include "support/catch.hpp"

namespace saturate_tests {

namespace {

using distlock::detail::rounding;
using distlock::detail::saturating_add;
using distlock::detail::saturating_cast;
using namespace std::chrono;
using namespace std::chrono_literals;

template <class To, class From>
constexpr To down(From value) {
    return saturating_cast<To, rounding::down>(value);
}
template <class To, class From>
constexpr To up(From value) {
    return saturating_cast<To, rounding::up>(value);
}

// At compile time an overflow is an error.
static_assert(down<milliseconds>(hours::max()) == milliseconds::max());
static_assert(down<milliseconds>(hours::min()) == milliseconds::min());
static_assert(up<nanoseconds>(hours::max()) == nanoseconds::max());
static_assert(up<nanoseconds>(hours::min()) == nanoseconds::min());
static_assert(down<nanoseconds>(milliseconds::max()) == nanoseconds::max());
static_assert(down<nanoseconds>(milliseconds::min()) == nanoseconds::min());
static_assert(down<milliseconds>(nanoseconds::max()) == 9223372036854ms);
static_assert(up<milliseconds>(nanoseconds::max()) == 9223372036855ms);
static_assert(down<milliseconds>(nanoseconds::min()) == -9223372036855ms);
static_assert(up<milliseconds>(nanoseconds::min()) == -9223372036854ms);
static_assert(down<nanoseconds>(nanoseconds::max()) == nanoseconds::max());
static_assert(down<nanoseconds>(nanoseconds::min()) == nanoseconds::min());
static_assert(up<milliseconds>(milliseconds::max()) == milliseconds::max());

static_assert(down<milliseconds>(999us) == 0ms);
static_assert(up<milliseconds>(999us) == 1ms);
static_assert(down<milliseconds>(-1us) == -1ms);
static_assert(up<milliseconds>(-1us) == 0ms);
static_assert(down<milliseconds>(0ns) == 0ms);
static_assert(up<milliseconds>(0ns) == 0ms);
static_assert(down<milliseconds>(1s) == 1000ms);
static_assert(up<milliseconds>(1s) == 1000ms);
static_assert(down<milliseconds>(1001us) == 1ms);
static_assert(up<milliseconds>(1001us) == 2ms);

using small = duration<std::int8_t, std::ratio<3600>>;
static_assert(down<nanoseconds>(small(127)) == 127h);
static_assert(down<nanoseconds>(small(-128)) == -128h);
using natural = duration<std::uint64_t, std::milli>;
static_assert(down<milliseconds>(natural(std::numeric_limits<std::uint64_t>::max())) == milliseconds::max());
static_assert(down<milliseconds>(natural(7)) == 7ms);
static_assert(down<seconds>(duration<std::uint32_t, std::milli>(4'294'967'295U)) == 4'294'967s);

using point = distlock::clock::time_point;
static_assert(saturating_add(point(5ns), 7ns) == point(12ns));
static_assert(saturating_add(point(5ns), -7ns) == point(-2ns));
static_assert(saturating_add(point::max(), 0ns) == point::max());
static_assert(saturating_add(point::max(), 1ns) == point::max());
static_assert(saturating_add(point::max() - 1ns, 1ns) == point::max());
static_assert(saturating_add(point::max() - 1ns, nanoseconds::max()) == point::max());
static_assert(saturating_add(point(1ns), nanoseconds::max()) == point::max());
static_assert(saturating_add(point(0ns), nanoseconds::max()) == point::max());
static_assert(saturating_add(point(-1ns), nanoseconds::max()) == point::max() - 1ns);
static_assert(saturating_add(point::min(), -1ns) == point::min());
static_assert(saturating_add(point(-1ns), nanoseconds::min()) == point::min());
static_assert(saturating_add(point(0ns), nanoseconds::min()) == point::min());
static_assert(saturating_add(point::max(), nanoseconds::min()) == point(-1ns));
static_assert(saturating_add(point::min(), nanoseconds::max()) == point(-1ns));

}  // namespace

TEST_CASE("a count of floating point is rounded as asked") {
    CHECK(down<milliseconds>(duration<double>(1.5)) == 1500ms);
    CHECK(down<milliseconds>(duration<double, std::milli>(1.75)) == 1ms);
    CHECK(up<milliseconds>(duration<double, std::milli>(1.25)) == 2ms);
    CHECK(up<milliseconds>(duration<double, std::milli>(2.0)) == 2ms);
    CHECK(down<milliseconds>(duration<double, std::milli>(2.0)) == 2ms);
    CHECK(down<milliseconds>(duration<double, std::milli>(-1.25)) == -2ms);
    CHECK(up<milliseconds>(duration<double, std::milli>(-1.75)) == -1ms);
    CHECK(down<milliseconds>(duration<float, std::milli>(0.5F)) == 0ms);
    CHECK(up<nanoseconds>(duration<double, std::milli>(0.5)) == 500us);
}

TEST_CASE("a count of floating point that does not fit becomes the end of the range") {
    using real = duration<double>;
    constexpr double inf = std::numeric_limits<double>::infinity();
    CHECK(down<milliseconds>(real(inf)) == milliseconds::max());
    CHECK(up<milliseconds>(real(inf)) == milliseconds::max());
    CHECK(down<milliseconds>(real(-inf)) == milliseconds::min());
    CHECK(up<nanoseconds>(real(-inf)) == nanoseconds::min());
    CHECK(down<milliseconds>(real(1e300)) == milliseconds::max());
    CHECK(up<milliseconds>(real(-1e300)) == milliseconds::min());
    CHECK(up<nanoseconds>(real::max()) == nanoseconds::max());
    CHECK(down<nanoseconds>(real(9.3e9)) == nanoseconds::max());
    CHECK(down<nanoseconds>(real(-9.3e9)) == nanoseconds::min());
    CHECK(down<nanoseconds>(real(9.2e9)) < nanoseconds::max());
}

TEST_CASE("a count that is not a number becomes the shortest duration") {
    const duration<double> nothing(std::numeric_limits<double>::quiet_NaN());
    CHECK(down<milliseconds>(nothing) == milliseconds::min());
    CHECK(up<nanoseconds>(nothing) == nanoseconds::min());
    CHECK(up<nanoseconds>(duration<float>(std::numeric_limits<float>::quiet_NaN())) == nanoseconds::min());
}

TEST_CASE("units that are no multiple of each other are converted without overflow") {
    using frames = duration<std::int64_t, std::ratio<1, 60>>;
    CHECK(down<milliseconds>(frames(60)) == 1000ms);
    CHECK(down<milliseconds>(frames(1)) == 16ms);
    CHECK(up<milliseconds>(frames(1)) == 17ms);
    CHECK(down<milliseconds>(frames(-1)) == -17ms);
    CHECK(up<milliseconds>(frames::max()) == milliseconds::max());
    CHECK(down<milliseconds>(frames::min()) == milliseconds::min());
    // 50/3 ms each: times 50 this does not fit in 64 bits, the result does.
    CHECK(down<milliseconds>(frames(300'000'000'000'000'000)) == 5'000'000'000'000'000'000ms);
    CHECK(up<milliseconds>(frames(-300'000'000'000'000'000)) == -5'000'000'000'000'000'000ms);
}

}  // namespace saturate_tests
