// The server ends every connection again and again (CLIENT KILL) while 50 locks are held: none is lost.
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <distlock/distlock.hpp>
#include <distlock/hiredis.hpp>
#include <distlock/testing.hpp>

#include "fault/row.hpp"
#include "support/catch.hpp"
#include "support/lab_figures.hpp"
#include "support/lease_observers.hpp"
#include "support/server_counts.hpp"
#include "support/waiting.hpp"

namespace killed_connections_tests {

using namespace std::chrono_literals;
using clk = distlock::clock;
using distlock::hiredis_connection;
using distlock::release_outcome;
using distlock::testing::redis_server;

namespace {

constexpr std::chrono::milliseconds lease = 1s;
constexpr int locks = 50;

struct result {
    long kills = 0;  // of one connection each
    long renewals = 0;
    int not_owned = 0;
    int not_there = 0;
    int risks = 0;
    int losses = 0;
    int released = 0;
};

// Ends all connections every `pause`, for `span`, while the locks are held.
result kill_connections(clk::duration pause, clk::duration span) {
    redis_server server{{.tcp = true}};
    hiredis_connection redis{server.uri()};
    const auto watching = std::make_shared<counting_observer>();
    std::deque<distlock::mutex<hiredis_connection>> held;
    std::vector<std::string> names;
    for (int i = 0; i < locks; ++i) {
        names.push_back("killed:" + std::to_string(i));
        const auto how = i % 2 == 0 ? distlock::posted : distlock::confirmed;
        held.emplace_back(redis, names.back(), distlock::lock_options{.lease = lease, .release = how},
                          watching)
            .lock();
    }
    std::vector<std::string_view> all_keys{"MGET"};
    all_keys.insert(all_keys.end(), names.begin(), names.end());
    const std::string tokens = server.command(all_keys);
    const long before = calls_at(server, "pexpire");

    result seen;
    const auto end = clk::now() + span;
    for (auto next = clk::now(); clk::now() < end; next += pause) {
        CHECK(eventually([&] {
            seen.not_owned += static_cast<int>(
                std::count_if(held.begin(), held.end(), [](const auto& m) { return !m.owns_lock(); }));
            return clk::now() >= next;
        }));
        seen.kills +=
            std::atol(server.command({"CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"}).c_str());
        seen.not_there += server.command(all_keys) != tokens;
    }
    seen.renewals = calls_at(server, "pexpire") - before;
    for (auto& m : held) {
        const auto what = m.unlock();
        seen.released += what == release_outcome::released || what == release_outcome::posted;
    }
    CHECK(eventually([&] {
        return std::all_of(held.begin(), held.end(), [](const auto& m) { return m.residual() == 0ms; });
    }));
    CHECK(server.command({"DBSIZE"}) == "0");
    // Of a lost one its observer is told by another thread.
    CHECK(eventually([&] { return seen.released + watching->losses >= locks; }));
    seen.risks = watching->risks;
    seen.losses = watching->losses;
    return seen;
}

void judge(const result& seen, const char* how_often, clk::duration span) {
    figure(
        "connections killed %s for %.0f s: %ld; %ld renewals of %d locks, %d of them failed at first; lost: "
        "%d",
        how_often, std::chrono::duration<double>(span).count(), seen.kills, seen.renewals, locks, seen.risks,
        seen.losses);
    show_row("A17", seen.kills, static_cast<std::size_t>(seen.losses), 0, 0);
    CHECK(seen.kills > span / 1s);
}

}  // namespace

TEST_CASE("no lock is lost when all connections are killed ten times a second") {
    const clk::duration span = little_or_all<clk::duration>(3s, 60s);
    const result seen = kill_connections(100ms, span);
    judge(seen, "10 times a second", span);
    CHECK(seen.renewals > 2 * locks);  // connections were killed that did so
    CHECK(seen.losses == 0);
    CHECK(seen.not_owned == 0);
    CHECK(seen.not_there == 0);
    CHECK(seen.released == locks);
}

// Here every try may fail, and now and then all tries of one lease do; on a machine with little time, of all.
TEST_CASE("a lock is kept or its loss is told when all connections are killed as often as can be") {
    const clk::duration span = little_or_all<clk::duration>(3s, 20s);
    const result seen = kill_connections(0ms, span);
    judge(seen, "without a pause", span);
    CHECK(seen.released + seen.losses == locks);
}

}  // namespace killed_connections_tests
