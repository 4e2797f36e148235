// What became of a command that was posted: known once, to the first that asks.
#include <distlock/base/error.hpp>
#include <distlock/net/receipt.hpp>
#include <distlock/wire/reply.hpp>

#include "support/catch.hpp"

namespace receipt_tests {

using distlock::receipt;
using distlock::reply;

TEST_CASE("a receipt has no answer before it is settled, and tells it to the first that asks") {
    receipt r;
    CHECK_FALSE(r.answer());
    r.settle(reply::integer(1));
    const auto told = r.answer();
    REQUIRE(told);
    CHECK(told->is_integer(1));
    CHECK_FALSE(r.answer());
}

TEST_CASE("a receipt that is settled again tells the last answer, which may be that there is none") {
    receipt r;
    r.settle(reply::integer(1));
    r.settle(reply::no_answer(distlock::errc::no_reply, "lost"));
    const auto told = r.answer();
    REQUIRE(told);
    CHECK(told->is(distlock::reply_kind::no_answer));
}

TEST_CASE("a receipt that expects another answer has forgotten the one it had") {
    receipt r;
    r.settle(reply::integer(1));
    r.expect();
    CHECK_FALSE(r.answer());
}

}  // namespace receipt_tests
