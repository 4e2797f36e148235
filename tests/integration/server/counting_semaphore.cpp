// Permits over a real server: what counting_semaphore promises to each way in.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <signal.h>
#include <stop_token>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include <distlock/distlock.hpp>
#include <distlock/hiredis.hpp>
#include <distlock/testing.hpp>
#include <distlock/wire/permits.hpp>

#include "support/allocations.hpp"
#include "support/answered.hpp"
#include "support/catch.hpp"
#include "support/first_waiter.hpp"
#include "support/fresh_name.hpp"
#include "support/hiredis_test.hpp"
#include "support/in_child.hpp"
#include "support/lease_observers.hpp"
#include "support/lock_on_server.hpp"
#include "support/slow_clock.hpp"
#include "support/timing_tolerance.hpp"
#include "support/waiting.hpp"

namespace counting_semaphore_tests {

using namespace std::chrono_literals;
using distlock::errc;
using distlock::hiredis_connection;
using distlock::lock_options;
using distlock::permit;
using distlock::release_outcome;
using distlock::testing::redis_server;
using hiredis_test::common;
using hiredis_test::confirmed;
using clk = distlock::clock;
using slowly = slow_clock<clk>;
using semaphore = distlock::counting_semaphore<hiredis_connection>;

namespace {

// One semaphore object with a connection of its own, as another process has it.
struct party {
    explicit party(const std::string& name, std::int64_t limit, const lock_options& options = confirmed,
                   const redis_server& server = common(),
                   std::shared_ptr<distlock::lease_observer> observer = {})
        : redis(server.uri()), pool(redis, name, limit, options, std::move(observer)) {}
    hiredis_connection redis;
    semaphore pool;
};

bool waits(const std::string& name, int count) { return lock_on_server(common(), name).gets(count); }
bool nothing_left(const std::string& name) {
    return eventually([&] {
        return common().command({"EXISTS", name, distlock::key(name).sibling("queue")}) == "0";
    });
}
bool used(const std::string& name, const char* count) {
    return eventually([&] {
        return common().command({"HGET", distlock::key(name).sibling("limit"), "used"}) == count;
    });
}

// Who had how many permits, and when.
struct believed {
    clk::time_point from, to;
    std::int64_t n;
};
std::int64_t most_at_once(const std::vector<believed>& all) {
    std::vector<std::pair<clk::time_point, std::int64_t>> changes;
    for (const believed& one : all) {
        changes.emplace_back(one.from, one.n);
        changes.emplace_back(one.to, -one.n);
    }
    std::sort(changes.begin(), changes.end());
    std::int64_t now = 0;
    std::int64_t most = 0;
    for (const auto& [at, n] : changes) most = std::max(most, now += n);
    return most;
}

struct polling_connection {
    explicit polling_connection(const std::string& uri) : redis(uri) {}
    distlock::reply execute(const distlock::command& cmd) { return redis.execute(cmd); }
    hiredis_connection redis;
};

}  // namespace

TEST_CASE("a permit gives back what it has by its end, by release(), or when another takes its place") {
    const auto name = fresh_name();
    party a(name, 4);
    {
        permit one = a.pool.acquire();
        CHECK(one);
        CHECK(one.n() == 1);
        CHECK(one.remaining() > 20s);
        CHECK(one.valid_until() > clk::now() + 20s);
        CHECK_FALSE(one.lost().stop_requested());
        permit two = a.pool.acquire(3);
        CHECK(two.n() == 3);
        CHECK_FALSE(a.pool.try_acquire());
        permit moved = std::move(two);
        CHECK_FALSE(two);
        CHECK(two.n() == 0);
        CHECK(two.lost().stop_requested());
        CHECK(two.release() == release_outcome::not_held);
        CHECK(moved.n() == 3);
        CHECK(used(name, "4"));
        one = std::move(moved);
        CHECK(one.n() == 3);
        CHECK(moved.n() == 0);  // NOLINT: what is left of it is promised
        CHECK(used(name, "3"));
        CHECK(one.release() == release_outcome::released);
        CHECK(one.release() == release_outcome::not_held);
        CHECK_FALSE(one);
        CHECK(used(name, "0"));
        std::jthread([ends = a.pool.acquire(2)] {}).join();  // on another thread
        const auto same = a.pool.try_acquire();
        const auto again = a.pool.try_acquire();
        CHECK((same && again));
        CHECK(used(name, "2"));
    }
    CHECK(nothing_left(name));
    const permit none;
    CHECK_FALSE(none);
    CHECK(none.valid_until() == clk::time_point{});
}

TEST_CASE("every way to ask for permits gives them, refuses them when they are out, and says what is wrong") {
    using call = std::optional<permit> (*)(semaphore&, std::error_code&);
    const std::vector<std::pair<bool, call>> ways{
        {true, [](semaphore& s, std::error_code& ec) -> std::optional<permit> { return s.acquire(ec); }},
        {true, [](semaphore& s, std::error_code& ec) -> std::optional<permit> { return s.acquire(1, ec); }},
        {true,
         [](semaphore& s, std::error_code& ec) -> std::optional<permit> {
             return s.acquire(std::stop_token{}, ec);
         }},
        {true,
         [](semaphore& s, std::error_code& ec) -> std::optional<permit> {
             return s.acquire(1, std::stop_token{}, ec);
         }},
        {false, [](semaphore& s, std::error_code& ec) { return s.try_acquire(ec); }},
        {false, [](semaphore& s, std::error_code& ec) { return s.try_acquire(1, ec); }},
        {false, [](semaphore& s, std::error_code& ec) { return s.try_acquire(std::stop_token{}, ec); }},
        {false, [](semaphore& s, std::error_code& ec) { return s.try_acquire(1, std::stop_token{}, ec); }},
        {false, [](semaphore& s, std::error_code& ec) { return s.try_acquire_for(10ms, ec); }},
        {false, [](semaphore& s, std::error_code& ec) { return s.try_acquire_for(0s, 1, ec); }},
        {false,
         [](semaphore& s, std::error_code& ec) { return s.try_acquire_for(10ms, std::stop_token{}, ec); }},
        {false,
         [](semaphore& s, std::error_code& ec) { return s.try_acquire_for(10ms, 1, std::stop_token{}, ec); }},
        {false, [](semaphore& s, std::error_code& ec) { return s.try_acquire_until(clk::now() + 10ms, ec); }},
        {false,
         [](semaphore& s, std::error_code& ec) {
             return s.try_acquire_until(std::chrono::system_clock::now() + 10ms, 1, ec);
         }},
        {false,
         [](semaphore& s, std::error_code& ec) {
             return s.try_acquire_until(clk::now() + 10ms, 1, std::stop_token{}, ec);
         }},
    };
    for (const auto& [waits_for_ever, way] : ways) {
        const auto name = fresh_name();
        party a(name, 1);
        party b(name, 1);
        std::error_code ec = errc::deadlock;
        {
            const auto got = obtains(ec, [&, ask = way] { return ask(a.pool, ec); });
            REQUIRE(got);
            CHECK(*got);
            CHECK_FALSE(ec);
            if (!waits_for_ever) {
                ec = errc::deadlock;
                CHECK_FALSE(answered(ec, [&, ask = way] { return ask(b.pool, ec); }));
                CHECK_FALSE(ec);
            }
        }
        redis_server gone;
        party c(name, 1, {.patience = 0ms}, gone);
        gone.kill();
        const auto failed = way(c.pool, ec);
        CHECK_FALSE((failed && *failed));
        CHECK(ec == errc::unreachable);
    }
    const auto name = fresh_name();
    party a(name, 2);
    CHECK(a.pool.acquire(std::stop_token{}));
    CHECK(a.pool.acquire(2, std::stop_token{}));
    CHECK(a.pool.try_acquire(2));
    CHECK(a.pool.try_acquire_for(1s, 2));
    CHECK(a.pool.try_acquire_for(1s, std::stop_token{}));
    CHECK(a.pool.try_acquire_until(clk::now() + 1s, 2));
    CHECK(a.pool.try_acquire_until(clk::now() + 1s, std::stop_token{}));
    std::error_code ec;
    CHECK(a.pool.try_acquire_until(clk::now() + 1s, std::stop_token{}, ec));
    CHECK(a.pool.try_acquire_for(1s, std::stop_token{}, ec));
    CHECK(nothing_left(name));
}

TEST_CASE("permits are waited for until another clock says so, also one that is set back") {
    const auto name = fresh_name();
    party a(name, 1), b(name, 1);
    const permit taken = a.pool.acquire();
    slowly::time_point until;
    const auto soon = [&until] { return until = slowly::now() + 100ms; };
    CHECK_FALSE(answered([&] { return b.pool.try_acquire_until(soon()); }));
    CHECK(slowly::now() >= until);
    std::error_code ec;
    CHECK_FALSE(answered(ec, [&] { return b.pool.try_acquire_until(soon(), ec); }));
    CHECK_FALSE(ec);
    CHECK(slowly::now() >= until);
}

TEST_CASE("a permit that is moved to itself is kept") {
    const auto name = fresh_name();
    party a(name, 1);
    permit one = a.pool.acquire();
    permit& same = one;
    one = std::move(same);
    CHECK(one);
    CHECK(one.n() == 1);
    CHECK_FALSE(a.pool.try_acquire());
    CHECK(one.release() == release_outcome::released);
    CHECK(nothing_left(name));
}

TEST_CASE("numbers that make no sense are refused before anything is sent") {
    hiredis_connection redis("unix:///nowhere");
    const auto refuses = [&](std::int64_t limit) {
        try {
            const semaphore made(redis, "pool", limit);
            return std::string();
        } catch (const distlock::error& e) {
            CHECK(e.code() == errc::invalid_option);
            return std::string(e.what());
        }
    };
    for (const std::int64_t limit : {std::int64_t{0}, std::int64_t{-1}, (std::int64_t{1} << 31) + 1})
        CHECK_THAT(refuses(limit), contains_text("pool") && contains_text(std::to_string(limit)));
    CHECK_NOTHROW(semaphore(redis, "pool", std::int64_t{1} << 31));
    semaphore pool(redis, "pool", 8);
    for (const std::int64_t n : {std::int64_t{0}, std::int64_t{-1}, std::int64_t{9}}) {
        std::error_code ec;
        CHECK_FALSE(pool.acquire(n, ec));
        CHECK(ec == errc::invalid_option);
        CHECK_THROWS_AS(pool.try_acquire(n), distlock::error);
        CHECK_FALSE(pool.try_acquire_for(1s, n, ec));
        CHECK(ec == errc::invalid_option);
    }
    CHECK_THROWS_AS(semaphore(redis, "", 8), distlock::error);
    CHECK_THROWS_AS(semaphore(redis, "a}b", 8), distlock::error);
    CHECK_THROWS_AS(pool.resize(0), distlock::error);
}

TEST_CASE("a key of another kind is an error for a semaphore, and one of a semaphore for a mutex") {
    const auto name = fresh_name();
    party a(name, 2);
    distlock::mutex lock{a.redis, name};
    {
        const distlock::scoped_lock guard(lock);
        std::error_code ec;
        CHECK_FALSE(a.pool.try_acquire(ec));
        CHECK(ec == errc::wrong_type);
        CHECK(guard.owns_lock());
    }
    CHECK(nothing_left(name));
    const permit one = a.pool.acquire();
    std::error_code ec;
    CHECK_FALSE(lock.try_lock(ec));
    CHECK(ec == errc::wrong_type);
    distlock::shared_mutex readers{a.redis, name};
    CHECK_FALSE(readers.try_lock_shared(ec));
    CHECK(ec == errc::wrong_type);
    CHECK(one);
}

TEST_CASE("a process that gives another limit is told both; resize() settles it") {
    const auto name = fresh_name();
    party a(name, 2);
    party b(name, 3);
    permit one = a.pool.acquire(2);
    try {
        const permit more = b.pool.acquire();
        FAIL("it was given");
    } catch (const distlock::error& e) {
        CHECK(e.code() == errc::limit_mismatch);
        CHECK_THAT(e.what(), contains_text("semaphore " + name) && contains_text("2 permits, not 3") &&
                                 contains_text("resize()"));
    }
    std::error_code failed;
    CHECK(b.pool.resize(0, failed) == 0);
    CHECK(failed == errc::invalid_option);
    CHECK(b.pool.resize(3, failed) == 2);
    CHECK_FALSE(failed);
    const permit more = b.pool.acquire();
    CHECK(more);
    std::error_code ec;
    CHECK_FALSE(a.pool.try_acquire(ec));
    CHECK(ec == errc::limit_mismatch);
    CHECK(a.pool.resize(3) == 3);
    CHECK(a.pool.limit() == 3);
    CHECK_FALSE(a.pool.try_acquire(ec));
    CHECK_FALSE(ec);
    CHECK(one.release() == release_outcome::released);
    CHECK(a.pool.try_acquire());
    redis_server gone;
    party c(name, 1, {.patience = 0ms}, gone);
    gone.kill();
    CHECK_THROWS_AS(c.pool.resize(2), distlock::error);
    CHECK(c.pool.limit() == 1);
}

// It was dropped, and learned of it when it re-checked: after half a minute where many had been before it.
TEST_CASE("a waiter that wants more permits than there are any more is told so at its turn") {
    const auto name = fresh_name();
    party a(name, 3, {.recheck = 1h, .release = distlock::confirmed});
    party b(name, 3, {.lease = 1h, .recheck = 1h});
    permit two = a.pool.acquire(2), third = a.pool.acquire();
    std::error_code told;
    bool given = true;
    std::jthread wants([&] { given = b.pool.try_acquire_for(1h, 3, told).has_value(); });
    REQUIRE(waits(name, 1));
    CHECK(a.pool.resize(2) == 3);
    CHECK(two.release() == release_outcome::released);
    wants.join();
    CHECK_FALSE(given);
    CHECK(told == errc::limit_mismatch);
}

// Nothing beside a semaphore said so: they were told that their leases had run out.
TEST_CASE("those from whom an operator takes their permits are told that it was by force") {
    const auto name = fresh_name();
    const auto heard = std::make_shared<recording_observer>(),
               of_another = std::make_shared<recording_observer>();
    const lock_options soon{.lease = 1500ms};
    party a(name, 3, soon, common(), heard), b(name, 3, soon, common(), of_another);
    const permit one = a.pool.acquire(), two = a.pool.acquire(2);
    CHECK(distlock::force_release(a.redis, name));
    CHECK_FALSE(distlock::force_release(a.redis, name));  // it took the mark away
    CHECK(heard->hears({"forced: " + name, "forced: " + name}));
    const permit later = b.pool.acquire();
    common().command({"DEL", name});
    CHECK(of_another->hears({"expired: " + name}));
}

TEST_CASE("never are more permits out than there are, whoever asks for how many") {
    const auto name = fresh_name();
    const auto end = clk::now() + 1500ms;
    std::mutex lock;
    std::vector<believed> all;
    std::atomic<int> served{0};
    {
        std::vector<std::unique_ptr<party>> parties;
        for (int i = 0; i < 3; ++i) parties.push_back(std::make_unique<party>(name, 5, lock_options{}));
        std::vector<std::jthread> threads;
        for (int i = 0; i < 12; ++i) {
            threads.emplace_back([&, i] {
                std::vector<believed> mine;
                const std::int64_t n = i % 4 == 0 ? 3 : 1;
                while (clk::now() < end) {
                    const permit got = parties[static_cast<std::size_t>(i % 3)]->pool.acquire(n);
                    const auto from = clk::now();
                    std::this_thread::yield();
                    mine.push_back({from, clk::now(), n});
                }
                served += mine.size() > 3;
                const std::lock_guard guard(lock);
                all.insert(all.end(), mine.begin(), mine.end());
            });
        }
    }
    CHECK(most_at_once(all) <= 5);
    CHECK(most_at_once(all) >= 4);
    CHECK(served == 12);
    CHECK(nothing_left(name));
    CHECK(used(name, "0"));
}

TEST_CASE("waiters are served in the order they came, whatever they weigh") {
    const auto name = fresh_name();
    party holder(name, 4);
    permit all = holder.pool.acquire(4);
    std::vector<std::unique_ptr<party>> parties;
    std::mutex lock;
    std::vector<int> order;
    {
        std::vector<std::jthread> threads;
        for (int i = 0; i < 5; ++i) {
            parties.push_back(std::make_unique<party>(name, 4));
            threads.emplace_back([&, i, &own = *parties.back()] {
                // Two of three do not fit together: each is served alone.
                const permit mine = own.pool.acquire(3);
                const std::lock_guard guard(lock);
                order.push_back(i);
            });
            REQUIRE(waits(name, i + 1));
        }
        all.release();
    }
    CHECK(order == std::vector<int>{0, 1, 2, 3, 4});
    CHECK(nothing_left(name));
}

TEST_CASE("a waiter that is gone though its socket looks alive keeps nobody waiting for long") {
    const auto name = fresh_name();
    party owner(name, 4);
    const permit some = owner.pool.acquire(1);
    const lock_options seldom{.recheck = 1h, .release = distlock::confirmed};
    gone_waiter gone(common().socket_path());
    gone.join(distlock::permits(name, seldom, gone.channel(), distlock::channel_kind::ordinary, 4, 4));
    REQUIRE(waits(name, 1));
    party next(name, 4, seldom);
    const auto begun = clk::now();
    CHECK(next.pool.try_acquire_for(60s, 3).has_value());
    CHECK(clk::now() - begun < 8s + timing_tolerance);
}

TEST_CASE("a waiter that is there keeps its place before those it keeps out, however seldom it looks else") {
    const auto name = fresh_name();
    party owner(name, 4);
    const permit some = owner.pool.acquire(1);
    const lock_options seldom{.recheck = 1h, .release = distlock::confirmed};
    party first(name, 4, seldom);
    party next(name, 4, seldom);
    const auto wait_for = [](party& whose, std::int64_t n) {
        return std::jthread([&pool = whose.pool, n](const std::stop_token& stop) {
            std::error_code ec;
            static_cast<void>(pool.acquire(n, stop, ec));
        });
    };
    const auto living = wait_for(first, 4);
    REQUIRE(waits(name, 1));
    const auto waiting = wait_for(next, 1);
    std::set<std::string> looks;
    CHECK(eventually(
        [&] {
            const auto known = common().command({"HGET", distlock::key(name).sibling("limit"), "first"});
            if (known.ends_with(" l")) looks.insert(known);
            return looks.size() == 3;
        },
        20s));
    CHECK(lock_on_server(common(), name).queued() == 2);
}

TEST_CASE("a stop request or a time-out ends the wait, and whoever it kept waiting goes on") {
    const bool until = GENERATE(false, true);
    for (const bool stops : {true, false}) {
        const auto name = fresh_name();
        party a(name, 2);
        party b(name, 2);
        permit one = a.pool.acquire();
        std::stop_source stop;
        std::error_code ec;
        std::atomic<bool> small{false};
        {
            std::jthread big([&] {
                if (stops && until) {
                    const auto late = std::chrono::system_clock::now() + 1h;
                    static_cast<void>(a.pool.try_acquire_until(late, 2, stop.get_token(), ec));
                } else if (stops) {
                    static_cast<void>(a.pool.acquire(2, stop.get_token(), ec));
                } else {
                    static_cast<void>(answered(ec, [&] { return a.pool.try_acquire_for(300ms, 2, ec); }));
                }
            });
            REQUIRE(waits(name, 1));
            std::jthread waits_behind([&] {
                const permit mine = b.pool.acquire();
                small = true;
            });
            REQUIRE(eventually([&] { return small || lock_on_server(common(), name).queued() == 2; }));
            if (stops) stop.request_stop();
        }
        CHECK(small);
        CHECK(ec == (stops ? std::error_code(errc::cancelled) : std::error_code()));
        CHECK(one);
        one.release();
        CHECK(nothing_left(name));
    }
}

TEST_CASE("permits are renewed one by one; one that is lost tells its own owner") {
    const auto name = fresh_name();
    party a(name, 3, {.lease = brief_lease, .release = distlock::confirmed});
    permit kept = a.pool.acquire();
    permit lost = a.pool.acquire(2);
    const auto told = lost.lost();
    const auto until = kept.valid_until();
    // What an operator does who knows the token of the bigger one.
    const auto tokens = common().command({"HKEYS", distlock::key(name).sibling("limit")});
    const auto second = std::string(tokens).substr(tokens.rfind('\n') + 1);
    const auto of_two = second.size() == 32 ? second : tokens.substr(0, 32);
    common().command({"ZREM", name, of_two});
    CHECK(eventually([&] { return told.stop_requested(); }));
    CHECK_FALSE(lost);
    CHECK(lost.remaining() == 0s);
    CHECK(lost.release() == release_outcome::expired);
    CHECK(eventually([&] { return kept.valid_until() > until + 500ms; }));
    CHECK(kept);
    CHECK_FALSE(kept.lost().stop_requested());
}

TEST_CASE("permits of processes that were killed come back when their own leases end") {
    const auto name = fresh_name();
    const lock_options brief{.lease = brief_lease, .release = distlock::confirmed};
    party a(name, 4, brief);
    const permit living = a.pool.acquire();
    CHECK_FALSE(in_child([&] {
        hiredis_connection redis(common().uri());
        semaphore pool(redis, name, 4, brief);
        const permit one = pool.acquire(2);
        const permit two = pool.acquire();
        ::raise(SIGKILL);
        return true;
    }));
    const auto killed = clk::now();
    CHECK(used(name, "4"));
    const permit all = a.pool.acquire(3);
    CHECK(clk::now() - killed <= brief_lease + 50ms + timing_tolerance);
    CHECK(living);
    CHECK(used(name, "4"));
}

TEST_CASE("a message that is lost delays a waiter until it looks, and no longer") {
    const auto name = fresh_name();
    party a(name, 1);
    hiredis_connection redis(common().uri());
    semaphore deaf(redis, name, 1, {.recheck = 100ms, .release = distlock::confirmed});
    permit one = a.pool.acquire();
    std::jthread waiter([&] { const permit mine = deaf.acquire(); });
    REQUIRE(waits(name, 1));
    common().command({"CLIENT", "KILL", "TYPE", "pubsub"});
    const auto from = clk::now();
    one.release();
    waiter.join();
    CHECK(clk::now() - from < 2s + timing_tolerance);
    CHECK(nothing_left(name));
}

TEST_CASE("a waiter that cannot be told of permits polls for them") {
    const auto name = fresh_name();
    polling_connection redis(common().uri());
    distlock::counting_semaphore pool{redis, name, 1};
    party a(name, 1);
    permit one = a.pool.acquire();
    CHECK_FALSE(answered([&] { return pool.try_acquire_for(20ms); }));
    one.release();
    CHECK(pool.try_acquire_for(5s));
    CHECK(nothing_left(name));
}

TEST_CASE("a warm cycle of a permit allocates nothing") {
    NOT_TESTED_UNLESS(allocations_can_fail(), operator_new_is_not_ours);
    const auto name = fresh_name();
    party a(name, 4, {});
    for (int i = 0; i < 100; ++i) static_cast<void>(a.pool.acquire(2));
    const auto before = allocations();
    for (int i = 0; i < 100; ++i) static_cast<void>(a.pool.acquire(2));
    CHECK(allocations() - before == 0);
}

TEST_CASE("a child after fork() has none of its parent's permits, and gives none back") {
    const auto name = fresh_name();
    party a(name, 2);
    permit one = a.pool.acquire();
    CHECK(in_child([&] {
        std::error_code ec;
        return !a.pool.try_acquire(ec) && ec == errc::wrong_process && !one &&
               one.release() == release_outcome::wrong_process;
    }));
    CHECK(used(name, "1"));
    CHECK(one);
}

TEST_CASE("an observer is told of a permit that is lost") {
    struct seen final : distlock::lease_observer {
        void lost(const std::string&, distlock::loss_reason) override { ++losses; }
        std::atomic<int> losses{0};
    };
    const auto name = fresh_name();
    const auto observer = std::make_shared<seen>();
    party a(name, 2, {.lease = 600ms}, common(), observer);
    const permit one = a.pool.acquire();
    CHECK(distlock::force_release<distlock::permits>(a.redis, name));
    CHECK(eventually([&] { return observer->losses == 1; }));
    CHECK_FALSE(one);
}

}  // namespace counting_semaphore_tests
