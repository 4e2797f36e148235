// The table of faults, part F: what happens to owners and to who waits. Names begin with the row's number in rows.txt.
#include <chrono>
#include <list>
#include <sys/resource.h>

#include <distlock/distlock.hpp>
#include <distlock/testing.hpp>

#include "catch.hpp"
#include "lab/matrix/campaign.hpp"
#include "support/owner_process.hpp"

TEST_CASE(
    "F1: when a process is stopped past its lease, others have its locks, and no late write is accepted") {
    // One thread each: who is stopped is an owner or the next, not both.
    campaign c("F1", lease + lease / 4 + slack,
               {.people = {.processes = 4, .threads = 1, .longest_work = 300ms, .patience = 1500ms}});
    auto& first = c.people.processes().front();
    c.repeat([&](int n) {
        if (first.stopped()) first.go_on();
        campaign::wait_for(100ms + 20ms * (n % 20));  // it is in line first
        CHECK(first.stop());
    });
    first.go_on();
    c.allowance = 1h;  // it was stopped
    c.end();
    c.expect_some("lost", c.people.lost());
}

TEST_CASE("F17: a process that is stopped while it is served owns nothing when it goes on after the lease") {
    campaign c("F17", lease + lease / 4 + slack,
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
