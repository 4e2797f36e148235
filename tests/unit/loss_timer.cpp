// The timer that says in time what is lost: alarms that ring, and the user's code on threads of its own.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include <distlock/base/clock.hpp>
#include <distlock/engine/loss_timer.hpp>
#include <distlock/testing/manual_clock.hpp>

#include "catch.hpp"
#include "count.hpp"
#include "in_child.hpp"
#include "slack.hpp"
#include "waiting.hpp"

namespace {

using distlock::clock;
using distlock::testing::manual_clock;
using namespace std::chrono_literals;
using time_point = clock::time_point;
using real_timer = distlock::engine::loss_timer<clock>;
using manual_timer = distlock::engine::loss_timer<manual_clock>;

/// An alarm that notes its rings and does what it is told.
template <class Timer>
struct bell final : Timer::alarm {
    explicit bell(std::function<time_point(time_point)> f = {}) : action(std::move(f)) {}
    time_point ring(time_point now) noexcept override {
        rung_at = clock::now();
        thread = std::this_thread::get_id();
        const auto again = action ? action(now) : time_point::max();
        ++rings;
        return again;
    }
    std::function<time_point(time_point)> action;
    std::atomic<int> rings{0};
    std::atomic<time_point> rung_at{};
    std::atomic<std::thread::id> thread{};
};

template <class Timer>
struct task final : Timer::job {
    explicit task(std::function<void()> f) : action(std::move(f)) {}
    void run() override { action(); }
    std::function<void()> action;
};

template <class Timer>
void call(Timer& timer, std::function<void()> f) {
    timer.call(std::make_unique<task<Timer>>(std::move(f)));
}

/// A door that stays closed until the end of a test, whatever becomes of the test.
class door {
  public:
    door() = default;
    door(const door&) = delete;
    door& operator=(const door&) = delete;
    ~door() { open(); }
    void open() noexcept { open_ = true; }
    void pass() const noexcept {
        while (!open_) std::this_thread::yield();
    }

  private:
    std::atomic<bool> open_{false};
};

/// What a job leaves to the end of its thread.
struct slow_end {
    ~slow_end() {
        if (entered == nullptr) return;
        *entered = true;
        hold->pass();
    }
    std::atomic<bool>* entered = nullptr;
    const door* hold = nullptr;
};
thread_local slow_end at_the_end;

}  // namespace

// ---- alarms ----------------------------------------------------------------------------------------------

TEST_CASE("a timer has no thread before its first alarm, and leaves none behind") {
    std::jthread([] {}).join();  // a sanitizer has a thread of its own from the first on
    const auto before = thread_count();
    {
        real_timer timer;
        CHECK(thread_count() == before);
        bell<real_timer> b;
        timer.set(b, clock::now() + 1h);
        CHECK(thread_count() == before + 1);
        timer.cancel(b);
    }
    CHECK(eventually([&] { return thread_count() == before; }));  // the system counts them a little longer
}

TEST_CASE("an alarm rings at its time, not before it and not much later") {
    real_timer timer;
    bell<real_timer> b;
    const auto at = clock::now() + 50ms;
    timer.set(b, at);
    REQUIRE(eventually([&] { return b.rings == 1; }));
    CHECK(b.rung_at.load() >= at);
    CHECK(b.rung_at.load() < at + slack);
    timer.cancel(b);
    CHECK(b.rings == 1);
}

TEST_CASE("alarms ring in the order of their times, whatever the order in which they were set") {
    manual_clock::reset();
    manual_timer timer;
    std::vector<int> order;  // written by the one thread that rings
    std::vector<std::unique_ptr<bell<manual_timer>>> bells;
    for (int i = 0; i < 50; ++i) {
        bells.push_back(std::make_unique<bell<manual_timer>>([&, i](time_point) {
            order.push_back(i);
            return time_point::max();
        }));
    }
    for (int i = 0; i < 50; ++i) {
        const int k = (i * 17) % 50;
        timer.set(*bells[static_cast<std::size_t>(k)], manual_clock::now() + 1ms * (k + 1));
    }
    manual_clock::advance(25ms);
    REQUIRE(eventually([&] { return bells[24]->rings == 1; }));
    CHECK(bells[25]->rings == 0);
    manual_clock::advance(1h);
    CHECK(eventually([&] { return bells[49]->rings == 1; }));
    for (auto& b : bells) timer.cancel(*b);
    CHECK(std::is_sorted(order.begin(), order.end()));
    CHECK(order.size() == 50);
}

TEST_CASE("an alarm that was moved rings at its new time only") {
    manual_clock::reset();
    manual_timer timer;
    bell<manual_timer> moved;
    bell<manual_timer> witness;
    timer.set(moved, manual_clock::now() + 1s);
    timer.set(moved, manual_clock::now() + 3s);
    timer.set(witness, manual_clock::now() + 2s);
    manual_clock::advance(2s);
    REQUIRE(eventually([&] { return witness.rings == 1; }));
    CHECK(moved.rings == 0);
    timer.set(moved, manual_clock::now());  // and the other way
    CHECK(eventually([&] { return moved.rings == 1; }));
    timer.cancel(moved);
    timer.cancel(witness);
}

TEST_CASE("an alarm that becomes the earliest wakes the timer") {
    real_timer timer;
    bell<real_timer> late;
    bell<real_timer> early;
    timer.set(late, clock::now() + 1h);
    const auto at = clock::now() + 20ms;
    timer.set(early, at);
    REQUIRE(eventually([&] { return early.rings == 1; }));
    CHECK(early.rung_at.load() < at + slack);
    timer.cancel(late);
    timer.cancel(early);
    CHECK(late.rings == 0);
}

TEST_CASE("an alarm rings again when it says so") {
    manual_clock::reset();
    manual_timer timer;
    bell<manual_timer> b([](time_point now) { return now + 1s; });
    timer.set(b, manual_clock::now());
    for (int i = 1; i <= 5; ++i) {
        REQUIRE(eventually([&] { return b.rings == i; }));
        manual_clock::advance(1s);
    }
    timer.cancel(b);
    CHECK_FALSE(b.listed());
}

TEST_CASE("an alarm that was cancelled does not ring") {
    manual_clock::reset();
    manual_timer timer;
    bell<manual_timer> cancelled;
    bell<manual_timer> witness;
    timer.set(cancelled, manual_clock::now() + 1s);
    timer.set(witness, manual_clock::now() + 1s);
    timer.cancel(cancelled);
    manual_clock::advance(1s);
    CHECK(eventually([&] { return witness.rings == 1; }));
    CHECK(cancelled.rings == 0);
    timer.cancel(witness);
}

TEST_CASE("cancelling waits for an alarm that rings just now, and for no other") {
    manual_clock::reset();
    door hold;
    std::atomic<bool> ringing{false};
    manual_timer timer;
    bell<manual_timer> slow([&](time_point) {
        ringing = true;
        hold.pass();
        return time_point::max();
    });
    bell<manual_timer> other;
    timer.set(other, manual_clock::now() + 1h);
    timer.set(slow, manual_clock::now());
    REQUIRE(eventually([&] { return ringing.load(); }));
    timer.cancel(other);  // would hang, if it waited
    std::atomic<bool> cancelled{false};
    std::atomic<int> rings{0};
    std::jthread canceller([&] {
        timer.cancel(slow);
        rings = slow.rings.load();
        cancelled = true;
    });
    for (int i = 0; i < 1000; ++i) std::this_thread::yield();
    CHECK_FALSE(cancelled.load());
    hold.open();
    canceller.join();
    CHECK(rings == 1);
}

TEST_CASE("an alarm that is set while it rings rings again") {
    manual_clock::reset();
    door hold;
    std::atomic<bool> ringing{false};
    manual_timer timer;
    bell<manual_timer> b([&](time_point) {
        ringing = true;
        hold.pass();
        return time_point::max();
    });
    timer.set(b, manual_clock::now());
    REQUIRE(eventually([&] { return ringing.load(); }));
    timer.set(b, manual_clock::now() + 1s);
    hold.open();
    REQUIRE(eventually([&] { return b.rings == 1; }));
    manual_clock::advance(1s);
    CHECK(eventually([&] { return b.rings == 2; }));
    timer.cancel(b);
}

// ---- jobs ------------------------------------------------------------------------------------------------

TEST_CASE("a job runs on a thread that neither rings alarms nor called for it") {
    std::atomic<std::thread::id> ran{};
    real_timer timer;
    bell<real_timer> b;
    timer.set(b, clock::now());
    call(timer, [&] { ran = std::this_thread::get_id(); });
    REQUIRE(eventually([&] { return b.rings == 1 && ran.load() != std::thread::id{}; }));
    CHECK(ran.load() != std::this_thread::get_id());
    CHECK(ran.load() != b.thread.load());
    timer.cancel(b);
}

TEST_CASE("a job that blocks delays no alarm and no other job") {
    door hold;
    std::atomic<int> in{0};
    std::atomic<bool> ran{false};
    real_timer timer;
    bell<real_timer> first;
    timer.set(first, clock::now() + 1h);
    constexpr int blocked = 8;
    for (int i = 0; i < blocked; ++i) {
        call(timer, [&] {
            ++in;
            hold.pass();
        });
    }
    const auto start = clock::now();
    call(timer, [&] { ran = true; });
    CHECK(eventually([&] { return ran.load(); }));
    CHECK(clock::now() - start < (blocked + 1) * 10ms + 2 * slack);
    CHECK(in == blocked);
    bell<real_timer> b;
    const auto at = clock::now() + 10ms;
    timer.set(b, at);
    REQUIRE(eventually([&] { return b.rings == 1; }));
    CHECK(b.rung_at.load() < at + slack);
    hold.open();
    timer.cancel(b);
    timer.cancel(first);
}

TEST_CASE("a job that throws ends nothing but itself") {
    std::atomic<int> ran{0};
    real_timer timer;
    bell<real_timer> b;
    timer.set(b, clock::now() + 1h);
    call(timer, [&] { throw std::runtime_error("of the user"); });
    call(timer, [&] { throw 1; });
    call(timer, [&] { ++ran; });
    CHECK(eventually([&] { return ran == 1; }));
    timer.cancel(b);
}

TEST_CASE("a job may call for jobs and set and cancel alarms") {
    std::atomic<bool> ran{false};
    real_timer timer;
    bell<real_timer> b;
    timer.set(b, clock::now() + 1h);
    call(timer, [&] {
        timer.set(b, clock::now());
        while (b.rings == 0) std::this_thread::yield();
        timer.cancel(b);
        call(timer, [&] { ran = true; });
    });
    CHECK(eventually([&] { return ran.load(); }));
    timer.cancel(b);
}

TEST_CASE("the end of a timer waits for what was called") {
    std::atomic<int> ran{0};
    constexpr int jobs = 200;
    {
        real_timer timer;
        bell<real_timer> b;
        timer.set(b, clock::now() + 1h);
        for (int i = 0; i < jobs; ++i) call(timer, [&] { ++ran; });
        timer.cancel(b);
    }
    CHECK(ran == jobs);
}

TEST_CASE("the end of a timer runs what waits behind a job that blocks, on a thread of the timer") {
    door hold;
    std::atomic<bool> ran{false};
    std::atomic<bool> elsewhere{false};
    std::atomic<bool> blocks{false};
    auto timer = std::make_unique<manual_timer>();  // which asks for another thread after 5 ms only
    bell<manual_timer> b;
    timer->set(b, manual_clock::now() + 1h);
    call(*timer, [&] {
        blocks = true;
        hold.pass();
    });
    REQUIRE(eventually([&] { return blocks.load(); }));
    timer->cancel(b);
    std::jthread ender([&] {
        const auto me = std::this_thread::get_id();
        call(*timer, [&, me] {
            elsewhere = std::this_thread::get_id() != me;
            ran = true;
        });
        timer.reset();
    });
    CHECK(eventually([&] { return ran.load(); }));
    CHECK(elsewhere.load());
    hold.open();
}

TEST_CASE("a job may end the timer, and the jobs behind it are run") {
    for (int round = 0; round < 20; ++round) {
        auto* const timer = new real_timer;
        bell<real_timer> b;
        timer->set(b, clock::now() + 1h);
        timer->cancel(b);
        std::atomic<int> ran{0};
        std::atomic<bool> over{false};
        door all_called;
        call(*timer, [&] {
            all_called.pass();
            delete timer;
            over = true;
        });
        for (int i = 0; i < 5; ++i) call(*timer, [&] { ++ran; });
        all_called.open();
        REQUIRE(eventually([&] { return over && ran == 5; }));
    }
}

TEST_CASE("what a job leaves to the end of its thread delays neither alarms nor calls") {
    door hold;
    std::atomic<bool> ending{false};
    std::atomic<int> ran{0};
    std::atomic<bool> called{false};
    real_timer timer;
    bell<real_timer> b;
    timer.set(b, clock::now() + 1h);
    call(timer, [&] {
        at_the_end.entered = &ending;
        at_the_end.hold = &hold;
    });
    REQUIRE(eventually([&] { return ending.load(); }));
    std::jthread caller([&] {
        call(timer, [&] { ++ran; });
        called = true;
    });
    const bool in_time = eventually([&] { return ran == 1 && called; });
    CHECK(in_time);
    if (!in_time) hold.open();
    timer.set(b, clock::now());
    CHECK(eventually([&] { return b.rings == 1; }));
    timer.cancel(b);
    hold.open();
    caller.join();
}

TEST_CASE("many jobs, one after the other, leave no threads behind meanwhile") {
    real_timer timer;
    bell<real_timer> b;
    timer.set(b, clock::now() + 1h);
    const auto before = thread_count();
    for (int i = 0; i < 200; ++i) {
        std::atomic<bool> ran{false};
        call(timer, [&] { ran = true; });
        REQUIRE(eventually([&] { return ran.load(); }));
    }
    CHECK(eventually([&] { return thread_count() <= before + 2; }));
    timer.cancel(b);
}

// ---- stress, and fork ------------------------------------------------------------------------------------

TEST_CASE("alarms that are set, moved and cancelled by many threads neither hang nor ring when cancelled") {
    std::atomic<int> wrong{0};
    std::atomic<int> rung{0};
    real_timer timer;
    {
        std::vector<std::jthread> threads;
        for (int t = 0; t < 4; ++t) {
            threads.emplace_back([&, t] {
                for (int i = 0; i < 300; ++i) {
                    bell<real_timer> b([&](time_point) {
                        call(timer, [&] { ++rung; });
                        return time_point::max();
                    });
                    timer.set(b, clock::now() + 1us * ((i * 7 + t) % 100));
                    if (i % 3 == 0) timer.set(b, clock::now() + 1h);
                    if (i % 4 == 0) timer.set(b, clock::now());
                    timer.cancel(b);
                    const int then = b.rings;
                    if (b.listed()) ++wrong;
                    std::this_thread::yield();
                    if (b.rings != then) ++wrong;
                }
            });
        }
    }
    CHECK(wrong == 0);
}

TEST_CASE("a child of a process whose timer rings and runs jobs ends it, and comes back") {
    door hold;
    std::atomic<bool> in{false};
    std::optional<real_timer> timer(std::in_place);
    bell<real_timer> b;
    timer->set(b, clock::now() + 1h);
    call(*timer, [&] {
        in = true;
        hold.pass();
    });
    REQUIRE(eventually([&] { return in.load(); }));
    CHECK(in_child([&] {
        timer.reset();
        return true;
    }));
    hold.open();
    timer->cancel(b);
}
