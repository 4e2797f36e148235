// A ticket of the waiter queue, from its text and back.
#include <chrono>
#include <string>

#include <distlock/base/owner.hpp>
#include <distlock/base/token.hpp>
#include <distlock/wire/ticket.hpp>

#include "support/catch.hpp"

namespace ticket_tests {

using namespace std::chrono_literals;
using distlock::channel_kind;
using distlock::token;
using distlock::detail::ticket;

namespace {

const token owner = token::from("0123456789abcdef0123456789abcdef");
const std::string digits(owner.view());
const std::string night_job = distlock::describe_owner("night job");

}  // namespace

TEST_CASE("a ticket is read as it was written, and what is none is not") {
    for (const std::string& needs :
         {std::string(" 30000 0 p0 "), std::string(" 30000 3900000 p11 its channel"),
          " 30000 0 s11 its channel" + night_job, " 30000 3900000 p0 " + night_job,
          std::string(" 30000 0 P0 "), std::string(" 30000 0 S11 its channel"), std::string(" 30000 3 q0 "),
          std::string(" 30000 2147483648 Q11 its channel")}) {
        INFO(needs);
        const auto text = digits + needs;
        const auto read = ticket::read(text);
        REQUIRE(read);
        CHECK(read->owner == owner);
        CHECK(read->lease == 30s);
        CHECK(read->needs() == needs);
    }
    const auto read = ticket::read(digits + " 1 0 s3 a b c\nd");
    REQUIRE(read);
    CHECK(read->kind == channel_kind::sharded);
    CHECK(read->fence_life == 0ms);
    CHECK(read->permits == 0);
    const auto permits = ticket::read(digits + " 1 7 Q3 a b");
    REQUIRE(permits);
    CHECK(permits->kind == channel_kind::sharded);
    CHECK(permits->permits == 7);
    CHECK(permits->fence_life == 0ms);
    CHECK_FALSE(permits->reads);
    for (const std::string& text :
         {std::string(), digits, digits + " 1 0 p3", digits + " 1 0 p3 ab", digits + " 0 0 p0 ",
          digits + " x 0 p0 ", digits + " 1 0 x0 ", digits + " 1 0 p ", digits + " 1 0 q0 ",
          digits.substr(1) + " 1 0 p0 ", digits + "0 1 0 p0 ", digits + " 1 0 p18446744073709551615 "}) {
        INFO(text);
        CHECK_FALSE(ticket::read(text));
    }
}

}  // namespace ticket_tests
