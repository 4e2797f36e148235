// An attempt to take a lock as a resumable object, where releases are told on a channel.
#include <chrono>
#include <set>

#include <distlock/interop.hpp>

#include "support/catch.hpp"
#include "support/stepped_operation.hpp"

namespace operation_woken_tests {

namespace {

using namespace attempt_test;
using kind = action::kind;

const distlock::redisson dialect("orders", {.lease = 30s});
using stepped = stepped_operation<distlock::redisson>;

const reply busy = reply::array({reply::integer(0), reply::integer(20'000)});
const reply granted = reply::array({reply::integer(1), reply::string(""), reply::integer(0)});
const acquire_limits limits{.lease = 30s, .recheck = 1s, .patience = 2s, .waits = waiting_manner::woken};

struct waiter : stepped {
    waiter() : stepped(dialect, limits) {
        begin();
        answer(busy);
        REQUIRE(next.what == kind::subscribe);
    }
};

}  // namespace

TEST_CASE("a waiter that is told listens before its first wait, and then asks at once") {
    waiter w;
    CHECK(w.next.until == w.now);
    w.subscribed();
    CHECK(w.next.what == kind::send);
    w.answer(busy);
    CHECK(w.next.what == kind::wait);
    CHECK(w.next.until - w.now >= 500ms);
    CHECK(w.next.unheard_for == 50ms);
}

TEST_CASE(
    "a waiter that cannot listen yet waits for its recheck, but not longer than a poller while nothing "
    "arrives") {
    waiter w;
    w.wake();
    CHECK(w.next.what == kind::wait);
    CHECK(w.next.until - w.now >= 500ms);
    CHECK(w.next.unheard_for == 50ms);
    w.wake();
    w.answer(busy);
    CHECK(w.next.what == kind::subscribe);  // it tries again
}

TEST_CASE(
    "a waiter that is told looks as often as others while the server is in trouble, and seldom after it") {
    waiter w;
    w.subscribed();
    for (int i = 0; i < 3; ++i) {
        w.answer(reply::error("LOADING it loads its data"));
        REQUIRE(w.next.what == kind::wait);
        CHECK(w.next.until - w.now <= 50ms);
        w.wake();
    }
    w.answer(busy);
    CHECK(w.next.what == kind::wait);
    CHECK(w.next.until - w.now >= 500ms);
}

TEST_CASE("a message ends a wait, and a pause that differs from waiter to waiter the next asking") {
    waiter w;
    w.subscribed();
    w.answer(busy);
    w.tell("0");
    CHECK(w.next.what == kind::pause);
    CHECK(w.next.until >= w.now);
    CHECK(w.next.until <= w.now + 1ms);
    w.wake();
    CHECK(w.next.what == kind::send);
    CHECK(w.answer(granted).what == kind::done);
}

// All would ask at the same time, and a client with a longer way to the server would have no turn.
TEST_CASE("waiters that are told at the same time do not ask at the same time") {
    std::set<distlock::clock::duration> pauses;
    for (int i = 0; i < 20; ++i) {
        waiter w;
        w.subscribed();
        w.answer(busy);
        w.tell("0");
        pauses.insert(w.next.until - w.now);
    }
    CHECK(pauses.size() > 10);
}

TEST_CASE("a waiter that hears nothing any more asks, and then listens anew") {
    waiter w;
    w.subscribed();
    w.answer(busy);
    w.hear_nothing();
    CHECK(w.next.what == kind::send);
    w.answer(busy);
    CHECK(w.next.what == kind::subscribe);
}

TEST_CASE("the pause after a message is none in which nothing is heard") {
    waiter w;
    w.subscribed();
    w.answer(busy);
    w.tell("0");
    w.wake();
    w.answer(busy);
    CHECK(w.next.what == kind::wait);
    CHECK(w.next.until - w.now >= 500ms);
}

TEST_CASE("a subscription that is made anew ends a wait, and is not asked for again") {
    waiter w;
    w.wake();
    w.subscribed();
    CHECK(w.next.what == kind::send);
    w.answer(busy);
    CHECK(w.next.what == kind::wait);
}

TEST_CASE("a stop in each phase leaves nothing where nobody is queued") {
    waiter listens;
    CHECK(nothing_first(listens.stop()));
    waiter waits;
    waits.wake();
    CHECK(nothing_first(waits.stop()));
    waiter scatters;
    scatters.wake();
    scatters.tell("0");
    CHECK(nothing_first(scatters.stop()));
    for (const auto* one : {&listens, &waits, &scatters}) {
        CHECK(one->next.what == kind::done);
        CHECK(one->result().cause == errc::cancelled);
    }
}

}  // namespace operation_woken_tests
