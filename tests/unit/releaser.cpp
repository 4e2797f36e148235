// What one lock object has released: by whom it is sent, what is said of it, and until when something
// of ours may be left.
#include <atomic>
#include <chrono>
#include <cstddef>
#include <initializer_list>
#include <memory>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>

#include <distlock/base/token.hpp>
#include <distlock/engine/background_io.hpp>
#include <distlock/engine/releaser.hpp>
#include <distlock/net/receipt.hpp>
#include <distlock/testing/manual_clock.hpp>
#include <distlock/wire/any_dialect.hpp>
#include <distlock/wire/shared_handoff.hpp>

#include "support/allocations.hpp"
#include "support/catch.hpp"
#include "support/handoff_names.hpp"
#include "support/io_over.hpp"
#include "support/release_fixtures.hpp"
#include "support/tokens_in_doubt.hpp"
#include "support/waiting.hpp"

namespace releaser_tests {

namespace {

using namespace release_test;
using distlock::release_mode;
using distlock::release_outcome;
using distlock::engine::background_io;
using distlock::engine::certainty;
using distlock::engine::ended_acquisition;

const token owner = token::generate();
const token another = token::generate();
const std::shared_ptr<const distlock::any_dialect> readers =
    std::make_shared<const distlock::any_dialect_of<distlock::shared_handoff>>(
        "orders", distlock::lock_options{.lease = lease});
const reply gone = reply::not_sent(errc::unreachable, "nobody listens");
const reply loading = reply::error("LOADING x");

template <class Conn>
struct releasing {
    using tested = distlock::engine::releaser;

    explicit releasing(release_mode mode = release_mode::posted,
                       const std::shared_ptr<const distlock::any_dialect>& of = dialect)
        : how(mode), it(std::make_unique<tested>((manual_clock::reset(), io), of, answer_time)) {}

    void then(std::initializer_list<reply> answers) {
        for (const auto& one : answers) redis.inner.then(one);
    }
    release_outcome release(certainty sure = certainty::granted, bool valid = true) {
        const auto now = manual_clock::now();
        return it->release({owner, valid ? now + 10s : now, now + 20s, sure}, how);
    }
    release_outcome give_back(bool valid) {
        const auto now = manual_clock::now();
        return it->give_back({owner, valid ? now + 10s : now, now + 20s, certainty::granted});
    }
    release_outcome confirm(std::initializer_list<reply> answers, bool valid = true) {
        then(answers);
        const auto now = manual_clock::now();
        return it->confirm(owner, valid ? now + 1ns : now, now + 20s);
    }
    void leave(certainty sure = certainty::in_doubt, const std::stop_token& stop = {}) {
        it->leave(owner, sure, stop);
    }
    std::size_t executed() const { return redis.inner.commands().size(); }
    /// Returns: what was executed by now.
    words sent() const { return executed_by(redis.inner); }
    /// Returns: whether that much is executed by and by, in the background.
    bool asks(std::size_t count) {
        return eventually([&] { return executed() >= count; });
    }
    /// Returns: whether nothing of ours is left by and by, while time goes on.
    bool nothing_left(distlock::clock::duration step = 1ms) {
        return eventually([&] {
            manual_clock::advance(step);
            return it->latest_expiry() < manual_clock::now();
        });
    }
    distlock::clock::duration residual() { return it->latest_expiry() - manual_clock::now(); }

    release_mode how;
    Conn redis;
    std::shared_ptr<background_io> io = std::make_shared<io_over<Conn, manual_clock>>(redis);
    std::unique_ptr<tested> it;
};

struct confirmation {
    release_outcome outcome;
    words sent;
    bool repeated;
};
/// Returns: what becomes of a release that is answered so, while a thread waits.
confirmation confirm(std::initializer_list<reply> answers, bool valid = true) {
    releasing<executing> r;
    const auto outcome = r.confirm(answers, valid);
    const bool repeated = r.it->latest_expiry() != time_point{};
    words sent = r.sent();
    if (repeated) sent.resize(answers.size());  // and those in the background
    CHECK(r.redis.inner.left() == 0);
    return {outcome, sent, repeated};
}

}  // namespace

// ---- release ---------------------------------------------------------------------------------------------

TEST_CASE("a release by posting is posted, and unconfirmed until the server has said so") {
    releasing<posting> r;
    CHECK_FALSE(r.it->unconfirmed());
    CHECK(r.release() == release_outcome::posted);
    CHECK(r.executed() == 0);
    CHECK(r.it->unconfirmed());
    CHECK(r.residual() == 20s);
    r.redis.receipts.at(0)->settle(done);
    CHECK_FALSE(r.it->unconfirmed());
    CHECK(r.it->latest_expiry() == time_point{});
}

TEST_CASE("a grant confirms what was posted before it") {
    releasing<posting> r;
    CHECK(r.release() == release_outcome::posted);
    r.it->on_grant();
    CHECK_FALSE(r.it->unconfirmed());
    CHECK(r.it->latest_expiry() == time_point{});
}

// Readers and permits that were not released stayed until the end of their lease, and nobody was told.
TEST_CASE("a grant confirms nothing where others are granted beside it, and each posted release is kept") {
    releasing<posting> r(release_mode::posted, readers);
    for (std::size_t i = 0; i < 3; ++i) {
        CHECK(r.release() == release_outcome::posted);
        r.it->on_grant();
        CHECK(r.it->unconfirmed());
        CHECK(r.redis.posted.size() == i + 1);
    }
    r.redis.receipts.at(0)->settle(done);
    r.redis.receipts.at(2)->settle(done);
    CHECK(r.it->unconfirmed());
    CHECK(r.residual() == 20s);
    r.redis.receipts.at(1)->settle(done);
    CHECK_FALSE(r.it->unconfirmed());
    CHECK(r.it->latest_expiry() == time_point{});
    CHECK(r.executed() == 0);

    for (int i = 0; i < 3; ++i) CHECK(r.release() == release_outcome::posted);
    r.then({done, done, done});
    r.it->confirm_posted(time_point::max(), {});
    CHECK(r.executed() == 3);
    CHECK_FALSE(r.it->unconfirmed());
    CHECK(r.it->latest_expiry() == time_point{});
    CHECK(eventually([&] {
        manual_clock::advance(10ms);
        return r.redis.receipts.at(1).use_count() == 1;  // it is not kept beside those that came after it
    }));
}

TEST_CASE(
    "the thread waits where releases are to be confirmed, or it is too late to post, or the connection "
    "cannot") {
    releasing<posting> confirmed(release_mode::confirmed);
    confirmed.then({done});
    CHECK(confirmed.release() == release_outcome::released);
    CHECK(confirmed.redis.posted.empty());

    releasing<posting> too_late;
    too_late.then({done});
    CHECK(too_late.release(certainty::granted, false) == release_outcome::expired);
    CHECK(too_late.redis.posted.empty());

    releasing<executing> never;
    never.then({done});
    CHECK(never.release() == release_outcome::released);
}

// The thread connected, or waited for room in a socket's buffer, and then asked twice: 1.5 s
// beside a server that hung.
TEST_CASE("a release that cannot be sent at once is the background's, and no thread waits for it") {
    for (const bool shares : {false, true}) {
        releasing<posting> r(release_mode::posted, shares ? readers : dialect);
        r.redis.takes = false;
        CHECK(r.release() == release_outcome::unreachable);
        CHECK(r.it->unconfirmed());
        CHECK(r.residual() == 20s);
        r.then({done});
        REQUIRE(r.asks(1));
        CHECK(r.nothing_left());
        CHECK_FALSE(r.it->unconfirmed());
    }
}

TEST_CASE("a release is sent at once or not at all by the thread that posts it") {
    releasing<posting> r;
    CHECK(r.release() == release_outcome::posted);
    CHECK(r.redis.how.at(0).deadline == manual_clock::now() + 30ms);
}

// The acquire that was not answered came after the release of its token, and brought back a
// lock that nobody held.
TEST_CASE(
    "a token that was granted in doubt is looked for after its release, until it can be there no more") {
    releasing<posting> r;
    CHECK(r.release(certainty::in_doubt) == release_outcome::posted);
    r.redis.receipts.at(0)->settle(done);
    CHECK_FALSE(r.it->unconfirmed());
    CHECK(r.it->latest_expiry() == r.it->late_until(manual_clock::now()));
    CHECK(r.executed() == 0);
    r.then({reply::integer(0), done});
    manual_clock::advance(answer_time);
    REQUIRE(r.asks(1));
    CHECK(r.residual() == lease);
    CHECK(eventually([&] {
        manual_clock::advance(10ms);
        return r.redis.inner.left() == 0;
    }));
    CHECK(r.sent() == words(2, whole(owner)));
    CHECK(r.residual() > 0s);
}

// It was asked for twice with all the time of a command, after a stop request and past every deadline.
TEST_CASE("a lock that was of no use is given back by posting also when its lease has run out") {
    releasing<posting> r(release_mode::confirmed);
    CHECK(r.give_back(false) == release_outcome::posted);
    CHECK(r.redis.how.at(0).deadline == manual_clock::now() + 30ms);
    CHECK(r.executed() == 0);
    CHECK(r.residual() == 20s);
}

TEST_CASE(
    "a lock that was of no use and has run out is given back for a short while where nothing can be posted") {
    releasing<executing> r;
    r.then({lost, lost});
    CHECK(r.give_back(false) == release_outcome::unreachable);
    REQUIRE(r.redis.bounded);
    CHECK(r.redis.bounded->deadline == manual_clock::now() + 30ms);
    CHECK(r.residual() == 20s);
    r.then({done});
    CHECK(r.nothing_left());
}

// Cut short behind a slow network, the next try of the object would be told that somebody else has the lock.
TEST_CASE(
    "a lock that was of no use and is valid still is released and confirmed where nothing can be posted") {
    releasing<executing> r;
    r.then({lost, done});
    CHECK(r.give_back(true) == release_outcome::released);
    CHECK_FALSE(r.redis.bounded);
    CHECK(r.executed() == 2);
}

// ---- confirm ---------------------------------------------------------------------------------------------

TEST_CASE("a release is one script by the owner's token") {
    const auto back = confirm({done});
    CHECK(back.outcome == release_outcome::released);
    CHECK(back.sent == words{whole(owner)});
}

TEST_CASE("a release whose script the server does not have sends the body") {
    const auto back = confirm({reply::error("NOSCRIPT x"), done});
    CHECK(back.outcome == release_outcome::released);
    CHECK(back.sent == words(2, whole(owner)));
}

TEST_CASE("a release that finds nothing, or somebody else's lock, says so, however late") {
    for (const bool valid : {true, false}) {
        CHECK(confirm({reply::integer(0)}, valid).outcome == release_outcome::expired);
        CHECK(confirm({reply::integer(-1)}, valid).outcome == release_outcome::taken);
    }
}

TEST_CASE("a release after the validity is expired, even if the key was still there") {
    CHECK(confirm({done}, false).outcome == release_outcome::expired);
}

TEST_CASE("a release that was sent within the validity is one, however late its answer comes") {
    releasing<executing> r;
    r.redis.inner.then([] { manual_clock::advance(1s); }, done);
    CHECK(r.confirm({}) == release_outcome::released);
    CHECK(r.it->latest_expiry() == time_point{});
}

TEST_CASE("a release whose answer is lost is sent once more") {
    const auto back = confirm({lost, done});
    CHECK(back.outcome == release_outcome::released);
    CHECK(back.sent == words(2, whole(owner)));
    CHECK(confirm({lost, lost}).outcome == release_outcome::unreachable);
    CHECK(confirm({gone, gone}).outcome == release_outcome::unreachable);
    CHECK(confirm({gone, done}).outcome == release_outcome::released);
    CHECK(confirm({lost, reply::error("NOPERM x")}).outcome == release_outcome::refused);
}

TEST_CASE(
    "after a lost answer a key that is gone counts as released while the lease is valid, and as expired "
    "later") {
    CHECK(confirm({lost, reply::integer(0)}).outcome == release_outcome::released);
    CHECK(confirm({lost, reply::integer(0)}, false).outcome == release_outcome::expired);
    CHECK(confirm({reply::string("1"), reply::integer(0)}).outcome == release_outcome::released);
    CHECK(confirm({lost, reply::integer(-1)}).outcome == release_outcome::released);
    CHECK(confirm({lost, reply::integer(-1)}, false).outcome == release_outcome::taken);
}

TEST_CASE("nothing there after a release that certainly was not applied is expired: the lock was lost") {
    CHECK(confirm({gone, reply::integer(0)}).outcome == release_outcome::expired);
    CHECK(confirm({loading, reply::integer(0)}).outcome == release_outcome::expired);
    CHECK(confirm({gone, reply::integer(-1)}).outcome == release_outcome::taken);
}

TEST_CASE("a passing trouble is tried again, once") {
    CHECK(confirm({loading, done}).outcome == release_outcome::released);
    CHECK(confirm({loading, loading}).outcome == release_outcome::refused);
}

TEST_CASE("a release that the server refuses for good is sent once") {
    manual_clock::reset();
    scripted_connection redis{reply::error("NOPERM x")};
    const auto io = std::make_shared<io_over<scripted_connection, manual_clock>>(redis);
    distlock::engine::releaser it(
        io,
        std::make_shared<const distlock::any_dialect_of<distlock::plain>>("orders", distlock::lock_options{}),
        answer_time);
    const auto now = manual_clock::now();
    CHECK(it.confirm(owner, now + 1s, now) ==
          release_outcome::refused);  // and the background has no time for it
    CHECK(redis.commands().size() == 1);
}

// A busy server was asked for a mere delete next: the next waiter was not served.
TEST_CASE(
    "a release that a busy server refused is asked again whole, one that wants memory as the minimal one") {
    CHECK(confirm({reply::error("BUSY x"), done}).sent == words(2, whole(owner)));
    CHECK(confirm({reply::error("OOM x"), done}).sent == words{whole(owner), minimal(owner)});
}

TEST_CASE("a release is repeated when the server may still have something of ours, and only then") {
    CHECK(confirm({lost, lost}).repeated);
    CHECK(confirm({gone, gone}).repeated);
    CHECK(confirm({lost, gone}, false).repeated);
    CHECK(confirm({loading, loading}).repeated);
    CHECK(confirm({reply::error("NOPERM x"), reply::error("NOPERM x")}).repeated);
    CHECK(confirm({reply::error("OOM x"), reply::integer(0)}).repeated);  // a ticket
    CHECK_FALSE(confirm({done}).repeated);
    CHECK_FALSE(confirm({done}, false).repeated);
    CHECK_FALSE(confirm({reply::integer(0)}).repeated);
    CHECK_FALSE(confirm({reply::integer(-1)}).repeated);
    CHECK_FALSE(confirm({lost, reply::integer(0)}).repeated);
    CHECK_FALSE(confirm({reply::not_sent(errc::wrong_process, "")}).repeated);
}

TEST_CASE("a release that was not confirmed is repeated in the background until it is") {
    releasing<executing> r;
    CHECK(r.confirm({lost, lost, lost, done}) == release_outcome::unreachable);
    CHECK(r.residual() == 20s);
    CHECK(r.nothing_left());
    CHECK(r.sent() == words(4, whole(owner)));
}

TEST_CASE("a release in a child after fork is sent once and is wrong_process") {
    const auto back = confirm({reply::not_sent(errc::wrong_process, "")});
    CHECK(back.outcome == release_outcome::wrong_process);
    CHECK(back.sent.size() == 1);
}

TEST_CASE("a release that is to be confirmed is not posted") {
    releasing<posting> r;
    CHECK(r.confirm({done}) == release_outcome::released);
    CHECK(r.redis.posted.empty());
}

TEST_CASE("an exception out of a connection is a lost answer of a release") {
    struct throwing_once : executing {
        reply execute(const command& cmd) {
            reply answer = executing::execute(cmd);
            if (std::exchange(throws, false)) throw std::runtime_error("of a user's client");
            return answer;
        }
        bool throws = true;
    };
    releasing<throwing_once> r;
    CHECK(r.confirm({done, reply::integer(0)}) == release_outcome::released);
    CHECK(r.sent() == words(2, whole(owner)));
}

// ---- leave -----------------------------------------------------------------------------------------------

TEST_CASE("a token that is left is posted, with the body, and the thread waits for next to nothing") {
    const std::stop_source stop;
    releasing<posting> r;
    r.leave(certainty::granted, stop.get_token());
    REQUIRE(r.redis.posted.size() == 1);
    CHECK(handoff_name_of(r.redis.posted[0]) == "leave");
    CHECK(r.redis.posted[0].at(7) == owner.view());
    CHECK(r.redis.how[0].with_body);
    CHECK(r.redis.how[0].deadline == manual_clock::now() + 30ms);
    CHECK(r.redis.how[0].can_be_stopped);
    CHECK(r.executed() == 0);
    CHECK(r.it->latest_expiry() == r.it->late_until(manual_clock::now()));
    r.redis.receipts[0]->settle(done);
    CHECK(r.it->latest_expiry() == time_point{});
}

TEST_CASE(
    "a token that was left in doubt is looked for until it can arrive no more, whatever the server says") {
    releasing<posting> r;
    r.leave();
    const auto until = r.it->late_until(manual_clock::now());
    CHECK(until == manual_clock::now() + answer_time + lease);
    r.redis.receipts.at(0)->settle(done);
    CHECK(r.it->latest_expiry() == until);
    r.then({reply::integer(0)});
    manual_clock::advance(50ms);
    REQUIRE(r.asks(1));
    CHECK(r.it->latest_expiry() == until);
    CHECK(r.nothing_left(10s));
    CHECK(manual_clock::now() > until);
}

// It was to be asked for when its request must have come, and nobody did once the connection was gone.
TEST_CASE("a token that was left in doubt is asked for once more when the background ends before its time") {
    releasing<executing> r;
    r.then({lost, done});
    r.leave();
    CHECK(r.sent() == words{whole(owner)});
    r.it.reset();
    r.io.reset();
    CHECK(r.sent() == words(2, whole(owner)));
}

TEST_CASE("a late request is looked for no longer than a minute and the answer time, whatever the lease") {
    const auto patient = std::make_shared<const distlock::any_dialect_of<distlock::handoff>>(
        "orders", distlock::lock_options{.lease = 1h});
    executing redis;
    const auto io = std::make_shared<io_over<executing, manual_clock>>(redis);
    const distlock::engine::releaser it(io, patient, answer_time);
    CHECK(it.late_until(time_point{1h}) == time_point{1h} + 1min + answer_time);
}

// After an outage of more than a minute the lock was nobody's for the rest of a long lease.
TEST_CASE("a token that was granted and is left is released for a whole lease, however long") {
    const auto patient = std::make_shared<const distlock::any_dialect_of<distlock::handoff>>(
        "orders", distlock::lock_options{.lease = 1h});
    releasing<executing> r(release_mode::posted, patient);
    r.then({gone, gone});
    r.leave(certainty::granted);
    CHECK(r.residual() >= 1h);
    CHECK(r.residual() <= 1h + 2 * answer_time);
}

TEST_CASE(
    "a token that is left and could not be posted is released by execution, with the body, for a short "
    "while") {
    const std::stop_source stop;
    releasing<executing> r;
    r.then({done});
    r.leave(certainty::granted, stop.get_token());
    CHECK(r.sent() == words{whole(owner)});
    REQUIRE(r.redis.bounded);
    CHECK(r.redis.bounded->with_body);
    CHECK(r.redis.bounded->deadline == manual_clock::now() + 30ms);
    CHECK(r.redis.bounded->can_be_stopped);
    CHECK(r.it->latest_expiry() == time_point{});
}

// The lock was asked for twice by that token, and one of the requests came after the release:
// nobody had it for a lease.
TEST_CASE(
    "a token in doubt that is left, found and deleted is looked for all the same: a request may be on its "
    "way") {
    releasing<executing> r;
    r.then({done});
    r.leave(certainty::in_doubt);
    CHECK(r.executed() == 1);
    CHECK(r.it->latest_expiry() == r.it->late_until(manual_clock::now()));
    r.then({done});
    manual_clock::advance(answer_time);
    REQUIRE(r.asks(2));
    CHECK(r.sent() == words(2, whole(owner)));
}

TEST_CASE("no command of an attempt that cannot be stopped has a stop token") {
    releasing<posting> posts;
    posts.leave();
    CHECK_FALSE(posts.redis.how.at(0).can_be_stopped);
    releasing<executing> executes;
    executes.then({done});
    executes.leave();
    REQUIRE(executes.redis.bounded);
    CHECK_FALSE(executes.redis.bounded->can_be_stopped);
}

TEST_CASE("a token that is left and was not found and deleted is looked for in the background") {
    // Nothing there: the acquire may still be on its way. Somebody else's: the same.
    for (const auto& answer : {reply::integer(0), reply::integer(-1), lost, gone, loading,
                               reply::error("NOPERM x"), reply::string("1")}) {
        releasing<executing> r;
        r.then({answer});
        r.leave();
        CHECK(r.executed() == 1);
        CHECK(r.it->latest_expiry() == r.it->late_until(manual_clock::now()));
        r.then({done});
        manual_clock::advance(answer_time - 1ms);
        CHECK(r.executed() == 1);  // the request has not come, if it comes
        manual_clock::advance(1ms);
        REQUIRE(r.asks(2));
        CHECK(r.sent() == words(2, whole(owner)));
    }
}

TEST_CASE("a ticket that is left, and was not confirmed to be gone, is released in the background at once") {
    releasing<executing> r;
    r.then({lost, reply::integer(0)});
    r.leave(certainty::granted);
    REQUIRE(r.asks(2));
    CHECK(r.nothing_left());
    CHECK(r.sent() == words(2, whole(owner)));
}

TEST_CASE("once a stop was requested, what is left is posted or not, but waited for it is not") {
    std::stop_source stop;
    stop.request_stop();
    releasing<posting> r;
    r.leave(certainty::in_doubt, stop.get_token());
    REQUIRE(r.redis.posted.size() == 1);
    CHECK(r.redis.how[0].deadline <= manual_clock::now());
    CHECK_FALSE(r.redis.how[0].can_be_stopped);  // or it would not be sent at all
    CHECK(r.executed() == 0);
}

TEST_CASE("a token that a stopped caller leaves and could not post is released in the background, at once") {
    std::stop_source stop;
    stop.request_stop();
    for (const auto sure : {certainty::granted, certainty::in_doubt}) {
        releasing<executing> r;
        std::atomic<std::thread::id> asking;
        r.redis.inner.then([&] { asking = std::this_thread::get_id(); }, done);
        r.leave(sure, stop.get_token());
        CHECK_FALSE(r.redis.bounded);  // nobody waits for it
        REQUIRE(eventually([&] { return asking.load() != std::thread::id(); }));
        CHECK(asking.load() != std::this_thread::get_id());
        CHECK(r.sent() == words{whole(owner)});
        if (sure == certainty::granted) {
            CHECK(r.nothing_left());
        } else {
            CHECK(r.residual() > lease);
        }
    }
}

TEST_CASE("an exception out of a post does not end the program, and what is left is released all the same") {
    releasing<posting> r;
    r.redis.post_throws = r.redis.execute_throws = true;
    r.leave();
    CHECK(r.redis.posted.empty());
    r.redis.post_throws = r.redis.execute_throws = false;
    r.then({done});
    manual_clock::advance(answer_time);
    REQUIRE(r.asks(1));
    CHECK(r.sent() == words{whole(owner)});
}

TEST_CASE("without memory for the background, what is left is released by the thread itself") {
    NOT_TESTED_UNLESS(allocations_can_fail(), operator_new_is_not_ours);
    releasing<executing> r;
    r.then({done});
    fail_allocation(1);
    r.leave();
    CHECK(allocation_failed());
    fail_allocation(0);
    CHECK(r.sent() == words{whole(owner)});
    std::stop_source stop;
    stop.request_stop();
    fail_allocation(1);
    r.leave(certainty::granted, stop.get_token());
    fail_allocation(0);
    CHECK(r.executed() == 1);  // nor does it wait then
}

TEST_CASE("a token that a lock object left is released though the object has gone") {
    releasing<posting> r;
    r.leave(certainty::granted);
    r.it.reset();
    r.redis.receipts.at(0)->settle(loading);
    r.then({done});
    manual_clock::advance(50ms);
    CHECK(r.asks(1));
    CHECK(r.sent() == words{whole(owner)});
}

// A process that stopped more than a thousand waiters at once left the tickets of the others, and locks that
// nobody had.
TEST_CASE("the thread releases in no time what a stopped caller leaves and the background has no room for") {
    const reply nothing = reply::integer(0);
    struct course {
        std::vector<reply> answers;
        std::size_t asked;
        bool posted;
    };
    const std::vector<course> courses{
        {{done}, 1, false},
        {{nothing, done}, 2, false},
        {{nothing, nothing, nothing}, 3, false},  // it may have been overtaken twice
        {{lost}, 1, true},
        {{nothing, gone}, 2, true}};
    std::stop_source stop;
    stop.request_stop();
    for (const auto sure : {certainty::granted, certainty::in_doubt}) {
        for (const course& one : courses) {
            releasing<posting> r;
            fill_with_doubt(*r.io, sure == certainty::granted ? background_io::most_handed_over
                                                              : background_io::most_in_doubt);
            for (const reply& answer : one.answers) r.redis.inner.then(answer);
            const auto before = manual_clock::now();
            r.leave(sure, stop.get_token());
            CHECK(r.sent() == words(one.asked, whole(owner)));
            REQUIRE(r.redis.bounded);
            CHECK(r.redis.bounded->deadline <= before + 50ms);
            CHECK(r.redis.bounded->with_body);
            CHECK(r.io->take_room_request());  // the next one finds some
            REQUIRE(r.redis.posted.size() == (one.posted ? 1 : 0));
            if (!one.posted) continue;
            CHECK(r.redis.how[0].with_body);
            CHECK_FALSE(r.redis.how[0].can_be_stopped);
            CHECK(r.redis.receipts[0] == nullptr);  // a socket that ends drops what somebody repeats
        }
    }
}

// Of 1500 waiters that were stopped at once some left their tickets, each of which cost others two seconds.
TEST_CASE("a token that the server has is released in the background though a thousand are in doubt") {
    std::stop_source stop;
    stop.request_stop();
    for (const bool posts : {true, false}) {
        releasing<posting> r;
        fill_with_doubt(*r.io);
        r.redis.takes = posts;
        r.leave(certainty::granted, stop.get_token());
        CHECK(r.redis.posted.size() == (posts ? 1 : 0));
        CHECK_FALSE(r.redis.bounded);  // the thread itself would wait for next to nothing
        CHECK(r.it->latest_expiry() > manual_clock::now());
        CHECK_FALSE(r.io->take_room_request());
    }
}

// The last of a crowd had no time left when their turn came.
TEST_CASE(
    "a release that a stopped caller posts, since the server did not answer, has its own time to be sent") {
    struct slow : posting {
        reply execute(const command& cmd) {
            manual_clock::advance(31ms);
            return posting::execute(cmd);
        }
    };
    std::stop_source stop;
    stop.request_stop();
    releasing<slow> r;
    fill_with_doubt(*r.io);
    r.redis.inner.then(lost);
    r.leave(certainty::in_doubt, stop.get_token());
    REQUIRE(r.redis.posted.size() == 1);
    CHECK(r.redis.how[0].deadline > manual_clock::now());
}

// Tokens in doubt stay for a lease: a thousand requests that were given up kept releases out that
// nobody else knew of.
TEST_CASE("tokens in doubt, posted or not, leave room for the releases of locks") {
    for (const bool posts : {true, false}) {
        releasing<posting> r;
        r.redis.takes = posts;
        std::stop_source stop;
        stop.request_stop();
        for (std::size_t i = 0; i < background_io::most_in_doubt; ++i)
            r.it->repeat(owner, certainty::in_doubt, manual_clock::now() + 1h, 1h);
        for (std::size_t i = 0; i < background_io::most_adopted; ++i)
            r.leave(certainty::in_doubt, stop.get_token());
        CHECK(r.redis.posted.size() == (posts ? background_io::most_adopted : 0));
        r.redis.takes = true;
        CHECK(r.release() == release_outcome::posted);
        CHECK(r.it->unconfirmed());
    }
}

// ---- repeat, latest_expiry -------------------------------------------------------------------------------

TEST_CASE(
    "a repeated release is asked for in the background after its delay, until it is confirmed or has "
    "expired") {
    releasing<executing> r;
    const auto until = manual_clock::now() + 5s;
    r.it->repeat(owner, certainty::granted, until, 1s);
    CHECK(r.it->latest_expiry() == until);
    manual_clock::advance(1s - 1ms);
    CHECK(r.executed() == 0);
    r.then({loading, done});
    manual_clock::advance(1ms);
    REQUIRE(r.asks(1));
    CHECK(r.nothing_left());
    CHECK(r.sent() == words(2, whole(owner)));

    releasing<executing> vain;
    vain.it->repeat(owner, certainty::granted, manual_clock::now() + 1s);
    REQUIRE(vain.asks(1));
    manual_clock::advance(1s);
    CHECK(vain.it->latest_expiry() == time_point{});
}

TEST_CASE("until when something of ours may be left is said of what lasts longest") {
    releasing<posting> r;
    const auto now = manual_clock::now();
    CHECK(r.it->latest_expiry() == time_point{});
    r.it->repeat(owner, certainty::granted, now + 5s, 1h);
    CHECK(r.it->latest_expiry() == now + 5s);
    r.it->repeat(another, certainty::in_doubt, now + 10s, 1h);
    CHECK(r.it->latest_expiry() == now + 10s);
    CHECK(r.release() == release_outcome::posted);
    CHECK(r.it->latest_expiry() == now + 20s);
    r.it->on_grant();
    CHECK(r.it->latest_expiry() == now + 10s);
}

// residual() was zero while a request that had been given up could still arrive.
TEST_CASE("a token in doubt is not forgotten for a later one") {
    releasing<posting> r;
    const auto now = manual_clock::now();
    r.it->repeat(owner, certainty::in_doubt, now + 20s, 1h);
    r.it->repeat(another, certainty::in_doubt, now + 10s, 1h);
    CHECK(r.it->latest_expiry() == now + 20s);

    r.it->leave(another, certainty::granted, {});
    r.redis.receipts.at(0)->settle(reply::integer(0));
    CHECK(r.it->latest_expiry() == now + 20s);
}

// ---- confirm_posted --------------------------------------------------------------------------------------

TEST_CASE("a posted release is confirmed by asking, where it is not known") {
    releasing<posting> r;
    r.it->confirm_posted(time_point::max(), {});
    CHECK(r.executed() == 0);
    CHECK(r.release() == release_outcome::posted);
    r.then({lost, reply::integer(0)});
    r.it->confirm_posted(time_point::max(), {});
    CHECK(r.sent() == words(2, whole(owner)));
    CHECK_FALSE(r.it->unconfirmed());
    CHECK(r.it->latest_expiry() == time_point{});
}

TEST_CASE("a stop request ends the question what became of a posted release, and the background asks on") {
    releasing<posting> r;
    CHECK(r.release() == release_outcome::posted);
    std::stop_source stop;
    r.redis.inner.then([&] { stop.request_stop(); }, lost);
    r.then({done});
    r.it->confirm_posted(time_point::max(), stop.get_token());
    CHECK(r.executed() == 1);
    REQUIRE(r.redis.bounded);
    CHECK(r.redis.bounded->can_be_stopped);
    CHECK(r.it->unconfirmed());
    manual_clock::advance(answer_time);
    REQUIRE(r.asks(2));
    CHECK(r.nothing_left());
}

// A try with a time-out of 50 ms waited twice as long as commands may take beside a server that hangs.
TEST_CASE("the fate of a posted release is waited for until the caller is out of time, or a moment longer") {
    for (const auto left : {-1h, 0h, 1h}) {
        releasing<posting> r;
        const auto now = manual_clock::now();
        CHECK(r.release() == release_outcome::posted);
        r.then({done});
        r.it->confirm_posted(now + left, {});
        REQUIRE(r.executed() == 1);
        CHECK(r.redis.inner.commands().back().deadline == (left > 0h ? now + left : now + 50ms));
    }
}

TEST_CASE("a posted release that could not be confirmed is still asked for in the background, once") {
    releasing<posting> r;
    CHECK(r.release() == release_outcome::posted);
    r.then({lost, lost, done});
    r.it->confirm_posted(time_point::max(), {});
    CHECK(r.executed() == 2);
    CHECK(r.it->unconfirmed());
    manual_clock::advance(answer_time);
    REQUIRE(r.asks(3));
    CHECK(r.nothing_left());
    CHECK(r.executed() == 3);
}

// ---- threads ---------------------------------------------------------------------------------------------

TEST_CASE("threads that leave, ask what is left, and grant are no trouble to a thread that releases") {
    releasing<posting> r;
    std::atomic<bool> over{false};
    std::atomic<int> rounds{0};
    const auto until_over = [&](auto f) {
        return std::jthread([&over, &rounds, f] {
            while (!over) {
                f();
                ++rounds;
            }
        });
    };
    const auto grants = until_over([&] { r.it->on_grant(); });
    const auto asks = until_over([&] {
        r.it->unconfirmed();
        r.it->latest_expiry();
    });
    const auto repeats = until_over([&] {
        r.it->repeat(another, certainty::granted, manual_clock::now() + 1ms);
        manual_clock::advance(10ms);
    });
    for (int i = 0; i < 200 || rounds < 1000; ++i) {
        r.release();
        if (!r.redis.receipts.empty()) r.redis.receipts.back()->settle(i % 2 == 0 ? done : lost);
    }
    over = true;
    CHECK(r.nothing_left(100ms));
}

}  // namespace releaser_tests
