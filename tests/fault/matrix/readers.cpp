// The table of faults: readers and a writer. Names begin with the row's number in faults.txt.
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

namespace readers_tests {

namespace {

using clk = distlock::clock;
using lock = distlock::shared_mutex<distlock::hiredis_connection>;

constexpr std::chrono::milliseconds lease{1000};
constexpr std::chrono::milliseconds longest_read{15};
constexpr int most_readers = 8;

// What a reader believed, as far as it lived.
struct reads {
    static constexpr std::size_t most = 20'000;
    std::atomic<bool> begun{false};
    std::atomic<bool> reading{false};
    std::atomic<std::size_t> count{0};
    std::array<std::int64_t, most> from{};
    std::array<std::int64_t, most> to{};  // zero: it was killed meanwhile
};
struct board {
    static constexpr std::size_t most = 256;
    std::array<char, 200> uri{};
    std::atomic<bool> over{false};
    std::array<reads, most> of{};
};

bool read_all_the_time(board& all, reads& mine, int seed) {
    while (!mine.begun) {
        if (all.over) return true;
        ::poll(nullptr, 0, 5);
    }
    distlock::hiredis_connection redis{all.uri.data()};
    lock catalogue{redis, "catalogue", {.lease = lease}};
    std::mt19937 random(static_cast<std::uint32_t>(seed));
    while (!all.over && mine.count < reads::most) {
        catalogue.lock_shared();
        const auto at = mine.count.load();
        mine.from[at] = clk::now().time_since_epoch().count();
        mine.count = at + 1;
        mine.reading = true;
        const auto end = clk::now() + std::chrono::milliseconds(random() % longest_read.count() + 1);
        while (clk::now() < std::min(end, catalogue.shared_until())) ::poll(nullptr, 0, 1);
        mine.reading = false;
        mine.to[at] = clk::now().time_since_epoch().count();
        catalogue.unlock_shared();
    }
    return true;
}

struct writing {
    std::int64_t from;
    std::int64_t to;
};

// Returns: how often somebody read while somebody wrote.
std::size_t overlaps(const board& all, const std::vector<writing>& writes,
                     const std::vector<std::int64_t>& killed) {
    std::size_t found = 0;
    for (std::size_t r = 0; r < killed.size(); ++r) {
        const reads& one = all.of[r];
        for (std::size_t i = 0; i < one.count; ++i) {
            const auto to = one.to[i] != 0 ? one.to[i] : killed[r];
            found +=
                static_cast<std::size_t>(std::count_if(writes.begin(), writes.end(), [&](const writing& w) {
                    return one.from[i] < w.to && w.from < to;
                }));
        }
    }
    return found;
}

}  // namespace

TEST_CASE(
    "F21: readers that keep coming keep a writer out for no longer than the longest read, nor does one of "
    "them that dies, for longer than its own lease") {
    const int kills = injections(2);
    interprocess_object<board> all;
    const auto count = static_cast<std::size_t>(most_readers + kills);
    REQUIRE(count <= board::most);
    std::list<owner_process> readers;
    for (std::size_t i = 0; i < count; ++i)
        readers.emplace_back([&, i] { return read_all_the_time(*all, all->of[i], static_cast<int>(i)); });

    const distlock::testing::redis_server server;
    const std::string uri = server.uri();
    std::copy(uri.begin(), uri.end(), all->uri.begin());
    for (std::size_t i = 0; i < most_readers; ++i) all->of[i].begun = true;

    distlock::hiredis_connection redis{uri};
    lock catalogue{redis, "catalogue", {.lease = lease}};
    lateness_probe machine;
    std::vector<writing> writes;
    std::vector<std::int64_t> killed(count);
    row line("F21", lease + std::chrono::milliseconds{50});
    const auto write = [&](clk::time_point since, clk::duration bound) {
        catalogue.lock();
        const auto from = clk::now();
        while (clk::now() < from + std::chrono::milliseconds{2}) ::poll(nullptr, 0, 1);
        writes.push_back({from.time_since_epoch().count(), clk::now().time_since_epoch().count()});
        catalogue.unlock();
        line.took(from - since);
        // Who reads, who leaves and who is served may each be late.
        CHECK(std::chrono::duration<double, std::milli>(from - since).count() <=
              std::chrono::duration<double, std::milli>(bound + timing_tolerance + chain * machine.worst())
                  .count());
    };
    auto victim = readers.begin();
    for (int n = 0; n < kills; ++n, ++victim) {
        INFO("injection " << n);
        auto& one = all->of[static_cast<std::size_t>(n)];
        const auto came = one.count.load();
        for (int i = 0; i < 10; ++i) {
            machine.reset();
            write(clk::now(), longest_read);
        }
        REQUIRE(eventually([&] { return one.count > came + 3 && one.reading; }));
        machine.reset();
        ::kill(victim->pid(), SIGKILL);
        const auto at = clk::now();
        killed[static_cast<std::size_t>(n)] = at.time_since_epoch().count();
        write(at, lease + std::chrono::milliseconds{50});
        line.injected();
        all->of[static_cast<std::size_t>(most_readers + n)].begun = true;
    }
    all->over = true;
    for (auto r = victim; r != readers.end(); ++r)
        CHECK(eventually([&] { return r->ended_well(); }, std::chrono::seconds{60}));
    const auto found = overlaps(*all, writes, killed);
    line.overlapped(found);
    CHECK(found == 0);
    std::string left;
    const bool none = eventually([&] { return (left = server.command({"KEYS", "*"})).empty(); });
    INFO(left);
    CHECK(none);
}

}  // namespace readers_tests
