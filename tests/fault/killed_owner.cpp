// The owner's process is killed (SIGKILL) while eight processes are queued: the first of them owns the lock
// once the lease is over, the others after it in the order in which they came; whoever else is killed delays
// them by a lease at most.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <list>
#include <memory>
#include <poll.h>
#include <random>
#include <string>
#include <string_view>
#include <unistd.h>
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
#include "support/sanitizers.hpp"
#include "support/timing_tolerance.hpp"
#include "support/waiting.hpp"

namespace killed_owner_tests {

using namespace std::chrono_literals;
using clk = distlock::clock;
using distlock::testing::redis_server;

namespace {

constexpr int waiters = 8;

constexpr std::chrono::milliseconds lease = instrumented ? 4 * timing_tolerance : 400ms;
constexpr clk::duration bound = instrumented ? timing_tolerance : 50ms;

// What the processes tell the test. Nobody writes down who is killed: for as long as a dead owner's lock was
// valid by its own last look, nobody else may have it.
struct board {
    distlock::testing::recorder grants;
    std::atomic<bool> keeps{false};  // the first of the queue does not unlock, once it owns
};

std::string place(const redis_server& server) { return server.uri() + "?command_timeout=150ms"; }

bool own_for_ever(const std::string& uri, board& b) {
    distlock::hiredis_connection redis{uri};
    distlock::mutex m{redis, "lock", {.lease = lease}};
    const auto called = clk::now();
    m.lock();
    const auto hold = b.grants.granted("lock", called, m.valid_until());
    for (;; ::poll(nullptr, 0, 1)) b.grants.looked(hold, m.valid_until());
}

bool own_once(const std::string& uri, board& b, bool first) {
    distlock::hiredis_connection redis{uri};
    distlock::mutex m{redis, "lock", {.lease = lease}};
    const auto called = clk::now();
    m.lock();
    const auto hold = b.grants.granted("lock", called, m.valid_until());
    while (first && b.keeps) ::pause();
    ::poll(nullptr, 0, 1);
    b.grants.released(hold, clk::now());
    m.unlock();
    return true;
}

int queued(const redis_server& server) {
    return std::stoi(server.command({"ZCARD", "{lock}:distlock:queue"}));
}

// An owner, and the line behind it.
class line {
  public:
    explicit line(const redis_server& server) : server_(server) {
        const std::string uri = place(server);
        owner_.emplace_back([&] { return own_for_ever(uri, *said_); });
        REQUIRE(eventually([&] { return grants() == 1; }));
        token_ = server.command({"GET", "lock"});
        for (int i = 0; i < waiters; ++i) {
            waiting_.emplace_back([&] { return own_once(uri, *said_, i == 0); });
            queued_.push_back(waiting_.back().pid());
            REQUIRE(eventually([&] { return queued(server) == i + 1; }));
        }
        probe_ = std::make_unique<lateness_probe>();  // a thread: no child is made after it
    }

    /// Effects: kills the owner, and asks until when the server keeps its lock.
    void kill_owner() {
        owner_.clear();
        killed_at_ = clk::now();
        server_.command({"PING"});  // what the dead one sent has been read then
        const auto asked = clk::now();
        const auto ttl = std::stol(server_.command({"PTTL", "lock"}));
        lease_end_ = asked + std::chrono::milliseconds(ttl);
        late_ = server_.command({"GET", "lock"}) != token_;
    }
    void kill_waiter(int which) {
        waiting_.erase(std::next(waiting_.begin(), which));
        queued_.erase(queued_.begin() + which);
    }

    board& said() { return *said_; }
    clk::duration machine() const { return probe_->worst(); }
    clk::time_point killed_at() const { return killed_at_; }
    clk::time_point lease_end() const { return lease_end_; }
    std::size_t grants() const { return distlock::testing::check_history(said_->grants.events()).grants; }
    /// Returns: the processes that still live, in the order of the line.
    const std::vector<pid_t>& in_order() const { return queued_; }
    /// Returns: whether the lease was over when we asked: somebody had no time to renew, or to ask.
    bool late() const { return late_; }

    /// Returns: whether all who still live have had the lock, and ended well.
    bool come_to_the_end() {
        return eventually([&] {
            return std::all_of(waiting_.begin(), waiting_.end(),
                               [](owner_process& w) { return w.ended_well(); });
        });
    }

  private:
    const redis_server& server_;
    interprocess_object<board> said_;
    std::list<owner_process> owner_;
    std::list<owner_process> waiting_;
    std::vector<pid_t> queued_;
    std::unique_ptr<lateness_probe> probe_;
    std::string token_;  // of the owner that is killed
    clk::time_point killed_at_{};
    clk::time_point lease_end_{};
    bool late_ = false;
};

struct tally {
    int rounds = 0;
    int late = 0;           // more rounds, which say nothing of how long it takes
    std::size_t wrong = 0;  // by the checker
    int out_of_order = 0;
    int left = 0;             // rounds after which something was left at the server for longer than a lease
    spread first;             // to own, after the end of the dead owner's lease
    spread longest;           // from the death of the owner until the first owned
    spread all;               // from the first to the last of them
    clk::duration machine{};  // how late it was itself

    void add(line& l, const redis_server& server) {
        REQUIRE(l.come_to_the_end());
        const auto ended = clk::now();
        const auto told = distlock::testing::check_history(l.said().grants.events());
        CHECK(told.text() == "");
        wrong += told.violations.size();
        std::vector<pid_t> served;
        clk::time_point begin{};
        clk::time_point end{};
        for (const auto& b : distlock::testing::beliefs_in(l.said().grants.events())) {
            const auto who = b.granted.process;
            if (std::find(l.in_order().begin(), l.in_order().end(), who) == l.in_order().end()) continue;
            end = b.granted.at;
            if (served.empty()) begin = end;
            served.push_back(who);
        }
        out_of_order += served != l.in_order();
        const auto gone = [&] { return server.command({"EXISTS", "lock", "{lock}:distlock:queue"}) == "0"; };
        left += !eventually(gone) || clk::now() - ended > lease + bound + l.machine();
        machine = std::max(machine, l.machine());
        late += l.late();
        if (l.late()) return;
        ++rounds;
        first.add(begin - l.lease_end());
        longest.add(begin - l.killed_at());
        all.add(end - begin);
    }
    void judge(const char* id, const char* what, int count) const {
        CHECK(rounds == count);
        figure(
            "killed %s, %d times, lease %d ms: the next owned %.2f to %.2f ms after the end of the dead "
            "owner's lease",
            what, rounds, static_cast<int>(lease.count()), first.least(), first.most());
        figure(
            "  the others within %.2f to %.2f ms more; out of order: %d; left behind: %d; machine: %.2f ms "
            "late; %d more rounds were too late",
            all.least(), all.most(), out_of_order, left, in_ms(machine), late);
        // F2 counts from the end of the dead owner's lease, F16 from its death.
        const bool of_owner = id == std::string_view("F2");
        show_row(id, rounds, wrong + static_cast<std::size_t>(out_of_order),
                 of_owner ? first.most() : longest.most(),
                 of_owner ? in_ms(bound) : in_ms(2 * lease + 2 * bound));
        CHECK(out_of_order == 0);
        CHECK(left == 0);
        CHECK(all.most() <= in_ms(2 * bound + waiters * machine));  // handed over, not found
        CHECK(first.least() >= -1.0);  // nobody owned it before; a TTL is in whole milliseconds
    }
};

void pass(clk::duration span) {
    const auto end = clk::now() + span;
    REQUIRE(eventually([&] { return clk::now() >= end; }));
}

// Any moment of a lease that is renewed.
clk::duration any_moment() {
    static std::mt19937 random;
    return std::chrono::microseconds(random() % static_cast<std::uint64_t>(lease / 2us));
}

}  // namespace

// A machine that has no time for a thread is not held against the library.
TEST_CASE(
    "when an owner is killed, the first of the queue owns within the lease and 50 ms, the others in their "
    "order") {
    redis_server server;
    const int count = injections(5);
    tally seen;
    for (int i = 0; seen.rounds < count && i < 2 * count; ++i) {
        line l(server);
        pass(any_moment());
        l.kill_owner();
        seen.add(l, server);
    }
    seen.judge("F2", "owner", count);
    CHECK(seen.first.most() <= in_ms(bound + chain * seen.machine));
}

// Half of the time it is queued still when it is killed, else it has just got the lock.
TEST_CASE("when an owner and the first of the queue are killed, the second owns within two leases") {
    redis_server server;
    const int count = injections(6);
    tally seen;
    for (int i = 0; seen.rounds < count && i < 2 * count; ++i) {
        line l(server);
        const bool owns = i % 2 == 0;
        l.said().keeps = owns;
        pass(any_moment());
        l.kill_owner();
        if (owns) REQUIRE(eventually([&] { return l.grants() == 2; }));
        l.kill_waiter(0);
        seen.add(l, server);
    }
    seen.judge("F16", "owner and first of the queue", count);
    CHECK(seen.longest.most() <= in_ms(2 * lease + 2 * (bound + chain * seen.machine)));
}

TEST_CASE("when an owner and a waiter in the middle of the queue are killed, the others keep their order") {
    redis_server server;
    const int count = injections(5);
    tally seen;
    for (int i = 0; seen.rounds < count && i < 2 * count; ++i) {
        line l(server);
        pass(any_moment());
        l.kill_waiter(1 + i % (waiters - 2));
        if (i % 2 == 0) pass(any_moment());
        l.kill_owner();
        seen.add(l, server);
    }
    seen.judge("F2", "owner and one in the middle of the line", count);
    CHECK(seen.first.most() <= in_ms(bound + chain * seen.machine));
}

}  // namespace killed_owner_tests
