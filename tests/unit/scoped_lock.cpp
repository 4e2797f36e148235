// Guards that are moved, and the one token of several locks.
#include <array>
#include <barrier>
#include <chrono>
#include <cstddef>
#include <new>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <distlock/base/error.hpp>
#include <distlock/base/options.hpp>
#include <distlock/mutex.hpp>
#include <distlock/recursive_mutex.hpp>
#include <distlock/scoped_lock.hpp>
#include <distlock/testing/manual_clock.hpp>
#include <distlock/try_lock_for.hpp>
#include <distlock/wire/command.hpp>
#include <distlock/wire/plain.hpp>
#include <distlock/wire/reply.hpp>

#include "support/catch.hpp"
#include "support/in_child.hpp"
#include "support/locks_in_memory.hpp"
#include "waiting.hpp"

namespace scoped_lock_tests {

namespace {

using distlock::lock_options;
using distlock::testing::manual_clock;
using namespace std::chrono_literals;
using time_point = manual_clock::time_point;

using lock = distlock::mutex<locks_in_memory, distlock::plain, manual_clock>;
using guard_of_one = distlock::scoped_lock<lock>;
using guard_of_two = distlock::scoped_lock<lock, lock>;

// What ends by time ends when the clock is moved, and nothing renews it.
constexpr lock_options short_lease{.lease = 10s, .renew = false};
constexpr lock_options long_lease{.lease = 60s, .renew = false};
constexpr lock_options fenced{.lease = 60s, .renew = false, .fencing = true};

// In the place of the guard's own, which must not have an effect: a compiler that sees it warns.
template <class T>
T& same(T& object) {
    return object;
}

template <class Guard>
void check_that_nothing_is_held(const Guard& guard) {
    CHECK_FALSE(guard.owns_lock());
    CHECK(guard.valid_until() == time_point{});
    CHECK(guard.remaining() == 0ns);
    CHECK(guard.lost().stop_requested());
    if constexpr (requires { guard.fencing_token(); }) CHECK(guard.fencing_token() == 0);
}

}  // namespace

TEST_CASE("a guard that is assigned releases its own lock and has all of the other's, which has nothing") {
    manual_clock::reset();
    locks_in_memory server;
    lock a{server, "a", fenced};
    lock b{server, "b", fenced};
    {
        guard_of_one target{a};
        {
            manual_clock::advance(1s);
            guard_of_one source{b};
            const auto of_a = target.lost();
            const auto of_b = source.lost();
            const auto fence = source.fencing_token();
            const auto until = source.valid_until();
            const auto owner = server.owner("b");
            REQUIRE(fence != target.fencing_token());
            REQUIRE(until != target.valid_until());

            target = std::move(source);
            CHECK(server.owner("a").empty());
            CHECK(server.owner("b") == owner);
            CHECK(target.owns_lock());
            CHECK(target.name() == "b");
            CHECK(target.fencing_token() == fence);
            CHECK(target.valid_until() == until);
            CHECK(target.lost() == of_b);
            CHECK_FALSE(of_b.stop_requested());
            CHECK_FALSE(of_a.stop_requested());  // released in time
            check_that_nothing_is_held(source);  // NOLINT: what a moved-from guard says is the point
        }
        CHECK_FALSE(server.owner("b").empty());
        CHECK(target.owns_lock());
    }
    CHECK(server.owner("b").empty());
    CHECK(server.count("release", "a") == 1);
    CHECK(server.count("release", "b") == 1);
}

TEST_CASE("a guard of several that is assigned releases all of its own and has all of the other's") {
    manual_clock::reset();
    locks_in_memory server;
    lock a{server, "a", short_lease};
    lock b{server, "b", short_lease};
    lock c{server, "c", long_lease};
    lock d{server, "d", long_lease};
    const auto any_asked = GENERATE(false, true);
    {
        guard_of_two target{a, b};
        std::stop_token of_target;
        if (any_asked) of_target = target.lost();
        {
            guard_of_two source{c, d};
            const auto until = source.valid_until();
            const auto of_source = source.lost();

            target = std::move(source);
            CHECK(server.owner("a").empty());
            CHECK(server.owner("b").empty());
            CHECK_FALSE(server.owner("c").empty());
            CHECK_FALSE(server.owner("d").empty());
            CHECK(target.owns_lock());
            CHECK(target.valid_until() == until);
            CHECK(target.lost() == of_source);
            CHECK_FALSE(of_source.stop_requested());
            check_that_nothing_is_held(source);  // NOLINT: what a moved-from guard says is the point
        }
        CHECK(target.owns_lock());
        manual_clock::advance(10s);  // the lease of what it does not have any more
        CHECK(target.owns_lock());
        CHECK_FALSE(target.lost().stop_requested());
        CHECK_FALSE(of_target.stop_requested());
    }
    for (const char* name : {"a", "b", "c", "d"}) {
        CHECK(server.owner(name).empty());
        CHECK(server.count("release", name) == 1);
    }
}

// Each made one, and all but the last were never stopped.
TEST_CASE("threads that ask a guard of several locks for its token get the same one") {
    manual_clock::reset();
    locks_in_memory server;
    lock a{server, "a", long_lease};
    lock b{server, "b", long_lease};
    for (int round = 0; round < 200; ++round) {
        const guard_of_two both{a, b};
        std::barrier together(4);
        std::array<std::stop_token, 4> told;
        {
            std::vector<std::jthread> threads;
            for (auto& one : told) {
                threads.emplace_back([&] {
                    together.arrive_and_wait();
                    one = both.lost();
                });
            }
        }
        for (const auto& one : told) REQUIRE(one == told[0]);
    }
}

TEST_CASE("a guard that is assigned to itself goes on holding") {
    manual_clock::reset();
    locks_in_memory server;
    lock a{server, "a", fenced};
    lock b{server, "b", long_lease};
    lock c{server, "c", long_lease};
    guard_of_one one{a};
    const auto fence = one.fencing_token();
    one = std::move(same(one));
    CHECK(one.owns_lock());
    CHECK(one.fencing_token() == fence);
    guard_of_two two{b, c};
    const auto lost = two.lost();
    two = std::move(same(two));
    CHECK(two.owns_lock());
    CHECK(two.lost() == lost);
    CHECK_FALSE(lost.stop_requested());
    for (const char* name : {"a", "b", "c"}) CHECK(server.count("release", name) == 0);
}

TEST_CASE("a guard that was moved from can be assigned to, and holds again") {
    manual_clock::reset();
    locks_in_memory server;
    lock a{server, "a", fenced};
    lock b{server, "b", fenced};
    guard_of_one first{a};
    const auto fence = first.fencing_token();
    guard_of_one second{std::move(first)};
    CHECK(second.fencing_token() == fence);
    check_that_nothing_is_held(first);  // NOLINT: what a moved-from guard says is the point
    first = guard_of_one{b};
    CHECK(first.owns_lock());
    CHECK(first.name() == "b");
    std::swap(first, second);
    CHECK(first.name() == "a");
    CHECK(first.fencing_token() == fence);
    CHECK(second.name() == "b");
    CHECK(first.owns_lock());
    CHECK(second.owns_lock());
    CHECK(server.count("release", "a") == 0);
    CHECK(server.count("release", "b") == 0);
}

TEST_CASE("the token of several locks is stopped when any of them is lost, also after the guard was moved") {
    locks_in_memory server;
    const std::size_t which = GENERATE(0U, 1U, 2U);
    const auto moved = GENERATE(0, 1, 2);
    manual_clock::reset();
    const auto options = [&](std::size_t i) { return i == which ? short_lease : long_lease; };
    lock a{server, "a", options(0)};
    lock b{server, "b", options(1)};
    lock c{server, "c", options(2)};
    lock other{server, "other", long_lease};
    lock others{server, "others", long_lease};
    lock another{server, "another", long_lease};
    using guard = distlock::scoped_lock<lock, lock, lock>;
    std::optional<guard> source(std::in_place, a, b, c);
    const auto token = source->lost();
    guard held = moved == 2 ? guard{other, others, another} : std::move(*source);
    if (moved == 2) held = std::move(*source);
    if (moved != 0) source.reset();
    CHECK(held.lost() == token);
    CHECK_FALSE(token.stop_requested());
    manual_clock::advance(10s);
    CHECK(eventually([&] { return token.stop_requested(); }));
    CHECK_FALSE(held.owns_lock());
    CHECK(held.valid_until() < manual_clock::now());
    CHECK(int{a.owns_lock()} + int{b.owns_lock()} + int{c.owns_lock()} == 2);
}

// The program ended.
TEST_CASE("a guard of several locks that cannot ask which servers they are on throws, and holds none") {
    struct nameless : locks_in_memory {
        [[noreturn]] static std::string_view identity() { throw std::bad_alloc(); }
    };
    using nameless_lock = distlock::mutex<nameless, distlock::plain, manual_clock>;
    manual_clock::reset();
    nameless server;
    nameless_lock a{server, "a", long_lease};
    nameless_lock b{server, "b", long_lease};
    using guard_of_nameless = distlock::scoped_lock<nameless_lock, nameless_lock>;
    CHECK_THROWS_AS(guard_of_nameless(a, b), std::bad_alloc);
    CHECK_FALSE(a.owns_lock());
    CHECK(server.count("take", "a") == 0);
}

// The child's was the parent's, whose locks it does not have; the parent's came with the timer's thread.
TEST_CASE("the token of several locks is a stopped one as soon as one is lost, and in a child") {
    manual_clock::reset();
    locks_in_memory server;
    lock a{server, "a", short_lease};
    lock b{server, "b", long_lease};
    const guard_of_two both{a, b};
    CHECK_FALSE(both.lost().stop_requested());
    CHECK(in_child([&] { return both.lost().stop_requested(); }));
    CHECK_FALSE(both.lost().stop_requested());
    manual_clock::advance(10s);
    CHECK(both.lost().stop_requested());
}

namespace {

distlock::reply always_ok(const distlock::command&) { return distlock::reply::status("OK"); }

struct unnamed_server {
    distlock::reply execute(const distlock::command& cmd) {
        if (cmd.argv()[0] == "SET") asked.push_back(this);
        return cmd.argv()[0] == "SET" ? distlock::reply::status("OK") : distlock::reply::integer(1);
    }
    std::vector<const unnamed_server*>& asked;
};

struct named_server {
    distlock::reply execute(const distlock::command&) { return distlock::reply::nil(); }
    std::string_view identity() const { return "one of three"; }
};

}  // namespace

TEST_CASE("another thread cannot end what a guard of several locks has") {
    locks_in_memory server;
    lock a{server, "a", long_lease};
    lock b{server, "b", long_lease};
    const guard_of_two both{a, b};
    std::thread([&] {
        CHECK(a.unlock() == distlock::release_outcome::not_held);
        CHECK(b.unlock() == distlock::release_outcome::not_held);
    }).join();
    CHECK(both.owns_lock());
}

// It did not compile.
TEST_CASE("a guard of several locks takes them over a function") {
    distlock::mutex a{always_ok, "a", {.renew = false}};
    distlock::mutex b{always_ok, "b", {.renew = false}};
    const distlock::scoped_lock both{a, b};
    CHECK(both.owns_lock());
}

TEST_CASE("after a stop request no guard takes a recursive mutex") {
    locks_in_memory server;
    distlock::recursive_mutex<locks_in_memory> m{server, "orders", {.renew = false}};
    std::stop_source stop;
    stop.request_stop();
    using guard = distlock::scoped_lock<distlock::recursive_mutex<locks_in_memory>>;
    try {
        const guard none(m, stop.get_token());
        FAIL("it returned");
    } catch (const distlock::error& e) {
        CHECK(e.code() == distlock::errc::cancelled);
    }
    CHECK_FALSE(m.owns_lock());
}

// The order was that of the connection objects: two processes could wait for each other for ever.
TEST_CASE("locks of one name over connections that say of no server are not taken together by any form") {
    std::vector<const unnamed_server*> asked;
    unnamed_server one{asked}, two{asked};
    distlock::mutex a{one, "orders", {.renew = false}};
    distlock::mutex b{two, "orders", {.renew = false}};
    const auto why = contains_text("orders, over connections that have no identity()");
    CHECK_THROWS_WITH(distlock::scoped_lock(a, b), why);
    CHECK_THROWS_WITH(distlock::try_lock_for(1s, a, b), why);
    CHECK(asked.empty());
    named_server three;
    distlock::mutex d{three, "orders", {.renew = false}};  // it may be any of them
    CHECK_THROWS_WITH(distlock::scoped_lock(a, d), why);
    CHECK_THROWS_WITH(distlock::scoped_lock(d, a), why);
    CHECK_THROWS_WITH(distlock::try_lock_for(1s, d, a), why);
    distlock::mutex c{two, "payments", {.renew = false}};
    { const distlock::scoped_lock both{a, c}; }
    CHECK_FALSE(asked.empty());
}

TEST_CASE("the token of several locks stays as it is when the guard ends in time") {
    manual_clock::reset();
    locks_in_memory server;
    lock a{server, "a", short_lease};
    lock b{server, "b", long_lease};
    std::stop_token token;
    {
        const guard_of_two guard{a, b};
        token = guard.lost();
    }
    lock unrelated{server, "unrelated", short_lease};
    const guard_of_one later{unrelated};
    const auto of_later = later.lost();
    manual_clock::advance(10s);
    CHECK(eventually([&] { return of_later.stop_requested(); }));
    CHECK_FALSE(token.stop_requested());
}

namespace {

// Each time the second lock is asked for, the lease or the longest hold of the first one ends.
struct slow_second : locks_in_memory {
    distlock::reply execute(const distlock::command& cmd) {
        if (cmd.argv()[0] == "SET" && cmd.argv()[1] == "b") {
            manual_clock::advance(10s);
            if (intruder && asked == 0) give_to("somebody", "a");
            if (++asked == 10) stop.request_stop();  // or who never has both would go on for ever
        } else if (asked > 0 && owner("b").empty() && owner("a") == "somebody") {
            delete_key("a");
        }
        return locks_in_memory::execute(cmd);
    }
    bool intruder = false;
    int asked = 0;
    std::stop_source stop;
};
using slow_lock = distlock::mutex<slow_second, distlock::plain, manual_clock>;

// Returns: whether a guard, or one call, held both then.
bool has_both(slow_second& server, slow_lock& a, slow_lock& b, bool by_guard) {
    const auto both = [&] {
        return a.owns_lock() && b.owns_lock() && !server.owner("a").empty() && !server.owner("b").empty();
    };
    if (by_guard) {
        const distlock::scoped_lock guard{a, b, server.stop.get_token()};
        return guard.owns_lock() && both();
    }
    if (!distlock::try_lock_for(1h, server.stop.get_token(), a, b)) return false;
    const bool had = both();
    a.unlock();
    b.unlock();
    return had;
}

// Both are had, after the second one was asked for so many times, and nothing is left.
void check_has_both(slow_second& server, const lock_options& of_first, int asked) {
    const bool by_guard = GENERATE(true, false);
    manual_clock::reset();
    slow_lock a{server, "a", of_first};
    slow_lock b{server, "b", long_lease};
    CHECK(has_both(server, a, b, by_guard));
    CHECK(server.asked == asked);
    CHECK(server.owner("a").empty());
    CHECK(server.owner("b").empty());
}

}  // namespace

// It held the second lock and believed to hold both. Then it gave both back, and began anew for ever.
TEST_CASE(
    "a caller that waited for one lock for so long that another was lost takes that one again, and keeps the "
    "rest") {
    const auto brief =
        GENERATE(true, false) ? short_lease : lock_options{.lease = 60s, .renew = false, .max_hold = 10s};
    slow_second server;
    check_has_both(server, brief, 1);
}

TEST_CASE(
    "a caller that lost one of several locks to another, while it waited for the rest, gives all back "
    "first") {
    slow_second server;
    server.intruder = true;
    check_has_both(server, short_lease, 2);
}

}  // namespace scoped_lock_tests
