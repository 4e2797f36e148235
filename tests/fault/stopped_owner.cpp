// The owner's own process is stopped (SIGSTOP) past its lease: the first statement it executes afterwards
// sees that the lock is not its own any more, and lost() fires at once.
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <random>
#include <signal.h>
#include <stop_token>
#include <string>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <system_error>
#include <unistd.h>

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

namespace stopped_owner_tests {

using namespace std::chrono_literals;
using clk = distlock::clock;
using distlock::release_outcome;
using distlock::testing::redis_server;

namespace {

constexpr std::chrono::milliseconds lease = 300ms;
constexpr clk::duration bound = instrumented ? timing_tolerance : 50ms;

// What the owner, in its process, and the test tell each other.
struct board {
    std::atomic<int> round{0};      // of the acquisition that the owner has, counted from 1
    std::atomic<int> answered{0};   // the round whose end stands below
    std::atomic<bool> owned{true};  // what owns_lock() said after the owner went on
    std::atomic<bool> owned_later{true};
    std::atomic<clk::duration> jump{};        // of the clock, between two looks of the owner
    std::atomic<clk::time_point> lost_at{};   // when lost() fired
    std::atomic<release_outcome> released{};  // by the late unlock()
};

void hold_once(board& b, distlock::mutex<distlock::hiredis_connection>& m, int round) {
    std::atomic<clk::time_point> lost_at{clk::time_point{}};
    m.lock();
    bool owned = true;
    {
        const std::stop_callback note{m.lost(), [&] { lost_at = clk::now(); }};
        auto before = clk::now();
        auto now = before;
        b.round = round;
        for (;; before = now) {
            now = clk::now();
            if (now - before > lease) {
                owned = m.owns_lock();  // the first thing that is said of the lock after the stop
                break;
            }
            owned = m.owns_lock();
            if (!owned) {  // the stop came before this look; else nobody renewed
                now = clk::now();
                break;
            }
        }
        b.jump = now - before;
        b.owned = owned;
        eventually([&] { return lost_at.load() != clk::time_point{}; });
    }
    b.lost_at = lost_at.load();
    b.owned_later = m.owns_lock();
    b.released = m.unlock();
    b.answered = round;
}

// A process that holds the lock again and again. Made before this process has threads.
class forked_owner {
  public:
    explicit forked_owner(const std::string& uri) {
        void* const shared =
            ::mmap(nullptr, sizeof(board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        if (shared == MAP_FAILED) throw std::system_error(errno, std::generic_category());
        board_ = new (shared) board;
        const pid_t parent = ::getpid();
        pid_ = ::fork();
        if (pid_ == 0) run(uri, parent);
    }
    forked_owner(const forked_owner&) = delete;
    forked_owner& operator=(const forked_owner&) = delete;
    ~forked_owner() {
        if (pid_ > 0) {
            ::kill(pid_, SIGKILL);
            ::waitpid(pid_, nullptr, 0);
        }
        ::munmap(board_, sizeof(board));
    }

    board& said() { return *board_; }

    // Returns: when it stands still.
    bool stop() {
        ::kill(pid_, SIGSTOP);
        int status = 0;
        return ::waitpid(pid_, &status, WUNTRACED) == pid_ && WIFSTOPPED(status);
    }
    void go_on() { ::kill(pid_, SIGCONT); }

  private:
    [[noreturn]] void run(const std::string& uri, pid_t parent) {
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (::getppid() != parent) ::_exit(1);
        try {
            distlock::hiredis_connection redis{uri};
            distlock::mutex m{redis, "owned", {.lease = lease}};
            for (int round = 1;; ++round) hold_once(*board_, m, round);
        } catch (...) {
            ::_exit(1);
        }
    }

    board* board_;
    pid_t pid_ = -1;
};

}  // namespace

TEST_CASE(
    "a process that was stopped past its lease sees in the first statement after that the lock is lost") {
    redis_server server;
    forked_owner owner{server.uri() + "?command_timeout=60ms"};
    board& said = owner.said();
    lateness_probe probe;
    std::mt19937 random;
    const int count = injections(10);
    int tested = 0;
    int owned = 0;
    int unstopped = 0;  // more rounds, whose lock was lost before: nobody had time to renew it
    int untold = 0;
    int late = 0;
    clk::duration machine{};  // how late it was itself meanwhile
    int freed = 0;
    int renewed = 0;
    spread delay;
    for (int round = 0; tested < count && unstopped <= count;) {
        REQUIRE(eventually([&] { return said.round > round; }));
        round = said.round;
        const auto moment = clk::now() + std::chrono::milliseconds(random() % (3 * lease.count() / 2));
        const auto first_end = clk::now() + lease;
        REQUIRE(eventually([&] { return clk::now() >= moment; }));
        REQUIRE(owner.stop());
        if (said.answered >= round) {
            ++unstopped;
            owner.go_on();
            continue;
        }
        const auto stopped = clk::now();
        REQUIRE(eventually([&] { return server.command({"EXISTS", "owned"}) == "0"; }));
        // Every other time somebody else has it when the owner goes on.
        const bool taken = tested % 2 == 1;
        if (taken) server.command({"SET", "owned", "another owner's", "PX", "60000"});
        REQUIRE(eventually([&] { return clk::now() > stopped + lease + lease / 10; }));
        probe.reset();
        const auto continued = clk::now();
        owner.go_on();
        REQUIRE(eventually([&] { return said.answered >= round; }));

        owned += said.owned || said.owned_later;
        if (said.jump.load() <= lease) {
            ++unstopped;
            if (taken) server.command({"DEL", "owned"});
            continue;
        }
        ++tested;
        renewed += moment > first_end;
        if (said.lost_at.load() == clk::time_point{}) {
            ++untold;
        } else {
            const auto after = said.lost_at.load() - continued;
            late += after > bound;
            machine = std::max(machine, probe.worst());
            delay.add(after);
        }
        CHECK(said.released == (taken ? release_outcome::taken : release_outcome::expired));
        if (taken) {
            freed += server.command({"GET", "owned"}) != "another owner's";
            server.command({"DEL", "owned"});
        }
    }
    figure("stopped owner: owns_lock() false in the first statement: %d of %d, %d of them after a renewal",
           count - owned, count, renewed);
    figure("  lost() fired %d times, %.2f to %.2f ms after the process went on; over %.0f ms: %d",
           count - untold, delay.least(), delay.most(), in_ms(bound), late);
    figure("  beside it a thread that only waits was up to %.2f ms late", in_ms(machine));
    show_row("F1", count, static_cast<std::size_t>(owned), delay.most(), in_ms(bound));
    CHECK(owned == 0);
    CHECK(tested == count);
    CHECK(untold == 0);
    // A machine that has no time for a thread is not held against the library.
    CHECK(delay.most() <= in_ms(bound + machine));
    CHECK(freed == 0);
}

}  // namespace stopped_owner_tests
