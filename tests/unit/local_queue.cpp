// The queue of the threads of one process, and the place where each of them sleeps.
#include <atomic>
#include <chrono>
#include <deque>
#include <mutex>
#include <optional>
#include <random>
#include <thread>
#include <vector>

#include <distlock/base/clock.hpp>
#include <distlock/detail/parker.hpp>
#include <distlock/engine/local_queue.hpp>

#include "catch.hpp"
#include "support/slack.hpp"
#include "support/sleepers.hpp"
#include "support/waiting.hpp"

using namespace std::chrono_literals;
using distlock::detail::parker;
using distlock::engine::local_queue;
using turn = distlock::engine::local_queue::turn;
using clk = distlock::clock;

namespace {

constexpr auto never = clk::time_point::max();

struct seat : local_queue::seat {
    seat() : local_queue::seat(std::this_thread::get_id(), false) {}
};

/// A queue with its mutex, and threads that sleep in it until they have their turn.
struct room {
    /// Returns: the turn that the thread was called to.
    turn sit(local_queue::seat& mine, clk::time_point until = never) {
        std::unique_lock guard(state);
        queue.join(mine);
        for (;;) {
            local_queue::sleep<clk>(mine, guard, until);
            ++wakes;
            if (mine.called() == turn::to_hold) return turn::to_hold;
            if (mine.called() != turn::none) return mine.called();
            if (!mine.chosen() && clk::now() >= until) {
                queue.leave(mine);
                return turn::none;
            }
        }
    }
    void call_first(turn what) {
        std::unique_lock guard(state);
        auto& next = queue.choose(what);
        guard.unlock();
        local_queue::call(next);
    }
    std::mutex state;
    local_queue queue;
    std::atomic<int> wakes{0};
};

}  // namespace

// ---- the parker -------------------------------------------------------------------------------------------

TEST_CASE("who was called before it sleeps does not sleep") {
    parker p;
    p.call(7);
    CHECK(time_of([&] { p.sleep(std::nullopt); }) < slack);
    CHECK(p.word() == 7);
}

TEST_CASE("who sleeps is woken by a call, and by a nudge") {
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
    CHECK(time_of([&] { p.sleep(0ns); }) < slack);
    const auto until = clk::now() + 30ms;
    while (clk::now() < until) p.sleep(until - clk::now());
    CHECK(clk::now() < until + slack);
    CHECK(p.word() == 0);
}

TEST_CASE("a thread may end as soon as it sees the word: who calls touches nothing of it any more") {
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

// ---- the queue --------------------------------------------------------------------------------------------

TEST_CASE("who comes first is chosen first, whoever leaves in between") {
    local_queue queue;
    CHECK(queue.empty());
    CHECK(queue.first() == nullptr);
    std::mt19937 random(1);
    std::deque<seat> seats;
    std::deque<local_queue::seat*> expected;
    for (int i = 0; i < 5'000; ++i) {
        switch (random() % 4) {
            case 0:
            case 1:
                expected.push_back(&seats.emplace_back());
                queue.join(*expected.back());
                break;
            case 2:
                if (!expected.empty()) {
                    const auto who = expected.begin() + static_cast<int>(random() % expected.size());
                    queue.leave(**who);
                    expected.erase(who);
                }
                break;
            default:
                if (!expected.empty()) {
                    auto& next = queue.choose(turn::to_hold);
                    REQUIRE(&next == expected.front());
                    REQUIRE(next.chosen());
                    expected.pop_front();
                }
        }
        REQUIRE(queue.empty() == expected.empty());
        REQUIRE(queue.first() == (expected.empty() ? nullptr : expected.front()));
    }
}

TEST_CASE("who left the queue may come again, behind the others") {
    local_queue queue;
    seat a;
    seat b;
    queue.join(a);
    queue.join(b);
    queue.leave(a);
    queue.join(a);
    CHECK(&queue.choose(turn::to_ask) == &b);
    CHECK(&queue.choose(turn::to_ask) == &a);
    CHECK(queue.empty());
}

TEST_CASE("a seat says what it was called to, and of a nudge nothing") {
    local_queue queue;
    seat one;
    queue.join(one);
    CHECK(one.called() == turn::none);
    queue.nudge_first();
    CHECK(one.called() == turn::none);
    CHECK_FALSE(one.chosen());
    auto& next = queue.choose(turn::to_ask);
    CHECK(one.chosen());
    CHECK(one.called() == turn::none);
    local_queue::nudge(next);
    local_queue::call(next);
    CHECK(one.called() == turn::to_ask);
    local_queue::nudge(next);
    CHECK(one.called() == turn::to_ask);
    queue.nudge_first();  // nobody is there
}

TEST_CASE("who is called to hold goes on without the mutex, who is called to ask has it") {
    room r;
    for (const auto what : {turn::to_hold, turn::to_ask}) {
        seat mine;
        std::atomic<bool> had_it{false};
        sleeper one([&] {
            std::unique_lock guard(r.state);
            r.queue.join(mine);
            while (mine.called() == turn::none) local_queue::sleep<clk>(mine, guard, never);
            had_it = guard.owns_lock();
        });
        REQUIRE(one.sleeps());
        r.call_first(what);
        one.join();
        CHECK(had_it == (what == turn::to_ask));
    }
}

TEST_CASE("only the thread that is called wakes") {
    room r;
    std::deque<seat> seats(4);
    std::atomic<int> served{0};
    std::deque<sleeper> threads;
    for (auto& one : seats) {
        threads.emplace_back([&] {
            r.sit(one);
            ++served;
        });
        REQUIRE(threads.back().sleeps());
    }
    const int before = r.wakes;
    for (int i = 1; i <= 4; ++i) {
        r.call_first(turn::to_hold);
        REQUIRE(eventually([&] { return served == i; }));
        CHECK(r.wakes - before <= i + 4);  // a sleep may end for no reason
    }
    for (auto& one : threads) one.join();
    CHECK(r.queue.empty());
}

TEST_CASE("a nudge wakes the first in the queue, to look again, and it keeps its place") {
    room r;
    seat mine;
    turn got = turn::none;
    sleeper one([&] { got = r.sit(mine); });
    REQUIRE(one.sleeps());
    for (int i = 0; i < 3; ++i) {
        const int before = r.wakes;
        {
            const std::lock_guard guard(r.state);
            r.queue.nudge_first();
        }
        REQUIRE(eventually([&] { return r.wakes > before; }));
        REQUIRE(one.sleeps());
    }
    r.call_first(turn::to_hold);
    one.join();
    CHECK(got == turn::to_hold);
}

TEST_CASE("a sleep in the queue ends on time, and a call that came by then is not lost") {
    room r;
    seat late;
    const auto begun = clk::now();
    CHECK(r.sit(late, begun + 30ms) == turn::none);
    CHECK(clk::now() >= begun + 30ms);
    CHECK(clk::now() < begun + 30ms + slack);
    CHECK(r.queue.empty());

    seat chosen;
    {
        const std::lock_guard guard(r.state);
        r.queue.join(chosen);
        r.queue.choose(turn::to_ask);
    }
    std::jthread caller([&] { local_queue::call(chosen); });
    std::unique_lock guard(r.state);
    while (chosen.called() == turn::none) local_queue::sleep<clk>(chosen, guard, clk::now() - 1s);
    CHECK(chosen.called() == turn::to_ask);
}

TEST_CASE("threads that call one another in a ring never lose a call") {
    constexpr int threads = 8;
    constexpr int turns = 500;
    room r;
    std::atomic<int> inside{0};
    std::atomic<bool> two{false};
    std::atomic<int> done{0};
    bool held = false;  // under r.state
    {
        std::vector<std::jthread> all;
        for (int i = 0; i < threads; ++i) {
            all.emplace_back([&] {
                for (int k = 0; k < turns; ++k) {
                    seat mine;
                    std::unique_lock guard(r.state);
                    if (held) {
                        r.queue.join(mine);
                        while (mine.called() == turn::none) local_queue::sleep<clk>(mine, guard, never);
                    } else {
                        held = true;
                        guard.unlock();
                    }
                    if (++inside != 1) two = true;
                    --inside;
                    if (!guard.owns_lock()) guard.lock();
                    if (r.queue.empty()) {
                        held = false;
                    } else {
                        auto& next = r.queue.choose(turn::to_hold);
                        guard.unlock();
                        local_queue::call(next);
                    }
                    ++done;
                }
            });
        }
    }
    CHECK(done == threads * turns);
    CHECK_FALSE(two);
    CHECK(r.queue.empty());
}
