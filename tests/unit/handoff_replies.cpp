// The hand-off dialect: reply to outcome, and message to hand-over. What has another shape than
// the scripts' is none.
#include <chrono>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include <distlock/base/error.hpp>
#include <distlock/base/token.hpp>
#include <distlock/wire/handoff.hpp>
#include <distlock/wire/outcome.hpp>
#include <distlock/wire/reply.hpp>

#include "support/catch.hpp"
#include "support/failed_replies.hpp"
#include "support/handoff_answers.hpp"

namespace handoff_replies_tests {

namespace {

using distlock::acquire_outcome;
using distlock::errc;
using distlock::handoff;
using distlock::release_outcome;
using distlock::reply;
using distlock::token;
using handoff_answers::granted;
using handoff_answers::taken;
using namespace std::chrono_literals;
using kind = acquire_outcome::kind;

const handoff bare("orders:42", {.lease = 30s});
const handoff fenced("orders:42", {.lease = 30s, .fencing = true});
const handoff labelled("orders:42", {.lease = 30s, .owner_info = "night job"});
const handoff both("orders:42", {.lease = 30s, .fencing = true, .owner_info = "night job"});

constexpr auto least = std::numeric_limits<std::int64_t>::min();
constexpr auto most = std::numeric_limits<std::int64_t>::max();

const token owner = token::from("0123456789abcdef0123456789abcdef");
const std::string digits(owner.view());

// Replies that come from a server but answer no question about an offer, a look or a release.
std::vector<reply> nonsense() {
    return {reply::string(""),
            reply::string("1"),
            reply::status("OK"),
            reply::status("QUEUED"),
            reply::array({}),
            reply::array({reply::integer(1)}),
            reply::array({reply::array({}), reply::nil()}),
            reply::array({reply::integer(1), reply::nil()}),
            reply::array({reply::integer(2), reply::string("1")}),
            reply::array({reply::integer(-1), reply::string("1")}),
            reply::array({reply::nil(), reply::string("1")}),
            reply::array({reply::string("1"), reply::string("1")}),
            reply::array({reply::integer(0), reply::nil()}),
            reply::array({reply::integer(0), reply::string("1")}),
            reply::array({reply::integer(0), reply::integer(-3)}),
            reply::array({reply::integer(0), reply::integer(least)}),
            reply::array({reply::integer(1), reply::string("1")}),
            reply::array({reply::integer(0), reply::integer(1)}),
            reply::array({reply::integer(1), reply::string("1"), reply::nil()}),
            reply::array({reply::integer(1), reply::string("1"), reply::string("2000")}),
            reply::array({reply::integer(0), reply::integer(1), reply::integer(1)}),
            granted("1", 0),
            granted("1", -1),
            taken(-3),
            taken(1, -1),
            taken(1, 1, -1),
            taken(1, 1, 4294967296),
            taken(1, 1, 1, 2),
            taken(1, 1, 1, -1),
            reply::array({reply::integer(1), reply::string("1"), reply::integer(2000), reply::integer(0),
                          reply::integer(0)}),
            reply::array({reply::integer(0), reply::integer(1), reply::integer(1), reply::integer(1),
                          reply::integer(1), reply::integer(1)}),
            reply::array(
                {reply::integer(0), reply::integer(1), reply::nil(), reply::integer(1), reply::integer(1)}),
            reply::array(
                {reply::integer(0), reply::integer(1), reply::integer(1), reply::nil(), reply::integer(1)}),
            reply::array(
                {reply::integer(0), reply::integer(1), reply::integer(1), reply::integer(1), reply::nil()}),
            reply::integer(-3),
            reply::integer(least)};
}

}  // namespace

TEST_CASE("to enter is granted with the fence and a TTL, busy with a TTL and a place, and by nothing else") {
    for (const handoff* one : {&bare, &fenced, &labelled, &both}) {
        const bool counts = one == &fenced || one == &both;
        const auto got = one->read_enter(granted("9007199254740993", 1500));
        CHECK(got.what == kind::granted);
        CHECK(got.fence == (counts ? 9007199254740993U : 0U));
        CHECK(got.granted_for == 1500ms);
        CHECK(one->read_enter(granted("")).what == (counts ? kind::unknown : kind::granted));
        for (const std::int64_t ttl : {std::int64_t{-2}, std::int64_t{-1}, std::int64_t{0}, most}) {
            const auto busy = one->read_enter(taken(ttl, 1763718245123456, 4294967295, 1));
            CHECK(busy.what == kind::busy);
            CHECK(busy.ttl == std::chrono::milliseconds(ttl));
            CHECK(busy.queued.ticket == 1763718245123456U);
            CHECK(busy.queued.position == 4294967295U);
            CHECK(busy.queued.appended);
            CHECK_FALSE(busy.granted_for);
        }
        CHECK(one->read_enter(taken(1)).queued.ticket == 0);
        CHECK_FALSE(one->read_enter(taken(1)).queued.appended);
        auto others = nonsense();
        others.push_back(reply::nil());
        others.push_back(reply::integer(1));
        for (const reply& r : others) {
            INFO(static_cast<int>(r.kind()) << " " << r.text() << " " << r.number());
            CHECK(one->read_enter(r).what == kind::unknown);
            CHECK(one->read_enter(r).cause == errc::protocol_error);
            CHECK(one->read_look(r).what == kind::unknown);
        }
        check_failures([one](const reply& r) { return one->read_enter(r); });
        check_failures([one](const reply& r) { return one->read_acquire(r); });
    }
    CHECK(bare.read_acquire(reply::status("OK")).what == kind::granted);
    CHECK_FALSE(bare.read_acquire(reply::status("OK")).granted_for);
    CHECK(bare.read_acquire(reply::nil()).what == kind::busy);
    CHECK(both.read_acquire(reply::status("OK")).what == kind::unknown);
}

TEST_CASE("a grant lasts for the lease at most, whatever the server says") {
    CHECK(bare.read_enter(granted("", 30'000)).granted_for == 30s);
    CHECK(bare.read_enter(granted("", 30'001)).granted_for == 30s);
    CHECK(bare.read_enter(granted("", most)).granted_for == 30s);
}

TEST_CASE("a message says the token, the ticket, the TTL, the fence and the lock") {
    struct row {
        const char* rest;
        std::uint64_t ticket;
        std::chrono::milliseconds ttl;
        std::uint64_t fence;
        const char* name;
    };
    for (const row& row : {row{" 1763718245123456 2000 0 orders:42", 1763718245123456U, 2s, 0, "orders:42"},
                           row{" 1 1 17 x", 1, 1ms, 17, "x"},
                           row{" 1 2000 9007199254740993 a b  c", 1, 2s, 9007199254740993U, "a b  c"},
                           row{" 18446744073709551615 300 18446744073709551615  ", 18446744073709551615U,
                               300ms, 18446744073709551615U, " "}}) {
        INFO(row.rest);
        const auto got = handoff::read_message(digits + row.rest);
        REQUIRE(got);
        CHECK(got->owner == owner);
        CHECK(got->ticket == row.ticket);
        CHECK(got->ttl == row.ttl);
        CHECK(got->fence == row.fence);
        CHECK(handoff::name_in(digits + row.rest) == row.name);
    }
    const auto asked = handoff::read_message(digits + " 17 poll 0 orders:42");
    REQUIRE(asked);
    CHECK(asked->asks());
    CHECK(asked->watch);
    CHECK(asked->ticket == 17);
    CHECK(handoff::name_in(digits + " 17 poll 0 orders:42") == "orders:42");
    for (const char* rest : {" 17 0 0 orders", " 17 0w 0 orders", " 17 0n 0 orders", " 17 pollw 0 orders",
                             " 17 poll 5 orders", " 17 poll  orders"}) {
        INFO(rest);
        CHECK_FALSE(handoff::read_message(digits + rest));
    }
    // No lock is handed over for longer than an offer: who publishes more wants to be believed for a day.
    CHECK_FALSE(handoff::read_message(digits + " 1 2001 0 x"));
    const std::string longest(4096, 'x');
    const auto text = digits + " 1763718245123456 2000 18446744073709551615 " + longest;
    CHECK(handoff::read_message(text));
    CHECK(handoff::read_message(text.substr(0, 160)));
    CHECK(handoff::name_in(text) == longest);
}

TEST_CASE("a text of any other shape is no message") {
    const std::string rest = " 1763718245123456 2000 17 orders:42";
    std::vector<std::string> texts{digits.substr(1) + rest,
                                   digits + "0" + rest,
                                   "0123456789ABCDEF0123456789ABCDEF" + rest,
                                   "g" + digits.substr(1) + rest,
                                   " " + digits + rest,
                                   std::string(32, '\0') + rest,
                                   rest,
                                   rest.substr(1)};
    for (const char* bad : {" 0 2000 17 x", " -1 2000 17 x",
                            " x 2000 17 x", " 18446744073709551616 2000 17 x",
                            "  2000 17 x",  " 1 0 17 x",
                            " 1 -1 17 x",   " 1 86400001 17 x",
                            " 1 1e3 17 x",  " 1 18446744073709551615 17 x",
                            " 1  17 x",     " 1 2000 x x",
                            " 1 2000 -1 x", " 1 2000  x",
                            " 1 2000 00 x", " 1 2000 18446744073709551616 x",
                            " 1 2000 17 ",  " 1 2000 17",
                            ":1:2000:17:x", "\n1\n2000\n17\nx",
                            "  1 2000 17 x"}) {
        texts.push_back(digits + bad);
    }
    // All that a cut before the name leaves.
    const std::string whole = digits + rest;
    for (std::size_t size = 0; size <= whole.rfind(' ') + 1; ++size) texts.push_back(whole.substr(0, size));
    for (const std::string& text : texts) {
        INFO(text);
        CHECK_FALSE(handoff::read_message(text));
        CHECK(handoff::name_in(text).empty());
    }
}

TEST_CASE("a release has four answers; what is refused is worth another way, nonsense is not believed") {
    struct row {
        reply r;
        release_outcome what;
        bool again = false;
        bool open = false;
    };
    std::vector<row> rows{{reply::integer(2), release_outcome::released},
                          {reply::integer(1), release_outcome::released},
                          {reply::integer(0), release_outcome::expired},
                          {reply::integer(-1), release_outcome::taken},
                          {reply::integer(3), release_outcome::unreachable, true, true},
                          {reply::not_sent(errc::unreachable, ""), release_outcome::unreachable, true},
                          {reply::not_sent(errc::wrong_process, ""), release_outcome::wrong_process},
                          {reply::no_answer(errc::no_reply, ""), release_outcome::unreachable, true, true}};
    for (const char* text : {"OOM x", "TRYAGAIN x", "NOPERM x", "WRONGTYPE x", "READONLY x", "ERR x", ""}) {
        rows.push_back({reply::error(text), release_outcome::refused, true});
    }
    for (const reply& r : nonsense()) rows.push_back({r, release_outcome::unreachable, true, true});
    for (const row& row : rows) {
        INFO(static_cast<int>(row.r.kind()) << " " << row.r.text() << " " << row.r.number());
        const auto got = both.read_release(row.r);
        CHECK(got.what == row.what);
        CHECK(got.again == row.again);
        CHECK(got.in_doubt == row.open);
    }
}

TEST_CASE("a release that is refused for its keys may do with less, and one between two nodes may pass") {
    CHECK(both.read_release(reply::error("OOM x")).minimal);
    CHECK_FALSE(both.read_release(reply::error("OOM x")).transient);
    CHECK(both.read_release(reply::error("TRYAGAIN x")).minimal);
    CHECK(both.read_release(reply::error("TRYAGAIN x")).transient);
    // That script has written: its lock is freed by its key at once.
    const auto met = both.read_release(
        reply::error("ERR Script attempted to access a non local key in a cluster node script: 0, on x"));
    CHECK(met.minimal);
    CHECK_FALSE(met.transient);
    CHECK_FALSE(both.read_release(reply::error("LOADING x")).minimal);
    CHECK_FALSE(both.read_release(reply::error("MOVED 1 h:1")).minimal);
}

// It told its owner that somebody else had taken the lock, which its own release had handed over.
TEST_CASE("a release that was ended in the middle of its script may have been applied") {
    CHECK(both.read_release(reply::error("NOPERM ACL failure in script: this user has no permissions to run "
                                         "the 'del' command script: 0, on @user_script:1."))
              .in_doubt);
    CHECK(both.read_release(reply::error("ERR Script attempted to access a non local key in a cluster node "
                                         "script: 0, on x"))
              .in_doubt);
    for (const char* const whole : {"NOPERM this user has no permissions to run the 'evalsha' command",
                                    "OOM x", "READONLY x", "BUSY x"})
        CHECK_FALSE(both.read_release(reply::error(whole)).in_doubt);
}

TEST_CASE("a renewal is read as in the plain dialect") {
    using renewal = distlock::renew_outcome::kind;
    CHECK(both.read_renew(reply::integer(1)).what == renewal::kept);
    CHECK(both.read_renew(reply::integer(0)).what == renewal::gone);
    CHECK(both.read_renew(reply::integer(-1)).what == renewal::taken);
    CHECK(both.read_renew(reply::integer(2)).what == renewal::later);
}

}  // namespace handoff_replies_tests
