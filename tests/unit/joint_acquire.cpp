// Several locks at once where there is no memory, or no time, with a connection that tells what it was asked.
#include <chrono>
#include <exception>
#include <mutex>
#include <optional>
#include <set>
#include <shared_mutex>
#include <stop_token>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include <distlock/base/clock.hpp>
#include <distlock/base/error.hpp>
#include <distlock/counting_semaphore.hpp>
#include <distlock/engine/joint_acquire.hpp>
#include <distlock/engine/lock_core.hpp>
#include <distlock/mutex.hpp>
#include <distlock/net/any_connection.hpp>
#include <distlock/recursive_mutex.hpp>
#include <distlock/shared_mutex.hpp>
#include <distlock/testing/manual_clock.hpp>
#include <distlock/testing/scripted_connection.hpp>
#include <distlock/try_lock_for.hpp>
#include <distlock/wire/handoff.hpp>
#include <distlock/wire/handoff_scripts.hpp>
#include <distlock/wire/joint_try.hpp>
#include <distlock/wire/permit_scripts.hpp>

#include "support/allocations.hpp"
#include "support/catch.hpp"
#include "support/gate.hpp"
#include "support/handoff_answers.hpp"
#include "support/release_fixtures.hpp"
#include "support/sleepers.hpp"
#include "support/waiting.hpp"

namespace joint_acquire_tests {

using namespace std::chrono_literals;
using distlock::command;
using distlock::reply;
using distlock::testing::manual_clock;
using distlock::testing::scripted_connection;
using handoff_answers::granted;

namespace {

struct server_for_two {
    reply execute(const command& cmd) {
        if (cmd.argv()[0] == "SET") return reply::status("OK");
        if (cmd.argv()[1] == distlock::detail::handoff_enter.sha1()) return granted("", 30'000);
        if (cmd.argv()[1] != distlock::detail::joint_enter.sha1()) return reply::integer(1);
        late =
            late || (++asked_together == 1 && allocation_failed());  // an answer without memory is a lost one
        return reply::array({granted("", 30'000), granted("", 30'000)});
    }
    int asked_together = 0;
    bool late = false;
};

}  // namespace

// A request that had failed in one's hands was sent on by the other, out of memory that was no longer there.
TEST_CASE("two locks are asked for together only while there is memory to ask for both") {
    NOT_TESTED_UNLESS(allocations_can_fail(), operator_new_is_not_ours);
    bool failed = true;
    for (long nth = 1; failed; ++nth) {
        INFO("allocation " << nth);
        server_for_two server;
        distlock::mutex<server_for_two> one{server, "one", {.renew = false}};
        distlock::mutex<server_for_two> other{server, "other", {.renew = false}};
        bool taken = false;
        fail_allocation(nth);
        try {
            taken = distlock::try_lock_for(1min, one, other);
        } catch (const std::exception&) {
            taken = false;
        }
        failed = allocation_failed();
        fail_allocation(0);
        CHECK_FALSE(server.late);
        CHECK(one.owns_lock() == taken);
        CHECK(other.owns_lock() == taken);
        if (failed) continue;
        CHECK(taken);
        CHECK(server.asked_together == 1);
    }
}

namespace {

// So many requests for both are not answered, though the server may have granted them; a lock alone is taken,
// and so many seconds pass while it is asked for.
struct losing_server {
    reply execute(const command& cmd) {
        const bool set = cmd.argv()[0] == "SET";
        if (set || cmd.argv()[1] == distlock::detail::handoff_enter.sha1() ||
            cmd.argv()[1] == distlock::detail::permit_enter.sha1()) {
            manual_clock::advance(passes);
            return set ? reply::nil() : handoff_answers::taken();
        }
        if (cmd.argv()[1] != distlock::detail::joint_enter.sha1()) return reply::integer(0);
        tokens.insert(std::string(cmd.argv()[11]));
        ++asked_together;
        if (asked_together > lost && busy) return reply::integer(1);
        if (asked_together <= lost) return reply::no_answer(distlock::errc::no_reply, "the socket ended");
        return reply::array({granted("", 30'000), granted("", 30'000)});
    }
    int lost = 1;
    bool busy = false;  // what it answers says that somebody else has the first
    std::chrono::seconds passes{0};
    int asked_together = 0;
    std::set<std::string> tokens{};
};

struct both {
    both() { manual_clock::reset(); }
    losing_server server;
    using lock = distlock::mutex<losing_server, distlock::handoff, manual_clock>;
    lock one{server, "one", {.lease = 10s, .renew = false}};
    lock other{server, "other", {.lease = 10s, .renew = false}};
    std::error_code ec;
};

}  // namespace

TEST_CASE("a request for several whose answer was lost is sent once more, and finds what it has taken") {
    both locks;
    CHECK(distlock::try_lock_for(1min, locks.ec, locks.one, locks.other));
    CHECK(locks.server.asked_together == 2);
    CHECK(locks.server.tokens.size() == 1);
}

// The first request came behind the release, and both locks were kept by nobody for a lease.
TEST_CASE(
    "a request for several that was not answered is looked for once its locks are released, or not had") {
    both locks;
    locks.server.busy = GENERATE(false, true);
    locks.server.passes = 1s;
    const bool taken = distlock::try_lock_for(1s, locks.ec, locks.one, locks.other);
    CHECK(taken == !locks.server.busy);
    CHECK(locks.server.asked_together == 2);
    if (taken) {
        locks.one.unlock();
        locks.other.unlock();
    }
    CHECK(locks.one.residual() > 0ms);
    CHECK(locks.other.residual() > 0ms);
}

// The next request, by another token, found what the one before had taken: "somebody else has it".
TEST_CASE("a joint request that was not answered reports no lock as somebody else's while it may be ours") {
    both locks;
    locks.server.lost = 2;
    SECTION("at once") {
        CHECK_FALSE(distlock::try_lock_for(0s, locks.ec, locks.one, locks.other));
        CHECK(locks.ec == distlock::errc::no_reply);
    }
    SECTION("where the first is a semaphore") {
        distlock::counting_semaphore<losing_server, manual_clock> pool{
            locks.server, "a pool", 1, {.lease = 10s, .renew = false}};
        distlock::permit slot(pool, std::defer_lock);
        CHECK_FALSE(distlock::try_lock_for(0s, locks.ec, slot, locks.other));
        CHECK(locks.ec == distlock::errc::no_reply);
    }
    SECTION("when what was not answered is over") {
        locks.server.passes = 60s;
        CHECK_FALSE(distlock::try_lock_for(40s, locks.ec, locks.one, locks.other));
        CHECK_FALSE(locks.ec);
    }
}

// An earlier request for one of them was in doubt, and nothing had been asked for both.
TEST_CASE("the server is not blamed for what nobody asked it, where a thread asks for one of several") {
    struct busy_with_other {
        reply execute(const command& cmd) {
            const bool set = cmd.argv()[0] == "SET";
            if (!set && cmd.argv()[1] == distlock::detail::joint_enter.sha1()) ++asked_together;
            if (!set && cmd.argv()[1] != distlock::detail::handoff_enter.sha1()) return reply::integer(0);
            if (cmd.argv()[set ? 1 : 3] == "other") {
                hold.pass();
                return set ? reply::status("OK") : granted("", 30'000);
            }
            if (silent) return reply::no_answer(distlock::errc::no_reply, "the socket ended");
            return set ? reply::nil() : handoff_answers::taken();
        }
        bool silent = true;
        gate hold;
        int asked_together = 0;
    };
    busy_with_other server;
    distlock::mutex one{server, "one", {.renew = false}};
    distlock::mutex other{server, "other", {.renew = false}};
    std::error_code ec;
    CHECK_FALSE(one.try_lock(ec));
    CHECK(ec == distlock::errc::no_reply);
    CHECK(one.residual() > 0ms);
    server.silent = false;
    sleeper asks([&] { static_cast<void>(other.try_lock()); });
    REQUIRE(eventually([&] { return server.hold.reached(); }));
    CHECK_FALSE(distlock::try_lock_for(10ms, ec, one, other));
    CHECK_FALSE(ec);
    server.hold.open();
    asks.join();
    CHECK(server.asked_together == 0);
}

// It gave up where one lock alone is asked for again.
TEST_CASE("trouble of long ago takes none of the patience of a call for several") {
    struct lossy_server {
        reply execute(const command& cmd) {
            const bool set = cmd.argv()[0] == "SET";
            const bool one = set || cmd.argv()[1] == distlock::detail::handoff_enter.sha1();
            // Releases may come from another thread.
            if (!one && cmd.argv()[1] != distlock::detail::joint_enter.sha1()) return reply::integer(1);
            if (lost > 0) {
                --lost;
                return reply::no_answer(distlock::errc::no_reply, "the socket ended");
            }
            if (one) return set ? reply::status("OK") : granted("", 30'000);
            return reply::array({granted("", 30'000), granted("", 30'000)});
        }
        int lost = 1000;
    };
    manual_clock::reset();
    lossy_server server;
    using lock = distlock::mutex<lossy_server, distlock::handoff, manual_clock>;
    lock one{server, "one", {.renew = false}};
    lock other{server, "other", {.renew = false}};
    std::error_code ec;
    CHECK_FALSE(one.try_lock(ec));
    CHECK(ec == distlock::errc::no_reply);
    manual_clock::advance(1h);
    server.lost = 6;  // the last ones when the first is asked for alone
    bool got = false;
    sleeper call([&] { got = distlock::try_lock_for(1h, ec, one, other); });
    CHECK(ends(call, 1ms));
    CHECK(got);
    CHECK_FALSE(ec);
}

TEST_CASE("locks that are asked for together are waited for no longer than each alone") {
    manual_clock::reset();
    scripted_connection redis{reply::nil(), reply::nil()};
    distlock::mutex<scripted_connection, distlock::handoff, manual_clock> one{redis, "one"};
    distlock::mutex<scripted_connection, distlock::handoff, manual_clock> other{redis, "other"};
    std::error_code ec;
    CHECK_FALSE(distlock::try_lock_for(0s, ec, one, other));
    CHECK(redis.commands().at(0).argv.at(1) == distlock::detail::joint_enter.sha1());
    CHECK(redis.commands().at(0).deadline <= manual_clock::now() + 200ms);
}

TEST_CASE(
    "a lock that several at once gave back is released without a wait, also where releases are confirmed") {
    release_test::posting redis;
    redis.inner.then(reply::status("OK"));
    scripted_connection others{reply::nil(), handoff_answers::taken()};
    distlock::mutex one{redis, "one", {.renew = false, .release = distlock::confirmed}};
    distlock::mutex other{others, "other"};
    CHECK_FALSE(distlock::try_lock_for(0ms, one, other));
    CHECK(redis.posted.size() == 1);
    CHECK(redis.inner.commands().size() == 1);
}

// An answer that is about several locks says of one of them that it is taken, too, when another one is.
TEST_CASE("a try beside a thread that tries several locks at once is not told of another one's owner") {
    struct first_is_taken {
        reply execute(const command& cmd) {
            if (cmd.argv()[1] == distlock::detail::handoff_enter.sha1())
                return cmd.argv()[3] == "one" ? handoff_answers::taken() : granted("", 30'000);
            if (cmd.argv()[1] != distlock::detail::joint_enter.sha1()) return reply::integer(1);
            hold.pass();
            return reply::integer(1);
        }
        gate hold;
    };
    for (int i = 0; i < 20; ++i) {  // the two threads race for the object
        first_is_taken server;
        distlock::mutex one{server, "one", {.renew = false}};
        distlock::mutex other{server, "other", {.renew = false}};
        bool both = true;
        bool got = false;
        sleeper asks([&] { both = distlock::try_lock_for(0ms, one, other); });
        REQUIRE(eventually([&] { return server.hold.reached(); }));
        sleeper tries([&] { got = other.try_lock(); });
        REQUIRE(tries.sleeps());
        server.hold.open();
        asks.join();
        tries.join();
        CHECK_FALSE(both);
        REQUIRE(got);
    }
}

// It slept for as long as a command may take, and was told that the server had not answered.
TEST_CASE("a try beside a thread that gets several locks at once is told so as soon as that has them") {
    struct slow_for_two {
        reply execute(const command& cmd) {
            if (cmd.argv()[1] == distlock::detail::joint_enter.sha1()) hold.pass();
            return inner.execute(cmd);
        }
        std::chrono::milliseconds command_timeout() const { return 10s; }
        gate hold;
        server_for_two inner;
    };
    slow_for_two server;
    distlock::mutex one{server, "one", {.renew = false}};
    distlock::mutex other{server, "other", {.renew = false}};
    gate told;
    bool both = false;
    bool got = true;
    std::error_code ec;
    sleeper asks([&] {
        both = distlock::try_lock_for(1min, one, other);
        told.pass();
        one.unlock();
        other.unlock();
    });
    REQUIRE(eventually([&] { return server.hold.reached(); }));
    sleeper tries([&] { got = other.try_lock(ec); });
    REQUIRE(tries.sleeps());
    server.hold.open();
    const bool at_once = eventually([&] { return tries.done(); }, 5s);
    told.open();
    asks.join();
    tries.join();
    CHECK(at_once);
    CHECK(both);
    CHECK_FALSE(got);
    CHECK_FALSE(ec);
}

// One answer that came late ended the call, as if no server would ever grant the locks.
TEST_CASE("a call for several whose leases were over when the answer came asks again") {
    manual_clock::reset();
    struct late_once {
        reply execute(const command& cmd) {
            if (cmd.argv()[1] == distlock::detail::joint_enter.sha1() && inner.asked_together == 0)
                manual_clock::advance(30s);
            return inner.execute(cmd);
        }
        server_for_two inner;
    };
    late_once server;
    using lock = distlock::mutex<late_once, distlock::handoff, manual_clock>;
    lock one{server, "one", {.renew = false}};
    lock other{server, "other", {.renew = false}};
    CHECK(distlock::try_lock_for(1min, one, other));
    CHECK(one.owns_lock());
    CHECK(other.owns_lock());
}

// The lock that another had was waited for all the time there was, and no error told.
TEST_CASE("a call for several that none will ever grant ends at once, whoever has the others, and says why") {
    manual_clock::reset();
    struct full_server {
        reply execute(const command& cmd) {
            if (cmd.argv()[0] == "SET") return granted_first ? reply::status("OK") : reply::nil();
            ++asked;
            return handoff_answers::taken();
        }
        bool granted_first = false;
        int asked = 0;
    };
    full_server server;
    distlock::mutex<full_server, distlock::handoff, manual_clock> taken{server, "a"};
    std::error_code ec;
    SECTION("for more permits than there are") {
        distlock::counting_semaphore<full_server, manual_clock> pool{server, "b", 2};
        distlock::permit slot(pool, std::defer_lock, 3);
        CHECK_FALSE(distlock::try_lock_for(0s, ec, taken, slot));
        CHECK(ec == distlock::errc::invalid_option);
        CHECK(server.asked == 0);
    }
    SECTION("for what the thread has lost, and not given back") {
        distlock::recursive_mutex<full_server, distlock::handoff, manual_clock> lost{
            server, "b", {.lease = 10s, .renew = false}};
        server.granted_first = true;
        lost.lock();
        server.granted_first = false;
        manual_clock::advance(10s);
        CHECK_FALSE(distlock::try_lock_for(0s, ec, taken, lost));
        CHECK(ec == distlock::errc::lease_expired);
        CHECK(server.asked == 0);
    }
}

namespace {

constexpr distlock::lock_options ten_seconds{.lease = 10s, .renew = false};

// Connections of two locks; while the second is asked for, the lease of the first runs out.
struct slow_second {
    slow_second() {
        manual_clock::reset();
        for (const auto& answer : {granted("", 10'000), reply::integer(1), granted("", 10'000)})
            of_first.then(answer);
        of_second.then([] { manual_clock::advance(10s); }, reply::status("OK"));
        of_second.then(reply::integer(1));
        of_second.then(reply::status("OK"));
    }
    scripted_connection of_first;
    scripted_connection of_second;
    // Not renewed: a renewal by the background would take an answer meant for another command.
    distlock::mutex<scripted_connection, distlock::handoff, manual_clock> second{
        of_second, "second", {.renew = false}};
};

}  // namespace

TEST_CASE("a reader whose lease ran out while another lock was waited for reads anew") {
    slow_second server;
    distlock::shared_mutex<scripted_connection, manual_clock> first{server.of_first, "first", ten_seconds};
    std::shared_lock reads(first, std::defer_lock);
    REQUIRE(distlock::try_lock_for(1min, reads, server.second));
    CHECK(first.shared_until() > manual_clock::now());
    CHECK(server.of_first.left() == 0);
}

TEST_CASE("a permit whose lease ran out while a lock was waited for is taken anew") {
    slow_second server;
    distlock::counting_semaphore<scripted_connection, manual_clock> pool{server.of_first, "first", 2,
                                                                         ten_seconds};
    distlock::permit slot(pool, std::defer_lock);
    REQUIRE(distlock::try_lock_for(1min, slot, server.second));
    CHECK(slot.valid_until() > manual_clock::now());
    CHECK(server.of_first.left() == 0);
}

TEST_CASE("a permit that cannot be taken anew is given back once, and none is held") {
    manual_clock::reset();
    const auto waits = [] { manual_clock::advance(10s); };
    scripted_connection of_first{granted("", 10'000), reply::integer(1)};
    of_first.then(waits, handoff_answers::taken());
    scripted_connection of_second;
    of_second.then(waits, reply::status("OK"));
    of_second.then(reply::integer(1));
    distlock::counting_semaphore<scripted_connection, manual_clock> pool{of_first, "first", 2, ten_seconds};
    distlock::mutex<scripted_connection, distlock::handoff, manual_clock> second{
        of_second, "second", {.renew = false}};
    distlock::permit slot(pool, std::defer_lock);
    std::error_code ec;
    CHECK_FALSE(distlock::try_lock_for(15s, ec, slot, second));
    CHECK(ec == distlock::errc::lease_expired);
    CHECK_FALSE(second.owns_lock());
    CHECK(of_first.left() == 0);
    CHECK(of_second.left() == 0);
}

TEST_CASE("two locks whose leases ran out while a third was waited for are both taken anew") {
    manual_clock::reset();
    using lock = distlock::mutex<scripted_connection, distlock::handoff, manual_clock>;
    const auto twice = [] {
        return scripted_connection{reply::status("OK"), reply::integer(1), reply::status("OK")};
    };
    scripted_connection of_first = twice();
    scripted_connection of_second = twice();
    scripted_connection of_third;
    of_third.then([] { manual_clock::advance(10s); }, reply::status("OK"));
    lock first{of_first, "first", ten_seconds};
    lock second{of_second, "second", ten_seconds};
    lock third{of_third, "third", {.renew = false}};
    REQUIRE(distlock::try_lock_for(1min, first, second, third));
    CHECK(first.owns_lock());
    CHECK(second.owns_lock());
    CHECK(third.owns_lock());
}

TEST_CASE("a permit that was lost is no place for another: it is to be given back first") {
    scripted_connection redis{granted(), reply::integer(1)};
    distlock::counting_semaphore<scripted_connection, manual_clock> pool{redis, "pool", 2, ten_seconds};
    distlock::permit slot = pool.acquire();
    manual_clock::advance(11s);
    REQUIRE_FALSE(slot);
    try {
        static_cast<void>(distlock::try_lock_for(1s, slot));
        FAIL_CHECK("it was tried");
    } catch (const std::system_error& e) {
        CHECK(e.code() == std::errc::resource_deadlock_would_occur);
    }
    CHECK(slot.n() == 1);
}

namespace {

// Whoever asks has it, until then.
struct lock_of_old : distlock::engine::joint_member {
    lock_of_old(std::string called, distlock::any_connection& over, distlock::clock::time_point ends)
        : name_(std::move(called)), connection_(over), ends_(ends) {}
    const std::string& name() const noexcept override { return name_; }
    distlock::any_connection& connection() const noexcept override { return connection_; }
    bool may_join() const override { return joins; }
    distlock::clock::time_point now() const noexcept override { return distlock::clock::time_point{1h}; }
    distlock::engine::lock_core::result acquire(distlock::clock::time_point,
                                                const distlock::engine::lock_core::manner&,
                                                const std::stop_token&) override {
        ++asked;
        held = true;
        return {.serial = 1};
    }
    distlock::clock::time_point valid_until() const noexcept override { return ends_; }
    void undo() noexcept override { held = false; }
    distlock::clock::duration residual() const noexcept override { return {}; }
    bool joins = false;
    int asked = 0;
    bool held = false;

  private:
    const std::string name_;
    distlock::any_connection& connection_;
    const distlock::clock::time_point ends_;
};

}  // namespace

// It named the first of them, whose lease was sound.
TEST_CASE(
    "the error names the lock whose lease ran out while others were waited for, where no time is left") {
    server_for_two server;
    distlock::any_connection_of<server_for_two> redis(server);
    const distlock::clock::time_point now{1h};
    lock_of_old sound("a", redis, now + 10s), over("b", redis, now), last("c", redis, now + 10s);
    distlock::engine::joint_member* all[] = {&last, &over, &sound};
    const auto got = distlock::engine::acquire_all(all, now, {});
    CHECK(got.serial == 0);
    CHECK(got.cause == distlock::errc::lease_expired);
    CHECK(got.detail.starts_with("lock b: "));
    CHECK_FALSE((sound.held || over.held || last.held));
}

namespace {

using manner = distlock::engine::lock_core::manner;
struct trouble {};

// The same, but for trouble where it is asked for in that manner.
struct troubled final : lock_of_old {
    using lock_of_old::lock_of_old;
    distlock::engine::lock_core::result acquire(distlock::clock::time_point until, const manner& how,
                                                const std::stop_token& stop) override {
        if (throws(how)) throw trouble();
        return lock_of_old::acquire(until, how, stop);
    }
    bool (*throws)(const manner&) = nullptr;
};

}  // namespace

TEST_CASE("the exception of one of several locks that are asked for together is thrown, and none is held") {
    server_for_two server;
    distlock::any_connection_of<server_for_two> redis(server);
    const distlock::clock::time_point now{1h};
    lock_of_old sound("a", redis, now + 10s);
    troubled second("b", redis, now + 10s);
    second.throws = [](const manner& how) { return how.together != nullptr; };
    sound.joins = second.joins = true;
    distlock::engine::joint_member* all[] = {&second, &sound};
    CHECK_THROWS_AS(distlock::engine::acquire_all(all, now, {}), trouble);
    CHECK(sound.asked == 1);
    CHECK_FALSE((sound.held || second.held));
}

TEST_CASE("the exception of a lock that was lost while others were waited for is thrown, and none is held") {
    server_for_two server;
    distlock::any_connection_of<server_for_two> redis(server);
    const distlock::clock::time_point now{1h};
    lock_of_old sound("a", redis, now + 10s);
    troubled lost("b", redis, now);
    lost.throws = [](const manner& how) { return how.once; };
    distlock::engine::joint_member* all[] = {&lost, &sound};
    CHECK_THROWS_AS(distlock::engine::acquire_all(all, now + 10s, {}), trouble);
    CHECK(lost.asked == 1);
    CHECK_FALSE(sound.held);
}

// It was had twice, or the other thread's was given back.
TEST_CASE(
    "one of several locks that another thread of the process took meanwhile is neither had nor given back") {
    manual_clock::reset();
    using lock = distlock::mutex<scripted_connection, distlock::handoff, manual_clock>;
    scripted_connection of_a{reply::status("OK"), reply::integer(0), reply::status("OK"), reply::integer(1)};
    scripted_connection of_b;
    lock a{of_a, "a", ten_seconds};
    lock b{of_b, "b", {.renew = false}};
    gate has_it;
    distlock::release_outcome end{};
    std::optional<sleeper> other;
    bool taken = false;
    of_b.then(
        [&] {
            manual_clock::advance(20s);
            std::jthread([&] { a.unlock(); }).join();  // as an observer may
            other.emplace([&] {
                a.lock();
                has_it.pass();
                end = a.unlock();
            });
            taken = eventually([&] { return has_it.reached(); });
        },
        reply::status("OK"));
    of_b.then(reply::integer(1));
    std::error_code ec;
    CHECK_FALSE(distlock::try_lock_for(10s, ec, a, b));
    CHECK(ec == distlock::errc::lease_expired);
    CHECK(taken);
    CHECK_FALSE(b.owns_lock());
    has_it.open();
    other->join();
    CHECK(end == distlock::release_outcome::released);
    CHECK(of_a.left() == 0);
    CHECK(of_b.left() == 0);
}

}  // namespace joint_acquire_tests
