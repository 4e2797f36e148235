// Two opinions on one history: what owners believed, and in which order the server executed what they sent.
#include <chrono>
#include <string>
#include <vector>

#include <distlock/distlock.hpp>
#include <distlock/testing.hpp>

#include "fault/matrix/campaign.hpp"
#include "fault/server_order.hpp"
#include "support/catch.hpp"

namespace order_tests {

namespace {

using entries = std::vector<monitor::entry>;

monitor::entry at(long long ms, monitor::words w) { return {std::chrono::milliseconds(ms), std::move(w)}; }

const std::string key = "crew:0";
const std::string queue = "{crew:0}:distlock:queue";
const std::string a(32, 'a');
const std::string b(32, 'b');
const std::string c(32, 'c');

monitor::entry enter(long long ms, const std::string& who) {
    return at(ms, {"EVALSHA", std::string(distlock::detail::handoff_enter.sha1()), "2", key, queue, who,
                   " 500", "join"});
}
monitor::entry leave(long long ms, const std::string& who) {
    return at(ms,
              {"EVALSHA", std::string(distlock::detail::handoff_leave.sha1()), "2", key, queue, who, " 500"});
}
monitor::entry set(long long ms, const std::string& to) {
    return at(ms, {"lua", "set", key, to, "PX", "500"});
}
monitor::entry del(long long ms) { return at(ms, {"lua", "del", key}); }
monitor::entry zadd(long long ms, const char* number, const std::string& who) {
    return at(ms, {"lua", "zadd", queue, "NX", number, who + " 500"});
}
monitor::entry zrem(long long ms, const std::string& who) {
    return at(ms, {"lua", "zrem", queue, who + " 500"});
}

// Before that, the lock was somebody's, who freed it.
std::string said(entries all) {
    const std::string first(32, 'f');
    all.insert(all.begin(),
               {at(-9000, {"SET", key, first, "NX", "PX", "500"}), leave(-9000, first), del(-9000)});
    return server_order(key, all).violations();
}

}  // namespace

TEST_CASE("order: what only an owner may do is found when somebody else does it") {
    CHECK(said({enter(0, a), set(0, a), leave(10, a), del(10), enter(20, b), set(20, b)}).empty());
    CHECK(said({enter(0, a), set(0, a), enter(501, b), set(501, b)}).empty());
    CHECK_FALSE(said({enter(0, a), set(0, a), enter(20, b), set(20, b)}).empty());
    CHECK_FALSE(said({enter(0, a), set(0, a), leave(10, b), del(10)}).empty());
    CHECK_FALSE(said({enter(0, a), set(0, a), leave(10, b), set(10, c)}).empty());
    CHECK_FALSE(said({enter(0, a), set(0, a), leave(10, a), set(10, a)}).empty());
    CHECK_FALSE(said({enter(0, a), set(0, a), enter(10, b), at(10, {"lua", "pexpire", key, "500"})}).empty());
    CHECK_FALSE(said({enter(0, a), set(0, a), leave(1, a), del(1), enter(2, a), set(2, a)}).empty());
    const auto fence = [](const char* value) {
        return at(1, {"lua", "set", "{crew:0}:distlock:fence", value, "PX", "9"});
    };
    CHECK_FALSE(said({enter(0, a), fence("7"), set(0, a), enter(600, b), fence("7"), set(600, b)}).empty());
}

TEST_CASE("order: who is served before the first of the queue is found, and who is queued by another") {
    const entries waiting{enter(0, a), set(0, a), enter(1, b), zadd(1, "7", b), enter(2, c), zadd(2, "8", c)};
    const auto then = [&](const entries& next) {
        entries all = waiting;
        all.insert(all.end(), next.begin(), next.end());
        return said(all);
    };
    CHECK(then({leave(3, a), set(3, b), zrem(3, b), leave(4, b), set(4, c), zrem(4, c)}).empty());
    CHECK(then({leave(3, a), zrem(3, b), set(3, c), zrem(3, c)}).empty());  // b hears nothing
    CHECK(then({leave(3, b), zrem(3, b), leave(4, a), set(4, c), zrem(4, c)}).empty());
    CHECK_FALSE(then({leave(3, a), set(3, c), zrem(3, c)}).empty());
    CHECK_FALSE(then({leave(3, a), zrem(3, c)}).empty());
    CHECK_FALSE(
        then({leave(3, a), del(3), enter(4, std::string(32, 'd')), set(4, std::string(32, 'd'))}).empty());
    CHECK_FALSE(then({enter(3, std::string(32, 'd')), zadd(3, "8", std::string(32, 'd'))}).empty());
    CHECK_FALSE(then({enter(3, std::string(32, 'd')), zadd(3, "9", b)}).empty());
}

// The crew has a thread for each process: a lock that is passed on among threads is not seen by the server.
TEST_CASE(
    "order: in the server's own order nobody touches what is not theirs, and it knows every fence that was "
    "granted") {
    campaign all("order", lease + timing_tolerance,
                 {.people = {.processes = 4, .threads = 1, .longest_work = 10ms}, .behind_proxy = true});
    monitor watch(all.server);
    all.repeat([&](int n) {
        all.proxy->storm(static_cast<std::uint64_t>(n + 1), 30);
        const int before = all.people.grants();
        CHECK(eventually([&] { return all.people.grants() > before + 40; }));
        all.proxy->leave_alone();
    });
    all.end();
    const auto commands = watch.end_timed();
    const auto events = all.people.book().events();
    for (int n = 0; n < all.people.options().names; ++n) {
        const server_order order(crew::name(n), commands);
        INFO(order.violations().substr(0, 2000));
        CHECK(order.violations().empty());
        CHECK(order.grants() > 20);
        CHECK(order.releases() > 20);
        int unknown = 0;
        for (const auto& e : events) {
            const bool grant = e.what == distlock::testing::history_event::kind::granted;
            // Those before the monitor was there are left out.
            if (!grant || e.lock_name() != crew::name(n) || order.fences().empty()) continue;
            if (e.fence >= order.fences().begin()->first) unknown += order.fences().count(e.fence) == 0;
        }
        CHECK(unknown == 0);
    }
}

}  // namespace order_tests
