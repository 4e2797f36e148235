// lock_options::hold_at_least: a lock that is unlocked earlier keeps others out until it is
// over, and no longer.
#include <atomic>
#include <chrono>
#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <distlock/base/token.hpp>
#include <distlock/engine/background_io.hpp>
#include <distlock/engine/delayed_release.hpp>
#include <distlock/engine/renewal.hpp>
#include <distlock/mutex.hpp>
#include <distlock/net/subscription.hpp>
#include <distlock/recursive_mutex.hpp>
#include <distlock/scoped_lock.hpp>
#include <distlock/testing/manual_clock.hpp>
#include <distlock/wire/any_dialect.hpp>
#include <distlock/wire/command.hpp>
#include <distlock/wire/handoff.hpp>
#include <distlock/wire/handoff_scripts.hpp>

#include "support/allocations.hpp"
#include "support/catch.hpp"
#include "support/gate.hpp"
#include "support/handoff_answers.hpp"
#include "support/handoff_names.hpp"
#include "support/io_over.hpp"
#include "support/lease_observers.hpp"
#include "support/locks_in_memory.hpp"
#include "support/processor_time.hpp"
#include "support/publishing_connection.hpp"
#include "support/script_calls.hpp"
#include "support/sleepers.hpp"
#include "support/waiting.hpp"

namespace delayed_release_tests {

using namespace std::chrono_literals;
using distlock::lock_options;
using distlock::release_outcome;
using distlock::reply;
using distlock::testing::manual_clock;

namespace {

using locker = distlock::mutex<hosted_locks, distlock::handoff, manual_clock>;
using recursive = distlock::recursive_mutex<hosted_locks, distlock::handoff, manual_clock>;

constexpr lock_options once_in_40s{.lease = 40s, .hold_at_least = 40s};
constexpr lock_options short_lease{.lease = 9s, .hold_at_least = 40s};

struct fleet {
    fleet() { manual_clock::reset(); }

    /// Effects: moves the time by so much, a second at a time, and has each renewal that
    /// is due then answered.
    void pass(std::chrono::seconds span, std::chrono::seconds lease) {
        for (auto left = span; left > 0s; left -= 1s) {
            manual_clock::advance(1s);
            since_renewal += 1s;
            if (since_renewal <= lease / 3) continue;
            REQUIRE(eventually([&] { return redis.count("renew") > renewals; }));
            renewals = redis.count("renew");
            since_renewal = 0s;
        }
    }
    bool released() {
        return eventually([&] { return redis.owner().empty() && redis.count("release") > 0; });
    }

    hosted_locks redis;
    int renewals = 0;
    std::chrono::seconds since_renewal{0};
};

}  // namespace

TEST_CASE("a lock that is unlocked before hold_at_least is over is released when it is") {
    fleet all;
    locker m{all.redis, "orders", short_lease};
    m.lock();
    CHECK(m.unlock() == release_outcome::posted);
    CHECK_FALSE(m.owns_lock());
    CHECK(m.lost().stop_requested());
    const auto owner = all.redis.owner();
    CHECK_FALSE(owner.empty());
    CHECK(m.residual() > 0s);
    CHECK(m.unlock() == release_outcome::not_held);
    all.pass(39s, 9s);
    CHECK(all.redis.owner() == owner);
    CHECK(all.redis.count("release") == 0);
    manual_clock::advance(1s);
    CHECK(all.released());
    CHECK(eventually([&] { return m.residual() == 0s; }));
    CHECK(all.redis.count("release") == 1);
}

TEST_CASE("meanwhile nobody gets the lock, through the same object or another; then everybody may") {
    fleet all;
    locker m{all.redis, "orders", once_in_40s};
    locker other{all.redis, "orders", once_in_40s};
    m.lock();
    m.unlock();
    CHECK_FALSE(m.try_lock());
    CHECK_FALSE(other.try_lock());
    all.pass(39s, 40s);
    CHECK_FALSE(m.try_lock());
    CHECK_FALSE(other.try_lock());
    manual_clock::advance(1s);
    CHECK(all.released());
    CHECK(m.try_lock());
}

TEST_CASE("a lock that is held for longer than hold_at_least is released by unlock()") {
    fleet all;
    locker m{all.redis, "orders", short_lease};
    m.lock();
    all.pass(40s, 9s);
    CHECK(m.unlock() == release_outcome::released);
    CHECK(all.redis.owner().empty());
}

// Nobody knows when a server that answers late granted it.
TEST_CASE("hold_at_least begins when the owner hears of the grant, however late that is") {
    fleet all;
    locker m{all.redis, "orders", {.lease = 60s, .hold_at_least = 10s}};
    all.redis.instead([](const std::string& asked) -> std::optional<reply> {
        if (asked == "take") manual_clock::advance(5s);
        return {};
    });
    m.lock();
    manual_clock::advance(9s);
    CHECK(m.unlock() == release_outcome::posted);
    CHECK(all.redis.count("release") == 0);
    CHECK_FALSE(all.redis.owner().empty());
    manual_clock::advance(1s);
    CHECK(all.released());
}

TEMPLATE_TEST_CASE("every guard that ends early leaves the lock its time", "", std::lock_guard<locker>,
                   std::unique_lock<locker>, distlock::scoped_lock<locker>) {
    fleet all;
    locker m{all.redis, "orders", once_in_40s};
    { TestType guard(m); }
    CHECK_FALSE(m.try_lock());
    CHECK(all.redis.count("release") == 0);
    all.pass(40s, 40s);
    CHECK(all.released());
}

TEST_CASE("the last unlock() of a recursive mutex leaves the lock its time") {
    fleet all;
    recursive m{all.redis, "orders", once_in_40s};
    m.lock();
    m.lock();
    CHECK(m.unlock() == release_outcome::nested);
    CHECK(m.unlock() == release_outcome::posted);
    CHECK_FALSE(m.try_lock());
    all.pass(40s, 40s);
    CHECK(all.released());
}

TEST_CASE("confirmed or posted, unlock() does not wait for the end of hold_at_least") {
    fleet all;
    locker m{all.redis, "orders", {.lease = 40s, .hold_at_least = 40s, .release = distlock::confirmed}};
    m.lock();
    CHECK(m.unlock() == release_outcome::posted);
    CHECK_FALSE(all.redis.owner().empty());
}

TEST_CASE("a thread that waits for the same object is not passed the lock before or after its time") {
    fleet all;
    locker m{all.redis, "orders", {.lease = 40s, .hold_at_least = 40s, .local_budget = 1h}};
    m.lock();
    const auto owner = all.redis.owner();
    sleeper second([&] {
        m.lock();
        m.unlock();
    });
    REQUIRE(second.sleeps());
    const int asked = all.redis.count("take");
    SECTION("before") {
        m.unlock();
        // It asks the server itself, and is told that the lock is taken.
        REQUIRE(eventually([&] { return all.redis.count("take") > asked; }));
        CHECK_FALSE(second.done());
        CHECK(all.redis.owner() == owner);
        manual_clock::advance(40s);
    }
    SECTION("after") {
        all.pass(41s, 40s);
        m.unlock();
    }
    REQUIRE(eventually([&] {
        manual_clock::advance(1ms);
        return second.done();
    }));
    second.join();
    CHECK(all.redis.owner() != owner);
}

TEST_CASE("a renewal that is answered after unlock() does not end the lock before its time") {
    fleet all;
    locker m{all.redis, "orders", short_lease};
    m.lock();
    const auto owner = all.redis.owner();
    gate answers;
    all.redis.wait_at("renew", answers);
    manual_clock::advance(4s);
    REQUIRE(eventually([&] { return all.redis.count("renew") == 1; }));
    CHECK(m.unlock() == release_outcome::posted);
    all.redis.as_usual();
    answers.open();
    all.renewals = 1;
    all.pass(20s, 9s);
    CHECK(all.redis.owner() == owner);
    CHECK(all.redis.count("release") == 0);
}

TEST_CASE("a renewal that succeeds after the loss does not end the lock before its time") {
    fleet all;
    locker m{all.redis, "orders", short_lease};
    locker other{all.redis, "other", {.lease = 60s}};
    m.lock();
    other.lock();
    gate answers;
    all.redis.instead([&](const std::string& what) -> std::optional<reply> {
        if (what != "renew") return {};
        answers.pass();
        return reply::integer(1);
    });
    manual_clock::advance(4s);
    REQUIRE(eventually([&] { return answers.reached(); }));
    manual_clock::advance(5s);
    answers.open();
    manual_clock::advance(11s);  // the background comes to the other lock, and so after what it does for this
    REQUIRE(eventually([&] { return all.redis.count("renew", "other") == 1; }));
    CHECK(all.redis.count("release") == 0);
    CHECK(m.unlock() == release_outcome::expired);
    manual_clock::advance(20s);
    REQUIRE(eventually([&] { return all.redis.count("release") > 0; }));
    CHECK(eventually([&] { return m.residual() == 0s; }));
    CHECK(all.redis.count("release") == 1);
}

TEST_CASE("a mutex that ends, locked or not, leaves the lock its time") {
    fleet all;
    {
        locker m{all.redis, "orders", short_lease};
        m.lock();
        if (GENERATE(false, true)) m.unlock();
    }
    const auto owner = all.redis.owner();
    CHECK_FALSE(owner.empty());
    all.pass(39s, 9s);
    CHECK(all.redis.owner() == owner);
    manual_clock::advance(1s);
    CHECK(all.released());
}

// Where its process had ended by then, a job of three seconds kept the fleet out for five: until its lease
// ended.
TEST_CASE("a key whose lock was unlocked early ends a second after its time at the latest by itself") {
    fleet all;
    const auto lease = GENERATE(9s, 40s, 41s, 60s);
    const bool renews = lease == 9s || GENERATE(true, false);
    locker m{all.redis, "orders", {.lease = lease, .renew = renews, .hold_at_least = 40s}};
    m.lock();
    manual_clock::advance(1s);
    REQUIRE(all.redis.ttl() == lease - 1s);
    const int renewals = all.redis.count("renew");
    m.unlock();
    REQUIRE(eventually([&] { return all.redis.count("renew") == renewals + 1; }));
    CHECK(all.redis.ttl() == 40s);
    CHECK(m.residual() >= 40s);
    CHECK(eventually([&] { return m.residual() <= 40s; }));  // it said 59 for a lease of 60
    manual_clock::advance(2s);
    CHECK(all.redis.count("renew") == renewals + 1);
    all.redis.answer("release", reply::no_answer(distlock::errc::no_reply, {}));
    manual_clock::advance(37s);
    REQUIRE(eventually([&] { return all.redis.count("release") == 1; }));
    CHECK(all.redis.ttl() == 1s);
}

TEST_CASE("a lock may be kept for as long as there are milliseconds") {
    fleet all;
    locker m{all.redis, "orders", {.lease = 60s, .hold_at_least = std::chrono::milliseconds::max()}};
    m.lock();
    CHECK(m.unlock() == release_outcome::posted);
    REQUIRE(eventually([&] { return all.redis.count("renew") == 1; }));
    CHECK(all.redis.ttl() > 200 * 365 * 24h);
    CHECK(m.residual() > 200 * 365 * 24h);
    manual_clock::advance(24h);
    CHECK_FALSE(all.redis.owner().empty());
}

TEST_CASE("a server that does not answer is told again when a lock that is kept ends") {
    fleet all;
    locker m{all.redis, "orders", {.lease = 60s, .hold_at_least = 10s}};
    m.lock();
    all.redis.answer("renew", reply::no_answer(distlock::errc::no_reply, {}));
    m.unlock();
    REQUIRE(eventually([&] { return all.redis.count("renew") == 1; }));
    all.redis.as_usual();
    CHECK(eventually([&] {
        manual_clock::advance(1ms);
        return all.redis.count("renew") == 2;
    }));
    CHECK(all.redis.ttl() <= 11s);
}

TEST_CASE("a lock that is shared is not told of an earlier end, which it would not take") {
    fleet all;
    struct beside_others : distlock::handoff {
        using handoff::handoff;
        static bool is_shared() { return true; }
    };
    using namespace distlock::engine;
    io_over<hosted_locks, manual_clock> io(all.redis);
    const auto now = manual_clock::now();
    const auto keep = [&](std::shared_ptr<const distlock::any_dialect> lock,
                          std::chrono::seconds span = 60s) {
        const renewal lease({.lease = span}, span, now, now, 0);
        return delayed_release::start(
            std::make_shared<delayed_release>(
                io, std::move(lock),
                delayed_release_terms{distlock::token::generate(), lease, now + 5s, {}, nullptr}),
            io);
    };
    REQUIRE(keep(std::make_shared<const distlock::any_dialect_of<beside_others>>("orders", lock_options{})));
    REQUIRE(
        keep(std::make_shared<const distlock::any_dialect_of<distlock::handoff>>("other", lock_options{})));
    REQUIRE(eventually([&] { return all.redis.count("renew", "other") == 1; }));
    CHECK(all.redis.count("renew") == 0);
    REQUIRE(
        keep(std::make_shared<const distlock::any_dialect_of<beside_others>>("third", lock_options{}), 4s));
    CHECK(eventually([&] { return all.redis.count("renew", "third") == 1; }));
}

// It said so much, and gave a release up a second later, though the key lives for the lease.
TEST_CASE("a lock whose dialect renews for its lease alone keeps others out for that") {
    struct for_its_lease : distlock::plain {
        using plain::plain;
        distlock::command renew(const distlock::token& owner) const { return plain::renew(owner); }
    };
    fleet all;
    const lock_options options{.lease = 30s, .hold_at_least = 2s};
    distlock::mutex<hosted_locks, for_its_lease, manual_clock> m{all.redis, "orders", options};
    m.lock();
    m.unlock();
    REQUIRE(eventually([&] { return all.redis.count("renew") == 1; }));
    CHECK(m.residual() >= 29s);
    manual_clock::advance(1s);
    CHECK(m.residual() >= 28s);
}

TEST_CASE("when the connection ends, the server is told when the key ends") {
    manual_clock::reset();
    const auto lease = GENERATE(9s, 40s, 60s);
    locks_in_memory redis;  // its background ends with the last mutex
    {
        distlock::mutex<locks_in_memory, distlock::handoff, manual_clock> m{
            redis, "orders", {.lease = lease, .hold_at_least = 40s}};
        m.lock();
        manual_clock::advance(1s);
        m.unlock();
    }
    CHECK(redis.count("release") == 0);
    CHECK(redis.ttl() == 39s);
    CHECK_FALSE(redis.owner().empty());
}

TEST_CASE("a lock that was lost before hold_at_least is over is not released earlier either") {
    fleet all;
    locker m{all.redis, "orders", short_lease};
    m.lock();
    const auto owner = all.redis.owner();
    manual_clock::advance(9s);
    all.redis.prolong();
    CHECK_FALSE(m.owns_lock());
    SECTION("by an unlock() that comes too late") { CHECK(m.unlock() == release_outcome::expired); }
    SECTION("by a thread that tries to lock") { CHECK_FALSE(m.try_lock()); }
    CHECK(all.redis.owner() == owner);
    CHECK(all.redis.count("release") == 0);
    manual_clock::advance(31s);
    all.redis.prolong();
    CHECK(all.released());
}

TEST_CASE("an owner that unlocks too late what is kept is told of the loss") {
    fleet all;
    const auto seen = std::make_shared<recording_observer>();
    locker m{all.redis, "orders", short_lease, seen};
    m.lock();
    manual_clock::advance(9s);
    CHECK(m.unlock() == release_outcome::expired);
    CHECK(seen->hears({"expired: orders"}));
}

TEST_CASE("a connection keeps more locks until their time than it keeps tokens in doubt") {
    constexpr auto most = distlock::engine::background_io::most_adopted;
    fleet all;
    std::size_t kept = 0;
    for (std::size_t i = 0; i <= most; ++i) {
        locker m{all.redis, std::to_string(i), once_in_40s};
        m.lock();
        kept += m.unlock() == release_outcome::posted ? 1 : 0;
    }
    CHECK(kept == most + 1);
}

TEST_CASE("a lock that is kept is released again where an earlier request for it arrives after its time") {
    fleet all;
    locker m{all.redis, "orders", {.lease = 40s, .hold_at_least = 10s}};
    std::atomic<int> takes{0};
    all.redis.instead([&](const std::string& what) -> std::optional<reply> {
        if (what == "take" && ++takes == 1) return reply::no_answer(distlock::errc::no_reply, {});
        return {};
    });
    m.lock();
    CHECK(m.unlock() == release_outcome::posted);
    const auto token = all.redis.owner();
    manual_clock::advance(10s);
    REQUIRE(all.released());
    all.redis.give_to(token);
    CHECK(eventually([&] {
        manual_clock::advance(1ms);
        return all.redis.owner().empty();
    }));
}

TEST_CASE("a lock that an operator took is not renewed any more") {
    fleet all;
    locker m{all.redis, "orders", short_lease};
    m.lock();
    all.redis.give_to("somebody");
    m.unlock();
    manual_clock::advance(3s);
    REQUIRE(eventually([&] { return all.redis.count("renew") == 1; }));
    CHECK(eventually([&] { return m.residual() == 0s; }));
    manual_clock::advance(37s);
    REQUIRE(eventually([&] { return all.redis.count("release") == 1; }));
    CHECK(all.redis.owner() == "somebody");
    CHECK(all.redis.count("renew") == 1);
    CHECK(eventually([&] { return m.residual() == 0s; }));
}

TEST_CASE("nobody waits for the renewal of a lock that is kept for longer than its lease") {
    fleet all;
    locker m{all.redis, "orders", short_lease};
    m.lock();
    const auto until = m.valid_until();
    m.unlock();
    manual_clock::advance(4s);
    REQUIRE(eventually([&] { return all.redis.count("renew") == 1; }));
    const auto sent = all.redis.sent();
    REQUIRE(sent.back().what == "renew");
    CHECK(sent.back().deadline == until);
}

TEST_CASE(
    "a kept lock that was lost leaves the background I/O in peace, also when another master takes over") {
    manual_clock::reset();
    following_locks redis;
    distlock::mutex<following_locks, distlock::handoff, manual_clock> m{redis, "orders", short_lease};
    m.lock();
    m.unlock();
    redis.give_to("somebody");
    manual_clock::advance(3s);
    REQUIRE(eventually([&] { return redis.count("renew") == 1; }));
    redis.change_master();
    CHECK(busy_percent() < idle_percent);
    CHECK(redis.count("renew") == 1);
}

// It said nine seconds at first, and nine seconds after thirty.
TEST_CASE("a lock that is kept keeps others out for as long as it is renewed") {
    fleet all;
    locker m{all.redis, "orders", short_lease};
    m.lock();
    gate answers;
    all.redis.wait_at("renew", answers);
    m.unlock();
    CHECK(m.residual() >= 40s);
    all.redis.as_usual();
    answers.open();
    all.pass(30s, 9s);
    CHECK(m.residual() >= 10s);
    CHECK(m.residual() < 20s);
}

TEST_CASE("a release that is not answered is repeated") {
    fleet all;
    locker m{all.redis, "orders", once_in_40s};
    m.lock();
    m.unlock();
    all.redis.answer("release", reply::no_answer(distlock::errc::no_reply, {}));
    all.pass(39s, 40s);
    manual_clock::advance(1s);
    REQUIRE(eventually([&] { return all.redis.count("release") == 1; }));
    CHECK(m.residual() > 0s);
    all.redis.as_usual();
    // When it is repeated counts from when the background heard that there is no answer.
    CHECK(eventually([&] {
        manual_clock::advance(10ms);
        return all.redis.owner().empty();
    }));
}

// Others were kept out until the lease ended.
TEST_CASE("a lock that was kept is released when its time is over also by a server that is full") {
    struct full_server : hosted_locks {
        reply execute(const distlock::command& cmd) {
            const bool writes_more = calls(cmd, distlock::detail::handoff_leave);
            return writes_more ? reply::error("OOM command not allowed") : hosted_locks::execute(cmd);
        }
    };
    manual_clock::reset();
    full_server redis;
    distlock::mutex<full_server, distlock::handoff, manual_clock> m{
        redis, "orders", {.lease = 60s, .hold_at_least = 10s}};
    const auto lease_ends = manual_clock::now() + 60s;
    m.lock();
    m.unlock();
    manual_clock::advance(10s);
    CHECK(eventually([&] {
        manual_clock::advance(10ms);
        return redis.owner().empty();
    }));
    CHECK(manual_clock::now() < lease_ends);
}

TEST_CASE("a hand-over that is told late is not answered with a release while its lock is kept") {
    using namespace distlock::engine;
    manual_clock::reset();
    locks_in_memory redis;
    io_over<locks_in_memory, manual_clock> io(redis);
    const auto lock = std::make_shared<const distlock::any_dialect_of<distlock::handoff>>(
        "orders", lock_options{.lease = 40s});
    const auto messages = std::make_shared<distlock::subscription>("channel");
    std::atomic<int> unclaimed{0};
    messages->on_unclaimed([&](std::string_view) { ++unclaimed; });
    const auto owner = distlock::token::generate();
    redis.give_to(std::string(owner.view()));
    const auto now = manual_clock::now();
    const auto kept = std::make_shared<delayed_release>(
        io, lock,
        delayed_release_terms{owner, renewal({.lease = 40s}, 40s, now, now, 0), now + 5s, {}, messages});
    REQUIRE(delayed_release::start(kept, io));
    const auto text = std::string(owner.view()) + " 1 2000 0 orders";
    messages->deliver(text);
    CHECK(unclaimed == 0);
    manual_clock::advance(5s);
    REQUIRE(eventually([&] { return kept->latest_expiry() == distlock::clock::time_point{}; }));
    CHECK(redis.owner().empty());
    messages->deliver(text);
    CHECK(unclaimed == 1);
}

TEST_CASE("a mutex that keeps its lock does not answer a hand-over that is told late with a release") {
    manual_clock::reset();
    publishing_connection redis;
    redis.inner.then(reply::nil());
    redis.inner.then(handoff_answers::granted("", 40'000));
    distlock::mutex<publishing_connection, distlock::handoff, manual_clock> m{redis, "orders", once_in_40s};
    m.lock();
    const auto owner = redis.inner.commands().back().argv.at(7);
    redis.inner.then(reply::integer(1));
    CHECK(m.unlock() == release_outcome::posted);
    REQUIRE(
        eventually([&] { return redis.inner.commands().size() == 3; }));  // the server is told when it ends
    const auto tell = [&](std::string_view token) {
        redis.source->deliver(std::string(token) + " 1 2000 0 orders");
        manual_clock::advance(1ms);
    };
    redis.inner.then(reply::integer(1));
    tell(owner);
    const auto nobody = distlock::token::generate();
    tell(nobody.view());
    REQUIRE(eventually([&] { return redis.inner.commands().size() > 3; }));
    const auto release = redis.inner.commands()[3].argv;
    CHECK(handoff_name_of(release) == "leave");
    CHECK(release.at(7) == nobody.view());
}

TEST_CASE("without memory for more, the key is left to its lease") {
    NOT_TESTED_UNLESS(allocations_can_fail(), operator_new_is_not_ours);
    fleet all;
    locker m{all.redis, "orders", once_in_40s};
    m.lock();
    fail_allocation(1);
    const auto done = m.unlock();
    fail_allocation(0);
    CHECK(done == release_outcome::unreachable);
    CHECK(all.redis.count("release") == 0);
    CHECK_FALSE(m.try_lock());
    manual_clock::advance(40s);
    CHECK(m.try_lock());
}

TEST_CASE("a lock that is kept is renewed at once by another master") {
    manual_clock::reset();
    following_locks redis;
    distlock::mutex<following_locks, distlock::handoff, manual_clock> m{
        redis, "orders", {.lease = 41s, .hold_at_least = 40s}};
    m.lock();
    CHECK(m.unlock() == release_outcome::posted);
    REQUIRE(eventually([&] { return redis.count("renew") == 1; }));  // which says when the key ends
    manual_clock::advance(1ms);
    redis.change_master();
    CHECK(eventually([&] { return redis.count("renew") == 2; }));
}

// The background looked after it without a pause until the connection ended.
TEST_CASE("a kept lock that is released while another master takes over is over") {
    using namespace distlock::engine;
    manual_clock::reset();
    gate hold;
    following_locks redis;
    io_over<following_locks, manual_clock> io(redis);
    const auto lock = std::make_shared<const distlock::any_dialect_of<distlock::handoff>>(
        "orders", lock_options{.lease = 5s, .renew = false});
    const auto owner = distlock::token::generate();
    redis.give_to(std::string(owner.view()));
    redis.wait_at("release", hold);
    const auto now = manual_clock::now();
    const renewal none({.lease = 5s, .renew = false}, 5s, now, now, 0);
    auto kept = std::make_shared<delayed_release>(io, lock,
                                                  delayed_release_terms{owner, none, now + 5s, {}, nullptr});
    REQUIRE(delayed_release::start(kept, io));
    const std::weak_ptr<delayed_release> left = std::exchange(kept, nullptr);
    manual_clock::advance(5s);
    REQUIRE(eventually([&] { return hold.reached(); }));
    redis.change_master();
    hold.open();
    CHECK(eventually([&] { return left.expired(); }));
    CHECK(redis.count("release") == 1);
}

}  // namespace delayed_release_tests
