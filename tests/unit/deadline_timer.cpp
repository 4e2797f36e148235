// The thread that waits for deadlines.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <sys/syscall.h>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

#include <distlock/base/clock.hpp>
#include <distlock/engine/deadline_timer.hpp>
#include <distlock/testing/manual_clock.hpp>

#include "in_child.hpp"
#include "lab_figures.hpp"
#include "support/allocations.hpp"
#include "support/catch.hpp"
#include "support/gate.hpp"
#include "timing_tolerance.hpp"
#include "waiting.hpp"

namespace deadline_timer_tests {

namespace {

using distlock::clock;
using distlock::testing::manual_clock;
using namespace std::chrono_literals;
using time_point = clock::time_point;
using real_timer = distlock::engine::deadline_timer;
struct manual_timer : distlock::engine::deadline_timer {
    manual_timer() : deadline_timer(distlock::time_source::of<manual_clock>()) {}
};

/// A deadline that notes when it is told and does what the test says.
struct probe final : distlock::engine::deadline {
    explicit probe(std::function<time_point(time_point)> f = {}) : action(std::move(f)) {}
    time_point on_deadline(time_point now) noexcept override {
        ran_at = clock::now();
        const auto again = action ? action(now) : time_point::max();
        ++runs;
        return again;
    }
    std::function<time_point(time_point)> action;
    std::atomic<int> runs{0};
    std::atomic<time_point> ran_at{};
};

}  // namespace

// ---- when ----------------------------------------------------------------------------------------------

TEST_CASE("a timer has no thread before its first deadline, and leaves none behind") {
    std::jthread([] {}).join();  // a sanitizer has a thread of its own from the first on
    const auto before = settled_thread_count();
    {
        real_timer timer;
        CHECK(thread_count() == before);
        probe b;
        timer.schedule(b, clock::now() + 1h);
        CHECK(thread_count() == before + 1);
        timer.cancel(b);
    }
    CHECK(eventually([&] { return thread_count() <= before; }));
}

TEST_CASE("a deadline is told at its time, not before it and not much later") {
    real_timer timer;
    probe b;
    const auto at = clock::now() + 50ms;
    timer.schedule(b, at);
    REQUIRE(eventually([&] { return b.runs == 1; }));
    CHECK(b.ran_at.load() >= at);
    CHECK(b.ran_at.load() < at + timing_tolerance);
    timer.cancel(b);
    CHECK(b.runs == 1);
}

TEST_CASE("deadlines are told in the order of their times, whatever the order in which they were scheduled") {
    manual_clock::reset();
    manual_timer timer;
    std::vector<int> order;  // written by the one thread that rings
    std::vector<std::unique_ptr<probe>> probes;
    for (int i = 0; i < 50; ++i) {
        probes.push_back(std::make_unique<probe>([&, i](time_point) {
            order.push_back(i);
            return time_point::max();
        }));
    }
    for (int i = 0; i < 50; ++i) {
        const int k = (i * 17) % 50;
        timer.schedule(*probes[static_cast<std::size_t>(k)], manual_clock::now() + 1ms * (k + 1));
    }
    manual_clock::advance(25ms);
    REQUIRE(eventually([&] { return probes[24]->runs == 1; }));
    CHECK(probes[25]->runs == 0);
    manual_clock::advance(1h);
    CHECK(eventually([&] { return probes[49]->runs == 1; }));
    for (auto& b : probes) timer.cancel(*b);
    CHECK(std::is_sorted(order.begin(), order.end()));
    CHECK(order.size() == 50);
}

TEST_CASE("a deadline that was moved is told at its new time only") {
    manual_clock::reset();
    manual_timer timer;
    probe moved;
    probe witness;
    timer.schedule(moved, manual_clock::now() + 1s);
    timer.schedule(moved, manual_clock::now() + 3s);
    timer.schedule(witness, manual_clock::now() + 2s);
    manual_clock::advance(2s);
    REQUIRE(eventually([&] { return witness.runs == 1; }));
    CHECK(moved.runs == 0);
    timer.schedule(moved, manual_clock::now());  // and the other way
    CHECK(eventually([&] { return moved.runs == 1; }));
    timer.cancel(moved);
    timer.cancel(witness);
}

TEST_CASE("a deadline that becomes the earliest wakes the timer") {
    const bool looks_by_itself = GENERATE(false, true);
    INFO("something ran just now: " << looks_by_itself);
    real_timer timer;
    probe late;
    probe early;
    timer.schedule(late, clock::now() + 1h);
    if (looks_by_itself) {
        timer.schedule(early, clock::now());
        REQUIRE(eventually([&] { return early.runs == 1; }));
        early.runs = 0;
    }
    const auto at = clock::now() + 20ms;
    timer.schedule(early, at);
    REQUIRE(eventually([&] { return early.runs == 1; }));
    CHECK(early.ran_at.load() < at + timing_tolerance);
    timer.cancel(late);
    timer.cancel(early);
    CHECK(late.runs == 0);
}

TEST_CASE("a deadline is told again when it says so") {
    manual_clock::reset();
    manual_timer timer;
    probe b([](time_point now) { return now + 1s; });
    timer.schedule(b, manual_clock::now());
    for (int i = 1; i <= 5; ++i) {
        REQUIRE(eventually([&] { return b.runs == i; }));
        manual_clock::advance(1s);
    }
    timer.cancel(b);
    CHECK_FALSE(b.listed());
}

// A thread that looks whether there is more would wake a process that does nothing, twenty times a second.
TEST_CASE("a timer with nothing left to tell sleeps until there is another deadline") {
    std::atomic<long> its{0};
    real_timer timer;
    probe b([&](time_point) {
        its = ::syscall(SYS_gettid);
        return time_point::max();
    });
    for (int i = 1; i <= 3; ++i) {
        timer.schedule(b, clock::now());
        REQUIRE(eventually([&] { return b.runs == i; }));
        CHECK(eventually([&] {
            const auto count = wake_ups_of(its);
            const auto until = clock::now() + 300ms;
            return eventually([&] { return clock::now() >= until; }) && wake_ups_of(its) == count;
        }));
    }
    timer.cancel(b);
}

// The system's timers stand still while the machine is suspended.
TEST_CASE("a timer that waits for a deadline looks at the clock again and again meanwhile") {
    std::atomic<long> its{0};
    real_timer timer;
    probe b([&](time_point now) {
        its = ::syscall(SYS_gettid);
        return now + 1h;
    });
    timer.schedule(b, clock::now());
    REQUIRE(eventually([&] { return b.runs == 1; }));
    const auto count = wake_ups_of(its);
    const auto begun = clock::now();
    CHECK(eventually([&] { return wake_ups_of(its) >= count + 3; }));
    CHECK(clock::now() - begun < 1s + timing_tolerance);
    timer.cancel(b);
}

TEST_CASE("a deadline that was cancelled is not told") {
    manual_clock::reset();
    manual_timer timer;
    probe cancelled;
    probe witness;
    timer.schedule(cancelled, manual_clock::now() + 1s);
    timer.schedule(witness, manual_clock::now() + 1s);
    timer.cancel(cancelled);
    manual_clock::advance(1s);
    CHECK(eventually([&] { return witness.runs == 1; }));
    CHECK(cancelled.runs == 0);
    timer.cancel(witness);
}

TEST_CASE("cancelling waits for a deadline that is told just now, and for no other") {
    manual_clock::reset();
    gate hold;
    std::atomic<bool> running{false};
    manual_timer timer;
    probe slow([&](time_point) {
        running = true;
        hold.pass();
        return time_point::max();
    });
    probe other;
    timer.schedule(other, manual_clock::now() + 1h);
    timer.schedule(slow, manual_clock::now());
    REQUIRE(eventually([&] { return running.load(); }));
    timer.cancel(other);  // would hang, if it waited
    std::atomic<bool> cancelled{false};
    std::atomic<int> runs{0};
    std::jthread canceller([&] {
        timer.cancel(slow);
        runs = slow.runs.load();
        cancelled = true;
    });
    for (int i = 0; i < 1000; ++i) std::this_thread::yield();
    CHECK_FALSE(cancelled.load());
    hold.open();
    canceller.join();
    CHECK(runs == 1);
}

TEST_CASE("a deadline that is scheduled while it is told is told again") {
    manual_clock::reset();
    gate hold;
    std::atomic<bool> running{false};
    manual_timer timer;
    probe b([&](time_point) {
        running = true;
        hold.pass();
        return time_point::max();
    });
    timer.schedule(b, manual_clock::now());
    REQUIRE(eventually([&] { return running.load(); }));
    timer.schedule(b, manual_clock::now() + 1s);
    hold.open();
    REQUIRE(eventually([&] { return b.runs == 1; }));
    manual_clock::advance(1s);
    CHECK(eventually([&] { return b.runs == 2; }));
    timer.cancel(b);
}

TEST_CASE("a deadline that was told stays listed: to schedule it again needs no memory") {
    manual_clock::reset();
    manual_timer timer;
    probe b;
    timer.schedule(b, manual_clock::now());
    REQUIRE(eventually([&] { return b.runs == 1; }));
    std::vector<std::unique_ptr<probe>> others;
    for (int i = 0; i < 63; ++i) {
        others.push_back(std::make_unique<probe>());
        timer.schedule(*others.back(), manual_clock::now() + 1h);
    }
    const auto before = allocations();
    timer.schedule(b, manual_clock::now());
    CHECK(eventually([&] { return b.runs == 2; }));
    CHECK(allocations() == before);
    timer.cancel(b);
    for (auto& one : others) timer.cancel(*one);
}

// ---- stress, and fork ------------------------------------------------------------------------------------

TEST_CASE(
    "deadlines that are scheduled, moved and cancelled by many threads neither hang nor are told when "
    "cancelled") {
    std::atomic<int> wrong{0};
    real_timer timer;
    {
        std::vector<std::jthread> threads;
        for (int t = 0; t < 4; ++t) {
            threads.emplace_back([&, t] {
                for (int i = 0; i < 300; ++i) {
                    probe b;
                    timer.schedule(b, clock::now() + 1us * ((i * 7 + t) % 100));
                    if (i % 3 == 0) timer.schedule(b, clock::now() + 1h);
                    if (i % 4 == 0) timer.schedule(b, clock::now());
                    timer.cancel(b);
                    const int then = b.runs;
                    if (b.listed()) ++wrong;
                    std::this_thread::yield();
                    if (b.runs != then) ++wrong;
                }
            });
        }
    }
    CHECK(wrong == 0);
}

TEST_CASE("a child of a process whose timer is at work ends it, and comes back") {
    gate hold;
    std::atomic<bool> in{false};
    std::optional<real_timer> timer(std::in_place);
    probe b([&](time_point) {
        in = true;
        hold.pass();
        return time_point::max();
    });
    timer->schedule(b, clock::now());
    REQUIRE(eventually([&] { return in.load(); }));
    CHECK(in_child([&] {
        timer.reset();
        return true;
    }));
    hold.open();
    timer->cancel(b);
}

}  // namespace deadline_timer_tests
