// The table of faults, part F: what happens to owners and to who waits. Names begin with the row's
// number in faults.txt.
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <list>
#include <string>
#include <sys/resource.h>
#include <unistd.h>

#include <distlock/distlock.hpp>
#include <distlock/hiredis.hpp>
#include <distlock/testing.hpp>

#include "fault/matrix/campaign.hpp"
#include "support/catch.hpp"
#include "support/owner_process.hpp"

namespace owner_tests {

TEST_CASE(
    "F1: when a process is stopped past its lease, others have its locks, and no late write is accepted") {
    // One thread each: who is stopped is an owner or the next, not both.
    campaign c("F1", lease + lease / 4 + timing_tolerance,
               {.people = {.processes = 4, .threads = 1, .longest_work = 300ms, .patience = 1500ms}});
    auto& first = c.people.processes().front();
    c.repeat([&](int n) {
        if (first.stopped()) first.go_on();
        campaign::wait_for(100ms + 20ms * (n % 20));  // it is queued first
        CHECK(first.stop());
    });
    first.go_on();
    c.allowance = 1h;  // it was stopped
    c.end();
    c.expect_some("lost", c.people.lost());
}

TEST_CASE("F17: a process that is stopped while it is served owns nothing when it goes on after the lease") {
    campaign c("F17", lease + lease / 4 + timing_tolerance,
               {.people = {.processes = 3, .threads = 2, .names = 1, .longest_work = 2ms}});
    auto& first = c.people.processes().front();
    c.repeat([&](int n) {
        if (first.stopped()) first.go_on();
        campaign::wait_for(std::chrono::milliseconds(20 + n % 7));
        CHECK(first.stop());
        campaign::wait_for(lease);
    });
    first.go_on();
    c.allowance = 1h;
    c.end();
}

TEST_CASE("F11: owners without processor time do not believe in their locks for longer than they have them") {
    // Made first, while there is one thread.
    std::list<owner_process> busy;
    for (int i = 0; i < 4; ++i) {
        busy.emplace_back([] {
            for (;;) continue;
            return true;
        });
        CHECK(busy.back().stop());
    }
    campaign c("F11", 5s, {.people = {.lease = 200ms, .longest_work = 150ms, .patience = 1500ms}});
    for (owner_process& p : c.people.processes()) ::setpriority(PRIO_PROCESS, static_cast<id_t>(p.pid()), 19);
    c.repeat(
        [&](int) {
            for (owner_process& b : busy) b.go_on();
            campaign::wait_for(500ms);
            for (owner_process& b : busy) CHECK(b.stop());
        },
        3);
    c.allowance = 1h;
    c.end();
}

namespace {

constexpr const char* keeps_it = "client: waits for the lock of a crew and keeps it";
constexpr auto offer = 2s;
const crew_options long_leases{
    .processes = 3, .threads = 1, .names = 1, .lease = 30s, .longest_work = 50ms, .patience = 5s};

}  // namespace

TEST_CASE(
    "F23: a process that is stopped when it is served keeps the others out for an offer, not for its lease") {
    campaign c("F23", offer + timing_tolerance, {.people = long_leases});
    auto& first = c.people.processes().front();
    const auto owner = [&] { return c.server.command({"GET", crew::name(0)}); };
    // Returns: whether the lock stays with one that does not work.
    const auto stands = [&] {
        const auto now = owner();
        bool changed = false;
        campaign::wait_for(2 * long_leases.longest_work, [&] { return changed = owner() != now; });
        return !changed;
    };
    c.repeat([&](int n) {
        // It may have been stopped as the owner of a whole lease, or where it waits for nothing.
        const auto served = [&] {
            if (first.stopped()) first.go_on();
            campaign::wait_for(20ms + 3ms * (n % 20));
            CHECK(first.stop());
            for (int turns = 0; turns < 3; ++turns) {
                if (!stands()) continue;
                const auto left = std::stol(c.server.command({"PTTL", crew::name(0)}));
                return left > 0 && left <= offer / 1ms;
            }
            return false;
        };
        CHECK(eventually(served));
    });
    first.go_on();
    c.allowance = 1h;  // it was stopped
    c.end();
}

TEST_CASE(keeps_it, "[.]") {
    distlock::hiredis_connection redis{std::string(std::getenv("DISTLOCK_LAB_SERVER"))};
    distlock::mutex m{redis, crew::name(0), {.lease = 30s, .owner_info = "of the machine"}};
    m.lock();
    for (;;) ::pause();
}

TEST_CASE(
    "F24: a waiter whose machine is gone without a word keeps the others out for an offer, not for its "
    "lease") {
    crew_options people = long_leases;
    people.longest_work = 300ms;
    campaign c("F24", offer + timing_tolerance, {.people = people});
    distlock::testing::fault_proxy link(c.server.socket_path());
    using part = distlock::testing::fault_proxy::part;
    distlock::hiredis_connection admin{c.server.uri()};
    const std::string mine = "of the machine";
    const auto queued = [&] {
        const auto all = distlock::inspect(admin, crew::name(0)).queue;
        return std::any_of(all.begin(), all.end(), [&](const auto& one) { return one.label == mine; });
    };
    const auto served = [&] {
        const auto owner = distlock::inspect(admin, crew::name(0)).holder;
        return owner && owner->label == mine;
    };
    c.repeat([&](int) {
        link.let_go();
        {
            const distlock::testing::impl::child_process machine("/proc/self/exe", {keeps_it},
                                                                 c.server.folder() + "/client.log",
                                                                 {"DISTLOCK_LAB_SERVER=" + link.uri()});
            CHECK(eventually(queued));
            link.hold(part::request);
            link.hold(part::reply);
        }
        CHECK(queued());
        CHECK(eventually(served));
    });
    c.end();
}

}  // namespace owner_tests
