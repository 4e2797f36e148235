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

#include "catch.hpp"
#include "support/history.hpp"
#include "support/lock_on_server.hpp"
#include "support/rigs.hpp"
#include "support/slack.hpp"

using namespace std::chrono_literals;
using distlock::errc;
using distlock::lock_options;
using clk = distlock::clock;

namespace {

using in_line = std::tuple<rigs::over_unix_socket, rigs::over_tcp>;
using asking = std::tuple<rigs::over_ten_lines, rigs::over_a_lambda>;

// No look comes to the help of who is to be served.
constexpr lock_options no_looks{.recheck = 1h};

template <class Rig>
using mutex_over = distlock::mutex<decltype(Rig::connection)>;

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

  private:
    Mutex mutex_;
    std::stop_source stop_;
    std::future<std::pair<bool, clk::time_point>> served_;
};

template <class Rig>
auto waiting(Rig& rig, const std::string& name, const lock_options& options = no_looks) {
    return std::make_unique<waiter<mutex_over<Rig>>>(rig.connection, name, options);
}

}  // namespace

// ---- in line ----------------------------------------------------------------------------------------------

TEMPLATE_LIST_TEST_CASE("who waits is served in the order of coming, and each at once", "", in_line) {
    TestType rig;
    const auto how = GENERATE(distlock::posted, distlock::confirmed);
    const auto name = rigs::fresh_name();
    const lock_on_server seen(rig.server(), name);
    auto options = no_looks;
    options.release = how;
    distlock::mutex owner{rig.connection, name, options};
    owner.lock();
    std::vector<std::unique_ptr<waiter<mutex_over<TestType>>>> line;
    for (int i = 1; i <= 6; ++i) {
        line.push_back(waiting(rig, name, options));
        REQUIRE(seen.gets(i));
    }
    auto released = clk::now();
    CHECK(owner.unlock() == rigs::said<TestType>(how));
    for (std::size_t i = 0; i < line.size(); ++i) {
        CHECK(line[i]->served_after(released) < slack);
        CHECK(seen.gets(static_cast<int>(line.size() - i - 1)));
        CHECK_FALSE(seen.offered());
        for (std::size_t later = i + 1; later < line.size(); ++later) CHECK(line[later]->waits());
        released = clk::now();
        CHECK(line[i]->unlock() == rigs::said<TestType>(how));
    }
    CHECK(eventually([&] { return seen.untouched(); }));
}

TEMPLATE_LIST_TEST_CASE(
    "a lock that is handed on belongs to one: threads and processes in line exclude each other", "",
    in_line) {
    TestType rig;
    const auto name = rigs::fresh_name();
    turns_taken told;
    {
        std::deque<mutex_over<TestType>> one_each;
        for (int i = 0; i < 6; ++i) one_each.emplace_back(rig.connection, name, no_looks);
        told = take_turns(6, 50, [&](int who, auto inside) {
            auto& m = one_each[static_cast<std::size_t>(who)];
            const std::lock_guard guard{m};
            inside(m);
        });
    }
    CHECK(told.grants == 300);
    CHECK(told.contended > 0);
    CHECK(told.text() == "");
    CHECK(eventually([&] { return lock_on_server(rig.server(), name).untouched(); }));
}

TEMPLATE_LIST_TEST_CASE("a lock that a stranger deletes is found by who waits, within the recheck", "",
                        in_line) {
    TestType rig;
    const auto name = rigs::fresh_name();
    const lock_on_server seen(rig.server(), name);
    REQUIRE(seen.strangers("20000"));
    auto first = waiting(rig, name, {.recheck = 100ms});
    REQUIRE(seen.gets(1));
    auto second = waiting(rig, name, {.recheck = 1h});
    REQUIRE(seen.gets(2));
    auto deleted = clk::now();
    seen.strangers_release();
    CHECK(first->served_after(deleted) < 100ms + slack);
    CHECK(second->waits());
    CHECK(seen.gets(1));
    deleted = clk::now();
    first->unlock();
    CHECK(second->served_after(deleted) < slack);
    second->unlock();
    CHECK(eventually([&] { return seen.untouched(); }));
}

TEMPLATE_LIST_TEST_CASE("a lock whose count of waiters was deleted with it is found all the same", "",
                        in_line) {
    TestType rig;
    const auto name = rigs::fresh_name();
    const lock_on_server seen(rig.server(), name);
    REQUIRE(seen.strangers("20000"));
    auto one = waiting(rig, name, {.recheck = 100ms});
    REQUIRE(seen.gets(1));
    const auto deleted = clk::now();
    rig.server().command({"DEL", seen.K, seen.W});
    CHECK(one->served_after(deleted) < 100ms + slack);
    one->unlock();
    CHECK(eventually([&] { return seen.untouched(); }));
}

TEMPLATE_LIST_TEST_CASE("a lock whose owner died is found when its lease ends", "", in_line) {
    TestType rig;
    const auto name = rigs::fresh_name();
    const lock_on_server seen(rig.server(), name);
    const auto begun = clk::now();
    REQUIRE(seen.strangers("400"));
    auto one = waiting(rig, name);
    REQUIRE(seen.gets(1));
    const auto took = one->served_after(begun);
    CHECK(took >= 399ms);
    CHECK(took < 400ms + slack);
    one->unlock();
    CHECK(eventually([&] { return seen.untouched(); }));
}

TEMPLATE_LIST_TEST_CASE("a lock that an operator frees by force is found within the recheck", "", in_line) {
    TestType rig;
    const auto name = rigs::fresh_name();
    const lock_on_server seen(rig.server(), name);
    distlock::mutex owner{rig.connection, name};
    owner.lock();
    auto one = waiting(rig, name, {.recheck = 100ms});
    REQUIRE(seen.gets(1));
    const auto freed = clk::now();
    distlock::force_release(rig.connection, name);
    CHECK(one->served_after(freed) < 100ms + slack);
    owner.unlock();
    CHECK(seen.taken());
    one->unlock();
    CHECK(eventually([&] { return seen.untouched(); }));
}

TEMPLATE_LIST_TEST_CASE("who waits behind a waiter that gave up is served when its turn comes", "", in_line) {
    TestType rig;
    const auto name = rigs::fresh_name();
    const lock_on_server seen(rig.server(), name);
    distlock::mutex owner{rig.connection, name, no_looks};
    owner.lock();
    auto first = waiting(rig, name);
    REQUIRE(seen.gets(1));
    auto second = waiting(rig, name);
    REQUIRE(seen.gets(2));
    first->stop();
    CHECK(first->served_after(clk::now()) == 1h);
    CHECK(seen.gets(1));
    const auto released = clk::now();
    owner.unlock();
    CHECK(second->served_after(released) < slack);
    second->unlock();
    CHECK(eventually([&] { return seen.untouched(); }));
}

// ---- every connection -------------------------------------------------------------------------------------

TEMPLATE_LIST_TEST_CASE("a wait ends when its time is up, and leaves nobody counted", "", rigs::all) {
    TestType rig;
    const auto name = rigs::fresh_name();
    const lock_on_server seen(rig.server(), name);
    distlock::mutex owner{rig.connection, name};
    distlock::mutex other{rig.connection, name, {.recheck = GENERATE(5ms, 10s)}};
    owner.lock();
    for (const auto timeout : {0ms, 1ms, 30ms, 300ms}) {
        INFO(timeout.count() << " ms");
        bool got = true;
        const auto took = time_of([&] { got = other.try_lock_for(timeout); });
        CHECK_FALSE(got);
        CHECK(took >= timeout);
        CHECK(took < timeout + slack);
        CHECK(seen.counted() == 0);
    }
    CHECK(owner.owns_lock());
    owner.unlock();
    CHECK(eventually([&] { return seen.untouched(); }));
}

TEMPLATE_LIST_TEST_CASE("a stop request ends a wait at once, and leaves nobody counted", "", rigs::all) {
    TestType rig;
    const auto name = rigs::fresh_name();
    const lock_on_server seen(rig.server(), name);
    distlock::mutex owner{rig.connection, name};
    owner.lock();
    constexpr bool is_counted = distlock::waiting_connection<decltype(TestType::connection)>;
    for (int i = 0; i < 5; ++i) {
        auto other = waiting(rig, name, {.recheck = 10s});
        if (is_counted) REQUIRE(seen.gets(1));
        CHECK(other->waits());
        const auto stopped = clk::now();
        other->stop();
        other->served_after(stopped);
        CHECK(clk::now() - stopped < slack);
        CHECK(seen.counted() == 0);
    }
    owner.unlock();
    CHECK(eventually([&] { return seen.untouched(); }));
}

TEMPLATE_LIST_TEST_CASE("clients that lock by SET NX and compare-and-delete exclude us, and we them", "",
                        rigs::all) {
    TestType rig;
    const auto name = rigs::fresh_name();
    const lock_on_server seen(rig.server(), name);
    REQUIRE(seen.strangers("20000"));
    distlock::mutex ours{rig.connection, name, {.recheck = 50ms}};
    CHECK_FALSE(ours.try_lock());
    CHECK_FALSE(ours.try_lock_for(20ms));
    CHECK(seen.holder() == "a stranger's token");
    seen.strangers_release();
    REQUIRE(ours.try_lock());
    CHECK_FALSE(seen.strangers("20000"));
    auto next = waiting(rig, name, {.recheck = 50ms});
    if (distlock::waiting_connection<decltype(TestType::connection)>) REQUIRE(seen.gets(1));
    ours.unlock();
    CHECK(next->served_after(clk::now()) < slack);
    CHECK_FALSE(seen.strangers("20000"));  // nor while it was between two owners: it has ours in between
    next->unlock();
    CHECK(eventually([&] { return seen.strangers("20000"); }));
    CHECK_FALSE(ours.try_lock());
    seen.strangers_release();
}

// ---- those who cannot wait --------------------------------------------------------------------------------

TEMPLATE_LIST_TEST_CASE("who cannot wait gets the lock by asking, and is never counted", "", asking) {
    TestType rig;
    const auto name = rigs::fresh_name();
    const lock_on_server seen(rig.server(), name);
    distlock::mutex owner{rig.connection, name};
    owner.lock();
    auto other = waiting(rig, name, {.recheck = 20ms});
    CHECK(other->waits());
    CHECK(seen.counted() == 0);
    const auto released = clk::now();
    owner.unlock();
    CHECK(other->served_after(released) < 20ms + slack);
    other->unlock();
    CHECK(eventually([&] { return seen.untouched(); }));
}

TEMPLATE_LIST_TEST_CASE("who cannot wait hands the lock on to who does", "", asking) {
    TestType rig;
    rigs::over_unix_socket line;
    const auto name = rigs::fresh_name();
    const lock_on_server seen(rig.server(), name);
    distlock::mutex owner{rig.connection, name, no_looks};
    owner.lock();
    auto first = waiting(line, name);
    REQUIRE(seen.gets(1));
    auto second = waiting(line, name);
    REQUIRE(seen.gets(2));
    auto released = clk::now();
    CHECK(owner.unlock() == distlock::release_outcome::released);
    CHECK(first->served_after(released) < slack);
    CHECK_FALSE(owner.try_lock());  // a single try takes nothing from those in line
    CHECK(seen.gets(1));
    released = clk::now();
    first->unlock();
    CHECK(second->served_after(released) < slack);
    second->unlock();
    CHECK(owner.try_lock_for(10s));
    owner.unlock();
    CHECK(eventually([&] { return seen.untouched(); }));
}
