// The machine that takes a lock, when it may wait in line: waits that end without an offer, trouble, and the ways out.
#include <chrono>

#include "catch.hpp"
#include "support/line_attempt.hpp"

using namespace line_test;

// ---- waits that end without an offer ----------------------------------------------------------------------

TEST_CASE("a wait that ends too early is no busy loop, and keeps its place") {
    attempt a = in_line();
    CHECK(a.waited(taken, 1ms).what == kind::pause);
    CHECK_NOTHING_FIRST(a.step());
    CHECK(a.step().at > a.now());
    a.sleep();
    CHECK(a.enters(place::stay));
    CHECK(a.answer(busy).what == kind::wait);
}

TEST_CASE("a wait whose answer is lost keeps its place, after a pause") {
    attempt a = in_line();
    CHECK(a.waited(lost(), 5s).what == kind::pause);
    CHECK_NOTHING_FIRST(a.step());
    a.sleep();
    CHECK(a.enters(place::stay));
    CHECK(a.answer(granted).what == kind::granted);
}

TEST_CASE("waits that are always lost are ridden out for the patience, and then left") {
    attempt a = in_line();
    a.waited(lost(errc::protocol_error), 1s);
    const auto trouble_since = a.now();
    while (a.step().what != kind::failed) {
        if (a.step().what == kind::pause) {
            a.sleep();
        } else {
            REQUIRE(a.enters(place::stay));
            a.answer(later(errc::unreachable), 10ms);
        }
        REQUIRE(a.now() < trouble_since + 3s);
    }
    CHECK(a.now() >= trouble_since + 2s);
    CHECK_FAILED(a.step(), errc::unreachable, false, true);
}

TEST_CASE("who may not wait gets out of the line and asks again and again") {
    attempt a = in_line();
    a.waited(refused(errc::permission_denied), 1ms);
    CHECK(a.step().what == kind::pause);
    CHECK(a.step().leave_first);
    CHECK_FALSE(a.step().release_first);
    for (int i = 0; i < 3; ++i) {
        a.sleep();
        CHECK(a.step().what == kind::send_look);
        CHECK_FALSE(a.step().leave_first);
        CHECK(a.answer(busy).what == kind::pause);
    }
    a.sleep();
    CHECK(a.answer(granted).what == kind::granted);
    CHECK_NOTHING_FIRST(a.step());
}

// ---- out of the line --------------------------------------------------------------------------------------

TEST_CASE("at the deadline the line is left by one command that takes the lock if it can") {
    for (const auto& nothing : {taken, lost()}) {
        attempt a = in_line(with(start + 5s));
        a.waited(nothing, 5s);
        CHECK(a.enters(place::quit));
        CHECK(a.step().at == a.now() + 50ms);
        attempt b = a;
        CHECK(a.answer(busy).what == kind::gave_up);
        CHECK_NOTHING_FIRST(a.step());
        const auto sent = b.now();
        CHECK(b.answer(granted).what == kind::granted);
        CHECK(b.step().at == validity_end(sent, 30s));
        CHECK_NOTHING_FIRST(b.step());
    }
}

TEST_CASE("a quitting that is not answered is no contention: what may be ours is given back, the line left") {
    for (const auto& trouble : {lost(), later(errc::unreachable), refused(errc::permission_denied)}) {
        attempt a = in_line(with(start + 5s));
        a.waited(taken, 5s);
        a.answer(trouble, 50ms);
        const bool open = trouble.what == acquire_outcome::kind::unknown;
        CHECK_FAILED(a.step(), trouble.cause, open, true);
    }
}

TEST_CASE("a pause in line that ends at the deadline quits; one in trouble fails and leaves") {
    attempt a = in_line(with(start + 2ms));
    a.waited(taken, 500us);
    a.sleep();
    while (a.enters(place::stay)) {
        a.answer(busy, 100us);
        a.waited(taken, 100us);
        if (a.step().what == kind::pause) a.sleep();
    }
    CHECK(a.enters(place::quit));

    attempt b = in_line(with(start + 5s));
    b.waited(lost(errc::protocol_error), 5s);
    CHECK_FAILED(b.step(), errc::protocol_error, false, true);
}

TEST_CASE("a stop leaves the line exactly when we are in it") {
    attempt waiting = in_line();
    waiting.stop();
    CHECK_FAILED(waiting.step(), errc::cancelled, false, true);

    attempt pausing = in_line();
    pausing.waited(taken, 1s);
    pausing.stop();
    CHECK_FAILED(pausing.step(), errc::cancelled, false, true);

    attempt quitting = in_line(with(start + 5s));
    quitting.waited(taken, 5s);
    quitting.stop();
    CHECK_FAILED(quitting.step(), errc::cancelled, false, true);

    attempt before_the_first;
    before_the_first.stop();  // nothing was sent yet
    CHECK_FAILED(before_the_first.step(), errc::cancelled, false, false);

    attempt before_the_line(defaults, false);
    before_the_line.answer(taken);
    REQUIRE(before_the_line.enters(place::join));
    before_the_line.stop();  // instead of sending it
    CHECK_FAILED(before_the_line.step(), errc::cancelled, false, false);

    attempt refused_a_wait = in_line();
    refused_a_wait.waited(refused(errc::permission_denied), 1ms);
    refused_a_wait.stop();  // the leaving was asked for already
    CHECK_FAILED(refused_a_wait.step(), errc::cancelled, false, false);
}

// ---- trouble before the line ------------------------------------------------------------------------------

TEST_CASE(
    "an entering whose answer is lost may have been applied: we stay in line, and leave it when we give up") {
    attempt a;
    a.answer(lost(), 200ms);
    CHECK(a.enters(place::stay));
    CHECK_NOTHING_FIRST(a.step());
    CHECK(a.open());
    attempt stopped = a;
    stopped.stop();
    CHECK_FAILED(stopped.step(), errc::cancelled, true, true);
    CHECK(a.answer(busy).what == kind::wait);
    a.stop();
    CHECK_FAILED(a.step(), errc::cancelled, true, true);
}

TEST_CASE("an entering that was not applied got into no line") {
    for (const auto& trouble : {later(), refused(errc::permission_denied)}) {
        auto limits = defaults;
        limits.patience = 0ms;
        attempt a(limits);
        a.answer(trouble);
        CHECK_FAILED(a.step(), trouble.cause, false, false);
    }
}

TEST_CASE("an entering that was refused with an error nobody knows may have been applied") {
    attempt a;
    a.answer(refused(errc::server_error));
    CHECK_FAILED(a.step(), errc::server_error, true, true);
}

TEST_CASE("in trouble and in no line, the plain command is tried, which needs one key") {
    attempt a;
    a.answer(later());
    REQUIRE(a.step().what == kind::pause);
    CHECK(a.sleep().what == kind::send_acquire);
    attempt b = a;
    CHECK(a.answer(granted).what == kind::granted);
    b.answer(taken);
    CHECK(b.enters(place::join));
}

TEST_CASE("whose place somebody else leaves asks once more at the deadline, and leaves nothing itself") {
    attempt a = in_line(with(start + 1s));
    a.left();
    a.waited(lost(), 1s);
    CHECK(a.enters(place::none));
    CHECK(a.answer(busy).what == kind::gave_up);
    CHECK_NOTHING_FIRST(a.step());
    attempt b = in_line();
    b.left();
    b.waited(lost(errc::cancelled), 1s);
    b.stop();
    CHECK_FAILED(b.step(), errc::cancelled, false, false);
    attempt c = in_line();
    c.left();
    c.waited(busy, 1s);
    c.sleep();
    CHECK(c.enters(place::join));
}
