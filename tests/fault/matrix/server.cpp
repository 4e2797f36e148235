// The table of faults, part A: what happens to the server. Names begin with the row's number in faults.txt.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <string_view>

#include <distlock/distlock.hpp>
#include <distlock/hiredis.hpp>
#include <distlock/testing.hpp>

#include "fault/matrix/campaign.hpp"
#include "support/catch.hpp"

namespace server_tests {

using distlock::errc;
using distlock::release_outcome;
using clk = distlock::clock;

namespace {

// Work that lasts longer than leases: owners lose them in the middle.
const crew_options at_long_work{.longest_work = 900ms, .patience = 1500ms};

// Returns: the file to which a persistent server appends; servers before 7.0 have one, later
// ones a folder of them.
std::string written_last(const std::string& folder) {
    for (const auto& file : std::filesystem::recursive_directory_iterator(folder)) {
        const std::string name = file.path().filename();
        if (name.ends_with(".incr.aof") || name == "appendonly.aof") return file.path();
    }
    throw std::runtime_error("no log of a server in " + folder);
}

}  // namespace

TEST_CASE(
    "A1: a server that dies and comes back with its data after leases have ended has had one owner at a "
    "time") {
    campaign c("A1", 100ms + timing_tolerance, {.people = at_long_work, .server = {.persistent = true}});
    c.repeat(
        [&](int n) {
            c.server.kill();
            campaign::wait_for(lease + 100ms * (n % 3));
            c.server.start();
        },
        3);
    c.end();
    c.expect_some("unreachable", c.people.errors(errc::unreachable) + c.people.errors(errc::no_reply));
    c.expect_some("lost", c.people.lost());
}

TEST_CASE("A2: a server that dies and is back in time has its locks, and owners keep them") {
    campaign c("A2", lease + timing_tolerance,
               {.people = {.lease = 3s, .longest_work = 300ms}, .server = {.persistent = true}});
    c.repeat([&](int n) {
        c.server.kill();
        campaign::wait_for(10ms * (n % 10));
        c.server.start();
    });
    c.end();
    CHECK(c.people.lost() == 0);
}

TEST_CASE(
    "A3: when a server comes back without the last of its data, owners overlap for the rest of a lease at "
    "most, and no late write is accepted") {
    campaign c("A3", lease + timing_tolerance, {.people = at_work, .server = {.persistent = true}});
    c.repeat([&](int n) {
        const auto from = clk::now();
        c.server.kill();
        const std::string log = written_last(c.server.folder());
        const auto size = std::filesystem::file_size(log);
        const auto cut = static_cast<std::uintmax_t>(37 + 211 * ((n + 5) % 20));
        std::filesystem::resize_file(log, size - std::min(size, cut));
        c.server.start();
        c.lost_since(from);
    });
    c.end();
    c.expect_some("lost", c.people.lost());
}

TEST_CASE(
    "A4: when a server comes back empty, owners overlap for the rest of a lease at most, and no late write "
    "is accepted") {
    campaign c("A4", lease / 4 + timing_tolerance, {.people = at_work});
    c.repeat([&](int) {
        const auto from = clk::now();
        c.server.kill();
        c.server.start();
        c.lost_since(from);
    });
    c.end();
    c.expect_some("lost", c.people.lost());
}

TEST_CASE("A5: a server that loads its data is waited for") {
    campaign c("A5", timing_tolerance,
               {.people = {.lease = 3s, .longest_work = 50ms},
                .server = {.arguments = {"--enable-debug-command", "yes", "--key-load-delay", "300",
                                         "--loading-process-events-interval-bytes", "1024"}}});
    c.server.command({"DEBUG", "POPULATE", "500", "filler", "200"});
    c.repeat([&](int) { c.server.command({"DEBUG", "RELOAD"}); });
    c.server.command(
        {"EVAL", "for _, k in ipairs(redis.call('keys', 'filler*')) do redis.call('del', k) end", "0"});
    c.end();
    CHECK(c.people.lost() == 0);
}

TEST_CASE("A6: no lock is lost to a server that stands still for less than a lease") {
    campaign c("A6", timing_tolerance,
               {.people = {.lease = 1s, .longest_work = 400ms, .long_work = 3s, .patience = 1s}});
    c.repeat([&](int n) {
        c.server.pause();
        campaign::wait_for(100ms + 10ms * (n % 20));
        c.server.resume();
    });
    c.end();
    CHECK(c.people.lost() == 0);
}

TEST_CASE(
    "A7: a server that stands still for longer than a lease has one owner at a time, and forgotten locks end "
    "with the lease") {
    campaign c("A7", lease + timing_tolerance, {.people = at_long_work});
    c.repeat([&](int n) {
        c.server.pause();
        campaign::wait_for(lease + 20ms * (n % 10));
        c.server.resume();
    });
    c.end();
    c.expect_some("lost", c.people.lost());
}

TEST_CASE("A8: a slow server loses no lock while a renewal comes through in a third of the lease") {
    campaign c("A8", 3 * 100ms + timing_tolerance,
               {.people = {.lease = 1s, .longest_work = 500ms, .long_work = 3s, .patience = 1s},
                .behind_proxy = true});
    c.repeat([&](int n) {
        c.proxy->delay(distlock::testing::fault_proxy::part::reply, 20ms + 3ms * (n % 20));
        campaign::wait_for(400ms);
        c.proxy->leave_alone();
    });
    c.end();
    CHECK(c.people.lost() == 0);
}

TEST_CASE("A9: a server that is busy with somebody's script is waited for") {
    campaign c("A9", timing_tolerance,
               {.people = {.lease = 1s, .longest_work = 300ms, .long_work = 3s, .patience = 1s},
                .server = {.arguments = {"--lua-time-limit", "20"}}});
    c.repeat([&](int n) {
        std::jthread busy([&] {
            try {
                c.server.command({"EVAL", "while true do end", "0"});
            } catch (const distlock::error&) {}
        });
        campaign::wait_for(50ms + 10ms * (n % 20));
        CHECK(eventually([&] { return c.server.command({"SCRIPT", "KILL"}) == "OK"; }));
    });
    c.end();
    CHECK(c.people.lost() == 0);
}

TEST_CASE(
    "A10: a server that pauses its clients, as before a fail-over, leaves no forgotten lock for longer than "
    "a lease") {
    campaign c("A10", lease + timing_tolerance, {.people = at_work});
    c.repeat([&](int n) {
        c.server.command({"CLIENT", "PAUSE", "300", n % 2 == 0 ? "WRITE" : "ALL"});
        campaign::wait_for(300ms);
    });
    c.end();
}

TEST_CASE(
    "A11: a server that refuses writes for want of a disk is an error, and locks that could not be released "
    "end with the lease") {
    campaign c("A11", lease + timing_tolerance,
               {.people = at_work, .server = {.arguments = {"--save", "3600", "1000000"}}});
    const std::string in_the_way = c.server.folder() + "/dump.rdb";
    const auto save = [&](const char* expected) {
        c.server.command({"BGSAVE"});
        CHECK(eventually([&] {
            const auto state = c.server.command({"INFO", "persistence"});
            return state.find("rdb_bgsave_in_progress:0") != std::string::npos &&
                   state.find(std::string("rdb_last_bgsave_status:") + expected) != std::string::npos;
        }));
    };
    c.repeat(
        [&](int) {
            std::filesystem::remove(in_the_way);
            std::filesystem::create_directory(in_the_way);
            save("err");
            campaign::wait_for(200ms);
            std::filesystem::remove(in_the_way);
            save("ok");
        },
        3);
    c.end();
    c.expect_some("writes_refused", c.people.errors(errc::writes_refused), campaign::often);
    c.expect_some("refused", c.people.outcomes(release_outcome::refused));
}

TEST_CASE("A12: a server without memory refuses locks, and lets owners renew and release") {
    campaign c("A12", lease / 4 + timing_tolerance,
               {.people = {.longest_work = 300ms, .long_work = 1500ms, .patience = 700ms}});
    c.repeat([&](int) {
        c.server.command({"CONFIG", "SET", "maxmemory", "1"});
        campaign::wait_for(250ms);
        c.server.command({"CONFIG", "SET", "maxmemory", "0"});
    });
    c.end();
    c.expect_some("out_of_memory", c.people.errors(errc::out_of_memory), campaign::often);
    CHECK(c.people.outcomes(release_outcome::refused) == 0);
    CHECK(c.people.lost() == 0);
}

TEST_CASE("A13: where keys are evicted, owners are told, and no late write is accepted") {
    // The lock is gone as well as its queue: waiters find that when the TTL ends that they saw last.
    campaign c("A13", lease + timing_tolerance, {.people = at_work});
    constexpr std::array<const char*, 7> policies{"volatile-lru",    "volatile-lfu", "volatile-ttl",
                                                  "volatile-random", "allkeys-lru",  "allkeys-lfu",
                                                  "allkeys-random"};
    c.repeat([&](int n) {
        const auto from = clk::now();
        c.server.command(
            {"CONFIG", "SET", "maxmemory-policy", policies[static_cast<std::size_t>(n) % policies.size()]});
        c.server.command({"CONFIG", "SET", "maxmemory", "1"});
        c.server.command({"SET", "filler", "x"});
        campaign::wait_for(50ms);
        c.server.command({"CONFIG", "SET", "maxmemory", "0"});
        c.server.command({"DEL", "filler"});
        c.lost_since(from);
    });
    c.end();
    c.expect_some("lost", c.people.lost());
}

TEST_CASE(
    "A14: when somebody deletes all keys, owners are told in a third of the lease, and no late write is "
    "accepted") {
    // The lock is gone as well as its queue: waiters find that when the TTL ends that they saw last.
    campaign c("A14", lease + timing_tolerance, {.people = at_work});
    c.repeat([&](int) {
        const auto from = clk::now();
        c.server.command({"FLUSHALL"});
        c.lost_since(from);
        campaign::wait_for(lease / 3);
    });
    c.end();
    c.expect_some("lost", c.people.lost());
}

TEST_CASE("A15: scripts that the server forgets are sent again, and nobody sees it") {
    campaign c("A15", timing_tolerance, {});
    c.repeat([&](int) {
        const int before = c.people.grants();
        campaign::wait_for(200ms, [&] {
            c.server.command({"SCRIPT", "FLUSH"});
            return c.people.grants() > before + 20;
        });
    });
    c.end();
    CHECK(c.people.all_errors() == 0);
    CHECK(c.people.lost() == 0);
}

TEST_CASE("A16: a server that takes no more clients is waited for") {
    campaign c("A16", 1s + timing_tolerance, {.people = at_work});
    distlock::hiredis_connection admin{c.server.uri()};
    const auto set = [&](std::string_view most) {
        distlock::execute(admin, distlock::command{{"CONFIG", "SET", "maxclients", most}});
    };
    c.repeat([&](int) {
        set("1");
        distlock::execute(admin, distlock::command{{"CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"}});
        campaign::wait_for(150ms);
        set("1000");
    });
    c.end();
    CHECK(c.people.lost() == 0);
}

// What evicts a key deletes it.
TEST_CASE("A19: waiters whose queue is deleted, or is a key of another type, find the lock by looking") {
    campaign c("A19", 1250ms + timing_tolerance,
               {.people = {.names = 1, .lease = 30s, .patience = 2500ms}, .serves_on = true});
    const std::string queue = "{" + crew::name(0) + "}:distlock:queue";
    c.repeat(
        [&](int n) {
            campaign::wait_for(2s);  // all who lost their tickets are queued again
            CHECK(eventually([&] { return c.server.command({"DEL", queue}) == "1"; }));
            if (n % 3 == 0) return;
            // Of its own, or for what comes next.
            CHECK(eventually([&] {
                return c.server.command({"SET", queue, "x", "NX", "PX", n % 3 == 1 ? "1" : "300"}) == "OK";
            }));
            campaign::wait_for(200ms);
            c.server.command({"DEL", queue});
        },
        3);
    c.end();
    c.expect_some("wrong_type", c.people.errors(errc::wrong_type));
    CHECK(c.people.timeouts() == 0);  // also who lost its ticket
    CHECK(c.people.lost() == 0);
}

}  // namespace server_tests
