// A row of the table of faults in which another server takes the place of the master, without what the old
// one did last: when owners are told, how long two own a lock, and when the next one does.
//
//   template <class Connection> class holder;   // of two locks, one of which gets there
//   class changed_master;
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <distlock/distlock.hpp>
#include <distlock/testing.hpp>

#include "fault/matrix/campaign.hpp"
#include "support/catch.hpp"
#include "support/lab_figures.hpp"
#include "support/timing_tolerance.hpp"
#include "support/waiting.hpp"

/// Two locks that are held through a change of the master, in the slot of `beside`: one that gets there,
/// and one that does not.
template <class Connection>
class holder {
    using lock = distlock::mutex<Connection>;
    using clk = distlock::clock;

  public:
    /// The first one is locked.
    holder(const std::string& uri, const std::string& beside, std::chrono::milliseconds how_long)
        : redis_(uri),
          held_(redis_, "{" + beside + "}:held", options(how_long), seen_),
          gone_(redis_, "{" + beside + "}:gone", options(how_long), seen_) {
        redis_.on_master_change(seen_);
        held_.lock();
    }
    void lock_gone() { gone_.lock(); }
    const std::string& held() const { return held_.name(); }

    /// Effects: waits until the owner is told that the second one did not get there.
    /// Returns: when its connection knew of the new master, and when it was told.
    std::pair<clk::time_point, clk::time_point> told() {
        CHECK(eventually([&] { return seen_->lost_at.load() != clk::time_point{}; }, 60s));
        CHECK_FALSE(gone_.owns_lock());
        using enum distlock::release_outcome;
        const auto what = gone_.unlock();
        CHECK((what == expired || what == taken));
        return {seen_->known_at.load(), seen_->lost_at.load()};
    }
    /// Effects: checks that the first one is still held, and frees it.
    void unlock_held() {
        CHECK(eventually([&] { return seen_->changes > 0; }));
        CHECK(held_.owns_lock());
        CHECK(held_.unlock() == distlock::release_outcome::released);
    }

  private:
    static distlock::lock_options options(std::chrono::milliseconds how_long) {
        return {.lease = how_long, .patience = 10s, .release = distlock::confirmed};
    }
    struct witness final : distlock::lease_observer, distlock::master_listener {
        void lost(const std::string&, distlock::loss_reason) override { lost_at = clk::now(); }
        void master_changed(const std::string&) override { ++changes; }
        void master_changed() noexcept override { known_at = clk::now(); }
        std::atomic<clk::time_point> lost_at{};
        std::atomic<clk::time_point> known_at{};
        std::atomic<int> changes{0};
    };

    std::shared_ptr<witness> seen_ = std::make_shared<witness>();
    Connection redis_;
    lock held_;
    lock gone_;
};

class changed_master : public campaign_over {
  public:
    static constexpr std::chrono::seconds long_lease{30};
    /// Of an owner, after the new master is named.
    static constexpr std::chrono::milliseconds told_when_named_in{1000};
    /// Of all connections. What only stands still is missed when something is due: a lease of the crew is
    /// renewed every second.
    static constexpr std::chrono::milliseconds all_know_in{2000};
    /// After its connection knows it.
    static constexpr std::chrono::milliseconds told_when_known_in{100};
    /// After the new master is named.
    static constexpr std::chrono::milliseconds served_in{500};

    /// `long_work`: as crew_options have it; longer than a fail-over takes, where owners are to be in it.
    explicit changed_master(const char* id, std::chrono::milliseconds long_work = 0ms)
        : campaign_over(id, served_in + timing_tolerance, who(long_work)), id_(id) {}

    /// Effects: end(), checks that no two owned a lock but in a window, and shows the figures.
    void finish() {
        end();
        const auto found = overlaps_in(people.book().events());
        spread length;
        for (const window& one : found) {
            length.add(one.to - one.from);
            CHECK(std::any_of(windows_.begin(), windows_.end(),
                              [&](const window& w) { return w.from <= one.from && one.to <= w.to; }));
        }
        figure("%s: two owned a lock %zu times, for %.1f ms at most", id_, found.size(),
               found.empty() ? 0.0 : length.most());
        if (windows_.empty()) return;
        figure(
            "%s: an owner was told %.1f ms after its connection knew the new master, %.1f ms after it was "
            "named, at most",
            id_, told_.most(), told_since_named_.most());
        figure("%s: %d of the crew, %.1f ms after at most (%s, proven %.1f ms before)", id_, people.told(),
               in_ms(people.told_after()), distlock::to_string(people.told_last_as()).data(),
               in_ms(people.told_last_unproven()));
        figure("%s: all of the crew knew it %.1f ms after it was named, at most", id_, in_ms(unknown_for()));
        CHECK(in_ms(unknown_for()) <= in_ms(all_know_in + timing_tolerance));
        CHECK(in_ms(people.told_after()) <= in_ms(told_when_known_in + timing_tolerance));
    }

  protected:
    ~changed_master() = default;

    const std::string time_outs =
        "?connect_timeout=100ms&command_timeout=" + std::to_string(time_out.count()) + "ms";

    /// Effects: since `from` the replicas heard nothing of what the master did, and at `when` another was
    /// named. Waits until the owner is told of the lock that did not get there, and checks when it was.
    template <class Connection>
    fault_end named(holder<Connection>& owner, clk::time_point from, clk::time_point when,
                    clk::duration told_in = told_when_named_in) {
        windows_.push_back({from, when + told_when_named_in + timing_tolerance});
        people.book().fault(windows_.back().from, windows_.back().to);
        const auto [known, told] = owner.told();
        told_.add(told - known);
        told_since_named_.add(told - when);
        CHECK(in_ms(told - known) <= in_ms(told_when_known_in + timing_tolerance));
        CHECK(in_ms(told - when) <= in_ms(told_in + timing_tolerance));
        owner.unlock_held();
        return {.at = when,
                .unsure_since = from - time_out};  // a release then may be on its way to a replica
    }

  private:
    struct window {
        clk::time_point from;
        clk::time_point to;
    };

    // Their leases do not end before there is another master.
    static crew_options who(std::chrono::milliseconds long_work) {
        return {.processes = 8,
                .threads = 2,
                .names = 4,
                .lease = 3s,
                .longest_work = 300ms,
                .long_work = long_work,
                .patience = 5s};
    }

    // Returns: from when to when two believed to have a lock.
    static std::vector<window> overlaps_in(std::vector<distlock::testing::history_event> events) {
        const auto all = distlock::testing::beliefs_in(std::move(events));
        std::vector<window> found;
        std::vector<const distlock::testing::belief*> open;
        for (const auto& one : all) {
            std::erase_if(open, [&](const auto* before) { return before->to <= one.granted.at; });
            for (const auto* before : open) {
                if (before->granted.lock_name() == one.granted.lock_name())
                    found.push_back({one.granted.at, std::min(before->to, one.to)});
            }
            open.push_back(&one);
        }
        return found;
    }

    const char* id_;
    std::vector<window> windows_;
    spread told_;
    spread told_since_named_;
};
