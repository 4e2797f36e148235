// Threads that share a lock object: when one passes the lock on to the next, with which fence, and whose a
// late unlock() is; by a clock that a test moves.
#include <chrono>
#include <cstdint>
#include <latch>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include <distlock/base/options.hpp>
#include <distlock/base/token.hpp>
#include <distlock/engine/action.hpp>
#include <distlock/engine/mutex_state.hpp>
#include <distlock/engine/renewal.hpp>
#include <distlock/mutex.hpp>
#include <distlock/scoped_lock.hpp>
#include <distlock/testing/manual_clock.hpp>
#include <distlock/testing/scripted_connection.hpp>
#include <distlock/wire/plain.hpp>

#include "support/catch.hpp"
#include "support/locks_in_memory.hpp"
#include "support/sleepers.hpp"
#include "support/waiting.hpp"

namespace mutex_state_tests {

namespace {

using distlock::command;
using distlock::errc;
using distlock::release_outcome;
using distlock::reply;
using distlock::testing::manual_clock;
using namespace std::chrono_literals;
using shared = distlock::mutex<locks_in_memory, distlock::plain, manual_clock>;

constexpr distlock::lock_options for_ten_seconds{.lease = 10s, .renew = false, .local_budget = 1h};
constexpr distlock::lock_options fenced{.lease = 10s, .renew = false, .fencing = true, .local_budget = 1h};

void let_the_lease_run_out() { manual_clock::advance(10s); }

}  // namespace

TEST_CASE("a lock is passed on while half of its lease is left, and no longer") {
    for (const auto had_for : {4s, 6s}) {
        manual_clock::reset();
        locks_in_memory server;
        shared m{server, "orders", for_ten_seconds};
        m.lock();
        const auto until = m.valid_until();
        distlock::clock::time_point next_until{};
        sleeper next([&] {
            m.lock();
            next_until = m.valid_until();
            m.unlock();
        });
        const bool queued = next.sleeps();
        manual_clock::advance(had_for);
        CHECK(m.unlock() == release_outcome::released);
        next.join();
        CHECK(queued);
        const bool passed_on = had_for < 5s;
        CHECK(server.count("release") == (passed_on ? 1 : 2));
        CHECK(next_until == (passed_on ? until : until + had_for));
    }
}

TEST_CASE("a lock whose longest hold is over is passed on to no thread, and its owner is told so") {
    for (int round = 0; round < 20; ++round) {  // the background may be faster
        manual_clock::reset();
        locks_in_memory server;
        shared m{server, "orders", {.lease = 60s, .renew = false, .max_hold = 10s, .local_budget = 1h}};
        m.lock();
        sleeper next([&] {
            m.lock();
            m.unlock();
        });
        const bool queued = next.sleeps();
        manual_clock::advance(10s);
        const auto end = m.unlock();
        // Where it asks before the background has released what was lost, it asks once more.
        const bool had_it = eventually([&] {
            manual_clock::advance(50ms);
            return next.done();
        });
        CHECK(queued);
        CHECK(had_it);
        CHECK(end == release_outcome::expired);
        CHECK(server.count("take") >= 2);
    }
}

namespace {

// Returns: the fencing tokens of so many threads that wait for the lock, which is unlocked after `held`.
std::vector<std::uint64_t> fences_of_waiters(shared& m, int count, distlock::clock::duration held) {
    std::mutex guard;
    std::vector<std::uint64_t> fences;
    std::vector<std::unique_ptr<sleeper>> threads;
    bool queued = true;
    for (int i = 0; i < count; ++i) {
        threads.push_back(std::make_unique<sleeper>([&] {
            m.lock();
            {
                const std::lock_guard one_at_a_time(guard);
                fences.push_back(m.fencing_token());
            }
            m.unlock();
        }));
        queued = threads.back()->sleeps() && queued;
    }
    manual_clock::advance(held);
    m.unlock();
    for (const auto& thread : threads) thread->join();
    CHECK(queued);
    return fences;
}

}  // namespace

// The server makes fences of its clock: the next process's could have been smaller than one that was used.
TEST_CASE("fencing tokens of a process grow more slowly than the clock, and the server is asked for more") {
    manual_clock::reset();
    locks_in_memory server;
    shared m{server, "orders", fenced};
    m.lock();
    const auto first = m.fencing_token();
    // The clock stands still again: of so many microseconds three may be used.
    const auto fences = fences_of_waiters(m, 6, 4us);
    constexpr auto step = locks_in_memory::fence_step;
    CHECK(fences == std::vector<std::uint64_t>{first + 1, first + 2, first + 3, first + step,
                                               first + 2 * step, first + 3 * step});
}

// The server's next fence is so far beyond the last one where its clock was set back: with a million it ran
// away from the clock.
TEST_CASE("threads of a process use 249 fencing tokens of a grant, however long they have it") {
    manual_clock::reset();
    locks_in_memory server;
    shared m{server, "orders", {.lease = 60s, .renew = false, .fencing = true, .local_budget = 10s}};
    m.lock();
    const auto first = m.fencing_token();
    const auto fences = fences_of_waiters(m, 250, 1s);
    REQUIRE(fences.size() == 250);
    CHECK(fences[248] == first + 249);
    CHECK(fences[249] == first + locks_in_memory::fence_step);
}

// The late unlock() of a thread that lost the lock is waited for; the end of a guard says by itself which
// acquisition it means.
TEST_CASE("a lock that a guard passed on, and that was lost, is not released by the thread that had it") {
    manual_clock::reset();
    locks_in_memory server;
    shared m{server, "orders", for_ten_seconds};
    std::optional<distlock::scoped_lock<shared>> guard(std::in_place, m);
    std::latch has_it{1};
    std::latch go_on{1};
    release_outcome end{};
    bool told_of_the_present = false;
    sleeper next([&] {
        m.lock();
        has_it.count_down();
        go_on.wait();
        end = m.unlock();
        told_of_the_present = m.owns_lock();
    });
    const bool queued = next.sleeps();
    guard.reset();
    has_it.wait();
    const auto asked = server.count("release");
    let_the_lease_run_out();
    m.lock();
    const auto present = server.owner();
    go_on.count_down();
    next.join();
    CHECK(queued);
    CHECK(asked == 0);  // it was passed on
    CHECK(end == release_outcome::expired);
    CHECK(told_of_the_present);  // its own is over, and its unlock() came
    CHECK(server.owner() == present);
    CHECK(m.owns_lock());
    CHECK(m.unlock() == release_outcome::released);
}

TEST_CASE("a lock that was passed on to a guard, and lost, leaves no unlock() to be waited for") {
    manual_clock::reset();
    locks_in_memory server;
    shared m{server, "orders", for_ten_seconds};
    m.lock();
    std::latch has_it{1};
    std::latch go_on{1};
    sleeper next([&] {
        const distlock::scoped_lock guard{m};
        has_it.count_down();
        go_on.wait();
    });
    const bool queued = next.sleeps();
    m.unlock();
    has_it.wait();
    const auto asked = server.count("release");
    let_the_lease_run_out();
    m.lock();
    go_on.count_down();
    next.join();
    release_outcome handed_over{};  // to a third thread, which unlocks
    std::jthread([&] { handed_over = m.unlock(); }).join();
    CHECK(queued);
    CHECK(asked == 0);
    CHECK(handed_over == release_outcome::released);
    CHECK(server.owner().empty());
}

// It took the late unlock of another thread for its own, and that freed the present owner's lock.
TEST_CASE("a guard that adopts what another thread has unlocked leaves the late unlock of a third alone") {
    manual_clock::reset();
    locks_in_memory server;
    shared m{server, "orders", for_ten_seconds};
    m.lock();
    let_the_lease_run_out();
    std::jthread([&] { m.unlock(); }).join();  // as an observer may
    std::latch lost{1};
    std::latch followed{1};
    auto late = release_outcome::not_held;
    std::jthread slow([&] {
        m.lock();
        let_the_lease_run_out();
        lost.count_down();
        followed.wait();
        late = m.unlock();
    });
    lost.wait();
    std::jthread([&] { m.lock(); }).join();
    const auto present = server.owner();
    {
        const distlock::scoped_lock none{std::adopt_lock, m};
        CHECK_FALSE(none.owns_lock());
    }
    followed.count_down();
    slow.join();
    CHECK(late == release_outcome::expired);
    CHECK(server.owner() == present);
}

TEST_CASE("a guard that adopts a lost lock takes its late unlock: the next one frees what another has left") {
    manual_clock::reset();
    locks_in_memory server;
    shared m{server, "orders", for_ten_seconds};
    m.lock();
    let_the_lease_run_out();
    std::jthread([&] { m.lock(); }).join();
    {
        const distlock::scoped_lock none{std::adopt_lock, m};
        CHECK_FALSE(none.owns_lock());
    }
    CHECK(m.unlock() == release_outcome::released);
    CHECK(server.owner().empty());
}

TEST_CASE("a lock whose first request was not answered is released by post, too, and its token repeated") {
    struct posting : distlock::testing::scripted_connection {
        using scripted_connection::scripted_connection;
        bool post(const command&) { return ++posted > 0; }
        int posted = 0;
    };
    manual_clock::reset();
    const reply ok = reply::status("OK");
    posting redis{reply::no_answer(errc::no_reply, "lost"), ok, ok};
    distlock::mutex<posting, distlock::plain, manual_clock> m{redis, "orders", {.renew = false}};
    m.lock();
    CHECK(m.unlock() == release_outcome::posted);
    CHECK(m.residual() > 30s);
    m.lock();
    CHECK(m.unlock() == release_outcome::posted);
    CHECK(redis.posted == 2);
    CHECK(redis.left() == 0);
}

TEST_CASE(
    "a thread that gave up what it had lost owes no unlock(), and ends what others have as anybody does") {
    using distlock::engine::mutex_state;
    const auto me = std::this_thread::get_id();
    mutex_state state("orders", nullptr);
    distlock::engine::grant got;
    got.token = distlock::token::generate();
    got.ttl = 10s;
    const distlock::engine::lease_terms terms{.lease = 10s};
    const bool gives_up = GENERATE(true, false);
    state.start_remote();
    state.hold(got, terms, me, false, {});
    state.start_remote();  // another thread, after the loss
    if (gives_up) state.gave_up(me, 0);
    state.hold(got, terms, std::thread::id(), false, {});
    CHECK(state.unlock_by(me) ==
          (gives_up ? mutex_state::unlocking::ends : mutex_state::unlocking::too_late));
}

}  // namespace mutex_state_tests
