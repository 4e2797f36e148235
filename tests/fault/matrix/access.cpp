// The table of faults, part C: what the server does not permit, and roles. Names begin with the row's
// number in faults.txt.
#include <chrono>
#include <string>
#include <string_view>

#include <distlock/distlock.hpp>
#include <distlock/hiredis.hpp>
#include <distlock/testing.hpp>

#include "fault/matrix/campaign.hpp"
#include "support/catch.hpp"

namespace access_tests {

using distlock::errc;
using distlock::release_outcome;

TEST_CASE("C1: a server that asks for a password is an error that says so, and nobody storms it") {
    campaign c("C1", lease / 4 + timing_tolerance, {.people = at_work});
    distlock::hiredis_connection admin{c.server.uri()};
    const auto set = [&](std::string_view password) {
        const auto answer =
            distlock::execute(admin, distlock::command{{"CONFIG", "SET", "requirepass", password}});
        CHECK(answer.text() == "OK");
    };
    c.repeat([&](int) {
        set("secret");
        const auto killed = distlock::execute(
            admin, distlock::command{{"CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"}});
        CHECK(killed.number() > 0);
        campaign::wait_for(150ms);
        set("");
    });
    c.end();
    c.expect_some("authentication_failed", c.people.errors(errc::authentication_failed), campaign::often);
}

TEST_CASE("C2: a user who is removed is told, and owns nothing for longer than a lease") {
    campaign::options how{.people = at_work,
                          .users = {{"worker", "on", ">secret", "~*", "&*", "+@all"}},
                          .login = "worker:secret@"};
    campaign c("C2", lease / 4 + timing_tolerance, how);
    c.repeat([&](int) {
        c.server.command({"ACL", "DELUSER", "worker"});
        campaign::wait_for(200ms);
        c.server.command({"ACL", "SETUSER", "worker", "on", ">secret", "~*", "&*", "+@all"});
    });
    c.end();
    c.expect_some("authentication_failed", c.people.errors(errc::authentication_failed), campaign::often);
}

TEST_CASE("C3: a permission that is taken away is an error that says so, and comes back without a trace") {
    campaign::options how{.people = at_work,
                          .users = {{"worker", "on", ">secret", "~*", "&*", "+@all"}},
                          .login = "worker:secret@"};
    // What is not permitted in the middle of a hand-over leaves the lock to its lease.
    campaign c("C3", lease + timing_tolerance, how);
    constexpr const char* taken[] = {"evalsha", "zadd", "set", "pexpire", "zrem", "incr", "del", "time"};
    c.repeat([&](int n) {
        const std::string what = taken[n % 8];
        c.server.command({"ACL", "SETUSER", "worker", "-" + what});
        campaign::wait_for(200ms);
        c.server.command({"ACL", "SETUSER", "worker", "+" + what});
    });
    c.end();
    c.expect_some("permission_denied", c.people.errors(errc::permission_denied));
}

TEST_CASE(
    "C5: a server that becomes a replica says nothing of who owns what, and owners keep their locks when it "
    "is a master again") {
    campaign c("C5", lease + timing_tolerance,
               {.people = {.lease = 2s, .longest_work = 300ms, .patience = 700ms}});
    c.repeat([&](int) {
        c.server.command({"REPLICAOF", "127.0.0.1", "1"});
        campaign::wait_for(150ms);
        c.server.command({"REPLICAOF", "NO", "ONE"});
    });
    c.end();
    c.expect_some("read_only", c.people.errors(errc::read_only));
    CHECK(c.people.lost() == 0);
}

TEST_CASE("C6: a replica without its master is waited for") {
    campaign c("C6", timing_tolerance,
               {.people = {.lease = 2s, .longest_work = 300ms, .patience = 700ms},
                .server = {.arguments = {"--replica-serve-stale-data", "no"}}});
    c.repeat([&](int) {
        c.server.command({"REPLICAOF", "127.0.0.1", "1"});
        campaign::wait_for(150ms);
        c.server.command({"REPLICAOF", "NO", "ONE"});
    });
    c.end();
    CHECK(c.people.lost() == 0);
    c.expect_some("unavailable", c.people.errors(errc::unavailable));
}

TEST_CASE(
    "C7: a server that wants replicas it has not refuses, says so, and its locks end with their leases") {
    campaign c("C7", lease + timing_tolerance, {.people = at_work});
    c.repeat([&](int) {
        c.server.command({"CONFIG", "SET", "min-replicas-to-write", "1"});
        campaign::wait_for(200ms);
        c.server.command({"CONFIG", "SET", "min-replicas-to-write", "0"});
    });
    c.end();
    c.expect_some("writes_refused", c.people.errors(errc::writes_refused), campaign::often);
    c.expect_some("refused", c.people.outcomes(release_outcome::refused));
}

namespace {

// Leases so long that only looks and offers end a wait.
const campaign::options serving_on{.people = {.names = 1, .lease = 30s, .patience = 5s},
                                   .serves_on = true,
                                   .users = {{"worker", "on", ">secret", "~*", "&*", "+@all"}},
                                   .login = "worker:secret@"};

}  // namespace

TEST_CASE("C9: where PUBLISH is not permitted waiters find by looking that the lock is theirs") {
    campaign c("C9", 1250ms + timing_tolerance, serving_on);
    c.repeat([&](int) {
        c.server.command({"ACL", "SETUSER", "worker", "-publish", "-spublish"});
        const int before = c.people.grants();
        CHECK(eventually([&] { return c.people.grants() >= before + 3; }));
        c.server.command({"ACL", "SETUSER", "worker", "+publish", "+spublish"});
    });
    c.end();
    CHECK(c.people.all_errors() == 0);
    CHECK(c.people.lost() == 0);
}

TEST_CASE("C10: where SUBSCRIBE is not permitted waiters find the lock by looking, and it is never lost") {
    campaign c("C10", 1250ms + timing_tolerance, serving_on);
    c.repeat([&](int) {
        c.server.command({"ACL", "SETUSER", "worker", "-subscribe", "-ssubscribe"});
        c.server.command({"CLIENT", "KILL", "TYPE", "pubsub"});
        const int before = c.people.grants();
        CHECK(eventually([&] { return c.people.grants() >= before + 20; }));
        c.server.command({"ACL", "SETUSER", "worker", "+subscribe", "+ssubscribe"});
    });
    c.end();
    CHECK(c.people.all_errors() == 0);
    CHECK(c.people.lost() == 0);
}

}  // namespace access_tests
