// The plain dialect: intent to command, reply to outcome. Nothing but the exact shape of success is success.
#include <chrono>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include <distlock/base/options.hpp>
#include <distlock/base/token.hpp>
#include <distlock/wire/outcome.hpp>
#include <distlock/wire/plain.hpp>
#include <distlock/wire/reply.hpp>

#include "catch.hpp"

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

const plain dialect("orders:42", {.lease = 30s});

words argv_of(const command& cmd) { return {cmd.argv().begin(), cmd.argv().end()}; }

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
            reply::array({reply::array({}), reply::nil()}),
            reply::integer(-3),
            reply::integer(least)};
}

template <class Read>
void check_failures(Read read) {
    struct row {
        reply r;
        kind what;
        errc cause;
    };
    const std::vector<row> rows{
        {reply::not_sent(errc::unreachable, ""), kind::later, errc::unreachable},
        {reply::not_sent(errc::no_reply, ""), kind::later, errc::no_reply},
        {reply::not_sent(errc::unavailable, ""), kind::later, errc::unavailable},
        {reply::not_sent(errc::wrong_process, ""), kind::refused, errc::wrong_process},
        {reply::not_sent(errc::authentication_failed, ""), kind::refused, errc::authentication_failed},
        {reply::not_sent(errc::tls_failed, ""), kind::refused, errc::tls_failed},
        {reply::not_sent(errc::tls_unavailable, ""), kind::refused, errc::tls_unavailable},
        {reply::no_answer(errc::no_reply, ""), kind::unknown, errc::no_reply},
        {reply::no_answer(errc::protocol_error, ""), kind::unknown, errc::protocol_error},
        {reply::no_answer(errc::reply_too_large, ""), kind::unknown, errc::reply_too_large},
        {reply::no_answer(errc::unreachable, ""), kind::unknown, errc::unreachable},
        {reply::no_answer(errc::tls_failed, ""), kind::unknown, errc::tls_failed},
        {reply::error("LOADING x"), kind::later, errc::unavailable},
        {reply::error("READONLY x"), kind::later, errc::read_only},
        {reply::error("NOSCRIPT x"), kind::later, errc::unavailable},
        {reply::error("OOM x"), kind::refused, errc::out_of_memory},
        {reply::error("WRONGTYPE x"), kind::refused, errc::wrong_type},
        {reply::error("NOPERM x"), kind::refused, errc::permission_denied},
        {reply::error("NOAUTH x"), kind::refused, errc::authentication_failed},
        {reply::error("MOVED 1 h:1"), kind::refused, errc::wrong_node},
        {reply::error("ERR x"), kind::refused, errc::server_error},
        {reply::error("OK"), kind::refused, errc::server_error},
        {reply::error(""), kind::refused, errc::server_error},
    };
    for (const row& row : rows) {
        INFO(static_cast<int>(row.r.kind()) << " " << row.r.text() << " " << static_cast<int>(row.cause));
        const acquire_outcome got = read(row.r);
        CHECK(got.what == row.what);
        CHECK(got.cause == row.cause);
        CHECK_FALSE(got.ttl);
    }
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

TEST_CASE("a binary name goes to the server byte for byte") {
    const std::string name("a\0b\r\n{c}\xff", 9);
    const plain binary(name, {});
    const token owner = token::generate();
    CHECK(binary.name() == name);
    CHECK(binary.acquire(owner).argv()[1] == name);
    CHECK(binary.look(owner).argv()[3] == name);
    CHECK(binary.release(owner).argv()[3] == name);
    CHECK(binary.release(owner).routing_key() == name);
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

TEST_CASE("a release has three answers, and all three are final") {
    const auto check = [](std::int64_t n, release_outcome expected) {
        const auto verdict = dialect.read_release(reply::integer(n));
        CHECK(verdict.what == expected);
        CHECK_FALSE(verdict.again);
        CHECK_FALSE(verdict.open);
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
        CHECK(dialect.read_release(r).open);
    }
}

TEST_CASE("a release without an answer is asked again, except in a child after fork") {
    for (const reply& r : {reply::not_sent(errc::unreachable, ""), reply::no_answer(errc::no_reply, ""),
                           reply::no_answer(errc::protocol_error, "")}) {
        CHECK(dialect.read_release(r).what == release_outcome::unreachable);
        CHECK(dialect.read_release(r).again);
        CHECK(dialect.read_release(r).open == r.is(distlock::reply_kind::no_answer));
    }
    const auto child = dialect.read_release(reply::not_sent(errc::wrong_process, ""));
    CHECK(child.what == release_outcome::wrong_process);
    CHECK_FALSE(child.again);
}

TEST_CASE("a release that the server refuses is asked again only if that may help") {
    for (const char* text : {"LOADING x", "BUSY x", "READONLY x", "TRYAGAIN x", "NOSCRIPT x"}) {
        CHECK(dialect.read_release(reply::error(text)).what == release_outcome::refused);
        CHECK(dialect.read_release(reply::error(text)).again);
        CHECK_FALSE(dialect.read_release(reply::error(text)).open);
    }
    for (const char* text : {"NOPERM x", "MISCONF x", "NOREPLICAS x", "WRONGTYPE x", "ERR x", ""}) {
        CHECK(dialect.read_release(reply::error(text)).what == release_outcome::refused);
        CHECK_FALSE(dialect.read_release(reply::error(text)).again);
    }
}

TEST_CASE("each script states its contract first") {
    for (const auto* s : {&distlock::detail::plain_look, &distlock::detail::plain_release}) {
        CHECK(s->text().starts_with("-- KEYS: "));
        CHECK(s->text().find("ARGV: ") < s->text().find('\n'));
        CHECK(s->text().find("-- Returns ") != std::string_view::npos);
    }
}
