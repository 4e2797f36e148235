// An attempt on the caller's thread where releases are told on a channel: a pause ends when there is
// something to see, and not before.
#include <chrono>
#include <cstddef>
#include <stop_token>
#include <vector>

#include <distlock/interop.hpp>

#include "support/attempt.hpp"
#include "support/catch.hpp"
#include "support/publishing_connection.hpp"
#include "support/ticking_clock.hpp"

namespace blocking_woken_tests {

namespace {

using namespace attempt_test;
using kind = grant::kind;

/// Tells of releases. Knows when it was asked what.
struct telling : publishing_connection {
    reply execute(const command& cmd) {
        asked.push_back(ticking_clock::last());
        return publishing_connection::execute(cmd);
    }
    /// Returns: how long it was left alone after the nth command.
    distlock::clock::duration pause_after(std::size_t n) const { return asked.at(n) - asked.at(n - 1); }

    std::vector<distlock::clock::time_point> asked;
};

const distlock::redisson dialect("orders", {.lease = 30s});
const reply busy = reply::array({reply::integer(0), reply::integer(20'000)});
const reply granted = reply::array({reply::integer(1), reply::string(""), reply::integer(0)});

constexpr auto recheck = 1000ms;
constexpr auto least_pause = recheck / 2;  // they are jittered
constexpr auto at_once = 30ms;             // of a clock that moves whenever it is read

kind take(telling& c, const std::stop_token& stop = {}) {
    distlock::engine::remote_status status;
    auto messages = inbox_of<ticking_clock>(c, dialect);
    const auto got = attempt_test::take<ticking_clock>(
        c, dialect,
        {.lease = 30s, .recheck = recheck, .patience = 2s, .waits = distlock::engine::waiting_manner::woken},
        stop, false, status, messages);
    return got.what;
}

}  // namespace

// It was forgotten where the count was read again before the wait: the waiter slept for its recheck
// although it was told.
TEST_CASE("a message that comes while the server is asked ends the pause that follows at once") {
    telling c;
    c.inner.then(busy);
    c.inner.then([&] { c.source->deliver("0"); }, busy);
    c.inner.then(granted);
    CHECK(take(c) == kind::granted);
    CHECK(c.asked.size() == 3);
    CHECK(c.pause_after(2) < at_once);
}

TEST_CASE("a message ends one pause, and the next one lasts") {
    telling c;
    c.inner.then(busy);
    c.inner.then([&] { c.source->deliver("0"); }, busy);
    c.inner.then(busy);
    c.inner.then(granted);
    CHECK(take(c) == kind::granted);
    CHECK(c.pause_after(2) < at_once);
    CHECK(c.pause_after(3) >= least_pause);
    CHECK(c.channels.size() == 1);
}

TEST_CASE("a subscription that has come into force ends the first pause, for what was told before is lost") {
    telling c;
    c.inner.then(busy);
    c.inner.then(busy);
    c.inner.then(granted);
    CHECK(take(c) == kind::granted);
    CHECK(c.pause_after(1) < at_once);
    CHECK(c.pause_after(2) >= least_pause);
}

TEST_CASE("a subscription that breaks and is made anew while the server is asked is looked after at once") {
    telling c;
    c.inner.then(busy);
    c.inner.then(busy);
    c.inner.then([&] { c.source->confirm(); }, busy);
    c.inner.then(granted);
    CHECK(take(c) == kind::granted);
    CHECK(c.pause_after(2) >= least_pause);
    CHECK(c.pause_after(3) < at_once);
}

TEST_CASE("a waiter whose subscription is not in force asks as those do who are told nothing") {
    for (const bool refuses : {false, true}) {
        telling c;
        c.in_force = false;
        c.refuses = refuses;
        for (int i = 0; i < 4; ++i) c.inner.then(busy);
        c.inner.then(granted);
        CHECK(take(c) == kind::granted);
        for (std::size_t n = 1; n <= 4; ++n) {
            CHECK(c.pause_after(n) >= 50ms);
            CHECK(c.pause_after(n) < 100ms);
        }
        CHECK(c.channels.size() == (refuses ? 4 : 1));
    }
}

TEST_CASE("a pause for a message ends at a stop request") {
    telling c;
    std::stop_source stop;
    c.in_force = false;
    c.on_subscribing = [&] { stop.request_stop(); };
    c.inner.then(busy);
    CHECK(take(c, stop.get_token()) == kind::failed);
    CHECK(c.asked.size() == 1);
    CHECK(ticking_clock::last() - c.asked.back() < at_once);
}

}  // namespace blocking_woken_tests
