// What the lease of a lock promises, over every kind of connection and a real server: it is renewed, its loss
// is told, and fencing tokens grow.
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <latch>
#include <memory>
#include <optional>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <distlock/base/key.hpp>
#include <distlock/distlock.hpp>

#include "support/catch.hpp"
#include "support/connection_fixtures.hpp"
#include "support/lease_observers.hpp"
#include "support/round_trip.hpp"
#include "support/waiting.hpp"

namespace leases_tests {

using namespace std::chrono_literals;
using distlock::lock_options;
using distlock::loss_reason;
using distlock::release_outcome;
using clk = distlock::clock;
using reasons = std::vector<loss_reason>;

namespace {

// Of locks that are lost at a renewal, which comes after a third of it; and of those whose end is waited for.
constexpr auto lease = 450ms;
constexpr auto short_lease = 300ms;

// What a thread tells may wait for other threads of a busy machine.
const auto late = round_trip_tolerance + 1s;

// When a token was stopped.
class stop_time {
  public:
    explicit stop_time(std::stop_token token) : callback_(std::move(token), [this] { at_ = clk::now(); }) {}
    bool wait() const {
        return eventually([this] { return at_.load() != clk::time_point{}; });
    }
    clk::time_point at() const { return at_; }

  private:
    std::atomic<clk::time_point> at_{};
    std::stop_callback<std::function<void()>> callback_;
};

bool wait_for(clk::time_point then) {
    return eventually([then] { return clk::now() > then; });
}

std::string fence_key(const std::string& name) { return distlock::key(name).sibling("fence"); }

}  // namespace

TEST_CASE("a lock is kept for longer than its lease, by renewal") {
    connection_fixtures::over_each fixture;
    const auto how = GENERATE(distlock::posted, distlock::confirmed);
    const auto name = connection_fixtures::fresh_name();
    const auto told = std::make_shared<recording_observer>();
    distlock::mutex m{fixture.connection, name, {.lease = 600ms, .release = how}, told};
    m.lock();
    const auto lost = m.lost();
    const auto token = fixture.server().command({"GET", name});
    auto until = m.valid_until();
    const auto end = until + 700ms;
    bool held = true;
    bool same = true;
    bool forward = true;
    bool bounded = true;
    while (until < end && held && same) {
        held = m.owns_lock();
        same = fixture.server().command({"GET", name}) == token;
        const auto next = m.valid_until();
        forward = forward && next >= until;
        bounded = bounded && next < clk::now() + 600ms;
        until = next;
    }
    CHECK(held);
    CHECK(same);
    CHECK(forward);
    CHECK(bounded);  // what is believed is never more than one lease
    CHECK_FALSE(lost.stop_requested());
    CHECK(m.unlock() == fixture.said(how));
    CHECK(connection_fixtures::gone(fixture, {name}, how));
    CHECK(told->losses().empty());
}

TEST_CASE("a renewal whose script the server has forgotten is sent with it") {
    connection_fixtures::over_each fixture;
    distlock::mutex m{fixture.connection, connection_fixtures::fresh_name(), {.lease = lease}};
    m.lock();
    for (int i = 0; i < 2; ++i) {
        fixture.server().command({"SCRIPT", "FLUSH"});
        const auto until = m.valid_until();
        CHECK(eventually([&] { return m.valid_until() > until || !m.owns_lock(); }));
    }
    CHECK(m.unlock() == fixture.said());
}

TEST_CASE("without renewal a lock is lost when its validity ends, and not before") {
    connection_fixtures::over_each fixture;
    const auto name = connection_fixtures::fresh_name();
    const auto told = std::make_shared<recording_observer>();
    distlock::mutex m{fixture.connection, name, {.lease = short_lease, .renew = false}, told};
    m.lock();
    const auto end = m.valid_until();
    const stop_time lost(m.lost());
    REQUIRE(lost.wait());
    CHECK(lost.at() >= end);
    CHECK(lost.at() - end < late);
    CHECK(m.valid_until() == end);
    CHECK_FALSE(m.owns_lock());
    CHECK(eventually([&] { return told->losses() == reasons{loss_reason::expired}; }));
    CHECK(told->heard() == std::vector<std::string>{"expired: " + name});
    CHECK(told->risks().empty());
    CHECK(eventually([&] { return fixture.server().command({"EXISTS", name}) == "0"; }));
    CHECK(m.unlock() == release_outcome::expired);
}

TEST_CASE("a lock is lost when max_hold is over, renewed or not, and unlock() frees it then") {
    connection_fixtures::over_each fixture;
    const auto name = connection_fixtures::fresh_name();
    const auto options = GENERATE(lock_options{.lease = short_lease, .max_hold = 350ms},
                                  lock_options{.lease = 30s, .max_hold = 50ms},
                                  lock_options{.lease = 30s, .renew = false, .max_hold = 50ms});
    const auto told = std::make_shared<recording_observer>();
    distlock::mutex m{fixture.connection, name, options, told};
    const auto before = clk::now();
    m.lock();
    const auto after = clk::now();
    const stop_time lost(m.lost());
    REQUIRE(lost.wait());
    CHECK(lost.at() >= before + options.max_hold.get());
    CHECK(lost.at() - after - options.max_hold.get() < late);
    CHECK_FALSE(m.owns_lock());
    CHECK(eventually([&] { return told->losses() == reasons{loss_reason::max_hold}; }));
    CHECK(m.unlock() == release_outcome::expired);
    CHECK(fixture.server().command({"EXISTS", name}) == "0");
}

// The key of the hold that was over stayed until its lease ended: a process waited for itself.
TEST_CASE("a thread that follows a hold at its longest does not wait for the rest of its lease") {
    connection_fixtures::over_each fixture;
    const auto name = connection_fixtures::fresh_name();
    distlock::mutex m{fixture.connection, name, {.lease = 30s, .max_hold = 50ms}};
    m.lock();
    const stop_time lost(m.lost());
    REQUIRE(lost.wait());
    bool got = false;
    std::jthread([&] { got = m.try_lock_for(10s) && m.unlock() != release_outcome::expired; }).join();
    CHECK(got);
    CHECK(m.unlock() == release_outcome::expired);
}

TEST_CASE("a lock whose key was deleted is lost at the next renewal, as expired") {
    connection_fixtures::over_each fixture;
    const auto name = connection_fixtures::fresh_name();
    const auto told = std::make_shared<recording_observer>();
    distlock::mutex m{fixture.connection, name, {.lease = lease}, told};
    m.lock();
    const stop_time lost(m.lost());
    const auto end = m.valid_until();
    fixture.server().command({"DEL", name});
    REQUIRE(lost.wait());
    CHECK(lost.at() < end);
    CHECK_FALSE(m.owns_lock());
    CHECK(m.valid_until() < end);
    CHECK(eventually([&] { return told->losses() == reasons{loss_reason::expired}; }));
    fixture.server().command({"SET", name, "somebody else"});
    CHECK(m.unlock() == release_outcome::taken);
    CHECK(fixture.server().command({"GET", name}) == "somebody else");
}

TEST_CASE("a lock in whose place is another token is lost at the next renewal, as taken") {
    connection_fixtures::over_each fixture;
    const auto name = connection_fixtures::fresh_name();
    const auto told = std::make_shared<recording_observer>();
    distlock::mutex m{fixture.connection, name, {.lease = lease}, told};
    m.lock();
    const stop_time lost(m.lost());
    const auto end = m.valid_until();
    fixture.server().command({"SET", name, "somebody else"});
    REQUIRE(lost.wait());
    CHECK(lost.at() < end);
    CHECK_FALSE(m.owns_lock());
    CHECK(eventually([&] { return told->losses() == reasons{loss_reason::taken}; }));
    CHECK(fixture.server().command({"PTTL", name}) == "-1");  // nor was it renewed
    CHECK(m.unlock() == release_outcome::taken);
    CHECK(fixture.server().command({"GET", name}) == "somebody else");
}

TEST_CASE("a lock that an operator took away is lost at the next renewal, as forced") {
    connection_fixtures::over_each fixture;
    auto operators = fixture.another();
    const auto name = connection_fixtures::fresh_name();
    const auto told = std::make_shared<recording_observer>();
    distlock::mutex m{fixture.connection, name, {.lease = lease}, told};
    CHECK_FALSE(distlock::force_release(operators.connection, name));
    m.lock();
    const stop_time lost(m.lost());
    const auto end = m.valid_until();
    CHECK(distlock::force_release(operators.connection, name));
    distlock::mutex next{operators.connection, name};
    CHECK(next.try_lock());
    REQUIRE(lost.wait());
    CHECK(lost.at() < end);
    CHECK(eventually([&] { return told->losses() == reasons{loss_reason::forced}; }));
    CHECK(m.unlock() == release_outcome::taken);
    CHECK(next.unlock() == fixture.said());
}

TEST_CASE("a server that hangs is told as a risk, and as a loss when validity ends") {
    connection_fixtures::over_each fixture;
    const auto name = connection_fixtures::fresh_name();
    const auto told = std::make_shared<recording_observer>();
    distlock::mutex m{fixture.connection, name, {.lease = brief_lease}, told};
    m.lock();
    const stop_time lost(m.lost());
    struct pause {
        explicit pause(connection_fixtures::redis_server& which) : server(which) { server.pause(); }
        ~pause() { server.resume(); }
        connection_fixtures::redis_server& server;
    };
    {
        const pause hanging(fixture.server());
        const auto end = m.valid_until();
        REQUIRE(lost.wait());
        CHECK(lost.at() >= end);
        CHECK(lost.at() - end < late);
        CHECK(eventually([&] { return told->losses() == reasons{loss_reason::expired}; }));
        const auto risks = told->risks();
        REQUIRE(risks.size() == 1);
        CHECK(risks[0] > 0ms);
        CHECK(risks[0] < brief_lease * 2 / 3);
    }
    CHECK_FALSE(m.owns_lock());  // it hears now what was sent meanwhile: that revives nothing
    CHECK(m.unlock() == release_outcome::expired);
    CHECK(fixture.server().command({"EXISTS", name}) == "0");
    CHECK(told->losses().size() == 1);
}

TEST_CASE("renewals that fail for a while are told as a risk, once, and the lock is kept") {
    connection_fixtures::over_each fixture;
    const auto told = std::make_shared<recording_observer>();
    distlock::mutex m{fixture.connection, connection_fixtures::fresh_name(), {.lease = brief_lease}, told};
    const auto need_replicas = [&](const char* count) {
        fixture.server().command({"CONFIG", "SET", "min-replicas-to-write", count});
    };
    m.lock();
    for (std::size_t i = 1; i <= 2; ++i) {
        need_replicas("1");  // of which there is none: no write is accepted
        CHECK(eventually([&] { return told->risks().size() == i; }));
        const auto until = m.valid_until();
        CHECK(wait_for(clk::now() + 60ms));
        need_replicas("0");
        CHECK(eventually([&] { return m.valid_until() > until || !m.owns_lock(); }));
        CHECK(told->risks().size() == i);
    }
    CHECK(m.unlock() == fixture.said());
    CHECK(told->losses().empty());
}

TEST_CASE("lost() is one token per acquisition, stopped without one") {
    connection_fixtures::over_each fixture;
    distlock::mutex m{fixture.connection, connection_fixtures::fresh_name(), {.max_hold = 1s}};
    CHECK(m.lost().stop_requested());
    m.lock();
    const auto first = m.lost();
    CHECK_FALSE(first.stop_requested());
    CHECK(m.lost() == first);
    m.unlock();
    CHECK(m.lost().stop_requested());
    m.lock();
    const auto second = m.lost();
    CHECK(second != first);
    CHECK_FALSE(second.stop_requested());
    CHECK(eventually([&] { return second.stop_requested(); }));
    CHECK(m.lost().stop_requested());
    CHECK_FALSE(first.stop_requested());
    m.unlock();
    distlock::mutex brief{fixture.connection, connection_fixtures::fresh_name(), {.max_hold = 50ms}};
    brief.lock();
    REQUIRE(eventually([&] { return !brief.owns_lock(); }));
    CHECK(brief.lost().stop_requested());  // asked for when it is too late
}

TEST_CASE("a lock that was released in time is never told as lost") {
    connection_fixtures::over_each fixture;
    const auto told = std::make_shared<recording_observer>();
    const auto long_enough = short_lease + 2 * timing_tolerance;
    distlock::mutex m{fixture.connection,
                      connection_fixtures::fresh_name(),
                      {.lease = long_enough, .max_hold = long_enough},
                      told};
    distlock::mutex n{
        fixture.connection, connection_fixtures::fresh_name(), {.lease = long_enough, .renew = false}, told};
    std::stop_token of_mutex;
    std::stop_token of_guard;
    std::stop_token of_both;
    m.lock();
    of_mutex = m.lost();
    m.unlock();
    {
        const distlock::scoped_lock guard{m};
        of_guard = guard.lost();
    }
    {
        const distlock::scoped_lock both{m, n};
        of_both = both.lost();
    }
    REQUIRE(wait_for(clk::now() + long_enough + 20ms));
    CHECK_FALSE(of_mutex.stop_requested());
    CHECK_FALSE(of_guard.stop_requested());
    CHECK_FALSE(of_both.stop_requested());
    CHECK(told->losses().empty());
}

TEST_CASE("a guard's lost() is the token of its acquisition, and stopped after a move") {
    connection_fixtures::over_each fixture;
    const auto name = connection_fixtures::fresh_name();
    distlock::mutex m{fixture.connection, name, {.lease = lease}};
    distlock::scoped_lock guard{m};
    const auto lost = guard.lost();
    CHECK_FALSE(lost.stop_requested());
    CHECK(guard.lost() == lost);
    CHECK(m.lost() == lost);
    const distlock::scoped_lock second{std::move(guard)};
    CHECK(guard.lost().stop_requested());  // NOLINT: what a moved-from guard says is the point
    CHECK(second.lost() == lost);
    CHECK_FALSE(lost.stop_requested());
    const auto end = second.valid_until();
    const stop_time told(lost);
    fixture.server().command({"DEL", name});
    REQUIRE(told.wait());
    CHECK(told.at() < end);
    CHECK_FALSE(second.owns_lock());
    m.lock();  // through the same object
    CHECK(second.lost().stop_requested());
    CHECK_FALSE(m.lost().stop_requested());
}

TEST_CASE("the lost() of a guard of two locks is stopped when either is lost") {
    connection_fixtures::over_each fixture;
    const std::vector names{connection_fixtures::fresh_name(), connection_fixtures::fresh_name()};
    const std::size_t which = GENERATE(0U, 1U);
    distlock::mutex a{fixture.connection, names[0], {.lease = lease}};
    distlock::mutex b{fixture.connection, names[1], {.lease = lease}};
    {
        distlock::scoped_lock first{a, b};
        const auto lost = first.lost();
        CHECK(first.lost() == lost);
        const distlock::scoped_lock both{std::move(first)};
        CHECK(first.lost().stop_requested());  // NOLINT: what a moved-from guard says is the point
        CHECK(both.lost() == lost);
        CHECK_FALSE(lost.stop_requested());
        const stop_time told(lost);
        const auto end = both.valid_until();
        fixture.server().command({"DEL", names[which]});
        REQUIRE(told.wait());
        CHECK(told.at() < end);
        CHECK_FALSE(both.owns_lock());
        CHECK(fixture.server().command({"EXISTS", names[1 - which]}) == "1");
    }
    CHECK(connection_fixtures::gone(fixture, names));
    distlock::mutex brief{fixture.connection, names[which], {.max_hold = 30ms + 4 * round_trip()}};
    distlock::mutex other{fixture.connection, names[1 - which]};
    const distlock::scoped_lock late_asked{brief, other};
    REQUIRE(eventually([&] { return !late_asked.owns_lock(); }));
    CHECK(late_asked.lost().stop_requested());
}

TEST_CASE("fencing tokens grow over acquisitions, mutexes, connections, and the loss of the counter") {
    connection_fixtures::over_each fixture;
    auto other = fixture.another();
    const auto how = GENERATE(distlock::posted, distlock::confirmed);
    const auto name = connection_fixtures::fresh_name();
    const lock_options fenced{.lease = lease, .fencing = true, .release = how};
    distlock::mutex m{fixture.connection, name, fenced};
    distlock::mutex n{other.connection, name, fenced};
    std::uint64_t last = 0;
    bool growing = true;
    const auto next = [&](std::uint64_t fence) { growing = growing && fence > std::exchange(last, fence); };
    for (int i = 0; i < 10; ++i) {
        m.lock();
        next(m.fencing_token());
        CHECK(m.fencing_token() == last);
        if (i == 5) fixture.server().command({"DEL", fence_key(name)});
        m.unlock();
        CHECK(m.fencing_token() == 0);
        if (i == 7) fixture.server().command({"DEL", fence_key(name)});
        {
            const distlock::scoped_lock guard{n};
            next(guard.fencing_token());
            CHECK(n.fencing_token() == last);
        }
        distlock::mutex fresh{fixture.connection, name, fenced};
        CHECK(fresh.fencing_token() == 0);
        // What was posted over another connection may come later than what is asked over this one.
        REQUIRE((how == distlock::posted ? fresh.try_lock_for(10s) : fresh.try_lock()));
        next(fresh.fencing_token());
    }
    CHECK(growing);
    CHECK(fixture.server().command({"GET", fence_key(name)}) == std::to_string(last));
    CHECK(connection_fixtures::gone(fixture, {name}, how));
    CHECK_FALSE(distlock::force_release(other.connection, name));
    m.lock();
    next(m.fencing_token());
    distlock::force_release(other.connection, name);
    n.lock();
    next(n.fencing_token());
    CHECK(growing);
}

TEST_CASE("a fencing token stays what it was after a loss") {
    connection_fixtures::over_each fixture;
    const auto name = connection_fixtures::fresh_name();
    distlock::mutex m{fixture.connection, name, {.lease = lease, .fencing = true}};
    distlock::scoped_lock guard{m};
    const auto fence = guard.fencing_token();
    CHECK(fence > 0);
    const auto until = guard.valid_until();
    CHECK(eventually([&] { return guard.valid_until() > until; }));
    CHECK(guard.fencing_token() == fence);  // nor does a renewal change it
    fixture.server().command({"DEL", name});
    REQUIRE(eventually([&] { return !guard.owns_lock(); }));
    CHECK(guard.fencing_token() == fence);
    CHECK(m.fencing_token() == fence);
    m.lock();
    CHECK(m.fencing_token() > fence);
    CHECK(guard.fencing_token() == fence);
    const distlock::scoped_lock moved{std::move(guard)};
    CHECK(guard.fencing_token() == 0);  // NOLINT: what a moved-from guard says is the point
    CHECK(moved.fencing_token() == fence);
}

TEST_CASE("without fencing the token is 0, and no key but the lock's is on the server") {
    connection_fixtures::over_each fixture;
    const auto name = connection_fixtures::fresh_name("alone") + ".";
    const auto fenced = connection_fixtures::fresh_name("fenced") + ".";
    const auto keys = [&](const std::string& of) {
        return fixture.server().command({"KEYS", "*" + of + "*"});
    };
    {
        distlock::mutex m{fixture.connection, name, {.lease = lease}};
        const distlock::scoped_lock guard{m};
        CHECK(m.fencing_token() == 0);
        CHECK(guard.fencing_token() == 0);
        CHECK(keys(name) == name);
        const auto until = m.valid_until();
        CHECK(eventually([&] { return m.valid_until() > until; }));
        CHECK(keys(name) == name);
    }
    CHECK(eventually([&] { return keys(name).empty(); }));
    {
        distlock::mutex m{fixture.connection, fenced, {.lease = lease, .fencing = true}};
        const distlock::scoped_lock guard{m};
        CHECK(fixture.server().command({"EXISTS", fenced, fence_key(fenced)}) == "2");
    }
    CHECK(eventually([&] { return keys(fenced) == fence_key(fenced); }));  // it outlives the lock
}

TEST_CASE("a guard that ends after a loss leaves the next owner's lock alone") {
    connection_fixtures::over_each fixture;
    const auto name = connection_fixtures::fresh_name();
    const bool same_object = GENERATE(false, true);
    distlock::mutex m{fixture.connection, name, {.lease = lease}};
    distlock::mutex n{fixture.connection, name, {.lease = lease}};
    auto guard = std::make_optional<distlock::scoped_lock<decltype(m)>>(m);
    fixture.server().command({"DEL", name});
    REQUIRE(eventually([&] { return !guard->owns_lock(); }));
    auto& next = same_object ? m : n;
    next.lock();
    const auto token = fixture.server().command({"GET", name});
    guard.reset();
    CHECK(fixture.server().command({"GET", name}) == token);
    CHECK(next.owns_lock());
    CHECK(next.unlock() == fixture.said());
}

TEST_CASE("a lost lock can be taken again through the same mutex, and is told as lost again") {
    connection_fixtures::over_each fixture;
    const auto name = connection_fixtures::fresh_name();
    const auto told = std::make_shared<recording_observer>();
    distlock::mutex m{fixture.connection, name, {.lease = lease}, told};
    std::stop_token before;
    for (std::size_t i = 1; i <= 2; ++i) {
        REQUIRE(m.try_lock());
        CHECK(m.owns_lock());
        const auto lost = m.lost();
        CHECK(lost != before);
        before = lost;
        const stop_time told_lost(lost);
        const auto end = m.valid_until();
        fixture.server().command({"DEL", name});
        REQUIRE(told_lost.wait());
        CHECK(told_lost.at() < end);
        if (i == 1) CHECK(m.unlock() == release_outcome::expired);  // the second time it is left out
        REQUIRE(eventually([&] { return told->losses().size() == i; }));
    }
    REQUIRE(m.try_lock());
    CHECK(m.unlock() == fixture.said());
    CHECK(m.unlock() == release_outcome::expired);  // the one that was left out
    CHECK(m.unlock() == release_outcome::not_held);
    CHECK(told->losses() == reasons(2, loss_reason::expired));
}

TEST_CASE("a loss lets in at once who waits for the same mutex object") {
    std::atomic<clk::time_point> entered{};
    connection_fixtures::over_each fixture;
    const auto name = connection_fixtures::fresh_name();
    distlock::mutex m{fixture.connection, name, {.lease = lease}};
    m.lock();
    const auto end = m.valid_until();
    auto outcome = release_outcome::not_held;
    std::jthread next([&] {
        m.lock();
        entered = clk::now();
        outcome = m.unlock();
    });
    distlock::force_release(fixture.connection, name);
    next.join();
    CHECK(entered.load() < end);
    CHECK(outcome == fixture.said());
    CHECK(m.unlock() == release_outcome::expired);
}

TEST_CASE("a mutex can be destroyed by what is told of its loss") {
    std::atomic<bool> gone{false};
    connection_fixtures::over_each fixture;
    using mutex_type = distlock::mutex<decltype(fixture.connection)>;
    const bool at_a_renewal = GENERATE(true, false);
    const bool by_the_observer = GENERATE(true, false);
    const auto name = connection_fixtures::fresh_name();
    std::unique_ptr<mutex_type> m;
    const std::function<void()> destroy = [&] {
        m.reset();
        gone = true;
    };
    lock_options options{.lease = short_lease};
    if (!at_a_renewal) options.max_hold = 300ms;  // more than lock() takes: it returns to what is there
    const auto observer = by_the_observer ? at_a_loss(destroy) : nullptr;
    m = std::make_unique<mutex_type>(fixture.connection, name, options, observer);
    m->lock();
    std::optional<std::stop_callback<std::function<void()>>> callback;
    // Where it is lost already, the callback runs here.
    if (!by_the_observer) callback.emplace(m->lost(), destroy);
    if (at_a_renewal) fixture.server().command({"DEL", name});
    REQUIRE(eventually([&] { return gone.load(); }));
    CHECK(fixture.server().command({"EXISTS", name}) == "0");
    distlock::mutex next{fixture.connection, name, {.max_hold = 30ms + 4 * round_trip()}};
    REQUIRE(next.try_lock());
    CHECK(eventually([&] { return next.lost().stop_requested(); }));  // others are told all the same
}

TEST_CASE("an observer may unlock what was lost") {
    unlocks_at_a_loss<distlock::mutex<connection_fixtures::any_of_all>> unlocks;
    connection_fixtures::over_each fixture;
    const auto name = connection_fixtures::fresh_name();
    distlock::mutex m{fixture.connection, name, {.lease = short_lease, .max_hold = 30ms}, unlocks.observer};
    unlocks.lock = &m;
    unlocks.may.open();
    m.lock();
    REQUIRE(unlocks.done());
    CHECK(unlocks.end == release_outcome::expired);
    CHECK(fixture.server().command({"EXISTS", name}) == "0");
    CHECK(m.unlock() == release_outcome::expired);  // its own
    CHECK(m.unlock() == release_outcome::not_held);
}

TEST_CASE("an observer that throws keeps nobody from being told") {
    std::atomic<int> told{0};
    connection_fixtures::over_each fixture;
    const auto throwing = at_a_loss([&] {
        ++told;
        throw std::runtime_error("by the observer");
    });
    distlock::mutex m{fixture.connection,
                      connection_fixtures::fresh_name(),
                      {.max_hold = 30ms + 4 * round_trip()},
                      throwing};
    distlock::mutex n{fixture.connection, connection_fixtures::fresh_name(), {.max_hold = 60ms}, throwing};
    for (int i = 1; i <= 2; ++i) {
        m.lock();
        n.lock();
        const auto m_lost = m.lost();
        const auto n_lost = n.lost();
        CHECK(
            eventually([&] { return m_lost.stop_requested() && n_lost.stop_requested() && told == 2 * i; }));
        CHECK(m.unlock() == release_outcome::expired);
        CHECK(n.unlock() == release_outcome::expired);
    }
}

TEST_CASE("an observer that blocks delays neither stop tokens nor what others are told") {
    std::latch go_on{1};
    connection_fixtures::over_each fixture;
    const auto blocking = at_a_loss([&] { go_on.wait(); });
    const auto told = std::make_shared<recording_observer>();
    distlock::mutex m{fixture.connection,
                      connection_fixtures::fresh_name(),
                      {.max_hold = 30ms + 4 * round_trip()},
                      blocking};
    distlock::mutex n{fixture.connection, connection_fixtures::fresh_name(), {.max_hold = 60ms}, told};
    m.lock();
    n.lock();
    const auto m_lost = m.lost();
    const auto n_lost = n.lost();
    CHECK(eventually(
        [&] { return m_lost.stop_requested() && n_lost.stop_requested() && !told->losses().empty(); }));
    CHECK(m.unlock() == release_outcome::expired);
    CHECK(n.unlock() == release_outcome::expired);
    go_on.count_down();
}

}  // namespace leases_tests
