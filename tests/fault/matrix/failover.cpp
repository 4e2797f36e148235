// The table of faults, part D: another server takes the place of the one that is lost, without
// what that one did last.
#include <chrono>
#include <string>
#include <vector>

#include <distlock/distlock.hpp>
#include <distlock/testing.hpp>

#include "fault/matrix/campaign.hpp"
#include "support/catch.hpp"
#include "support/shifted_clock.hpp"
#include "support/waiting.hpp"

namespace failover_tests {

using distlock::testing::redis_server;
using distlock::testing::redis_server_options;
using clk = distlock::clock;

namespace {

// A campaign whose server fails over to another, and comes back empty before the next time.
struct pair {
    explicit pair(const std::string& id, const std::vector<std::string>& first_clock = {},
                  const std::vector<std::string>& second_clock = {})
        : c(id, lease + timing_tolerance,
            {.people = at_work, .server = with(first_clock), .by_address = true}),
          second(with(second_clock)) {}

    static redis_server_options with(const std::vector<std::string>& clock) {
        return {.tcp = true, .arguments = {"--repl-diskless-sync-delay", "0"}, .environment = clock};
    }

    // What the first did in `unseen` before its end, the second has not.
    void fail_over(std::chrono::milliseconds unseen) {
        second.command({"REPLICAOF", "127.0.0.1", std::to_string(c.server.port())});
        CHECK(eventually([&] {
            return second.command({"INFO", "replication"}).find("master_link_status:up") != std::string::npos;
        }));
        const auto from = clk::now();
        second.command({"REPLICAOF", "NO", "ONE"});
        CHECK(second.command({"DBSIZE"}) != "0");
        lost_before_ = c.people.lost();
        campaign::wait_for(unseen);
        c.server.kill();
        c.move_to(second);
        c.lost_since(from);
    }
    void come_back() {
        lost_ += c.people.lost() - lost_before_;
        const auto from = clk::now();
        c.server.start();
        c.move_to(c.server);
        second.kill();
        c.lost_since(from);
        second.start();
        c.all_is_well();
    }
    void end() {
        come_back();
        c.end();
        c.expect_some("lost", lost_);
    }

    campaign c;
    redis_server second;

  private:
    int lost_before_ = 0;
    int lost_ = 0;  // to fail-overs
};

}  // namespace

TEST_CASE(
    "D2: a fail-over to a replica that lacks the last locks makes owners overlap for the rest of a lease at "
    "most, and no late write is accepted") {
    pair two("D2");
    two.c.repeat([&](int n) {
        if (n > 0) two.come_back();
        two.fail_over(20ms * (n % 5));
    });
    two.end();
}

TEST_CASE(
    "D4: a fail-over to a replica whose clock is a minute ahead makes owners overlap for the rest of a lease "
    "at most, and no late write is accepted") {
    shifted_clock of_first;
    shifted_clock of_second;
    pair two("D4", of_first.environment(), of_second.environment());
    two.c.repeat([&](int n) {
        if (n > 0) {
            of_first.jump_wall(60s);  // with its data and its clock both set back fences would fall
            two.come_back();
        }
        of_second.jump_wall(60s);
        two.fail_over(20ms * (n % 5));
    });
    of_first.jump_wall(60s);
    two.end();
}

}  // namespace failover_tests
