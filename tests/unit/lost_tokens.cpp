// Loss tokens in company: of the acquisition that follows a loss, of a guard of two, of a child; and waits by
// a clock that a test moves.
#include <atomic>
#include <chrono>
#include <memory>
#include <stop_token>
#include <string>
#include <system_error>
#include <thread>

#include <distlock/mutex.hpp>
#include <distlock/scoped_lock.hpp>
#include <distlock/testing/manual_clock.hpp>
#include <distlock/wire/plain.hpp>

#include "in_child.hpp"
#include "sanitizers.hpp"
#include "support/catch.hpp"
#include "support/lease_observers.hpp"
#include "support/locks_in_memory.hpp"
#include "timing_tolerance.hpp"
#include "waiting.hpp"

namespace lost_tokens_tests {

namespace {

using distlock::reply;
using distlock::testing::manual_clock;
using namespace std::chrono_literals;
using clk = distlock::clock;

}  // namespace

// Its deadline was the old one's: lost() came 605 ms late.
TEST_CASE(
    "an owner that locks again while it is asked why the lock was lost is told of the next loss in time") {
    std::atomic<bool> hangs{true};
    std::atomic<int> renewals{0};
    hosted_locks redis;
    redis.instead([&](const std::string& what) {
        if (what == "take") return reply::status("OK");
        if (what == "mark") {
            static_cast<void>(eventually([&] { return !hangs; }));
            return reply::nil();
        }
        if (what == "renew" && ++renewals > 1) return reply::no_answer(distlock::errc::no_reply, "lost");
        return reply::integer(0);
    });
    const auto observer = std::make_shared<counting_observer>();
    {
        distlock::mutex m{redis, "orders", {.lease = 400ms}, observer};
        m.lock();
        const auto first = m.lost();
        REQUIRE(eventually([&] { return first.stop_requested(); }));
        m.unlock();
        m.lock();
        const auto second = m.lost();
        const auto until = m.valid_until();
        REQUIRE(eventually([&] { return second.stop_requested(); }));
        CHECK(clk::now() - until < timing_tolerance);
        CHECK(eventually([&] { return observer->losses == 2; }));
        hangs = false;
    }
    CHECK(observer->losses == 2);
}

TEST_CASE("a guard of two can end while what its token called waits for that") {
    hosted_locks redis;
    redis.instead(
        [](const std::string& what) { return what == "take" ? reply::status("OK") : reply::integer(0); });
    distlock::mutex one{redis, "one", {.lease = 300ms}};
    distlock::mutex two{redis, "two", {.lease = 300ms}};
    std::atomic<bool> ended{false};
    std::atomic<bool> waited{false};
    std::atomic<bool> called{false};
    std::stop_token token;
    std::atomic<bool> ready{false};
    std::thread worker([&] {
        {
            const distlock::scoped_lock guard{one, two};
            token = guard.lost();
            ready = true;
            static_cast<void>(eventually([&] { return called.load(); }));
        }
        ended = true;
    });
    REQUIRE(eventually([&] { return ready.load(); }));
    {
        const std::stop_callback callback(token, [&] {
            called = true;
            waited = eventually([&] { return ended.load(); });
        });
        worker.join();
    }
    CHECK(called);
    CHECK(waited);
}

TEST_CASE("a child's lock over a connection of its parent is renewed by the child") {
    NOT_TESTED_UNLESS(threads_in_a_child, child_has_no_threads);
    std::atomic<int> renewals{0};
    hosted_locks redis;
    redis.instead([&](const std::string& what) {
        renewals += what == "renew";
        return what == "take" ? reply::status("OK") : reply::integer(1);
    });
    distlock::mutex m{redis, "orders", {.lease = brief_lease}};
    m.lock();
    REQUIRE(eventually([&] { return renewals > 0; }));
    CHECK(in_child([&] {
        renewals = 0;
        distlock::mutex own{redis, "invoices", {.lease = brief_lease}};
        own.lock();
        return eventually([&] { return renewals > 1; }) && own.owns_lock();
    }));
    CHECK(m.owns_lock());
}

TEST_CASE("a request that arrives after its caller has given up is undone") {
    manual_clock::reset();
    hosted_locks redis;
    redis.answer("take", reply::no_answer(distlock::errc::no_reply, "lost"));
    {
        distlock::mutex<hosted_locks, distlock::plain, manual_clock> m{redis, "orders", {.lease = 10s}};
        std::error_code ec;
        CHECK_FALSE(m.try_lock_for(0ms, ec));
        // What is looked for at once is not there yet.
        eventually([&] { return redis.count("release") > 1; }, 100ms);
        redis.give_to(redis.sent().front().token);
        for (int i = 0; i < 100 && !redis.owner().empty(); ++i) {
            manual_clock::advance(100ms);
            eventually([&] { return redis.owner().empty(); }, 10ms);
        }
    }
    CHECK(redis.owner().empty());
}

// The condition variable compared it with the machine's own time since it was started.
TEST_CASE("a wait ends when its clock is moved, whatever the time of the machine") {
    manual_clock::reset();
    manual_clock::advance(24h * 365 * 30);
    locks_in_memory redis;
    redis.give_to("somebody");
    distlock::mutex<locks_in_memory, distlock::plain, manual_clock> m{redis, "orders", {.renew = false}};
    std::atomic<bool> over{false};
    std::thread waiter([&] {
        static_cast<void>(m.try_lock_for(1s));
        over = true;
    });
    CHECK(eventually([&] {
        manual_clock::advance(10ms);
        return over.load();
    }));
    waiter.join();
    manual_clock::reset();
}

}  // namespace lost_tokens_tests
