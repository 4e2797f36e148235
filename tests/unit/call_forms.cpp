// Every form of a call says what it came to: by exception or by code, of each kind of lock.
#include <atomic>
#include <chrono>
#include <cstddef>
#include <functional>
#include <optional>
#include <stdexcept>
#include <stop_token>
#include <system_error>
#include <thread>
#include <vector>

#include <distlock/base/error.hpp>
#include <distlock/counting_semaphore.hpp>
#include <distlock/mutex.hpp>
#include <distlock/recursive_mutex.hpp>
#include <distlock/shared_mutex.hpp>
#include <distlock/try_lock_for.hpp>
#include <distlock/wire/command.hpp>
#include <distlock/wire/outcome.hpp>
#include <distlock/wire/permit_scripts.hpp>
#include <distlock/wire/plain.hpp>
#include <distlock/wire/reply.hpp>
#include <distlock/wire/shared_scripts.hpp>

#include "support/catch.hpp"
#include "support/handoff_answers.hpp"
#include "support/locks_in_memory.hpp"
#include "support/script_calls.hpp"
#include "support/ticking_clock.hpp"
#include "support/waiting.hpp"

namespace call_forms_tests {

namespace {

using namespace std::chrono_literals;
using distlock::command;
using distlock::errc;
using distlock::release_outcome;
using distlock::reply;

using ways_that_throw = std::vector<std::function<void()>>;
/// Each returns whether something was taken.
using ways_with_a_code = std::vector<std::function<bool(std::error_code&)>>;

const auto refusing = [](const distlock::command&) {
    return reply::error("NOAUTH Authentication required.");
};

std::chrono::steady_clock::time_point in(std::chrono::nanoseconds span) {
    return std::chrono::steady_clock::now() + span;
}

void all_fail(errc why, const ways_that_throw& throwing, const ways_with_a_code& coded) {
    for (std::size_t i = 0; i < throwing.size(); ++i) {
        INFO("way " << i);
        try {
            throwing[i]();
            FAIL("it returned");
        } catch (const distlock::error& e) {
            CHECK(e.code() == why);
        }
    }
    for (std::size_t i = 0; i < coded.size(); ++i) {
        INFO("way with a code " << i);
        std::error_code ec;
        CHECK_FALSE(coded[i](ec));
        CHECK(ec == why);
    }
}
void all_refused(const ways_that_throw& throwing, const ways_with_a_code& coded) {
    all_fail(errc::authentication_failed, throwing, coded);
}

}  // namespace

// A recursive mutex was asked by code only: its lock() could have returned without the lock.
TEST_CASE("a recursive mutex that is refused says so in every form") {
    distlock::recursive_mutex m{refusing, "orders"};
    const std::stop_token none;
    all_refused(
        {[&] { m.lock(); }, [&] { m.lock(none); }, [&] { static_cast<void>(m.try_lock()); },
         [&] { static_cast<void>(m.try_lock_for(1s)); }, [&] { static_cast<void>(m.try_lock_for(1s, none)); },
         [&] { static_cast<void>(m.try_lock_until(in(1s))); },
         [&] { static_cast<void>(m.try_lock_until(in(1s), none)); }},
        {[&](std::error_code& ec) { return m.lock(ec); },
         [&](std::error_code& ec) { return m.lock(none, ec); },
         [&](std::error_code& ec) { return m.try_lock(ec); },
         [&](std::error_code& ec) { return m.try_lock_for(1s, ec); },
         [&](std::error_code& ec) { return m.try_lock_for(1s, none, ec); },
         [&](std::error_code& ec) { return m.try_lock_until(in(1s), ec); },
         [&](std::error_code& ec) { return m.try_lock_until(in(1s), none, ec); }});
    CHECK(m.unlock() == release_outcome::not_held);
}

TEST_CASE("a reader that is refused is told so in every form") {
    distlock::shared_mutex m{refusing, "orders"};
    const std::stop_token none;
    all_refused({[&] { m.lock_shared(); }, [&] { m.lock_shared(none); },
                 [&] { static_cast<void>(m.try_lock_shared()); },
                 [&] { static_cast<void>(m.try_lock_shared_for(1s)); },
                 [&] { static_cast<void>(m.try_lock_shared_for(1s, none)); },
                 [&] { static_cast<void>(m.try_lock_shared_until(in(1s))); },
                 [&] { static_cast<void>(m.try_lock_shared_until(in(1s), none)); }},
                {[&](std::error_code& ec) { return m.lock_shared(ec); },
                 [&](std::error_code& ec) { return m.lock_shared(none, ec); },
                 [&](std::error_code& ec) { return m.try_lock_shared(ec); },
                 [&](std::error_code& ec) { return m.try_lock_shared_for(1s, ec); },
                 [&](std::error_code& ec) { return m.try_lock_shared_for(1s, none, ec); },
                 [&](std::error_code& ec) { return m.try_lock_shared_until(in(1s), ec); },
                 [&](std::error_code& ec) { return m.try_lock_shared_until(in(1s), none, ec); }});
    CHECK(m.unlock_shared() == release_outcome::not_held);
}

TEST_CASE("a request for permits that is refused is told so in every form") {
    distlock::counting_semaphore pool{refusing, "pool", 8};
    const std::stop_token none;
    all_refused(
        {[&] { static_cast<void>(pool.acquire()); }, [&] { static_cast<void>(pool.acquire(2, none)); },
         [&] { static_cast<void>(pool.try_acquire(2)); },
         [&] { static_cast<void>(pool.try_acquire_for(1s)); },
         [&] { static_cast<void>(pool.try_acquire_for(1s, 2, none)); },
         [&] { static_cast<void>(pool.try_acquire_until(in(1s))); },
         [&] { static_cast<void>(pool.try_acquire_until(in(1s), 2, none)); }},
        {[&](std::error_code& ec) { return static_cast<bool>(pool.acquire(2, ec)); },
         [&](std::error_code& ec) { return pool.try_acquire(2, ec).has_value(); },
         [&](std::error_code& ec) { return pool.try_acquire_for(1s, 2, ec).has_value(); },
         [&](std::error_code& ec) { return pool.try_acquire_until(in(1s), 2, none, ec).has_value(); }});
    try {
        pool.resize(9);
        FAIL("resized");
    } catch (const distlock::error& e) {
        CHECK(e.code() == errc::authentication_failed);
    }
    std::error_code ec;
    pool.resize(9, ec);
    CHECK(ec == errc::authentication_failed);
    const auto gone = [](const distlock::command&) { return reply::not_sent(errc::unreachable, "x"); };
    distlock::counting_semaphore unreachable{gone, "pool", 8};
    unreachable.resize(9, ec);
    CHECK(ec == errc::unreachable);
}

TEST_CASE("a thread that has not locked it for writing is told so by downgrade() in every form") {
    distlock::shared_mutex m{refusing, "orders"};
    all_fail(errc::not_held, {[&] { m.downgrade(); }},
             {[&](std::error_code& ec) { return m.downgrade(ec); }});
}

namespace {

/// Grants whatever is asked.
struct generous {
    reply execute(const distlock::command& cmd) {
        ++asked;
        return cmd.argv()[0] == "SET" ? reply::status("OK") : handoff_answers::granted("", 30'000);
    }
    int asked = 0;
};

std::stop_token stopped() {
    std::stop_source source;
    source.request_stop();
    return source.get_token();
}

template <class M>
void nothing_is_locked_after_a_stop_request() {
    generous server;
    M m{server, "orders", {.renew = false}};
    const auto stop = stopped();
    all_fail(errc::cancelled,
             {[&] { m.lock(stop); }, [&] { static_cast<void>(m.try_lock(stop)); },
              [&] { static_cast<void>(m.try_lock_for(1s, stop)); },
              [&] { static_cast<void>(m.try_lock_until(in(1s), stop)); }},
             {[&](std::error_code& ec) { return m.lock(stop, ec); },
              [&](std::error_code& ec) { return m.try_lock(stop, ec); },
              [&](std::error_code& ec) { return m.try_lock_for(1s, stop, ec); },
              [&](std::error_code& ec) { return m.try_lock_until(in(1s), stop, ec); }});
    CHECK(server.asked == 0);
}

}  // namespace

TEST_CASE("after a stop request no mutex is locked, in whichever form it is asked for") {
    nothing_is_locked_after_a_stop_request<distlock::mutex<generous>>();
}

TEST_CASE("after a stop request no recursive mutex is locked, in whichever form it is asked for") {
    nothing_is_locked_after_a_stop_request<distlock::recursive_mutex<generous>>();
}

TEST_CASE("after a stop request nobody reads, in whichever form it is asked for") {
    generous server;
    distlock::shared_mutex m{server, "orders", {.renew = false}};
    const auto stop = stopped();
    all_fail(errc::cancelled,
             {[&] { m.lock_shared(stop); }, [&] { static_cast<void>(m.try_lock_shared(stop)); },
              [&] { static_cast<void>(m.try_lock_shared_for(1s, stop)); },
              [&] { static_cast<void>(m.try_lock_shared_until(in(1s), stop)); }},
             {[&](std::error_code& ec) { return m.lock_shared(stop, ec); },
              [&](std::error_code& ec) { return m.try_lock_shared(stop, ec); },
              [&](std::error_code& ec) { return m.try_lock_shared_for(1s, stop, ec); },
              [&](std::error_code& ec) { return m.try_lock_shared_until(in(1s), stop, ec); }});
    CHECK(server.asked == 0);
}

TEST_CASE("after a stop request no permit is given, in whichever form it is asked for") {
    generous server;
    distlock::counting_semaphore pool{server, "pool", 8, {.renew = false}};
    const auto stop = stopped();
    all_fail(
        errc::cancelled,
        {[&] { static_cast<void>(pool.acquire(2, stop)); }, [&] { static_cast<void>(pool.acquire(stop)); },
         [&] { static_cast<void>(pool.try_acquire(2, stop)); },
         [&] { static_cast<void>(pool.try_acquire(stop)); },
         [&] { static_cast<void>(pool.try_acquire_for(1s, 2, stop)); },
         [&] { static_cast<void>(pool.try_acquire_for(1s, stop)); },
         [&] { static_cast<void>(pool.try_acquire_until(in(1s), 2, stop)); },
         [&] { static_cast<void>(pool.try_acquire_until(in(1s), stop)); }},
        {[&](std::error_code& ec) { return static_cast<bool>(pool.acquire(2, stop, ec)); },
         [&](std::error_code& ec) { return static_cast<bool>(pool.acquire(stop, ec)); },
         [&](std::error_code& ec) { return pool.try_acquire(2, stop, ec).has_value(); },
         [&](std::error_code& ec) { return pool.try_acquire(stop, ec).has_value(); },
         [&](std::error_code& ec) { return pool.try_acquire_for(1s, 2, stop, ec).has_value(); },
         [&](std::error_code& ec) { return pool.try_acquire_for(1s, stop, ec).has_value(); },
         [&](std::error_code& ec) { return pool.try_acquire_until(in(1s), 2, stop, ec).has_value(); },
         [&](std::error_code& ec) { return pool.try_acquire_until(in(1s), stop, ec).has_value(); }});
    CHECK(server.asked == 0);
}

TEST_CASE("after a stop request none of several locks is taken, in whichever form they are asked for") {
    generous server;
    distlock::mutex a{server, "a", {.renew = false}};
    distlock::mutex b{server, "b", {.renew = false}};
    const auto stop = stopped();
    all_fail(errc::cancelled,
             {[&] { static_cast<void>(distlock::try_lock_for(1s, stop, a, b)); },
              [&] { static_cast<void>(distlock::try_lock_until(in(1s), stop, a, b)); }},
             {[&](std::error_code& ec) { return distlock::try_lock_for(1s, stop, ec, a, b); },
              [&](std::error_code& ec) { return distlock::try_lock_until(in(1s), stop, ec, a, b); }});
    CHECK(server.asked == 0);
}

namespace {

/// Effects: each waits for `orders`, which somebody has, until it is told to stop while it waits.
template <class M>
void all_stopped(M& m, locks_in_memory& memory) {
    using way = std::function<bool(const std::stop_token&, std::error_code&)>;
    const way ways[] = {
        [&](const std::stop_token& stop, std::error_code& ec) { return m.lock(stop, ec); },
        [&](const std::stop_token& stop, std::error_code& ec) { return m.try_lock_for(1h, stop, ec); },
        [&](const std::stop_token& stop, std::error_code& ec) { return m.try_lock_until(in(1h), stop, ec); },
        [&](const std::stop_token& stop, std::error_code& ec) {
            return m.try_lock_until(std::chrono::system_clock::now() + 1h, stop, ec);
        }};
    memory.give_to("somebody");
    for (const way& one : ways) {
        std::stop_source stop;
        std::error_code ec;
        std::atomic<bool> over = false;
        bool took = true;
        const int before = memory.count("take");
        std::jthread waiter([&] {
            took = one(stop.get_token(), ec);
            over = true;
        });
        REQUIRE(eventually([&] { return memory.count("take") > before + 1; }));
        CHECK_FALSE(over);
        stop.request_stop();
        waiter.join();
        CHECK_FALSE(took);
        CHECK(ec == errc::cancelled);
    }
    std::error_code ec;
    CHECK_FALSE(m.try_lock_for(20ms, ec));
    CHECK_FALSE(ec);
    CHECK_FALSE(m.try_lock_until(in(20ms)));
}

}  // namespace

TEST_CASE("a stop request ends the wait for a mutex in every form, and time does") {
    locks_in_memory memory;
    distlock::mutex<locks_in_memory, distlock::plain> m{memory, "orders", {.recheck = 5ms}};
    all_stopped(m, memory);
}

TEST_CASE("a stop request ends the wait for a recursive mutex in every form, and time does") {
    locks_in_memory memory;
    distlock::recursive_mutex<locks_in_memory, distlock::plain> m{memory, "orders", {.recheck = 5ms}};
    all_stopped(m, memory);
}

namespace {

// Says the time as often as `readings`, and throws then.
struct failing_clock {
    using duration = std::chrono::nanoseconds;
    using rep = duration::rep;
    using period = duration::period;
    using time_point = std::chrono::time_point<failing_clock>;
    static constexpr bool is_steady = false;
    static inline int readings = 0;
    static time_point now() {
        if (readings-- == 0) throw std::runtime_error("no time is known");
        return time_point{};
    }
};

}  // namespace

// The call said that nothing was taken, and the lock was renewed for ever.
TEST_CASE("a clock that throws once the lock is had keeps nobody from it") {
    const failing_clock::time_point end{1s};
    failing_clock::readings = 1;
    locks_in_memory server;
    distlock::mutex<locks_in_memory, distlock::plain> m{server, "a"};
    std::error_code ec;
    CHECK(m.try_lock_until(end, ec));
    m.unlock();
    failing_clock::readings = 1;
    distlock::recursive_mutex<locks_in_memory, distlock::plain> again{server, "b"};
    CHECK(again.try_lock_until(end));
    again.unlock();
    failing_clock::readings = 1;
    distlock::mutex<locks_in_memory, distlock::plain> other{server, "c"};
    CHECK(distlock::try_lock_until(end, m, other));
    m.unlock();
    other.unlock();
}

// It was said that memory was missing.
TEST_CASE("a clock that throws before anything is asked for is the caller's fault, and takes nothing") {
    const failing_clock::time_point end{1s};
    locks_in_memory server;
    distlock::mutex<locks_in_memory, distlock::plain> m{server, "a"};
    failing_clock::readings = 0;
    std::error_code ec;
    CHECK_FALSE(m.try_lock_until(end, ec));
    CHECK(ec == std::errc::invalid_argument);
    failing_clock::readings = 0;
    CHECK_THROWS_AS(m.try_lock_until(end), std::runtime_error);
    CHECK(m.try_lock());
}

TEST_CASE("a recursive mutex counts a hold in every form, also after a stop request") {
    locks_in_memory memory;
    distlock::recursive_mutex<locks_in_memory, distlock::plain> m{memory, "orders"};
    const auto every_form = [&](const std::stop_token& stop) {
        m.lock(stop);
        CHECK(m.try_lock_for(1s, stop));
        CHECK(m.try_lock_until(in(1s), stop));
        CHECK(m.try_lock());
    };
    REQUIRE(m.try_lock_until(in(1s)));
    REQUIRE(m.hold_count() == 1);
    std::stop_source stop;
    every_form(stop.get_token());
    stop.request_stop();
    every_form(stop.get_token());
    CHECK(m.hold_count() == 9);
    for (int i = 0; i < 8; ++i) CHECK(m.unlock() == release_outcome::nested);
    CHECK(memory.owner() != "");
    m.unlock();
    CHECK(m.unlock() == release_outcome::not_held);
    CHECK(eventually([&] { return memory.owner().empty(); }));
}

namespace {

/// Somebody else has everything, and whoever hears that is told to stop. A call that does not ends by an
/// error.
struct taken_and_stopped {
    reply execute(const command& cmd) {
        using namespace distlock::detail;
        const bool asks = calls(cmd, shared_enter) || calls(cmd, permit_enter);
        if (asks) stop.request_stop();
        if (++asked > 50) return reply::error("NOAUTH Authentication required.");
        return asks ? handoff_answers::taken() : reply::integer(0);
    }
    /// Returns: of a call that has not asked yet.
    std::stop_token fresh() {
        asked = 0;
        stop = std::stop_source();
        return stop.get_token();
    }
    std::stop_source stop;
    int asked = 0;
};

}  // namespace

// try_acquire_for() with a code could have waited on: of the forms with both only a stop before the call was
// seen.
TEST_CASE("a stop request ends the wait of a reader and for permits in every form") {
    taken_and_stopped server;
    distlock::shared_mutex m{server, "orders", {.recheck = 1ms}};
    distlock::counting_semaphore pool{server, "pool", 8, {.recheck = 1ms}};
    const auto system_in = [](auto span) { return std::chrono::system_clock::now() + span; };
    all_fail(
        errc::cancelled,
        {[&] { m.lock_shared(server.fresh()); },
         [&] { static_cast<void>(m.try_lock_shared_for(1h, server.fresh())); },
         [&] { static_cast<void>(m.try_lock_shared_until(in(1h), server.fresh())); },
         [&] { static_cast<void>(m.try_lock_shared_until(system_in(1h), server.fresh())); },
         [&] { static_cast<void>(pool.acquire(server.fresh())); },
         [&] { static_cast<void>(pool.acquire(2, server.fresh())); },
         [&] { static_cast<void>(pool.try_acquire_for(1h, server.fresh())); },
         [&] { static_cast<void>(pool.try_acquire_for(1h, 2, server.fresh())); },
         [&] { static_cast<void>(pool.try_acquire_until(in(1h), server.fresh())); },
         [&] { static_cast<void>(pool.try_acquire_until(system_in(1h), 2, server.fresh())); }},
        {[&](std::error_code& ec) { return m.lock_shared(server.fresh(), ec); },
         [&](std::error_code& ec) { return m.try_lock_shared_for(1h, server.fresh(), ec); },
         [&](std::error_code& ec) { return m.try_lock_shared_until(in(1h), server.fresh(), ec); },
         [&](std::error_code& ec) { return m.try_lock_shared_until(system_in(1h), server.fresh(), ec); },
         [&](std::error_code& ec) { return static_cast<bool>(pool.acquire(server.fresh(), ec)); },
         [&](std::error_code& ec) { return static_cast<bool>(pool.acquire(2, server.fresh(), ec)); },
         [&](std::error_code& ec) { return pool.try_acquire_for(1h, server.fresh(), ec).has_value(); },
         [&](std::error_code& ec) { return pool.try_acquire_for(1h, 2, server.fresh(), ec).has_value(); },
         [&](std::error_code& ec) { return pool.try_acquire_until(in(1h), server.fresh(), ec).has_value(); },
         [&](std::error_code& ec) {
             return pool.try_acquire_until(system_in(1h), 2, server.fresh(), ec).has_value();
         }});
}

// A deadline by another clock than the lock's would be in the past, or hours ahead.
TEST_CASE("each form with a time-out keeps it by the clock of its lock") {
    using clock = ticking_clock;
    distlock::testing::manual_clock::reset();
    // The first millisecond by the lock's clock is hours after that of the machine.
    clock::advance(distlock::clock::now().time_since_epoch() + 1h);
    auto somebody_has_it = [](const command& cmd) {
        return cmd.argv()[0] == "SET" ? reply::nil() : handoff_answers::taken();
    };
    using connection = decltype(somebody_has_it);
    const distlock::lock_options options{.renew = false};
    distlock::mutex<connection, distlock::handoff, clock> m{somebody_has_it, "orders", options};
    distlock::recursive_mutex<connection, distlock::handoff, clock> r{somebody_has_it, "bills", options};
    distlock::shared_mutex<connection, clock> s{somebody_has_it, "prices", options};
    distlock::counting_semaphore<connection, clock> p{somebody_has_it, "pool", 2, options};
    const std::stop_token none;
    std::error_code ec;
    const auto span = 300ms;
    const std::vector<std::function<bool()>> ways{
        [&] { return m.try_lock_for(span); },
        [&] { return m.try_lock_for(span, none); },
        [&] { return m.try_lock_for(span, ec); },
        [&] { return m.try_lock_for(span, none, ec); },
        [&] { return r.try_lock_for(span); },
        [&] { return r.try_lock_for(span, none); },
        [&] { return r.try_lock_for(span, ec); },
        [&] { return r.try_lock_for(span, none, ec); },
        [&] { return s.try_lock_shared_for(span); },
        [&] { return s.try_lock_shared_for(span, none); },
        [&] { return s.try_lock_shared_for(span, ec); },
        [&] { return s.try_lock_shared_for(span, none, ec); },
        [&] { return p.try_acquire_for(span).has_value(); },
        [&] { return p.try_acquire_for(span, none).has_value(); },
        [&] { return p.try_acquire_for(span, 2, none).has_value(); },
        [&] { return p.try_acquire_for(span, ec).has_value(); },
        [&] { return p.try_acquire_for(span, none, ec).has_value(); },
        [&] { return p.try_acquire_for(span, 2, ec).has_value(); },
        [&] { return p.try_acquire_for(span, 2, none, ec).has_value(); },
        [&] { return distlock::try_lock_for(span, m, r); },
        [&] { return distlock::try_lock_for(span, none, m, r); },
        [&] { return distlock::try_lock_for(span, ec, m, r); },
        [&] { return distlock::try_lock_for(span, none, ec, m, r); },
    };
    for (std::size_t i = 0; i < ways.size(); ++i) {
        INFO("way " << i);
        const auto begun = clock::last();
        CHECK_FALSE(ways[i]());
        CHECK_FALSE(ec);
        CHECK(clock::last() - begun >= span);
        CHECK(clock::last() - begun < span + 1s);
    }
}

// A caller that looks at the code alone would take somebody else's lock for trouble with the server.
TEST_CASE(
    "each form with a code clears that of a call before, whether it takes the lock or somebody has it") {
    locks_in_memory server;
    distlock::mutex<locks_in_memory, distlock::plain> m{server, "orders", {.renew = false}};
    distlock::recursive_mutex<locks_in_memory, distlock::plain> r{server, "bills", {.renew = false}};
    auto somebody_has_it = [](const command&) { return handoff_answers::taken(); };
    distlock::shared_mutex readers{somebody_has_it, "prices", {.renew = false}};
    distlock::counting_semaphore pool{somebody_has_it, "pool", 2, {.renew = false}};
    const std::stop_token none;
    const ways_with_a_code ways{
        [&](std::error_code& ec) { return m.try_lock(ec); },
        [&](std::error_code& ec) { return m.try_lock_for(0s, ec); },
        [&](std::error_code& ec) { return m.try_lock_for(0s, none, ec); },
        [&](std::error_code& ec) { return m.try_lock_until(in(0s), ec); },
        [&](std::error_code& ec) { return m.try_lock_until(in(0s), none, ec); },
        [&](std::error_code& ec) { return r.try_lock(ec); },
        [&](std::error_code& ec) { return r.try_lock_for(0s, ec); },
        [&](std::error_code& ec) { return r.try_lock_until(in(0s), none, ec); },
        [&](std::error_code& ec) { return distlock::try_lock_for(0s, ec, m, r); },
        [&](std::error_code& ec) { return distlock::try_lock_until(in(0s), none, ec, m, r); },
    };
    const ways_with_a_code in_vain{
        [&](std::error_code& ec) { return readers.try_lock_shared(ec); },
        [&](std::error_code& ec) { return readers.try_lock_shared_for(0s, ec); },
        [&](std::error_code& ec) { return readers.try_lock_shared_until(in(0s), none, ec); },
        [&](std::error_code& ec) { return pool.try_acquire(1, ec).has_value(); },
        [&](std::error_code& ec) { return pool.try_acquire_for(0s, 1, ec).has_value(); },
        [&](std::error_code& ec) { return pool.try_acquire_until(in(0s), 1, none, ec).has_value(); },
    };
    const auto all_clear = [&](const ways_with_a_code& all, bool takes) {
        for (std::size_t i = 0; i < all.size(); ++i) {
            INFO("way " << i);
            std::error_code ec = errc::unreachable;
            CHECK(all[i](ec) == takes);
            CHECK_FALSE(ec);
            if (m.owns_lock()) m.unlock();
            if (r.owns_lock()) r.unlock();
        }
    };
    all_clear(ways, true);
    for (const char* lock : {"orders", "bills"}) server.give_to("somebody", lock);
    all_clear(ways, false);
    all_clear(in_vain, false);
}

}  // namespace call_forms_tests
