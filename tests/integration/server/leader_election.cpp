// Candidates over a real server: who leads, who is told, and what becomes of it when somebody
// dies or the server does.
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <system_error>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

#include <distlock/distlock.hpp>
#include <distlock/hiredis.hpp>
#include <distlock/testing.hpp>

#include "support/catch.hpp"
#include "support/fresh_name.hpp"
#include "support/hiredis_test.hpp"
#include "support/lock_on_server.hpp"
#include "support/timing_tolerance.hpp"
#include "support/waiting.hpp"

namespace leader_election_tests {

using namespace std::chrono_literals;
using distlock::election_options;
using distlock::errc;
using distlock::hiredis_connection;
using distlock::leadership;
using distlock::stop_reason;
using distlock::testing::redis_server;
using hiredis_test::common;
using clk = distlock::clock;
using election = distlock::leader_election<hiredis_connection>;

namespace {

struct diary final : distlock::election_observer {
    void started(std::uint64_t term) noexcept override { note("started", term); }
    void stopped(std::uint64_t term, stop_reason why) noexcept override {
        note(why == stop_reason::done ? "done" : "lost", term);
    }
    void failed(std::error_code) noexcept override { ++failures; }
    void note(const char* what, std::uint64_t term) {
        const std::lock_guard guard(lock);
        all.emplace_back(what, term);
    }
    std::vector<std::pair<std::string, std::uint64_t>> told() const {
        const std::lock_guard guard(lock);
        return all;
    }
    mutable std::mutex lock;
    std::vector<std::pair<std::string, std::uint64_t>> all;
    std::atomic<int> failures{0};
};

void wait_for_end(const leadership& mine, const std::stop_token& stop) {
    eventually([&] { return mine.lost().stop_requested() || stop.stop_requested(); }, 60s);
}

}  // namespace

TEST_CASE("one candidate leads at a time, in terms that grow, and each of them in its turn") {
    struct reign {
        clk::time_point from, to;
        std::uint64_t term;
    };
    const auto name = fresh_name();
    std::mutex lock;
    std::vector<reign> reigns;
    std::array<std::atomic<int>, 3> led{};
    {
        std::vector<std::jthread> candidates;
        for (std::size_t i = 0; i < led.size(); ++i) {
            candidates.emplace_back([&, i](std::stop_token stop) {
                hiredis_connection redis(common().uri());
                election mine(redis, name);
                mine.run(stop, [&](const leadership& now) {
                    const auto from = clk::now();
                    std::this_thread::yield();
                    const std::lock_guard guard(lock);
                    reigns.push_back({from, clk::now(), now.term()});
                    ++led[i];
                });
            });
        }
        REQUIRE(eventually(
            [&] { return std::all_of(led.begin(), led.end(), [](const auto& n) { return n >= 5; }); }));
    }
    for (std::size_t i = 1; i < reigns.size(); ++i) {
        CHECK(reigns[i].term > reigns[i - 1].term);
        CHECK(reigns[i].from >= reigns[i - 1].to);
    }
    CHECK(eventually([&] { return common().command({"EXISTS", name}) == "0"; }));
}

// A fleet whose work could not be done led in thousands of terms a second.
TEST_CASE("work that returns at once is called again 100 ms later, and no sooner") {
    hiredis_connection redis(common().uri());
    election mine(redis, fresh_name());
    std::stop_source stop;
    std::vector<clk::time_point> calls;
    mine.run(stop.get_token(), [&](const leadership&) {
        calls.push_back(clk::now());
        if (calls.size() == 3) stop.request_stop();
    });
    REQUIRE(calls.size() == 3);
    CHECK(calls[1] - calls[0] >= 50ms);
    CHECK(calls[2] - calls[1] >= 50ms);
}

TEST_CASE("work that has taken its time is called again at once") {
    hiredis_connection redis(common().uri());
    election mine(redis, fresh_name());
    // One of several: the machine may be busy.
    CHECK(eventually([&] {
        std::stop_source stop;
        std::optional<clk::time_point> end;
        clk::duration between{};
        mine.run(stop.get_token(), [&](const leadership&) {
            if (end) {
                between = clk::now() - *end;
                stop.request_stop();
            }
            const auto until = clk::now() + 100ms;
            while (clk::now() < until) std::this_thread::yield();
            end = clk::now();
        });
        return between < 50ms;
    }));
}

// Where two threads ran one election, the one that had lost said that nobody leads while the other did.
TEST_CASE("two threads may run one election: one leads at a time, and term() is its") {
    const auto name = fresh_name();
    hiredis_connection redis(common().uri());
    const auto told = std::make_shared<diary>();
    election mine(redis, name, {.identity = "twice", .lease = 1500ms}, told);
    std::atomic<std::uint64_t> first_term{0}, second_term{0};
    std::atomic<bool> first_goes{false};
    const auto lead = [&](std::stop_token stop) {
        mine.run(stop, [&](const leadership& now) {
            if (std::uint64_t none = 0; first_term.compare_exchange_strong(none, now.term())) {
                eventually([&] { return first_goes.load(); }, 60s);
            } else {
                second_term = now.term();
                wait_for_end(now, stop);
            }
        });
    };
    std::jthread one(lead), two(lead);
    REQUIRE(eventually([&] { return first_term != 0; }));
    CHECK(mine.term() == first_term);
    CHECK(distlock::force_release(redis, name));
    CHECK(eventually([&] { return second_term != 0; }));
    first_goes = true;
    CHECK(eventually([&] {
        const auto all = told->told();
        return std::find(all.begin(), all.end(), std::pair<std::string, std::uint64_t>("lost", first_term)) !=
               all.end();
    }));
    CHECK(second_term > first_term);
    CHECK(mine.term() == second_term);
}

TEST_CASE("threads of one election lead in terms that all know, also one right after the other") {
    hiredis_connection redis(common().uri());
    election mine(redis, fresh_name());
    std::stop_source stop;
    std::atomic<int> led{0}, unknown{0};
    {
        const auto lead = [&] {
            mine.run(stop.get_token(), [&](const leadership& now) {
                const auto seen = mine.leader();
                unknown += !seen || seen->term != now.term();
                if (++led == 20) stop.request_stop();
            });
        };
        std::jthread one(lead), two(lead);
    }
    CHECK(led >= 20);
    CHECK(unknown == 0);
}

TEST_CASE("an identity that is too long is called that") {
    hiredis_connection redis(common().uri());
    CHECK_THROWS_WITH(election(redis, fresh_name(), {.identity = std::string(300, 'x')}),
                      contains_text("identity has 300 bytes"));
}

TEST_CASE("the leader is known to all, with its term and since when; nobody, where nobody leads") {
    const auto name = fresh_name();
    hiredis_connection redis(common().uri());
    hiredis_connection beside(common().uri());
    election mine(redis, name, {.identity = "worker 7"});
    const election other(beside, name);
    std::error_code ec = distlock::errc::unreachable;
    CHECK_FALSE(other.leader(ec));
    CHECK_FALSE(ec);
    CHECK(mine.term() == 0);
    const auto before = std::chrono::system_clock::now();
    std::jthread candidate([&](std::stop_token stop) {
        mine.run(stop, [&](const leadership& now) { wait_for_end(now, stop); });
    });
    REQUIRE(eventually([&] { return mine.term() != 0; }));
    const auto seen = other.leader();
    REQUIRE(seen);
    CHECK(seen->identity == "worker 7");
    CHECK(seen->pid == ::getpid());
    CHECK_FALSE(seen->host.empty());
    CHECK(seen->term == mine.term());
    CHECK(seen->since > before - 2s);
    CHECK(seen->since < std::chrono::system_clock::now() + 2s);
    CHECK(seen->remaining > 5s);
    CHECK(seen->remaining <= 10s);
    CHECK(other.term() == 0);
    candidate.request_stop();
    candidate.join();
    CHECK(mine.term() == 0);
    CHECK(eventually([&] { return !other.leader(); }));
    std::jthread nameless([&](std::stop_token stop) {
        election(beside, name).run(stop, [&](const leadership& now) { wait_for_end(now, stop); });
    });
    CHECK(eventually([&] {
        const auto leads = other.leader();
        return leads && leads->identity == "candidate";
    }));
}

TEST_CASE("a leader that loses its lease is told, and stands again in a later term") {
    const auto name = fresh_name();
    hiredis_connection redis(common().uri());
    const auto told = std::make_shared<diary>();
    election mine(redis, name, {.lease = brief_lease}, told);
    std::atomic<int> terms{0};
    std::atomic<std::uint64_t> term_after_loss{1};
    std::jthread candidate([&](std::stop_token stop) {
        mine.run(stop, [&](const leadership& now) {
            ++terms;
            wait_for_end(now, stop);
            if (now.lost().stop_requested()) term_after_loss = mine.term();
        });
    });
    REQUIRE(eventually([&] { return terms == 1; }));
    const auto first = mine.term();
    CHECK(first != 0);
    common().command({"DEL", name});
    REQUIRE(eventually([&] { return terms == 2; }));
    CHECK(mine.term() > first);
    CHECK(term_after_loss == 0);
    candidate.request_stop();
    candidate.join();
    const auto all = told->told();
    REQUIRE(all.size() == 4);
    CHECK(all[0].first == "started");
    CHECK(all[1] == std::pair(std::string("lost"), all[0].second));
    CHECK(all[2].first == "started");
    CHECK(all[2].second > all[0].second);
    CHECK(all[3] == std::pair(std::string("done"), all[2].second));
}

TEST_CASE("an observer that is told that a leadership began or ended finds term() changed already") {
    struct watcher final : distlock::election_observer {
        void started(std::uint64_t term) noexcept override { at_start = of->term() == term; }
        void stopped(std::uint64_t, stop_reason) noexcept override {
            at_end = at_end && of->term() == 0;
            ++ends;
        }
        const election* of = nullptr;
        bool at_start = false;
        bool at_end = true;
        int ends = 0;
    };
    hiredis_connection redis(common().uri());
    const auto told = std::make_shared<watcher>();
    election mine(redis, fresh_name(), {}, told);
    told->of = &mine;
    std::stop_source stop;
    mine.run(stop.get_token(), [&](const leadership& now) {
        CHECK(mine.term() == now.term());
        stop.request_stop();
    });
    CHECK(told->at_start);
    CHECK(told->at_end);
    CHECK(told->ends == 1);
}

TEST_CASE("an exception of the work is thrown, after the leadership was given up and that was told") {
    const auto name = fresh_name();
    hiredis_connection redis(common().uri());
    const auto told = std::make_shared<diary>();
    election mine(redis, name, {}, told);
    CHECK_THROWS_AS(mine.run({}, [](const leadership&) { throw std::runtime_error("no more"); }),
                    std::runtime_error);
    CHECK(mine.term() == 0);
    CHECK(told->told().back().first == "done");
    CHECK(eventually([&] { return common().command({"EXISTS", name}) == "0"; }));
    // An error of ours is the work's, too, whatever it says.
    CHECK_THROWS_AS(
        mine.run({}, [](const leadership&) { throw distlock::error(errc::unreachable, "elsewhere"); }),
        distlock::error);
    CHECK(told->failures == 0);
    std::stop_source stop;
    CHECK_THROWS_AS(mine.run(stop.get_token(),
                             [&](const leadership&) {
                                 stop.request_stop();
                                 throw distlock::error(errc::cancelled, "elsewhere");
                             }),
                    distlock::error);
}

TEST_CASE("a candidate rides out a server that is gone, and leads when it is back") {
    redis_server server;
    hiredis_connection redis(server.uri());
    const auto told = std::make_shared<diary>();
    election mine(redis, "scheduler", {}, told);
    std::atomic<bool> leads{false};
    server.kill();
    std::jthread candidate([&](std::stop_token stop) {
        mine.run(stop, [&](const leadership& now) {
            leads = true;
            wait_for_end(now, stop);
        });
    });
    REQUIRE(eventually([&] { return told->failures >= 1; }, 30s));
    CHECK(told->told().empty());
    server.start();
    CHECK(eventually([&] { return leads.load(); }, 30s));
}

TEST_CASE("a candidate ends at once when it is stopped, while it waits and while the server is gone") {
    const auto name = fresh_name();
    hiredis_connection redis(common().uri());
    hiredis_connection beside(common().uri());
    distlock::mutex taken{beside, name};
    const distlock::scoped_lock guard(taken);
    election mine(redis, name);
    {
        std::jthread candidate([&](std::stop_token stop) { mine.run(stop, [](const leadership&) {}); });
        REQUIRE(lock_on_server(common(), name).gets(1));
        const auto asked = clk::now();
        candidate.request_stop();
        candidate.join();
        CHECK(clk::now() - asked < 50ms + timing_tolerance);
    }
    CHECK(lock_on_server(common(), name).gets(0));
    std::stop_source stopped;
    stopped.request_stop();
    mine.run(stopped.get_token(), [](const leadership&) { FAIL("it was stopped"); });
}

TEST_CASE("an error that trying again does not help is thrown") {
    const auto name = fresh_name();
    common().command({"HSET", name, "a", "b"});
    hiredis_connection redis(common().uri());
    election mine(redis, name);
    CHECK_THROWS_AS(mine.run({}, [](const leadership&) {}), distlock::error);
    CHECK_THROWS_AS(election(redis, ""), distlock::error);
    CHECK_THROWS_AS(election(redis, name, {.lease = 1ms}), distlock::error);
    distlock::leader_election by_deduction{redis, name, {.identity = "x"}};
    CHECK(by_deduction.name() == name);
}

}  // namespace leader_election_tests
