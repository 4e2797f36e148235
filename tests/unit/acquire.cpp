// The machine that takes a lock, driven by hand: every decision, without a server, a thread or a wait.
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <distlock/base/clock.hpp>
#include <distlock/base/lease.hpp>
#include <distlock/engine/acquire.hpp>
#include <distlock/wire/outcome.hpp>
#include <distlock/wire/reply.hpp>

#include "support/catch.hpp"
#include "support/stepped_acquire.hpp"

namespace acquire_tests {

namespace {

using namespace acquire_test;

const acquire_outcome granted = acquire_outcome::granted();
acquire_outcome busy(milliseconds ttl) { return acquire_outcome::busy(ttl.count()); }

const acquire_limits defaults{.lease = 30s, .recheck = 50ms, .patience = 2s};
acquire_limits with(clock::time_point deadline) {
    auto limits = defaults;
    limits.deadline = deadline;
    return limits;
}
acquire_limits one_try() {
    auto limits = defaults;
    limits.once = true;
    return limits;
}

struct attempt : stepped_acquire {
    explicit attempt(const acquire_limits& limits = defaults, bool contended = false, std::uint64_t seed = 1)
        : stepped_acquire(limits, contended, 0ns, seed) {}
};

/// Returns: an attempt on a lock that was just found taken, in its first pause.
attempt waiting(const acquire_limits& limits = defaults, milliseconds ttl = 20s) {
    attempt a(limits);
    a.answer(taken);
    a.answer(busy(ttl));
    REQUIRE(a.step().what == kind::pause);
    return a;
}

}  // namespace

// ---- granted --------------------------------------------------------------------------------------------

TEST_CASE("an attempt starts with the plain command, a contended one with the script") {
    CHECK(attempt(defaults, false).step().what == kind::send_acquire);
    CHECK(attempt(defaults, true).step().what == kind::send_look);
    CHECK_NOTHING_FIRST(attempt().step());
}

TEST_CASE("a free lock is granted by the first answer") {
    attempt a;
    a.answer(granted, 1ms);
    CHECK(a.step().what == kind::granted);
    CHECK_NOTHING_FIRST(a.step());
}

TEST_CASE("validity counts from before the sending that was answered") {
    attempt first;
    CHECK(first.answer(granted, 7s).at == validity_end(start, 30s));

    attempt third;
    third.answer(taken, 1s);
    third.answer(busy(20s), 1s);
    third.sleep();
    const auto sent = third.now();
    CHECK(third.answer(granted, 5s).at == validity_end(sent, 30s));
}

TEST_CASE("a grant found by asking again counts from the asking") {
    attempt a;
    a.answer(lost(), 200ms);
    CHECK(a.answer(granted, 10ms).at == validity_end(start + 200ms, 30s));
    CHECK(a.step().what == kind::granted);
    CHECK_NOTHING_FIRST(a.step());
}

TEST_CASE("a grant in the last nanosecond of its validity is taken, one at the end is not") {
    const auto end = validity_end(start, 30s) - start;
    attempt in_time;
    CHECK(in_time.answer(granted, end - 1ns).what == kind::granted);
    attempt too_late;
    CHECK(too_late.answer(granted, end).what == kind::pause);
}

TEST_CASE("a grant after its validity is given back first, and asked for after a pause with a fresh token") {
    attempt a;
    const auto& step = a.answer(granted, 30s);
    CHECK(step.what == kind::pause);
    CHECK(step.leave_first);
    CHECK(step.fresh_token);
    CHECK(a.pause() <= 1ms);
    CHECK(a.sleep().what == kind::send_look);
    CHECK_NOTHING_FIRST(a.step());
    const auto sent = a.now();
    a.answer(granted, 1ms);
    CHECK(a.step().what == kind::granted);
    CHECK(a.step().at == validity_end(sent, 30s));
    CHECK_NOTHING_FIRST(a.step());
}

TEST_CASE("the fresh token after a late grant starts with nothing to give back") {
    attempt a(with(start + 40s));
    a.answer(granted, 30s);
    a.sleep();
    a.answer(busy(20s), 1ms);
    while (a.step().what == kind::pause) {
        a.sleep();
        if (a.step().what == kind::send_look) a.answer(busy(20s), 1ms);
    }
    CHECK(a.step().what == kind::gave_up);
    CHECK_FALSE(a.step().leave_first);
}

TEST_CASE("the fresh token after a late grant is asked for again when its answer is lost") {
    auto limits = defaults;
    limits.patience = 1h;
    attempt a(limits);
    a.answer(lost(), 1ms);
    a.answer(granted, 30s);
    REQUIRE(a.step().fresh_token);
    a.sleep();
    a.answer(lost(), 1ms);
    CHECK(a.step().what == kind::send_look);
    CHECK_NOTHING_FIRST(a.step());
}

TEST_CASE("a late grant that follows a lost answer is given back by a token in doubt") {
    auto limits = defaults;
    limits.patience = 1h;
    attempt a(limits);
    a.answer(lost(), 1ms);
    a.answer(granted, 30s);
    CHECK(a.step().what == kind::pause);
    CHECK(a.step().leave_first);
    CHECK(a.step().in_doubt);
    CHECK(a.step().fresh_token);
}

TEST_CASE("a try whose grant comes too late gives it back and fails") {
    attempt a(one_try());
    a.answer(granted, 30s);
    CHECK(a.step().what == kind::failed);
    CHECK(a.step().cause == errc::lease_expired);
    CHECK(a.step().leave_first);
}

TEST_CASE("a grant that comes too late and after the deadline is given back and fails") {
    attempt a(with(start + 10s));
    a.answer(granted, 30s);
    CHECK(a.step().what == kind::failed);
    CHECK(a.step().cause == errc::lease_expired);
    CHECK(a.step().leave_first);
}

TEST_CASE("a valid grant that comes after the deadline is taken all the same") {
    attempt a(with(start + 1s));
    CHECK(a.answer(granted, 2s).what == kind::granted);
}

TEST_CASE("grants that always come too late are ridden out for the patience, then fail") {
    attempt a;
    int sendings = 0;
    while (a.step().what == kind::send_acquire || a.step().what == kind::send_look) {
        if (++sendings > 1'000) break;
        a.answer(granted, 30s);
        if (a.step().what == kind::pause) a.sleep();
    }
    CHECK(sendings < 1'000);
    CHECK(a.step().what == kind::failed);
    CHECK(a.step().cause == errc::lease_expired);
    CHECK(a.step().leave_first);
}

// ---- contention -----------------------------------------------------------------------------------------

TEST_CASE("a lock found taken by the plain command is looked at once, at once") {
    attempt a;
    const auto& step = a.answer(taken);
    CHECK(step.what == kind::send_look);
    CHECK_NOTHING_FIRST(step);
}

TEST_CASE("a lock found taken by a look is waited for") {
    CHECK(attempt(defaults, true).answer(busy(20s)).what == kind::pause);
    attempt a;
    a.answer(taken);
    CHECK(a.answer(busy(20s)).what == kind::pause);
    CHECK(a.sleep().what == kind::send_look);
    CHECK(a.answer(busy(20s)).what == kind::pause);
}

TEST_CASE("a try gives up after one look, and tells a key of another type by it") {
    attempt a(one_try());
    CHECK(a.answer(taken).what == kind::send_look);
    CHECK(a.answer(busy(20s)).what == kind::gave_up);
    CHECK_FALSE(a.step().leave_first);
    CHECK_FALSE(a.step().without_ttl);

    attempt contended(one_try(), true);
    CHECK(contended.answer(busy(20s)).what == kind::gave_up);

    attempt other_type(one_try());
    other_type.answer(taken);
    CHECK(other_type.answer(refused(errc::wrong_type)).what == kind::failed);
    CHECK(other_type.step().cause == errc::wrong_type);
}

TEST_CASE("pauses double from 1 ms up to the recheck, each between its half and its whole") {
    const std::vector<milliseconds> longest{1ms, 2ms, 4ms, 8ms, 16ms, 32ms, 50ms, 50ms, 50ms};
    for (std::uint64_t seed = 0; seed < 1'000; ++seed) {
        attempt a(defaults, true, seed * 0x9E3779B97F4A7C15U);
        for (const auto most : longest) {
            a.answer(busy(20s), 1us);
            const auto span = a.pause();
            if (span < most / 2.0 || span > most) FAIL("seed " << seed << ", " << span.count() << " ns");
            a.sleep();
        }
    }
}

TEST_CASE("pauses of different attempts are spread over their whole range") {
    clock::duration shortest = 1h;
    clock::duration longest = 0ns;
    std::size_t low = 0;
    constexpr std::size_t many = 1'000;
    for (std::uint64_t seed = 0; seed < many; ++seed) {
        attempt a(defaults, true, seed * 0x9E3779B97F4A7C15U);
        for (int i = 0; i < 6; ++i) {
            a.answer(busy(20s), 1us);
            a.sleep();
        }
        a.answer(busy(20s), 1us);
        shortest = std::min(shortest, a.pause());
        longest = std::max(longest, a.pause());
        if (a.pause() < 37500us) ++low;
    }
    CHECK(shortest < 26ms);
    CHECK(longest > 49ms);
    CHECK(low > many * 4 / 10);
    CHECK(low < many * 6 / 10);
}

TEST_CASE("a recheck of 1 ms is never exceeded, one of 1 h is reached") {
    auto limits = defaults;
    limits.recheck = 1ms;
    attempt quick(limits, true);
    limits.recheck = 1h;
    attempt slow(limits, true);
    for (int i = 0; i < 40; ++i) {
        quick.answer(busy(20s), 1us);
        CHECK(quick.pause() <= 1ms);
        CHECK(quick.pause() >= 500us);
        quick.sleep();
        slow.answer(busy(24h), 1us);
        CHECK(slow.pause() <= 1h);
        if (i >= 22) CHECK(slow.pause() >= 30min);
        slow.sleep();
    }
}

TEST_CASE("no pause outlasts the holder's TTL by more than 1 ms") {
    auto limits = defaults;
    limits.recheck = 1h;
    for (const milliseconds ttl : {0ms, 1ms, 2ms, 10ms, 100ms}) {
        attempt a(limits, true);
        for (int i = 0; i < 20; ++i) {
            a.answer(busy(ttl), 1us);
            CHECK(a.pause() <= ttl + 1ms);
            CHECK(a.pause() > 0ns);
            a.sleep();
        }
    }
}

TEST_CASE("a TTL that the clock cannot count neither shortens a pause nor overflows") {
    for (const milliseconds ttl :
         {milliseconds::max(), milliseconds::max() - 1ms, milliseconds(10'000'000'000'000),
          milliseconds(1'000'000'000'000'000), milliseconds(9'223'372'036'855)}) {
        attempt a(defaults, true);
        for (int i = 0; i < 10; ++i) {
            INFO(ttl.count() << " ms, pause " << i);
            a.answer(busy(ttl), 1us);
            CHECK(a.pause() >= std::min<clock::duration>(25ms, 500us * (1 << i)));
            CHECK(a.pause() <= 50ms);
            a.sleep();
        }
    }
}

TEST_CASE("a holder without a TTL, or gone meanwhile, is looked at after the usual pause") {
    for (const milliseconds ttl : {-1ms, -2ms}) {
        attempt a(defaults, true);
        a.answer(busy(ttl));
        CHECK(a.pause() >= 500us);
        CHECK(a.pause() <= 1ms);
    }
}

TEST_CASE("a wait looks a last time at its deadline and then gives up, and no pause goes past it") {
    const auto deadline = start + 500ms;
    attempt a = waiting(with(deadline));
    int looks = 0;
    auto last_look = start;
    while (a.step().what == kind::pause) {
        CHECK(a.step().at <= deadline);
        a.sleep();
        if (a.step().what == kind::send_look) {
            ++looks;
            last_look = a.now();
            CHECK(a.step().at >= last_look + 50ms);
            a.answer(busy(20s), 1ms);
        }
    }
    CHECK(a.step().what == kind::gave_up);
    CHECK(last_look == deadline);
    CHECK(looks > 5);
    CHECK_FALSE(a.step().leave_first);
}

TEST_CASE("a lock that became free by the deadline is taken by the last look") {
    attempt a(with(start + 100us), true);
    a.answer(busy(20s));
    a.sleep();
    REQUIRE(a.now() == start + 100us);
    CHECK(a.answer(granted, 1ms).what == kind::granted);
}

TEST_CASE("a look that is answered after the deadline ends the wait") {
    attempt a(with(start + 10ms), true);
    CHECK(a.answer(busy(20s), 11ms).what == kind::gave_up);
}

TEST_CASE("a holder whose key never expires is reported, as last seen") {
    attempt once(one_try());
    once.answer(taken);
    CHECK(once.answer(busy(-1ms)).without_ttl);

    attempt a(with(start + 100ms), true);
    a.answer(busy(-1ms), 1ms);
    a.sleep();
    CHECK(a.answer(busy(20s), 200ms).what == kind::gave_up);
    CHECK_FALSE(a.step().without_ttl);

    attempt asleep(with(start + 100us), true);
    asleep.answer(busy(-1ms));
    CHECK(asleep.sleep().what == kind::send_look);
    CHECK(asleep.answer(busy(-1ms), 1ms).what == kind::gave_up);
    CHECK(asleep.step().without_ttl);
}

// ---- answers that do not come ----------------------------------------------------------------------------

TEST_CASE("an answer that is lost is asked for at once, with the same token") {
    for (const auto cause : {errc::no_reply, errc::protocol_error, errc::reply_too_large}) {
        attempt a;
        const auto& step = a.answer(lost(cause), 200ms);
        CHECK(step.what == kind::send_look);
        CHECK_NOTHING_FIRST(step);
    }
    attempt once(one_try());
    CHECK(once.answer(lost(), 200ms).what == kind::send_look);
    CHECK_NOTHING_FIRST(once.step());
}

TEST_CASE("a second lost answer makes a pause, and the same token is asked for after it") {
    attempt a;
    a.answer(lost(), 1ms);
    CHECK(a.answer(lost(), 1ms).what == kind::pause);
    CHECK(a.pause() <= 1ms);
    CHECK(a.sleep().what == kind::send_look);
    CHECK_NOTHING_FIRST(a.step());
}

TEST_CASE("lost answers are ridden out for the patience, then fail and give back what may be ours") {
    attempt a;
    while (a.step().what != kind::failed) {
        CHECK_NOTHING_FIRST(a.step());
        if (a.step().what == kind::pause) {
            a.sleep();
        } else {
            a.answer(lost(errc::protocol_error), 100ms);
        }
        REQUIRE(a.now() < start + 3s);
    }
    CHECK(a.now() >= start + 2s);
    CHECK(a.step().cause == errc::protocol_error);
    CHECK(a.step().leave_first);
}

TEST_CASE("a try asks once for a lost answer, then fails and gives back what may be ours") {
    attempt a(one_try());
    a.answer(lost(), 200ms);
    a.answer(lost(), 200ms);
    CHECK(a.step().what == kind::failed);
    CHECK(a.step().cause == errc::no_reply);
    CHECK(a.step().leave_first);
}

TEST_CASE("an answer lost at the deadline fails at once and gives back what may be ours") {
    attempt a(with(start + 200ms));
    a.answer(lost(), 200ms);
    CHECK(a.step().what == kind::failed);
    CHECK(a.step().leave_first);
}

TEST_CASE(
    "a lost answer and then somebody else's lock: what was sent may still be applied, so it is given back") {
    attempt once(one_try());
    once.answer(lost(), 1ms);
    CHECK(once.answer(busy(20s)).what == kind::gave_up);
    CHECK(once.step().leave_first);
    CHECK(once.step().in_doubt);

    attempt a(with(start + 20ms));
    a.answer(lost(), 1ms);
    a.answer(busy(20s), 1ms);
    while (a.step().what != kind::gave_up) {
        if (a.step().what == kind::pause) {
            a.sleep();
        } else {
            a.answer(busy(20s), 1ms);
        }
    }
    CHECK(a.step().leave_first);
    CHECK(a.step().in_doubt);
}

TEST_CASE("a lost answer and then a refusal: what may be ours is given back") {
    attempt a;
    a.answer(lost(), 1ms);
    CHECK(a.answer(refused(errc::permission_denied)).what == kind::failed);
    CHECK(a.step().cause == errc::permission_denied);
    CHECK(a.step().leave_first);
}

// ---- trouble ----------------------------------------------------------------------------------------------

// What a server in protected mode had refused was released for as long as a lease, again and again.
TEST_CASE("a refusal fails at once with its cause, and only an unknown one is followed by a release") {
    using distlock::reply;
    const std::vector<std::pair<reply, errc>> certain{
        {reply::error("WRONGTYPE of another kind"), errc::wrong_type},
        {reply::error("NOPERM"), errc::permission_denied},
        {reply::error("OOM command not allowed"), errc::out_of_memory},
        {reply::error("ERR unknown command 'EVALSHA'"), errc::unsupported_command},
        {reply::error("DENIED Redis is running in protected mode"), errc::server_error},
        {reply::not_sent(errc::server_error, "protected mode"), errc::server_error},
        {reply::not_sent(errc::authentication_failed, "AUTH"), errc::authentication_failed},
        {reply::not_sent(errc::wrong_process, "fork"), errc::wrong_process}};
    for (const bool once : {false, true}) {
        auto limits = defaults;
        limits.once = once;
        for (const auto& [answer, cause] : certain) {
            attempt a(limits);
            CHECK(a.answer(acquire_outcome::failure(answer)).what == kind::failed);
            CHECK(a.step().cause == cause);
            CHECK_FALSE(a.step().leave_first);
        }
        attempt a(limits);
        CHECK(a.answer(acquire_outcome::failure(reply::error("ERR of a proxy"))).what == kind::failed);
        CHECK(a.step().cause == errc::server_error);
        CHECK(a.step().leave_first);
        CHECK(a.step().in_doubt);
    }
}

// Each attempt left a ticket, and each of those was offered the lock in vain.
TEST_CASE("a lock that a script wrote before it came to a command it may not run is given back once") {
    const std::vector<std::pair<const char*, errc>> texts{
        {"ERR The user executing the script can't run this command or subcommand script: 1155, on "
         "@user_script:6.",
         errc::permission_denied},
        {"NOPERM User w has no permissions to run the 'pttl' command script: 1155, on @user_script:6.",
         errc::permission_denied},
        {"ERR Error running script (call to f_1155): @user_script:6: Unknown Redis command called from Lua "
         "script",
         errc::unsupported_command}};
    for (const auto& [text, cause] : texts) {
        INFO(text);
        attempt a;
        CHECK(a.answer(acquire_outcome::failure(distlock::reply::error(text))).what == kind::failed);
        CHECK(a.step().cause == cause);
        CHECK(a.step().leave_first);
        CHECK(a.step().broke_off);
        CHECK_FALSE(a.step().in_doubt);
    }
    // The name of a lock or a user is echoed.
    for (const char* text :
         {"ERR unknown command 'EVALSHA', with args beginning with: '9fba' '4' '@user_script' ",
          "NOPERM User scripter has no permissions to run the 'evalsha' command",
          "NOPERM User bob has no permissions to run the 'script|load' command"}) {
        INFO(text);
        attempt a;
        CHECK(a.answer(acquire_outcome::failure(distlock::reply::error(text))).what == kind::failed);
        CHECK_FALSE(a.step().leave_first);
    }
}

TEST_CASE("a refusal in the middle of a wait ends it") {
    attempt a = waiting();
    a.sleep();
    CHECK(a.answer(refused(errc::wrong_type)).what == kind::failed);
    CHECK_FALSE(a.step().leave_first);
}

TEST_CASE("a server that cannot serve just now is ridden out for the patience, then fails with the cause") {
    attempt a;
    while (a.step().what != kind::failed) {
        if (a.step().what == kind::pause) {
            CHECK(a.pause() <= 50ms);
            a.sleep();
        } else {
            a.answer(later(errc::read_only), 1ms);
        }
        REQUIRE(a.now() < start + 3s);
    }
    CHECK(a.now() >= start + 2s);
    CHECK(a.now() < start + 2s + 60ms);
    CHECK(a.step().cause == errc::read_only);
    CHECK_FALSE(a.step().leave_first);
}

TEST_CASE("a server that comes back within the patience grants") {
    attempt a;
    a.answer(later());
    a.sleep();
    a.answer(lost(), 500ms);
    a.answer(later(), 1ms);
    a.sleep();
    CHECK(a.answer(granted).what == kind::granted);
}

TEST_CASE("a try does not ride anything out") {
    attempt a(one_try());
    CHECK(a.answer(later(errc::unreachable)).what == kind::failed);
    CHECK(a.step().cause == errc::unreachable);
    CHECK_FALSE(a.step().leave_first);
}

TEST_CASE("without patience the first failure is final") {
    auto limits = defaults;
    limits.patience = 0ms;
    attempt a(limits);
    CHECK(a.answer(later(errc::unreachable)).what == kind::failed);
    attempt b(limits);
    b.answer(lost());  // may be ours: this is worth one question
    CHECK(b.answer(lost()).what == kind::failed);
    CHECK(b.step().leave_first);
}

TEST_CASE("a patience without end does not overflow") {
    for (const milliseconds patience : {milliseconds::max(), milliseconds(10'000'000'000'000)}) {
        auto limits = defaults;
        limits.patience = patience;
        attempt a(limits);
        for (int i = 0; i < 100; ++i) {
            a.answer(later(), 1h);
            REQUIRE(a.step().what == kind::pause);
            a.sleep();
        }
    }
}

TEST_CASE("patience starts anew after every answer about the lock") {
    attempt a(defaults, true);
    for (int i = 0; i < 5; ++i) {
        a.answer(later(), 1900ms);
        REQUIRE(a.step().what == kind::pause);
        a.sleep();
        a.answer(later(), 1900ms);
        REQUIRE(a.step().what == kind::pause);
        a.sleep();
        a.answer(busy(20s), 1ms);
        REQUIRE(a.step().what == kind::pause);
        a.sleep();
    }
}

TEST_CASE("contention is not reported while the last thing known is trouble") {
    attempt asleep(with(start + 1s), true);
    asleep.answer(busy(-1ms), 1ms);
    asleep.sleep();
    while (asleep.step().what != kind::failed) {
        if (asleep.step().what == kind::pause) {
            asleep.sleep();
        } else {
            asleep.answer(later(errc::unreachable), 1ms);
        }
        REQUIRE(asleep.step().what != kind::gave_up);
    }
    CHECK(asleep.step().cause == errc::unreachable);
    CHECK(asleep.now() == start + 1s);
    CHECK_FALSE(asleep.step().without_ttl);

    attempt answered(with(start + 1s), true);
    answered.answer(busy(20s), 1ms);
    answered.sleep();
    CHECK(answered.answer(later(errc::unavailable), 2s).what == kind::failed);
}

TEST_CASE("trouble is not reported when the last thing known is contention") {
    attempt a(with(start + 100us), true);
    a.answer(later(errc::unreachable));
    a.sleep();
    REQUIRE(a.step().what == kind::failed);  // time was up while in trouble

    attempt b(with(start + 1s), true);
    b.answer(later(errc::unreachable), 1ms);
    b.sleep();
    while (b.step().what != kind::gave_up) {
        if (b.step().what == kind::pause) {
            b.sleep();
        } else {
            b.answer(busy(20s), 1ms);
        }
        REQUIRE(b.step().what != kind::failed);
    }
    CHECK_FALSE(b.step().leave_first);
}

// ---- deadlines --------------------------------------------------------------------------------------------

TEST_CASE("an answer may take until the deadline") {
    attempt a(with(start + 5s));
    CHECK(a.step().at == start + 5s);
    CHECK(a.answer(taken, 1s).at == start + 5s);
}

TEST_CASE("a deadline in the past still makes one try, with 50 ms for the answer") {
    for (const auto deadline :
         {start, start - 1s, clock::time_point{}, clock::time_point::min(), start + 1ms}) {
        attempt a(with(deadline));
        CHECK(a.step().what == kind::send_acquire);
        CHECK(a.step().at == start + 50ms);
        CHECK(attempt(with(deadline)).answer(granted, 20ms).what == kind::granted);
        // Two commands tell whose it is; there is no third.
        CHECK(a.answer(taken, 1ms).what == kind::send_look);
        CHECK(a.step().at == start + 51ms);
        CHECK(a.answer(busy(20s), 1ms).what == kind::gave_up);
    }
}

TEST_CASE("after the deadline an answer may take twice as long as the slowest before it, up to 200 ms") {
    for (const auto& [took, more] : {std::pair{20ms, 50ms}, {40ms, 80ms}, {300ms, 200ms}}) {
        attempt a(with(start));
        CHECK(a.answer(taken, took).what == kind::send_look);
        CHECK(a.step().at == start + took + more);
    }
}

TEST_CASE("a deadline in the past ends trouble at the first answer") {
    CHECK(attempt(with(start - 1s)).answer(later(errc::unreachable)).what == kind::failed);
    attempt a(with(start - 1s));
    CHECK(a.answer(lost(), 50ms).what == kind::failed);
    CHECK(a.step().leave_first);
}

TEST_CASE("without a deadline an answer is bounded by the connection alone") {
    attempt a;
    CHECK(a.step().at == clock::time_point::max());
    a.answer(taken, 1s);
    CHECK(a.step().at == clock::time_point::max());
}

TEST_CASE("nothing overflows near the end of the clock") {
    acquire machine(with(clock::time_point::max()), 1);
    const auto first = machine.begin(clock::time_point::max() - 1ms, true);
    CHECK(first.at == clock::time_point::max());
    const auto end =
        machine.on_outcome(granted, clock::time_point::max() - 1ms, clock::time_point::max() - 1us);
    CHECK(end.what == kind::granted);
}

// ---- stop requests ----------------------------------------------------------------------------------------

TEST_CASE("a stop before anything was answered has nothing to give back") {
    attempt a;
    CHECK(a.stop().what == kind::failed);
    CHECK(a.step().cause == errc::cancelled);
    CHECK_FALSE(a.step().leave_first);
}

TEST_CASE("a stop in a wait has nothing to give back") {
    attempt a = waiting();
    CHECK(a.stop().cause == errc::cancelled);
    CHECK_FALSE(a.step().leave_first);
    attempt in_trouble;
    in_trouble.answer(later());
    CHECK(in_trouble.stop().cause == errc::cancelled);
    CHECK_FALSE(in_trouble.step().leave_first);
}

TEST_CASE("a stop after a lost answer gives back what may be ours, whatever came in between") {
    attempt at_once;
    at_once.answer(lost());
    CHECK(at_once.stop().leave_first);
    CHECK(at_once.step().cause == errc::cancelled);

    attempt in_pause;
    in_pause.answer(lost());
    in_pause.answer(lost());
    CHECK(in_pause.stop().leave_first);

    attempt behind_another;
    behind_another.answer(lost());
    behind_another.answer(busy(20s));
    CHECK(behind_another.stop().leave_first);
}

TEST_CASE("a sending that the stop request ended is in doubt, and is not asked again") {
    attempt a;
    a.answer(lost(errc::cancelled));
    CHECK(a.step().what == kind::failed);
    CHECK(a.step().cause == errc::cancelled);
    CHECK(a.step().leave_first);
    CHECK(a.step().in_doubt);
}

TEST_CASE("a stop after a late grant was given back has nothing more to give back") {
    attempt a;
    a.answer(granted, 30s);  // whoever was told to release does so first, stop or no stop
    CHECK(a.stop().cause == errc::cancelled);
    CHECK_FALSE(a.step().leave_first);

    attempt b;
    b.answer(granted, 30s);
    b.sleep();
    b.answer(busy(20s));
    CHECK(b.stop().cause == errc::cancelled);
    CHECK_FALSE(b.step().leave_first);
}

// ---- everything at once -----------------------------------------------------------------------------------

namespace {

/// Runs one attempt through random answers and checks, from outside, what must hold of any.
class random_attempt {
  public:
    explicit random_attempt(std::mt19937_64& random) : random_(random) {
        limits_.lease = milliseconds(10 + pick(5'000));
        limits_.recheck = milliseconds(1 + pick(200));
        limits_.patience = milliseconds(pick(3) == 0 ? 0 : pick(3'000));
        limits_.once = pick(5) == 0;
        if (pick(4) != 0) limits_.deadline = start + milliseconds(pick(4'000)) - 500ms;
    }

    /// Returns: what went wrong; empty when nothing did.
    std::string run() {
        acquire machine(limits_, random_());
        acquire_step step = machine.begin(start, pick(2) == 0);
        for (int steps = 0; steps < 20'000; ++steps) {
            if (step.leave_first && !may_own_) return "released what was never sent, or twice";
            if (step.leave_first) {
                may_own_ = false;
                dead_ = true;
            }
            if (step.fresh_token) dead_ = may_own_ = false;
            switch (step.what) {
                case kind::send_acquire:
                case kind::send_look: {
                    if (dead_) return "sent a token whose release was sent";
                    if (step.at < now_ + 50ms || step.at < limits_.deadline) return "no time for an answer";
                    if (now_ >= limits_.deadline && ++sent_late_ > 2) return "goes on after the deadline";
                    const auto sent = now_;
                    now_ += std::chrono::microseconds(1 + pick(pick(10) == 0 ? 6'000'000 : 20'000));
                    const auto outcome = any_outcome();
                    step = machine.on_outcome(outcome, sent, now_);
                    if (step.what == kind::granted) {
                        if (step.at != validity_end(sent, limits_.lease))
                            return "validity is not from the sending";
                        if (outcome.what != acquire_outcome::kind::granted) return "granted without a grant";
                    } else if (pick(50) == 0) {
                        const bool owed = step.leave_first;
                        step = machine.on_stop();
                        step.leave_first = step.leave_first || owed;
                        if (step.what != kind::failed || step.cause != errc::cancelled) return "not stopped";
                    }
                    break;
                }
                case kind::pause: {
                    if (limits_.once) return "a try waits";
                    const auto span = step.at - now_;
                    if (span < 0ns && now_ < limits_.deadline) return "a pause into the past";
                    if (span > limits_.recheck) return "a pause out of bounds";
                    if (step.at > limits_.deadline) return "a pause past the deadline";
                    if (ttl_ && span > *ttl_ + 1ms) return "a pause past the TTL";
                    now_ = step.at;
                    step = pick(50) == 0 ? machine.on_stop() : machine.on_wake(now_);
                    break;
                }
                case kind::send_enter:
                case kind::send_claim:
                    return "queues, or claims, without leave to";
                case kind::granted:
                    if (!last_was_grant_) return "granted without a grant";
                    return now_ < step.at ? "" : "granted after the validity";
                case kind::gave_up:
                    if (may_own_) return "gave up and left what may be ours";
                    if (!limits_.once && now_ < limits_.deadline) return "gave up before the deadline";
                    return in_trouble_ ? "contention was reported while in trouble" : "";
                case kind::failed:
                    if (may_own_) return "failed and left what may be ours";
                    if (step.cause == errc::cancelled || refused_) return "";
                    if (step.cause == errc::lease_expired) return "";
                    if (step.cause != cause_) return "failed with another cause than the last";
                    if (!in_trouble_) return "trouble was reported instead of contention";
                    if (limits_.once || now_ >= limits_.deadline ||
                        now_ - trouble_since_ >= limits_.patience) {
                        return "";
                    }
                    return "failed before its time";
            }
        }
        return "does not end";
    }

  private:
    std::int64_t pick(std::int64_t below) {
        return static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(below));
    }

    acquire_outcome any_outcome() {
        ttl_.reset();
        last_was_grant_ = false;
        switch (pick(12)) {
            case 0:
                last_was_grant_ = may_own_ = true;
                if (!in_trouble_) trouble_since_ = now_;
                in_trouble_ = true;  // if it comes too late; else this is the end
                return granted;
            case 1:
                refused_ = true;
                return refused(errc::out_of_memory);
            case 2:
            case 3:
            case 4:
                may_own_ = true;
                return trouble(lost(pick(2) == 0 ? errc::no_reply : errc::protocol_error));
            case 5:
            case 6:
            case 7:
                return trouble(later(pick(2) == 0 ? errc::unreachable : errc::unavailable));
            default:
                in_trouble_ = false;
                if (pick(3) == 0) return taken;
                const milliseconds ttl(pick(2) == 0 ? pick(100) - 2 : pick(10'000));
                if (ttl >= 0ms) ttl_ = ttl;
                return busy(ttl);
        }
    }

    acquire_outcome trouble(acquire_outcome o) {
        if (!in_trouble_) trouble_since_ = now_;
        in_trouble_ = true;
        cause_ = o.cause;
        return o;
    }

    std::mt19937_64& random_;
    acquire_limits limits_;
    clock::time_point now_ = start;
    clock::time_point trouble_since_ = start;
    std::optional<milliseconds> ttl_;
    errc cause_ = {};
    int sent_late_ = 0;
    bool in_trouble_ = false;
    bool refused_ = false;
    bool last_was_grant_ = false;
    bool may_own_ = false;  // something by the present token was or may be applied, and no release was sent
    bool dead_ = false;     // a release by the present token was sent
};

}  // namespace

TEST_CASE("a hundred thousand random attempts keep every rule") {
    std::mt19937_64 random(1);  // any seed; fixed, so that a failure comes again
    std::size_t wrong = 0;
    for (int i = 0; i < 100'000 && wrong < 5; ++i) {
        if (const auto what = random_attempt(random).run(); !what.empty()) {
            ++wrong;
            UNSCOPED_INFO("attempt " << i << ": " << what);
        }
    }
    CHECK(wrong == 0);
}

// ---- what replicas have to acknowledge
// ---------------------------------------------------------------------

namespace {

using distlock::acknowledgement;
using renewed = distlock::renew_outcome::kind;

acquire_limits replicated(acquire_limits limits = defaults) {
    limits.replicas = 1;
    return limits;
}
const acknowledgement enough{acknowledgement::kind::enough, {}, 1};
const acknowledgement too_few{acknowledgement::kind::too_few, errc::not_replicated, 0};
acknowledgement unknown(errc cause = errc::no_reply) { return {acknowledgement::kind::unknown, cause}; }

}  // namespace

TEST_CASE("a grant that enough replicas acknowledged counts, from before it was sent") {
    attempt a(replicated());
    CHECK(a.answer(granted, 5ms, enough).what == kind::granted);
    CHECK(a.step().at == validity_end(start, 30s));
    CHECK_NOTHING_FIRST(a.step());
}

TEST_CASE("a grant that too few replicas acknowledged is released, and is no grant") {
    attempt a(replicated());
    CHECK(a.answer(granted, 5ms, too_few).what == kind::failed);
    CHECK(a.step().cause == errc::not_replicated);
    CHECK(a.step().leave_first);
    CHECK_FALSE(a.step().in_doubt);
}

TEST_CASE("an earlier success that is found is claimed: nothing was written when it was") {
    attempt a(replicated());
    a.answer(lost(), 200ms);
    CHECK(a.answer(granted, 1ms).what == kind::send_claim);
    const auto sent = a.now();
    CHECK(a.claimed(renewed::kept, 2ms, enough).what == kind::granted);
    CHECK(a.step().at == validity_end(sent, 30s));
}

TEST_CASE("a claim that too few replicas acknowledged is released, and is no grant") {
    attempt a(replicated(), true);
    CHECK(a.answer(granted, 1ms).what == kind::send_claim);
    CHECK(a.claimed(renewed::kept, 2ms, too_few).what == kind::failed);
    CHECK(a.step().cause == errc::not_replicated);
    CHECK(a.step().leave_first);
}

TEST_CASE("a claim whose answer says nothing of replicas is none") {
    attempt a(replicated(), true);
    CHECK(a.answer(granted, 1ms).what == kind::send_claim);
    CHECK(a.claimed(renewed::kept, 1ms).what == kind::pause);
}

TEST_CASE("a lock is claimed again where it is not known what replicas have, no longer than patience lasts") {
    attempt a(replicated());
    a.answer(granted, 1ms, unknown());
    const auto begun = a.now();
    int claims = 0;
    while (a.step().what == kind::pause) {
        CHECK(a.sleep().what == kind::send_claim);
        a.claimed(renewed::kept, 1ms, unknown());
        ++claims;
    }
    CHECK(a.step().what == kind::failed);
    CHECK(a.step().cause == errc::no_reply);
    CHECK(a.step().leave_first);
    CHECK(claims > 5);
    CHECK(a.now() - begun >= defaults.patience);
    CHECK(a.now() - begun < defaults.patience + 200ms);

    attempt b(replicated());
    b.answer(granted, 1ms, unknown());
    b.sleep();
    CHECK(b.claimed(renewed::kept, 1ms, enough).what == kind::granted);
}

TEST_CASE("a claim is not waited for past the validity of what it claims") {
    const auto end = validity_end(start, 30s);
    attempt a(replicated());
    CHECK(a.answer(granted, end - start - 1ns, unknown()).what == kind::pause);
    CHECK(a.step().at == end);
    CHECK_FALSE(a.step().leave_first);
    CHECK(a.sleep().leave_first);
    CHECK(a.step().fresh_token);
}

TEST_CASE("an attempt whose grant ran out before it was claimed asks for the lock anew, and claims it anew") {
    const auto end = validity_end(start, 30s);
    attempt a(replicated());
    CHECK(a.answer(granted, end - start - 1ns, unknown()).what == kind::pause);
    CHECK(a.sleep().fresh_token);
    while (a.step().what == kind::pause) a.sleep();
    CHECK(a.step().what == kind::send_look);
    CHECK(a.answer(granted, 1ms, enough).what == kind::granted);
}

TEST_CASE("a stop while replicas are waited for leaves the lock") {
    attempt a(replicated());
    CHECK(a.answer(granted, 1ms, unknown(errc::cancelled)).what == kind::failed);
    CHECK(a.step().cause == errc::cancelled);
    CHECK(a.step().leave_first);
}

TEST_CASE("a server that refuses to wait for replicas fails the attempt at once, and the lock is released") {
    attempt a(replicated());
    const acknowledgement refusal{acknowledgement::kind::refused, errc::permission_denied};
    CHECK(a.answer(granted, 1ms, refusal).what == kind::failed);
    CHECK(a.step().cause == errc::permission_denied);
    CHECK(a.step().leave_first);
}

TEST_CASE("a lock that is taken is waited for as ever, whatever its server says of replicas") {
    attempt a(replicated());
    CHECK(a.answer(taken, 1ms, enough).what == kind::send_look);
    CHECK(a.answer(busy(20s), 1ms).what == kind::pause);
}

TEST_CASE("a try asks once whether replicas have the lock") {
    attempt a(replicated(one_try()));
    CHECK(a.answer(granted, 1ms, unknown()).what == kind::failed);
    CHECK(a.step().cause == errc::no_reply);
    CHECK(a.step().leave_first);
}

}  // namespace acquire_tests
