// One semaphore object with scripted connections.
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <latch>
#include <malloc.h>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <stop_token>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include <distlock/base/error.hpp>
#include <distlock/counting_semaphore.hpp>
#include <distlock/mutex.hpp>
#include <distlock/net/receipt.hpp>
#include <distlock/testing/manual_clock.hpp>
#include <distlock/testing/scripted_connection.hpp>
#include <distlock/try_lock_for.hpp>
#include <distlock/wire/permit_scripts.hpp>
#include <distlock/wire/ticket.hpp>

#include "support/catch.hpp"
#include "support/error_of.hpp"
#include "support/gate.hpp"
#include "support/handoff_answers.hpp"
#include "support/in_child.hpp"
#include "support/late_posts.hpp"
#include "support/lease_observers.hpp"
#include "support/publishing_connection.hpp"
#include "support/script_calls.hpp"
#include "support/sleepers.hpp"
#include "support/waiting.hpp"

namespace permit_pool_tests {

using namespace std::chrono_literals;
using distlock::errc;
using distlock::reply;
using distlock::testing::scripted_connection;
using handoff_answers::granted;
using handoff_answers::queued;
using handoff_answers::taken;

// It was told that processes disagree, though both said the same by then.
TEST_CASE("a waiter at a semaphore that is resized through the same object asks by the new limit") {
    scripted_connection redis;
    distlock::counting_semaphore pool{redis, "pool", 2, {.renew = false}};
    redis.then([&] { pool.resize(3); }, reply::error("LIMITMISMATCH it has 3 permits, not 2"));
    redis.then(reply::integer(2));  // to resize()
    redis.then(granted("", 30'000));
    std::error_code ec;
    const auto got = pool.try_acquire(2, ec);
    CHECK_FALSE(ec);
    CHECK(got);
    CHECK(redis.commands().back().argv.back() == "3");
    redis.then(reply::integer(1));
}

// The server had the new limit and the object the old one: its own requests were refused as another
// process's.
TEST_CASE("an answer to resize() that was lost is asked for once more") {
    const reply lost = reply::no_answer(errc::no_reply, "the answer was lost");
    scripted_connection redis;
    distlock::counting_semaphore pool{redis, "pool", 2};
    redis.then(lost);
    redis.then(reply::integer(1));
    CHECK(pool.resize(3) == 1);
    CHECK(pool.limit() == 3);
    for (const auto& second :
         {lost, reply::not_sent(errc::unreachable, "refused"), reply::error("READONLY replica")}) {
        redis.then(lost);
        redis.then(second);
        try {
            pool.resize(4);
            FAIL("it was not done");
        } catch (const distlock::error& e) {
            CHECK(e.code() == (second.answered() ? errc::read_only : errc::no_reply));
            CHECK_THAT(e.what(), contains_text("resize it again"));
        }
    }
    redis.then(reply::not_sent(errc::unreachable, "refused"));
    std::error_code ec;
    CHECK(pool.resize(4, ec) == 0);
    CHECK(ec == errc::unreachable);
    CHECK(redis.commands().size() == 9);
    // An answer that cannot be read is lost, too.
    redis.then(reply::no_answer(errc::protocol_error, "the reply cannot be read"));
    redis.then(reply::integer(1));
    CHECK(pool.resize(4) == 1);
}

// The server had the new limit before the object did: with a thread that resized it and others that asked, a
// quarter of them failed.
TEST_CASE(
    "a thread that asks while the semaphore is being resized through the same object is not told of it") {
    scripted_connection redis;
    distlock::counting_semaphore pool{redis, "pool", 2, {.renew = false}};
    std::error_code ec;
    std::optional<distlock::permit> early, late;
    redis.then([&] { early = pool.try_acquire(2, ec); },
               reply::integer(0));  // to resize(): it was done, or not
    redis.then(reply::error("LIMITMISMATCH it has 3 permits, not 2"));
    redis.then(granted("", 30'000));
    CHECK(pool.resize(3) == 0);
    CHECK_FALSE(ec);
    CHECK(early);
    CHECK(redis.commands().at(2).argv.back() == "3");

    // The answer came only after the resizing was over, and another one was, back to the same.
    redis.then(
        [&] {
            pool.resize(4);
            pool.resize(3);
        },
        reply::error("LIMITMISMATCH it has 4 permits, not 3"));
    redis.then(reply::integer(0));
    redis.then(reply::integer(0));
    redis.then(granted("", 30'000));
    late = pool.try_acquire(1, ec);
    CHECK_FALSE(ec);
    CHECK(late);
    redis.then(reply::integer(1));
    redis.then(reply::integer(1));
}

namespace {

// A server that answers resize() when a test lets it.
struct slow_to_resize {
    /// Returns: whether the command is resize(), by when it is to be answered.
    bool resizes(const distlock::command& cmd) const {
        const auto& resize = distlock::detail::permit_resize;
        if (cmd.argv()[1] != resize.sha1() && cmd.argv()[1] != resize.text()) return false;
        hold.pass();
        return true;
    }
    gate hold;
    std::atomic<int> asked{0};  // for permits
};

}  // namespace

// It asked as fast as it could, for as long as the other thread's answer took.
TEST_CASE(
    "a request that the server refuses by both limits, while the semaphore is resized, keeps to its time") {
    struct other_limit : slow_to_resize {
        reply execute(const distlock::command& cmd) {
            if (resizes(cmd)) return reply::integer(0);
            ++asked;
            return reply::error("LIMITMISMATCH it has 5 permits");
        }
    };
    other_limit server;
    distlock::counting_semaphore pool{server, "pool", 2, {.renew = false}};
    sleeper resizes([&] { pool.resize(3); });
    REQUIRE(eventually([&] { return server.hold.reached(); }));
    std::error_code ec;
    CHECK_FALSE(pool.try_acquire(1, ec));
    CHECK(ec == errc::limit_mismatch);
    CHECK(server.asked == 2);
    const auto start = distlock::clock::now();
    CHECK_FALSE(pool.try_acquire_for(50ms, 1, ec));
    CHECK(ec == errc::limit_mismatch);
    CHECK(distlock::clock::now() - start >= 50ms);
    CHECK(server.asked <= 20);
    CHECK_FALSE(resizes.done());
    server.hold.open();
    resizes.join();
}

// It would have stood in the queue for ever.
TEST_CASE(
    "a waiter for more than a semaphore is being resized to does not ask by that limit, and is told so") {
    struct smaller_by_now : slow_to_resize {
        reply execute(const distlock::command& cmd) {
            if (resizes(cmd)) return reply::integer(0);
            ++asked;
            if (cmd.argv().back() != "2") return reply::error("LIMITMISMATCH it has 2 permits");
            by_next = true;
            return taken();
        }
        std::atomic<bool> by_next{false};
    };
    smaller_by_now server;
    distlock::counting_semaphore pool{server, "pool", 3, {.renew = false}};
    sleeper resizes([&] { pool.resize(2); });
    REQUIRE(eventually([&] { return server.hold.reached(); }));
    std::error_code ec;
    CHECK_FALSE(pool.try_acquire(3, ec));
    CHECK(ec == errc::limit_mismatch);
    std::error_code of_waiter;
    std::stop_source stop;
    sleeper waits([&] { static_cast<void>(pool.acquire(3, stop.get_token(), of_waiter)); });
    const int before = server.asked;
    CHECK(eventually([&] { return server.asked > before + 2 || server.by_next; }));
    server.hold.open();
    resizes.join();
    CHECK(eventually([&] { return waits.done(); }));
    stop.request_stop();
    waits.join();
    CHECK(of_waiter == errc::invalid_option);
    CHECK_FALSE(server.by_next);
}

// The refusal was of the limit that its own object had just changed.
TEST_CASE(
    "a request that was refused by the old limit, while the resizing came to its end, asks by the new one") {
    struct resized_meanwhile : slow_to_resize {
        reply execute(const distlock::command& cmd) {
            if (resizes(cmd)) return reply::integer(0);
            if (cmd.argv().back() == "3") return granted("", 30'000);
            refusal.pass();
            return reply::error("LIMITMISMATCH it has 3 permits, not 2");
        }
        gate refusal;
    };
    resized_meanwhile server;
    distlock::counting_semaphore pool{server, "pool", 2, {.renew = false}};
    sleeper resizes([&] { pool.resize(3); });
    REQUIRE(eventually([&] { return server.hold.reached(); }));
    std::error_code ec;
    bool has = false;
    sleeper asks([&] { has = pool.try_acquire(1, ec).has_value(); });
    REQUIRE(eventually([&] { return server.refusal.reached(); }));
    server.hold.open();
    resizes.join();
    server.refusal.open();
    asks.join();
    CHECK_FALSE(ec);
    CHECK(has);
}

TEST_CASE("a waiter for more than a semaphore was resized to is told so") {
    scripted_connection redis;
    distlock::counting_semaphore pool{redis, "pool", 3, {.renew = false}};
    redis.then([&] { pool.resize(2); }, reply::error("LIMITMISMATCH it has 2 permits, not 3"));
    redis.then(reply::integer(0));
    std::error_code ec;
    CHECK_FALSE(pool.try_acquire(3, ec));
    CHECK(ec == errc::invalid_option);
    CHECK(redis.commands().size() == 2);
}

TEST_CASE("a thread that gets no permit while the semaphore is being resized is told so at once") {
    scripted_connection redis;
    distlock::counting_semaphore pool{redis, "pool", 2, {.renew = false}};
    std::error_code ec;
    bool got = true;
    redis.then([&] { got = pool.try_acquire(1, ec).has_value(); }, reply::integer(0));
    redis.then(taken());
    CHECK(pool.resize(3) == 0);
    CHECK_FALSE(got);
    CHECK_FALSE(ec);
    CHECK(redis.commands().size() == 2);
}

namespace {

struct granting_server {
    reply execute(const distlock::command& cmd) {
        return cmd.argv()[1] == distlock::detail::permit_enter.sha1() ? granted("", 30'000)
                                                                      : reply::integer(1);
    }
};

}  // namespace

// Each limit that there ever was left a lock object behind, and every try asked all of them.
TEST_CASE("a semaphore that is resized again and again keeps nothing of the limits that are over") {
    granting_server server;
    distlock::counting_semaphore pool{server, "pool", 2, {.renew = false, .release = distlock::confirmed}};
    const auto use = [&](int from, int to) {
        for (int limit = from; limit < to; ++limit) {
            pool.resize(limit);
            CHECK(pool.try_acquire_for(1s));
        }
        return ::mallinfo2().uordblks;
    };
    const auto before = use(3, 8);
    CHECK(use(8, 108) < before + 32'768);
}

// Each number of permits that was ever asked for left a lock object behind, and every try asked all of them.
TEST_CASE("a semaphore that is asked for ever other numbers of permits keeps nothing of most of them") {
    granting_server server;
    distlock::counting_semaphore pool{server, "pool", 5000, {.renew = false, .release = distlock::confirmed}};
    const auto use = [&](int from, int to) {
        for (int n = from; n < to; ++n) {
            if (!pool.try_acquire(n)) FAIL_CHECK(n << " permits");
        }
        return ::mallinfo2().uordblks;
    };
    const auto before = use(1, 33);
    CHECK(use(33, 2033) < before + 32'768);
}

// Three thousand permits at once, given back, made each try fifteen times as slow for good, and 12 MB large.
TEST_CASE("a semaphore that had many permits out at once keeps nothing of most of them") {
    granting_server server;
    distlock::counting_semaphore pool{server, "pool", 5000, {.renew = false, .release = distlock::confirmed}};
    static_cast<void>(pool.acquire());
    const auto before = ::mallinfo2().uordblks;
    {
        std::vector<distlock::permit> burst;
        for (int i = 0; i < 1000; ++i) burst.push_back(pool.acquire());
    }
    // The allocator of a sanitizer says nothing.
    if (before > 0) CHECK(::mallinfo2().uordblks > before + 1'000'000);
    for (int i = 0; i < 100; ++i) static_cast<void>(pool.acquire());
    CHECK(::mallinfo2().uordblks < before + 200'000);
}

// Effects: has what is refused done so often that memory would show it.
template <class Refused>
void check_leaves_nothing(Refused refused) {
    const auto use = [&](int times) {
        for (int i = 0; i < times; ++i) CHECK_FALSE(refused());
        return ::mallinfo2().uordblks;
    };
    const auto before = use(5);
    CHECK(use(100) < before + 32'768);
}

TEST_CASE("a thread that is refused a permit again and again leaves no memory behind") {
    const auto full = [](const distlock::command&) { return taken(); };
    distlock::counting_semaphore pool{full, "pool", 2, {.renew = false}};
    check_leaves_nothing([&] { return pool.try_acquire().has_value(); });
}

TEST_CASE("a thread that gives its permit back for want of another lock leaves no memory behind") {
    granting_server server;
    distlock::counting_semaphore pool{server, "pool", 2, {.renew = false}};
    const auto busy = [](const distlock::command& cmd) {
        return cmd.argv()[0] == "SET" ? reply::nil() : taken();
    };
    distlock::mutex wanted{busy, "wanted", {.renew = false}};
    check_leaves_nothing([&] {
        distlock::permit slot(pool, std::defer_lock);
        return distlock::try_lock_for(0s, slot, wanted);
    });
}

TEST_CASE("permits that a semaphore has released count as residual also after it was resized") {
    struct silent_posts : granting_server {
        bool post(const distlock::command&, const std::shared_ptr<distlock::receipt>& = nullptr) {
            return true;
        }
        void collect() {}
    };
    distlock::testing::manual_clock::reset();
    silent_posts server;
    distlock::counting_semaphore<silent_posts, distlock::testing::manual_clock> pool{
        server, "pool", 2, {.renew = false}};
    CHECK(pool.acquire().release() == distlock::release_outcome::posted);
    pool.resize(3);
    const auto mine = pool.acquire();
    CHECK(pool.residual() > 0s);
}

TEST_CASE("a process that gives another limit than all others is told so once") {
    scripted_connection redis{reply::error("LIMITMISMATCH it has 3 permits, not 2")};
    distlock::counting_semaphore pool{redis, "pool", 2};
    std::error_code ec;
    CHECK_FALSE(pool.try_acquire(1, ec));
    CHECK(ec == errc::limit_mismatch);
    CHECK(redis.commands().size() == 1);
}

TEST_CASE("a process that has resized a semaphore is told so when all others give another limit") {
    scripted_connection redis;
    distlock::counting_semaphore pool{redis, "pool", 2, {.renew = false}};
    redis.then(reply::integer(0));
    pool.resize(3);
    redis.then(reply::error("LIMITMISMATCH it has 2 permits, not 3"));  // another process has, too
    std::error_code ec;
    CHECK_FALSE(pool.try_acquire(1, ec));
    CHECK(ec == errc::limit_mismatch);
    CHECK(redis.commands().size() == 2);
}

TEST_CASE("the second of two threads that resize a semaphore asks when the first was answered") {
    struct waiting_server {
        reply execute(const distlock::command&) {
            ++asked;
            answers.pass();
            return reply::integer(0);
        }
        std::atomic<int> asked{0};
        gate answers;
    };
    waiting_server server;
    distlock::counting_semaphore pool{server, "pool", 2};
    std::jthread first([&] { pool.resize(3); });
    const bool asks = eventually([&] { return server.asked == 1; });
    sleeper second([&] { pool.resize(4); });
    const bool waits = second.sleeps();
    const int asked = server.asked;
    server.answers.open();
    first.join();
    second.join();
    CHECK(asks);
    CHECK(waits);
    CHECK(asked == 1);
    CHECK(server.asked == 2);
    CHECK(pool.limit() == 4);
}

namespace {

// A thread that makes a lock object asks for its time-out.
struct halting_connection {
    reply execute(const distlock::command& cmd) { return inner.execute(cmd); }
    std::chrono::milliseconds command_timeout() const {
        if (halts) {
            asked.count_down();
            go_on.wait();
        }
        return std::chrono::milliseconds{100};
    }
    scripted_connection inner{granted("", 30'000), reply::integer(1)};
    std::atomic<bool> halts{false};
    mutable std::latch asked{1};
    mutable std::latch go_on{1};
};

}  // namespace

// It waited for a thread of its parent, which it has not.
TEST_CASE("a child after fork() is told so while a thread of its parent asks for permits") {
    halting_connection redis;
    distlock::counting_semaphore pool{redis, "pool", 2, {.renew = false}};
    redis.halts = true;
    std::atomic<bool> had{false};
    std::jthread asks([&] { had = static_cast<bool>(pool.acquire()); });
    redis.asked.wait();
    CHECK(in_child([&] {
        ::alarm(2);
        std::error_code ec;
        return !pool.try_acquire(ec) && ec == errc::wrong_process && pool.limit() == 2 &&
               pool.residual() == std::chrono::nanoseconds(0);
    }));
    redis.halts = false;
    redis.go_on.count_down();
    asks.join();
    CHECK(had);
}

TEST_CASE("a child after fork() does not resize its parent's semaphore, and asks no server to") {
    scripted_connection redis{reply::integer(0)};
    distlock::counting_semaphore pool{redis, "pool", 2};
    CHECK(in_child([&] {
        std::error_code ec;
        pool.resize(3, ec);
        return ec == errc::wrong_process && pool.limit() == 2 && redis.commands().empty();
    }));
}

TEST_CASE(
    "a caller that resizes a semaphore over something that is no Redis hears that its answer makes no "
    "sense") {
    scripted_connection redis{reply::status("PONG")};
    distlock::counting_semaphore pool{redis, "pool", 2};
    std::error_code ec;
    CHECK(pool.resize(3, ec) == 0);
    CHECK(ec == errc::protocol_error);
    CHECK(pool.limit() == 2);
    CHECK_THROWS_WITH(pool.resize(3), contains_text("resize pool: the script has run out: "));
    redis.then(reply::nil());
    CHECK_THROWS_WITH(pool.resize(3), contains_text("resize pool: the answer makes no sense"));
}

TEST_CASE("a user that may not resize a semaphore is told which one, and what the server said") {
    scripted_connection redis{reply::error("NOPERM this user may not")};
    distlock::counting_semaphore pool{redis, "pool", 2};
    CHECK_THROWS_WITH(pool.resize(3), contains_text("resize pool: NOPERM this user may not"));
}

// A user that lacked PTTL had it resized, and was told that it was not.
TEST_CASE("a resize that a script could not finish may have been done, and one that was not begun was not") {
    scripted_connection redis;
    distlock::counting_semaphore pool{redis, "pool", 2};
    redis.then(reply::error("NOPERM this user may not"));
    CHECK_THROWS_WITH(pool.resize(3), !contains_text("may have been done"));
    redis.then(
        reply::error("ERR Error running script: @user_script: 9: The user executing the script can't "
                     "run this command or subcommand"));
    CHECK_THROWS_WITH(pool.resize(3), contains_text("it may have been done: resize it again"));
    CHECK(pool.limit() == 2);
}

// It has no effect there, but that each one cost another command.
TEST_CASE("a permit that was handed over costs no command more where fencing tokens are asked for") {
    publishing_connection redis;
    redis.inner.then(taken());
    const auto hand_over = [&] {
        redis.source->deliver(redis.inner.commands().back().argv.at(6) + " 7 2000n 0 pool");
    };
    redis.inner.then(hand_over, queued());
    distlock::counting_semaphore pool{redis, "pool", 1, {.fencing = GENERATE(false, true)}};
    {
        const auto mine = pool.acquire();
        CHECK(mine);
        CHECK(redis.inner.commands().size() == 2);
        redis.inner.then(reply::integer(1));
    }
}

TEST_CASE("no permit can be asked for, and what can be is said") {
    scripted_connection redis;
    distlock::counting_semaphore pool{redis, "pool", 2};
    const std::string said = error_of([&] { return pool.acquire(0); }).what();
    CHECK_THAT(said, contains_text("semaphore pool: 0 permits were asked for; give one or more: "));
    CHECK(redis.commands().empty());
}

TEST_CASE("a caller that asks for more permits than there are is told both numbers") {
    scripted_connection redis;
    distlock::counting_semaphore pool{redis, "pool", 2};
    const std::string said = error_of([&] { return pool.acquire(3); }).what();
    CHECK_THAT(said, contains_text("semaphore pool: 3 permits were asked for, and there are 2: "));
    CHECK(redis.commands().empty());
}

TEST_CASE("a permit that was moved from has no semaphore to take any of, with other locks or alone") {
    scripted_connection redis;
    distlock::counting_semaphore pool{redis, "pool", 2};
    distlock::permit slot(pool, std::defer_lock);
    distlock::permit next(std::move(slot));
    distlock::permit last;
    const auto refused = [](distlock::permit& one) {
        std::error_code ec;
        return !distlock::try_lock_for(0s, ec, one) && ec == std::errc::operation_not_permitted;
    };
    CHECK(refused(slot));  // NOLINT: what is left of it is the point
    last = std::move(next);
    CHECK(refused(next));  // NOLINT: the same
    CHECK(redis.commands().empty());
}

TEST_CASE("each form of a request asks for as many permits as it says, and for one without a number") {
    struct generous {
        reply execute(const distlock::command& cmd) {
            if (calls(cmd, distlock::detail::permit_leave)) return reply::integer(1);
            const auto ticket = std::string(cmd.argv()[6]) + std::string(cmd.argv()[7]);
            asked = distlock::detail::ticket::read(ticket).value().permits;
            return granted("", 30'000);
        }
        std::int64_t asked = 0;
    };
    generous server;
    distlock::counting_semaphore pool{server, "pool", 3, {.renew = false}};
    const auto soon = distlock::clock::now() + std::chrono::hours(1);
    const std::chrono::hours timeout{1};
    const std::stop_token stop;
    std::error_code ec;
    const auto given = [&](const distlock::permit& got) { return got.n() == server.asked ? got.n() : 0; };
    CHECK(given(pool.acquire()) == 1);
    CHECK(given(pool.acquire(stop)) == 1);
    CHECK(given(pool.acquire(ec)) == 1);
    CHECK(given(pool.acquire(stop, ec)) == 1);
    CHECK(given(pool.try_acquire().value()) == 1);
    CHECK(given(pool.try_acquire(stop).value()) == 1);
    CHECK(given(pool.try_acquire(ec).value()) == 1);
    CHECK(given(pool.try_acquire(stop, ec).value()) == 1);
    CHECK(given(pool.try_acquire_for(timeout).value()) == 1);
    CHECK(given(pool.try_acquire_for(timeout, stop).value()) == 1);
    CHECK(given(pool.try_acquire_for(timeout, ec).value()) == 1);
    CHECK(given(pool.try_acquire_for(timeout, stop, ec).value()) == 1);
    CHECK(given(pool.try_acquire_until(soon).value()) == 1);
    CHECK(given(pool.try_acquire_until(soon, stop).value()) == 1);
    CHECK(given(pool.try_acquire_until(soon, ec).value()) == 1);
    CHECK(given(pool.acquire(2)) == 2);
    CHECK(given(pool.acquire(2, stop)) == 2);
    CHECK(given(pool.acquire(2, ec)) == 2);
    CHECK(given(pool.acquire(2, stop, ec)) == 2);
    CHECK(given(pool.try_acquire(2).value()) == 2);
    CHECK(given(pool.try_acquire(2, stop).value()) == 2);
    CHECK(given(pool.try_acquire(2, ec).value()) == 2);
    CHECK(given(pool.try_acquire(2, stop, ec).value()) == 2);
    CHECK(given(pool.try_acquire_for(timeout, 2).value()) == 2);
    CHECK(given(pool.try_acquire_for(timeout, 2, stop).value()) == 2);
    CHECK(given(pool.try_acquire_for(timeout, 2, ec).value()) == 2);
    CHECK(given(pool.try_acquire_for(timeout, 2, stop, ec).value()) == 2);
    CHECK(given(pool.try_acquire_until(soon, 2).value()) == 2);
    CHECK(given(pool.try_acquire_until(soon, 2, stop).value()) == 2);
    CHECK(given(pool.try_acquire_until(soon, 2, ec).value()) == 2);
    CHECK(given(pool.try_acquire_until(soon, 2, stop, ec).value()) == 2);
}

TEST_CASE("a permit whose release was lost is given back again, though another one was granted since") {
    struct losing_server {
        reply execute(const distlock::command& cmd) {
            const bool leaves = calls(cmd, distlock::detail::permit_leave);
            left += leaves;
            return leaves ? reply::integer(1) : handoff_answers::granted("", 30'000);
        }
        bool post(const distlock::command&, const std::shared_ptr<distlock::receipt>& = nullptr) {
            return true;
        }
        void collect() {}
        std::chrono::milliseconds command_timeout() const { return 20ms; }
        std::atomic<int> left{0};
    };
    losing_server server;
    distlock::counting_semaphore pool{server, "pool", 2};
    { const auto first = pool.acquire(); }
    const auto second = pool.acquire();
    CHECK(eventually([&] { return server.left > 0; }));
    CHECK(second);
}

// It was told that they are out.
TEST_CASE("a try comes after the permits that its semaphore has given back, however many they were") {
    late_posts server;
    distlock::counting_semaphore pool{server, "pool", 2, {.renew = false}};
    for (const int n : {2, 1, 2, 1}) {
        auto got = n == 2 ? pool.try_acquire(n) : pool.try_acquire_for(std::chrono::milliseconds(0), n);
        REQUIRE(got);
        CHECK(got->release() == distlock::release_outcome::posted);
    }
    auto one = pool.try_acquire();
    REQUIRE(one);
    CHECK_FALSE(pool.try_acquire());
}

// The lock object of that release ended while a thread asked about it.
TEST_CASE("a try keeps what it asks about, also when another thread resizes the semaphore meanwhile") {
    struct keeps_receipts {
        reply execute(const distlock::command& cmd) {
            if (calls(cmd, distlock::detail::permit_resize)) return reply::integer(0);
            if (!calls(cmd, distlock::detail::permit_leave))
                return ++asked == 1 ? granted("", 30'000) : taken();
            if (on_question) on_question();
            return reply::integer(1);
        }
        bool post(const distlock::command&, const std::shared_ptr<distlock::receipt>& its = nullptr) {
            posted = its;
            return true;
        }
        void collect() {}
        std::chrono::milliseconds command_timeout() const { return std::chrono::seconds(10); }
        std::shared_ptr<distlock::receipt> posted;
        std::function<void()> on_question;
        int asked = 0;
    };
    distlock::testing::manual_clock::reset();
    keeps_receipts server;
    const auto observer = std::make_shared<counting_observer>();  // each lock object has a share in it
    distlock::counting_semaphore<keeps_receipts, distlock::testing::manual_clock> pool{
        server, "pool", 2, {.renew = false}, observer};
    CHECK(pool.acquire().release() == distlock::release_outcome::posted);
    long before = 0, meanwhile = 0;
    server.on_question = [&] {
        server.posted->settle(reply::integer(1));
        before = observer.use_count();
        std::jthread([&] {
            pool.resize(3);
            static_cast<void>(pool.try_acquire());
        }).join();
        meanwhile = observer.use_count();
    };
    CHECK_FALSE(pool.try_acquire(2));
    CHECK(before > 0);
    CHECK(meanwhile == before + 1);  // of the new limit
}

TEST_CASE("a try for several permits comes after all that were given back one by one") {
    struct two_permits {
        reply execute(const distlock::command& cmd) {
            if (calls(cmd, distlock::detail::permit_leave)) return --out, reply::integer(1);
            if (out + wanted > 2) return taken();
            out += wanted;
            return granted("", 30'000);
        }
        bool post(const distlock::command&, const std::shared_ptr<distlock::receipt>& = nullptr) {
            return true;
        }
        void collect() {}
        std::chrono::milliseconds command_timeout() const { return std::chrono::seconds(10); }
        int out = 0;
        int wanted = 1;
    };
    two_permits server;
    distlock::counting_semaphore pool{server, "pool", 2, {.renew = false}};
    auto one = pool.try_acquire(), two = pool.try_acquire();
    REQUIRE((one && two));
    CHECK(one->release() == distlock::release_outcome::posted);
    CHECK(two->release() == distlock::release_outcome::posted);
    server.wanted = 2;
    CHECK(pool.try_acquire(2));
}

TEST_CASE("a try asks a server that falls silent about one release of another permit, not about each") {
    struct falling_silent {
        reply execute(const distlock::command& cmd) {
            const auto script = cmd.argv()[1];
            if (script != distlock::detail::permit_leave.sha1() &&
                script != distlock::detail::permit_leave.text())
                return ++asked <= 4 ? granted("", 30'000) : handoff_answers::taken();
            released.emplace(cmd.argv()[6]);
            return reply::no_answer(errc::no_reply, "no reply in time");
        }
        bool post(const distlock::command&, const std::shared_ptr<distlock::receipt>& = nullptr) {
            return true;
        }
        void collect() {}
        int asked = 0;
        std::set<std::string> released;  // by which tokens
    };
    falling_silent server;
    {
        // Its time stands still: the background does not ask.
        distlock::testing::manual_clock::reset();
        distlock::counting_semaphore<falling_silent, distlock::testing::manual_clock> pool{
            server, "pool", 4, {.renew = false}};
        {
            const auto a = pool.acquire(), b = pool.acquire(), c = pool.acquire(), d = pool.acquire();
            CHECK(d);
        }
        CHECK_FALSE(pool.try_acquire());
        CHECK(server.released.size() == 2);  // its own, and one
    }
}

}  // namespace permit_pool_tests
