// Threads for the user's code, and the thread that waits for deadlines, which they must not delay.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <poll.h>
#include <pthread.h>
#include <stdexcept>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include <distlock/base/clock.hpp>
#include <distlock/engine/callback_pool.hpp>
#include <distlock/engine/deadline_timer.hpp>
#include <distlock/testing/manual_clock.hpp>

#include "in_child.hpp"
#include "lab_figures.hpp"
#include "sanitizers.hpp"
#include "support/allocations.hpp"
#include "support/catch.hpp"
#include "support/gate.hpp"
#include "support/no_threads.hpp"
#include "timing_tolerance.hpp"
#include "waiting.hpp"

namespace callback_pool_tests {

namespace {

using distlock::clock;
using distlock::testing::manual_clock;
using namespace std::chrono_literals;
using time_point = clock::time_point;

/// A timer and a pool, as background I/O has them.
template <class Clock>
struct fixture {
    using deadline = distlock::engine::deadline;
    using callback = distlock::engine::callback;
    distlock::engine::deadline_timer timer{distlock::time_source::of<Clock>()};
    distlock::engine::callback_pool pool{timer, distlock::time_source::of<Clock>()};
};
using real_fixture = fixture<clock>;
using manual_fixture = fixture<manual_clock>;

/// A deadline that notes when it is told.
template <class Fixture>
struct probe final : Fixture::deadline {
    time_point on_deadline(time_point) noexcept override {
        ran_at = clock::now();
        thread = std::this_thread::get_id();
        ++runs;
        return time_point::max();
    }
    std::atomic<int> runs{0};
    std::atomic<time_point> ran_at{};
    std::atomic<std::thread::id> thread{};
};

template <class Fixture>
struct code final : Fixture::callback {
    explicit code(std::function<void()> f, bool urgent = false)
        : Fixture::callback(urgent), action(std::move(f)) {}
    void run() override { action(); }
    std::function<void()> action;
};

template <class Fixture>
void post(Fixture& of, std::function<void()> f, bool urgent = false) {
    of.pool.post(std::make_unique<code<Fixture>>(std::move(f), urgent));
}

/// What a callback leaves to the end of its thread.
struct slow_end {
    ~slow_end() {
        if (entered == nullptr) return;
        *entered = true;
        hold->pass();
    }
    std::atomic<bool>* entered = nullptr;
    const gate* hold = nullptr;
};
thread_local slow_end at_the_end;

}  // namespace

// ---- callbacks
// ------------------------------------------------------------------------------------------------

TEST_CASE("a callback runs on a thread that neither tells deadlines nor posted it") {
    std::atomic<std::thread::id> ran{};
    real_fixture of;
    probe<real_fixture> b;
    of.timer.schedule(b, clock::now());
    post(of, [&] { ran = std::this_thread::get_id(); });
    REQUIRE(eventually([&] { return b.runs == 1 && ran.load() != std::thread::id{}; }));
    CHECK(ran.load() != std::this_thread::get_id());
    CHECK(ran.load() != b.thread.load());
    of.timer.cancel(b);
}

TEST_CASE("a callback that blocks delays no deadline and no other callback") {
    gate hold;
    std::atomic<int> in{0};
    std::atomic<bool> ran{false};
    real_fixture of;
    probe<real_fixture> first;
    of.timer.schedule(first, clock::now() + 1h);
    constexpr int blocked = 8;
    for (int i = 0; i < blocked; ++i) {
        post(of, [&] {
            ++in;
            hold.pass();
        });
    }
    const auto start = clock::now();
    post(of, [&] { ran = true; });
    CHECK(eventually([&] { return ran.load(); }));
    CHECK(clock::now() - start < (blocked + 1) * 10ms + 2 * timing_tolerance);
    CHECK(in == blocked);
    probe<real_fixture> b;
    const auto at = clock::now() + 10ms;
    of.timer.schedule(b, at);
    REQUIRE(eventually([&] { return b.runs == 1; }));
    CHECK(b.ran_at.load() < at + timing_tolerance);
    hold.open();
    of.timer.cancel(b);
    of.timer.cancel(first);
}

// One more thread came in 5 ms: of five hundred leases that were over at once the last was told of, seconds
// late.
TEST_CASE("a callback that tells of a lease waits for none of five hundred before it that block") {
    std::mutex held;
    std::atomic<bool> ran{false};
    real_fixture of;
    const auto blocks = [&] { const std::lock_guard waits(held); };
    const auto runs = [&] { ran = true; };
    std::unique_lock hold(held);
    const auto start = clock::now();
    for (int i = 0; i < 500; ++i) post(of, blocks, true);
    post(of, runs, true);
    const bool told = eventually([&] { return ran.load(); });
    const auto took = clock::now() - start;
    hold.unlock();
    CHECK(told);
    CHECK(took < 100ms + timing_tolerance);
}

TEST_CASE("a callback that tells of a loss goes before fifty others that were posted before it, and block") {
    gate first;
    gate hold;
    std::atomic<int> others{0};
    std::atomic<int> before{-1};
    real_fixture of;
    post(of, [&] { first.pass(); });
    REQUIRE(eventually([&] { return first.reached(); }));
    for (int i = 0; i < 50; ++i) {
        post(of, [&] {
            ++others;
            hold.pass();
        });
    }
    post(
        of, [&] { before = others.load(); }, true);
    CHECK(eventually([&] { return before >= 0; }));
    CHECK(before < 10);  // threads that came before it was posted, on a slow machine
    hold.open();
    first.open();
}

// Threads that were on their way were not counted: thousands came.
TEST_CASE("five hundred short callbacks that tell of leases never have more threads than they are") {
    std::mutex counts;
    std::ptrdiff_t most = 0;
    std::atomic<int> told{0};
    const auto before = settled_thread_count();
    real_fixture of;
    const auto takes_a_while = [&] {
        const auto now = thread_count();
        ::poll(nullptr, 0, 1);
        const std::lock_guard guard(counts);
        most = std::max<std::ptrdiff_t>(most, now);
        ++told;
    };
    for (int i = 0; i < 500; ++i) post(of, takes_a_while, true);
    CHECK(eventually([&] { return told == 500; }));
    const std::lock_guard guard(counts);
    CHECK(most - before <= 500);
}

TEST_CASE("the second of two callbacks that are posted at once is run though the first blocks") {
    for (int i = 0; i < 5; ++i) {
        gate hold;
        std::atomic<bool> ran{false};
        real_fixture of;
        of.pool.reserve_thread();
        // Most often the reserved thread sleeps by then, and not yet runs the first when the second comes.
        const auto later = clock::now() + 10ms;
        CHECK(eventually([&] { return clock::now() > later; }));
        post(of, [&] { hold.pass(); });
        post(of, [&] { ran = true; });
        CHECK(eventually([&] { return ran.load(); }));
        hold.open();
    }
}

TEST_CASE("a callback behind one that blocks is run soon, though others are posted all the time") {
    gate hold;
    std::atomic<bool> ran{false};
    real_fixture of;
    post(of, [&] { hold.pass(); });
    REQUIRE(eventually([&] { return hold.reached(); }));
    const auto start = clock::now();
    post(of, [&] { ran = true; });
    while (!ran && clock::now() < start + 2 * timing_tolerance) {
        for (const auto next = clock::now() + 1ms; clock::now() < next;) std::this_thread::yield();
        post(of, [] {});
    }
    CHECK(ran);
    hold.open();
}

// It waited until the pool lost patience with threads that were not there.
TEST_CASE("a callback that finds no thread has one at once") {
    auto shortest = clock::duration::max();
    for (int i = 0; i < 50; ++i) {
        std::atomic<time_point> ran{time_point{}};
        real_fixture of;
        const auto posted = clock::now();
        post(of, [&] { ran = clock::now(); });
        REQUIRE(eventually([&] { return ran.load() != time_point{}; }));
        shortest = std::min(shortest, ran.load() - posted);
    }
    CHECK(shortest < 4ms);  // by itself it looks every 5 ms
}

TEST_CASE("a callback that throws ends nothing but itself") {
    std::atomic<int> ran{0};
    real_fixture of;
    probe<real_fixture> b;
    of.timer.schedule(b, clock::now() + 1h);
    post(of, [&] { throw std::runtime_error("of the user"); });
    post(of, [&] { throw 1; });
    post(of, [&] { ++ran; });
    CHECK(eventually([&] { return ran == 1; }));
    of.timer.cancel(b);
}

TEST_CASE("a callback may post callbacks, and schedule and cancel deadlines") {
    std::atomic<bool> ran{false};
    real_fixture of;
    probe<real_fixture> b;
    of.timer.schedule(b, clock::now() + 1h);
    post(of, [&] {
        of.timer.schedule(b, clock::now());
        while (b.runs == 0) std::this_thread::yield();
        of.timer.cancel(b);
        post(of, [&] { ran = true; });
    });
    CHECK(eventually([&] { return ran.load(); }));
    of.timer.cancel(b);
}

TEST_CASE("a callback may post another one as it is destroyed") {
    std::atomic<bool> ran{false};
    real_fixture of;
    probe<real_fixture> b;
    of.timer.schedule(b, clock::now() + 1h);
    post(of, [last = std::shared_ptr<void>(nullptr, [&](void*) { post(of, [&] { ran = true; }); })] {});
    if (!eventually([&] { return ran.load(); })) {
        FAIL_CHECK("it hangs");
        std::_Exit(1);
    }
    of.timer.cancel(b);
}

TEST_CASE("the end of a pool waits for what was posted") {
    std::atomic<int> ran{0};
    constexpr int callbacks = 200;
    {
        real_fixture of;
        probe<real_fixture> b;
        of.timer.schedule(b, clock::now() + 1h);
        for (int i = 0; i < callbacks; ++i) post(of, [&] { ++ran; });
        of.timer.cancel(b);
    }
    CHECK(ran == callbacks);
}

TEST_CASE("the end of a pool runs what waits behind a callback that blocks, on a thread of the pool") {
    gate hold;
    std::atomic<bool> ran{false};
    std::atomic<bool> elsewhere{false};
    std::atomic<bool> blocks{false};
    auto of = std::make_unique<manual_fixture>();  // which asks for another thread after 5 ms only
    probe<manual_fixture> b;
    of->timer.schedule(b, manual_clock::now() + 1h);
    post(*of, [&] {
        blocks = true;
        hold.pass();
    });
    REQUIRE(eventually([&] { return blocks.load(); }));
    of->timer.cancel(b);
    std::jthread ender([&] {
        const auto me = std::this_thread::get_id();
        post(*of, [&, me] {
            elsewhere = std::this_thread::get_id() != me;
            ran = true;
        });
        of.reset();
    });
    CHECK(eventually([&] { return ran.load(); }));
    CHECK(elsewhere.load());
    hold.open();
}

TEST_CASE("posting needs no memory where a thread is reserved") {
    NOT_TESTED_UNLESS(allocations_can_fail(), operator_new_is_not_ours);
    real_fixture of;
    of.pool.reserve_thread();
    for (int i = 0; i < 10; ++i) {
        std::atomic<bool> ran{false};
        auto c = std::make_unique<code<real_fixture>>([&] { ran = true; });
        fail_allocation(1);
        of.pool.post(std::move(c));
        fail_allocation(-1);
        REQUIRE(eventually([&] { return ran.load(); }));
    }
}

TEST_CASE("a callback may end the pool, and the callbacks behind it are run") {
    for (int round = 0; round < 20; ++round) {
        auto* const of = new real_fixture;
        probe<real_fixture> b;
        of->timer.schedule(b, clock::now() + 1h);
        of->timer.cancel(b);
        std::atomic<int> ran{0};
        std::atomic<bool> over{false};
        gate all_called;
        post(*of, [&] {
            all_called.pass();
            delete of;
            over = true;
        });
        for (int i = 0; i < 5; ++i) post(*of, [&] { ++ran; });
        all_called.open();
        REQUIRE(eventually([&] { return over && ran == 5; }));
    }
}

TEST_CASE(
    "destructors that a callback leaves to the end of its thread delay neither deadlines nor callbacks") {
    gate hold;
    std::atomic<bool> ending{false};
    std::atomic<int> ran{0};
    std::atomic<bool> called{false};
    real_fixture of;
    probe<real_fixture> b;
    of.timer.schedule(b, clock::now() + 1h);
    post(of, [&] {
        at_the_end.entered = &ending;
        at_the_end.hold = &hold;
    });
    REQUIRE(eventually([&] { return ending.load(); }));
    std::jthread caller([&] {
        post(of, [&] { ++ran; });
        called = true;
    });
    const bool in_time = eventually([&] { return ran == 1 && called; });
    CHECK(in_time);
    if (!in_time) hold.open();
    of.timer.schedule(b, clock::now());
    CHECK(eventually([&] { return b.runs == 1; }));
    of.timer.cancel(b);
    hold.open();
    caller.join();
}

TEST_CASE("many callbacks, one after the other, leave no threads behind meanwhile") {
    real_fixture of;
    probe<real_fixture> b;
    of.timer.schedule(b, clock::now() + 1h);
    const auto before = thread_count();
    for (int i = 0; i < 200; ++i) {
        std::atomic<bool> ran{false};
        post(of, [&] { ran = true; });
        REQUIRE(eventually([&] { return ran.load(); }));
    }
    CHECK(eventually([&] { return thread_count() <= before + 2; }));
    of.timer.cancel(b);
}

// ---- no threads ------------------------------------------------------------------------------------------

TEST_CASE("a reserved thread runs what is posted, though the system has no more to give") {
    NOT_TESTED_UNLESS(threads_in_a_child, child_has_no_threads);
    CHECK(in_child([] {
        real_fixture of;
        of.pool.reserve_thread();
        of.pool.reserve_thread();
        probe<real_fixture> b;
        of.timer.schedule(b, clock::now() + 1h);
        if (thread_count() != 3) return false;
        let_no_thread_start();
        std::atomic<int> ran{0};
        for (int i = 0; i < 100; ++i) {
            post(of, [&] { ++ran; });
            if (i % 10 == 0 && !eventually([&] { return ran == i + 1; })) return false;
        }
        const bool all = eventually([&] { return ran == 100; });
        of.timer.cancel(b);
        return all;
    }));
}

TEST_CASE("a thread that cannot be reserved is an error at once") {
    NOT_TESTED_UNLESS(threads_in_a_child, child_has_no_threads);
    CHECK(in_child([] {
        let_no_thread_start();
        real_fixture of;
        for (int i = 0; i < 2; ++i) {
            try {
                of.pool.reserve_thread();
                return false;
            } catch (const std::system_error&) {}
        }
        return true;
    }));
}

// It was run when there were threads again.
TEST_CASE(
    "an urgent callback is run although the system has no thread to give, past others that wait for one") {
    NOT_TESTED_UNLESS(threads_in_a_child, child_has_no_threads);
    CHECK(in_child([] {
        real_fixture of;
        of.pool.reserve_thread();
        probe<real_fixture> b;
        of.timer.schedule(b, clock::now() + 1h);
        let_no_thread_start();
        gate hold;
        std::atomic<bool> blocked{false};
        post(of, [&] {
            blocked = true;
            hold.pass();
        });
        if (!eventually([&] { return blocked.load(); })) return false;
        std::atomic<int> waited{0};
        std::atomic<int> told{0};
        for (int i = 0; i < 3; ++i) {
            post(of, [&] { ++waited; });
            post(
                of, [&] { ++told; }, true);
        }
        const bool urgent = eventually([&] { return told == 3; });
        const bool others = waited == 0;
        of.timer.schedule(b, clock::now());
        const bool rings = eventually([&] { return b.runs == 1; });
        hold.open();
        const bool all = eventually([&] { return waited == 3; });
        of.timer.cancel(b);
        return urgent && others && rings && all;
    }));
}

// Nobody kept time until it was over.
TEST_CASE(
    "an urgent callback that blocks delays no deadline that is scheduled when the system has threads again") {
    NOT_TESTED_UNLESS(threads_in_a_child, child_has_no_threads);
    CHECK(in_child([] {
        gate hold;
        real_fixture of;
        probe<real_fixture> first;
        of.timer.schedule(first, clock::now() + 1h);
        pthread_attr_t usual;
        pthread_getattr_default_np(&usual);
        let_no_thread_start();
        std::atomic<int> blocked{0};
        for (int round = 1; round <= 3; ++round) {  // the successor may be lent, too
            post(
                of,
                [&] {
                    ++blocked;
                    hold.pass();
                },
                true);
            if (!eventually([&] { return blocked == round; })) return false;
            probe<real_fixture> unheard;
            of.timer.schedule(unheard, clock::now());  // there is no thread for it yet
            if (unheard.runs != 0) return false;
            pthread_setattr_default_np(&usual);
            probe<real_fixture> next;
            of.timer.schedule(next, clock::now());
            const bool both = eventually([&] { return next.runs == 1 && unheard.runs == 1; });
            of.timer.cancel(next);
            of.timer.cancel(unheard);
            if (!both) return false;
            let_no_thread_start();
        }
        pthread_setattr_default_np(&usual);
        hold.open();
        of.timer.cancel(first);
        return true;
    }));
}

TEST_CASE(
    "an urgent callback may end the pool though there is no thread for it, and what was posted is run") {
    NOT_TESTED_UNLESS(threads_in_a_child, child_has_no_threads);
    CHECK(in_child([] {
        auto* const of = new real_fixture;
        probe<real_fixture> b;
        of->timer.schedule(b, clock::now() + 1h);
        of->timer.cancel(b);
        let_no_thread_start();
        std::atomic<int> ran{0};
        std::atomic<bool> over{false};
        post(*of, [&] { ++ran; });
        post(
            *of,
            [&] {
                delete of;
                over = true;
            },
            true);
        return eventually([&] { return over && ran == 1; });
    }));
}

TEST_CASE("the end of a pool waits for an urgent callback, on whatever thread") {
    NOT_TESTED_UNLESS(threads_in_a_child, child_has_no_threads);
    CHECK(in_child([] {
        gate hold;
        std::atomic<bool> ending{false};
        std::jthread opens([&] {
            while (!ending) std::this_thread::yield();
            for (int i = 0; i < 1000; ++i) std::this_thread::yield();
            hold.open();
        });
        distlock::engine::deadline_timer timer;
        std::optional<distlock::engine::callback_pool> pool(std::in_place, timer);
        pool->reserve_thread();
        let_no_thread_start();
        std::atomic<int> in{0};
        std::atomic<int> over{0};
        for (const bool urgent : {false, true}) {
            pool->post(std::make_unique<code<real_fixture>>(
                [&] {
                    ++in;
                    hold.pass();
                    ++over;
                },
                urgent));
            if (!eventually([&] { return in == (urgent ? 2 : 1); })) return false;
        }
        ending = true;
        pool.reset();
        return over == 2;
    }));
}

// ---- fork ------------------------------------------------------------------------------------------------

TEST_CASE("a child of a process whose pool runs callbacks ends it, and comes back") {
    gate hold;
    std::atomic<bool> in{false};
    std::optional<real_fixture> of(std::in_place);
    probe<real_fixture> b;
    of->timer.schedule(b, clock::now() + 1h);
    post(*of, [&] {
        in = true;
        hold.pass();
    });
    REQUIRE(eventually([&] { return in.load(); }));
    CHECK(in_child([&] {
        of.reset();
        return true;
    }));
    hold.open();
    of->timer.cancel(b);
}

}  // namespace callback_pool_tests
