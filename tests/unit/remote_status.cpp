// What the thread that asks the server has heard of it, for the others.
#include <atomic>
#include <chrono>
#include <latch>
#include <new>
#include <stop_token>
#include <thread>

#include <distlock/base/clock.hpp>
#include <distlock/base/error.hpp>
#include <distlock/engine/remote_status.hpp>
#include <distlock/testing/manual_clock.hpp>

#include "support/catch.hpp"
#include "support/sleepers.hpp"
#include "support/waiting.hpp"

namespace remote_status_tests {

using namespace std::chrono_literals;
using distlock::errc;
using distlock::engine::remote_status;
using distlock::testing::manual_clock;

namespace {
constexpr auto never = distlock::clock::time_point::max();
}

TEST_CASE("the last answer is known until a thread begins to ask, and again with its first answer") {
    remote_status status;
    CHECK(status.known());
    CHECK(status.last_error() == errc{});
    status.begin();
    CHECK_FALSE(status.known());
    status.answered(errc::unavailable, {});
    CHECK(status.known());
    CHECK(status.last_error() == errc::unavailable);
    status.end();
    CHECK(status.last_error() == errc::unavailable);
    status.begin();
    status.end();
    CHECK(status.known());
    CHECK(status.last_error() == errc::cancelled);
}

TEST_CASE("trouble counts from the first answer that told of it, whoever asked, until one without") {
    remote_status status;
    const distlock::clock::time_point start{1h};
    CHECK(status.failing_since() == never);
    status.answered(errc::unreachable, start);
    status.begin();
    status.answered(errc::no_reply, start + 1s);
    status.answered(errc::cancelled, start + 2s);
    CHECK(status.failing_since() == start);
    CHECK(status.last_error() == errc::no_reply);
    status.answered(errc{}, start + 3s);
    CHECK(status.failing_since() == never);
    status.answered(errc::no_reply, start + 4s);
    CHECK(status.failing_since() == start + 4s);
}

// Threads that waited for such an owner failed with the first lost answer, as if the server had been silent.
TEST_CASE("an owner's key that never expires is an answer, and no trouble") {
    remote_status status;
    const distlock::clock::time_point start{1h};
    status.answered(errc::unreachable, start);
    status.answered(errc::holder_without_ttl, start + 1s);
    CHECK(status.failing_since() == never);
    CHECK(status.last_error() == errc::holder_without_ttl);
}

TEST_CASE("a stop of the thread that asks is no answer") {
    remote_status status;
    status.begin();
    status.answered(errc::cancelled, {});
    CHECK_FALSE(status.known());
}

TEST_CASE("a thread that waits for an answer waits for none that is known, and no longer than it may") {
    manual_clock::reset();
    remote_status status;
    CHECK(status.wait(never, {}, distlock::time_source::of<manual_clock>()));
    status.begin();
    CHECK_FALSE(status.wait(manual_clock::now(), {}, distlock::time_source::of<manual_clock>()));
    bool heard = true;
    sleeper waiter([&] {
        heard = status.wait(manual_clock::now() + 1s, {}, distlock::time_source::of<manual_clock>());
    });
    CHECK(waiter.sleeps());
    CHECK_FALSE(waiter.done());
    manual_clock::advance(1s);
    waiter.join();
    CHECK_FALSE(heard);
}

TEST_CASE("a stop request ends the wait for an answer") {
    remote_status status;
    status.begin();
    std::stop_source stop;
    bool heard = true;
    sleeper waiter([&] { heard = status.wait(never, stop.get_token()); });
    CHECK(waiter.sleeps());
    stop.request_stop();
    CHECK(eventually([&] { return waiter.done(); }));
    waiter.join();
    CHECK_FALSE(heard);
}

// It slept on when it was woken after the next thread had begun, and told of a server that does not answer.
TEST_CASE("an answer is heard by a thread that waits for it, although another has begun to ask meanwhile") {
    manual_clock::reset();
    for (int i = 0; i < 20; ++i) {  // in some of them it is woken so late
        remote_status status;
        status.begin();
        bool heard = false;
        sleeper waiter([&] { heard = status.wait(never, {}, distlock::time_source::of<manual_clock>()); });
        CHECK(waiter.sleeps());
        status.answered(errc{}, {});
        status.begin();
        const bool woken = eventually([&] { return waiter.done(); });
        if (!woken) status.answered(errc{}, {});
        waiter.join();
        REQUIRE(woken);
        CHECK(heard);
    }
}

// By itself it looks once a second.
TEST_CASE("the thread that asks goes on from its pause as soon as another one waits for an answer") {
    const auto took = time_of([] {
        for (int i = 0; i < 5; ++i) {
            remote_status status;
            status.begin();
            sleeper asks([&] { status.pause(never, {}); });
            CHECK(asks.sleeps());
            sleeper waiter([&] { status.wait(never, {}); });
            asks.join();
            status.answered(errc{}, {});
            waiter.join();
        }
    });
    CHECK(took < 2s);
}

// Of eight threads of one object seven were told that somebody else had the lock, while the server hung.
TEST_CASE("a server that was not heard for long is asked whether it lives, one that was is not") {
    manual_clock::reset();
    const auto time = distlock::time_source::of<manual_clock>();
    const auto now = manual_clock::now();
    remote_status status;
    int asked = 0;
    const auto says = [&](errc what) {
        return [&asked, what] {
            ++asked;
            return what;
        };
    };
    status.answered(errc{}, now);
    status.answered(errc::no_reply, now + 1ms);  // that is no answer
    CHECK(status.confirm(now, never, {}, time, says(errc::no_reply)) == errc{});
    CHECK(asked == 0);
    CHECK(status.confirm(now + 1ms, never, {}, time, says(errc::no_reply)) == errc::no_reply);
    manual_clock::advance(1s);
    CHECK(status.confirm(now + 1ms, never, {}, time, says(errc{})) == errc{});
    CHECK(asked == 2);
    CHECK(status.confirm(now + 1s, never, {}, time, says(errc::no_reply)) == errc{});
    CHECK(asked == 2);
    CHECK_THROWS_AS(status.confirm(now + 2s, never, {}, time, []() -> errc { throw std::bad_alloc(); }),
                    std::bad_alloc);
    CHECK(status.confirm(now + 2s, never, {}, time, says(errc::unreachable)) == errc::unreachable);
    CHECK(asked == 3);
    CHECK(status.last_error() == errc::no_reply);  // which is for whoever stands in the queue to say
    std::stop_source stop;
    stop.request_stop();
    CHECK(status.confirm(now + 2s, never, stop.get_token(), time, says(errc{})) == errc::cancelled);
    CHECK(asked == 3);
}

TEST_CASE("one of the threads that want to know whether the server lives asks, and all hear what it hears") {
    struct row {
        errc first;   // what the first one hears
        errc second;  // what the next one hears
        int asked;    // by how many
    };
    for (const row& is : {row{errc::unreachable, errc::unreachable, 1}, row{errc{}, errc{}, 1},
                          row{errc::cancelled, errc::no_reply, 2}}) {  // a stop says nothing of the server
        manual_clock::reset();
        const auto time = distlock::time_source::of<manual_clock>();
        const auto since = manual_clock::now() - 1ms;
        remote_status status;
        std::latch answer{1};
        std::atomic<int> asked{0};
        errc heard[3] = {};
        const auto ask = [&](int who) {
            heard[who] = status.confirm(since, never, {}, time, [&] {
                if (++asked > 1) return is.second;
                answer.wait();
                return is.first;
            });
        };
        sleeper first([&] { ask(0); });
        CHECK(first.sleeps());
        sleeper second([&] { ask(1); });
        CHECK(second.sleeps());
        CHECK(status.confirm(since, manual_clock::now(), {}, time, [] { return errc{}; }) == errc::no_reply);
        std::stop_source stop;
        sleeper third(
            [&] { heard[2] = status.confirm(since, never, stop.get_token(), time, [] { return errc{}; }); });
        CHECK(third.sleeps());
        stop.request_stop();
        third.join();
        answer.count_down();
        first.join();
        second.join();
        CHECK(heard[0] == is.first);
        CHECK(heard[1] == is.second);
        CHECK(heard[2] == errc::cancelled);
        CHECK(asked == is.asked);
    }
}

// A try that had seconds was told that the server had not answered, by one that had 200 ms.
TEST_CASE("a thread that may wait longer than the one that asked for it asks again") {
    manual_clock::reset();
    const auto time = distlock::time_source::of<manual_clock>();
    const auto now = manual_clock::now();
    remote_status status;
    std::latch over{1};
    const auto unanswered = [&] {
        over.wait();
        return errc::no_reply;
    };
    sleeper first([&] { status.confirm(now, now + 200ms, {}, time, unanswered); });
    CHECK(first.sleeps());
    errc as_patient = errc::protocol_error;
    errc more_patient = errc::protocol_error;
    std::atomic<int> asked{0};
    const auto asks = [&] {
        ++asked;
        return errc{};
    };
    sleeper second([&] { as_patient = status.confirm(now, now + 200ms, {}, time, asks); });
    CHECK(second.sleeps());
    over.count_down();
    first.join();
    second.join();
    CHECK(as_patient == errc::no_reply);
    CHECK(asked == 0);
    std::latch over_again{1};
    sleeper third([&] {
        status.confirm(now, now + 200ms, {}, time, [&] {
            over_again.wait();
            return errc::no_reply;
        });
    });
    CHECK(third.sleeps());
    sleeper fourth([&] { more_patient = status.confirm(now, now + 2s, {}, time, asks); });
    CHECK(fourth.sleeps());
    over_again.count_down();
    third.join();
    fourth.join();
    CHECK(more_patient == errc{});
    CHECK(asked == 1);
}

}  // namespace remote_status_tests
