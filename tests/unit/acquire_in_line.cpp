// The machine that takes a lock, when it may wait in line: how it gets there, and what it is offered.
#include <chrono>

#include "catch.hpp"
#include "support/line_attempt.hpp"

using namespace line_test;

// ---- into the line ----------------------------------------------------------------------------------------

TEST_CASE("a lock that was free the last time is asked for by the plain command, then in line at once") {
    attempt a(defaults, false);
    CHECK(a.step().what == kind::send_acquire);
    a.answer(taken);
    CHECK(a.enters(place::join));
    CHECK_NOTHING_FIRST(a.step());
    CHECK(a.step().at == defaults.deadline);
}

TEST_CASE("a lock that was taken the last time is asked for in line at once, and granted if it is free") {
    attempt a;
    CHECK(a.enters(place::join));
    CHECK(a.answer(granted, 2s).at == validity_end(start, 30s));
    CHECK(a.step().what == kind::granted);
    CHECK_NOTHING_FIRST(a.step());
}

TEST_CASE("who got in line waits, until the deadline and no shorter") {
    const attempt forever = in_line();
    CHECK(forever.step().at == clock::time_point::max());
    CHECK_NOTHING_FIRST(forever.step());
    const attempt bounded = in_line(with(start + 5s));
    CHECK(bounded.step().at == start + 5s);
}

TEST_CASE("a deadline in the past gets into no line") {
    attempt a(with(start - 1s), false);
    a.answer(taken);
    CHECK(a.step().what == kind::send_look);
    CHECK(a.answer(busy).what == kind::gave_up);
    CHECK_NOTHING_FIRST(a.step());
    CHECK(attempt(with(start - 1s)).step().what == kind::send_look);
}

TEST_CASE("an answer to the entering that comes after the deadline leads out of the line again") {
    attempt a(with(start + 1s));
    a.answer(busy, 1s);
    CHECK(a.enters(place::quit));
    CHECK(a.step().at == a.now() + 200ms);
}

// ---- offers -----------------------------------------------------------------------------------------------

TEST_CASE("a fresh offer is the grant, valid from before the entering and not from the wait") {
    attempt a = in_line();
    const auto entered = start;
    const auto& step = a.waited(offered(), 10s);
    CHECK(step.what == kind::granted);
    CHECK(step.at == validity_end(entered, 30s));
    CHECK_NOTHING_FIRST(step);
}

TEST_CASE("a fresh offer is valid for the lease it was made with") {
    attempt a = in_line();
    CHECK(a.waited(offered(40s), 10s).at == validity_end(start, 40s));
}

TEST_CASE("validity counts from the last entering, when there were several") {
    attempt a = in_line();
    a.waited(taken, 7s);
    a.sleep();
    REQUIRE(a.enters(place::stay));
    const auto entered = a.now();
    a.answer(busy, 1s);
    CHECK(a.waited(offered(), 5s).at == validity_end(entered, 30s));
}

TEST_CASE("an offer is confirmed when half the lease or more may have gone since") {
    const auto age_of_half = 15s - 1ms;  // the entering took the other millisecond
    attempt fresh = in_line();
    CHECK(fresh.waited(offered(), age_of_half - 1ns).what == kind::granted);
    attempt old = in_line();
    old.waited(offered(), age_of_half);
    CHECK(old.enters(place::adopt));
    CHECK_NOTHING_FIRST(old.step());
}

TEST_CASE("an offer that lacks something is confirmed, however fresh it is") {
    attempt a = in_line();
    a.waited(offered(), 1ms, false);
    CHECK(a.enters(place::adopt));
    CHECK_NOTHING_FIRST(a.step());
}

TEST_CASE("a confirmed offer is valid from before the confirmation") {
    attempt a = adopting();
    const auto sent = a.now();
    CHECK(a.answer(granted, 3s).what == kind::granted);
    CHECK(a.step().at == validity_end(sent, 30s));
    CHECK_NOTHING_FIRST(a.step());
}

TEST_CASE("an offer that comes after the deadline is taken all the same") {
    attempt a = in_line(with(start + 1s));
    CHECK(a.waited(offered(), 1s).what == kind::granted);
    attempt b = in_line(with(start + 1s));
    b.waited(offered(), 1s, false);
    CHECK(b.enters(place::adopt));
}

TEST_CASE("an offer that had run out leads back into the line, by a token that was never released") {
    attempt a = adopting();
    a.answer(busy);
    CHECK(a.enters(place::join));
    CHECK_FALSE(a.step().release_first);
    CHECK_FALSE(a.step().leave_first);
    CHECK(a.step().fresh_token);
    CHECK(a.answer(busy).what == kind::wait);
}

TEST_CASE("an offer that had run out when the time is up is somebody else's lock") {
    attempt a = adopting(with(start + 2s));
    CHECK(a.answer(busy, 1s).what == kind::gave_up);
    CHECK_NOTHING_FIRST(a.step());
}

TEST_CASE("a confirmation that is granted too late is given back and asked for anew by another token") {
    attempt a = adopting();
    a.answer(granted, 30s);
    CHECK(a.step().what == kind::pause);
    CHECK(a.step().release_first);
    CHECK(a.step().fresh_token);
    CHECK_FALSE(a.step().leave_first);
}

TEST_CASE("a lost confirmation is repeated, and given back when it stays lost") {
    attempt a = adopting(with(start + 10s));
    a.answer(lost(), 200ms);
    CHECK(a.enters(place::adopt));
    CHECK_NOTHING_FIRST(a.step());
    a.answer(lost(), 200ms);
    CHECK(a.step().what == kind::pause);
    a.sleep();
    CHECK(a.enters(place::adopt));
    a.answer(lost(), 10s);
    CHECK_FAILED(a.step(), errc::no_reply, true, false);
}

TEST_CASE("a lost confirmation of an offer that had run out is released before the next token is sent") {
    attempt a = adopting();
    a.answer(lost(), 200ms);
    a.answer(busy);
    CHECK(a.enters(place::join));
    CHECK(a.step().release_first);
    CHECK(a.step().fresh_token);
    CHECK_FALSE(a.open());
}

TEST_CASE("a confirmation that is refused, or stopped, gives the offer back and leaves no line") {
    attempt a = adopting();
    a.answer(refused(errc::permission_denied));
    CHECK_FAILED(a.step(), errc::permission_denied, true, false);
    attempt b = adopting();
    b.stop();
    CHECK_FAILED(b.step(), errc::cancelled, true, false);
    attempt c = adopting();
    c.answer(later());
    c.stop();
    CHECK_FAILED(c.step(), errc::cancelled, true, false);
}

TEST_CASE("an offer ends what was open by the own token, which whoever waits has to release") {
    attempt a;
    a.answer(lost());
    REQUIRE(a.enters(place::stay));
    a.answer(busy);
    CHECK(a.open());
    CHECK(a.waited(offered(), 1s).what == kind::granted);
    CHECK_FALSE(a.open());
    CHECK_NOTHING_FIRST(a.step());
}
