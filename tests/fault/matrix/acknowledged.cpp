// The table of faults, part D: a replica that acknowledged every grant takes the place of the master, in each
// of the ways there are.
#include <atomic>
#include <chrono>
#include <cstddef>
#include <deque>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include <distlock/distlock.hpp>
#include <distlock/hiredis.hpp>
#include <distlock/testing.hpp>
#include <distlock/wire/acknowledgement.hpp>

#include "fault/matrix/campaign.hpp"
#include "support/catch.hpp"
#include "support/lab_figures.hpp"
#include "support/sentinels.hpp"
#include "support/timing_tolerance.hpp"
#include "support/waiting.hpp"

namespace acknowledged_tests {

using distlock::testing::redis_server;

namespace {

/// Locks one lock after the other, on a thread of its own, until one is not granted any more, and
/// keeps the last of them.
class hoarder {
    using lock = distlock::mutex<distlock::sentinel_connection>;

  public:
    static constexpr std::chrono::seconds lease{9};

    explicit hoarder(const std::string& uri) : redis_(uri) {
        thread_ = std::jthread([this] {
            for (int number = 0;; ++number) {
                const bool well = lock_one("hoard:" + std::to_string(number)) &&
                                  (held_.size() <= most || let_go_of_the_first());
                count_ = held_.size();
                if (!well && ends_) return;
            }
        });
    }
    ~hoarder() { ends_ = true; }

    std::size_t count() const { return count_; }
    /// Effects: the next trouble is its end.
    void expect_trouble() { ends_ = true; }

    /// Effects: checks that all that it believes to have is at that server.
    /// Returns: how many that are; all of them where no lease was over.
    std::size_t check_all_at(const redis_server& where) {
        thread_.join();
        std::set<std::string> there;
        std::istringstream keys(sentinels::ask(where, {"KEYS", "hoard:*"}));
        for (std::string key; std::getline(keys, key);) there.insert(key);
        std::size_t believed = 0;
        for (const auto& one : held_) {
            if (!one->owns_lock()) continue;  // asked last: then it was its own all the time
            ++believed;
            INFO(one->name());
            CHECK(there.contains(one->name()));
        }
        return believed;
    }
    /// Preconditions: check_all_at().
    void give_back() {
        // It may have asked for the master just before there was another, and asks ten
        // times a second at most.
        CHECK(eventually([&] { return redis_.execute({distlock::argument("PING")}).is_status("PONG"); }));
        for (const auto& one : held_) {
            INFO(one->name());
            // A machine without time may not answer; the background frees it then, and what is left
            // at the end is found.
            const bool believed = one->remaining() > 1s;
            const auto what = one->unlock();
            INFO(to_string(what));
            CHECK((!believed || what == distlock::release_outcome::released ||
                   what == distlock::release_outcome::unreachable));
        }
    }

  private:
    bool lock_one(const std::string& name) {
        std::error_code trouble;
        auto next = std::make_unique<lock>(redis_, name, how);
        if (!next->try_lock(trouble)) return false;
        held_.push_back(std::move(next));
        return true;
    }
    bool let_go_of_the_first() {
        const auto what = held_.front()->unlock();
        held_.pop_front();
        return what == distlock::release_outcome::released;
    }

    static constexpr std::size_t most = 200;
    // The lease is longer than a fail-over, and shorter than the wait for what was left at the end: a lock
    // that was not granted may be there, and its release not.
    static constexpr distlock::lock_options how{
        .lease = lease, .release = distlock::confirmed, .replicas = 1};

    distlock::sentinel_connection redis_;
    std::deque<std::unique_ptr<lock>> held_;  // the thread's own until it ends
    std::atomic<std::size_t> count_ = 0;
    std::atomic<bool> ends_ = false;
    std::jthread thread_;
};

/// A master with one replica: who acknowledges is who takes over.
class acknowledged final : public campaign_over {
  public:
    acknowledged()
        : campaign_over("D18", 500ms + timing_tolerance,
                        {.processes = 8,
                         .threads = 2,
                         .names = 4,
                         .lease = 3s,
                         .longest_work = 300ms,
                         .patience = 5s,
                         .replicas = 1}) {
        group.set("failover-timeout", "1000");
        group.set("down-after-milliseconds", sentinels::never_down);
        wait_for_acknowledgement();
        people.begin(uri_);
        all_is_well();
    }

    /// Effects: `fault(the master)` in the middle of grants; waits until the other server is the
    /// master and has a replica.
    template <class Fault>
    fault_end fail_over(Fault fault) {
        REQUIRE(eventually([&] { return group.settled(); }, 60s));
        group.wait_for_acquaintance();  // or nobody would be there to take over
        redis_server& old = group.master();
        hoarder keeps(uri_);
        REQUIRE(eventually([&] { return keeps.count() >= 20; }, 60s));
        const auto begin = clk::now();
        const auto from = begin - time_out;  // a release then may be on its way to the replica
        keeps.expect_trouble();
        fault(old);
        const bool named = eventually([&] { return group.most_name_another_than(old); }, 30s);
        group.set("down-after-milliseconds", sentinels::never_down);
        const bool by_all = named && eventually([&] { return group.name_another_than(old); }, 30s);
        if (!by_all) UNSCOPED_INFO(group.logs());
        REQUIRE(by_all);
        const auto believed = keeps.check_all_at(group.master());
        // The first of them were renewed a third of the lease ago, and the fail-over may have taken
        // a machine that long.
        if (clk::now() - begin < hoarder::lease / 2) CHECK(believed == keeps.count());
        believed_ += believed;
        if (!old.running()) old.start();
        old.resume();
        group.take_back(old);
        wait_for_acknowledgement();
        const fault_end end{.at = clk::now(), .unsure_since = from};
        keeps.give_back();
        return end;
    }
    void look_closely() const { group.set("down-after-milliseconds", "1000"); }

    void finish() {
        end();
        figure("D18: %zu grants that were believed through a fail-over are on the new master", believed_);
    }

    sentinels group{1};

  private:
    std::vector<const redis_server*> masters() const override { return {&group.master()}; }

    // A replica that has what was written may not say so for a second.
    void wait_for_acknowledgement() const {
        distlock::sentinel_connection redis(uri_);
        const distlock::command write{{"DEL", "acknowledged"}, "acknowledged"};
        const distlock::command leaves{{"SET", "acknowledged", "yes"}, "acknowledged"};
        const distlock::replica_wait wait(1, 100ms);
        REQUIRE(eventually(
            [&] {
                static_cast<void>(redis.execute(leaves));
                const auto said = redis.execute_acknowledged(write, wait.behind(write)).replicated;
                return wait.read(said).what == distlock::acknowledgement::kind::enough;
            },
            30s));
    }

    const std::string uri_ =
        group.uri("", "?connect_timeout=100ms&command_timeout=" + std::to_string(time_out.count()) + "ms");
    std::size_t believed_ = 0;
};

}  // namespace

TEST_CASE(
    "D18: when the replica that acknowledged every grant takes the place of the master, all that was granted "
    "is there, and no two own a lock") {
    acknowledged c;
    c.repeat([&](int n) {
        switch (n % 4) {
            case 0:
                return c.fail_over([&](redis_server& master) {
                    c.look_closely();
                    master.kill();
                });
            case 1:
                return c.fail_over([&](redis_server&) { c.group.demand(); });
            case 2:
                return c.fail_over([&](redis_server& master) {
                    c.look_closely();
                    master.pause();
                });
            default:
                return c.fail_over([&](redis_server& master) { c.group.replace_by_hand(master); });
        }
    });
    c.finish();
}

}  // namespace acknowledged_tests
