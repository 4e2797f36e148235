// Pauses of different processes that do not end together.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>

#include <distlock/engine/jitter.hpp>

#include "support/catch.hpp"

namespace jitter_tests {

using namespace std::chrono_literals;
using distlock::engine::jitter;

TEST_CASE("a jitter lasts from zero to the most, each part of it as often as any other") {
    jitter some(1);
    std::array<int, 10> parts{};
    for (int i = 0; i < 10'000; ++i) {
        const auto pause = some.up_to(99ns);
        REQUIRE(pause >= 0ns);
        REQUIRE(pause <= 99ns);
        ++parts[static_cast<std::size_t>(pause.count()) / 10];
    }
    const auto [least, most] = std::minmax_element(parts.begin(), parts.end());
    CHECK(*least > 850);  // five standard deviations
    CHECK(*most < 1150);
}

TEST_CASE("a jitter of nothing is nothing, and one of the longest time there is does not overflow") {
    jitter some(0);
    for (int i = 0; i < 100; ++i) {
        CHECK(some.up_to(0ns) == 0ns);
        CHECK(some.up_to(distlock::clock::duration::max()) >= 0ns);
    }
}

TEST_CASE("processes with different seeds pause differently, and with none they still pause") {
    for (const std::uint64_t seed : {std::uint64_t{0}, std::uint64_t{1} << 40U}) {
        jitter one(seed);
        jitter another(seed + 2);
        int equal = 0;
        for (int i = 0; i < 1000; ++i) equal += one.up_to(1h) == another.up_to(1h);
        CHECK(equal < 10);
    }
}

}  // namespace jitter_tests
