// Replies: eight kinds that are never mistaken for each other.
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>

#include <distlock/wire/reply.hpp>

#include "support/catch.hpp"

namespace reply_tests {

namespace {

using distlock::errc;
using distlock::reply;
using distlock::reply_kind;

// Texts are equal on purpose: only the kind tells them apart.
const std::array<reply, 8> one_of_each{
    reply::nil(),
    reply::integer(1),
    reply::string("OK"),
    reply::status("OK"),
    reply::array({reply::status("OK")}),
    reply::error("OK"),
    reply::not_sent(errc::unreachable, "OK"),
    reply::no_answer(errc::protocol_error, "OK"),
};
constexpr std::array kinds{reply_kind::nil,      reply_kind::integer,  reply_kind::string,
                           reply_kind::status,   reply_kind::array,    reply_kind::error,
                           reply_kind::not_sent, reply_kind::no_answer};

}  // namespace

TEST_CASE("a server's words are kept whole for decisions, beside what people may be shown of them") {
    reply r = reply::error("ERR as it came");
    CHECK(r.said() == r.text());
    r.become_error("ERR the secret", "ERR the ***");
    CHECK(r.is(reply_kind::error));
    CHECK(r.text() == "ERR the ***");
    CHECK(r.said() == "ERR the secret");
    const reply copy = r;
    CHECK(copy.said() == "ERR the secret");
    r.become(reply_kind::error, "ERR another");
    CHECK(r.said() == "ERR another");
    r.become_error("ERR one", "ERR one");
    CHECK(r.said() == "ERR one");
    CHECK(reply::status("OK").said() == "OK");
}

TEST_CASE("an error that is shown names its server, if that is known, and decisions do not see it") {
    reply r = reply::error("OOM no memory");
    r.said_at("10.0.0.7", 6381);
    CHECK(r.text() == "OOM no memory (at 10.0.0.7:6381)");
    CHECK(r.said() == "OOM no memory");
    r.become_error("ERR the secret", "ERR the ***");
    r.said_at("::1", 6379);
    CHECK(r.text() == "ERR the *** (at ::1:6379)");
    CHECK(r.said() == "ERR the secret");
    reply fine = reply::status("OK");
    fine.said_at("::1", 6379);
    CHECK(fine.is_status("OK"));
}

TEST_CASE("a reply is of one kind and no other") {
    for (std::size_t i = 0; i < kinds.size(); ++i) {
        INFO(i);
        CHECK(one_of_each[i].kind() == kinds[i]);
        for (std::size_t other = 0; other < kinds.size(); ++other) {
            CHECK(one_of_each[i].is(kinds[other]) == (i == other));
        }
        CHECK(one_of_each[i].is_status("OK") == (kinds[i] == reply_kind::status));
        CHECK(one_of_each[i].is_string("OK") == (kinds[i] == reply_kind::string));
        CHECK(one_of_each[i].is_integer(1) == (kinds[i] == reply_kind::integer));
        CHECK(one_of_each[i].answered() ==
              (kinds[i] != reply_kind::not_sent && kinds[i] != reply_kind::no_answer));
    }
}

TEST_CASE("a default reply is nil") {
    CHECK(reply{}.is(reply_kind::nil));
    CHECK(reply{}.answered());
}

TEST_CASE("a status is compared whole and by case") {
    CHECK(reply::status("OK").is_status("OK"));
    for (const char* other : {"", "O", "OKAY", "ok", " OK", "QUEUED"}) {
        CHECK_FALSE(reply::status(other).is_status("OK"));
    }
    CHECK_FALSE(reply::status(std::string("OK\0", 3)).is_status("OK"));
}

TEST_CASE("an integer is exact at both ends of its range, and nil is not zero") {
    CHECK(reply::integer(std::numeric_limits<std::int64_t>::max()).number() ==
          std::numeric_limits<std::int64_t>::max());
    CHECK(reply::integer(std::numeric_limits<std::int64_t>::min())
              .is_integer(std::numeric_limits<std::int64_t>::min()));
    CHECK_FALSE(reply::nil().is_integer(0));
    CHECK_FALSE(reply::string("1").is_integer(1));
    CHECK(reply::string("7").number() == 0);
}

TEST_CASE("a text in the place of an array has no elements") {
    reply r = reply::array({reply::integer(1), reply::nil()});
    r.become(reply_kind::string, "text");
    CHECK(r.is_string("text"));
    CHECK(r.elements().empty());
}

TEST_CASE("text, elements and cause are kept") {
    CHECK(reply::error("LOADING x").text() == "LOADING x");
    CHECK(reply::string(std::string("a\0b", 3)).text().size() == 3);
    CHECK(reply::nil().text().empty());
    reply nested = reply::array({reply::integer(1), reply::array({reply::nil()})});
    REQUIRE(nested.elements().size() == 2);
    CHECK(nested.elements()[1].elements().size() == 1);
    nested.elements().clear();
    CHECK(std::as_const(nested).elements().empty());
    CHECK(reply::not_sent(errc::tls_failed, "detail").cause() == errc::tls_failed);
    CHECK(reply::no_answer(errc::reply_too_large, "detail").cause() == errc::reply_too_large);
    CHECK(reply::no_answer(errc::reply_too_large, "detail").text() == "detail");
    // No cause was "no failure": lock() returned without the lock.
    CHECK(reply::not_sent(errc{}, "").cause() == errc::unreachable);
    CHECK(reply::no_answer(errc{}, "").cause() == errc::no_reply);
}

}  // namespace reply_tests
