// The table of faults, part E: clocks that jump and drift, of the server and of clients. Names begin with the
// row's number in faults.txt.
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <unistd.h>
#include <vector>

#include <distlock/distlock.hpp>
#include <distlock/hiredis.hpp>
#include <distlock/testing.hpp>

#include "fault/matrix/campaign.hpp"
#include "support/catch.hpp"
#include "support/shifted_clock.hpp"

namespace clock_tests {

using distlock::release_outcome;
using distlock::testing::redis_server;
using clk = distlock::clock;

namespace {

// Another process of this program, which runs one hidden test case under a clock of its own.
class shifted_client {
  public:
    shifted_client(const redis_server& server, const shifted_clock& clock, const std::string& test)
        : notes_(server.folder() + "/client.log"),
          process_("/proc/self/exe", {test}, notes_, environment(server, clock)) {}

    /// Returns: whether it said so.
    bool said(const std::string& what) const { return text().find(what) != std::string::npos; }
    std::string text() const {
        std::ifstream file(notes_);
        return {std::istreambuf_iterator<char>(file), {}};
    }

  private:
    static std::vector<std::string> environment(const redis_server& server, const shifted_clock& clock) {
        auto all = clock.environment();
        all.push_back("DISTLOCK_LAB_SERVER=" + server.uri());
        return all;
    }

    const std::string notes_;
    distlock::testing::impl::child_process process_;
};

constexpr const char* looks_after_jumps =
    "client: says in the first statement after a jump of its clock whether it owns its lock";

std::string server_of_client() {
    const char* const uri = std::getenv("DISTLOCK_LAB_SERVER");
    return uri != nullptr ? uri : "";
}

}  // namespace

TEST_CASE(
    "E1: when the server's clock is set forward, owners are told in a third of the lease, and no late write "
    "is accepted") {
    shifted_clock clock;
    // As in A14.
    campaign c("E1", lease + timing_tolerance,
               {.people = at_work, .server = {.environment = clock.environment()}});
    c.repeat([&](int) {
        const auto from = clk::now();
        clock.jump_wall(1h);
        c.lost_since(from);
        campaign::wait_for(lease / 3);
    });
    c.end();
    c.expect_some("lost", c.people.lost());
}

TEST_CASE("E2: when the server's clock is set back, owners who live go on as before") {
    shifted_clock clock;
    campaign c("E2", timing_tolerance, {.people = at_work, .server = {.environment = clock.environment()}});
    c.repeat([&](int) { clock.jump_wall(-1h); });
    c.end();
    CHECK(c.people.lost() == 0);
}

TEST_CASE(
    "E2: the lock of an owner who died before the server's clock was set back is shown, and freed by an "
    "operator") {
    shifted_clock clock;
    redis_server server{{.environment = clock.environment()}};
    distlock::hiredis_connection redis{server.uri()};
    server.command({"SET", "orders", "a dead owner's", "PX", "1000"});
    clock.jump_wall(-1h);
    const auto seen = distlock::inspect(redis, "orders");
    REQUIRE(seen.holder);
    CHECK(seen.holder->token == "a dead owner's");
    CHECK(seen.remaining > 59min);
    CHECK(distlock::force_release(redis, "orders"));
    distlock::mutex m{redis, "orders", {.lease = 1s}};
    CHECK(m.try_lock());
}

TEST_CASE("E3: a server's clock that is one per cent too fast or too slow lets nobody in too early") {
    shifted_clock clock;
    campaign c("E3", timing_tolerance,
               {.people = {.longest_work = 900ms, .patience = 1500ms, .renew = false},
                .server = {.environment = clock.environment()}});
    c.repeat([&](int n) {
        clock.rate_wall(n % 2 == 0 ? 10'000 : -10'000);
        campaign::wait_for(lease);
    });
    c.end();
    c.expect_some("lost", c.people.lost());
}

TEST_CASE("client: locks and unlocks until its server is gone", "[.]") {
    distlock::hiredis_connection redis{server_of_client() + "?command_timeout=5s"};
    distlock::mutex m{redis, "shifted", {.lease = 60s, .fencing = true, .release = distlock::confirmed}};
    for (int done = 0;; ++done) {
        m.lock();
        const auto left = m.remaining();
        if (!m.owns_lock() || left > 60s || left < 50s) break;
        if (m.unlock() != release_outcome::released) break;
        if (done % 50 == 49) figure("%d turns.", done + 1);
    }
    figure("wrong");
}

TEST_CASE("E4: a client's wall clock that jumps changes nothing for its locks") {
    row line("E4");
    shifted_clock clock;
    const redis_server server;
    const shifted_client client(server, clock, "client: locks and unlocks until its server is gone");
    const int count = injections(3);
    for (int n = 0; n < count; ++n) {
        clock.jump_wall(n % 2 == 0 ? 3600s * (n + 1) : -3600s * (n + 2));
        INFO(client.text());
        REQUIRE(eventually([&] {
            return client.said("\n" + std::to_string(50 * (n + 2)) + " turns.") || client.said("wrong");
        }));
        line.injected();
    }
    CHECK_FALSE(client.said("wrong"));
}

TEST_CASE(looks_after_jumps, "[.]") {
    distlock::hiredis_connection redis{server_of_client()};
    distlock::mutex m{redis, "shifted", {.lease = 600ms}};
    for (int round = 1;; ++round) {
        m.lock();
        auto before = clk::now();  // the jump comes after the next line
        figure("round %d", round);
        for (auto now = clk::now(); now - before < 600ms; now = clk::now()) before = now;
        const bool owns = m.owns_lock();
        figure("%s %d", owns ? "still" : "lost", round);
        m.unlock();
    }
}

TEST_CASE(
    "E5: after a suspension, which only CLOCK_BOOTTIME counts, the first statement says that the lock is "
    "lost") {
    row line("E5");
    shifted_clock clock;
    const redis_server server;
    const shifted_client client(server, clock, looks_after_jumps);
    const int count = injections(3);
    for (int n = 1; n <= count; ++n) {
        INFO(client.text());
        REQUIRE(eventually([&] { return client.said("round " + std::to_string(n) + "\n"); }));
        clock.jump_steady(601ms);
        REQUIRE(eventually([&] {
            return client.said(" " + std::to_string(n) + "\n") &&
                   client.said("lost " + std::to_string(n) + "\n");
        }));
        server.command({"DEL", "shifted"});
        line.injected();
    }
    CHECK_FALSE(client.said("still"));
}

TEST_CASE("client: asks a server that stands still", "[.]") {
    distlock::hiredis_connection redis(server_of_client() + "?connect_timeout=20s&command_timeout=20s");
    figure("there %d", redis.execute({"PING"}).is_status("PONG") ? 1 : 0);
    while (redis.execute({"PING"}).is_status("PONG")) continue;
    figure("no answer %d", 1);
}

// It waited for as much of its time-out as was left when the machine went to sleep.
TEST_CASE("E5: a call that was under way when the machine was suspended ends when its time is over") {
    row line("E5");
    shifted_clock clock;
    redis_server server;
    const shifted_client client(server, clock, "client: asks a server that stands still");
    REQUIRE(eventually([&] { return client.said("there 1"); }));
    server.pause();
    campaign::wait_for(100ms);  // it has asked
    clock.jump_steady(20s);
    const auto from = clk::now();
    CHECK(eventually([&] { return client.said("no answer"); }));
    CHECK(clk::now() - from < 2s + timing_tolerance);
    server.resume();
    line.injected();
}

}  // namespace clock_tests
