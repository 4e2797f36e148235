// The plain dialect: intent to command, reply to outcome. Nothing but the exact shape of success is success.
#include <chrono>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <distlock/base/error.hpp>
#include <distlock/base/key.hpp>
#include <distlock/base/options.hpp>
#include <distlock/base/owner.hpp>
#include <distlock/base/token.hpp>
#include <distlock/detail/sha1.hpp>
#include <distlock/wire/command.hpp>
#include <distlock/wire/dialect.hpp>
#include <distlock/wire/outcome.hpp>
#include <distlock/wire/plain.hpp>
#include <distlock/wire/reply.hpp>

#include "support/argv_of.hpp"
#include "support/catch.hpp"
#include "support/failed_replies.hpp"

namespace plain_tests {

namespace {

using distlock::acquire_outcome;
using distlock::command;
using distlock::errc;
using distlock::plain;
using distlock::release_outcome;
using distlock::reply;
using distlock::token;
using namespace std::chrono_literals;
using kind = distlock::acquire_outcome::kind;
using words = std::vector<std::string_view>;

static_assert(distlock::check_dialect<plain>());

const plain dialect("orders:42", {.lease = 30s});
const plain fenced("orders:42", {.lease = 30s, .fencing = true});
const plain labelled("orders:42", {.lease = 30s, .owner_info = "night job"});
const plain both("orders:42", {.lease = 30s, .fencing = true, .owner_info = "night job"});

const std::string fence_key = "{orders:42}:distlock:fence";
const std::string owner_key = "{orders:42}:distlock:owner";
const std::string fence_life = "3900000";  // an hour and ten leases
const std::string night_job = distlock::describe_owner("night job");

constexpr auto least = std::numeric_limits<std::int64_t>::min();
constexpr auto most = std::numeric_limits<std::int64_t>::max();

/// Replies that come from a server but are no answer to any of the three questions.
std::vector<reply> nonsense() {
    return {reply::string(""),
            reply::string("OK"),
            reply::string("1"),
            reply::status(""),
            reply::status("ok"),
            reply::status("OK "),
            reply::status("OKAY"),
            reply::status("QUEUED"),
            reply::status("PONG"),
            reply::status("1"),
            reply::array({}),
            reply::array({reply::status("OK")}),
            reply::array({reply::integer(1)}),
            reply::array({reply::integer(0)}),
            reply::array({reply::array({}), reply::nil()}),
            reply::array({reply::integer(1), reply::nil()}),
            reply::array({reply::integer(1), reply::integer(1)}),
            reply::array({reply::integer(1), reply::status("1")}),
            reply::array({reply::integer(1), reply::error("1")}),
            reply::array({reply::integer(2), reply::string("1")}),
            reply::array({reply::integer(-1), reply::string("1")}),
            reply::array({reply::string("1"), reply::string("1")}),
            reply::array({reply::nil(), reply::string("1")}),
            reply::array({reply::integer(0), reply::nil()}),
            reply::array({reply::integer(0), reply::string("1")}),
            reply::array({reply::integer(0), reply::integer(-3)}),
            reply::array({reply::integer(0), reply::integer(least)}),
            reply::array({reply::nil(), reply::integer(1)}),
            reply::array({reply::integer(1), reply::string("1"), reply::nil()}),
            reply::array({reply::integer(0), reply::integer(1), reply::nil()}),
            reply::integer(-3),
            reply::integer(least)};
}

}  // namespace

TEST_CASE("to acquire is SET key token NX PX ms") {
    const token owner = token::generate();
    const command cmd = dialect.acquire(owner);
    CHECK(argv_of(cmd) == words{"SET", "orders:42", owner.view(), "NX", "PX", "30000"});
    CHECK(cmd.routing_key() == "orders:42");
    CHECK_FALSE(cmd.is_script());
}

TEST_CASE("to look is a script on the key with the token and the lease") {
    const token owner = token::generate();
    const command cmd = dialect.look(owner);
    CHECK(argv_of(cmd) ==
          words{"EVALSHA", distlock::detail::plain_look.sha1(), "1", "orders:42", owner.view(), "30000"});
    CHECK(cmd.routing_key() == "orders:42");
    CHECK(cmd.is_script());
}

TEST_CASE("to release is a script on the key with the token") {
    const token owner = token::generate();
    const command cmd = dialect.release(owner);
    CHECK(argv_of(cmd) ==
          words{"EVALSHA", distlock::detail::plain_release.sha1(), "1", "orders:42", owner.view()});
    CHECK(cmd.routing_key() == "orders:42");
    CHECK(cmd.is_script());
}

TEST_CASE("to renew is a script on the key with the token and the lease") {
    const token owner = token::generate();
    const command cmd = dialect.renew(owner);
    CHECK(argv_of(cmd) ==
          words{"EVALSHA", distlock::detail::plain_renew.sha1(), "1", "orders:42", owner.view(), "30000"});
    CHECK(cmd.routing_key() == "orders:42");
    CHECK(cmd.is_script());
}

TEST_CASE(
    "with fencing, taking is one script on the lock and the fence beside it, which says how long that "
    "lives") {
    const token owner = token::generate();
    const words expected{"EVALSHA",    distlock::detail::plain_look_with_siblings.sha1(),
                         "3",          "orders:42",
                         fence_key,    owner_key,
                         owner.view(), "30000",
                         fence_life,   ""};
    CHECK(argv_of(fenced.acquire(owner)) == expected);
    CHECK(argv_of(fenced.look(owner)) == expected);
    CHECK(fenced.acquire(owner).routing_key() == "orders:42");
    CHECK(fenced.acquire(owner).is_script());
}

TEST_CASE("with owner_info, taking is one script that leaves the fence alone and says who we are") {
    const token owner = token::generate();
    const words expected{"EVALSHA",    distlock::detail::plain_look_with_siblings.sha1(),
                         "3",          "orders:42",
                         fence_key,    owner_key,
                         owner.view(), "30000",
                         "0",          night_job};
    CHECK(argv_of(labelled.acquire(owner)) == expected);
    CHECK(argv_of(labelled.look(owner)) == expected);
    CHECK(labelled.look(owner).routing_key() == "orders:42");
}

TEST_CASE("with fencing and owner_info, taking says both") {
    const token owner = token::generate();
    const words expected{"EVALSHA",    distlock::detail::plain_look_with_siblings.sha1(),
                         "3",          "orders:42",
                         fence_key,    owner_key,
                         owner.view(), "30000",
                         fence_life,   night_job};
    CHECK(argv_of(both.acquire(owner)) == expected);
    CHECK(argv_of(both.look(owner)) == expected);
}

TEST_CASE("a renewal names what was kept beside the lock, and nothing else") {
    const token owner = token::generate();
    const auto sha1 = distlock::detail::plain_renew.sha1();
    CHECK(argv_of(fenced.renew(owner)) ==
          words{"EVALSHA", sha1, "2", "orders:42", fence_key, owner.view(), "30000", fence_life});
    CHECK(argv_of(labelled.renew(owner)) ==
          words{"EVALSHA", sha1, "2", "orders:42", owner_key, owner.view(), "30000", "30000"});
    CHECK(argv_of(both.renew(owner)) == words{"EVALSHA", sha1, "3", "orders:42", owner_key, fence_key,
                                              owner.view(), "30000", "30000", fence_life});
    CHECK(both.renew(owner).routing_key() == "orders:42");
}

TEST_CASE(
    "a renewal and a release say the largest fence that was used under their token, where fences are made") {
    const token owner = token::generate();
    token used = owner;
    used.fence(1763718245123456);
    const auto renew = distlock::detail::plain_renew.sha1();
    const auto release = distlock::detail::plain_release.sha1();
    CHECK(argv_of(fenced.renew(used)) == words{"EVALSHA", renew, "2", "orders:42", fence_key, owner.view(),
                                               "30000", fence_life, "1763718245123456"});
    CHECK(argv_of(both.renew(used)) == words{"EVALSHA", renew, "3", "orders:42", owner_key, fence_key,
                                             owner.view(), "30000", "30000", fence_life, "1763718245123456"});
    CHECK(argv_of(fenced.release(used)) == words{"EVALSHA", release, "2", "orders:42", fence_key,
                                                 owner.view(), "1763718245123456", fence_life});
    CHECK(argv_of(both.release(used)) == words{"EVALSHA", release, "3", "orders:42", owner_key, fence_key,
                                               owner.view(), "1763718245123456", fence_life});
    CHECK(argv_of(labelled.renew(used)) == argv_of(labelled.renew(owner)));
    CHECK(argv_of(labelled.release(used)) == argv_of(labelled.release(owner)));
}

TEST_CASE("a release takes the owner's text with it, if there is one, and never the fence") {
    const token owner = token::generate();
    const auto sha1 = distlock::detail::plain_release.sha1();
    CHECK(argv_of(fenced.release(owner)) == words{"EVALSHA", sha1, "1", "orders:42", owner.view()});
    for (const plain* one : {&labelled, &both}) {
        CHECK(argv_of(one->release(owner)) ==
              words{"EVALSHA", sha1, "2", "orders:42", owner_key, owner.view()});
        CHECK(one->release(owner).routing_key() == "orders:42");
    }
}

TEST_CASE("the fence outlives the lock by an hour and ten leases") {
    const token owner = token::generate();
    CHECK(plain("x", {.lease = 10ms, .fencing = true}).look(owner).argv()[8] == "3600100");
    CHECK(plain("x", {.lease = 24h, .fencing = true}).look(owner).argv()[8] == "867600000");
}

TEST_CASE("acquire and look are the same where something is kept beside the lock") {
    CHECK_FALSE(dialect.acquire_is_script());
    CHECK(fenced.acquire_is_script());
    CHECK(labelled.acquire_is_script());
    CHECK(both.acquire_is_script());
}

TEST_CASE("the keys beside a lock share its cluster slot, hash tag or not") {
    const token owner = token::generate();
    for (const char* name : {"plain", "{tag}", "a{tag}b", "a{b", "{", "a{{b}c}d", "{a}{b}"}) {
        INFO(name);
        const plain lock(name, {.fencing = true, .owner_info = "x"});
        const command cmd = lock.look(owner);
        const auto argv = cmd.argv();
        CHECK(argv[3] == name);
        CHECK(argv[4].ends_with(":fence"));
        CHECK(argv[5].ends_with(":owner"));
        CHECK(argv[4].substr(0, argv[4].size() - 5) == argv[5].substr(0, argv[5].size() - 5));
        CHECK(distlock::hash_tag(argv[4]) == distlock::hash_tag(argv[3]));
        CHECK(distlock::hash_tag(argv[5]) == distlock::hash_tag(argv[3]));
    }
}

TEST_CASE("a name that can have no key beside it is refused only where one is needed") {
    const auto refused = [](const char* name, const distlock::lock_options& options) {
        try {
            const plain lock(name, options);
        } catch (const distlock::error& e) {
            return e.code() == errc::invalid_name &&
                   std::string(e.what()).find("no {hash tag}") != std::string::npos;
        }
        return false;
    };
    for (const char* name : {"a}b", "}", "}{", "a}{b", "{}", "a{}b", "{}}"}) {
        INFO(name);
        CHECK_NOTHROW(plain(name, {}));
        CHECK(refused(name, {.fencing = true}));
        CHECK(refused(name, {.owner_info = "x"}));
        CHECK(refused(name, {.fencing = true, .owner_info = "x"}));
    }
}

TEST_CASE("a binary name goes to the server byte for byte") {
    const std::string name("a\0b\r\n{c}\xff", 9);
    const plain binary(name, {});
    const token owner = token::generate();
    CHECK(binary.name() == name);
    CHECK(binary.acquire(owner).argv()[1] == name);
    CHECK(binary.look(owner).argv()[3] == name);
    CHECK(binary.renew(owner).argv()[3] == name);
    CHECK(binary.release(owner).argv()[3] == name);
    CHECK(binary.release(owner).routing_key() == name);
    const plain beside(name, {.fencing = true, .owner_info = std::string("\0\n\xff", 3)});
    CHECK(beside.look(owner).argv()[4] == name + ":distlock.:fence");
    CHECK(beside.look(owner).argv()[5] == name + ":distlock.:owner");
    CHECK(beside.look(owner).argv()[9].ends_with(std::string_view("\n\0\n\xff", 4)));
}

TEST_CASE("the lease goes to the server in whole milliseconds") {
    const token owner = token::generate();
    CHECK(plain("x", {.lease = 10ms}).acquire(owner).argv()[5] == "10");
    CHECK(plain("x", {.lease = 24h}).acquire(owner).argv()[5] == "86400000");
    CHECK(plain("x", {.lease = 1500us}).look(owner).argv()[5] == "1");
    CHECK(plain("x", {.lease = 24h}).lease() == 24h);
}

TEST_CASE("a name that cannot be used is refused by the dialect") {
    CHECK_THROWS_AS(plain("", {}), distlock::error);
    CHECK_THROWS_AS(plain(std::string(4097, 'x'), {}), distlock::error);
}

TEST_CASE("SET is granted by the status OK, busy by nil, and by nothing else") {
    CHECK(dialect.read_acquire(reply::status("OK")).what == kind::granted);
    const auto busy = dialect.read_acquire(reply::nil());
    CHECK(busy.what == kind::busy);
    CHECK_FALSE(busy.ttl);
    auto others = nonsense();
    for (const std::int64_t n : {std::int64_t{0}, std::int64_t{1}, std::int64_t{-1}, most}) {
        others.push_back(reply::integer(n));
    }
    for (const reply& r : others) {
        INFO(static_cast<int>(r.kind()) << " " << r.text() << " " << r.number());
        CHECK(dialect.read_acquire(r).what == kind::unknown);
        CHECK(dialect.read_acquire(r).cause == errc::protocol_error);
    }
    check_failures([](const reply& r) { return dialect.read_acquire(r); });
}

TEST_CASE("a look is granted by the status OK, busy by a TTL, and by nothing else") {
    CHECK(dialect.read_look(reply::status("OK")).what == kind::granted);
    for (const std::int64_t ttl :
         {std::int64_t{-2}, std::int64_t{-1}, std::int64_t{0}, std::int64_t{1}, std::int64_t{30'000}, most}) {
        const auto busy = dialect.read_look(reply::integer(ttl));
        INFO(ttl);
        CHECK(busy.what == kind::busy);
        REQUIRE(busy.ttl);
        CHECK(busy.ttl->count() == ttl);
    }
    auto others = nonsense();
    others.push_back(reply::nil());
    for (const reply& r : others) {
        INFO(static_cast<int>(r.kind()) << " " << r.text() << " " << r.number());
        CHECK(dialect.read_look(r).what == kind::unknown);
        CHECK(dialect.read_look(r).cause == errc::protocol_error);
    }
    check_failures([](const reply& r) { return dialect.read_look(r); });
}

TEST_CASE("a fence is granted by its digits, busy by a TTL, and by nothing else") {
    const auto granted = [](std::string digits) {
        return reply::array({reply::integer(1), reply::string(std::move(digits))});
    };
    for (const plain* one : {&fenced, &both}) {
        struct row {
            const char* digits;
            std::uint64_t fence;
        };
        // Past 2^53 every digit counts.
        for (const row& row :
             {row{"1", 1}, row{"1700000000000000", 1700000000000000},
              row{"9007199254740993", 9007199254740993}, row{"9223372036854775807", 9223372036854775807U},
              row{"18446744073709551615", 18446744073709551615U}}) {
            INFO(row.digits);
            CHECK(one->read_look(granted(row.digits)).what == kind::granted);
            CHECK(one->read_look(granted(row.digits)).fence == row.fence);
            CHECK(one->read_acquire(granted(row.digits)).what == kind::granted);
            CHECK(one->read_acquire(granted(row.digits)).fence == row.fence);
        }
        auto others = nonsense();
        others.push_back(reply::nil());
        others.push_back(reply::status("OK"));
        others.push_back(reply::integer(1));
        others.push_back(reply::integer(0));
        for (const char* digits : {"", "0", "00", "-1", "+1", " 1", "1 ", "1.0", "1e3", "0x1", "abc", "1\n",
                                   "18446744073709551616", "99999999999999999999999"}) {
            others.push_back(granted(digits));
        }
        for (const reply& r : others) {
            INFO(static_cast<int>(r.kind()) << " " << r.text() << " " << r.number());
            for (const acquire_outcome& got : {one->read_look(r), one->read_acquire(r)}) {
                CHECK(got.what == kind::unknown);
                CHECK(got.cause == errc::protocol_error);
                CHECK(got.fence == 0);
            }
        }
        check_failures([&](const reply& r) { return one->read_look(r); });
        check_failures([&](const reply& r) { return one->read_acquire(r); });
    }
}

TEST_CASE("with owner_info alone a grant has no fence") {
    for (const char* text : {"", "17", "abc"}) {
        const reply answer = reply::array({reply::integer(1), reply::string(text)});
        CHECK(labelled.read_look(answer).what == kind::granted);
        CHECK(labelled.read_acquire(answer).what == kind::granted);
        CHECK(labelled.read_look(answer).fence == 0);
    }
    for (const reply& r : nonsense()) {
        if (r.elements().size() == 2 && r.elements()[0].is_integer(1) &&
            r.elements()[1].is(distlock::reply_kind::string))
            continue;
        INFO(static_cast<int>(r.kind()) << " " << r.text() << " " << r.number());
        CHECK(labelled.read_look(r).what == kind::unknown);
        CHECK(labelled.read_look(r).cause == errc::protocol_error);
    }
    check_failures([](const reply& r) { return labelled.read_look(r); });
}

TEST_CASE("with something beside the lock, busy says the TTL that is left") {
    for (const plain* one : {&fenced, &labelled, &both}) {
        for (const std::int64_t ttl :
             {std::int64_t{-2}, std::int64_t{-1}, std::int64_t{0}, std::int64_t{30'000}, most}) {
            const reply answer = reply::array({reply::integer(0), reply::integer(ttl)});
            for (const acquire_outcome& got : {one->read_look(answer), one->read_acquire(answer)}) {
                CHECK(got.what == kind::busy);
                REQUIRE(got.ttl);
                CHECK(got.ttl->count() == ttl);
            }
        }
    }
}

TEST_CASE("a renewal has three answers, and everything else says nothing about the owner") {
    using renewal = distlock::renew_outcome::kind;
    for (const plain* one : {&dialect, &fenced, &labelled, &both}) {
        const auto read = [one](const reply& r) { return one->read_renew(r).what; };
        CHECK(read(reply::integer(1)) == renewal::kept);
        CHECK(read(reply::integer(0)) == renewal::gone);
        CHECK(read(reply::integer(-1)) == renewal::taken);
        CHECK(read(reply::error("WRONGTYPE x")) == renewal::taken);
        CHECK(read(reply::error("ERR Error running script (call to f_0): @user_script:4: -WRONGTYPE x")) ==
              renewal::taken);
        auto others = nonsense();
        others.insert(others.end(),
                      {reply::nil(), reply::status("OK"), reply::integer(2), reply::integer(-2),
                       reply::integer(most), reply::not_sent(errc::unreachable, ""),
                       reply::not_sent(errc::wrong_process, ""), reply::no_answer(errc::no_reply, ""),
                       reply::no_answer(errc::protocol_error, ""), reply::error("")});
        for (const char* text :
             {"READONLY x", "LOADING x", "BUSY x", "MASTERDOWN x", "OOM x", "MISCONF x", "NOREPLICAS x",
              "NOPERM x", "NOAUTH x", "NOSCRIPT x", "ERR x", "MOVED 1 h:1", "ERR WRONGTYPE"}) {
            others.push_back(reply::error(text));
        }
        for (const reply& r : others) {
            INFO(static_cast<int>(r.kind()) << " " << r.text() << " " << r.number());
            CHECK(read(r) == renewal::later);
        }
    }
}

TEST_CASE("a release has three answers, and all three are final") {
    const auto check = [](std::int64_t n, release_outcome expected) {
        for (const plain* one : {&dialect, &fenced, &labelled, &both}) {
            const auto verdict = one->read_release(reply::integer(n));
            CHECK(verdict.what == expected);
            CHECK_FALSE(verdict.again);
            CHECK_FALSE(verdict.in_doubt);
        }
    };
    check(1, release_outcome::released);
    check(0, release_outcome::expired);
    check(-1, release_outcome::taken);
}

TEST_CASE("a release that was answered with nonsense is not believed, and asked again") {
    auto others = nonsense();
    others.push_back(reply::nil());
    others.push_back(reply::status("OK"));
    for (const std::int64_t n : {std::int64_t{2}, std::int64_t{-2}, most}) {
        others.push_back(reply::integer(n));
    }
    for (const reply& r : others) {
        INFO(static_cast<int>(r.kind()) << " " << r.text() << " " << r.number());
        CHECK(dialect.read_release(r).what == release_outcome::unreachable);
        CHECK(dialect.read_release(r).again);
        CHECK(dialect.read_release(r).in_doubt);
    }
}

TEST_CASE("a release without an answer is asked again, except in a child after fork") {
    for (const reply& r : {reply::not_sent(errc::unreachable, ""), reply::no_answer(errc::no_reply, ""),
                           reply::no_answer(errc::protocol_error, "")}) {
        CHECK(dialect.read_release(r).what == release_outcome::unreachable);
        CHECK(dialect.read_release(r).again);
        CHECK(dialect.read_release(r).in_doubt == r.is(distlock::reply_kind::no_answer));
    }
    const auto child = dialect.read_release(reply::not_sent(errc::wrong_process, ""));
    CHECK(child.what == release_outcome::wrong_process);
    CHECK_FALSE(child.again);
}

TEST_CASE("a release that the server refuses is asked again only if that may help") {
    for (const char* text : {"LOADING x", "BUSY x", "READONLY x", "TRYAGAIN x", "NOSCRIPT x"}) {
        CHECK(dialect.read_release(reply::error(text)).what == release_outcome::refused);
        CHECK(dialect.read_release(reply::error(text)).again);
        CHECK_FALSE(dialect.read_release(reply::error(text)).in_doubt);
    }
    for (const char* text : {"NOPERM x", "MISCONF x", "NOREPLICAS x", "WRONGTYPE x", "ERR x", ""}) {
        CHECK(dialect.read_release(reply::error(text)).what == release_outcome::refused);
        CHECK_FALSE(dialect.read_release(reply::error(text)).again);
    }
}

TEST_CASE("each script states its contract first") {
    for (const auto* s : {&distlock::detail::plain_look, &distlock::detail::plain_look_with_siblings,
                          &distlock::detail::plain_renew, &distlock::detail::plain_release}) {
        CHECK(s->text().starts_with("-- KEYS: "));
        CHECK(s->text().find("ARGV: ") < s->text().find('\n'));
        CHECK(s->text().find("-- Returns ") != std::string_view::npos);
    }
}

TEST_CASE("the digests that stand in the header are those of the scripts") {
    namespace detail = distlock::detail;
    for (const distlock::script* s : {&detail::plain_look, &detail::plain_look_with_siblings,
                                      &detail::plain_renew, &detail::plain_release}) {
        const auto digest = detail::sha1_hex(s->text());
        CHECK(std::string_view(digest.data(), digest.size()) == s->sha1());
    }
}

}  // namespace plain_tests
