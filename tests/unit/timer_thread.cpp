// A thread that is lent to work that blocks, and the one that takes its place. What both users of it have in
// common otherwise is tested with them: background_io.cpp, deadline_timer.cpp.
#include <atomic>
#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include <distlock/base/clock.hpp>
#include <distlock/engine/timer_thread.hpp>

#include "support/catch.hpp"
#include "support/gate.hpp"
#include "support/sleepers.hpp"
#include "support/waiting.hpp"

namespace timer_thread_tests {

using namespace std::chrono_literals;
using distlock::clock;
using distlock::engine::blocking_work;
using distlock::engine::timer_item;
using distlock::engine::timer_runner;
using distlock::engine::timer_thread;

namespace {

struct item final : timer_item {};

struct passes final : blocking_work {
    explicit passes(gate& through) : way(through) {}
    void run() noexcept override { way.pass(); }
    gate& way;
};

// The first run lends the thread; the last one takes as long as it is made to.
struct lending final : timer_runner {
    lending(gate& of_work, gate& of_end, std::atomic<int>& count)
        : work(of_work), end(of_end), lasts(count) {}
    std::size_t most() const noexcept override { return 1; }
    std::chrono::milliseconds longest_wait() const noexcept override { return 1s; }
    void reserve() override {}
    std::shared_ptr<blocking_work> run(std::span<timer_item* const>, clock::time_point,
                                       std::span<clock::time_point>, bool last) noexcept override {
        if (last) {
            ++lasts;
            end.pass();
        }
        return std::exchange(lent, true) ? nullptr : std::make_shared<passes>(work);
    }
    gate& work;
    gate& end;
    std::atomic<int>& lasts;
    bool lent = false;
};

// A run takes as long as it is made to, and there is to be another in an hour.
struct again final : timer_runner {
    again(gate& of_run, std::atomic<int>& count) : way(of_run), lasts(count) {}
    std::size_t most() const noexcept override { return 1; }
    std::chrono::milliseconds longest_wait() const noexcept override { return 1s; }
    void reserve() override {}
    std::shared_ptr<blocking_work> run(std::span<timer_item* const>, clock::time_point now,
                                       std::span<clock::time_point> next, bool last) noexcept override {
        lasts += last;
        way.pass();
        next[0] = now + 1h;
        return nullptr;
    }
    gate& way;
    std::atomic<int>& lasts;
};

}  // namespace

// It was given up: a release that was just looked after when its connection ended was not sent once more.
TEST_CASE("an item that runs when its timer ends has its last run after that") {
    gate way;
    std::atomic<int> lasts{0};
    std::optional<timer_thread> timer(std::in_place, distlock::time_source{},
                                      std::make_unique<again>(way, lasts));
    REQUIRE(timer->adopt(std::make_shared<item>(), clock::now(), 8));
    REQUIRE(eventually([&] { return way.reached(); }));
    sleeper ending([&] { timer.reset(); });
    REQUIRE(ending.sleeps());
    way.open();
    ending.join();
    CHECK(lasts == 1);
}

// A thousand locks that were to be held at least for a while kept out the release of a waiter that gave up.
TEST_CASE("an item that is adopted without a limit takes no place of those that have one") {
    gate way;
    std::atomic<int> lasts{0};
    timer_thread timer(distlock::time_source{}, std::make_unique<again>(way, lasts));
    way.open();
    const auto later = clock::now() + 1h;
    for (int i = 0; i < 8; ++i)
        REQUIRE(timer.adopt(std::make_shared<item>(), later, timer_thread::unlimited));
    for (int i = 0; i < 8; ++i) CHECK(timer.adopt(std::make_shared<item>(), later, 8));
    CHECK_FALSE(timer.adopt(std::make_shared<item>(), later, 8));
    CHECK(timer.adopt(std::make_shared<item>(), later, timer_thread::unlimited));
}

// Both ran their last items, at the same time.
TEST_CASE("a thread that was lent when its timer ends leaves the last run to the one that took its place") {
    gate work;
    gate end;
    std::atomic<int> lasts{0};
    std::optional<timer_thread> timer(std::in_place, distlock::time_source{},
                                      std::make_unique<lending>(work, end, lasts));
    REQUIRE(timer->adopt(std::make_shared<item>(), clock::now(), 8));
    REQUIRE(eventually([&] { return work.reached(); }));
    for (int i = 0; i < 2; ++i) REQUIRE(timer->adopt(std::make_shared<item>(), clock::now() + 1h, 8));
    sleeper ending([&] { timer.reset(); });
    REQUIRE(eventually([&] { return end.reached(); }));
    work.open();
    end.open();
    ending.join();
    CHECK(lasts == 1);
}

}  // namespace timer_thread_tests
