// distlock::shared_mutex keeps its promises over every connection: std's requirements, who excludes whom,
// and what is said of it.
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <latch>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <stop_token>
#include <string>
#include <system_error>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include <distlock/distlock.hpp>
#include <distlock/shared_mutex.hpp>
#include <distlock/shared_scoped_lock.hpp>
#include <distlock/testing.hpp>

#include "support/answered.hpp"
#include "support/catch.hpp"
#include "support/connection_fixtures.hpp"
#include "support/elsewhere.hpp"
#include "support/lock_on_server.hpp"
#include "support/round_trip.hpp"
#include "support/sleepers.hpp"
#include "support/waiting.hpp"

namespace shared_mutex_tests {

using namespace std::chrono_literals;
using distlock::errc;
using distlock::lock_options;
using distlock::release_outcome;
using clk = distlock::clock;

namespace {

constexpr lock_options quick{.recheck = 5ms};
constexpr lock_options joined_for_ever{.recheck = 5ms, .local_budget = 1h};

template <class What>
auto elsewhere(What what) {
    decltype(what()) got{};
    run_elsewhere([&] { got = what(); });
    return got;
}

struct place {
    // One that is alone may have no set beside the key.
    int readers() const {
        if (!lone_reader().empty()) return 1;
        return std::stoi(seen.at.command({"ZCARD", readers_key}));
    }
    std::string lone_reader() const {
        const auto holder = seen.at.command({"GET", name});
        const auto end = holder.find(' ');
        return holder.starts_with("distlock:readers ") ? holder.substr(end + 1) : std::string();
    }
    bool gone() const {
        return eventually([&] {
            return seen.untouched() && seen.at.command({"EXISTS", readers_key}) == "0";
        });
    }

    connection_fixtures::over_each fixture;
    std::string name = connection_fixtures::fresh_name();
    lock_on_server seen{fixture.server(), name};
    std::string readers_key = distlock::key(name).sibling("readers");
};

// Every form that takes the lock for reading.
template <class Mutex>
std::vector<std::function<bool(Mutex&)>> forms() {
    const auto ok = [](bool had, std::error_code ec) {
        if (ec == errc::no_reply) throw distlock::error(errc::no_reply, "as it is thrown by the others");
        return had && !ec;
    };
    return {
        [](Mutex& m) { return m.lock_shared(), true; },
        [](Mutex& m) { return m.lock_shared(std::stop_token{}), true; },
        [ok](Mutex& m) {
            std::error_code ec = errc::no_reply;
            return ok(m.lock_shared(ec), ec);
        },
        [ok](Mutex& m) {
            std::error_code ec;
            return ok(m.lock_shared(std::stop_source{}.get_token(), ec), ec);
        },
        [](Mutex& m) { return m.try_lock_shared(); },
        [](Mutex& m) { return m.try_lock_shared(std::stop_token{}); },
        [ok](Mutex& m) {
            std::error_code ec;
            return ok(m.try_lock_shared(ec), ec);
        },
        [ok](Mutex& m) {
            std::error_code ec;
            return ok(m.try_lock_shared(std::stop_token{}, ec), ec);
        },
        [](Mutex& m) { return m.try_lock_shared_for(5s); },
        [](Mutex& m) { return m.try_lock_shared_for(0s); },
        [](Mutex& m) { return m.try_lock_shared_for(-1s, std::stop_token{}); },
        [ok](Mutex& m) {
            std::error_code ec;
            return ok(m.try_lock_shared_for(1.5s, ec), ec);
        },
        [ok](Mutex& m) {
            std::error_code ec;
            return ok(m.try_lock_shared_for(std::chrono::hours::max(), std::stop_token{}, ec), ec);
        },
        [](Mutex& m) { return m.try_lock_shared_until(std::chrono::steady_clock::now() + 5s); },
        [](Mutex& m) { return m.try_lock_shared_until(clk::now(), std::stop_token{}); },
        [ok](Mutex& m) {
            std::error_code ec;
            return ok(m.try_lock_shared_until(std::chrono::system_clock::now() + 5s, ec), ec);
        },
        [ok](Mutex& m) {
            std::error_code ec;
            return ok(m.try_lock_shared_until(clk::time_point::max(), std::stop_token{}, ec), ec);
        },
    };
}

}  // namespace

TEST_CASE("every form takes the lock for reading, with other readers, and unlock_shared() ends it") {
    place here;
    distlock::shared_mutex m{here.fixture.connection, here.name, quick};
    distlock::shared_mutex other{here.fixture.connection, here.name, quick};
    static_assert(std::is_same_v<decltype(m), distlock::shared_mutex<decltype(here.fixture.connection)>>);
    other.lock_shared();
    const auto all = forms<decltype(m)>();
    for (std::size_t i = 0; i < all.size(); ++i) {
        INFO("form " << i);
        REQUIRE(obtains([&] { return all[i](m); }));
        CHECK(here.readers() == 2);
        CHECK(m.shared_until() > clk::now());
        CHECK_FALSE(m.shared_lost().stop_requested());
        CHECK_FALSE(m.owns_lock());
        CHECK(m.unlock_shared() == here.fixture.said());
        CHECK(m.shared_until() == clk::time_point{});
        CHECK(m.shared_lost().stop_requested());
        CHECK(eventually([&] { return here.readers() == 1; }));
    }
    CHECK(other.unlock_shared() == here.fixture.said());
    CHECK(here.gone());
}

TEST_CASE("every timed form says false of a lock that somebody else has, and throws nothing") {
    place here;
    distlock::shared_mutex m{here.fixture.connection, here.name, quick};
    const bool by_a_writer = GENERATE(false, true);
    distlock::shared_mutex writer{here.fixture.connection, here.name, quick};
    if (by_a_writer) {
        writer.lock();
    } else {
        REQUIRE(here.seen.strangers("20000"));
    }
    std::error_code ec = errc::no_reply;
    CHECK_FALSE(m.try_lock_shared());
    CHECK_FALSE(m.try_lock_shared(ec));
    CHECK_FALSE(ec);
    CHECK_FALSE(answered([&] { return m.try_lock_shared_for(20ms); }));
    ec = errc::no_reply;
    CHECK_FALSE(answered(ec, [&] { return m.try_lock_shared_for(20ms, ec); }));
    CHECK_FALSE(ec);
    using std::chrono::system_clock;
    CHECK_FALSE(answered([&] { return m.try_lock_shared_until(system_clock::now() + 20ms); }));
    ec = errc::no_reply;
    CHECK_FALSE(answered(ec, [&] { return m.try_lock_shared_until(clk::now() + 20ms, ec); }));
    CHECK_FALSE(ec);
    CHECK(eventually([&] { return here.seen.queued() == 0; }));
    CHECK(m.unlock_shared() == release_outcome::not_held);
    if (by_a_writer) CHECK(writer.unlock() == here.fixture.said());
}

TEST_CASE("a stop request ends every wait to read with errc::cancelled, and leaves no ticket") {
    place here;
    distlock::shared_mutex m{here.fixture.connection, here.name, quick};
    REQUIRE(here.seen.strangers("60000"));
    std::stop_source before;
    before.request_stop();
    std::error_code ec;
    CHECK_FALSE(m.lock_shared(before.get_token(), ec));
    CHECK(ec == errc::cancelled);
    CHECK_FALSE(m.try_lock_shared(before.get_token(), ec));
    CHECK(ec == errc::cancelled);
    CHECK_FALSE(m.try_lock_shared_for(1h, before.get_token(), ec));
    CHECK(ec == errc::cancelled);
    CHECK_THROWS_AS(m.lock_shared(before.get_token()), distlock::error);
    using wall = std::chrono::system_clock;
    const std::vector<std::function<bool(const std::stop_token&)>> ways{
        [&](const auto& token) { return m.lock_shared(token, ec); },
        [&](const auto& token) { return m.try_lock_shared_for(1h, token, ec); },
        [&](const auto& token) { return m.try_lock_shared_until(wall::now() + 1h, token, ec); },
        [&](const auto& token) { return m.lock_shared(token), true; },
        [&](const auto& token) { return m.try_lock_shared_for(10s, token); },
        [&](const auto& token) { return m.try_lock_shared_until(wall::now() + 10s, token); }};
    for (const auto& way : ways) {
        std::stop_source stop;
        ec.clear();
        sleeper waits([&, token = stop.get_token()] {
            try {
                if (way(token)) m.unlock_shared();
            } catch (const distlock::error& e) {
                ec = e.code();
            }
        });
        REQUIRE(waits.sleeps());
        const auto start = clk::now();
        stop.request_stop();
        waits.join();
        CHECK(clk::now() - start < round_trip_tolerance);
        CHECK(ec == errc::cancelled);
    }
    CHECK(eventually([&] { return here.seen.queued() == 0; }));
    CHECK(here.seen.holder() == "a stranger's token");
}

TEST_CASE("std's guards and distlock's lock it for reading and for writing") {
    place here;
    distlock::shared_mutex m{here.fixture.connection, here.name, quick};
    distlock::shared_mutex other{here.fixture.connection, here.name, quick};
    const auto tries_to_write = [&] {
        const bool had = other.try_lock();
        if (had) other.unlock();
        return had;
    };
    {
        std::shared_lock read{m};
        CHECK(read.owns_lock());
        CHECK_FALSE(elsewhere(tries_to_write));
        std::shared_lock moved{std::move(read)};
        CHECK(moved.owns_lock());
        moved.unlock();
        CHECK(moved.try_lock());
        moved.unlock();
        CHECK(moved.try_lock_for(1s));
        CHECK(here.readers() == 1);
    }
    CHECK(eventually([&] { return here.readers() == 0; }));
    {
        std::shared_lock read{m, std::chrono::steady_clock::now() + 1s};
        CHECK(read.owns_lock());
    }
    {
        std::unique_lock write{m};
        CHECK(write.owns_lock());
        CHECK_FALSE(elsewhere([&] { return other.try_lock_shared(); }));
    }
    {
        std::unique_lock write{m, 1s};
        CHECK(write.owns_lock());
    }
    {
        const distlock::scoped_lock write{m};
        CHECK(write.owns_lock());
        CHECK_FALSE(write.lost().stop_requested());
        CHECK_FALSE(elsewhere([&] { return other.try_lock_shared(); }));
    }
    {
        const std::scoped_lock both{m};
        CHECK(m.owns_lock());
    }
    CHECK(here.gone());
}

TEST_CASE("a shared_scoped_lock reads for as long as it lives, moved or not") {
    place here;
    auto options = quick;
    options.fencing = true;
    distlock::shared_mutex m{here.fixture.connection, here.name, options};
    m.lock();
    const auto fence = m.fencing_token();
    m.unlock();
    {
        distlock::shared_scoped_lock guard{m};
        static_assert(std::is_same_v<decltype(guard), distlock::shared_scoped_lock<decltype(m)>>);
        CHECK(guard.owns_lock());
        CHECK(guard.fencing_token() == fence);
        CHECK(guard.name() == here.name);
        CHECK(guard.remaining() > 0s);
        CHECK(guard.remaining() <= 30s);
        CHECK(guard.valid_until() == m.shared_until());
        const auto lost = guard.lost();
        CHECK_FALSE(lost.stop_requested());
        auto moved = std::move(guard);
        CHECK_FALSE(guard.owns_lock());
        CHECK(guard.valid_until() == clk::time_point{});
        CHECK(guard.remaining() == 0s);
        CHECK(guard.lost().stop_requested());
        CHECK(guard.fencing_token() == 0);
        CHECK(moved.owns_lock());
        CHECK(moved.fencing_token() == fence);
        CHECK_FALSE(lost.stop_requested());
        distlock::shared_scoped_lock next{m, std::stop_token{}};
        next = std::move(moved);
        CHECK(next.owns_lock());
        CHECK(here.readers() == 1);
        auto& itself = next;
        next = std::move(itself);
        CHECK(next.owns_lock());
        CHECK(here.readers() == 1);
        std::jthread([last = std::move(next)] {}).join();
        CHECK_FALSE(next.owns_lock());
        CHECK(eventually([&] { return here.readers() == 0; }));
    }
    std::stop_source stop;
    stop.request_stop();
    CHECK_THROWS_AS((distlock::shared_scoped_lock{m, stop.get_token()}), distlock::error);
    CHECK(here.gone());
}

// A resource would have refused its reads, or taken old data for new.
TEST_CASE("a reader's guard that takes over a read has its fencing token, and the other has none") {
    place here;
    auto options = quick;
    options.fencing = true;
    distlock::shared_mutex first{here.fixture.connection, here.name, options};
    distlock::shared_mutex second{here.fixture.connection, connection_fixtures::fresh_name(), options};
    for (auto* const m : {&first, &second}) {
        m->lock();
        m->unlock();
    }
    distlock::shared_scoped_lock guard{first};
    distlock::shared_scoped_lock next{second};
    const auto fence = next.fencing_token();
    REQUIRE(fence != guard.fencing_token());
    guard = std::move(next);
    CHECK(guard.name() == second.name());
    CHECK(guard.fencing_token() == fence);
    CHECK(next.fencing_token() == 0);
}

TEST_CASE("a shared_scoped_lock adopts what its thread reads, and ends it on any thread") {
    place here;
    auto options = quick;
    options.fencing = true;
    distlock::shared_mutex m{here.fixture.connection, here.name, options};
    m.lock();
    const auto fence = m.fencing_token();
    m.unlock();
    CHECK(m.shared_fencing_token() == 0);
    m.lock_shared();
    CHECK(m.shared_fencing_token() == fence);
    {
        distlock::shared_scoped_lock guard{std::adopt_lock, m};
        static_assert(std::is_same_v<decltype(guard), distlock::shared_scoped_lock<decltype(m)>>);
        CHECK(guard.owns_lock());
        CHECK(guard.fencing_token() == fence);
        CHECK_FALSE(guard.lost().stop_requested());
        CHECK_FALSE(distlock::shared_scoped_lock(std::adopt_lock, m).owns_lock());  // the guard has it
        CHECK(guard.owns_lock());
        std::jthread([last = std::move(guard)] {}).join();
    }
    CHECK(m.unlock_shared() == release_outcome::not_held);
    CHECK_FALSE(distlock::shared_scoped_lock(std::adopt_lock, m).owns_lock());
    CHECK(here.gone());
}

// The guard's hold was ended in place of the thread's own, which nobody could end then.
TEST_CASE("unlock_shared() ends what its thread has locked by itself, not what a guard has") {
    place here;
    distlock::shared_mutex m{here.fixture.connection, here.name, quick};
    {
        auto guard = std::make_unique<distlock::shared_scoped_lock<decltype(m)>>(m);
        std::latch reads{1};
        std::latch ends{1};
        std::jthread has_it([&, mine = std::move(guard)]() mutable {
            reads.count_down();
            ends.wait();
            mine.reset();
        });
        reads.wait();
        m.lock_shared();
        CHECK(m.unlock_shared() != release_outcome::not_held);
        CHECK(here.readers() >= 1);  // the guard's
        ends.count_down();
    }
    CHECK(here.gone());
}

TEST_CASE("unlock_shared() of a thread that does not read sends nothing and says so") {
    place here;
    distlock::shared_mutex m{here.fixture.connection, here.name, quick};
    CHECK(m.unlock_shared() == release_outcome::not_held);
    m.lock_shared();
    CHECK(elsewhere([&] { return m.unlock_shared(); }) == release_outcome::not_held);
    CHECK(elsewhere([&] { return m.shared_until(); }) == clk::time_point{});
    CHECK(elsewhere([&] { return m.shared_lost().stop_requested(); }));
    CHECK(m.unlock() == release_outcome::not_held);
    CHECK(here.readers() == 1);
    CHECK(m.unlock_shared() == here.fixture.said());
    CHECK(m.unlock_shared() == release_outcome::not_held);
    m.lock();
    CHECK(m.unlock_shared() == release_outcome::not_held);
    CHECK(m.owns_lock());
    m.unlock();
    CHECK(here.gone());
}

TEST_CASE("a name that can have no key beside it is refused") {
    connection_fixtures::over_each fixture;
    for (const char* name : {"a}b", "}", "{}", ""}) {
        std::error_code cause;
        try {
            const distlock::shared_mutex m{fixture.connection, name};
        } catch (const distlock::error& e) {
            cause = e.code();
        }
        CHECK(cause == errc::invalid_name);
    }
}

TEST_CASE("a plain client excludes readers, and is excluded by them") {
    place here;
    distlock::shared_mutex m{here.fixture.connection, here.name, quick};
    REQUIRE(here.seen.strangers("60000"));
    CHECK_FALSE(m.try_lock_shared());
    sleeper waits([&] { m.lock_shared(), m.unlock_shared(); });
    REQUIRE(waits.sleeps());
    CHECK_FALSE(waits.done());
    here.seen.strangers_release();
    waits.join();
    CHECK(here.gone());
    m.lock_shared();
    CHECK_FALSE(here.seen.strangers("60000"));
    m.unlock_shared();
    CHECK(eventually([&] { return here.seen.strangers("60000"); }));
    here.seen.strangers_release();
}

// Readers of one object.

TEST_CASE("readers of one object that wait enter by one grant, and the last of them gives it back") {
    place here;
    distlock::shared_mutex m{here.fixture.connection, here.name, joined_for_ever};
    REQUIRE(here.seen.strangers("60000"));
    constexpr int count = 16;
    std::atomic<int> in{0};
    std::latch out{1};
    std::vector<std::unique_ptr<sleeper>> threads;
    std::vector<release_outcome> outcomes(count);
    for (std::size_t i = 0; i < count; ++i) {
        threads.push_back(std::make_unique<sleeper>([&, i] {
            m.lock_shared();
            ++in;
            out.wait();
            outcomes[i] = m.unlock_shared();
        }));
        REQUIRE(threads.back()->sleeps());
    }
    CHECK(here.seen.queued() <= 1);
    here.seen.strangers_release();
    CHECK(eventually([&] { return in == count; }));
    CHECK(here.readers() == 1);
    out.count_down();
    for (auto& one : threads) one->join();
    int last = 0;
    for (const auto outcome : outcomes) last += outcome != release_outcome::released ? 1 : 0;
    CHECK(last == (here.fixture.said() == release_outcome::posted ? 1 : 0));
    CHECK(here.gone());
}

TEST_CASE("a reader joins those of its object that have just entered, until its budget is over") {
    place here;
    const bool for_ever = GENERATE(true, false);
    distlock::shared_mutex m{
        here.fixture.connection, here.name, {.recheck = 5ms, .local_budget = for_ever ? 1h : 0h}};
    m.lock_shared();
    std::latch out{1};
    std::atomic<bool> in{false};
    sleeper joins([&] {
        m.lock_shared();
        in = true;
        out.wait();
        m.unlock_shared();
    });
    REQUIRE(eventually([&] { return in.load(); }));
    CHECK(here.readers() == (for_ever ? 1 : 2));
    m.unlock_shared();
    CHECK(eventually([&] { return here.readers() == 1; }));  // that of the thread still in
    out.count_down();
    joins.join();
    CHECK(here.gone());
}

TEST_CASE("a writer of the object ends the batch: readers who come later are after it") {
    place here;
    const bool in_queue = here.fixture.subscribes();
    distlock::shared_mutex m{here.fixture.connection, here.name, joined_for_ever};
    m.lock_shared();
    std::atomic<bool> wrote{false};
    std::atomic<bool> read{false};
    std::latch written{1};
    sleeper writes([&] {
        m.lock();
        wrote = true;
        written.wait();
        m.unlock();
    });
    REQUIRE(writes.sleeps());
    if (in_queue) REQUIRE(here.seen.gets(1));
    std::unique_ptr<sleeper> reads;
    if (in_queue) {
        CHECK_FALSE(elsewhere([&] { return m.try_lock_shared(); }));
        reads = std::make_unique<sleeper>([&] {
            m.lock_shared();
            read = true;
            m.unlock_shared();
        });
        REQUIRE(here.seen.gets(2));
        CHECK(reads->sleeps());
        CHECK_FALSE(read);
    }
    CHECK_FALSE(wrote);
    m.unlock_shared();
    CHECK(eventually([&] { return wrote.load(); }));
    CHECK_FALSE(read);
    CHECK_FALSE(elsewhere([&] { return m.try_lock_shared(); }));
    written.count_down();
    writes.join();
    if (reads) reads->join();
    CHECK(here.gone());
}

// Losses.

TEST_CASE("readers whose lock is deleted hear of it, and unlock_shared() says that it is over") {
    place here;
    const auto lease = 500ms + 4 * round_trip();
    distlock::shared_mutex m{here.fixture.connection, here.name, {.lease = lease, .local_budget = 1h}};
    m.lock_shared();
    const auto lost = m.shared_lost();
    std::stop_token also_lost;
    release_outcome second{};
    std::latch in{1};
    std::latch out{1};
    std::jthread joins([&] {
        m.lock_shared();
        also_lost = m.shared_lost();
        in.count_down();
        out.wait();
        second = m.unlock_shared();
    });
    in.wait();
    here.seen.strangers_release();
    const auto deleted = clk::now();
    CHECK(eventually([&] { return lost.stop_requested() && also_lost.stop_requested(); }));
    CHECK(clk::now() - deleted < lease + round_trip_tolerance);
    CHECK(m.shared_until() <= clk::now());
    CHECK(m.unlock_shared() == release_outcome::expired);
    out.count_down();
    joins.join();
    CHECK(second == release_outcome::expired);
    CHECK(m.try_lock_shared());
    CHECK_FALSE(m.shared_lost().stop_requested());
    m.unlock_shared();
    CHECK(here.gone());
}

TEST_CASE("a reader that lost its place among others loses nothing for them") {
    place here;
    const auto lease = 500ms + 4 * round_trip();
    distlock::shared_mutex other{here.fixture.connection, here.name, {.lease = lease}};
    other.lock_shared();
    const auto token = here.lone_reader();
    distlock::shared_mutex m{here.fixture.connection, here.name, {.lease = lease}};
    m.lock_shared();
    CHECK(here.seen.at.command({"ZREM", here.readers_key, token}) == "1");
    CHECK(eventually([&] { return other.shared_lost().stop_requested(); }));
    CHECK_FALSE(m.shared_lost().stop_requested());
    const auto outcome = other.unlock_shared();
    CHECK((outcome == release_outcome::expired || outcome == release_outcome::taken));
    const auto later = clk::now() + 2 * lease;
    CHECK(eventually([&] { return clk::now() > later; }));
    CHECK_FALSE(m.shared_lost().stop_requested());
    CHECK(m.unlock_shared() == here.fixture.said());
    CHECK(here.gone());
}

// Between the sides.

TEST_CASE("a writer reads on after downgrade(), and no writer was let in between") {
    place here;
    distlock::shared_mutex m{here.fixture.connection, here.name, quick};
    distlock::shared_mutex other{here.fixture.connection, here.name, quick};
    std::error_code ec;
    CHECK_FALSE(m.downgrade(ec));
    CHECK(ec == errc::not_held);
    CHECK_THROWS_AS(m.downgrade(), distlock::error);
    m.lock();
    m.downgrade();
    CHECK_FALSE(m.owns_lock());
    CHECK(m.shared_until() > clk::now());
    CHECK(here.readers() == 1);
    CHECK(elsewhere([&] { return other.try_lock_shared(); }));
    CHECK_FALSE(elsewhere([&] { return other.try_lock(); }));
    CHECK(m.unlock() == release_outcome::not_held);
    CHECK_FALSE(m.try_upgrade());  // another one reads
    CHECK(m.shared_until() > clk::now());
    CHECK(m.unlock_shared() == here.fixture.said());
    CHECK(eventually([&] { return here.readers() == 1; }));
}

TEST_CASE("the only reader becomes the writer by try_upgrade(); without a hold it does not") {
    place here;
    distlock::shared_mutex m{here.fixture.connection, here.name, quick};
    distlock::shared_mutex other{here.fixture.connection, here.name, quick};
    CHECK_FALSE(m.try_upgrade());
    m.lock_shared();
    CHECK(m.try_upgrade());
    CHECK(m.owns_lock());
    CHECK(m.shared_until() == clk::time_point{});
    CHECK(m.unlock_shared() == release_outcome::not_held);
    CHECK_FALSE(elsewhere([&] { return other.try_lock_shared(); }));
    CHECK(here.readers() == 0);
    CHECK(m.unlock() == here.fixture.said());
    CHECK(here.gone());
}

// It had the one of before: the token of the writer that the new one must be told from.
TEST_CASE("a guard has the fencing token of what its acquisition has become") {
    place here;
    distlock::shared_mutex m{here.fixture.connection, here.name,
                             distlock::lock_options{.lease = quick.lease, .fencing = true}};
    std::uint64_t before = 0;
    {
        distlock::scoped_lock writes{m};
        before = writes.fencing_token();
        CHECK(before == m.fencing_token());
        m.downgrade();
        CHECK(writes.fencing_token() == before);
        CHECK(m.shared_fencing_token() == before);
        REQUIRE(m.try_upgrade());
        CHECK(writes.fencing_token() > before);
        CHECK(writes.fencing_token() == m.fencing_token());
        before = m.fencing_token();
        const auto taken_over = std::move(writes);
        CHECK(taken_over.fencing_token() == before);
        CHECK(writes.fencing_token() == 0);
    }
    const distlock::shared_scoped_lock reads{m};
    CHECK(reads.fencing_token() == before);
    REQUIRE(m.try_upgrade());
    CHECK(reads.fencing_token() > before);
    CHECK(reads.fencing_token() == m.fencing_token());
}

// The guard found nothing to end: the other side was renewed until its mutex died.
TEST_CASE("a guard ends what its acquisition has become") {
    place here;
    distlock::shared_mutex m{here.fixture.connection, here.name, quick};
    SECTION("a reader's that writes") {
        {
            const distlock::shared_scoped_lock guard{m};
            REQUIRE(m.try_upgrade());
            CHECK(guard.owns_lock());
            CHECK_FALSE(guard.lost().stop_requested());
        }
        CHECK_FALSE(m.owns_lock());
    }
    SECTION("a writer's that reads") {
        {
            const distlock::scoped_lock guard{m};
            m.downgrade();
            CHECK(guard.owns_lock());
            CHECK_FALSE(guard.lost().stop_requested());
            CHECK(here.readers() == 1);
        }
        CHECK(m.shared_until() == clk::time_point{});
    }
    SECTION("a reader's, there and back, moved to another thread") {
        distlock::shared_scoped_lock guard{m};
        REQUIRE(m.try_upgrade());
        m.downgrade();
        CHECK(guard.owns_lock());
        CHECK(elsewhere([&] {
            const auto moved = std::move(guard);
            return moved.owns_lock();
        }));
    }
    SECTION("a writer's, there and back") {
        const distlock::scoped_lock guard{m};
        m.downgrade();
        REQUIRE(m.try_upgrade());
        CHECK(guard.owns_lock());
    }
    CHECK(eventually([&] { return here.gone(); }));
}

TEST_CASE("the one of two guards that adopted what the other's has become ends it") {
    place here;
    distlock::shared_mutex m{here.fixture.connection, here.name, quick};
    std::optional<distlock::shared_scoped_lock<decltype(m)>> reads(std::in_place, m);
    REQUIRE(m.try_upgrade());
    {
        std::optional<distlock::scoped_lock<decltype(m)>> writes(std::in_place, std::adopt_lock, m);
        reads.reset();
        CHECK(writes->owns_lock());
        m.downgrade();
        const distlock::shared_scoped_lock again{std::adopt_lock, m};
        writes.reset();
        CHECK(again.owns_lock());
    }
    CHECK(eventually([&] { return here.gone(); }));
}

TEST_CASE("a guard whose read became a write that the thread has unlocked ends nothing") {
    place here;
    distlock::shared_mutex m{here.fixture.connection, here.name, quick};
    {
        const distlock::shared_scoped_lock reads{m};
        REQUIRE(m.try_upgrade());
        CHECK(m.unlock_shared() == release_outcome::not_held);
        CHECK(m.unlock() == here.fixture.said());
        m.lock();
        CHECK_FALSE(reads.owns_lock());
    }
    CHECK(m.owns_lock());
    CHECK(m.unlock() == here.fixture.said());
    CHECK(eventually([&] { return here.gone(); }));
}

TEST_CASE("a writer whose lock was deleted is told so by downgrade(), and has neither") {
    place here;
    distlock::shared_mutex m{here.fixture.connection, here.name, quick};
    m.lock();
    here.seen.strangers_release();
    std::error_code ec;
    CHECK_FALSE(m.downgrade(ec));
    CHECK(ec == errc::not_held);
    CHECK_FALSE(m.owns_lock());
    CHECK(m.unlock_shared() == release_outcome::not_held);
    CHECK(here.gone());
}

}  // namespace shared_mutex_tests
