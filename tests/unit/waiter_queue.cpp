// The queue of the threads of one process.
#include <atomic>
#include <chrono>
#include <deque>
#include <mutex>
#include <random>
#include <stop_token>
#include <system_error>
#include <thread>
#include <vector>

#include <distlock/base/clock.hpp>
#include <distlock/base/error.hpp>
#include <distlock/engine/waiter_queue.hpp>
#include <distlock/mutex.hpp>
#include <distlock/shared_mutex.hpp>
#include <distlock/testing/scripted_connection.hpp>
#include <distlock/wire/command.hpp>
#include <distlock/wire/plain.hpp>
#include <distlock/wire/reply.hpp>

#include "support/catch.hpp"
#include "support/gate.hpp"
#include "support/sleepers.hpp"
#include "support/timing_tolerance.hpp"
#include "support/waiting.hpp"

namespace waiter_queue_tests {

using namespace std::chrono_literals;
using distlock::reply;
using distlock::engine::waiter_queue;
using distlock::engine::wake;
using distlock::testing::scripted_connection;
using clk = distlock::clock;

namespace {

constexpr auto never = clk::time_point::max();

struct waiter : waiter_queue::waiter {
    waiter() : waiter_queue::waiter(std::this_thread::get_id(), false) {}
};

/// A queue with its mutex, and threads that sleep in it until they are woken.
struct shared_queue {
    /// Effects: one sleep of `mine`, without the mutex.
    void sleep(waiter_queue::waiter& mine, std::unique_lock<std::mutex>& guard, clk::time_point until) {
        const auto longest = mine.prepare_sleep(until, distlock::time_source::of<clk>());
        guard.unlock();
        mine.sleep(longest);
        guard.lock();
    }
    /// Returns: why the thread was woken; none: its time was up.
    wake wait(waiter_queue::waiter& mine, clk::time_point until = never) {
        std::unique_lock guard(state);
        queue.join(mine);
        for (;;) {
            sleep(mine, guard, until);
            ++wakes;
            if (mine.reason() != wake::none) return mine.reason();
            if (!mine.dequeued() && clk::now() >= until) {
                queue.leave(mine);
                return wake::none;
            }
        }
    }
    void wake_first(wake why) {
        std::unique_lock guard(state);
        auto& next = queue.dequeue(why);
        guard.unlock();
        next.wake_up();
    }
    std::mutex state;
    waiter_queue queue;
    std::atomic<int> wakes{0};
};

}  // namespace

TEST_CASE("waiters are dequeued in the order in which they joined, whoever leaves in between") {
    waiter_queue queue;
    CHECK(queue.empty());
    CHECK(queue.first() == nullptr);
    std::mt19937 random(1);
    std::deque<waiter> waiters;
    std::deque<waiter_queue::waiter*> expected;
    for (int i = 0; i < 5'000; ++i) {
        switch (random() % 4) {
            case 0:
            case 1:
                expected.push_back(&waiters.emplace_back());
                queue.join(*expected.back());
                break;
            case 2:
                if (!expected.empty()) {
                    const auto one = expected.begin() + static_cast<int>(random() % expected.size());
                    queue.leave(**one);
                    expected.erase(one);
                }
                break;
            default:
                if (!expected.empty()) {
                    auto& next = queue.dequeue(wake::granted);
                    REQUIRE(&next == expected.front());
                    REQUIRE(next.dequeued());
                    expected.pop_front();
                }
        }
        REQUIRE(queue.empty() == expected.empty());
        REQUIRE(queue.first() == (expected.empty() ? nullptr : expected.front()));
    }
}

TEST_CASE("a waiter that left the queue may join again, at its end") {
    waiter_queue queue;
    waiter a;
    waiter b;
    queue.join(a);
    queue.join(b);
    queue.leave(a);
    queue.join(a);
    CHECK(&queue.dequeue(wake::go_remote) == &b);
    CHECK(&queue.dequeue(wake::go_remote) == &a);
    CHECK(queue.empty());
}

TEST_CASE("a waiter says why it was woken, and of a recheck nothing") {
    waiter_queue queue;
    waiter one;
    queue.join(one);
    CHECK(one.reason() == wake::none);
    queue.recheck_first();
    CHECK(one.reason() == wake::none);
    CHECK_FALSE(one.dequeued());
    auto& next = queue.dequeue(wake::go_remote);
    CHECK(one.dequeued());
    CHECK(one.reason() == wake::none);  // it is not woken yet
    next.recheck();
    next.wake_up();
    CHECK(one.reason() == wake::go_remote);
    next.recheck();
    CHECK(one.reason() == wake::go_remote);
    queue.recheck_first();  // nobody is there
}

TEST_CASE("a waiter is woken, and learns why, while another thread has the mutex") {
    for (const auto why : {wake::granted, wake::go_remote}) {
        shared_queue q;
        waiter mine;
        wake seen = wake::none;
        sleeper one([&] {
            std::unique_lock guard(q.state);
            q.queue.join(mine);
            const auto longest = mine.prepare_sleep(never, distlock::time_source::of<clk>());
            guard.unlock();
            while (mine.reason() == wake::none) mine.sleep(longest);
            seen = mine.reason();
        });
        REQUIRE(one.sleeps());
        const std::lock_guard guard(q.state);
        q.queue.dequeue(why).wake_up();
        one.join();
        CHECK(seen == why);
    }
}

TEST_CASE("only the thread that is dequeued wakes") {
    shared_queue q;
    std::deque<waiter> waiters(4);
    std::atomic<int> served{0};
    std::deque<sleeper> threads;
    for (auto& one : waiters) {
        threads.emplace_back([&] {
            q.wait(one);
            ++served;
        });
        REQUIRE(threads.back().sleeps());
    }
    const int before = q.wakes;
    for (int i = 1; i <= 4; ++i) {
        q.wake_first(wake::granted);
        REQUIRE(eventually([&] { return served == i; }));
        CHECK(q.wakes - before <= i + 4);  // a sleep may end for no reason
    }
    for (auto& one : threads) one.join();
    CHECK(q.queue.empty());
}

TEST_CASE("a recheck wakes the first waiter, which keeps its position") {
    shared_queue q;
    waiter mine;
    wake got = wake::none;
    sleeper one([&] { got = q.wait(mine); });
    REQUIRE(one.sleeps());
    for (int i = 0; i < 3; ++i) {
        const int before = q.wakes;
        {
            const std::lock_guard guard(q.state);
            q.queue.recheck_first();
        }
        REQUIRE(eventually([&] { return q.wakes > before; }));
        REQUIRE(one.sleeps());
    }
    q.wake_first(wake::granted);
    one.join();
    CHECK(got == wake::granted);
}

TEST_CASE("a recheck between the preparation of a sleep and the sleep is not missed") {
    waiter mine;
    mine.recheck();
    const auto longest =
        mine.prepare_sleep(never, distlock::time_source::of<clk>());  // which forgets those before
    mine.recheck();
    CHECK(time_of([&] { mine.sleep(longest); }) < timing_tolerance);
    const auto short_sleep = mine.prepare_sleep(clk::now() + 5ms, distlock::time_source::of<clk>());
    const auto begun = clk::now();
    while (clk::now() < begun + 5ms) mine.sleep(short_sleep);
    CHECK(mine.reason() == wake::none);
}

TEST_CASE("a sleep has no timer without a deadline, and none once the waiter was dequeued") {
    waiter_queue queue;
    waiter mine;
    queue.join(mine);
    CHECK_FALSE(mine.prepare_sleep(never, distlock::time_source::of<clk>()));
    CHECK(mine.prepare_sleep(clk::now() + 1h, distlock::time_source::of<clk>()));
    CHECK(mine.prepare_sleep(clk::now() - 1s, distlock::time_source::of<clk>()) == 0ns);
    auto& next = queue.dequeue(wake::granted);
    next.wake_up();
    CHECK_FALSE(mine.prepare_sleep(clk::now() - 1s, distlock::time_source::of<clk>()));
    CHECK(mine.reason() == wake::granted);  // a preparation does not forget it
}

TEST_CASE("a sleep in the queue ends on time, and a wake that came by then is not lost") {
    shared_queue q;
    waiter late;
    const auto begun = clk::now();
    CHECK(q.wait(late, begun + 30ms) == wake::none);
    CHECK(clk::now() >= begun + 30ms);
    CHECK(clk::now() < begun + 30ms + timing_tolerance);
    CHECK(q.queue.empty());

    waiter dequeued;
    {
        const std::lock_guard guard(q.state);
        q.queue.join(dequeued);
        q.queue.dequeue(wake::go_remote);
    }
    std::jthread other([&] { dequeued.wake_up(); });
    std::unique_lock guard(q.state);
    while (dequeued.reason() == wake::none) q.sleep(dequeued, guard, clk::now() - 1s);
    CHECK(dequeued.reason() == wake::go_remote);
}

TEST_CASE("threads that wake one another in a ring never lose a wake") {
    constexpr int threads = 8;
    constexpr int turns = 500;
    shared_queue q;
    std::atomic<int> inside{0};
    std::atomic<bool> two{false};
    std::atomic<int> done{0};
    bool held = false;  // under q.state
    {
        std::vector<std::jthread> all;
        for (int i = 0; i < threads; ++i) {
            all.emplace_back([&] {
                for (int k = 0; k < turns; ++k) {
                    waiter mine;
                    std::unique_lock guard(q.state);
                    if (held) {
                        q.queue.join(mine);
                        while (mine.reason() == wake::none) q.sleep(mine, guard, never);
                    } else {
                        held = true;
                    }
                    guard.unlock();
                    if (++inside != 1) two = true;
                    --inside;
                    guard.lock();
                    if (q.queue.empty()) {
                        held = false;
                    } else {
                        auto& next = q.queue.dequeue(wake::granted);
                        guard.unlock();
                        next.wake_up();
                    }
                    ++done;
                }
            });
        }
    }
    CHECK(done == threads * turns);
    CHECK_FALSE(two);
    CHECK(q.queue.empty());
}

namespace {

// Stands still at the gate in the thread that is told to: a lock object reads it with its mutex held, before
// each sleep.
struct halting_clock : clk {
    static time_point now() noexcept {
        const gate* const at = halting ? closed.load() : nullptr;
        if (at != nullptr) at->pass();
        return clk::now();
    }
    static inline thread_local bool halting = false;
    static inline std::atomic<const gate*> closed = nullptr;
};

// Effects: stops the thread that does `wait(stop, ec)` while it is about to sleep.
// Returns: whether the request came when it slept, and ended that.
template <class Wait>
bool stopped_when_it_sleeps(Wait wait) {
    std::stop_source stop;
    std::error_code ec;
    gate about_to_sleep;
    sleeper waiter([&] {
        halting_clock::halting = true;
        wait(stop.get_token(), ec);
    });
    const bool queued = waiter.sleeps();
    halting_clock::closed = &about_to_sleep;
    const bool halts = eventually([&] { return about_to_sleep.reached(); });
    sleeper stopper([&] { stop.request_stop(); });
    const bool comes_later = stopper.sleeps() && !stopper.done();
    about_to_sleep.open();
    stopper.join();
    waiter.join();
    halting_clock::closed = nullptr;
    return queued && halts && comes_later && ec == distlock::errc::cancelled;
}

}  // namespace

// The thread slept on until its turn came, for ever where the owner did not unlock.
TEST_CASE("a stop request does not come between a queued thread's last look at it and the sleep") {
    scripted_connection redis{reply::status("OK"), reply::integer(1)};
    distlock::mutex<scripted_connection, distlock::plain, halting_clock> m{redis, "orders", {.renew = false}};
    m.lock();
    CHECK(stopped_when_it_sleeps([&](const std::stop_token& stop, std::error_code& ec) {
        static_cast<void>(m.try_lock_for(10min, stop, ec));
    }));
    CHECK(m.unlock() == distlock::release_outcome::released);
}

TEST_CASE("a stop request does not come between a reader's last look at it and its sleep behind another") {
    struct silent_server {
        reply execute(const distlock::command&) {
            hold.pass();
            return reply::no_answer(distlock::errc::no_reply, "no reply in time");
        }
        gate hold;
    };
    silent_server server;
    distlock::shared_mutex<silent_server, halting_clock> m{
        server, "orders", {.renew = false, .patience = 0ms}};
    std::error_code ec;
    sleeper first([&] { m.lock_shared(ec); });
    REQUIRE(eventually([&] { return server.hold.reached(); }));
    const bool in_time = stopped_when_it_sleeps(
        [&](const std::stop_token& stop, std::error_code& said) { m.lock_shared(stop, said); });
    server.hold.open();
    first.join();
    CHECK(in_time);
    CHECK(ec == distlock::errc::no_reply);
}

}  // namespace waiter_queue_tests
