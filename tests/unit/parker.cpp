// Where one thread sleeps until another one calls it.
#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>
#include <thread>

#include <distlock/base/clock.hpp>
#include <distlock/detail/system.hpp>

#include "support/catch.hpp"
#include "support/sleepers.hpp"
#include "support/timing_tolerance.hpp"
#include "support/waiting.hpp"

using namespace std::chrono_literals;
using distlock::detail::parker;
using clk = distlock::clock;

TEST_CASE("a thread that was called before it sleeps does not sleep") {
    parker p;
    p.call(7);
    CHECK(time_of([&] { p.sleep(std::nullopt); }) < timing_tolerance);
    CHECK(p.word() == 7);
}

TEST_CASE("a thread that sleeps is woken by a call, and by a nudge") {
    for (const bool nudged : {false, true}) {
        parker p;
        std::atomic<std::uint32_t> seen{0};
        sleeper one([&] {
            while (p.word() == 0) p.sleep(std::nullopt);
            seen = p.word();
        });
        REQUIRE(one.sleeps());
        nudged ? p.nudge(1) : p.call(2);
        one.join();
        CHECK(seen == (nudged ? 1U : 2U));
    }
}

TEST_CASE("a nudge takes no word away, a call takes a nudge away") {
    parker p;
    p.call(2);
    p.nudge(1);
    CHECK(p.word() == 2);
    p.rest();
    CHECK(p.word() == 0);
    p.nudge(1);
    p.nudge(5);
    CHECK(p.word() == 1);
    p.call(3);
    CHECK(p.word() == 3);
}

TEST_CASE("a sleep ends when its time is up, or before") {
    parker p;
    CHECK(time_of([&] { p.sleep(0ns); }) < timing_tolerance);
    const auto until = clk::now() + 30ms;
    while (clk::now() < until) p.sleep(until - clk::now());
    CHECK(clk::now() < until + timing_tolerance);
    CHECK(p.word() == 0);
}

TEST_CASE("a thread may end as soon as it sees the word: its caller touches nothing of it any more") {
    for (int i = 0; i < 2'000; ++i) {
        std::atomic<parker*> there{nullptr};
        std::thread one([&] {
            parker p;
            there = &p;
            while (p.word() == 0) p.sleep(std::nullopt);
        });
        parker* p = nullptr;
        while ((p = there) == nullptr) std::this_thread::yield();
        p->call(1);
        one.join();
    }
}
