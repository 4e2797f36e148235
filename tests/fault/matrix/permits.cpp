// The table of faults: owners of permits. Names begin with the row's number in faults.txt.
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <list>
#include <poll.h>
#include <random>
#include <signal.h>
#include <string>
#include <utility>
#include <vector>

#include <distlock/distlock.hpp>
#include <distlock/hiredis.hpp>
#include <distlock/testing.hpp>

#include "fault/lateness.hpp"
#include "fault/row.hpp"
#include "support/catch.hpp"
#include "support/interprocess_object.hpp"
#include "support/lab_figures.hpp"
#include "support/owner_process.hpp"
#include "support/timing_tolerance.hpp"
#include "support/waiting.hpp"

namespace permits_tests {

namespace {

using clk = distlock::clock;
using semaphore = distlock::counting_semaphore<distlock::hiredis_connection>;

constexpr std::chrono::milliseconds lease{1000};
constexpr std::int64_t limit = 8;
constexpr int workers = 10;
constexpr int killed_at_once = 3;
constexpr std::chrono::milliseconds longest_work{8};
// Those that stand before work first.
constexpr std::chrono::milliseconds bound =
    lease + std::chrono::milliseconds{50} + workers * (longest_work + std::chrono::milliseconds{1});

// What a worker believed, as far as it lived.
struct beliefs {
    static constexpr std::size_t most = 20'000;
    std::atomic<bool> begun{false};
    std::atomic<bool> at_work{false};
    std::atomic<std::size_t> count{0};
    std::array<std::int64_t, most> from{};
    std::array<std::int64_t, most> to{};  // zero: it was killed meanwhile
    std::array<std::int64_t, most> n{};
};
struct board {
    static constexpr std::size_t most = 160;
    std::array<char, 200> uri{};
    std::atomic<bool> over{false};
    std::array<beliefs, most> of{};
};

bool work_all_the_time(board& all, beliefs& mine, int seed) {
    while (!mine.begun) {
        if (all.over) return true;
        ::poll(nullptr, 0, 5);
    }
    distlock::hiredis_connection redis{all.uri.data()};
    semaphore pool{redis, "pool", limit, {.lease = lease}};
    std::mt19937 random(static_cast<std::uint32_t>(seed));
    while (!all.over && mine.count < beliefs::most) {
        const std::int64_t n = random() % 4 == 0 ? 2 : 1;
        const auto got = pool.acquire(n);
        const auto at = mine.count.load();
        mine.from[at] = clk::now().time_since_epoch().count();
        mine.n[at] = n;
        mine.count = at + 1;
        mine.at_work = true;
        const auto end = clk::now() + std::chrono::milliseconds(random() % longest_work.count() + 1);
        while (clk::now() < std::min(end, got.valid_until())) ::poll(nullptr, 0, 1);
        mine.at_work = false;
        mine.to[at] = clk::now().time_since_epoch().count();
    }
    return true;
}

// Returns: how many permits were out at once, at most.
std::int64_t most_at_once(const board& all, const std::vector<std::int64_t>& killed) {
    std::vector<std::pair<std::int64_t, std::int64_t>> changes;
    for (std::size_t w = 0; w < killed.size(); ++w) {
        const beliefs& one = all.of[w];
        for (std::size_t i = 0; i < one.count; ++i) {
            changes.emplace_back(one.from[i], one.n[i]);
            changes.emplace_back(one.to[i] != 0 ? one.to[i] : killed[w], -one.n[i]);
        }
    }
    std::sort(changes.begin(), changes.end());
    std::int64_t now = 0;
    std::int64_t most = 0;
    for (const auto& [at, n] : changes) most = std::max(most, now += n);
    return most;
}

}  // namespace

TEST_CASE(
    "F20: permits of owners that were killed come back when their own leases end, and never are more out "
    "than "
    "there are") {
    const int rounds = injections(2);
    interprocess_object<board> all;
    const auto count = static_cast<std::size_t>(workers + std::min(rounds, 50) * killed_at_once);
    REQUIRE(count <= board::most);
    std::list<owner_process> processes;
    for (std::size_t i = 0; i < count; ++i)
        processes.emplace_back([&, i] { return work_all_the_time(*all, all->of[i], static_cast<int>(i)); });

    const distlock::testing::redis_server server;
    const std::string uri = server.uri();
    std::copy(uri.begin(), uri.end(), all->uri.begin());
    for (std::size_t i = 0; i < workers; ++i) all->of[i].begun = true;

    distlock::hiredis_connection redis{uri};
    semaphore pool{redis, "pool", limit, {.lease = lease}};
    lateness_probe machine;
    std::vector<std::int64_t> killed(count);
    row line("F20", bound);
    auto victim = processes.begin();
    std::size_t first = 0;
    for (int n = 0; n < std::min(rounds, 50); ++n) {
        INFO("injection " << n);
        machine.reset();
        for (int k = 0; k < killed_at_once; ++k, ++victim, ++first) {
            auto& one = all->of[first];
            const auto came = one.count.load();
            REQUIRE(eventually([&] { return one.count > came + 2 && one.at_work; }));
            ::kill(victim->pid(), SIGKILL);
            killed[first] = clk::now().time_since_epoch().count();
        }
        const auto at = clk::now();
        {
            const auto all_of_them = pool.acquire(limit);  // they are back when all can be had at once
            const auto took = clk::now() - at;
            line.took(took);
            CHECK(took <= bound + timing_tolerance + chain * machine.worst());
            CHECK(all_of_them.n() == limit);
        }
        line.injected();
        for (int k = 0; k < killed_at_once; ++k)
            all->of[static_cast<std::size_t>(workers + n * killed_at_once + k)].begun = true;
    }
    all->over = true;
    for (auto p = victim; p != processes.end(); ++p)
        CHECK(eventually([&] { return p->ended_well(); }, std::chrono::seconds{60}));
    const auto most = most_at_once(*all, killed);
    line.overlapped(most > limit ? 1 : 0);
    CHECK(most <= limit);
    CHECK(most >= limit - 1);
    CHECK(eventually([&] { return server.command({"EXISTS", "pool", "{pool}:distlock:queue"}) == "0"; }));
    CHECK(server.command({"HGET", "{pool}:distlock:limit", "used"}) == "0");
}

}  // namespace permits_tests
