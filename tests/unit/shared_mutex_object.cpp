// One mutex object, many threads: the waiters inside a process, with scripted connections.
#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <latch>
#include <memory>
#include <mutex>
#include <optional>
#include <signal.h>
#include <stop_token>
#include <string>
#include <sys/wait.h>
#include <system_error>
#include <thread>
#include <type_traits>
#include <unistd.h>
#include <utility>
#include <vector>

#include <distlock/mutex.hpp>
#include <distlock/net/receipt.hpp>
#include <distlock/scoped_lock.hpp>
#include <distlock/testing/manual_clock.hpp>
#include <distlock/testing/scripted_connection.hpp>
#include <distlock/try_lock_for.hpp>

#include "support/allocations.hpp"
#include "support/catch.hpp"
#include "support/elsewhere.hpp"
#include "support/gate.hpp"
#include "support/handoff_answers.hpp"
#include "support/handoff_names.hpp"
#include "support/locks_in_memory.hpp"
#include "support/publishing_connection.hpp"
#include "support/sleepers.hpp"
#include "support/stoppable.hpp"
#include "support/timing_tolerance.hpp"
#include "support/waiting.hpp"

namespace shared_mutex_object_tests {

using namespace std::chrono_literals;
using distlock::command;
using distlock::errc;
using distlock::release_outcome;
using distlock::reply;
using distlock::testing::manual_clock;

namespace {

const reply granted = handoff_answers::granted("", 10'000);

using shared = distlock::mutex<locks_in_memory, distlock::handoff, manual_clock>;

void let_the_lease_run_out() { manual_clock::advance(10s); }

const reply nobody_there = reply::not_sent(errc::unreachable, "gone");

}  // namespace

TEST_CASE("however many threads still owe an unlock, none of them frees the present lock") {
    manual_clock::reset();
    locks_in_memory server;
    shared m{server, "orders", {.lease = 10s, .renew = false}};
    constexpr int owing = 100;
    std::latch all_have_had_it{owing};
    std::latch now_unlock{1};
    std::vector<std::jthread> threads;
    std::mutex one_at_a_time;
    std::atomic<int> expired{0};
    for (int i = 0; i < owing; ++i) {
        threads.emplace_back([&] {
            {
                const std::lock_guard turn(one_at_a_time);
                m.lock();
                let_the_lease_run_out();
            }
            all_have_had_it.count_down();
            now_unlock.wait();
            if (m.unlock() == release_outcome::expired)
                ++expired;  // Catch's macros are for one thread at a time
        });
    }
    all_have_had_it.wait();
    m.lock();
    const auto present = server.owner();
    now_unlock.count_down();
    threads.clear();
    CHECK(expired == owing);
    CHECK(server.owner() == present);
    CHECK(m.owns_lock());
    CHECK(m.unlock() == release_outcome::released);
}

TEST_CASE("a lock handed to another thread and lost there is not taken for the one that followed") {
    manual_clock::reset();
    locks_in_memory server;
    shared m{server, "orders", {.lease = 10s, .renew = false}};
    std::unique_lock<shared> handed_over{m};
    let_the_lease_run_out();
    std::latch taken{1};
    std::latch done{1};
    auto outcome = release_outcome::not_held;
    std::jthread next([&] {
        m.lock();
        taken.count_down();
        done.wait();
        outcome = m.unlock();
    });
    taken.wait();
    const auto present = server.owner();
    run_elsewhere([&, mine = std::move(handed_over)]() mutable { mine.unlock(); });
    CHECK(server.owner() == present);
    done.count_down();
    next.join();
    CHECK(outcome == release_outcome::released);
}

TEST_CASE("a thread that waits while another asks sees the end of the lease that one got") {
    distlock::testing::scripted_connection redis;
    distlock::mutex m{redis, "orders", {.lease = 100ms, .renew = false}};
    std::latch waiting{1};
    std::jthread second;
    bool got = false;
    redis.then(
        [&] {  // while the first asks, the second comes and waits in the process
            second = std::jthread([&] {
                waiting.count_down();
                got = m.try_lock_for(20s);  // the first never unlocks
            });
            waiting.wait();
        },
        reply::status("OK"));
    redis.then(reply::status("OK"));
    redis.then(reply::integer(1));
    const auto start = distlock::clock::now();
    m.lock();
    second.join();
    CHECK(got);
    CHECK(distlock::clock::now() - start < 100ms + timing_tolerance);
}

TEST_CASE("a thread that finds another of its process busy with a silent server hears of the server") {
    distlock::testing::scripted_connection redis;
    distlock::mutex m{redis, "orders", {.patience = 20s}};
    std::latch asked{1};
    std::latch checked{1};
    redis.then(reply::not_sent(errc::unreachable, "gone"));
    redis.then(
        [&] {
            asked.count_down();
            checked.wait();
        },
        granted);
    std::jthread first([&] { m.lock(); });
    asked.wait();
    std::error_code ec;
    CHECK_FALSE(m.try_lock(ec));
    CHECK(ec == errc::unreachable);
    CHECK_FALSE(m.try_lock_for(1ms, ec));
    CHECK(ec == errc::unreachable);
    checked.count_down();
    first.join();
    redis.then(reply::integer(1));
    CHECK(m.unlock() == release_outcome::released);
}

namespace {

// A server that keeps the first command waiting; a thread asks it.
struct silent_server {
    reply execute(const command&) {
        const std::lock_guard one_at_a_time(lock);
        asked.count_down();
        answered.wait();
        return answer;
    }
    std::chrono::milliseconds command_timeout() const { return timeout; }
    std::chrono::milliseconds connect_timeout() const { return connecting; }

    std::chrono::milliseconds timeout{10'000};
    std::chrono::milliseconds connecting{0};
    reply answer = reply::no_answer(errc::no_reply, "no reply in time");
    std::latch asked{1};
    std::latch answered{1};
    std::mutex lock;
};

}  // namespace

// The second was told that somebody else has the lock, while the first had not had an answer yet.
TEST_CASE("a try beside a thread that was not answered yet waits for that answer, and says what it says") {
    const auto both = [](reply answer) {
        silent_server server;
        server.answer = std::move(answer);
        distlock::mutex m{server, "orders", {.patience = 0ms}};
        std::pair<std::error_code, std::error_code> causes;
        std::pair<bool, bool> had;
        sleeper first([&] { had.first = m.try_lock(causes.first); });
        server.asked.wait();
        sleeper second([&] { had.second = m.try_lock(causes.second); });
        CHECK(second.sleeps());
        CHECK_FALSE(second.done());
        const auto took = time_of([&] {
            server.answered.count_down();
            first.join();
            second.join();
        });
        CHECK(took < 500ms + timing_tolerance);
        if (had.first || had.second) m.unlock();
        CHECK_FALSE(had.second);
        return std::pair(had.first ? std::error_code() : causes.first, causes.second);
    };
    const auto granted_it = both(reply::status("OK"));
    CHECK_FALSE(granted_it.first);
    CHECK_FALSE(granted_it.second);
    const auto lost_it = both(reply::no_answer(errc::no_reply, "no reply in time"));
    CHECK(lost_it.first == errc::no_reply);
    CHECK(lost_it.second == errc::no_reply);
    const auto refused = both(reply::error("LOADING the dataset"));
    CHECK(refused.first == errc::unavailable);
    CHECK(refused.second == errc::unavailable);
}

// While one thread waited, no other of its object was told.
TEST_CASE("a try beside a thread that waits is told, too, that the owner's key never expires") {
    struct endless_owner {
        reply execute(const command& cmd) {
            if (cmd.argv()[0] == "SET") return reply::nil();
            ++looks;
            return handoff_answers::taken(-1);
        }
        std::atomic<int> looks{0};
    };
    endless_owner server;
    distlock::mutex m{server, "orders", {.patience = 0ms}};
    std::error_code of_first;
    std::jthread first([&](const std::stop_token& stop) { m.lock(stop, of_first); });
    REQUIRE(eventually([&] { return server.looks > 1; }));
    std::error_code ec;
    CHECK_FALSE(m.try_lock(ec));
    CHECK(ec == errc::holder_without_ttl);
    CHECK_FALSE(m.try_lock_for(1ms, ec));
    CHECK(ec == errc::holder_without_ttl);
    CHECK_FALSE(m.try_lock());
    first.request_stop();
    first.join();
    CHECK(of_first == errc::cancelled);
}

// It was told that somebody else has the lock, whatever had become of the server since the last re-check.
TEST_CASE("a try beside a thread that waits is told what the server says now, where a question has an end") {
    struct timed : locks_in_memory {
        std::chrono::milliseconds command_timeout() const { return 200ms; }
    };
    struct row {
        reply says;
        std::error_code told;
    };
    const row rows[] = {{reply::integer(-1), {}},
                        {reply::error("READONLY x"), errc::read_only},
                        {reply::error("LOADING x"), errc::unavailable},
                        {reply::error("WRONGTYPE x"), errc::wrong_type},
                        {reply::error("NOPERM x"), {}},  // it may be allowed to do all but renew
                        {reply::no_answer(errc::no_reply, "x"), errc::no_reply},
                        {nobody_there, errc::unreachable}};
    const distlock::lock_options seldom{.lease = 1h, .renew = false, .recheck = 1h};
    const auto asked = [&](auto& server, auto check) {
        manual_clock::reset();
        using lock =
            distlock::mutex<std::remove_reference_t<decltype(server)>, distlock::handoff, manual_clock>;
        lock owner{server, "orders", seldom};
        owner.lock();
        lock m{server, "orders", seldom};
        stoppable first(m);
        REQUIRE(eventually([&] { return server.count("take") == 3; }));
        CHECK(first.sleeps());
        gate end;  // what it hears from now on would count for one of the rows
        for (const row& is : rows) {
            server.instead([&](const std::string& what) -> std::optional<reply> {
                if (what == "take") end.pass();
                return what == "renew" ? std::optional(is.says) : std::nullopt;
            });
            manual_clock::advance(1s);
            std::error_code ec;
            CHECK_FALSE(m.try_lock(ec));
            check(is, ec);
        }
        end.open();
        first.stop();
        server.instead({});
        return server.count("renew");
    };
    timed says_how_long;
    CHECK(asked(says_how_long, [](const row& is, std::error_code ec) { CHECK(ec == is.told); }) ==
          static_cast<int>(std::size(rows)));
    locks_in_memory says_nothing;
    CHECK(asked(says_nothing, [](const row&, std::error_code ec) { CHECK_FALSE(ec); }) == 0);
}

// It was told after a command time-out that the server does not answer, though nothing had been sent yet.
TEST_CASE("a try beside a thread that may still connect waits for that, too") {
    silent_server server;
    server.timeout = 10ms;
    server.connecting = 10s;
    server.answer = reply::error("LOADING the dataset");
    distlock::mutex m{server, "orders", {.patience = 0ms}};
    std::atomic<bool> had = false;
    std::error_code cause;
    sleeper first([&] {
        std::error_code ignored;
        had = m.try_lock(ignored) || had;
    });
    server.asked.wait();
    sleeper second([&] { had = m.try_lock(cause) || had; });
    CHECK_FALSE(eventually([&] { return second.done(); }, 1s));
    server.answered.count_down();
    first.join();
    second.join();
    CHECK_FALSE(had);
    CHECK(cause == errc::unavailable);
}

TEST_CASE("a try waits beside a thread that may connect for longer than a clock can count") {
    silent_server server;
    server.timeout = 10ms;
    server.connecting = std::chrono::milliseconds::max();
    server.answer = reply::error("LOADING the dataset");
    distlock::mutex m{server, "orders", {.patience = 0ms}};
    std::atomic<bool> had = false;
    std::error_code ignored;
    std::error_code cause;
    sleeper first([&] { had = m.try_lock(ignored) || had; });
    server.asked.wait();
    sleeper second([&] { had = m.try_lock(cause) || had; });
    CHECK(second.sleeps());
    CHECK_FALSE(second.done());
    server.answered.count_down();
    first.join();
    second.join();
    CHECK_FALSE(had);
    CHECK(cause == errc::unavailable);
}

TEST_CASE(
    "a try beside a thread that is not answered waits no longer than a command may take, or until it is "
    "stopped") {
    std::atomic<bool> had = false;
    silent_server server;
    server.timeout = 30ms;
    distlock::mutex m{server, "orders", {.patience = 0ms}};
    std::jthread first([&] {
        std::error_code ignored;
        had = m.try_lock(ignored) || had;
    });
    server.asked.wait();
    std::error_code ec;
    CHECK_FALSE(m.try_lock(ec));
    CHECK(ec == errc::no_reply);
    CHECK_FALSE(m.try_lock_for(1ms, ec));
    CHECK(ec == errc::no_reply);
    server.answered.count_down();
    first.join();

    silent_server another;
    distlock::mutex n{another, "orders", {.patience = 0ms}};
    std::jthread asking([&] {
        std::error_code ignored;
        had = n.try_lock(ignored) || had;
    });
    another.asked.wait();
    const auto took = time_of([&] { had = n.try_lock_for(1ms, ec) || had; });
    CHECK(ec == errc::no_reply);
    std::error_code cancelled;
    std::stop_source stop;
    {
        sleeper trying([&] { had = n.try_lock(stop.get_token(), cancelled) || had; });
        CHECK(trying.sleeps());
        stop.request_stop();
        CHECK(eventually([&] { return trying.done(); }, 5s));
        another.answered.count_down();
    }
    asking.join();
    CHECK(took < 1s + timing_tolerance);
    CHECK_FALSE(had);
    CHECK(cancelled == errc::cancelled);
}

TEST_CASE("a try for several locks waits for no other thread's answer before its own time counts") {
    struct silent_about_one : locks_in_memory {
        reply execute(const command& cmd) {
            if (cmd.routing_key() != "b") {
                asked_about_a = true;
                return locks_in_memory::execute(cmd);
            }
            if (!asked_about_b.exchange(true)) asked.count_down();
            answered.wait();
            return reply::no_answer(errc::no_reply, "no reply in time");
        }
        std::chrono::milliseconds command_timeout() const { return 10s; }
        std::atomic<bool> asked_about_a{false};
        std::atomic<bool> asked_about_b{false};
        std::latch asked{1};
        std::latch answered{1};
    };
    silent_about_one server;
    const distlock::lock_options impatient{.renew = false, .patience = 0ms};
    distlock::mutex a{server, "a", impatient};
    distlock::mutex b{server, "b", impatient};
    std::error_code ec;
    std::error_code ignored;
    std::atomic<bool> had = false;
    sleeper other([&] { had = b.try_lock(ignored) || had; });
    server.asked.wait();
    const auto took = time_of([&] { had = distlock::try_lock_for(10ms, ec, a, b) || had; });
    CHECK(ec == errc::no_reply);
    CHECK(took < 1s + timing_tolerance);
    // Nor while there is time: that counts in the queues of both.
    server.asked_about_a = false;
    sleeper both([&] { had = distlock::try_lock_for(8s, ec, a, b) || had; });
    const auto asks_after = time_of([&] { CHECK(eventually([&] { return server.asked_about_a.load(); })); });
    server.answered.count_down();
    both.join();
    other.join();
    CHECK(asks_after < 1s + timing_tolerance);
    CHECK_FALSE(had);
}

// It was told that somebody else has the lock, though the server had not said a word.
TEST_CASE("a try beside a thread that is cancelled unanswered waits for the answer to the next thread") {
    struct one_after_the_other {
        reply execute(const command&) {
            const bool first = calls.fetch_add(1) == 0;
            (first ? cancelled : answered).wait();
            return reply::no_answer(first ? errc::cancelled : errc::no_reply, "no answer");
        }
        std::chrono::milliseconds command_timeout() const { return 10s; }
        std::atomic<int> calls{0};
        std::latch cancelled{1};
        std::latch answered{1};
    };
    one_after_the_other server;
    distlock::mutex m{server, "orders", {.patience = 0ms}};
    std::stop_source stop;
    std::error_code first_ec;
    std::error_code next_ec;
    std::error_code ec;
    std::atomic<int> had{0};
    sleeper first([&] { had += m.lock(stop.get_token(), first_ec); });
    REQUIRE(eventually([&] { return server.calls == 1; }));
    sleeper next([&] { had += m.lock(next_ec); });
    CHECK(next.sleeps());
    sleeper trying([&] { had += m.try_lock(ec); });
    CHECK(trying.sleeps());
    stop.request_stop();
    server.cancelled.count_down();
    first.join();
    REQUIRE(eventually([&] { return server.calls >= 2; }));
    server.answered.count_down();
    next.join();
    trying.join();
    CHECK(had == 0);
    CHECK(first_ec == errc::cancelled);
    CHECK(next_ec == errc::no_reply);
    CHECK(ec == errc::no_reply);
}

// It was told that somebody else has the lock, though nobody asked.
TEST_CASE("a try beside a thread that leaves the lock to others ends that, and hears what the server says") {
    for (const bool is_silent : {false, true}) {
        manual_clock::reset();
        distlock::testing::scripted_connection redis{reply::nil(), reply::integer(1000), reply::status("OK"),
                                                     reply::integer(1)};
        distlock::mutex<distlock::testing::scripted_connection, distlock::plain, manual_clock> m{
            redis, "orders", {.lease = 10min, .renew = false, .patience = 0ms}};
        CHECK_FALSE(m.try_lock());
        m.lock();
        manual_clock::advance(500ms);
        m.unlock();
        if (!is_silent) redis.then(reply::status("OK"));
        std::error_code of_next;
        std::error_code ec = errc::no_reply;
        bool had = true;
        sleeper next([&] { m.lock(of_next); });
        CHECK(next.sleeps());
        CHECK(redis.commands().size() == 4);
        sleeper trying([&] { had = m.try_lock(ec); });
        CHECK(eventually([&] { return trying.done() && next.done(); }));
        manual_clock::advance(1s);
        trying.join();
        next.join();
        CHECK_FALSE(had);
        CHECK(ec == (is_silent ? make_error_code(errc::unreachable) : std::error_code()));
        CHECK(of_next == ec);
        redis.then(reply::integer(1));
        if (!is_silent) CHECK(m.unlock() == release_outcome::released);
    }
}

// It was told that somebody else has the lock: the lease was over, the server hung, and its late
// owner was giving it back.
TEST_CASE("a try beside a thread that gives the lock back to a silent server is told of the server") {
    manual_clock::reset();
    distlock::testing::scripted_connection redis{reply::status("OK")};
    std::latch asked{1};
    std::latch answered{1};
    redis.then(
        [&] {
            asked.count_down();
            answered.wait();
        },
        reply::no_answer(errc::no_reply, "no reply in time"));
    redis.then(reply::no_answer(errc::no_reply, "no reply in time"));
    distlock::mutex<distlock::testing::scripted_connection, distlock::plain, manual_clock> m{
        redis, "orders", {.lease = 10s, .renew = false, .patience = 0ms, .release = distlock::confirmed}};
    m.lock();
    manual_clock::advance(10s);
    sleeper owner([&] { m.unlock(); });
    asked.wait();
    std::error_code ec;
    bool had = true;
    sleeper trying([&] { had = m.try_lock(ec); });
    CHECK(trying.sleeps());
    CHECK_FALSE(trying.done());
    manual_clock::advance(1s);
    CHECK(eventually([&] { return trying.done(); }));
    answered.count_down();
    owner.join();
    trying.join();
    CHECK_FALSE(had);
    CHECK(ec == errc::no_reply);
}

namespace {

// Stands still in the thread that is told to, while the lock object asks for the time.
struct halting_clock : distlock::clock {
    static time_point now() noexcept {
        if (halting && !halted.exchange(true)) {
            while (!go_on) std::this_thread::yield();
            fail_allocation(1);
        }
        return distlock::clock::now();
    }
    static inline thread_local bool halting = false;
    static inline std::atomic<bool> halted = true;
    static inline std::atomic<bool> go_on = false;
};

}  // namespace

// It threw with the object's mutex held, and waited then for its own stop callback, which
// waited for that mutex.
TEST_CASE("a queued thread that is cancelled and has no memory to say so leaves the lock in order") {
    NOT_TESTED_UNLESS(allocations_can_fail(), operator_new_is_not_ours);
    distlock::testing::scripted_connection redis{reply::status("OK"), reply::integer(1)};
    distlock::mutex<distlock::testing::scripted_connection, distlock::handoff, halting_clock> m{
        redis, "a name that is long enough to need memory in a message"};
    m.lock();
    std::stop_source stop;
    std::error_code ec;
    auto& halted = halting_clock::halted;
    sleeper waiter([&] {
        halting_clock::halting = true;
        static_cast<void>(m.try_lock_for(10min, stop.get_token(), ec));
        fail_allocation(0);
    });
    REQUIRE(waiter.sleeps());
    halted = false;  // it stops when it looks at the clock next, with the object's mutex
    REQUIRE(eventually([&] { return halted.load(); }));
    sleeper stopper([&] { stop.request_stop(); });
    REQUIRE(stopper.sleeps());  // in the library's callback
    halting_clock::go_on = true;
    if (!eventually([&] { return waiter.done() && stopper.done(); })) {
        FAIL_CHECK("it hangs");
        std::_Exit(1);
    }
    waiter.join();
    CHECK(ec == std::errc::not_enough_memory);
    CHECK(m.unlock() == release_outcome::released);
}

// It let another thread ask twice: two asked at a time, and the lock of the first was taken
// from it without a word.
TEST_CASE("a thread that fails and has no memory to say so lets one other thread ask, not two") {
    NOT_TESTED_UNLESS(allocations_can_fail(), operator_new_is_not_ours);
    struct full_server {
        reply execute(const command&) {
            if (asked.fetch_add(1) != 0) {
                next.wait();
                return reply::error("NOPERM x");
            }
            first.wait();
            auto refused = reply::error("NOPERM x");
            fail_allocation(nth);
            return refused;
        }
        long nth;
        std::atomic<int> asked{0};
        std::latch first{1};
        std::latch next{1};
    };
    bool failed = true;
    for (long nth = 1; failed; ++nth) {
        full_server server{nth};
        distlock::mutex m{server, "a name that is long enough to need memory in a message"};
        std::error_code ignored;
        std::atomic<int> had{0};
        sleeper first([&] {
            had += m.lock(ignored);
            failed = allocation_failed();
            fail_allocation(0);
        });
        REQUIRE(eventually([&] { return server.asked == 1; }));
        const auto wait = [&] {
            std::error_code also_ignored;
            had += m.lock(also_ignored);
        };
        sleeper second(wait);
        REQUIRE(second.sleeps());
        sleeper third(wait);
        REQUIRE(third.sleeps());
        server.first.count_down();
        first.join();
        REQUIRE(eventually([&] { return server.asked >= 2; }));
        CHECK(third.sleeps());
        CHECK(server.asked == 2);
        server.next.count_down();
        second.join();
        third.join();
        CHECK(had == 0);
        REQUIRE(nth < 50);
    }
}

TEST_CASE("a child destroys a mutex on which threads of its parent wait") {
    locks_in_memory server;
    manual_clock::reset();
    std::optional<shared> m(std::in_place, server, "orders",
                            distlock::lock_options{.lease = 10s, .renew = false});
    m->lock();
    std::latch started{1};
    bool had = false;
    std::jthread waiter([&] {
        started.count_down();
        had = m->try_lock_for(1h);
        m->unlock();
    });
    started.wait();
    const pid_t child = ::fork();
    if (child == 0) {
        std::error_code ec;
        const bool refused = !m->try_lock(ec) && ec == errc::wrong_process &&
                             m->unlock() == release_outcome::wrong_process && !m->owns_lock();
        m.reset();
        ::_exit(refused ? 0 : 1);
    }
    int status = -1;
    const auto deadline = distlock::clock::now() + 10s;
    while (::waitpid(child, &status, WNOHANG) == 0 && distlock::clock::now() < deadline)
        std::this_thread::yield();
    CHECK(status == 0);
    if (status == -1) ::kill(child, SIGKILL);
    CHECK(m->unlock() == release_outcome::released);
    waiter.join();
    CHECK(had);
}

TEST_CASE("a guard that was moved from may outlive its mutex") {
    manual_clock::reset();
    locks_in_memory server;
    auto m = std::make_unique<shared>(server, "orders", distlock::lock_options{.lease = 10s, .renew = false});
    auto guard = std::make_unique<distlock::scoped_lock<shared>>(*m);
    { const auto taken_over = std::move(*guard); }
    m.reset();
    CHECK_FALSE(guard->owns_lock());
    CHECK(guard->remaining() == 0ns);
    CHECK(guard->valid_until() == manual_clock::time_point{});
}

TEST_CASE("a guard whose lease ran out does not swallow another thread's unlock") {
    manual_clock::reset();
    locks_in_memory server;
    shared m{server, "orders", {.lease = 10s, .renew = false}};
    {
        const distlock::scoped_lock stale{m};
        let_the_lease_run_out();
        run_elsewhere([&] { m.lock(); });
        run_elsewhere(
            [&] { CHECK(m.unlock() == release_outcome::released); });  // handed over to a third thread
        CHECK(server.owner().empty());
    }
    CHECK(m.try_lock());
    m.unlock();
}

// It saw the next thread's acquisition, and took it for its own: two threads were in at once.
TEST_CASE(
    "a thread whose acquisition was lost owns nothing when another thread of its process has the lock") {
    manual_clock::reset();
    locks_in_memory server;
    shared m{server, "orders", {.lease = 10s, .renew = false}};
    m.lock();
    CHECK(m.owns_lock());
    let_the_lease_run_out();
    run_elsewhere([&] {
        m.lock();
        CHECK(m.owns_lock());
    });
    CHECK_FALSE(m.owns_lock());
    CHECK(m.valid_until() == manual_clock::time_point{});
    CHECK(m.remaining() == 0ns);
    CHECK(m.lost().stop_requested());
    run_elsewhere([&] { CHECK(m.owns_lock()); });  // who has lost nothing asks about the lock
    CHECK(m.unlock() == release_outcome::expired);
    CHECK(m.owns_lock());
    run_elsewhere([&] { CHECK(m.unlock() == release_outcome::released); });
}

TEST_CASE("threads that queue for a lock lose patience with a silent server together") {
    const auto gone = [](const command&) { return reply::not_sent(errc::unreachable, "gone"); };
    distlock::mutex m{gone, "orders", {.patience = 200ms}};
    const auto start = distlock::clock::now();
    std::atomic<int> unreachable{0};
    {
        std::vector<std::jthread> threads;
        for (int i = 0; i < 8; ++i) {
            threads.emplace_back([&] {
                std::error_code ec;
                if (!m.lock(ec) && ec == errc::unreachable) ++unreachable;
            });
        }
    }
    CHECK(unreachable == 8);
    CHECK(distlock::clock::now() - start <
          2 * 200ms + timing_tolerance);  // a late comer may have a patience of its own
}

namespace {

// A thread waits for a silent server, with a patience of 2 s, and another one behind it, which came so much
// later.
struct queue_for_a_silent_server {
    explicit queue_for_a_silent_server(std::chrono::milliseconds later) {
        manual_clock::reset();
        server.answer("take", nobody_there);
        first.emplace([&] { had = m.lock(of_first); });
        REQUIRE(eventually([&] { return server.count("take") > 0; }));
        REQUIRE(first->sleeps());
        manual_clock::advance(later);
        came = manual_clock::now();
        second.emplace([&] { had = m.lock(stop.get_token(), of_second) || had; });
        REQUIRE(second->sleeps());
    }

    locks_in_memory server;
    shared m{server, "orders", {.lease = 10s, .renew = false, .patience = 2s}};
    std::error_code of_first;
    std::error_code of_second;
    std::stop_source stop;
    bool had = false;
    manual_clock::time_point came;
    std::optional<sleeper> first;
    std::optional<sleeper> second;
};

}  // namespace

TEST_CASE("a thread that comes late to a queue for a silent server has a patience of its own") {
    queue_for_a_silent_server of(1900ms);
    CHECK(ends(*of.first, 1ms));
    CHECK(of.of_first == errc::unreachable);
    CHECK(of.second->sleeps());
    CHECK_FALSE(of.second->done());
    of.stop.request_stop();
    of.second->join();
    CHECK(of.of_second == errc::cancelled);
    CHECK_FALSE(of.had);
}

// It asked for a whole patience more.
TEST_CASE("a thread that waits behind another one for a silent server fails when its own patience is over") {
    queue_for_a_silent_server of(100ms);
    CHECK(ends(*of.first));
    CHECK(of.of_first == errc::unreachable);
    CHECK(ends(*of.second));
    CHECK(of.of_second == errc::unreachable);
    CHECK(manual_clock::now() - of.came >= 2s);
    CHECK(manual_clock::now() - of.came <= 2500ms);
    CHECK_FALSE(of.had);
}

TEST_CASE("a thread that waited behind one that is stopped hears of the server, and of no stop") {
    manual_clock::reset();
    locks_in_memory server;
    gate stopped;
    std::atomic<int> takes{0};
    server.instead([&](const std::string& what) -> std::optional<reply> {
        if (what != "take") return {};
        if (++takes != 2) return nobody_there;
        stopped.pass();
        return reply::no_answer(errc::cancelled, "stopped");
    });
    shared m{server, "orders", {.lease = 10s, .renew = false, .patience = 2s}};
    std::error_code of_first;
    std::error_code of_second;
    std::stop_source stop;
    bool had = false;
    sleeper first([&] { had = m.lock(stop.get_token(), of_first); });
    REQUIRE(eventually([&] {
        if (!stopped.reached()) manual_clock::advance(1ms);
        return stopped.reached();
    }));
    sleeper second([&] { had = m.lock(of_second) || had; });
    REQUIRE(second.sleeps());
    manual_clock::advance(2s);
    stop.request_stop();
    stopped.open();
    CHECK(ends(first));
    CHECK(of_first == errc::cancelled);
    CHECK(ends(second));
    CHECK(of_second == errc::unreachable);
    CHECK_FALSE(had);
}

TEST_CASE(
    "a thread that waits behind a try for several locks does not hear what the server says of another") {
    manual_clock::reset();
    locks_in_memory server;
    server.answer("take", nobody_there);
    shared a{server, "a", {.lease = 10s, .renew = false, .patience = 2s}};
    shared b{server, "b", {.lease = 10s, .renew = false, .patience = 2s}};
    std::error_code of_early;
    std::error_code of_both;
    std::error_code of_second;
    std::atomic<int> had{0};
    sleeper early([&] { had += a.try_lock_for(1ms, of_early); });
    CHECK(ends(early));
    CHECK(of_early == errc::unreachable);
    gate refusal;
    server.instead([&](const std::string& what) -> std::optional<reply> {
        if (!what.empty()) return {};  // of one lock
        refusal.pass();
        return reply::error("NOPERM no permission for b");
    });
    sleeper both([&] { had += distlock::try_lock_for(0s, of_both, a, b); });
    REQUIRE(eventually([&] { return refusal.reached(); }));
    sleeper second([&] { had += a.lock(of_second); });
    REQUIRE(second.sleeps());
    manual_clock::advance(2s);
    refusal.open();
    CHECK(ends(second));
    CHECK_FALSE(of_second);
    CHECK(ends(both));
    CHECK(had == 1);
}

// It failed at once after three seconds in which another owner simply had the lock.
TEST_CASE("a thread's patience with the server is spent by the server's trouble, not by other owners") {
    manual_clock::reset();
    locks_in_memory server;
    server.give_to("somebody");
    shared m{server, "orders", {.lease = 10s, .renew = false, .patience = 2s}};
    std::error_code of_first;
    std::error_code of_second;
    bool had = false;
    sleeper first([&] { had = m.try_lock_for(3s, of_first); });
    REQUIRE(first.sleeps());
    sleeper second([&] { had = m.lock(of_second) || had; });
    REQUIRE(second.sleeps());
    manual_clock::advance(2900ms);
    server.answer("take", reply::no_answer(errc::no_reply, "no reply in time"));
    CHECK(ends(first));
    CHECK(of_first == errc::no_reply);
    CHECK(second.sleeps());
    CHECK_FALSE(second.done());
    server.delete_key();
    server.as_usual();
    CHECK(eventually([&] {
        manual_clock::advance(1ms);
        return second.done();
    }));
    second.join();
    CHECK(had);
    CHECK_FALSE(of_second);
}

TEST_CASE("threads that queue for a lock while the server is down share the patience: all fail after it") {
    manual_clock::reset();
    locks_in_memory server;
    server.answer("take", nobody_there);
    shared m{server, "orders", {.lease = 10s, .renew = false, .patience = 2s}};
    const auto begin = manual_clock::now();
    std::array<std::error_code, 4> causes;
    sleeper first([&] { m.lock(causes[0]); });
    REQUIRE(first.sleeps());
    sleeper second([&] { m.lock(causes[1]); });
    sleeper third([&] { m.lock(causes[2]); });
    sleeper fourth([&] { m.lock(causes[3]); });
    for (const sleeper* const one : {&second, &third, &fourth}) REQUIRE(one->sleeps());
    for (const sleeper* const one : {&first, &second, &third, &fourth}) CHECK(ends(*one));
    CHECK(manual_clock::now() - begin < 4s);
    for (const auto& cause : causes) CHECK(cause == errc::unreachable);
}

// The second was given up at once, by a sum that overflowed.
TEST_CASE("threads that queue for a lock share any patience, also more than a clock can count") {
    manual_clock::reset();
    locks_in_memory server;
    server.answer("take", nobody_there);
    shared m{server, "orders", {.lease = 10s, .renew = false, .patience = std::chrono::hours::max()}};
    std::error_code of_first;
    std::error_code of_second;
    bool had = false;
    sleeper first([&] { had = m.try_lock_for(3s, of_first); });
    REQUIRE(first.sleeps());
    sleeper second([&] { had = m.try_lock_for(10s, of_second) || had; });
    REQUIRE(second.sleeps());
    CHECK(ends(first));
    CHECK(second.sleeps());
    CHECK_FALSE(second.done());
    CHECK(eventually([&] {
        manual_clock::advance(100ms);
        return second.done();
    }));
    CHECK(of_second == errc::unreachable);
    CHECK_FALSE(had);
}

// One in some 8,000 was told that somebody else has it: the thread it had found asking was done by then.
TEST_CASE("no try is told that somebody else has the lock while nobody does") {
    const auto gone = [](const command&) { return reply::not_sent(errc::unreachable, "gone"); };
    distlock::mutex m{gone, "orders", {.patience = 0ms}};
    std::atomic<int> wrong{0};
    {
        std::vector<std::jthread> threads;
        for (int i = 0; i < 3; ++i) {
            threads.emplace_back([&] {
                for (int n = 0; n < 30'000; ++n) {
                    std::error_code ec;
                    if (m.try_lock(ec) || !ec) ++wrong;
                }
            });
        }
    }
    CHECK(wrong == 0);
}

namespace {

// What is posted is on its way until somebody asks for it.
struct late_posts : locks_in_memory {
    bool post(const command&, const std::shared_ptr<distlock::receipt>& = nullptr) { return true; }
    void collect() {}
};

// The same, and it answers no release.
struct silent_releases : late_posts {
    reply execute(const command& cmd) {
        if (handoff_name_of({cmd.argv().begin(), cmd.argv().end()}) != "leave")
            return late_posts::execute(cmd);
        asked = true;
        while (cmd.stop() != nullptr && !cmd.stop_requested()) std::this_thread::yield();
        return reply::no_answer(errc::cancelled, "stopped");
    }
    std::atomic<bool> asked{false};
};

}  // namespace

// try_lock() had it, and try_lock_for(0ms) was told that somebody else has it.
TEST_CASE("a try comes after the posted release of its own object, with a short time-out or none") {
    for (const auto span : {0ms, 5ms, 100ms}) {
        manual_clock::reset();
        late_posts server;
        distlock::mutex<late_posts, distlock::handoff, manual_clock> m{server, "orders", {.renew = false}};
        m.lock();
        CHECK(m.unlock() == release_outcome::posted);
        bool had = false;
        sleeper trying([&] { had = span == 100ms ? m.try_lock() : m.try_lock_for(span); });
        CHECK(ends(trying, 1ms));
        trying.join();
        CHECK(had);
    }
}

// It went on for ten seconds: it asked what had become of a posted release.
TEST_CASE("a stop request ends a try that asks what became of the posted release") {
    manual_clock::reset();
    silent_releases server;
    distlock::mutex<silent_releases, distlock::handoff, manual_clock> m{server, "orders", {.renew = false}};
    m.lock();
    CHECK(m.unlock() == release_outcome::posted);
    std::stop_source stop;
    std::error_code ec;
    bool had = true;
    sleeper trying([&] { had = m.try_lock(stop.get_token(), ec); });
    REQUIRE(eventually([&] { return server.asked.load(); }));
    stop.request_stop();
    trying.join();
    CHECK_FALSE(had);
    CHECK(ec == errc::cancelled);
}

// It was told that its call was cancelled, which nobody had asked for.
TEST_CASE(
    "a thread whose time is up while another one's wait is cancelled hears that somebody else has the lock") {
    struct one_in_queue : publishing_connection {
        reply execute(const command& cmd) {
            if (cmd.argv()[0] == "SET") return reply::nil();
            const auto script = cmd.argv()[1];
            if (script == distlock::detail::handoff_enter.sha1() ||
                script == distlock::detail::handoff_enter.text()) {
                waiting.count_down();
                return handoff_answers::queued();
            }
            leaving.count_down();
            told.wait();
            return reply::integer(0);
        }
        std::latch waiting{1};
        std::latch leaving{1};
        std::latch told{1};
    };
    one_in_queue server;
    distlock::mutex m{server, "orders"};
    std::error_code ec;
    std::error_code cancelled;
    {
        std::jthread first([&](const std::stop_token& stop) { m.lock(stop, cancelled); });
        server.waiting.wait();
        first.request_stop();
        server.leaving.wait();
        CHECK_FALSE(m.try_lock_for(1ms, ec));
        server.told.count_down();
    }
    CHECK_FALSE(ec);
    CHECK(cancelled == errc::cancelled);
}

TEST_CASE("guards order locks by what their connections say of their server, text or view") {
    struct named_by_value : locks_in_memory {
        std::string where;
        std::string identity() const { return where; }
    };
    manual_clock::reset();
    named_by_value one;
    named_by_value two;
    one.where = std::string(40, 'b');
    two.where = std::string(40, 'a');
    distlock::mutex<named_by_value, distlock::handoff, manual_clock> a{one, "orders"};
    distlock::mutex<named_by_value, distlock::handoff, manual_clock> b{two, "orders"};
    CHECK(distlock::scoped_lock{a, b}.owns_lock());
    two.where = one.where;
    CHECK_THROWS_AS((distlock::scoped_lock{a, b}), distlock::error);
}

}  // namespace shared_mutex_object_tests
