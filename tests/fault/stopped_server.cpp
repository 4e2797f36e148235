// The server stops (SIGSTOP) at a random moment while a lock is held: its owner is told when validity ends,
// before the server could have let anybody else in.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <deque>
#include <memory>
#include <optional>
#include <random>
#include <stop_token>
#include <string>
#include <vector>

#include <distlock/distlock.hpp>
#include <distlock/hiredis.hpp>
#include <distlock/testing.hpp>

#include "fault/lateness.hpp"
#include "fault/row.hpp"
#include "support/catch.hpp"
#include "support/lab_figures.hpp"
#include "support/sanitizers.hpp"
#include "support/timing_tolerance.hpp"
#include "support/waiting.hpp"

namespace stopped_server_tests {

using namespace std::chrono_literals;
using clk = distlock::clock;
using distlock::drift_margin;
using distlock::hiredis_connection;
using distlock::release_outcome;
using distlock::testing::redis_server;

namespace {

// How much later than promised an owner may be told.
constexpr clk::duration slack = instrumented ? timing_tolerance : 0ms;
constexpr clk::duration bound = 20ms + slack;

const std::string time_out = "?command_timeout=60ms";

// A lock that is held, and what its owner was told.
class watched {
  public:
    watched(hiredis_connection& redis, const std::string& name, std::chrono::milliseconds lease)
        : lease_(lease), lock_(redis, name, {.lease = lease}) {
        lock_.lock();
        token_ = lock_.lost();
        notice_ = std::make_unique<std::stop_callback<note>>(token_, note{this});
    }

    distlock::mutex<hiredis_connection>& lock() { return lock_; }
    std::chrono::milliseconds lease() const { return lease_; }
    // Effects: asks the server until when it has the key: the latest that its answer may mean.
    void ask(const redis_server& server) {
        asked_until_ = lock_.valid_until();
        const std::chrono::milliseconds left{std::atol(server.command({"PTTL", lock_.name()}).c_str())};
        gone_at_ = clk::now() + left;
    }
    // Returns: how long before the end of the key its owner was told; none when it was
    // renewed after it was asked.
    std::optional<clk::duration> ahead() const {
        if (lock_.valid_until() != asked_until_) return std::nullopt;
        return gone_at_ - lost_at();
    }

    bool told() const { return lost_at_.load() != clk::time_point{}; }
    clk::time_point lost_at() const { return lost_at_; }
    bool owned_when_told() const { return owned_; }

  private:
    struct note {
        watched* mine;
        void operator()() const {
            const auto now = clk::now();
            mine->owned_ = mine->lock_.owns_lock();
            mine->lost_at_ = now;
        }
    };

    const std::chrono::milliseconds lease_;
    clk::time_point asked_until_{};
    clk::time_point gone_at_{};
    distlock::mutex<hiredis_connection> lock_;
    std::atomic<clk::time_point> lost_at_{clk::time_point{}};
    std::atomic<bool> owned_{false};
    std::stop_token token_;
    std::unique_ptr<std::stop_callback<note>> notice_;
};

struct tally {
    int told = 0;             // of all that were to be
    int early = 0;            // before the end of validity
    int late = 0;             // after the bound
    int endangered = 0;       // when the server's key could already have been gone, by the rule
    int asked = 0;            // of these the server's word is known
    int owned = 0;            // owns_lock() was true in the callback, or after it
    spread after;             // the end of validity
    spread ahead;             // of the end of the key
    clk::duration machine{};  // how late it was itself meanwhile

    void add(watched& w, const lateness_probe& probe) {
        if (!w.told()) return;
        ++told;
        const auto lateness = w.lost_at() - w.lock().valid_until();
        early += lateness < 0ms;
        late += lateness > bound;
        endangered += lateness >= drift_margin(w.lease());
        owned += w.owned_when_told() || w.lock().owns_lock();
        after.add(lateness);
        if (const auto left = w.ahead()) {
            ++asked;
            ahead.add(*left);
        }
        machine = std::max(machine, probe.worst());
    }

    void print(std::chrono::milliseconds lease, int count) const {
        figure(
            "stopped server, lease %d ms: told %d of %d, %.2f to %.2f ms after the end of validity; over "
            "%.0f ms: %d",
            static_cast<int>(lease.count()), told, count, after.least(), after.most(), in_ms(bound), late);
        figure(
            "  at least %.2f ms before the server's key was gone (%d asked); after it could be (%.0f ms): %d",
            ahead.least(), asked, in_ms(drift_margin(lease)), endangered);
        show_row("A1", count, static_cast<std::size_t>(endangered), after.most(), in_ms(bound));
        figure("  beside it a thread that only waits was up to %.2f ms late", in_ms(machine));
    }

    // A machine that has no time for a thread is not held against the library.
    void judge(int count) const {
        CHECK(told == count);
        CHECK(early == 0);
        CHECK(owned == 0);
        CHECK(asked > 0);
        CHECK(after.most() <= in_ms(bound + machine));
        CHECK(ahead.least() >= -in_ms(slack + machine));
    }
};

clk::duration up_to(clk::duration most) {
    static std::mt19937_64 random;
    return clk::duration(std::uniform_int_distribution<clk::rep>(0, most.count())(random));
}

void pass(clk::duration span) {
    const auto end = clk::now() + span;
    REQUIRE(eventually([&] { return clk::now() >= end; }));
}

}  // namespace

TEST_CASE("when the server stops, lost() fires at the end of validity: never before, at most 20 ms after") {
    constexpr std::chrono::milliseconds lease = 300ms;
    redis_server server;
    hiredis_connection redis{server.uri() + time_out};
    hiredis_connection others{server.uri() + "?command_timeout=2s"};
    const int count = injections(8);
    lateness_probe probe;
    tally seen;
    int freed = 0;
    for (int i = 0; i < count; ++i) {
        const std::string name = "stopped:" + std::to_string(i);
        watched mine{redis, name, lease};
        pass(up_to(lease));
        probe.reset();
        mine.ask(server);
        server.pause();
        REQUIRE(eventually([&] { return mine.told(); }));
        seen.add(mine, probe);

        // Somebody else takes it, and is not disturbed by what the first owner still says: half of the owners
        // unlock while the server stands, so that the unlock is tried again behind their backs.
        distlock::mutex next{others, name, {.lease = 10s, .release = distlock::confirmed}};
        const bool early_unlock = i % 2 == 0;
        if (early_unlock) CHECK(mine.lock().unlock() == release_outcome::unreachable);
        server.resume();
        REQUIRE(next.try_lock_for(10s));
        const std::string token = server.command({"GET", name});
        if (!early_unlock) {
            const auto said = mine.lock().unlock();  // whose server has no more than 60 ms for it
            CHECK((said == release_outcome::taken || said == release_outcome::unreachable));
        }
        REQUIRE(eventually([&] { return mine.lock().residual() == 0ms; }));
        freed += server.command({"GET", name}) != token || !next.owns_lock();
        CHECK(next.unlock() == release_outcome::released);
    }
    seen.print(lease, count);
    seen.judge(count);
    CHECK(freed == 0);
}

// The drift margin of this lease is the bound of the case above.
TEST_CASE("when the server stops, lost() fires before the server can let anybody else in") {
    constexpr std::chrono::milliseconds lease = 1800ms;
    constexpr int at_once = 10;
    redis_server server;
    hiredis_connection redis{server.uri() + time_out};
    const int count = (injections(at_once) + at_once - 1) / at_once * at_once;
    lateness_probe probe;
    tally seen;
    for (int i = 0; i < count; i += at_once) {
        std::deque<watched> held;
        for (int k = 0; k < at_once; ++k) {
            held.emplace_back(redis, "before:" + std::to_string(i + k), lease);
            pass(up_to(lease / 20));
        }
        pass(up_to(lease / 2));
        probe.reset();
        for (watched& w : held) w.ask(server);
        server.pause();
        CHECK(eventually([&] {
            return std::all_of(held.begin(), held.end(), [](const watched& w) { return w.told(); });
        }));
        server.resume();
        for (watched& w : held) seen.add(w, probe);
    }
    seen.print(lease, count);
    seen.judge(count);
}

}  // namespace stopped_server_tests
