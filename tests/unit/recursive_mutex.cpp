// A recursive mutex without memory, which is locked as a whole or not at all; and one that was lost.
#include <atomic>
#include <chrono>
#include <cstddef>
#include <exception>
#include <stop_token>
#include <string>
#include <system_error>
#include <thread>

#include <distlock/base/clock.hpp>
#include <distlock/base/error.hpp>
#include <distlock/base/options.hpp>
#include <distlock/recursive_mutex.hpp>
#include <distlock/testing/manual_clock.hpp>
#include <distlock/wire/outcome.hpp>
#include <distlock/wire/plain.hpp>
#include <distlock/wire/reply.hpp>

#include "support/allocations.hpp"
#include "support/catch.hpp"
#include "support/in_child.hpp"
#include "support/locks_in_memory.hpp"
#include "waiting.hpp"

namespace recursive_mutex_tests {

namespace {

using distlock::lock_options;
using distlock::release_outcome;
using distlock::reply;
using namespace std::chrono_literals;
using recursive = distlock::recursive_mutex<locks_in_memory, distlock::plain>;
using by_manual_clock =
    distlock::recursive_mutex<locks_in_memory, distlock::plain, distlock::testing::manual_clock>;
using distlock::testing::manual_clock;

enum class end { took, threw, nothing_failed };

/// Effects: takes `m` by `take`, while the nth allocation fails.
template <class Take>
end without_memory(long nth, recursive& m, Take take) {
    end what = end::took;
    fail_allocation(nth);
    try {
        if (!take(m)) what = end::threw;
    } catch (const std::exception&) {
        what = end::threw;
    }
    const bool failed = allocation_failed();
    fail_allocation(0);
    if (!failed) REQUIRE(what == end::took);
    return failed ? what : end::nothing_failed;
}

}  // namespace

// The server had granted it, and there was no memory for the entry: nobody had it, and nobody else could.
TEST_CASE("a recursive mutex whose lock() runs out of memory is held or free, wherever that happens") {
    NOT_TESTED_UNLESS(allocations_can_fail(), operator_new_is_not_ours);
    const lock_options options{.renew = GENERATE(false, true), .fencing = GENERATE(false, true)};
    const bool by_code = GENERATE(false, true);
    const auto take = [&](recursive& m) {
        if (!by_code) return m.lock(), true;
        std::error_code ec;
        return m.lock(ec);
    };
    int thrown = 0;
    for (long nth = 1;; ++nth) {
        REQUIRE(nth < 1000);
        INFO("allocation " << nth);
        locks_in_memory server;
        recursive m{server, "orders", options};
        recursive other{server, "orders", options};
        const end what = without_memory(nth, m, take);
        if (what == end::nothing_failed) break;
        if (what == end::took) {
            CHECK(m.hold_count() == 1);
            CHECK(m.owns_lock());
            CHECK(m.unlock() == release_outcome::released);
        }
        thrown += what == end::threw;
        CHECK(m.hold_count() == 0);
        CHECK_FALSE(m.owns_lock());
        CHECK(m.unlock() == release_outcome::not_held);
        CHECK(eventually([&] { return server.owner().empty(); }));
        CHECK(other.try_lock());
        CHECK(other.unlock() == release_outcome::released);
        CHECK(m.try_lock());
        CHECK(m.unlock() == release_outcome::released);
    }
    CHECK(thrown > 0);
}

// It was kept as one that had been used.
TEST_CASE("a recursive mutex whose lock() runs out of memory keeps nobody out for hold_at_least") {
    NOT_TESTED_UNLESS(allocations_can_fail(), operator_new_is_not_ours);
    int thrown = 0;
    for (long nth = 1;; ++nth) {
        REQUIRE(nth < 1000);
        INFO("allocation " << nth);
        locks_in_memory server;
        recursive m{server, "orders", {.lease = 40s, .renew = false, .hold_at_least = 40s}};
        const end what = without_memory(nth, m, [](recursive& one) { return one.lock(), true; });
        if (what == end::nothing_failed) break;
        if (what == end::took) continue;
        ++thrown;
        CHECK(eventually([&] { return server.owner().empty(); }));
    }
    CHECK(thrown > 0);
}

TEST_CASE("a further hold of a recursive mutex needs no memory") {
    NOT_TESTED_UNLESS(allocations_can_fail(), operator_new_is_not_ours);
    locks_in_memory server;
    recursive m{server, "orders", {.renew = false}};
    m.lock();
    for (int i = 0; i < 3; ++i)
        CHECK(without_memory(1, m, [](recursive& r) { return r.lock(), true; }) == end::nothing_failed);
    CHECK(m.hold_count() == 4);
    for (int i = 0; i < 3; ++i) CHECK(m.unlock() == release_outcome::nested);
    CHECK(m.unlock() == release_outcome::released);
}

// It was added to the other thread's acquisition: two threads were in at once.
TEST_CASE("a thread that lost a recursive mutex adds no hold to that of the thread that has it now") {
    manual_clock::reset();
    locks_in_memory server;
    by_manual_clock m{server, "orders", {.lease = 10s, .renew = false}};
    m.lock();
    manual_clock::advance(10s);
    std::atomic<bool> has_it{false};
    std::size_t holds = 0;
    release_outcome end{};
    std::jthread other([&](const std::stop_token& test_ends) {  // it does when a check fails, too
        m.lock();
        has_it = true;
        while (!test_ends.stop_requested()) std::this_thread::yield();
        holds = m.hold_count();
        end = m.unlock();
    });
    REQUIRE(eventually([&] { return has_it.load(); }));
    const auto present = server.owner();
    std::error_code ec;
    CHECK_FALSE(m.lock(ec));
    CHECK(ec == distlock::errc::lease_expired);
    CHECK_FALSE(m.try_lock(ec));
    CHECK(ec == distlock::errc::lease_expired);
    CHECK(m.hold_count() == 1);
    CHECK(m.unlock() == release_outcome::expired);
    CHECK(m.hold_count() == 0);
    CHECK(m.unlock() == release_outcome::not_held);
    CHECK(server.owner() == present);
    other.request_stop();
    other.join();
    CHECK(holds == 1);
    CHECK(end == release_outcome::released);
    CHECK(server.owner().empty());
    CHECK(m.try_lock());
}

TEST_CASE(
    "a thread that unlocks what it lost of a recursive mutex sees who has it now, however it was taken") {
    const bool until = GENERATE(false, true);
    manual_clock::reset();
    locks_in_memory server;
    by_manual_clock m{server, "orders", {.lease = 10s, .renew = false, .fencing = true}};
    const bool took = until ? m.try_lock_until(distlock::clock::now() + 1h) : m.try_lock_for(1s);
    REQUIRE(took);
    manual_clock::advance(10s);
    std::atomic<bool> has_it{false};
    const std::jthread other([&](const std::stop_token& test_ends) {
        m.lock();
        has_it = true;
        while (!test_ends.stop_requested()) std::this_thread::yield();
        m.unlock();
    });
    REQUIRE(eventually([&] { return has_it.load(); }));
    CHECK_FALSE(m.owns_lock());
    CHECK(m.fencing_token() == 0);
    CHECK(m.unlock() == release_outcome::expired);
    CHECK(m.owns_lock());
    CHECK(m.fencing_token() > 0);
}

TEST_CASE("a thread that locks again what it lost of a recursive mutex is told which, and what to do") {
    manual_clock::reset();
    locks_in_memory server;
    by_manual_clock m{server, "orders", {.lease = 10s, .renew = false}};
    m.lock();
    manual_clock::advance(10s);
    std::string said;
    try {
        m.lock();
    } catch (const distlock::error& e) {
        said = e.what();
    }
    CHECK_THAT(said, contains_text("lock orders: "));
    CHECK_THAT(said, contains_text("unlock() it first"));
    CHECK(m.unlock() == release_outcome::expired);
}

TEST_CASE("a recursive mutex tells how long an unlock() that was not confirmed can keep others from it") {
    manual_clock::reset();
    locks_in_memory server;
    by_manual_clock m{server, "orders", {.lease = 30s, .renew = false, .release = distlock::confirmed}};
    m.lock();
    m.lock();
    server.answer("release", reply::no_answer(distlock::errc::no_reply, "no reply in time"));
    CHECK(m.unlock() == release_outcome::nested);
    CHECK(m.residual() == 0s);
    CHECK(m.unlock() == release_outcome::unreachable);
    CHECK(m.residual() == 30s);
    manual_clock::advance(30s);
    CHECK(m.residual() == 0s);
}

TEST_CASE("a child after fork() ends no hold of a recursive mutex, the inner one neither") {
    locks_in_memory server;
    recursive m{server, "orders"};
    m.lock();
    m.lock();
    CHECK(in_child([&] { return m.unlock() == release_outcome::wrong_process; }));
    CHECK(in_child([&] { return m.hold_count() == 0; }));
    CHECK(in_child([&] {
        std::error_code locked, tried;
        return !m.lock(locked) && !m.try_lock(tried) && locked == distlock::errc::wrong_process &&
               tried == distlock::errc::wrong_process;
    }));
    CHECK(m.unlock() == release_outcome::nested);
    CHECK(m.unlock() == release_outcome::released);
}

}  // namespace recursive_mutex_tests
