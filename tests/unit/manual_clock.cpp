// The manual clock: it stands until it is moved.
#include <chrono>
#include <concepts>
#include <stop_token>
#include <thread>
#include <vector>

#include <distlock/base/clock.hpp>
#include <distlock/base/time_source.hpp>
#include <distlock/testing/manual_clock.hpp>

#include "support/catch.hpp"

namespace manual_clock_tests {

namespace {

using distlock::testing::manual_clock;
using namespace std::chrono_literals;

static_assert(std::same_as<manual_clock::duration, distlock::clock::duration>);
static_assert(manual_clock::is_steady);
static_assert(noexcept(manual_clock::now()));
static_assert(std::same_as<manual_clock::time_point, distlock::clock::time_point>,
              "or it could not be the clock of a mutex");

}  // namespace

TEST_CASE("a manual clock stands still until it is moved, and moves by what it is told") {
    manual_clock::reset();
    const auto start = manual_clock::now();
    std::this_thread::yield();
    CHECK(manual_clock::now() == start);
    manual_clock::advance(3s);
    CHECK(manual_clock::now() == start + 3s);
    manual_clock::advance(1ns);
    manual_clock::advance(0ns);
    CHECK(manual_clock::now() == start + 3s + 1ns);
}

TEST_CASE("a reset sets a manual clock back to its start, one hour after the epoch") {
    manual_clock::advance(5h);
    manual_clock::reset();
    CHECK(manual_clock::now() == distlock::clock::time_point(1h));
}

TEST_CASE("threads that move a manual clock at once lose no step") {
    manual_clock::reset();
    const auto start = manual_clock::now();
    {
        std::vector<std::jthread> threads;
        for (int i = 0; i < 4; ++i) {
            threads.emplace_back([] {
                for (int step = 0; step < 10'000; ++step) manual_clock::advance(1ns);
            });
        }
    }
    CHECK(manual_clock::now() == start + 40us);
}

TEST_CASE("a pause on a manual clock ends when another thread has moved it there") {
    manual_clock::reset();
    const auto until = manual_clock::now() + 5ms;
    std::jthread mover([&] {
        while (manual_clock::now() < until) manual_clock::advance(1ms);
    });
    distlock::detail::pause_until(std::stop_token{}, until, distlock::time_source::of<manual_clock>());
    CHECK(manual_clock::now() >= until);
}

}  // namespace manual_clock_tests
