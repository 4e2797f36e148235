// A waiter that gives up loses no grant and leaves no ticket, whatever happens between the steps.
#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <optional>
#include <poll.h>
#include <set>
#include <stop_token>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <vector>

#include <distlock/hiredis.hpp>
#include <distlock/mutex.hpp>
#include <distlock/testing.hpp>

#include "support/catch.hpp"
#include "support/fresh_name.hpp"
#include "support/lock_on_server.hpp"
#include "support/stepping_proxy.hpp"
#include "support/timing_tolerance.hpp"
#include "support/waiting.hpp"

namespace cancellation_tests {

using namespace std::chrono_literals;
using distlock::errc;
using distlock::hiredis_connection;
using distlock::lock_options;
using clk = distlock::clock;
using locker = distlock::mutex<hiredis_connection>;

namespace {

// No look comes to the help of the next waiter, and no answer is given up while a step is stopped.
constexpr lock_options no_looks{.recheck = 1h};
const std::string patient = "?command_timeout=5s&connect_timeout=5s";

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
    /// Effects: is queued, on a thread of its own.
    void wait() {
        served = std::async(std::launch::async, [this] { return lock.try_lock_for(20s); });
    }
    bool is_served_at_once() {
        return served.wait_for(timing_tolerance) == std::future_status::ready && served.get();
    }

    hiredis_connection redis{server().uri() + patient};
    locker lock;
    std::future<bool> served;
};

/// Everybody who has to do with one lock: an owner, a waiter that gives up, and maybe another that does not.
struct scene {
    explicit scene(bool company) {
        owner.lock.lock();
        if (company) add_another();
    }
    /// Effects: another waiter stands at the end of the queue.
    void add_another() {
        const int before = seen.queued();
        another.emplace(name);
        another->wait();
        queued = seen.gets(before + 1);
    }
    bool another_waits() const {
        return another && another->served.wait_for(0s) == std::future_status::timeout;
    }
    void release() {
        if (!released.exchange(true)) owner.lock.unlock();
    }

    /// Effects: checks what must hold when the one has given up or has the lock.
    void check(bool got, locker& quitter) {
        CHECK(quitter.owns_lock() == got);
        if (another_waits() && !got && !released) CHECK(seen.gets(1));
        release();
        if (got) quitter.unlock();
        if (another) {
            CHECK(another->is_served_at_once());
            CHECK(seen.gets(0));
            another->lock.unlock();
        }
        const auto now = clk::now();
        CHECK(eventually([&] { return seen.untouched(); }));
        CHECK(clk::now() - now < timing_tolerance);
    }

    const std::string name = fresh_name();
    const lock_on_server seen{server(), name};
    client owner{name};
    std::optional<client> another;
    bool queued = true;
    std::atomic<bool> released{false};
};

using steps = std::vector<std::string>;
const steps before_it_waits{"SET request",      "SET reply",       "SSUBSCRIBE request", "SUBSCRIBE request",
                            "SSUBSCRIBE reply", "SUBSCRIBE reply", "join request",       "join reply"};
const steps on_a_stop{"message", "leave request", "leave reply"};
const steps on_time{"message", "last request", "last reply"};

steps joined(steps all, const steps& more) {
    all.insert(all.end(), more.begin(), more.end());
    return all;
}

void expect_all(const std::set<std::string>& came, const steps& expected) {
    for (const auto& one : expected) {
        INFO(one);
        CHECK(came.contains(one));
    }
}

// Effects: runs `what` once, when the waiter that gives up has a ticket.
template <class What>
std::jthread when_queued(const scene& s, What what) {
    return std::jthread([&s, what](const std::stop_token& over) {
        const auto is_queued = [&] { return s.seen.queued() == (s.another_waits() ? 2 : 1); };
        while (!over.stop_requested() && !is_queued()) ::poll(nullptr, 0, 1);
        if (!over.stop_requested()) what();
    });
}

void wait_until(clk::time_point then) {
    while (clk::now() < then) ::poll(nullptr, 0, 1);
}

}  // namespace

TEST_CASE("a stop request at any step and a release at any other: the lock is free, or whose it should be") {
    std::set<std::string> came;
    for (const bool company : {false, true}) {
        for (const auto& stop_at : joined(before_it_waits, {"queued"})) {
            for (const auto& release_at : joined(before_it_waits, joined(on_a_stop, {"never"}))) {
                INFO("stop at " << stop_at << ", release at " << release_at
                                << (company ? ", in company" : ""));
                scene s(company);
                REQUIRE(s.queued);
                std::stop_source stop;
                hiredis_connection redis(proxy().uri(patient));  // which subscribes anew
                locker quitter{redis, s.name, no_looks};
                proxy().at(stop_at, [&] { stop.request_stop(); });
                proxy().at(release_at, [&] { s.release(); });
                bool got = false;
                std::error_code ec;
                {
                    const auto queued = when_queued(s, [&] { stop.request_stop(); });
                    CHECK(time_of([&] { got = quitter.lock(stop.get_token(), ec); }) < 2 * timing_tolerance);
                }
                CHECK((got || ec == errc::cancelled));
                came.merge(proxy().forget());
                s.check(got, quitter);
            }
        }
    }
    expect_all(came, joined(before_it_waits, {"leave request", "leave reply"}));
}

TEST_CASE("time that is up at any step and a release at any other: the lock is free, or whose it should be") {
    std::set<std::string> came;
    constexpr auto timeout = 25ms;
    for (const bool company : {false, true}) {
        for (const std::string late :
             {"SET reply", "SUBSCRIBE reply", "join request", "join reply", "message", "none"}) {
            for (const auto& release_at :
                 joined(on_time, {"join request", "join reply", "queued", "never"})) {
                INFO("late at " << late << ", release at " << release_at << (company ? ", in company" : ""));
                std::error_code ec = errc::no_reply;
                // An answer that comes more than 50 ms late is none, and says nothing of the step.
                for (int round = 0; ec == errc::no_reply && round < 5; ++round) {
                    scene s(company);
                    REQUIRE(s.queued);
                    hiredis_connection redis(proxy().uri(patient));
                    locker quitter{redis, s.name, no_looks};
                    const auto deadline = clk::now() + timeout;
                    proxy().at(late, [&] { wait_until(deadline); });
                    proxy().at(release_at, [&] { s.release(); });
                    std::jthread releases;
                    if (release_at == "queued") releases = when_queued(s, [&] { s.release(); });
                    bool got = false;
                    CHECK(time_of([&] { got = quitter.try_lock_until(deadline, ec); }) <
                          timeout + 2 * timing_tolerance);
                    came.merge(proxy().forget());
                    releases = {};
                    if (ec == errc::no_reply) {
                        s.release();
                    } else {
                        s.check(got, quitter);
                    }
                }
                CHECK_FALSE(ec);
            }
        }
    }
    expect_all(came, joined(on_time, {"SET reply", "SUBSCRIBE reply", "join request", "join reply"}));
}

TEST_CASE("a waiter that gives up in front of another keeps nothing from it, and takes nothing with it") {
    const bool by_stop = GENERATE(true, false);
    std::set<std::string> came;
    for (const auto& release_at : by_stop ? on_a_stop : on_time) {
        INFO("release at " << release_at << (by_stop ? ", stopped" : ", timed out"));
        scene s(false);
        hiredis_connection redis(proxy().uri(patient));
        locker quitter{redis, s.name, no_looks};
        std::stop_source stop;
        std::error_code ec;
        auto gave_up = std::async(std::launch::async, [&] {
            if (by_stop) return quitter.lock(stop.get_token(), ec);
            return quitter.try_lock_for(300ms, ec);
        });
        REQUIRE(s.seen.gets(1));
        s.add_another();
        REQUIRE(s.queued);
        proxy().at(release_at, [&] { s.release(); });
        if (by_stop) stop.request_stop();
        const bool got = gave_up.get();
        if (by_stop) CHECK((got || ec == errc::cancelled));
        if (!by_stop) CHECK_FALSE(ec);
        came.merge(proxy().forget());
        s.check(got, quitter);
    }
    expect_all(came, by_stop ? steps{"leave request"} : steps{"last request", "last reply"});
}

TEST_CASE("a lock that is being handed to a waiter when that gives up goes to the next at once") {
    const bool by_stop = GENERATE(true, false);
    const bool company = GENERATE(true, false);
    INFO((by_stop ? "stopped" : "timed out") << (company ? ", in company" : ""));
    scene s(false);
    hiredis_connection redis(proxy().uri(patient));
    locker quitter{redis, s.name, no_looks};
    std::stop_source stop;
    std::error_code ec;
    std::promise<void> message_may_come;
    proxy().at("message", [&] {
        stop.request_stop();
        message_may_come.get_future().wait();
    });
    auto gave_up = std::async(std::launch::async, [&] {
        if (by_stop) return quitter.lock(stop.get_token(), ec);
        return quitter.try_lock_for(1s, ec);  // less than the two it is offered for
    });
    REQUIRE(s.seen.gets(1));
    if (company) s.add_another();
    REQUIRE(s.queued);
    s.release();
    const bool got = gave_up.get();
    CHECK(got == !by_stop);  // its last question finds the lock
    CHECK(ec == (by_stop ? errc::cancelled : std::error_code()));
    s.check(got, quitter);
    // The message comes when the token is dead, and another waiter of the process reads it: that keeps
    // the lock from nobody.
    message_may_come.set_value();
    proxy().forget();
    scene later(false);
    locker reading{redis, later.name, no_looks};
    auto served = std::async(std::launch::async, [&] { return reading.try_lock_for(20s); });
    REQUIRE(later.seen.gets(1));
    later.release();
    CHECK(served.get());
    CHECK(s.seen.untouched());
}

TEST_CASE("a stop request that comes just before the wait leaves no ticket") {
    struct stopping {
        distlock::reply execute(const distlock::command& cmd) { return inner.execute(cmd); }
        std::shared_ptr<distlock::subscription> subscribe(std::string_view channel) {
            source.request_stop();
            return inner.subscribe(channel);
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
    CHECK(s.seen.queued() == 0);
    s.release();
    CHECK(eventually([&] { return s.seen.untouched(); }));
}

// Releases overtook the requests that they were to undo, and after the first thousand none was repeated:
// locks that nobody had stood for a lease, and tickets of nobody for minutes.
TEST_CASE("thousands of stop requests within one lease leave no lock taken, and no ticket") {
    constexpr int enough = 6000;
    hiredis_connection redis(server().uri() + patient);
    std::atomic<int> cancelled{0};
    std::vector<std::string> names;
    for (int i = 0; i < 3; ++i) names.push_back(fresh_name());
    {
        std::vector<std::jthread> threads;
        for (unsigned seed = 0; seed < 4; ++seed) {
            threads.emplace_back([&, seed] {
                locker mine(redis, names[seed % names.size()]);  // one of them is contended
                for (unsigned n = seed; cancelled < enough; ++n) {
                    std::stop_source source;
                    const std::jthread stopper([&source, at = clk::now() + n * 7 % 100 * 1us] {
                        while (clk::now() < at) continue;
                        source.request_stop();
                    });
                    std::error_code ec;
                    if (mine.lock(source.get_token(), ec)) {
                        mine.unlock();
                    } else {
                        ++cancelled;
                    }
                }
            });
        }
    }
    for (const std::string& name : names) {
        const lock_on_server seen(server(), name);
        CHECK(eventually([&] { return seen.untouched(); }, 2s));
    }
}

}  // namespace cancellation_tests
