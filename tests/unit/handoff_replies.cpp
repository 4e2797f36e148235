// The hand-off dialect: reply to outcome. An offer of any other shape than the scripts' is none.
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

#include "catch.hpp"

namespace {

using distlock::acquire_outcome;
using distlock::errc;
using distlock::handoff;
using distlock::offer;
using distlock::release_outcome;
using distlock::reply;
using distlock::token;
using namespace std::chrono_literals;
using kind = acquire_outcome::kind;

const handoff bare("orders:42", {.lease = 30s});
const handoff fenced("orders:42", {.lease = 30s, .fencing = true});
const handoff labelled("orders:42", {.lease = 30s, .owner_info = "night job"});
const handoff both("orders:42", {.lease = 30s, .fencing = true, .owner_info = "night job"});

const std::string offers_key = "{orders:42}:distlock:offers";

constexpr auto least = std::numeric_limits<std::int64_t>::min();
constexpr auto most = std::numeric_limits<std::int64_t>::max();

const token owner = token::from("0123456789abcdef0123456789abcdef");
const std::string digits(owner.view());

reply offered(const std::string& text) {
    return reply::array({reply::string(offers_key), reply::string(text)});
}

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
            reply::array({reply::integer(1), reply::string("1"), reply::nil()}),
            reply::integer(-3),
            reply::integer(least)};
}

// What each way of having no answer means, whatever was asked.
template <class Read>
void check_failures(Read read) {
    struct row {
        reply r;
        kind what;
        errc cause;
    };
    for (const row& row : std::vector<row>{
             {reply::not_sent(errc::unreachable, ""), kind::later, errc::unreachable},
             {reply::not_sent(errc::wrong_process, ""), kind::refused, errc::wrong_process},
             {reply::no_answer(errc::no_reply, ""), kind::unknown, errc::no_reply},
             {reply::error("READONLY x"), kind::later, errc::read_only},
             {reply::error("OOM x"), kind::refused, errc::out_of_memory},
             {reply::error("WRONGTYPE x"), kind::refused, errc::wrong_type},
             {reply::error("NOPERM x"), kind::refused, errc::permission_denied},
             {reply::error("UNBLOCKED x"), kind::refused, errc::server_error},
         }) {
        INFO(row.r.text() << " " << static_cast<int>(row.cause));
        const acquire_outcome got = read(row.r);
        CHECK(got.what == row.what);
        CHECK(got.cause == row.cause);
        CHECK_FALSE(got.ttl);
        CHECK_FALSE(got.offered);
    }
}

}  // namespace

TEST_CASE("to enter is granted by a pair with the fence, busy by a pair with the TTL, and by nothing else") {
    const auto granted = [](const char* text) {
        return reply::array({reply::integer(1), reply::string(text)});
    };
    for (const handoff* one : {&bare, &fenced, &labelled, &both}) {
        const bool counts = one == &fenced || one == &both;
        CHECK(one->read_enter(granted("9007199254740993")).what == kind::granted);
        CHECK(one->read_enter(granted("9007199254740993")).fence == (counts ? 9007199254740993U : 0U));
        CHECK(one->read_enter(granted("")).what == (counts ? kind::unknown : kind::granted));
        for (const std::int64_t ttl : {std::int64_t{-2}, std::int64_t{-1}, std::int64_t{0}, most}) {
            const auto busy = one->read_enter(reply::array({reply::integer(0), reply::integer(ttl)}));
            CHECK(busy.what == kind::busy);
            CHECK(busy.ttl == std::chrono::milliseconds(ttl));
        }
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
    CHECK(bare.read_acquire(reply::nil()).what == kind::busy);
    CHECK(both.read_acquire(reply::status("OK")).what == kind::unknown);
}

TEST_CASE("a wait that ended without an offer is busy") {
    const auto busy = bare.read_wait(reply::nil());
    CHECK(busy.what == kind::busy);
    CHECK_FALSE(busy.ttl);
    CHECK_FALSE(busy.offered);
}

TEST_CASE("an offer says the token, the lease and the fence it was made with") {
    struct row {
        const char* rest;
        std::chrono::milliseconds lease;
        std::uint64_t fence;
    };
    for (const row& row :
         {row{":30000:1700000000000000:", 30s, 0}, row{":30000:1700000000000000:17", 30s, 17},
          row{":1:1:9007199254740993", 1ms, 9007199254740993}, row{":30000:0:17", 30s, 17},
          row{":1:0:", 1ms, 0},
          row{":86400000:18446744073709551615:18446744073709551615", 24h, 18446744073709551615U}}) {
        INFO(row.rest);
        for (const handoff* one : {&bare, &both}) {
            const auto got = one->read_wait(offered(digits + row.rest));
            CHECK(got.what == kind::granted);
            CHECK(got.fence == row.fence);
            REQUIRE(got.offered);
            CHECK(got.offered->owner == owner);
            CHECK(got.offered->lease == row.lease);
            CHECK(got.offered->fence == row.fence);
        }
    }
}

TEST_CASE("a text of any other shape is no offer") {
    const std::string rest = ":30000:1700000000000000:17";
    std::vector<std::string> texts{digits.substr(1) + rest,
                                   digits + "0" + rest,
                                   "0123456789ABCDEF0123456789ABCDEF" + rest,
                                   "g" + digits.substr(1) + rest,
                                   " " + digits + rest,
                                   std::string(32, '\0') + rest,
                                   rest,
                                   rest.substr(1)};
    for (const char* bad : {":0:1700000000000000:17",
                            ":86400001:1700000000000000:17",
                            ":18446744073709551616:1700000000000000:17",
                            ":18446744073709551615:1700000000000000:17",
                            ":-1:1700000000000000:17",
                            ":+1:1700000000000000:17",
                            ":1e3:1700000000000000:17",
                            ":0x10:1700000000000000:17",
                            ":3000 :1700000000000000:17",
                            "::1700000000000000:17",
                            ":30000::17",
                            ":30000:x:17",
                            ":30000:00:17",
                            ":30000:0 :17",
                            ":30000:-0:17",
                            ":30000:-1:17",
                            ":30000:1.5:17",
                            ":30000:18446744073709551616:17",
                            ":30000:1700000000000000:x",
                            ":30000:1700000000000000:0",
                            ":30000:1700000000000000:-1",
                            ":30000:1700000000000000:17 ",
                            ":30000:1700000000000000:17\n",
                            ":30000:1700000000000000:18446744073709551616",
                            ":30000:1700000000000000:17:",
                            ":30000:1700000000000000:17:18",
                            ":30000:1700000000000000::17",
                            ";30000;1700000000000000;17",
                            " :30000:1700000000000000:17"}) {
        texts.push_back(digits + bad);
    }
    // All that a cut before the last ':' leaves.
    const std::string whole = digits + rest;
    for (std::size_t size = 0; size <= whole.rfind(':'); ++size) texts.push_back(whole.substr(0, size));
    for (const std::string& text : texts) {
        INFO(text);
        const auto got = fenced.read_wait(offered(text));
        CHECK(got.what == kind::unknown);
        CHECK(got.cause == errc::protocol_error);
        CHECK_FALSE(got.offered);
    }
}

TEST_CASE("a wait is answered by a pair of strings or nil, and by nothing else") {
    const std::string text = digits + ":30000:1700000000000000:17";
    auto others = nonsense();
    others.insert(others.end(), {reply::string(text), reply::array({reply::string(text)}),
                                 reply::array({reply::string(offers_key), reply::status(text)}),
                                 reply::array({reply::string(text), reply::string(offers_key)}),
                                 reply::array({reply::nil(), reply::string(text)}),
                                 reply::array({reply::string("orders:43"), reply::string(text)}),
                                 reply::array({reply::string(offers_key), reply::nil()}),
                                 reply::array({reply::string(offers_key), reply::integer(1)}),
                                 reply::array({reply::string(offers_key), reply::string(text), reply::nil()}),
                                 reply::integer(0), reply::integer(2)});
    for (const reply& r : others) {
        INFO(static_cast<int>(r.kind()) << " " << r.text() << " " << r.number());
        CHECK(both.read_wait(r).what == kind::unknown);
        CHECK(both.read_wait(r).cause == errc::protocol_error);
    }
    check_failures([](const reply& r) { return both.read_wait(r); });
}

TEST_CASE("an offer is complete when it lasts as long as ours and brings what we keep") {
    const offer with{owner, 30s, 17};
    const offer without{owner, 30s, 0};
    const offer brief{owner, 29'999ms, 17};
    CHECK(bare.complete(with));
    CHECK(bare.complete(without));
    CHECK(bare.complete({owner, 24h, 0}));
    CHECK(fenced.complete(with));
    CHECK_FALSE(fenced.complete(without));
    for (const handoff* one : {&bare, &fenced, &labelled, &both}) CHECK_FALSE(one->complete(brief));
    for (const handoff* one : {&labelled, &both}) CHECK_FALSE(one->complete(with));
}

TEST_CASE("a watch sees a TTL or that nobody is counted; all else is no answer") {
    for (const std::int64_t ttl : {std::int64_t{-1}, std::int64_t{0}, std::int64_t{30'000}, most}) {
        CHECK(bare.read_watch(reply::integer(ttl)).ttl == std::chrono::milliseconds(ttl));
        CHECK_FALSE(bare.read_watch(reply::integer(ttl)).uncounted);
    }
    CHECK(bare.read_watch(reply::integer(-2)).uncounted);
    CHECK_FALSE(bare.read_watch(reply::integer(-2)).ttl);
    auto others = nonsense();
    others.insert(others.end(),
                  {reply::nil(), reply::error("READONLY x"), reply::error("OOM x"),
                   reply::not_sent(errc::unreachable, ""), reply::no_answer(errc::no_reply, "")});
    for (const reply& r : others) {
        INFO(static_cast<int>(r.kind()) << " " << r.text() << " " << r.number());
        CHECK_FALSE(bare.read_watch(r).ttl);
        CHECK_FALSE(bare.read_watch(r).uncounted);
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
        CHECK(got.open == row.open);
    }
}

TEST_CASE("a renewal is read as in the plain dialect") {
    using renewal = distlock::renew_outcome::kind;
    CHECK(both.read_renew(reply::integer(1)).what == renewal::kept);
    CHECK(both.read_renew(reply::integer(0)).what == renewal::gone);
    CHECK(both.read_renew(reply::integer(-1)).what == renewal::taken);
    CHECK(both.read_renew(reply::integer(2)).what == renewal::later);
}
