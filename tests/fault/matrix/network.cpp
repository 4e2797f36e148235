// The table of faults, part B: what happens on the way. Names begin with the row's number in faults.txt.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>

#include <distlock/distlock.hpp>
#include <distlock/hiredis.hpp>
#include <distlock/testing.hpp>

#include "fault/matrix/campaign.hpp"
#include "support/catch.hpp"

namespace network_tests {

using distlock::errc;
using distlock::testing::fault_proxy;
using ending = fault_proxy::ending;
using part = fault_proxy::part;

namespace {

constexpr auto time_out = campaign::time_out;

campaign::options behind_a_proxy(const crew_options& people) {
    return {.people = people, .behind_proxy = true};
}

const crew_options at_short_work{.longest_work = 200ms, .patience = 700ms};
const crew_options patient{.lease = 2s, .longest_work = 300ms, .patience = 1500ms};

// Each time three of them, after so many bytes: `further` each time, up to `most`.
void cut_at_any_byte(campaign& c, part of, std::size_t further, std::size_t most) {
    std::size_t bytes = 0;
    c.repeat(
        [&](int n) {
            constexpr ending all[] = {ending::reset, ending::close, ending::silence};
            const auto before = c.proxy->cuts().size();  // first: the crew goes on
            c.proxy->cut({.of = of, .after = bytes, .how = all[n % 3], .times = 3});
            bytes = (bytes + further) % most;
            CHECK(eventually([&] { return c.proxy->cuts().size() >= before + 3; }));
        },
        9);
}

}  // namespace

TEST_CASE(
    "B4: requests cut at any byte by a reset, an end or silence leave one owner at a time, and nothing for "
    "longer than a lease") {
    campaign c("B4", lease + timing_tolerance, behind_a_proxy(at_short_work));
    cut_at_any_byte(c, part::request, 37, 400);
    c.end();
}

TEST_CASE(
    "B5: replies cut at any byte by a reset, an end or silence leave one owner at a time, and nothing for "
    "longer than a lease") {
    campaign c("B5", lease + timing_tolerance, behind_a_proxy(at_short_work));
    cut_at_any_byte(c, part::reply, 5, 40);
    c.end();
}

TEST_CASE("B6: replies that come later than anybody waits for them are taken for no other command's") {
    campaign c("B6", lease + timing_tolerance, behind_a_proxy(at_short_work));
    c.repeat([&](int n) {
        c.proxy->delay(part::reply, time_out + 20ms * (n % 20 + 1));
        campaign::wait_for(300ms);
        c.proxy->leave_alone();
    });
    c.end();
    c.expect_some("no_reply", c.people.errors(errc::no_reply));
}

TEST_CASE(
    "B7: requests that the server executes after their senders gave up leave no lock behind for longer than "
    "a lease") {
    campaign c("B7", lease + timing_tolerance, behind_a_proxy(at_short_work));
    c.repeat([&](int n) {
        c.proxy->hold(part::request);
        campaign::wait_for(time_out + 20ms * (n % 20));
        c.proxy->let_go();
    });
    c.end();
    c.expect_some("no_reply", c.people.errors(errc::no_reply));
}

TEST_CASE("B8: a link that falls silent in both directions is given up in the time of a command") {
    campaign c("B8", time_out + lease + timing_tolerance, behind_a_proxy(at_short_work));
    c.repeat([&](int) {
        c.proxy->hold(part::request);
        c.proxy->hold(part::reply);
        campaign::wait_for(300ms);
        c.proxy->let_go();
    });
    c.end();
    c.expect_some("no_reply", c.people.errors(errc::no_reply), campaign::often);
}

TEST_CASE("B9: while requests are lost nothing is applied late, and afterwards the lock is had again") {
    campaign c("B9", lease + timing_tolerance, behind_a_proxy(at_short_work));
    c.repeat([&](int) {
        c.proxy->cut({.of = part::request, .how = ending::silence, .times = 1'000'000});
        campaign::wait_for(250ms);
        c.proxy->leave_alone();
    });
    c.end();
    c.expect_some("cuts", static_cast<int>(c.proxy->cuts().size()));
}

TEST_CASE("B10: when replies are lost, no caller waits for a lock of its own that it never heard of") {
    campaign c("B10", time_out + timing_tolerance,
               behind_a_proxy({.processes = 1, .threads = 1, .names = 1, .lease = 3s, .patience = 2s}));
    c.repeat([&](int n) {
        const auto before = c.proxy->cuts().size();
        c.proxy->cut(
            {.of = part::reply, .how = n % 2 == 0 ? ending::reset : ending::silence, .times = 1 + n % 3});
        CHECK(eventually([&] { return c.proxy->cuts().size() > before; }));
    });
    c.end();
}

TEST_CASE("B11: replies that drip are given up in the time of a command") {
    campaign c("B11", time_out + timing_tolerance + lease / 2, behind_a_proxy(at_short_work));
    c.repeat([&](int) {
        c.proxy->slice(part::reply, 1, 20ms);
        campaign::wait_for(400ms);
        c.proxy->leave_alone();
    });
    c.end();
    c.expect_some("no_reply", c.people.errors(errc::no_reply), campaign::often);
}

TEST_CASE("B12: one-byte segments change nothing") {
    campaign c("B12", timing_tolerance, behind_a_proxy(patient));
    c.proxy->slice(part::request, 1);
    c.proxy->slice(part::reply, 1);
    c.repeat([&](int) { campaign::wait_for(50ms); });
    c.proxy->leave_alone();
    c.end();
    CHECK(c.people.all_errors() == 0);
    CHECK(c.people.lost() == 0);
}

TEST_CASE("B13: in a storm that breaks every twentieth request or reply there is one owner at a time") {
    campaign c("B13", lease + timing_tolerance, behind_a_proxy(at_short_work));
    c.repeat([&](int n) {
        c.proxy->storm(static_cast<std::uint64_t>(n + 1), 20);
        const auto before = c.proxy->cuts().size();
        campaign::wait_for(500ms, [&] { return c.proxy->cuts().size() > before + 10; });
        c.proxy->leave_alone();
    });
    c.end();
    c.expect_some("cuts", static_cast<int>(c.proxy->cuts().size()));
}

TEST_CASE("B16: a link that comes and goes is not stormed with connections, and no two own a lock") {
    campaign c("B16", lease + timing_tolerance, behind_a_proxy(at_short_work));
    int most = 0;  // connections in one time on and off
    c.repeat([&](int) {
        for (int i = 0; i < 5; ++i) {
            const int before = c.proxy->connections();
            c.proxy->hold(part::request);
            c.proxy->hold(part::reply);
            campaign::wait_for(100ms);
            c.proxy->let_go();
            campaign::wait_for(100ms);
            most = std::max(most, c.proxy->connections() - before);
        }
    });
    c.end();
    // No thread needs a second one, nor do renewals and messages.
    CHECK(most <= at_short_work.processes * (at_short_work.threads + 2));
}

namespace {

// A waiter's process looks after a second and a quarter, where two wait before it.
constexpr auto look = 1250ms;

// Leases so long that only looks and offers end a wait.
const campaign::options serving_on{
    .people = {.names = 1, .lease = 30s, .patience = 5s}, .behind_proxy = true, .serves_on = true};

}  // namespace

TEST_CASE("B18: a waiter whose message is lost finds by looking that the lock is its own") {
    campaign c("B18", look + timing_tolerance, serving_on);
    std::atomic<int> lost{0};
    const auto messages = [&](const fault_proxy::words& w) {
        const bool is = w[0] == "message";
        lost += is;
        return is;
    };
    c.repeat([&](int n) {
        const int all = lost + 1 + n % 3;
        c.proxy->rewrite(messages, "", 1 + n % 3);
        CHECK(eventually([&] { return lost == all; }));
    });
    c.end();
    CHECK(c.people.all_errors() == 0);
    CHECK(c.people.lost() == 0);
}

TEST_CASE("B19: waiters whose subscription is silently dead find the lock by looking, and subscribe anew") {
    campaign c("B19", look + timing_tolerance, serving_on);
    c.repeat([&](int) {
        const auto before = c.proxy->cuts().size();
        c.proxy->cut({.of = part::message, .how = ending::silence, .times = 2});  // of both processes
        CHECK(eventually([&] { return c.proxy->cuts().size() == before + 2; }));
    });
    c.end();
    CHECK(c.people.all_errors() == 0);
    CHECK(c.people.lost() == 0);
}

TEST_CASE(
    "B20: messages cut at any byte by a reset, an end or silence leave one owner at a time, who comes soon") {
    campaign c("B20", look + timing_tolerance, serving_on);
    cut_at_any_byte(c, part::message, 11, 130);
    c.end();
}

}  // namespace network_tests
