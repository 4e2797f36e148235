// When Sentinels are asked who the master is, by whom, and how often where they do not answer.
#include <chrono>

#include <distlock/base/clock.hpp>
#include <distlock/net/refresh_schedule.hpp>
#include <distlock/net/sentinel_schedule.hpp>

#include "support/catch.hpp"

namespace sentinel_schedule_tests {

using namespace std::chrono_literals;
using distlock::clock;
using distlock::detail::sentinel_schedule;
using caller = sentinel_schedule::caller;
using ending = sentinel_schedule::ending;

namespace {

const clock::time_point start = clock::time_point{} + 1h;
constexpr bool known = true;
constexpr bool unknown = false;

// Effects: it is asked, and there is no answer.
void ask(sentinel_schedule& s, clock::time_point now, caller who, bool master, ending how) {
    REQUIRE(s.begin(now, who, master));
    CHECK(s.running());
    CHECK_FALSE(s.begin(now, who, master));
    s.end(how, now, 0ms);
    CHECK_FALSE(s.running());
}

}  // namespace

TEST_CASE("the first caller asks, whatever time it has, and the next one when the master is in doubt") {
    for (const auto who : {caller::patient, caller::hurried}) {
        sentinel_schedule s;
        ask(s, start, who, unknown, ending::learned);
        CHECK_FALSE(s.begin(start + 1h, who, known));
        s.doubt();
        CHECK_FALSE(s.begin(start + 99ms, who, known));
        ask(s, start + 100ms, who, known, ending::learned);
    }
}

TEST_CASE("a master that is known is used for a second after Sentinels were asked in vain") {
    sentinel_schedule s;
    ask(s, start, caller::patient, known, ending::in_vain);
    for (const auto who : {caller::patient, caller::hurried})
        CHECK_FALSE(s.may_begin(start + 99ms, who, known));
    CHECK_FALSE(s.may_begin(start + 999ms, caller::patient, known));
    CHECK(s.may_begin(start + 1s, caller::patient, known));
    // Who has no master asks as soon as may be.
    CHECK(s.may_begin(start + 100ms, caller::patient, unknown));
}

TEST_CASE("a question in vain to Sentinels counts until one answers, whoever had too little time meanwhile") {
    sentinel_schedule s;
    CHECK_FALSE(s.in_vain());
    ask(s, start, caller::hurried, known, ending::cut_short);
    CHECK_FALSE(s.in_vain());
    ask(s, start + 1min, caller::patient, known, ending::in_vain);
    CHECK(s.in_vain());
    ask(s, start + 2min, caller::hurried, known, ending::cut_short);
    CHECK(s.in_vain());
    ask(s, start + 3min, caller::patient, known, ending::learned);
    CHECK_FALSE(s.in_vain());
}

TEST_CASE("a question that a hurried caller had no time for is asked by a patient one at once") {
    sentinel_schedule s;
    ask(s, start, caller::hurried, known, ending::cut_short);
    CHECK(s.cut_short());
    CHECK(s.may_begin(start + 100ms, caller::patient, known));
    ask(s, start + 100ms, caller::patient, known, ending::learned);
    CHECK_FALSE(s.cut_short());
}

TEST_CASE("hurried callers ask less and less often, until there is an answer") {
    sentinel_schedule s;
    auto now = start;
    for (const auto pause : {100ms, 200ms, 400ms, 800ms, 1000ms, 1000ms}) {
        ask(s, now, caller::hurried, known, ending::cut_short);
        CHECK_FALSE(s.may_begin(now + pause - 1ms, caller::hurried, known));
        now += pause;
    }
    ask(s, now, caller::hurried, known, ending::learned);
    s.doubt();
    ask(s, now + 100ms, caller::hurried, known, ending::cut_short);
    CHECK(s.may_begin(now + 200ms, caller::hurried, known));
}

TEST_CASE("a sign is unheeded until somebody asks, and where that was cut short") {
    sentinel_schedule s;
    ask(s, start, caller::patient, unknown, ending::learned);
    CHECK_FALSE(s.unheeded());
    s.see_sign();
    CHECK(s.unheeded());
    ask(s, start + 100ms, caller::hurried, known, ending::cut_short);
    CHECK(s.unheeded());
    ask(s, start + 200ms, caller::patient, known, ending::in_vain);
    CHECK_FALSE(s.unheeded());
}

TEST_CASE("signs are looked for ten times a second") {
    sentinel_schedule s;
    CHECK(s.begin_look(start));
    CHECK_FALSE(s.begin_look(start + 99ms));
    CHECK(s.begin_look(start + 100ms));
}

}  // namespace sentinel_schedule_tests
