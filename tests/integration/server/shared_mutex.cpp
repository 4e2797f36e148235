// Readers and writers over a real server: what shared_mutex promises to each way in.
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <stop_token>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include <distlock/distlock.hpp>
#include <distlock/hiredis.hpp>
#include <distlock/testing.hpp>
#include <distlock/wire/shared_handoff.hpp>

#include "support/answered.hpp"
#include "support/attempt.hpp"
#include "support/catch.hpp"
#include "support/first_waiter.hpp"
#include "support/fresh_name.hpp"
#include "support/hiredis_test.hpp"
#include "support/in_child.hpp"
#include "support/lock_on_server.hpp"
#include "support/server_counts.hpp"
#include "support/sleepers.hpp"
#include "support/slow_clock.hpp"
#include "support/timing_tolerance.hpp"
#include "support/waiting.hpp"

namespace shared_mutex_tests {

using namespace std::chrono_literals;
using distlock::errc;
using distlock::hiredis_connection;
using distlock::lock_options;
using distlock::release_outcome;
using distlock::testing::redis_server;
using hiredis_test::common;
using hiredis_test::confirmed;
using clk = distlock::clock;
using slowly = slow_clock<clk>;
using lock = distlock::shared_mutex<hiredis_connection>;

namespace {

// One lock object with a connection of its own, as another process has it.
struct party {
    explicit party(const std::string& name, const lock_options& options = confirmed,
                   const redis_server& server = common(),
                   std::shared_ptr<distlock::lease_observer> observer = {})
        : redis(server.uri()), m(redis, name, options, std::move(observer)) {}
    hiredis_connection redis;
    lock m;
};

// One that is alone may have no set beside the key.
int reading(const std::string& name) {
    if (common().command({"GET", name}).starts_with("distlock:readers ")) return 1;
    return std::stoi(common().command({"ZCARD", distlock::key(name).sibling("readers")}));
}
bool waits(const std::string& name, int count) { return lock_on_server(common(), name).gets(count); }
bool nothing_left(const std::string& name) {
    return eventually([&] {
        return common().command({"EXISTS", name, distlock::key(name).sibling("readers"),
                                 distlock::key(name).sibling("queue")}) == "0";
    });
}

struct counting_observer final : distlock::lease_observer {
    void lost(const std::string&, distlock::loss_reason why) override {
        reason = why;
        ++losses;
    }
    std::atomic<distlock::loss_reason> reason{};
    std::atomic<int> losses{0};
};

// A lock of the server without a subscription: it polls.
struct polling_connection {
    explicit polling_connection(const std::string& uri) : redis(uri) {}
    distlock::reply execute(const distlock::command& cmd) { return redis.execute(cmd); }
    hiredis_connection redis;
};

}  // namespace

TEST_CASE("the standard's guards and ours read together, and write alone") {
    const auto name = fresh_name();
    party a(name);
    party b(name);
    {
        const std::shared_lock one(a.m);
        const distlock::shared_scoped_lock two(b.m);
        CHECK(two.owns_lock());
        CHECK(two.valid_until() > clk::now() + 20s);
        CHECK(two.remaining() > 20s);
        CHECK(two.name() == name);
        CHECK_FALSE(two.lost().stop_requested());
        CHECK(a.m.shared_until() > clk::now());
        CHECK(reading(name) == 2);
        CHECK_FALSE(a.m.try_lock());
        CHECK_FALSE(std::unique_lock(b.m, std::try_to_lock).owns_lock());
        CHECK_FALSE(answered([&] { return std::unique_lock(b.m, 1ms).owns_lock(); }));
    }
    CHECK(nothing_left(name));
    {
        const distlock::scoped_lock alone(a.m);
        CHECK(alone.owns_lock());
        CHECK(a.m.owns_lock());
        CHECK_FALSE(b.m.try_lock_shared());
        CHECK_FALSE(a.m.try_lock_shared());
        CHECK_FALSE(answered([&] { return std::shared_lock(b.m, 1ms).owns_lock(); }));
        CHECK_FALSE(answered([&] { return std::shared_lock(b.m, clk::now() + 1ms).owns_lock(); }));
    }
    CHECK(nothing_left(name));
    {
        const std::unique_lock write(a.m, std::defer_lock);
        std::shared_lock read(a.m, 1s);
        CHECK(read.owns_lock());
        read.unlock();
        CHECK(read.try_lock());
    }
    {
        party c(fresh_name());
        const std::scoped_lock both(a.m, c.m);
        CHECK(c.m.owns_lock());
    }
    CHECK(nothing_left(name));
}

TEST_CASE("a guard that moves takes what it has with it, and ends once") {
    const auto name = fresh_name();
    party a(name);
    distlock::shared_mutex other{a.redis, fresh_name()};
    distlock::shared_scoped_lock first(a.m);
    distlock::shared_scoped_lock second(std::move(first));
    CHECK_FALSE(first.owns_lock());
    CHECK(first.valid_until() == clk::time_point{});
    CHECK(first.lost().stop_requested());
    CHECK(second.owns_lock());
    distlock::shared_scoped_lock third(other);
    third = std::move(second);
    CHECK(nothing_left(other.name()));
    CHECK(third.name() == name);
    CHECK(reading(name) == 1);
    std::jthread([ended = std::move(third)] {}).join();  // on another thread
    CHECK(nothing_left(name));
}

TEST_CASE(
    "every way to ask for a shared lock grants it, refuses it beside a writer, and says what is wrong") {
    using call = bool (*)(lock&, std::error_code&);
    const std::vector<std::pair<bool, call>> ways{
        {true, [](lock& m, std::error_code& ec) { return m.lock_shared(ec); }},
        {true, [](lock& m, std::error_code& ec) { return m.lock_shared(std::stop_token{}, ec); }},
        {false, [](lock& m, std::error_code& ec) { return m.try_lock_shared(ec); }},
        {false, [](lock& m, std::error_code& ec) { return m.try_lock_shared(std::stop_token{}, ec); }},
        {false, [](lock& m, std::error_code& ec) { return m.try_lock_shared_for(10ms, ec); }},
        {false,
         [](lock& m, std::error_code& ec) { return m.try_lock_shared_for(0ms, std::stop_token{}, ec); }},
        {false, [](lock& m, std::error_code& ec) { return m.try_lock_shared_until(clk::now() + 10ms, ec); }},
        {false,
         [](lock& m, std::error_code& ec) {
             return m.try_lock_shared_until(std::chrono::system_clock::now() + 10ms, std::stop_token{}, ec);
         }},
    };
    for (const auto& [waits_for_ever, way] : ways) {
        const auto name = fresh_name();
        party a(name);
        party b(name);
        std::error_code ec = errc::deadlock;
        const auto asks = [&, ask = way] { return ask(a.m, ec); };
        CHECK(obtains(ec, asks));
        CHECK_FALSE(ec);
        CHECK(a.m.unlock_shared() == release_outcome::released);
        b.m.lock();
        if (!waits_for_ever) {
            ec = errc::deadlock;
            CHECK_FALSE(answered(ec, asks));
            CHECK_FALSE(ec);
        }
        b.m.unlock();
        redis_server gone;
        party c(name, {.patience = 0ms}, gone);
        gone.kill();
        CHECK_FALSE(way(c.m, ec));
        CHECK(ec == errc::unreachable);
    }
    const auto name = fresh_name();
    party a(name);
    a.m.lock_shared();
    CHECK(a.m.unlock_shared() == release_outcome::released);
    CHECK(a.m.try_lock_shared());
    CHECK(a.m.unlock_shared() == release_outcome::released);
    CHECK(a.m.try_lock_shared_for(1s, std::stop_token{}));
    CHECK(a.m.unlock_shared() == release_outcome::released);
    CHECK(a.m.try_lock_shared_until(clk::now() + 1s));
    CHECK(a.m.unlock_shared() == release_outcome::released);
    CHECK(nothing_left(name));
}

TEST_CASE("a thread that does not read ends nothing") {
    const auto name = fresh_name();
    party a(name);
    CHECK(a.m.unlock_shared() == release_outcome::not_held);
    CHECK(a.m.shared_until() == clk::time_point{});
    CHECK(a.m.shared_lost().stop_requested());
    const distlock::shared_scoped_lock other(a.m);
    std::jthread([&] { CHECK_NOTHROW(a.m.unlock_shared()); }).join();
    CHECK(other.owns_lock());
    a.m.unlock();
    CHECK(other.owns_lock());
}

TEST_CASE("a name without room for keys beside it is refused") {
    hiredis_connection redis(common().uri());
    CHECK_THROWS_AS(lock(redis, "a}b"), distlock::error);
    CHECK_THROWS_AS(lock(redis, ""), distlock::error);
    CHECK_THROWS_AS(lock(redis, "x", {.lease = 1ms}), distlock::error);
}

TEST_CASE("a key of another kind is an error for a reader, and stays") {
    const auto name = fresh_name();
    common().command({"HSET", name, "a", "b"});
    party a(name);
    std::error_code ec;
    CHECK_FALSE(a.m.lock_shared(ec));
    CHECK(ec == errc::wrong_type);
    CHECK_FALSE(a.m.lock(ec));
    CHECK(ec == errc::wrong_type);
    CHECK(common().command({"HGET", name, "a"}) == "b");
}

TEST_CASE("readers and writers of many objects and threads never overlap") {
    struct seen {
        clk::time_point from, to;
        bool writes;
    };
    const auto name = fresh_name();
    const auto end = clk::now() + 1500ms;
    std::mutex all_lock;
    std::vector<seen> all;
    {
        std::vector<std::unique_ptr<party>> parties;
        for (int i = 0; i < 3; ++i) parties.push_back(std::make_unique<party>(name, lock_options{}));
        std::vector<std::jthread> threads;
        for (int i = 0; i < 12; ++i) {
            threads.emplace_back([&, i] {
                lock& m = parties[static_cast<std::size_t>(i % 3)]->m;
                std::vector<seen> mine;
                while (clk::now() < end) {
                    const bool writes = i >= 9;
                    if (writes) {
                        const std::lock_guard guard(m);
                        const auto from = clk::now();
                        std::this_thread::yield();
                        mine.push_back({from, clk::now(), true});
                    } else {
                        const std::shared_lock guard(m);
                        const auto from = clk::now();
                        std::this_thread::yield();
                        mine.push_back({from, clk::now(), false});
                    }
                }
                const std::lock_guard guard(all_lock);
                all.insert(all.end(), mine.begin(), mine.end());
            });
        }
    }
    std::sort(all.begin(), all.end(), [](const seen& a, const seen& b) { return a.from < b.from; });
    std::size_t overlaps = 0;
    std::size_t written = 0;
    clk::time_point last_write{};
    clk::time_point last_any{};
    for (const seen& one : all) {
        overlaps += one.from < (one.writes ? last_any : last_write);
        written += one.writes;
        last_any = std::max(last_any, one.to);
        if (one.writes) last_write = std::max(last_write, one.to);
    }
    CHECK(overlaps == 0);
    CHECK(written > 50);
    CHECK(all.size() - written > 50);
    CHECK(nothing_left(name));
}

TEST_CASE(
    "a writer that waits is not overtaken by readers that come later, and those enter together by its "
    "release") {
    constexpr int crowd = 50;
    const auto name = fresh_name();
    party first(name);
    party writer(name);
    first.m.lock_shared();
    std::vector<std::unique_ptr<party>> others;
    std::atomic<int> in{0};
    std::atomic<bool> written{false};
    std::atomic<bool> early{false};
    std::atomic<bool> go{false};
    {
        std::jthread writes([&] {
            writer.m.lock();
            while (!go) std::this_thread::yield();
            written = true;
            writer.m.unlock();
        });
        REQUIRE(waits(name, 1));
        std::vector<std::jthread> readers;
        for (int i = 0; i < crowd; ++i) {
            others.push_back(std::make_unique<party>(name));
            readers.emplace_back([&, &own = *others.back()] {
                const std::shared_lock guard(own.m);
                if (!written) early = true;
                ++in;
                eventually([&] { return in == crowd; });
            });
        }
        REQUIRE(waits(name, 1 + crowd));
        first.m.unlock_shared();
        REQUIRE(waits(name, crowd));
        const auto before = scripts_at(common());
        go = true;
        REQUIRE(eventually([&] { return in == crowd; }));
        writes.join();
        // One that lets them all in, and the releases of those that had it.
        CHECK(scripts_at(common()) - before <= 1 + crowd);
    }
    CHECK_FALSE(early);
    CHECK(nothing_left(name));
}

TEST_CASE("threads that read through one object are one reader to the server") {
    const auto name = fresh_name();
    party a(name, {.local_budget = 1h});
    a.m.lock_shared();
    std::vector<std::jthread> threads;
    std::atomic<int> in{0};
    std::atomic<bool> go{false};
    for (int i = 0; i < 20; ++i) {
        threads.emplace_back([&] {
            const std::shared_lock guard(a.m);
            ++in;
            while (!go) std::this_thread::yield();
        });
    }
    REQUIRE(eventually([&] { return in == 20; }));
    CHECK(reading(name) == 1);
    CHECK(a.m.unlock_shared() == release_outcome::released);
    CHECK(reading(name) == 1);
    go = true;
    threads.clear();
    CHECK(nothing_left(name));
}

TEST_CASE("a writer of the same object ends what readers share: who reads after it stands behind it") {
    const auto name = fresh_name();
    party a(name, {.release = distlock::confirmed, .local_budget = 1h});
    a.m.lock_shared();
    std::atomic<int> order{0};
    int wrote = 0;
    int read = 0;
    {
        const std::jthread writes([&] {
            const std::lock_guard guard(a.m);
            wrote = ++order;
        });
        REQUIRE(waits(name, 1));
        const std::jthread reads([&] {
            const std::shared_lock guard(a.m);
            read = ++order;
        });
        REQUIRE(waits(name, 2));
        CHECK(a.m.unlock_shared() == release_outcome::released);
    }
    CHECK(wrote == 1);
    CHECK(read == 2);
    CHECK(nothing_left(name));
}

TEST_CASE(
    "a reader that comes after a waiting writer of its object does not share the ticket of one before it") {
    const auto name = fresh_name();
    party a(name, {.release = distlock::confirmed, .local_budget = 1h});
    party b(name);
    b.m.lock();
    std::atomic<int> order{0};
    std::atomic<bool> go_on{false};
    int wrote = 0;
    int read = 0;
    {
        const std::jthread first([&] {
            const std::shared_lock guard(a.m);
            while (!go_on) std::this_thread::yield();
        });
        REQUIRE(waits(name, 1));
        const std::jthread writes([&] {
            const std::lock_guard guard(a.m);
            wrote = ++order;
        });
        REQUIRE(waits(name, 2));
        sleeper second([&] {
            const std::shared_lock guard(a.m);
            read = ++order;
        });
        REQUIRE(second.sleeps());
        b.m.unlock();
        REQUIRE(eventually([&] { return reading(name) == 1; }));
        go_on = true;
        second.join();
    }
    CHECK(wrote == 1);
    CHECK(read == 2);
    CHECK(nothing_left(name));
}

TEST_CASE("a thread that comes after the local budget asks the server, and each ends its own acquisition") {
    const auto name = fresh_name();
    party a(name, {.release = distlock::confirmed, .local_budget = 0ms});
    a.m.lock_shared();
    std::jthread([&] {
        a.m.lock_shared();
        static_cast<void>(reading(name));
        a.m.unlock_shared();
    }).join();
    CHECK(reading(name) == 1);
    const distlock::shared_scoped_lock second(a.m);
    CHECK(reading(name) == 2);
    CHECK(a.m.unlock_shared() == release_outcome::released);
    CHECK(reading(name) == 1);
    CHECK(second.owns_lock());
}

TEST_CASE("a reader that tries after the local budget stands behind a writer that waits elsewhere") {
    const auto name = fresh_name();
    party a(name, {.release = distlock::confirmed, .local_budget = 0ms});
    party b(name);
    a.m.lock_shared();
    std::jthread writes([&] {
        b.m.lock();
        b.m.unlock();
    });
    REQUIRE(waits(name, 1));
    bool got = true;
    std::error_code ec;
    std::jthread([&] { got = answered(ec, [&] { return a.m.try_lock_shared(ec); }); }).join();
    CHECK_FALSE(got);
    CHECK_FALSE(ec);
    a.m.unlock_shared();
    writes.join();
    CHECK(nothing_left(name));
}

TEST_CASE("a reader waits until another clock says so, also one that is set back") {
    const auto name = fresh_name();
    party a(name), b(name);
    a.m.lock();
    slowly::time_point until;
    const auto soon = [&until] { return until = slowly::now() + 100ms; };
    CHECK_FALSE(answered([&] { return b.m.try_lock_shared_until(soon()); }));
    CHECK(slowly::now() >= until);
    std::error_code ec;
    CHECK_FALSE(answered(ec, [&] { return b.m.try_lock_shared_until(soon(), ec); }));
    CHECK_FALSE(ec);
    CHECK(slowly::now() >= until);
    a.m.unlock();
}

TEST_CASE("readers that wait through one object have one ticket, and all enter with it") {
    const auto name = fresh_name();
    party a(name);
    party b(name);
    b.m.lock();
    std::vector<std::jthread> threads;
    std::atomic<int> in{0};
    std::atomic<int> asked{0};
    for (int i = 0; i < 10; ++i) {
        threads.emplace_back([&] {
            ++asked;
            const std::shared_lock guard(a.m);
            ++in;
            eventually([&] { return in == 10; });
        });
    }
    REQUIRE(waits(name, 1));
    REQUIRE(eventually([&] { return asked == 10; }));
    CHECK(lock_on_server(common(), name).queued() == 1);
    b.m.unlock();
    CHECK(eventually([&] { return in == 10; }));
    threads.clear();
    CHECK(nothing_left(name));
}

TEST_CASE(
    "a stop request ends the wait of whoever asks for all, and of one that waits for it, and the others go "
    "on") {
    for (const bool of_the_first : {true, false}) {
        const auto name = fresh_name();
        party a(name);
        party b(name);
        b.m.lock();
        std::stop_source stop;
        std::atomic<int> in{0};
        std::error_code stopped;
        std::error_code others;
        std::atomic<bool> ended{false};
        {
            std::jthread first([&] {
                const bool got =
                    of_the_first ? a.m.lock_shared(stop.get_token(), stopped) : a.m.lock_shared(others);
                if (got) {
                    ++in;
                    a.m.unlock_shared();
                } else {
                    ended = true;
                }
            });
            REQUIRE(waits(name, 1));
            std::jthread second([&] {
                const bool got =
                    of_the_first ? a.m.lock_shared(others) : a.m.lock_shared(stop.get_token(), stopped);
                if (got) {
                    ++in;
                    a.m.unlock_shared();
                } else {
                    ended = true;
                }
            });
            std::this_thread::yield();
            stop.request_stop();
            REQUIRE(eventually([&] { return ended.load(); }));
            CHECK(stopped == errc::cancelled);
            REQUIRE(waits(name, 1));
            b.m.unlock();
        }
        CHECK(in == 1);
        CHECK_FALSE(others);
        CHECK(nothing_left(name));
    }
}

TEST_CASE("a time-out of one that waits for another's answer says what the server says") {
    const auto name = fresh_name();
    party a(name, {.patience = 200ms});
    party b(name);
    b.m.lock();
    std::atomic<bool> got{false};
    std::jthread waits_for_all([&] {
        std::error_code ec;
        if (a.m.lock_shared(ec)) {
            got = true;
            a.m.unlock_shared();
        }
    });
    REQUIRE(waits(name, 1));
    std::error_code ec = errc::deadlock;
    clk::time_point asked;
    CHECK_FALSE(answered(ec, [&] {
        asked = clk::now();
        return a.m.try_lock_shared_for(50ms, ec);
    }));
    CHECK(clk::now() - asked >= 50ms);
    CHECK(clk::now() - asked < 250ms + timing_tolerance);
    CHECK_FALSE(ec);
    b.m.unlock();
    waits_for_all.join();
    CHECK(got);
    CHECK(nothing_left(name));
}

TEST_CASE("a reader that is cancelled while it asks for others ends no wait but its own") {
    const auto name = fresh_name();
    party a(name, {.patience = 0ms});
    party b(name);
    b.m.lock();
    std::stop_source stop;
    std::error_code first;
    sleeper asks([&] { static_cast<void>(a.m.lock_shared(stop.get_token(), first)); });
    REQUIRE(waits(name, 1));
    std::error_code next = errc::deadlock;
    bool got = false;
    sleeper joins([&] {
        got = a.m.lock_shared(next);
        if (got) a.m.unlock_shared();
    });
    REQUIRE(joins.sleeps());
    stop.request_stop();
    asks.join();
    CHECK(first == errc::cancelled);
    REQUIRE(waits(name, 1));
    b.m.unlock();
    joins.join();
    CHECK_FALSE(next);
    CHECK(got);
    CHECK(nothing_left(name));
}

TEST_CASE("a server that hangs is told to every reader that waits, each after its own patience at most") {
    redis_server server;
    const auto name = fresh_name();
    hiredis_connection redis(server.uri() + "?command_timeout=100ms");
    lock m(redis, name, {.patience = 300ms});
    { const std::shared_lock warm(m); }
    server.pause();
    std::array<std::error_code, 8> said;
    const auto asked = clk::now();
    {
        std::vector<std::jthread> threads;
        for (auto& ec : said) threads.emplace_back([&] { static_cast<void>(m.lock_shared(ec)); });
    }
    // Of one that began just before another failed: its own patience, and an answer's time.
    CHECK(clk::now() - asked < 2 * 300ms + 400ms + timing_tolerance);
    for (const auto& ec : said) CHECK(ec == errc::no_reply);
    server.resume();
    CHECK(eventually([&] {
        std::error_code ec;
        return m.try_lock_shared(ec);
    }));
    m.unlock_shared();
}

TEST_CASE("readers whose lock is deleted are told by the next renewal, and whoever comes then asks anew") {
    const auto name = fresh_name();
    const auto seen = std::make_shared<counting_observer>();
    party a(name, {.lease = brief_lease, .release = distlock::confirmed, .local_budget = 1h}, common(), seen);
    a.m.lock_shared();
    const auto lost = a.m.shared_lost();
    CHECK_FALSE(lost.stop_requested());
    common().command({"DEL", name});
    CHECK(eventually([&] { return lost.stop_requested(); }));
    CHECK(eventually([&] { return seen->losses == 1; }));
    CHECK(a.m.shared_until() <= clk::now());
    {
        const distlock::shared_scoped_lock anew(a.m);
        CHECK(anew.owns_lock());
        CHECK(reading(name) == 1);
        const auto what = a.m.unlock_shared();
        CHECK((what == release_outcome::expired || what == release_outcome::taken));
        CHECK(anew.owns_lock());
        CHECK(reading(name) == 1);
    }
    CHECK(nothing_left(name));
}

TEST_CASE("a lease that is not renewed ends for readers by their own clock") {
    const auto name = fresh_name();
    party a(name, {.lease = 300ms, .renew = false, .release = distlock::confirmed});
    a.m.lock_shared();
    const auto until = a.m.shared_until();
    const auto lost = a.m.shared_lost();
    CHECK(until <= clk::now() + 300ms);
    CHECK(eventually([&] { return lost.stop_requested(); }));
    CHECK(clk::now() >= until - 1ms);
    CHECK(a.m.unlock_shared() == release_outcome::expired);
    CHECK(a.m.unlock_shared() == release_outcome::not_held);
    CHECK(nothing_left(name));
}

TEST_CASE("a lease is renewed for as long as anybody of the object reads") {
    const auto name = fresh_name();
    party a(name, {.lease = brief_lease, .release = distlock::confirmed, .local_budget = 1h});
    const distlock::shared_scoped_lock kept(a.m);
    const auto until = kept.valid_until();
    { const std::shared_lock brief(a.m); }
    CHECK(eventually([&] { return kept.valid_until() > until + brief_lease / 2; }));  // twice
    CHECK(reading(name) == 1);
}

TEST_CASE("a writer becomes a reader without a gap, and a reader the writer where it is alone") {
    const auto name = fresh_name();
    const auto seen = std::make_shared<counting_observer>();
    party a(name, {.fencing = true}, common(), seen);
    party b(name, {.fencing = true}, common(), seen);
    a.m.lock();
    const auto fence = a.m.fencing_token();
    std::atomic<bool> wrote{false};
    std::jthread writes([&] {
        b.m.lock();
        wrote = true;
        b.m.unlock();
    });
    REQUIRE(waits(name, 1));
    a.m.downgrade();
    CHECK_FALSE(a.m.owns_lock());
    CHECK(a.m.shared_until() > clk::now());
    CHECK(reading(name) == 1);
    CHECK_FALSE(wrote);
    CHECK(a.m.try_upgrade());
    CHECK(a.m.owns_lock());
    CHECK(a.m.shared_until() == clk::time_point{});
    CHECK(a.m.fencing_token() > fence);
    CHECK_FALSE(wrote);
    std::error_code ec;
    CHECK(a.m.downgrade(ec));
    CHECK_FALSE(ec);
    a.m.unlock_shared();
    writes.join();
    CHECK(wrote);
    CHECK(seen->losses == 0);
    CHECK(nothing_left(name));
}

// It watched the acquisition that was over: its owner was never told, not even when the lease had ended.
TEST_CASE(
    "a guard of several locks that is asked anew after a downgrade or an upgrade tells of later losses") {
    for (const bool upgrades : {false, true}) {
        const auto name = fresh_name();
        party a(name, {.lease = 500ms});
        distlock::mutex other(a.redis, fresh_name());
        const distlock::scoped_lock both(a.m, other);
        const std::stop_token before = both.lost();
        a.m.downgrade();
        if (upgrades) CHECK(a.m.try_upgrade());
        CHECK_FALSE(both.lost().stop_requested());
        CHECK(both.lost() == before);
        CHECK(distlock::force_release(a.redis, name));
        CHECK(eventually([&] { return before.stop_requested(); }));
        CHECK_FALSE(both.owns_lock());
    }
}

// What the server said of the lease of a later acquisition was taken for that of the one
// that had been exchanged.
TEST_CASE("after a downgrade and an upgrade the leases of writers and readers are renewed as before") {
    const auto name = fresh_name();
    party a(name, {.lease = brief_lease, .release = distlock::confirmed});
    const auto renewed = [&](auto until_of) {
        const auto granted = until_of();
        return eventually([&] { return until_of() > granted + brief_lease / 2; });  // twice
    };
    a.m.lock();
    a.m.downgrade();
    CHECK(renewed([&] { return a.m.shared_until(); }));
    a.m.unlock_shared();
    a.m.lock();
    CHECK(renewed([&] { return a.m.valid_until(); }));
    a.m.unlock();
    a.m.lock_shared();
    REQUIRE(a.m.try_upgrade());
    CHECK(renewed([&] { return a.m.valid_until(); }));
    a.m.unlock();
    a.m.lock_shared();
    CHECK(renewed([&] { return a.m.shared_until(); }));
    a.m.unlock_shared();
    CHECK(nothing_left(name));
}

TEST_CASE("nobody is upgraded beside another reader, here or elsewhere, and goes on reading") {
    const auto name = fresh_name();
    for (const bool here : {true, false}) {
        party a(name,
                {.release = distlock::confirmed, .local_budget = here ? std::chrono::milliseconds(1h) : 0ms});
        party b(name);
        const distlock::shared_scoped_lock other(here ? a.m : b.m);
        std::jthread([&] {
            a.m.lock_shared();
            const bool upgraded = a.m.try_upgrade();
            const bool reads = a.m.shared_until() > clk::now();
            const auto ended = a.m.unlock_shared();
            if (upgraded || !reads || ended != release_outcome::released) std::terminate();
        }).join();
        CHECK(other.owns_lock());
    }
    CHECK(nothing_left(name));
}

TEST_CASE("a thread that has not locked it is not downgraded, nor upgraded") {
    const auto name = fresh_name();
    party a(name);
    std::error_code ec;
    CHECK_FALSE(a.m.downgrade(ec));
    CHECK(ec == errc::not_held);
    CHECK_THROWS_AS(a.m.downgrade(), distlock::error);
    CHECK_FALSE(a.m.try_upgrade(ec));
    CHECK_FALSE(ec);
    a.m.lock();
    common().command({"DEL", name});
    CHECK_FALSE(a.m.downgrade(ec));
    CHECK(ec == errc::not_held);
    CHECK_FALSE(a.m.owns_lock());
    CHECK(a.m.shared_until() == clk::time_point{});
    CHECK(nothing_left(name));
}

// A reader stayed in that nobody knew, for a lease.
TEST_CASE("a downgrade that is refused, since the queue is of another type, leaves nobody in") {
    const auto name = fresh_name();
    const bool fences = GENERATE(false, true);
    party a(name, {.fencing = fences, .release = distlock::confirmed});
    a.m.lock();
    const auto queue = distlock::key(name).sibling("queue");
    common().command({"RPUSH", queue, "not a queue"});
    std::error_code ec;
    CHECK_FALSE(a.m.downgrade(ec));
    CHECK(ec == errc::wrong_type);
    CHECK_FALSE(a.m.owns_lock());
    CHECK(reading(name) == 0);
    common().command({"DEL", queue});
    CHECK(nothing_left(name));
}

TEST_CASE("a thread that waits for the writer's side is not handed it by a downgrade") {
    const auto name = fresh_name();
    party a(name, {.release = distlock::confirmed, .local_budget = 1h});
    a.m.lock();
    std::atomic<bool> wrote{false};
    sleeper writes([&] {
        const std::lock_guard guard(a.m);
        wrote = true;
    });
    REQUIRE(writes.sleeps());
    a.m.downgrade();
    REQUIRE(waits(name, 1));
    CHECK_FALSE(wrote);
    a.m.unlock_shared();
    writes.join();
    CHECK(wrote);
    CHECK(nothing_left(name));
}

TEST_CASE("readers and writers that cannot be told poll, and exclude each other all the same") {
    const auto name = fresh_name();
    polling_connection redis(common().uri());
    distlock::shared_mutex a{redis, name};
    party b(name);
    {
        const std::shared_lock one(a);
        CHECK_FALSE(b.m.try_lock());
        const std::shared_lock two(b.m);
        CHECK(reading(name) == 2);
    }
    b.m.lock();
    CHECK_FALSE(a.try_lock_shared_for(20ms));
    b.m.unlock();
    CHECK(a.try_lock_shared_for(5s));
    a.unlock_shared();
    CHECK(nothing_left(name));
}

TEST_CASE("a writer that is gone though its socket looks alive keeps no reader waiting for long") {
    const auto name = fresh_name();
    party owner(name);
    REQUIRE(owner.m.try_lock_shared());
    const lock_options seldom{.recheck = 1h, .release = distlock::confirmed};
    gone_waiter gone(common().socket_path());
    gone.join(distlock::exclusive_handoff(name, seldom, gone.channel()));
    REQUIRE(waits(name, 1));
    party next(name, seldom);
    const auto begun = clk::now();
    CHECK(next.m.try_lock_shared_for(60s));
    CHECK(clk::now() - begun < 8s + timing_tolerance);
    CHECK(owner.m.unlock_shared() == release_outcome::released);
    CHECK(next.m.unlock_shared() == release_outcome::released);
    CHECK(nothing_left(name));
}

TEST_CASE("a lock that is handed to readers nobody waits for any more is given back at once") {
    const auto name = fresh_name();
    party a(name, {.lease = 30s});
    party b(name);
    b.m.lock();
    std::jthread waiter([&] {
        std::error_code ec;
        if (a.m.lock_shared(ec)) a.m.unlock_shared();
    });
    REQUIRE(waits(name, 1));
    CHECK_FALSE(a.m.try_lock_for(50ms));  // one that writes has waited, too
    // What the message of a hand-over to a token of nobody looks like.
    const auto ticket = common().command({"ZRANGE", distlock::key(name).sibling("queue"), "0", "0"});
    const auto channel = ticket.substr(ticket.find("distlock:"));
    const auto nobody = distlock::token::generate();
    // The waiter goes on waiting, so that messages are read.
    const auto other = fresh_name();
    const auto readers = distlock::key(other).sibling("readers");
    common().command({"SET", other, "distlock:readers", "PX", "60000"});
    common().command({"ZADD", readers, "99999999999999", nobody.view()});
    common().command({"PUBLISH", channel, std::string(nobody.view()) + " 17 2000r 0 " + other});
    CHECK(nothing_left(other));
    common().command({"SET", other, nobody.view(), "PX", "60000"});
    // A token that is only asked to look has nothing to give back.
    const auto kept = fresh_name();
    common().command({"SET", kept, nobody.view(), "PX", "60000"});
    common().command({"PUBLISH", channel, std::string(nobody.view()) + " 18 0w 0 " + kept});
    common().command({"PUBLISH", channel, std::string(nobody.view()) + " 18 2000w 0 " + other});
    CHECK(nothing_left(other));
    CHECK(common().command({"GET", kept}) == nobody.view());
    b.m.unlock();
    waiter.join();
    CHECK(nothing_left(name));
}

TEST_CASE("a child after fork() neither reads nor ends what its parent reads") {
    const auto name = fresh_name();
    party a(name);
    a.m.lock_shared();
    CHECK(in_child([&] {
        std::error_code ec;
        return !a.m.try_lock_shared(ec) && ec == errc::wrong_process && !a.m.downgrade(ec) &&
               ec == errc::wrong_process && a.m.unlock_shared() == release_outcome::wrong_process &&
               a.m.shared_until() == clk::time_point{};
    }));
    CHECK(reading(name) == 1);
    CHECK(a.m.unlock_shared() == release_outcome::released);
}

}  // namespace shared_mutex_tests
