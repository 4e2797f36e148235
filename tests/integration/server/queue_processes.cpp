// Waiters in several processes: their order, what one that is stopped or killed costs the others, and what
// all of them cost the server while they wait.
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <fcntl.h>
#include <iterator>
#include <list>
#include <memory>
#include <poll.h>
#include <signal.h>
#include <string>
#include <sys/types.h>
#include <system_error>
#include <thread>
#include <unistd.h>
#include <vector>

#include <distlock/distlock.hpp>
#include <distlock/hiredis.hpp>
#include <distlock/testing.hpp>

#include "support/catch.hpp"
#include "support/interprocess_object.hpp"
#include "support/lock_on_server.hpp"
#include "support/owner_process.hpp"
#include "support/server_counts.hpp"
#include "support/timing_tolerance.hpp"
#include "support/waiting.hpp"

namespace queue_processes_tests {

using namespace std::chrono_literals;
using distlock::hiredis_connection;
using distlock::testing::redis_server;
using clk = distlock::clock;

namespace {

constexpr std::chrono::milliseconds offer = 2s;

// What the processes tell the test.
struct board {
    void serve(int who) {
        order[begun++ % order.size()] = who;
        ++served;  // after it: who sees the number reads the order
    }

    std::array<std::atomic<int>, 256> order{};
    std::atomic<std::size_t> begun{0};
    std::atomic<std::size_t> served{0};
    std::atomic<int> keeps{-1};  // that one does not unlock
    std::atomic<clk::time_point> served_at{};
};

// Processes that are forked before anything else has a thread.
class scene {
  public:
    /// Effects: `count` processes wait for their turn to come.
    explicit scene(int count) {
        for (int i = 0; i < count; ++i) {
            processes_.emplace_back([this, i, uri = server.uri()] {
                while (begun_->load() <= i) ::poll(nullptr, 0, 1);
                hiredis_connection mine(uri);
                distlock::mutex m(mine, "orders");
                m.lock();
                told->served_at = clk::now();
                told->serve(i);
                while (told->keeps == i) ::pause();
                m.unlock();
                return true;
            });
        }
        redis = std::make_unique<hiredis_connection>(server.uri());
        owner = std::make_unique<distlock::mutex<hiredis_connection>>(*redis, "orders");
        owner->lock();
        for (int i = 0; i < count; ++i) {
            ++*begun_;
            REQUIRE(seen.gets(i + 1));
        }
    }

    owner_process& operator[](std::size_t i) {
        auto at = processes_.begin();
        std::advance(at, i);
        return *at;
    }
    std::vector<int> order() const {
        return {told->order.begin(), told->order.begin() + static_cast<std::ptrdiff_t>(told->served.load())};
    }
    bool served(std::size_t so_many) const {
        return eventually([&] { return told->served.load() == so_many; });
    }

    redis_server server;
    lock_on_server seen{server, "orders"};
    interprocess_object<board> told;

  private:
    interprocess_object<std::atomic<int>> begun_;
    std::list<owner_process> processes_;

  public:
    std::unique_ptr<hiredis_connection> redis;
    std::unique_ptr<distlock::mutex<hiredis_connection>> owner;
};

// What holds it ends with the test, which alone keeps the writing end.
class lifeline {
  public:
    lifeline() {
        if (::pipe2(ends_.data(), O_CLOEXEC) != 0) throw std::system_error(errno, std::generic_category());
    }
    lifeline(const lifeline&) = delete;
    lifeline& operator=(const lifeline&) = delete;
    ~lifeline() {
        for (const int end : ends_) ::close(end);
    }
    [[noreturn]] void hold() const {
        ::close(ends_[1]);
        char nothing;
        while (::read(ends_[0], &nothing, 1) > 0) {}
        ::_exit(0);
    }

  private:
    std::array<int, 2> ends_{};
};

}  // namespace

TEST_CASE("waiting processes are served in the order in which they joined, a killed one left out") {
    scene it(6);
    ::kill(it[2].pid(), SIGKILL);
    REQUIRE(eventually([&] { return !it[2].ended_well() && it[2].end() == "signal 9"; }));
    const auto released = clk::now();
    it.owner->unlock();
    REQUIRE(it.served(5));
    CHECK(it.order() == std::vector{0, 1, 3, 4, 5});
    CHECK(it.told->served_at.load() - released < timing_tolerance);  // who is dead costs nothing
    CHECK(eventually([&] { return it.seen.untouched(); }));
}

TEST_CASE("a waiter that was served and is killed keeps the others out for an offer, not for a lease") {
    scene it(3);
    it.told->keeps = 0;
    it.owner->unlock();
    REQUIRE(it.served(1));
    ::kill(it[0].pid(), SIGKILL);
    const auto killed = clk::now();
    REQUIRE(it.served(3));
    CHECK(it.told->served_at.load() - killed < offer + 2 * timing_tolerance);
    CHECK(it.order() == std::vector{0, 1, 2});
}

// The child has the socket on which messages come, so the server takes the waiter for alive.
TEST_CASE("a waiter that has forked and is killed keeps the others out for an offer, not for a lease") {
    const lifeline test;
    redis_server server;
    const lock_on_server seen(server, "orders");
    interprocess_object<std::atomic<bool>> begins;
    interprocess_object<std::atomic<bool>> forks;
    interprocess_object<std::atomic<pid_t>> child;
    owner_process waiter([&, uri = server.uri()] {
        while (!begins->load()) ::poll(nullptr, 0, 1);
        hiredis_connection mine(uri);
        distlock::mutex m(mine, "orders");
        std::jthread waits([&] { m.lock(); });
        while (!forks->load()) ::poll(nullptr, 0, 1);
        const pid_t made = ::fork();
        if (made == 0) test.hold();
        *child = made;
        waits.join();
        return true;
    });
    hiredis_connection redis(server.uri());
    hiredis_connection other(server.uri());
    distlock::mutex owner(redis, "orders");
    distlock::mutex next(other, "orders");
    owner.lock();
    *begins = true;
    REQUIRE(seen.gets(1));
    *forks = true;
    REQUIRE(eventually([&] { return child->load() > 0; }));
    ::kill(waiter.pid(), SIGKILL);
    REQUIRE(eventually([&] { return !waiter.ended_well() && waiter.end() == "signal 9"; }));
    bool had = false;
    clk::time_point served{};
    std::jthread waits([&] {
        had = next.try_lock_for(20s);
        served = clk::now();
    });
    REQUIRE(seen.gets(2));
    const auto released = clk::now();
    owner.unlock();
    waits.join();
    CHECK(had);
    CHECK(served - released >= offer - 1ms);  // the child has it for so long
    CHECK(served - released < offer + 2 * timing_tolerance);
    next.unlock();
    CHECK(eventually([&] { return seen.untouched(); }));
}

TEST_CASE(
    "a waiter that is stopped when it is served keeps the others out for an offer, and finds that it lost "
    "it") {
    scene it(3);
    it[0].stop();
    const auto released = clk::now();
    it.owner->unlock();
    REQUIRE(it.served(2));
    CHECK(it.told->served_at.load() - released >= offer - 1ms);
    CHECK(it.told->served_at.load() - released < offer + 2 * timing_tolerance);
    // It may not believe the message that is there: it asks, and has the lock that is free by now.
    it[0].go_on();
    REQUIRE(it.served(3));
    CHECK(it.order() == std::vector{1, 2, 0});
    CHECK(eventually([&] { return it[0].ended_well(); }));
    CHECK(eventually([&] { return it.seen.untouched(); }));
}

TEST_CASE("two hundred waiters of ten processes cost a server less than a hundred commands a second") {
    constexpr int processes = 10;
    constexpr int threads = 20;
    redis_server server;
    const lock_on_server seen(server, "orders");
    interprocess_object<std::atomic<bool>> begin;
    interprocess_object<std::atomic<int>> served;
    std::list<owner_process> all;
    for (int i = 0; i < processes; ++i) {
        all.emplace_back([&, uri = server.uri()] {
            while (!begin->load()) ::poll(nullptr, 0, 1);
            hiredis_connection redis(uri);
            std::vector<std::jthread> waiters;
            for (int t = 0; t < threads; ++t) {
                waiters.emplace_back([&] {
                    distlock::mutex m(redis, "orders");  // looks as often as it likes
                    m.lock();
                    ++*served;
                    m.unlock();
                });
            }
            return true;
        });
    }
    hiredis_connection redis(server.uri());
    distlock::mutex owner(redis, "orders");
    owner.lock();
    *begin = true;
    REQUIRE(seen.gets(processes * threads));
    // What clients send while they wait, not what scripts call.
    const auto commands = [&] {
        long sum = 0;
        for (const char* const name : {"evalsha", "eval", "ping", "subscribe", "ssubscribe"})
            sum += calls_at(server, name);
        return sum;
    };
    const auto before = commands();
    const auto from = clk::now();
    REQUIRE(eventually([&] { return clk::now() - from >= 5s; }));
    const auto a_second =
        static_cast<double>(commands() - before) / std::chrono::duration<double>(clk::now() - from).count();
    CHECK(a_second < 100);
    CHECK(seen.queued() == processes * threads);
    const auto released = clk::now();
    owner.unlock();
    CHECK(eventually([&] { return served->load() == processes * threads; }));
    CHECK(clk::now() - released < 2s + timing_tolerance);
    CHECK(eventually([&] { return seen.untouched(); }));
}

}  // namespace queue_processes_tests
