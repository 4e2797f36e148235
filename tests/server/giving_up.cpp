// Who gives up waiting loses no grant, and leaves nobody counted: whatever happens between the steps.
#include <atomic>
#include <chrono>
#include <cstddef>
#include <future>
#include <memory>
#include <optional>
#include <poll.h>
#include <set>
#include <stop_token>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include <distlock/hiredis.hpp>
#include <distlock/mutex.hpp>
#include <distlock/testing.hpp>

#include "catch.hpp"
#include "support/lock_on_server.hpp"
#include "support/slack.hpp"
#include "support/stepping_proxy.hpp"
#include "support/waiting.hpp"

using namespace std::chrono_literals;
using distlock::errc;
using distlock::hiredis_connection;
using distlock::lock_options;
using clk = distlock::clock;
using locker = distlock::mutex<hiredis_connection>;

namespace {

// No look comes to the help of who is to be served, and no answer is given up while a step is stopped.
constexpr lock_options no_looks{.recheck = 1h};
const std::string patient = "?command_timeout=5s&connect_timeout=5s";

std::string fresh_name() {
    static int count = 0;
    return "lock:" + std::to_string(++count);
}

distlock::testing::redis_server& server() {
    static distlock::testing::redis_server one;
    return one;
}
stepping_proxy& proxy() {
    static stepping_proxy one(server().socket_path());
    return one;
}

/// A client of its own that holds the lock, or waits for it without end.
struct client {
    explicit client(const std::string& name) : lock(redis, name, no_looks) {}
    /// Effects: gets in line, on a thread of its own.
    void wait() {
        served = std::async(std::launch::async, [this] { return lock.try_lock_for(20s); });
    }
    bool is_served_at_once() { return served.wait_for(slack) == std::future_status::ready && served.get(); }

    hiredis_connection redis{server().uri() + patient};
    locker lock;
    std::future<bool> served;
};

/// Everybody who has to do with one lock: an owner, one who gives up, and maybe another who does not.
struct scene {
    explicit scene(bool company) {
        owner.lock.lock();
        if (!company) return;
        another.emplace(name);
        another->wait();
        in_line = seen.gets(1);
    }
    bool another_waits() const {
        return another && another->served.wait_for(0s) == std::future_status::timeout;
    }
    void release() {
        if (!released.exchange(true)) owner.lock.unlock();
    }

    /// Effects: checks what must hold when the one has given up or has the lock.
    void check(bool got, locker& quitter) {
        if (got) CHECK(quitter.owns_lock());
        if (!got) CHECK_FALSE(quitter.owns_lock());
        if (another_waits() && !got && !released) CHECK(eventually([&] { return seen.counted() == 1; }));
        release();
        if (got) quitter.unlock();
        if (another) {
            CHECK(another->is_served_at_once());
            CHECK(eventually([&] { return seen.counted() == 0; }));
            CHECK_FALSE(seen.offered());
            another->lock.unlock();
        }
        const auto now = clk::now();
        CHECK(eventually([&] { return seen.untouched(); }));
        CHECK(clk::now() - now < slack);
    }

    const std::string name = fresh_name();
    const lock_on_server seen{server(), name};
    client owner{name};
    std::optional<client> another;
    bool in_line = true;
    std::atomic<bool> released{false};
};

const std::vector<std::string> before_it_blocks{"SET request",        "SET reply",        "join request",
                                                "join reply",         "ID request",       "ID reply",
                                                "permission request", "permission reply", "BLPOP request"};
const std::vector<std::string> while_it_leaves{"UNBLOCK request", "UNBLOCK reply", "BLPOP reply",
                                               "leave request",   "leave reply",   "quit request",
                                               "quit reply"};

// Effects: runs `what` once, when the one who gives up blocks on the server.
template <class What>
std::jthread when_blocked(const scene& s, What what) {
    return std::jthread([&s, what](const std::stop_token& over) {
        const auto all_block = [&] { return s.seen.blocked() == (s.another_waits() ? 2 : 1); };
        while (!over.stop_requested() && !all_block()) ::poll(nullptr, 0, 1);
        if (!over.stop_requested()) what();
    });
}

}  // namespace

TEST_CASE("a stop request at any step and a release at any other: the lock is free, or whose it should be") {
    std::set<std::string> came;
    for (const bool company : {false, true}) {
        auto stops = before_it_blocks;
        stops.emplace_back("blocked");
        for (const auto& stop_at : stops) {
            auto releases = before_it_blocks;
            releases.insert(releases.end(), while_it_leaves.begin(), while_it_leaves.end());
            releases.emplace_back("never");
            for (const auto& release_at : releases) {
                INFO("stop at " << stop_at << ", release at " << release_at
                                << (company ? ", in company" : ""));
                scene s(company);
                REQUIRE(s.in_line);
                std::stop_source stop;
                // A connection of its own: it asks for its number anew.
                hiredis_connection redis(proxy().uri(patient));
                locker quitter{redis, s.name, no_looks};
                proxy().at(stop_at, [&] { stop.request_stop(); });
                proxy().at(release_at, [&] { s.release(); });
                bool got = false;
                std::error_code ec;
                {
                    const auto blocked = when_blocked(s, [&] { stop.request_stop(); });
                    const auto took = time_of([&] { got = quitter.lock(stop.get_token(), ec); });
                    CHECK(took < 2 * slack);
                }
                CHECK((got || ec == errc::cancelled));
                came.merge(proxy().forget());
                s.check(got, quitter);
            }
        }
    }
    for (const auto& one : before_it_blocks) CHECK(came.contains(one));
    for (const auto* one :
         {"UNBLOCK request", "UNBLOCK reply", "BLPOP reply", "leave request", "leave reply"})
        CHECK(came.contains(one));
}

TEST_CASE("time that is up at any step and a release at any other: the lock is free, or whose it should be") {
    std::set<std::string> came;
    constexpr auto timeout = 25ms;
    for (const bool company : {false, true}) {
        for (const std::string late : {"SET reply", "join request", "join reply", "BLPOP request", "none"}) {
            auto releases = while_it_leaves;
            releases.insert(releases.end(), {"join request", "BLPOP request", "never"});
            for (const auto& release_at : releases) {
                INFO("late at " << late << ", release at " << release_at << (company ? ", in company" : ""));
                scene s(company);
                REQUIRE(s.in_line);
                hiredis_connection redis(proxy().uri(patient));
                locker quitter{redis, s.name, no_looks};
                const auto deadline = clk::now() + timeout;
                proxy().at(late, [&] {
                    while (clk::now() < deadline) ::poll(nullptr, 0, 1);
                });
                proxy().at(release_at, [&] { s.release(); });
                bool got = false;
                std::error_code ec;
                const auto took = time_of([&] { got = quitter.try_lock_until(deadline, ec); });
                CHECK(took < timeout + slack);
                CHECK_FALSE(ec);
                came.merge(proxy().forget());
                s.check(got, quitter);
            }
        }
    }
    for (const auto* one : {"join reply", "BLPOP request", "BLPOP reply", "quit request", "quit reply"})
        CHECK(came.contains(one));
}

TEST_CASE("one who gives up in front of another hands nothing to nobody") {
    std::set<std::string> came;
    for (const auto& release_at : while_it_leaves) {
        INFO("release at " << release_at);
        scene s(false);
        hiredis_connection redis(proxy().uri(patient));
        locker quitter{redis, s.name, no_looks};
        std::stop_source stop;
        std::error_code ec;
        auto gave_up = std::async(std::launch::async, [&] { return quitter.lock(stop.get_token(), ec); });
        REQUIRE(s.seen.gets(1));
        s.another.emplace(s.name);
        s.another->wait();
        REQUIRE(s.seen.gets(2));
        proxy().at(release_at, [&] { s.release(); });
        stop.request_stop();
        const bool got = gave_up.get();
        CHECK((got || ec == errc::cancelled));
        came.merge(proxy().forget());
        s.check(got, quitter);
    }
}

TEST_CASE("a stop request that comes just before the wait leaves nobody counted") {
    struct stopping {
        distlock::reply execute(const distlock::command& cmd) { return inner.execute(cmd); }
        distlock::reply wait(const distlock::command& cmd, clk::time_point deadline, std::stop_token stop) {
            source.request_stop();
            return inner.wait(cmd, deadline, std::move(stop));
        }
        hiredis_connection inner{server().uri() + patient};
        std::stop_source source;
    };
    scene s(false);
    stopping redis;
    distlock::mutex quitter{redis, s.name, no_looks};
    std::error_code ec;
    CHECK_FALSE(quitter.lock(redis.source.get_token(), ec));
    CHECK(ec == errc::cancelled);
    CHECK(s.seen.counted() == 0);
    s.release();
    CHECK(eventually([&] { return s.seen.untouched(); }));
}
