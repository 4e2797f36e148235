// A crowd of clients that join and leave the line at random: nobody owns beside another, nobody is passed
// over, nobody is stuck, and nothing is left.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <list>
#include <mutex>
#include <poll.h>
#include <random>
#include <stop_token>
#include <string>
#include <system_error>
#include <thread>
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

namespace crowd_tests {

using namespace std::chrono_literals;
using clk = distlock::clock;
using distlock::testing::belief;
using distlock::testing::recorder;
using distlock::testing::redis_server;

namespace {

constexpr std::chrono::milliseconds lease = 20 * timing_tolerance;
constexpr std::size_t threads_each = 10;  // of a process, over one connection
constexpr std::size_t most_events = 2'000'000;

// What the processes tell the test.
struct board {
    board() : grants(most_events) {}

    recorder grants;
    std::atomic<clk::time_point> settled{};  // calls from then on are judged by their time
    std::atomic<clk::time_point> closes{};
    std::atomic<std::size_t> visits{0};  // calls of try_lock_for
    std::atomic<clk::duration> latest_return{};
    std::atomic<int> unanswered{0};  // whose time was up before the server spoke
    std::atomic<int> troubles{0};

    /// Effects: notes a call, and when it may return: at its deadline, or when it is told to stop.
    void visited(clk::time_point called, clk::time_point latest) {
        ++visits;
        const auto after = clk::now() - latest;
        auto most = latest_return.load();
        while (called >= settled.load() && most < after && !latest_return.compare_exchange_weak(most, after))
            continue;
    }
};

// Tells some of a process's threads to stop waiting.
class stopper {
  public:
    /// Effects: that will be stopped at `when`.
    void stop_at(clk::time_point when, std::stop_source what) {
        const std::lock_guard guard(lock_);
        due_.emplace_back(when, std::move(what));
    }

  private:
    void run(const std::stop_token& end) {
        while (!end.stop_requested()) {
            ::poll(nullptr, 0, 1);
            std::vector<std::stop_source> now;
            {
                const std::lock_guard guard(lock_);
                const auto is_due = [at = clk::now()](const auto& one) { return one.first <= at; };
                for (const auto& one : due_) {
                    if (is_due(one)) now.push_back(one.second);
                }
                std::erase_if(due_, is_due);
            }
            for (auto& one : now) one.request_stop();
        }
    }

    std::mutex lock_;
    std::vector<std::pair<clk::time_point, std::stop_source>> due_;
    std::jthread thread_{[this](const std::stop_token& end) { run(end); }};
};

class client {
  public:
    client(distlock::hiredis_connection& redis, stopper& stops, board& notes, std::uint32_t seed)
        : stops_(stops),
          notes_(notes),
          random_(seed),
          lock_(redis, "lock", {.lease = lease, .fencing = true}) {}

    void come_and_go() {
        const auto end = notes_.closes.load();
        while (clk::now() < end) {
            come_once();
            ::poll(nullptr, 0, static_cast<int>(random_() % 4));
        }
    }

  private:
    // A short time mostly, and now and then one that suffices.
    clk::duration time_out() {
        const auto most = random_() % 4 == 0 ? 5'000'000U : 200'000U;
        return std::chrono::microseconds(random_() % most);
    }

    void come_once() {
        const auto patience = time_out();
        std::stop_source stop;
        const auto called = clk::now();
        auto latest = called + patience;
        if (random_() % 3 == 0) {
            latest = called + patience / 2;
            stops_.stop_at(latest, stop);
        }
        std::error_code trouble;
        const bool got = lock_.try_lock_for(patience, stop.get_token(), trouble);
        notes_.visited(called, latest);
        if (got) {
            const auto hold =
                notes_.grants.granted("lock", called, lock_.valid_until(), lock_.fencing_token());
            ::poll(nullptr, 0, static_cast<int>(random_() % 4));
            notes_.grants.released(hold, clk::now());
            lock_.unlock();
        } else if (trouble == distlock::errc::no_reply) {
            ++notes_.unanswered;
        } else if (trouble && trouble != distlock::errc::cancelled) {
            ++notes_.troubles;
        }
    }

    stopper& stops_;
    board& notes_;
    std::mt19937 random_;
    distlock::mutex<distlock::hiredis_connection> lock_;
};

bool some_of_the_crowd(const std::string& uri, board& notes, std::size_t process) {
    distlock::hiredis_connection redis{uri};
    stopper stops;
    std::deque<client> clients;
    for (std::size_t i = 0; i < threads_each; ++i)
        clients.emplace_back(redis, stops, notes, static_cast<std::uint32_t>(process * threads_each + i + 1));
    std::vector<std::jthread> running;
    for (client& c : clients) running.emplace_back([&c] { c.come_and_go(); });
    return true;
}

// What came of the grants; waits are judged of those that were asked for when all were connected.
struct result {
    std::size_t served = 0;
    std::string wrong;
    clk::duration handover{};  // the mean time from an unlock to the next owner, while somebody waited
    clk::duration longest{};   // wait
    double worst_share = 0;    // of a wait in what its queue allows
    int unfair = 0;
};

// How long a wait may be. The ideal queue of a visit that was served is what those before it in the queue
// held the lock, from the moment that it called, and a hand-over, of mean length, after each of them and one
// more. Before it are the one who held the lock then, and all who called earlier, or so little later that the
// machine's own lateness may have turned their order round on the way to the server.
class fairness {
  public:
    fairness(const std::vector<belief>& served, clk::duration machine) : served_(served), machine_(machine) {
        clk::duration sum{};
        for (std::size_t i = 1; i < served.size(); ++i) {
            if (served[i].granted.from > served[i - 1].to) continue;  // nobody waited for this one
            sum += served[i].granted.at - served[i - 1].to;
            ++handovers_;
        }
        if (handovers_ > 0) handover_ = sum / handovers_;
    }

    clk::duration handover() const { return handover_; }

    /// Returns: the wait of the visit that was served as the i-th, as a share of what it may be: 1.5 times
    /// the ideal queue, and what the machine was late by itself.
    double share(std::size_t i) const {
        const auto& mine = served_[i].granted;
        clk::duration ideal = handover_;
        for (std::size_t k = i; k > 0 && served_[k - 1].to > mine.from; --k) {
            const auto& other = served_[k - 1].granted;
            if (other.at > mine.from && other.from > mine.from + machine_) continue;  // passed me
            ideal += served_[k - 1].to - std::max(other.at, mine.from) + handover_;
        }
        return std::chrono::duration<double>(mine.at - mine.from) / (ideal * 3 / 2 + chain * machine_);
    }

  private:
    const std::vector<belief>& served_;
    clk::duration machine_;
    clk::duration handover_{};
    long handovers_ = 0;
};

result judge(const board& notes, clk::duration machine) {
    result r;
    const auto served = distlock::testing::beliefs_in(notes.grants.events());
    r.served = served.size();
    r.wrong = distlock::testing::check_history(notes.grants.events()).text().substr(0, 2000);
    const fairness line(served, machine);
    r.handover = line.handover();
    for (std::size_t i = 0; i < served.size(); ++i) {
        const auto& mine = served[i].granted;
        r.longest = std::max(r.longest, mine.at - mine.from);
        if (mine.from < notes.settled.load()) continue;
        const double share = line.share(i);
        r.worst_share = std::max(r.worst_share, share);
        r.unfair += share > 1;
    }
    return r;
}

}  // namespace

TEST_CASE(
    "in a crowd that comes and goes at random, nobody is passed over, nobody is stuck, and nothing is left") {
    const std::size_t processes = little_or_all<std::size_t>(4, 20);
    const clk::duration span = std::max<clk::duration>(10s, lab_count() * 3s);
    interprocess_object<board> notes;
    const redis_server server{{.arguments = {"--maxclients", "2000"}}};
    const std::string uri = server.uri() + "?command_timeout=1s&max_idle=40";
    notes->settled = clk::now() + span / 10;  // until then they connect, all at once
    notes->closes = clk::now() + span;
    std::list<owner_process> crowd;
    for (std::size_t i = 0; i < processes; ++i)
        crowd.emplace_back([&, i] { return some_of_the_crowd(uri, *notes, i); });

    lateness_probe probe;
    const auto all_ended = [&] {
        return std::all_of(crowd.begin(), crowd.end(), [](owner_process& p) { return p.ended_well(); });
    };
    while (clk::now() < notes->closes.load()) ::poll(nullptr, 0, 100);
    REQUIRE(eventually(all_ended));  // nobody's time-out is longer than five seconds
    const auto ended = clk::now();
    const auto gone = [&] { return server.command({"EXISTS", "lock", "{lock}:distlock:queue"}) == "0"; };
    CHECK(eventually(gone));
    const auto left_for = clk::now() - ended;

    const clk::duration machine = probe.worst();
    const std::size_t visits = notes->visits;
    const result r = judge(*notes, machine);
    figure("crowd of %zu: %zu visits in %.0f s, %zu were served; a hand-over takes %.2f ms",
           processes * threads_each, visits, std::chrono::duration<double>(span).count(), r.served,
           in_ms(r.handover));
    figure(
        "  the longest wait was %.1f ms; in shares of 1.5 times the ideal queue and %d * the machine's "
        "%.1f ms: at most %.2f, more than 1: %d",
        in_ms(r.longest), chain, in_ms(machine), r.worst_share, r.unfair);
    show_row("F19", static_cast<long>(r.served), static_cast<std::size_t>(r.unfair), in_ms(r.longest), 0);
    show_row("F13", static_cast<long>(visits - r.served), 0, in_ms(notes->latest_return.load()), 0);
    figure(
        "  nobody returned later than %.1f ms after its time was up; unanswered: %d, other troubles: %d; "
        "something "
        "was left for %.1f ms",
        in_ms(notes->latest_return.load()), notes->unanswered.load(), notes->troubles.load(),
        in_ms(left_for));
    CHECK(r.served > visits / 20);
    CHECK(r.served < visits);
    CHECK(r.wrong == "");
    CHECK(r.unfair == 0);
    CHECK(notes->latest_return.load() <= clk::duration(timing_tolerance) + machine);
    CHECK(notes->troubles == 0);
    CHECK(left_for <= lease + timing_tolerance);
}

}  // namespace crowd_tests
