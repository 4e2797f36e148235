// Owners that are stopped between looking at their lock and writing, for longer than a lease: the lock cannot
// keep them from writing, a resource that looks at fencing tokens does.
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <list>
#include <poll.h>
#include <random>
#include <string>
#include <system_error>

#include <distlock/distlock.hpp>
#include <distlock/hiredis.hpp>
#include <distlock/testing.hpp>

#include "fault/fenced_resource/store.hpp"
#include "fault/row.hpp"
#include "support/catch.hpp"
#include "support/lab_figures.hpp"
#include "support/owner_process.hpp"
#include "support/waiting.hpp"

namespace fenced_resource_tests {

using namespace std::chrono_literals;
using distlock::release_outcome;
using clk = distlock::clock;

namespace {

constexpr std::size_t owner_count = 4;
constexpr auto lease = 60ms;

struct desk {
    std::atomic<bool> about_to_write{false};  // it has looked at its lock
    std::atomic<bool> was_stopped{false};     // there
};

struct experiment {
    distlock::testing::recorder book{1U << 20U};
    std::array<desk, owner_count> desks;
    twin_stores stores;
    std::atomic<std::size_t> writes_by_stopped{0};
    std::atomic<std::size_t> failures{0};  // of the lock or its server
    std::atomic<bool> over{false};
};

// Is about to write for as long as `delay`, after its look at the lock, and writes
// whatever happened meanwhile.
// Returns: what the careless store keeps of it.
attempt* use(attempt a, experiment& all, desk& mine, std::chrono::milliseconds delay) {
    mine.was_stopped = false;
    mine.about_to_write = true;
    ::poll(nullptr, 0, static_cast<int>(delay.count()));
    mine.about_to_write = false;
    a.stopped = mine.was_stopped;
    return all.stores.write(a, all.book);
}

bool own_in_turn(const std::string& uri, experiment& all, desk& mine, std::uint32_t seed) {
    std::mt19937 random(seed);
    distlock::hiredis_connection redis{uri};
    distlock::mutex m{redis, "resource", {.lease = lease, .fencing = true, .recheck = 5ms}};
    while (!all.over) {
        std::error_code trouble;
        const auto called = clk::now();
        if (!m.try_lock_for(500ms, trouble)) {
            all.failures += static_cast<bool>(trouble);
            continue;
        }
        const auto came = clk::now();
        const auto until = m.valid_until();
        if (until <= came) {  // it was stopped
            m.unlock();
            continue;
        }
        const auto fence = m.fencing_token();
        const auto hold = all.book.granted("resource", called, until, fence, {}, came);
        attempt* const written =
            use({.fence = fence, .granted = came, .ended = until}, all, mine, random() % 3 * 1ms);
        all.book.looked(hold, m.valid_until());
        all.book.released(hold, clk::now());
        const bool released = m.unlock() == release_outcome::released;
        if (written == nullptr) continue;
        written->released = released;
        all.writes_by_stopped += written->stopped;
    }
    return true;
}

// Stops owners: most of them about to write, some wherever they are. One always goes on, to take over.
class saboteur {
  public:
    saboteur(std::list<owner_process>& owners, experiment& all) : owners_(owners), all_(all) {}

    /// Returns: false when an owner has died.
    bool act() {
        const auto now = clk::now();
        std::size_t i = 0;
        for (owner_process& o : owners_) {
            const std::size_t who = i++;
            if (o.stopped()) {
                if (now >= until_[who]) o.go_on();
                continue;
            }
            const auto stopped = std::count_if(owners_.begin(), owners_.end(),
                                               [](const owner_process& other) { return other.stopped(); });
            if (stopped + 1 >= static_cast<std::ptrdiff_t>(owner_count)) continue;
            const bool blindly = random_() % 1000 == 0;
            if (!blindly && (!all_.desks[who].about_to_write || random_() % 4 == 0)) continue;
            if (!o.stop()) return false;
            // It may have moved on meanwhile.
            if (all_.desks[who].about_to_write) all_.desks[who].was_stopped = true;
            until_[who] = clk::now() + lease + lease * (10 + random_() % 91) / 100;
            ++stops_;
        }
        return true;
    }

    std::size_t stops() const { return stops_; }

  private:
    std::list<owner_process>& owners_;
    experiment& all_;
    std::array<clk::time_point, owner_count> until_{};
    std::mt19937 random_{20240229};
    std::size_t stops_ = 0;
};

// How many writes by owners that were stopped: the figure is made of 3,000.
std::size_t wanted() {
    return static_cast<std::size_t>(std::max({60, injections(60), little_or_all(0, 3000)}));
}

}  // namespace

TEST_CASE(
    "an owner that is stopped for longer than its lease cannot write past a resource that looks at fencing "
    "tokens") {
    const std::size_t count = wanted();
    const auto give_up = clk::now() + 30s + count * 500ms;
    interprocess_object<experiment> all;
    const distlock::testing::redis_server server;
    const std::string uri = server.uri() + "?command_timeout=30ms";

    std::list<owner_process> owners;
    for (std::size_t i = 0; i < owner_count; ++i) {
        owners.emplace_back(
            [&, i] { return own_in_turn(uri, *all, all->desks[i], static_cast<std::uint32_t>(i + 1)); });
    }
    saboteur fault(owners, *all);
    while (all->writes_by_stopped < count && clk::now() < give_up && fault.act()) ::poll(nullptr, 0, 1);
    all->over = true;
    for (owner_process& o : owners) o.go_on();
    CHECK(eventually([&] {
        return std::all_of(owners.begin(), owners.end(), [](owner_process& o) { return o.ended_well(); });
    }));
    owners.clear();

    const auto told = distlock::testing::check_history(all->book.events());
    const verdict careless(all->stores.careless());
    const std::size_t attempts = all->stores.careless().size();
    figure(
        "fenced resource: %zu of %zu writes came from owners stopped after their look (%zu stops, leases of "
        "%d ms, %zu lock failures): %zu violations with fencing tokens, %zu stale ones accepted without",
        careless.by_stopped_owners, attempts, fault.stops(), static_cast<int>(lease.count()),
        all->failures.load(), told.violations.size(), careless.stale);

    show_row("E7", static_cast<long>(careless.by_stopped_owners), told.violations.size(), 0, 0);
    CHECK(attempts < twin_stores::most);
    CHECK(told.text().substr(0, 2000) == "");
    // Else nothing was injected, and the figure above says nothing.
    CHECK(careless.by_stopped_owners >= count);
    CHECK(careless.stale_stopped > 0);
    // Fencing tokens tell exactly which writes are late: none was refused without a reason.
    CHECK(careless.stale_by_fence == careless.stale);
    CHECK(all->stores.refused() == careless.stale);
    // An owner that was late has freed nobody's lock.
    CHECK(careless.stale_released == 0);
}

}  // namespace fenced_resource_tests
