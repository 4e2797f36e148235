// A candidate with a scripted connection.
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <dlfcn.h>
#include <iterator>
#include <memory>
#include <stop_token>
#include <system_error>
#include <thread>
#include <time.h>
#include <utility>
#include <vector>

#include <distlock/leader_election.hpp>
#include <distlock/mutex.hpp>
#include <distlock/testing/manual_clock.hpp>
#include <distlock/testing/scripted_connection.hpp>
#include <distlock/wire/command.hpp>
#include <distlock/wire/plain.hpp>

#include "support/catch.hpp"
#include "support/gate.hpp"
#include "support/in_child.hpp"
#include "support/no_threads.hpp"
#include "support/sanitizers.hpp"
#include "support/script_calls.hpp"
#include "support/timing_tolerance.hpp"
#include "support/waiting.hpp"

namespace leader_election_tests {

using namespace std::chrono_literals;
using distlock::errc;
using distlock::reply;
using distlock::testing::scripted_connection;

TEST_CASE(
    "an error that trying again does not help is thrown though the candidate is told to stop meanwhile") {
    scripted_connection redis;
    std::stop_source stop;
    redis.then([&] { stop.request_stop(); }, reply::error("NOPERM this user has no permissions"));
    distlock::leader_election election{redis, "orders"};
    std::error_code ec;
    bool led = false;
    try {
        election.run(stop.get_token(), [&](const distlock::leadership&) { led = true; });
    } catch (const distlock::error& e) {
        ec = e.code();
    }
    CHECK(ec == errc::permission_denied);
    CHECK_FALSE(led);
}

// It had asked what the key holds, for a text that nobody saw.
TEST_CASE("leader() with an error code asks once, and says why there is no leader") {
    const reply wrong = reply::error("WRONGTYPE Operation against a key holding the wrong kind of value");
    scripted_connection redis{wrong, wrong, reply::status("list")};
    const distlock::leader_election election{redis, "orders"};
    std::error_code ec;
    CHECK_FALSE(election.leader(ec));
    CHECK(ec == errc::wrong_type);
    CHECK(redis.commands().size() == 1);
    CHECK_THROWS_WITH(election.leader(), contains_text("inspect orders") && contains_text("holds a list"));
}

namespace {

// Stops its candidate at the first failure.
struct noting final : distlock::election_observer {
    void failed(std::error_code why) noexcept override {
        heard = why;
        stop.request_stop();
    }
    std::error_code heard;
    std::stop_source stop;
};

}  // namespace

// Only a server that is gone was tried: any other of these could have ended run().
TEST_CASE("a candidate rides out what another server, or another time, may answer otherwise") {
    struct row {
        reply answer;
        errc cause;
    };
    const row rows[] = {
        {reply::not_sent(errc::unreachable, "x"), errc::unreachable},
        {reply::no_answer(errc::no_reply, "x"), errc::no_reply},
        {reply::error("LOADING x"), errc::unavailable},
        {reply::error("READONLY x"), errc::read_only},
        {reply::error("OOM x"), errc::out_of_memory},
        {reply::error("MISCONF x"), errc::writes_refused},
        {reply::status("PONG"), errc::protocol_error},
        {reply::not_sent(errc::tls_failed, "x"), errc::tls_failed},
        {reply::not_sent(errc::no_thread, "x"), errc::no_thread},
        {reply::not_sent(errc::no_entropy, "x"), errc::no_entropy},
        {reply::not_sent(errc::lease_expired, "x"), errc::lease_expired},
    };
    // At once: some are ridden out for a while before they are told.
    std::vector<std::error_code> heard(std::size(rows));
    {
        std::vector<std::jthread> candidates;
        for (std::size_t i = 0; i < std::size(rows); ++i) {
            candidates.emplace_back([&, i] {
                const auto told = std::make_shared<noting>();
                const auto answering = [&](const distlock::command&) { return rows[i].answer; };
                distlock::leader_election election{answering, "orders", {}, told};
                try {
                    election.run(told->stop.get_token(), [](const distlock::leadership&) {});
                    heard[i] = told->heard;
                } catch (const distlock::error&) {
                    // It was not ridden out.
                }
            });
        }
    }
    for (std::size_t i = 0; i < std::size(rows); ++i) CHECK(heard[i] == rows[i].cause);
}

TEST_CASE("a candidate that gets no thread to hear of a loss gives the lock back, and rides that out") {
    NOT_TESTED_UNLESS(threads_in_a_child, child_has_no_threads);
    CHECK(in_child([] {
        const auto granted = reply::array({reply::integer(1), reply::string("7")});
        scripted_connection redis{reply::status("OK"), granted, reply::integer(1)};
        distlock::mutex keeps_a_thread{redis, "other"};
        keeps_a_thread.lock();
        if (!let_no_thread_start()) return false;
        const auto told = std::make_shared<noting>();
        distlock::leader_election election{redis, "orders", {}, told};
        bool led = false;
        try {
            election.run(told->stop.get_token(), [&](const distlock::leadership&) { led = true; });
        } catch (const distlock::error&) {
            return false;
        }
        return told->heard == errc::no_thread && !led && redis.left() == 0;
    }));
}

// It paused all of its 100 ms.
TEST_CASE("a stop request ends the pause of a candidate that was refused") {
    struct stopping final : distlock::election_observer {
        void failed(std::error_code) noexcept override { failed_ = true; }
        std::atomic<bool> failed_ = false;
    };
    const auto refusing = [](const distlock::command&) { return reply::error("OOM command not allowed"); };
    // One of several: a pause that is over by itself just then says nothing.
    CHECK(eventually([&] {
        const auto told = std::make_shared<stopping>();
        distlock::leader_election election{refusing, "orders", {}, told};
        std::stop_source stop;
        std::jthread candidate([&] { election.run(stop.get_token(), [](const distlock::leadership&) {}); });
        const bool pauses = eventually([&] { return told->failed_.load(); });
        const auto ended_in = time_of([&] {
            stop.request_stop();
            candidate.join();
        });
        return pauses && ended_in < 50ms;
    }));
}

TEST_CASE("a candidate that is refused stands again 100 ms later") {
    struct counting final : distlock::election_observer {
        void failed(std::error_code why) noexcept override {
            CHECK(why == errc::out_of_memory);
            if (++failures == 3) stop.request_stop();
        }
        int failures = 0;
        std::stop_source stop;
    };
    const auto refusing = [](const distlock::command&) { return reply::error("OOM command not allowed"); };
    const auto told = std::make_shared<counting>();
    distlock::leader_election election{refusing, "orders", {}, told};
    const auto run = [&] { election.run(told->stop.get_token(), [](const distlock::leadership&) {}); };
    const auto took = time_of(run);
    CHECK(took >= 200ms);
    CHECK(took < 1s + timing_tolerance);
    CHECK(told->failures == 3);
}

namespace {

using distlock::testing::manual_clock;

// Where a thread waits that has just been granted the lock: run() reads this clock, the engine the other.
thread_local const gate* before_it_leads = nullptr;

// Two threads that run one election; the one that has the lock after `late` others is late to lead.
struct two_candidates {
    struct granting {
        explicit granting(int count) : late(count) {}
        reply execute(const distlock::command& cmd) {
            if (!calls(cmd, distlock::detail::plain_look_with_siblings)) return reply::integer(1);
            if (granted == late) before_it_leads = &leads;
            return distlock::testing::granted(1000 * static_cast<std::uint64_t>(++granted));
        }
        const int late;
        std::atomic<int> granted = 0;
        gate leads;
    };
    struct counting final : distlock::election_observer {
        void started(std::uint64_t) noexcept override { ++starts; }
        std::atomic<int> starts = 0;
    };

    explicit two_candidates(int late) : redis(late) { manual_clock::reset(); }
    ~two_candidates() {
        stop.request_stop();
        redis.leads.open();
        work_ends.open();
    }
    std::jthread run() {
        return std::jthread([this] {
            election.run(stop.get_token(), [this](const distlock::leadership&) { work_ends.pass(); });
        });
    }
    bool started(int times) const {
        return eventually([&] { return told->starts == times; });
    }

    granting redis;
    gate work_ends;
    std::stop_source stop;
    const std::shared_ptr<counting> told = std::make_shared<counting>();
    distlock::leader_election<granting, manual_clock> election{redis, "orders", {}, told};
    std::jthread one, two;
};

}  // namespace

// In the place of the system's, for the whole program.
extern "C" int clock_gettime(clockid_t which, timespec* shown) noexcept {
    using function = int (*)(clockid_t, timespec*);
    static const auto real = reinterpret_cast<function>(::dlsym(RTLD_NEXT, "clock_gettime"));
    if (const gate* const here = std::exchange(before_it_leads, nullptr)) here->pass();
    return real(which, shown);
}

TEST_CASE("a thread that begins to lead after it has lost takes term() from no other that leads") {
    two_candidates both(0);
    both.one = both.run();
    REQUIRE(eventually([&] { return both.redis.leads.reached(); }));
    manual_clock::advance(1h);
    both.two = both.run();
    REQUIRE(both.started(1));
    const auto second = both.election.term();
    CHECK(second != 0);
    both.redis.leads.open();
    REQUIRE(both.started(2));
    CHECK(both.election.term() == second);
}

TEST_CASE("term() is not that of a leadership that was lost while another begins") {
    two_candidates both(1);
    both.one = both.run();
    REQUIRE(both.started(1));
    CHECK(both.election.term() == 1000);
    manual_clock::advance(1h);
    both.two = both.run();
    REQUIRE(eventually([&] { return both.redis.leads.reached(); }));
    CHECK(both.election.term() == 0);
    both.redis.leads.open();
    REQUIRE(both.started(2));
    CHECK(both.election.term() == 2000);
}

}  // namespace leader_election_tests
