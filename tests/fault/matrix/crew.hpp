// Processes that lock, work, look and unlock all the time, write down what they believe, and go
// on whatever happens.
//
//   struct crew_options;
//   class crew;
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <list>
#include <memory>
#include <poll.h>
#include <random>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include <distlock/distlock.hpp>
#include <distlock/hiredis.hpp>
#include <distlock/testing.hpp>

#include "support/interprocess_object.hpp"
#include "support/owner_process.hpp"
#include "support/waiting.hpp"

using namespace std::chrono_literals;

struct crew_options {
    int processes = 2;
    int threads = 3;  // of each; the first two share their mutex objects
    int names = 2;
    std::chrono::milliseconds lease = 500ms;
    std::chrono::milliseconds longest_work = 20ms;
    std::chrono::milliseconds long_work = 0ms;   ///< of one in twenty owners at most; zero: of none
    std::chrono::milliseconds patience = 300ms;  ///< of one attempt
    bool renew = true;
    distlock::release_mode release = distlock::confirmed;
    int replicas = 0;
};

inline constexpr auto lease = crew_options{}.lease;
/// Work that lasts longer than most faults, so that owners are in it.
inline constexpr crew_options at_work{.longest_work = 300ms, .patience = 700ms};

/// Made while the process has one thread; the processes wait for begin().
class crew {
  public:
    using clk = distlock::clock;

    explicit crew(const crew_options& options) : options_(options) {
        for (int i = 0; i < options.processes; ++i) workers_.emplace_back([this, i] { return work(i); });
    }
    crew(const crew&) = delete;
    crew& operator=(const crew&) = delete;

    const crew_options& options() const { return options_; }

    /// Effects: all of them lock over `uri` from now on: one server's, a Sentinel group's or a Cluster's.
    void begin(const std::string& uri) {
        if (uri.size() >= board_->uri.size()) throw std::length_error("crew: a long URI");
        std::copy(uri.begin(), uri.end(), board_->uri.begin());
        board_->now = phase::working;
    }

    /// Returns: whether every lock was granted to somebody after `from`, within ten seconds; `took` says how
    /// long after, the longest of them. `meanwhile` is called again and again.
    template <class Call>
    bool granted_since(clk::time_point from, clk::duration& took, Call meanwhile) {
        took = {};
        for (int n = 0; n < options_.names; ++n) {
            auto& first = board_->first[static_cast<std::size_t>(n)];
            const auto came = [&] {
                meanwhile();
                auto seen = first.load();
                if (seen > from.time_since_epoch().count()) return true;
                if (seen != 0) first.compare_exchange_strong(seen, 0);  // it was on its way before
                return false;
            };
            if (!eventually(came)) return false;
            took = std::max(took, clk::duration(first.load()) - from.time_since_epoch());
        }
        return true;
    }
    /// Effects: the next grants are the first again.
    void expect_grants() {
        for (auto& first : board_->first) first = 0;
    }
    /// Returns: how many grants there were.
    int grants() const { return board_->grants; }
    /// Returns: how many attempts ended because their patience did.
    int timeouts() const { return board_->timeouts; }
    /// Returns: how many calls ended with this error.
    int errors(distlock::errc what) const {
        return board_->errors[static_cast<std::size_t>(what) % most_errors];
    }
    int all_errors() const {
        int all = 0;
        for (const auto& n : board_->errors) all += n;
        return all;
    }
    int outcomes(distlock::release_outcome what) const {
        return board_->outcomes[static_cast<std::size_t>(what)];
    }
    /// Returns: how many owners found that they were none any more, at work or by the unlock.
    int lost() const { return board_->lost; }
    /// Returns: how often an owner was told that its lock did not get to the next master.
    int told() const { return board_->told; }
    /// Returns: how long after its connection knew of that master, at most.
    clk::duration told_after() const { return clk::duration(board_->told_after.load()); }
    /// Returns: why the owner that was told last had lost the lock.
    distlock::loss_reason told_last_as() const { return board_->told_last_as; }
    /// Returns: how long before the server had said last that it was its own.
    clk::duration told_last_unproven() const { return clk::duration(board_->told_last_unproven.load()); }
    /// Returns: when the connections of all processes knew of another master than before, the last time.
    clk::time_point known() const {
        std::int64_t last = 0;
        for (const auto& at : board_->known) last = std::max(last, at.load());
        return clk::time_point(clk::duration(last));
    }
    /// Returns: how much longer than its patience the slowest attempt took.
    clk::duration latest() const { return clk::duration(board_->latest.load()); }
    distlock::testing::recorder& book() { return book_; }

    std::list<owner_process>& processes() { return workers_; }
    static std::string name(int i) { return "crew:" + std::to_string(i); }

    /// Effects: no attempt begins any more.
    /// Returns: whether all processes ended well.
    bool end() {
        board_->now = phase::over;
        for (owner_process& w : workers_) w.go_on();
        const auto all_ended = [&] {
            return std::all_of(workers_.begin(), workers_.end(),
                               [](owner_process& w) { return w.ended_well(); });
        };
        // A kernel that reclaims memory beside busy programs was seen to keep processes in
        // _exit() for ten seconds.
        return eventually(all_ended, 60s);
    }
    /// Returns: how each process ended, for a person to read.
    std::string ends() const {
        std::string all;
        for (const owner_process& w : workers_) all += w.end() + "; ";
        return all;
    }

  private:
    enum class phase { waiting, working, over };
    static constexpr std::size_t most_errors = 64;
    static constexpr std::size_t most_names = 8;
    static constexpr std::size_t most_processes = 8;

    struct board {
        std::array<char, 200> uri{};
        std::atomic<phase> now{phase::waiting};
        // The first grant of each name since expect_grants().
        std::array<std::atomic<std::int64_t>, most_names> first{};
        std::atomic<std::int64_t> latest{0};
        std::atomic<int> grants{0};
        std::atomic<int> timeouts{0};
        std::array<std::atomic<int>, most_errors> errors{};
        std::array<std::atomic<int>, 16> outcomes{};
        std::atomic<int> lost{0};
        std::array<std::atomic<std::int64_t>, most_processes> known{};
        std::atomic<int> told{0};
        std::atomic<std::int64_t> told_after{0};
        // Of the one that was told last:
        std::atomic<distlock::loss_reason> told_last_as{};
        std::atomic<std::int64_t> told_last_unproven{0};
        interprocess_mutex resource;
        std::array<std::uint64_t, most_names> written{};  // the largest fence of each name
    };

    // Returns: whether it was less.
    static bool raise(std::atomic<std::int64_t>& most, std::int64_t to) {
        auto now = most.load();
        while (now < to && !most.compare_exchange_weak(now, to)) continue;
        return now < to;
    }

    struct news final : distlock::master_listener {
        explicit news(std::atomic<std::int64_t>& when) : at(when) {}
        void master_changed() noexcept override { at = clk::now().time_since_epoch().count(); }
        std::atomic<std::int64_t>& at;
    };
    // Of one mutex object.
    struct witness final : distlock::lease_observer {
        witness(board& of, const news& by) : all(of), changes(by) {}
        void lost(const std::string&, distlock::loss_reason why) override {
            const auto now = clk::now().time_since_epoch().count();
            const std::int64_t known = changes.at;
            const std::int64_t last = proven;
            if (last >= known) return;  // whatever it was lost by, it was no change of the master
            ++all.told;
            if (!raise(all.told_after, now - known)) return;
            all.told_last_as = why;
            all.told_last_unproven = now - last;
        }
        board& all;
        const news& changes;
        std::atomic<std::int64_t> proven{0};  // when the lock was granted or renewed last, about
    };
    template <class Connection>
    struct watched_lock {
        watched_lock(Connection& redis, const std::string& name, const crew_options& how, board& of,
                     const news& by)
            : seen(std::make_shared<witness>(of, by)),
              m(redis, name,
                {.lease = how.lease,
                 .renew = how.renew,
                 .fencing = true,
                 .release = how.release,
                 .replicas = how.replicas},
                seen) {}
        std::shared_ptr<witness> seen;
        distlock::mutex<Connection> m;
    };

    bool work(int process) {
        while (board_->now == phase::waiting) ::poll(nullptr, 0, 1);
        const std::string uri{board_->uri.data()};
        if (uri.starts_with("redis+sentinel://"))
            return work_over<distlock::sentinel_connection>(process, uri);
        if (uri.starts_with("redis+cluster://")) return work_over<distlock::cluster_connection>(process, uri);
        return work_over<distlock::hiredis_connection>(process, uri);
    }
    template <class Connection>
    bool work_over(int process, const std::string& uri) {
        const auto changes = std::make_shared<news>(board_->known.at(static_cast<std::size_t>(process)));
        Connection redis{uri};
        if constexpr (distlock::following_connection<Connection>) redis.on_master_change(changes);
        using lock = watched_lock<Connection>;
        std::list<std::vector<std::unique_ptr<lock>>> sets;
        const auto a_set = [&] {
            std::vector<std::unique_ptr<lock>> locks;
            for (int n = 0; n < options_.names; ++n)
                locks.push_back(std::make_unique<lock>(redis, name(n), options_, *board_, *changes));
            return locks;
        };
        std::vector<std::jthread> threads;
        for (int t = 0; t < options_.threads; ++t) {
            if (t != 1) sets.push_back(a_set());
            threads.emplace_back([this, &locks = sets.back(), seed = process * 100 + t] {
                std::mt19937 random(static_cast<std::uint32_t>(seed));
                while (board_->now == phase::working) turn(locks, random);
            });
        }
        return true;
    }

    template <class Locks>
    void turn(Locks& locks, std::mt19937& random) {
        const auto which = random() % locks.size();
        auto& m = locks[which]->m;
        const auto called = clk::now();
        std::error_code trouble;
        const bool got = m.try_lock_for(options_.patience, trouble);
        const auto came = clk::now();
        raise(board_->latest, (came - called - options_.patience).count());
        if (trouble) {
            ++board_->errors[static_cast<std::size_t>(trouble.value()) % most_errors];
            ::poll(nullptr, 0, static_cast<int>(random() % 10));
        }
        board_->timeouts += !got && !trouble;
        if (!got) return;
        const auto until = m.valid_until();
        if (until <= came) {  // it was over before we could look
            ++board_->outcomes[static_cast<std::size_t>(m.unlock())];
            return;
        }
        auto& proven = locks[which]->seen->proven;
        proven = came.time_since_epoch().count();
        const auto fence = m.fencing_token();
        const auto hold = book_.granted(name(static_cast<int>(which)), called, until, fence, {}, came);
        std::int64_t none = 0;
        board_->first[which].compare_exchange_strong(none, came.time_since_epoch().count());
        ++board_->grants;
        const bool owned = use(m, which, hold, until, fence, random, proven);
        const auto letting_go = clk::now();
        book_.released(hold, letting_go);
        const auto what = m.unlock();
        ++board_->outcomes[static_cast<std::size_t>(what)];
        using enum distlock::release_outcome;
        board_->lost += !owned || what == expired || what == taken;
        ::poll(nullptr, 0, static_cast<int>(random() % 3));
    }

    // Returns: whether it was the owner to the end.
    template <class Lock>
    bool use(Lock& m, std::size_t which, std::uint64_t hold, clk::time_point granted_until,
             std::uint64_t fence, std::mt19937& random, std::atomic<std::int64_t>& proven) {
        const bool long_one = options_.long_work > 0ms && random() % 20 == 0;
        const auto longest = long_one ? options_.long_work : options_.longest_work;
        const auto span = static_cast<std::uint64_t>(longest.count()) + 1;
        const auto end = clk::now() + std::chrono::milliseconds(random() % span);
        // What it was told already is not written down again: the book has room for hours, then.
        for (auto before = granted_until;;) {
            const auto until = m.valid_until();
            const bool over = until <= clk::now();
            if (over || until != before) book_.looked(hold, until);
            if (over) return false;
            if (std::exchange(before, until) < until) proven = clk::now().time_since_epoch().count();
            if (clk::now() >= end) break;
            ::poll(nullptr, 0, 1);
        }
        // Nobody got the lock any more: an owner was stopped just here, and all others waited for it.
        if (!board_->resource.try_lock_a_while()) return true;
        auto& largest = board_->written[which];
        const bool accepted = fence >= largest;
        if (accepted) largest = fence;
        book_.wrote(name(static_cast<int>(which)), fence, accepted);
        board_->resource.unlock();
        return true;
    }

    const crew_options options_;
    distlock::testing::recorder book_;
    interprocess_object<board> board_;
    std::list<owner_process> workers_;  // last: they use the others
};
