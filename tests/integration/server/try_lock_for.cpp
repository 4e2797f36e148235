// Several locks at once over real servers: all or none, in one command while they are free.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
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
#include <distlock/wire/joint_try.hpp>
#include <distlock/wire/permits.hpp>
#include <distlock/wire/shared_handoff.hpp>

#include "support/answered.hpp"
#include "support/catch.hpp"
#include "support/cluster.hpp"
#include "support/fresh_name.hpp"
#include "support/hiredis_test.hpp"
#include "support/in_child.hpp"
#include "support/lock_on_server.hpp"
#include "support/server_counts.hpp"
#include "support/sleepers.hpp"
#include "support/stoppable.hpp"
#include "support/timing_tolerance.hpp"
#include "support/waiting.hpp"

namespace try_lock_for_tests {

using namespace std::chrono_literals;
using distlock::errc;
using distlock::hiredis_connection;
using distlock::lock_options;
using distlock::permit;
using distlock::testing::redis_server;
using hiredis_test::common;
using hiredis_test::confirmed;
using clk = distlock::clock;
using mutex = distlock::mutex<hiredis_connection>;
using shared_mutex = distlock::shared_mutex<hiredis_connection>;
using semaphore = distlock::counting_semaphore<hiredis_connection>;

namespace {

// A lock of each kind, each exclusive for who has it, with a connection of its own, as a process has them.
struct account {
    explicit account(const std::string& name, const redis_server& server = common(),
                     const lock_options& options = confirmed)
        : redis(server.uri()),
          a(redis, name + ".a", options),
          b(redis, name + ".b", options),
          c(redis, name + ".c", 2, options) {}

    std::optional<std::pair<std::shared_lock<shared_mutex>, permit>> take(std::chrono::milliseconds timeout,
                                                                          std::stop_token stop = {}) {
        std::shared_lock reads(b, std::defer_lock);
        permit slot(c, std::defer_lock, 2);
        if (!distlock::try_lock_for(timeout, std::move(stop), slot, reads, a)) return std::nullopt;
        return std::pair(std::move(reads), std::move(slot));
    }

    hiredis_connection redis;
    mutex a;
    shared_mutex b;
    semaphore c;
};

// Returns: what is left of the three, and of their queues: none when nothing is.
std::string left_of(const std::string& name, const redis_server& server = common()) {
    std::string left;
    for (const char* const one : {".a", ".b", ".c"}) {
        for (const std::string& key : {name + one, distlock::key(name + one).sibling("queue"),
                                       distlock::key(name + one).sibling("readers")}) {
            if (server.command({"EXISTS", key}) != "0") left += key + ' ';
        }
    }
    return left;
}
bool nothing_left(const std::string& name, const redis_server& server = common()) {
    return eventually([&] { return left_of(name, server).empty(); });
}

}  // namespace

TEST_CASE("a mutex, a reader and permits that are free are taken by one command") {
    const redis_server server;
    const auto name = fresh_name();
    account mine(name, server);
    {
        const auto warm = mine.take(1s);  // the server learns the script
        REQUIRE(warm);
        mine.a.unlock();
    }
    REQUIRE(nothing_left(name, server));
    const auto before = scripts_at(server);
    const auto got = mine.take(0s);
    CHECK(scripts_at(server) - before == 1);
    REQUIRE(got);
    CHECK(mine.a.owns_lock());
    CHECK(got->first.owns_lock());
    CHECK(mine.b.shared_until() > clk::now());
    CHECK(got->second.n() == 2);
    CHECK(got->second.remaining() > 0s);
    CHECK(mine.a.unlock() == distlock::release_outcome::released);
}

TEST_CASE("two locks that are free are taken by one command, and so is one alone") {
    const redis_server server;
    const auto name = fresh_name();
    account mine(name, server);
    for (const bool warm : {false, true}) {
        const auto before = scripts_at(server);
        std::shared_lock reads(mine.b, std::defer_lock);
        REQUIRE(distlock::try_lock_for(1s, mine.a, reads));
        if (warm) CHECK(scripts_at(server) - before == 1);
        CHECK(mine.a.owns_lock());
        CHECK(reads.owns_lock());
        CHECK(mine.a.unlock() == distlock::release_outcome::released);
    }
    permit slot(mine.c, std::defer_lock, 2);
    REQUIRE(distlock::try_lock_for(1s, slot));
    CHECK(slot.n() == 2);
    CHECK(slot.remaining() > 0s);
}

TEST_CASE("locks that were taken together are released one by one, and renewed until then") {
    const auto name = fresh_name();
    const lock_options brief{.lease = 3s, .release = distlock::confirmed};
    account mine(name, common(), brief), others(name, common(), brief);
    {
        const auto got = mine.take(1s);
        REQUIRE(got);
        const auto granted = mine.a.valid_until();
        const auto renewed = [granted](clk::time_point until) { return until > granted + 500ms; };
        CHECK(eventually([&] {
            REQUIRE(mine.a.owns_lock());
            REQUIRE(got->second);
            CHECK(!answered([&] { return others.take(0s); }));
            return renewed(mine.a.valid_until()) && renewed(mine.b.shared_until()) &&
                   renewed(got->second.valid_until());
        }));
        CHECK(mine.a.unlock() == distlock::release_outcome::released);
        CHECK(others.a.try_lock());
        others.a.unlock();
        CHECK(!others.b.try_lock());
        CHECK(!others.c.try_acquire());
    }
    CHECK(obtains([&] { return others.take(0s); }));
    others.a.unlock();
    CHECK(nothing_left(name));
}

TEST_CASE("none of several locks is taken where somebody else has one, and nothing is left") {
    const auto name = fresh_name();
    account mine(name), others(name);
    std::optional<permit> slot;
    SECTION("the mutex") { REQUIRE(others.a.try_lock()); }
    SECTION("the shared mutex, for writing") { REQUIRE(others.b.try_lock()); }
    SECTION("permits") {
        slot = others.c.try_acquire();
        REQUIRE(slot);
    }
    SECTION("a client in another language") {
        REQUIRE(common().command({"SET", name + ".a", "stranger", "NX", "PX", "30000"}) == "OK");
    }
    CHECK(!mine.take(0s));
    const auto took = time_of([&] { CHECK(!mine.take(100ms)); });
    CHECK(took >= 100ms);
    CHECK(took < 100ms + timing_tolerance);
    CHECK(!mine.a.owns_lock());
    CHECK(mine.b.shared_until() == clk::time_point{});
    if (others.a.owns_lock()) others.a.unlock();
    if (others.b.owns_lock()) others.b.unlock();
    slot.reset();
    common().command({"DEL", name + ".a"});
    CHECK(nothing_left(name));
    CHECK(mine.take(0s));
    mine.a.unlock();
}

// It gave back what its tokens had got since by commands of their own: the next owner came in beside them.
TEST_CASE(
    "a command for several locks that comes late takes nothing from those that its own tokens have by now") {
    const auto name = fresh_name();
    const auto sibling = [&](const char* what) { return "{" + name + "}" + what; };
    const auto mine = distlock::token::generate();
    const auto another = distlock::token::generate();
    const distlock::handoff orders(sibling("orders"), {});
    const distlock::shared_handoff alone(sibling("alone"), {});
    const distlock::shared_handoff together(sibling("together"), {});
    const distlock::permits workers(sibling("workers"), {}, {}, distlock::channel_kind::ordinary, 8, 2);
    const distlock::handoff last(sibling("last"), {});
    hiredis_connection redis{common().uri()};
    const auto look = [&](const auto& at, const distlock::token& by) {
        return at.read_look(distlock::execute(redis, at.look(by))).what ==
               distlock::acquire_outcome::kind::granted;
    };
    REQUIRE(look(orders, mine));
    REQUIRE(look(alone, mine));
    REQUIRE(look(together, another));
    REQUIRE(look(together, mine));
    REQUIRE(look(workers, mine));
    REQUIRE(look(last, another));

    const distlock::command tries[] = {orders.look(mine), alone.look(mine), together.look(mine),
                                       workers.look(mine), last.look(mine)};
    const distlock::detail::joint_try late(tries);
    CHECK(distlock::execute(redis, late.ask()).is_integer(5));
    const std::string token(mine.view());
    CHECK(common().command({"GET", sibling("orders")}) == token);
    for (const auto* const one : {&alone, &together}) {
        INFO(one->name());
        CHECK(common().command({"GET", one->name()}) == "distlock:readers");
        const std::string readers(one->look(mine).argv()[7]);
        CHECK(common().command({"ZSCORE", readers, token}) != "(nil)");
    }
    CHECK(common().command({"ZSCORE", workers.name(), token}) != "(nil)");

    for (const char* const what : {"orders", "alone", "together", "workers"})
        common().command({"DEL", sibling(what)});
    CHECK(distlock::execute(redis, late.ask()).is_integer(5));
    for (const char* const what : {"orders", "alone", "together", "workers"})
        CHECK(common().command({"EXISTS", sibling(what)}) == "0");

    common().command({"DEL", sibling("last")});
    common().command({"LPUSH", sibling("last"), "no lock"});
    const auto trouble = distlock::execute(redis, late.ask());
    CHECK(last.read_look(trouble).cause == errc::wrong_type);
    CHECK(common().command({"EXISTS", sibling("orders")}) == "0");
}

// They were kept for a whole lease, for nobody.
TEST_CASE(
    "a command for several locks that comes late gives back what its own tokens had, but lost by then") {
    const auto name = fresh_name();
    const auto sibling = [&](const char* what) { return "{" + name + "}" + what; };
    const auto mine = distlock::token::generate();
    const auto another = distlock::token::generate();
    const distlock::shared_handoff together(sibling("together"), {});
    const distlock::permits workers(sibling("workers"), {}, {}, distlock::channel_kind::ordinary, 8, 2);
    const distlock::handoff last(sibling("last"), {});
    hiredis_connection redis{common().uri()};
    for (const auto& by : {another, mine}) {
        REQUIRE(distlock::execute(redis, together.look(by)).answered());
        REQUIRE(distlock::execute(redis, workers.look(by)).answered());
    }
    REQUIRE(distlock::execute(redis, last.look(another)).answered());
    const std::string token(mine.view());
    const std::string readers(together.look(mine).argv()[7]);
    for (const auto& one : {readers, workers.name()})
        REQUIRE(common().command({"ZADD", one, "XX", "CH", "1", token}) == "1");  // it ended long ago

    const distlock::command tries[] = {together.look(mine), workers.look(mine), last.look(mine)};
    CHECK(distlock::execute(redis, distlock::detail::joint_try(tries).ask()).is_integer(3));
    for (const auto& one : {readers, workers.name()}) {
        INFO(one);
        CHECK(common().command({"ZSCORE", one, token}) == "(nil)");
        CHECK(common().command({"ZSCORE", one, std::string(another.view())}) != "(nil)");
    }
}

TEST_CASE("a reader beside other readers is taken with the rest") {
    const auto name = fresh_name();
    account mine(name), others(name);
    const std::shared_lock reads(others.b);
    CHECK(mine.take(0s));
    mine.a.unlock();
    const std::shared_lock reads_here(mine.b);  // without the server, the next time
    std::thread([&] {
        CHECK(mine.take(0s));
        mine.a.unlock();
    }).join();
}

TEST_CASE("a thread that joined the readers of its object, and could not have the rest, reads no more") {
    const auto name = fresh_name();
    account mine(name), others(name);
    const permit out = others.c.acquire();
    std::shared_lock reads_here(mine.b);
    std::thread([&] {
        std::shared_lock reads(mine.b, std::defer_lock);
        permit slot(mine.c, std::defer_lock, 2);
        CHECK(!distlock::try_lock_for(0s, reads, slot));
        CHECK(mine.b.shared_until() == clk::time_point{});
    }).join();
    reads_here.unlock();
    CHECK(common().command({"EXISTS", name + ".b"}) == "0");
}

TEST_CASE("a waiter for several is served when the last one is free") {
    const auto name = fresh_name();
    account mine(name), others(name);
    REQUIRE(others.b.try_lock());
    std::atomic<bool> has = false;
    bool took = false;
    std::thread waiter([&] {
        const auto got = mine.take(20s);
        took = got.has_value();
        has = true;
        mine.a.unlock();
    });
    CHECK(eventually([&] {
        return common().command({"ZCARD", distlock::key(name + ".b").sibling("queue")}) == "1";
    }));
    CHECK(!has);
    others.b.unlock();
    waiter.join();
    CHECK(took);
    CHECK(nothing_left(name));
}

TEST_CASE("several locks are waited for until a time of any clock, and no longer") {
    const auto name = fresh_name();
    account mine(name), others(name);
    REQUIRE(others.a.try_lock());
    std::stop_source stop;
    std::error_code ec;
    std::atomic<bool> over = false;
    bool took = true;
    std::thread waiter([&] {
        std::shared_lock reads(mine.b, std::defer_lock);
        const auto until = std::chrono::system_clock::now() + 100ms;
        took = distlock::try_lock_until(until, stop.get_token(), ec, mine.a, reads);
        over = true;
    });
    CHECK(eventually([&] { return over.load(); }));
    stop.request_stop();
    waiter.join();
    CHECK_FALSE(took);
    CHECK_FALSE(ec);
    others.a.unlock();
    CHECK(nothing_left(name));
}

TEST_CASE("a stop request ends the wait for several locks until a time of any clock") {
    const auto name = fresh_name();
    account mine(name), others(name);
    REQUIRE(others.a.try_lock());
    std::stop_source stop;
    std::error_code ec;
    bool took = true;
    std::jthread waiter([&] {
        const auto until = std::chrono::system_clock::now() + 1h;
        took = distlock::try_lock_until(until, stop.get_token(), ec, mine.a, mine.b);
    });
    REQUIRE(lock_on_server(common(), name + ".a").gets(1));
    stop.request_stop();
    waiter.join();
    CHECK_FALSE(took);
    CHECK(ec == errc::cancelled);
    others.a.unlock();
    CHECK(nothing_left(name));
}

TEST_CASE("several locks are waited for as long as any duration says, also the longest") {
    const auto wait = GENERATE(std::chrono::hours::max(), std::chrono::hours(24 * 365 * 300));
    const auto name = fresh_name();
    account owner(name);
    auto held = owner.take(0ms);
    REQUIRE(held);
    account waiter(name);
    bool got = false;
    std::jthread waits([&] { got = distlock::try_lock_for(wait, waiter.a, waiter.b); });
    REQUIRE(lock_on_server(common(), name + ".a").gets(1));
    held.reset();
    owner.a.unlock();
    waits.join();
    REQUIRE(got);
    waiter.a.unlock();
    waiter.b.unlock();
    CHECK(nothing_left(name));
}

TEST_CASE("callers of the same locks do not wait for each other in a circle, and never have one together") {
    const auto name = fresh_name();
    struct span {
        clk::time_point from, to;
    };
    std::mutex guards;
    std::vector<span> had[3];
    std::atomic<int> failed = 0;
    std::vector<std::thread> all;
    for (int who = 0; who < 4; ++who) {
        all.emplace_back([&, who] {
            hiredis_connection redis(common().uri());
            mutex x(redis, name + ".x"), y(redis, name + ".y"), z(redis, name + ".z");
            mutex* const order[] = {&x, &y, &z};
            const auto at = [&](int i) -> mutex& { return *order[(who + i) % 3]; };
            for (int round = 0; round < 50; ++round) {
                const bool three = round % 3 == 0;
                const bool got = three ? distlock::try_lock_for(20s, at(2), at(1), at(0))
                                       : distlock::try_lock_for(20s, at(1), at(0));
                const auto from = clk::now();
                if (!got) {
                    ++failed;
                    return;
                }
                const auto to = clk::now();
                const std::lock_guard here(guards);
                for (int i = 0; i < (three ? 3 : 2); ++i) {
                    had[(who + i) % 3].push_back({from, to});
                    at(i).unlock();
                }
            }
        });
    }
    for (auto& one : all) one.join();
    CHECK(failed == 0);
    for (auto& one : had) {
        std::sort(one.begin(), one.end(), [](const span& p, const span& q) { return p.from < q.from; });
        for (std::size_t i = 1; i < one.size(); ++i) CHECK(one[i - 1].to <= one[i].from);
    }
}

TEST_CASE("the fencing token of a lock taken with others is larger than any before it") {
    const auto name = fresh_name();
    const lock_options fenced{.fencing = true};
    account mine(name, common(), fenced);
    std::uint64_t last = 0;
    for (int i = 0; i < 3; ++i) {
        const auto got = mine.take(1s);
        REQUIRE(got);
        CHECK(mine.a.fencing_token() > last);
        last = mine.a.fencing_token();
        mine.a.unlock();
    }
    REQUIRE(mine.a.try_lock());
    CHECK(mine.a.fencing_token() > last);
}

TEST_CASE("each of several locks has its own fencing token") {
    const auto name = fresh_name();
    hiredis_connection redis(common().uri());
    mutex first(redis, name + ".1", {.fencing = true}), second(redis, name + ".2", {.fencing = true});
    second.lock();  // it has a fence, which only grows
    second.unlock();
    common().command({"SET", distlock::key(name + ".2").sibling("fence"), "8000000000000000"});
    REQUIRE(distlock::try_lock_for(1s, first, second));
    for (mutex* const one : {&first, &second}) {
        CHECK(common().command({"GET", distlock::key(one->name()).sibling("fence")}) ==
              std::to_string(one->fencing_token()));
        one->unlock();
    }
}

TEST_CASE("two names of one lock, or one object twice, is a deadlock, and nothing was sent") {
    const auto name = fresh_name();
    account mine(name), others(name);
    std::error_code ec;
    CHECK(!distlock::try_lock_for(1s, ec, mine.a, mine.b, mine.a));
    CHECK(ec == errc::deadlock);
    CHECK(!distlock::try_lock_for(1s, ec, mine.a, others.a));
    CHECK(ec == errc::deadlock);
    CHECK_THROWS_AS(distlock::try_lock_for(1s, mine.a, others.a), distlock::error);
    CHECK_THROWS_WITH(distlock::try_lock_for(1s, mine.a, mine.b, others.b),
                      contains_text("lock " + name + ".b"));
    CHECK(left_of(name).empty());
}

TEST_CASE("a guard that owns its lock, or has none, is refused as the standard's guards refuse") {
    const auto name = fresh_name();
    account mine(name);
    std::error_code ec;
    {
        std::unique_lock<mutex> none;
        CHECK(!distlock::try_lock_for(1s, ec, mine.b, none));
        CHECK(ec == std::errc::operation_not_permitted);
        permit nowhere;
        CHECK(!distlock::try_lock_for(1s, ec, mine.b, nowhere));
        CHECK(ec == std::errc::operation_not_permitted);
    }
    {
        std::unique_lock owns(mine.a);
        CHECK(!distlock::try_lock_for(1s, ec, mine.b, owns));
        CHECK(ec == std::errc::resource_deadlock_would_occur);
        CHECK(owns.owns_lock());
        permit has = mine.c.acquire();
        CHECK(!distlock::try_lock_for(1s, ec, mine.b, has));
        CHECK(ec == std::errc::resource_deadlock_would_occur);
    }
    std::unique_lock later(mine.a, std::defer_lock);
    CHECK(distlock::try_lock_until(std::chrono::system_clock::now() + 1s, later, mine.b));
    CHECK(later.owns_lock());
    mine.b.unlock();
    later.unlock();
    CHECK(nothing_left(name));
}

TEST_CASE("a permit that was given back can be taken with others again") {
    const auto name = fresh_name();
    account mine(name);
    permit slot(mine.c, std::defer_lock);
    CHECK(slot.n() == 0);
    CHECK(!slot);
    for (int i = 0; i < 2; ++i) {
        REQUIRE(distlock::try_lock_for(1s, mine.a, slot));
        CHECK(slot.n() == 1);
        slot.release();
        CHECK(slot.n() == 0);
        mine.a.unlock();
    }
    CHECK(nothing_left(name));
}

TEST_CASE("a recursive mutex that the thread has already is taken once more") {
    const auto name = fresh_name();
    account mine(name);
    distlock::recursive_mutex again(mine.redis, name + ".again", confirmed);
    again.lock();
    CHECK(distlock::try_lock_for(0s, mine.a, again, mine.b));
    CHECK(again.hold_count() == 2);
    again.unlock();
    again.unlock();
    mine.a.unlock();
    mine.b.unlock();
    CHECK(distlock::try_lock_for(0s, again, mine.a));
    CHECK(again.hold_count() == 1);
    again.unlock();
    mine.a.unlock();
    CHECK(nothing_left(name));
}

TEST_CASE("a recursive mutex that could not be had with others keeps the holds it had before") {
    const auto name = fresh_name();
    account mine(name), theirs(name);
    distlock::recursive_mutex again(mine.redis, name + ".again", confirmed);
    again.lock();
    again.lock();
    theirs.a.lock();
    CHECK_FALSE(distlock::try_lock_for(20ms, again, mine.a));
    CHECK_FALSE(distlock::try_lock_for(0ms, mine.a, again, mine.b));
    CHECK(again.hold_count() == 2);
    CHECK(again.owns_lock());
    theirs.a.unlock();
    again.unlock();
    CHECK(again.owns_lock());
    again.unlock();
    CHECK_FALSE(again.owns_lock());
    CHECK(nothing_left(name));
}

TEST_CASE("a stop request ends the wait for several at once, and nothing is held") {
    const auto name = fresh_name();
    account mine(name), others(name);
    REQUIRE(others.b.try_lock());
    std::stop_source stop;
    std::thread asks([&] {
        eventually([&] {
            return common().command({"ZCARD", distlock::key(name + ".b").sibling("queue")}) == "1";
        });
        stop.request_stop();
    });
    std::error_code ec;
    std::shared_lock reads(mine.b, std::defer_lock);
    CHECK(!distlock::try_lock_for(20s, stop.get_token(), ec, mine.a, reads));
    CHECK(ec == errc::cancelled);
    asks.join();
    CHECK(!distlock::try_lock_for(20s, stop.get_token(), ec, mine.a));
    CHECK(ec == errc::cancelled);
    others.b.unlock();
    CHECK(nothing_left(name));
}

TEST_CASE("an error of one of them is told, and the others are free") {
    const auto name = fresh_name();
    account mine(name);
    SECTION("a key of another type") {
        common().command({"LPUSH", name + ".b", "x"});
        std::error_code ec;
        std::shared_lock reads(mine.b, std::defer_lock);
        CHECK(!distlock::try_lock_for(1s, ec, mine.a, reads));
        CHECK(ec == errc::wrong_type);
        CHECK_THROWS_AS(mine.take(1s), distlock::error);
        common().command({"DEL", name + ".b"});
    }
    SECTION("another limit") {
        const permit one = mine.c.acquire();
        semaphore other(mine.redis, name + ".c", 3);
        permit slot(other, std::defer_lock);
        std::error_code ec;
        CHECK(!distlock::try_lock_for(1s, ec, mine.a, slot));
        CHECK(ec == errc::limit_mismatch);
    }
    SECTION("more permits than there are") {
        permit slot(mine.c, std::defer_lock, 3);
        std::error_code ec;
        CHECK(!distlock::try_lock_for(1s, ec, mine.a, slot));
        CHECK(ec == errc::invalid_option);
    }
    CHECK(nothing_left(name));
}

TEST_CASE("a server that hangs is told of, and what it does later leaves nothing held") {
    redis_server server;
    const auto name = fresh_name();
    account mine(name, server);
    {
        const auto warm = mine.take(1s);
        REQUIRE(warm);
        mine.a.unlock();
    }
    server.pause();
    std::error_code ec;
    const auto took = time_of([&] { CHECK(!distlock::try_lock_for(300ms, ec, mine.a, mine.b)); });
    CHECK(ec == errc::no_reply);
    CHECK(took < 300ms + 200ms + timing_tolerance);
    server.resume();
    CHECK(nothing_left(name, server));
    CHECK(distlock::try_lock_for(5s, mine.a, mine.b));
    mine.a.unlock();
    mine.b.unlock();
}

TEST_CASE("locks on two servers are taken all or none") {
    const redis_server elsewhere;
    const auto name = fresh_name();
    account here(name), there(name, elsewhere);
    REQUIRE(distlock::try_lock_for(1s, here.a, there.b));
    CHECK(left_of(name) == name + ".a ");
    CHECK(left_of(name, elsewhere) == name + ".b ");
    here.a.unlock();
    there.b.unlock();
    CHECK(distlock::try_lock_for(1s, here.a, there.a, here.b, there.b));
    CHECK(!distlock::try_lock_for(0s, here.b, there.a));
    here.a.unlock();
    here.b.unlock();
    CHECK(!distlock::try_lock_for(0s, here.a, there.a));
    CHECK(left_of(name).empty());
    there.a.unlock();
    there.b.unlock();
}

// Its lease ran out while another was waited for: it had to be taken again.
TEST_CASE("all of them are valid at the end, also where one's lease ran out meanwhile") {
    const auto name = fresh_name();
    hiredis_connection redis(common().uri());
    mutex first(redis, name + ".1", {.lease = 300ms, .renew = false});
    mutex second(redis, name + ".2");
    REQUIRE(common().command({"SET", name + ".2", "stranger", "NX", "PX", "600"}) == "OK");
    REQUIRE(distlock::try_lock_for(20s, first, second));
    CHECK(first.owns_lock());
    CHECK(second.owns_lock());
    first.unlock();
    second.unlock();
}

// What the thread had lost before was looked at, and given back, in the place of what it had now.
TEST_CASE("a reader that has lost what it read before takes all, or none") {
    const auto name = fresh_name();
    hiredis_connection redis(common().uri());
    distlock::shared_mutex reads(redis, name + ".1", {.lease = 300ms, .renew = false, .local_budget = 0ms});
    mutex second(redis, name + ".2");
    reads.lock_shared();
    REQUIRE(eventually([&] { return reads.shared_until() <= clk::now(); }));
    std::shared_lock again(reads, std::defer_lock);
    CHECK(distlock::try_lock_for(0s, again, second));
    CHECK(again.owns_lock());
    second.unlock();
    reads.unlock_shared();
    again.unlock();
    CHECK(nothing_left(name));
}

TEST_CASE("another thread of the same object is waited for as another process is") {
    const auto name = fresh_name();
    account mine(name);
    std::atomic<bool> has = false;
    std::thread other([&] {
        mine.a.lock();
        has = true;
        ::poll(nullptr, 0, 50);
        mine.a.unlock();
    });
    REQUIRE(eventually([&] { return has.load(); }));
    CHECK(distlock::try_lock_for(20s, mine.b, mine.a));
    other.join();
    mine.a.unlock();
    mine.b.unlock();
    CHECK(nothing_left(name));
}

TEST_CASE("a child after fork takes none of its parent's locks together") {
    const auto name = fresh_name();
    account mine(name);
    CHECK(in_child([&] {
        std::error_code ec;
        return !distlock::try_lock_for(1s, ec, mine.a, mine.b) && ec == errc::wrong_process;
    }));
    CHECK(left_of(name).empty());
}

TEST_CASE("names of different slots are taken by a command each, those of one slot by one") {
    static const cluster nodes;
    distlock::cluster_connection redis(nodes.uri());
    const auto name = fresh_name();
    using on_cluster = distlock::mutex<distlock::cluster_connection>;
    on_cluster a(redis, '{' + name + "}.a", confirmed), b(redis, '{' + name + "}.b", confirmed),
        c(redis, name + "-elsewhere", confirmed);
    CHECK(distlock::try_lock_for(5s, a, b, c));
    CHECK((a.owns_lock() && b.owns_lock() && c.owns_lock()));
    for (const auto& node : nodes.nodes())
        CHECK(node->command({"INFO", "errorstats"}).find("CROSSSLOT") == std::string::npos);
    on_cluster again(redis, '{' + name + "}.b", confirmed);
    b.unlock();
    CHECK(!distlock::try_lock_for(0s, again, a));
    CHECK(again.try_lock());
    again.unlock();
    a.unlock();
    c.unlock();
}

TEST_CASE("try_lock_for() tells that one of several locks is held under a key without a TTL") {
    const auto name = fresh_name();
    account mine(name);
    common().command({"SET", name + ".a", "somebody"});
    std::error_code ec;
    CHECK_FALSE(distlock::try_lock_for(20ms, ec, mine.a, mine.b));
    CHECK(ec == errc::holder_without_ttl);
    common().command({"DEL", name + ".a"});
    CHECK(nothing_left(name));
}

TEST_CASE("a stop request ends a try for several while the server stands still") {
    redis_server server;
    hiredis_connection redis(server.uri() + "?command_timeout=20s");
    mutex first(redis, "first", confirmed), second(redis, "second", confirmed);
    REQUIRE(distlock::try_lock_for(1s, first, second));
    first.unlock();
    second.unlock();
    const standstill still(server);
    std::stop_source stop;
    std::error_code ec;
    bool got = true;
    clk::time_point ended;
    sleeper call([&] {
        got = distlock::try_lock_for(20s, stop.get_token(), ec, first, second);
        ended = clk::now();
    });
    CHECK(call.sleeps());
    const auto asked = clk::now();
    stop.request_stop();
    call.join();
    CHECK(ended - asked < timing_tolerance);
    CHECK_FALSE(got);
    CHECK(ec == errc::cancelled);
}

// The first one was asked for twice with all the time of a command: no stop request was heard, no deadline
// kept.
TEST_CASE("a wait for several ends in time also where a lease has run out while the server stood still") {
    redis_server server;
    const auto name = fresh_name();
    hiredis_connection redis(server.uri() + "?command_timeout=600ms");
    mutex first(redis, name + ".1", {.lease = 700ms}), second(redis, name + ".2");
    const lock_on_server others(server, name + ".2");
    REQUIRE(others.strangers("60000"));
    std::stop_source stop;
    std::error_code why;
    bool taken = true;
    clk::time_point by, ended;
    const auto guards = [&] {
        try {
            const distlock::scoped_lock all(first, second, stop.get_token());
        } catch (const distlock::error& e) {
            taken = false;
            why = e.code();
        }
    };
    const auto tries = [&] { taken = distlock::try_lock_for(20s, stop.get_token(), why, first, second); };
    const auto keeps_time = [&] {
        by = clk::now() + 1500ms + 200ms;
        taken = distlock::try_lock_for(1500ms, why, first, second);
    };
    const int way = GENERATE(0, 1, 2);
    sleeper call([&] {
        if (way == 0) guards();
        if (way == 1) tries();
        if (way == 2) keeps_time();
        ended = clk::now();
    });
    REQUIRE(others.gets(1));
    const standstill still(server);
    REQUIRE(eventually([&] { return first.valid_until() <= clk::now(); }));
    if (way != 2) {
        by = clk::now();
        stop.request_stop();
    }
    call.join();
    CHECK_FALSE(taken);
    CHECK(ended - by < timing_tolerance);
    CHECK(why == (way == 2 ? errc::no_reply : errc::cancelled));
}

}  // namespace try_lock_for_tests
