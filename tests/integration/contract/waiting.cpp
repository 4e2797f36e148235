// What is promised to those who wait for a lock, over every kind of connection and a real server.
#include "support/waiting.hpp"

#include <chrono>
#include <cstddef>
#include <deque>
#include <future>
#include <memory>
#include <mutex>
#include <stop_token>
#include <string>
#include <system_error>
#include <tuple>
#include <utility>
#include <vector>

#include <distlock/inspect.hpp>
#include <distlock/mutex.hpp>

#include "support/answered.hpp"
#include "support/catch.hpp"
#include "support/connection_fixtures.hpp"
#include "support/history.hpp"
#include "support/lock_on_server.hpp"
#include "support/round_trip.hpp"

namespace waiting_tests {

using namespace std::chrono_literals;
using distlock::errc;
using distlock::lock_options;
using clk = distlock::clock;

namespace {

using over_each_asking = connection_fixtures::over_each_of<
    std::tuple<connection_fixtures::over_minimal_connection, connection_fixtures::over_a_lambda>>;

// No look comes to the help of who is to be served.
constexpr lock_options no_looks{.recheck = 1h};

template <class Fixture>
using mutex_over = distlock::mutex<decltype(Fixture::connection)>;

/// One who waits, on a thread and with a mutex object of its own, and tells when it was served.
template <class Mutex>
class waiter {
  public:
    template <class Connection>
    waiter(Connection& connection, const std::string& name, const lock_options& options)
        : mutex_(connection, name, options), served_(std::async(std::launch::async, [this] {
              std::error_code ec;
              const bool got = mutex_.try_lock_for(20s, stop_.get_token(), ec);
              return std::pair(got, clk::now());
          })) {}

    bool waits() const { return served_.wait_for(0s) == std::future_status::timeout; }
    /// Returns: how long after `since` it had the lock; an hour when it never got it.
    std::chrono::milliseconds served_after(clk::time_point since) {
        const auto [got, at] = served_.get();
        if (!got) return 1h;
        return std::chrono::duration_cast<std::chrono::milliseconds>(at - since);
    }
    void stop() { stop_.request_stop(); }
    auto unlock() { return mutex_.unlock(); }
    auto remaining() const { return mutex_.remaining(); }

  private:
    Mutex mutex_;
    std::stop_source stop_;
    std::future<std::pair<bool, clk::time_point>> served_;
};

template <class Fixture>
auto waiting(Fixture& fixture, const std::string& name, const lock_options& options = no_looks) {
    return std::make_unique<waiter<mutex_over<Fixture>>>(fixture.connection, name, options);
}

}  // namespace

// ---- queued -----------------------------------------------------------------------------------------------

TEST_CASE("waiters are served in the order of coming, and each at once") {
    connection_fixtures::over_each_of_ours fixture;
    const auto how = GENERATE(distlock::posted, distlock::confirmed);
    const auto name = connection_fixtures::fresh_name();
    const lock_on_server seen(fixture.server(), name);
    auto options = no_looks;
    options.release = how;
    distlock::mutex owner{fixture.connection, name, options};
    owner.lock();
    std::vector<std::unique_ptr<waiter<mutex_over<connection_fixtures::over_each_of_ours>>>> line;
    for (int i = 1; i <= 6; ++i) {
        line.push_back(waiting(fixture, name, options));
        REQUIRE(seen.gets(i));
    }
    auto released = clk::now();
    CHECK(owner.unlock() == fixture.said(how));
    for (std::size_t i = 0; i < line.size(); ++i) {
        CHECK(line[i]->served_after(released) < round_trip_tolerance);
        CHECK(seen.gets(static_cast<int>(line.size() - i - 1)));
        for (std::size_t later = i + 1; later < line.size(); ++later) CHECK(line[later]->waits());
        released = clk::now();
        CHECK(line[i]->unlock() == fixture.said(how));
    }
    CHECK(eventually([&] { return seen.untouched(); }));
}

TEST_CASE("a waiter that does not renew is handed the lock for its whole lease") {
    connection_fixtures::over_each_of_ours fixture;
    const auto name = connection_fixtures::fresh_name();
    const lock_on_server seen(fixture.server(), name);
    distlock::mutex owner{fixture.connection, name, no_looks};
    owner.lock();
    auto next = waiting(fixture, name, {.renew = false, .recheck = 1h});
    REQUIRE(seen.gets(1));
    owner.unlock();
    REQUIRE(next->served_after(clk::now()) < 1h);
    CHECK(next->remaining() > 10s);
    next->unlock();
}

TEST_CASE("a lock that is handed on belongs to one: queued threads and processes exclude each other") {
    connection_fixtures::over_each_of_ours fixture;
    const auto name = connection_fixtures::fresh_name();
    turns_taken told;
    {
        std::deque<mutex_over<connection_fixtures::over_each_of_ours>> one_each;
        for (int i = 0; i < 6; ++i) one_each.emplace_back(fixture.connection, name, no_looks);
        told = take_turns(6, 50, [&](int who, auto inside) {
            auto& m = one_each[static_cast<std::size_t>(who)];
            const std::lock_guard guard{m};
            inside(m);
        });
    }
    CHECK(told.grants == 300);
    CHECK(told.contended > 0);
    CHECK(told.text() == "");
    CHECK(eventually([&] { return lock_on_server(fixture.server(), name).untouched(); }));
}

TEST_CASE("a lock that a stranger deletes is found by who waits, within the recheck") {
    connection_fixtures::over_each_of_ours fixture;
    const auto name = connection_fixtures::fresh_name();
    const lock_on_server seen(fixture.server(), name);
    REQUIRE(seen.strangers("20000"));
    auto first = waiting(fixture, name, {.recheck = 100ms});
    REQUIRE(seen.gets(1));
    auto second = waiting(fixture, name, {.recheck = 1h});
    REQUIRE(seen.gets(2));
    auto deleted = clk::now();
    seen.strangers_release();
    CHECK(first->served_after(deleted) < 100ms + round_trip_tolerance);
    CHECK(second->waits());
    CHECK(seen.gets(1));
    deleted = clk::now();
    first->unlock();
    CHECK(second->served_after(deleted) < round_trip_tolerance);
    second->unlock();
    CHECK(eventually([&] { return seen.untouched(); }));
}

TEST_CASE("a lock that was deleted with its queue is found all the same") {
    connection_fixtures::over_each_of_ours fixture;
    const auto name = connection_fixtures::fresh_name();
    const lock_on_server seen(fixture.server(), name);
    REQUIRE(seen.strangers("20000"));
    auto one = waiting(fixture, name, {.recheck = 100ms});
    REQUIRE(seen.gets(1));
    const auto deleted = clk::now();
    fixture.server().command({"DEL", seen.lock_key, seen.queue_key});
    CHECK(one->served_after(deleted) < 100ms + round_trip_tolerance);
    one->unlock();
    CHECK(eventually([&] { return seen.untouched(); }));
}

TEST_CASE("a lock whose owner died is found when its lease ends") {
    connection_fixtures::over_each_of_ours fixture;
    const auto name = connection_fixtures::fresh_name();
    const lock_on_server seen(fixture.server(), name);
    const auto begun = clk::now();
    REQUIRE(seen.strangers("400"));
    auto one = waiting(fixture, name);
    REQUIRE(seen.gets(1));
    const auto took = one->served_after(begun);
    CHECK(took >= 399ms);
    CHECK(took < 400ms + round_trip_tolerance);
    one->unlock();
    CHECK(eventually([&] { return seen.untouched(); }));
}

// It only deleted the lock once: whoever waited found it at the next look.
TEST_CASE("a lock that an operator takes away by force is the first waiter's at once") {
    connection_fixtures::over_each_of_ours fixture;
    const auto name = connection_fixtures::fresh_name();
    const lock_on_server seen(fixture.server(), name);
    auto options = no_looks;
    options.fencing = GENERATE(false, true);
    options.lease = GENERATE(1000ms, 30'000ms);
    distlock::mutex owner{fixture.connection, name, {.lease = 1min}};
    owner.lock();
    auto first = waiting(fixture, name, options);
    REQUIRE(seen.gets(1));
    auto second = waiting(fixture, name, options);
    REQUIRE(seen.gets(2));
    const auto forced = clk::now();
    CHECK(distlock::force_release(fixture.connection, name));
    CHECK(first->served_after(forced) < round_trip_tolerance);
    CHECK(second->waits());
    CHECK(seen.gets(1));
    owner.unlock();
    CHECK(seen.taken());
    first->unlock();
    CHECK(second->served_after(forced) < round_trip_tolerance);
    second->unlock();
    CHECK(eventually([&] { return seen.untouched(); }));
}

TEST_CASE("a waiter behind one that gave up is served when its turn comes") {
    connection_fixtures::over_each_of_ours fixture;
    const auto name = connection_fixtures::fresh_name();
    const lock_on_server seen(fixture.server(), name);
    distlock::mutex owner{fixture.connection, name, no_looks};
    owner.lock();
    auto first = waiting(fixture, name);
    REQUIRE(seen.gets(1));
    auto second = waiting(fixture, name);
    REQUIRE(seen.gets(2));
    first->stop();
    CHECK(first->served_after(clk::now()) == 1h);
    CHECK(seen.gets(1));
    const auto released = clk::now();
    owner.unlock();
    CHECK(second->served_after(released) < round_trip_tolerance);
    second->unlock();
    CHECK(eventually([&] { return seen.untouched(); }));
}

// ---- every connection -------------------------------------------------------------------------------------

TEST_CASE("a wait ends when its time is up, and leaves no ticket") {
    connection_fixtures::over_each fixture;
    const auto name = connection_fixtures::fresh_name();
    const lock_on_server seen(fixture.server(), name);
    distlock::mutex owner{fixture.connection, name};
    distlock::mutex other{fixture.connection, name, {.recheck = GENERATE(5ms, 10s)}};
    owner.lock();
    for (const auto timeout : {0ms, 1ms, 30ms, 300ms}) {
        if (timeout < 300ms && !answers_come_at_once()) continue;
        INFO(timeout.count() << " ms");
        int asked = 0;
        std::chrono::milliseconds took{};
        CHECK_FALSE(answered([&] {
            ++asked;
            bool got = true;
            took = time_of([&] { got = other.try_lock_for(timeout); });
            return got;
        }));
        CHECK(took >= timeout);
        CHECK(took < timeout + round_trip_tolerance);
        // That of one which was not answered is taken back behind it.
        CHECK((asked == 1 ? seen.queued() == 0 : seen.gets(0)));
    }
    CHECK(owner.owns_lock());
    owner.unlock();
    CHECK(eventually([&] { return seen.untouched(); }));
}

TEST_CASE("a stop request ends a wait at once, and leaves no ticket") {
    connection_fixtures::over_each fixture;
    const auto name = connection_fixtures::fresh_name();
    const lock_on_server seen(fixture.server(), name);
    distlock::mutex owner{fixture.connection, name};
    owner.lock();
    const bool is_queued = fixture.subscribes();
    for (int i = 0; i < 5; ++i) {
        auto other = waiting(fixture, name, {.recheck = 10s});
        if (is_queued) REQUIRE(seen.gets(1));
        CHECK(other->waits());
        const auto stopped = clk::now();
        other->stop();
        other->served_after(stopped);
        CHECK(clk::now() - stopped < round_trip_tolerance);
        CHECK(seen.gets(0));
    }
    owner.unlock();
    CHECK(eventually([&] { return seen.untouched(); }));
}

TEST_CASE("clients that lock by SET NX and compare-and-delete exclude us, and we them") {
    connection_fixtures::over_each fixture;
    const auto name = connection_fixtures::fresh_name();
    const lock_on_server seen(fixture.server(), name);
    REQUIRE(seen.strangers("20000"));
    distlock::mutex ours{fixture.connection, name, {.recheck = 50ms}};
    CHECK_FALSE(ours.try_lock());
    CHECK_FALSE(answered([&] { return ours.try_lock_for(20ms + 4 * round_trip()); }));
    CHECK(seen.holder() == "a stranger's token");
    seen.strangers_release();
    REQUIRE(ours.try_lock());
    CHECK_FALSE(seen.strangers("20000"));
    auto next = waiting(fixture, name, {.recheck = 50ms});
    if (fixture.subscribes()) REQUIRE(seen.gets(1));
    ours.unlock();
    CHECK(next->served_after(clk::now()) < round_trip_tolerance);
    CHECK_FALSE(seen.strangers("20000"));  // nor while it was between two owners: it has ours in between
    next->unlock();
    CHECK(eventually([&] { return seen.strangers("20000"); }));
    CHECK_FALSE(ours.try_lock());
    seen.strangers_release();
}

// ---- those who cannot wait --------------------------------------------------------------------------------

TEST_CASE("a poller gets the lock by asking, and has no ticket") {
    over_each_asking fixture;
    const auto name = connection_fixtures::fresh_name();
    const lock_on_server seen(fixture.server(), name);
    distlock::mutex owner{fixture.connection, name};
    owner.lock();
    auto other = waiting(fixture, name, {.recheck = 20ms});
    CHECK(other->waits());
    CHECK(seen.queued() == 0);
    const auto released = clk::now();
    owner.unlock();
    CHECK(other->served_after(released) < 20ms + round_trip_tolerance);
    other->unlock();
    CHECK(eventually([&] { return seen.untouched(); }));
}

TEST_CASE("a poller hands the lock over to a waiter") {
    over_each_asking fixture;
    connection_fixtures::over_unix_socket line;
    const auto name = connection_fixtures::fresh_name();
    const lock_on_server seen(fixture.server(), name);
    distlock::mutex owner{fixture.connection, name, no_looks};
    owner.lock();
    auto first = waiting(line, name);
    REQUIRE(seen.gets(1));
    auto second = waiting(line, name);
    REQUIRE(seen.gets(2));
    auto released = clk::now();
    CHECK(owner.unlock() == distlock::release_outcome::released);
    CHECK(first->served_after(released) < round_trip_tolerance);
    CHECK_FALSE(owner.try_lock());  // a single try takes nothing from queued waiters
    CHECK(seen.gets(1));
    released = clk::now();
    first->unlock();
    CHECK(second->served_after(released) < round_trip_tolerance);
    second->unlock();
    CHECK(owner.try_lock_for(10s));
    owner.unlock();
    CHECK(eventually([&] { return seen.untouched(); }));
}

}  // namespace waiting_tests
