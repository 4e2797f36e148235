// The replies that are still to come on a socket: what becomes of them when it ends.
#include <memory>
#include <optional>

#include <distlock/hiredis/posted_replies.hpp>
#include <distlock/net/receipt.hpp>

#include "support/allocations.hpp"
#include "support/catch.hpp"

namespace posted_replies_tests {

using distlock::errc;
using distlock::receipt;
using distlock::reply;
using distlock::detail::posted_replies;

TEST_CASE("a reply goes to the first of those that are to come") {
    posted_replies all;
    const auto one = std::make_shared<receipt>();
    const auto two = std::make_shared<receipt>();
    all.expect(one);
    all.expect(nullptr);
    all.expect(two);
    CHECK(all.count() == 3);
    CHECK(all.unconfirmed() == 1);
    all.settle(reply::integer(1));
    all.settle(reply::integer(2));
    all.settle(reply::integer(3));
    CHECK(all.count() == 0);
    CHECK(all.unconfirmed() == 0);
    CHECK(one->answer()->is_integer(1));
    CHECK(two->answer()->is_integer(3));
}

// The reason was a text that takes memory, in a destructor: the program ended when a server hung
// up and there was none.
TEST_CASE("a socket that ends with replies to come takes no memory for that, and their senders know") {
    NOT_TESTED_UNLESS(allocations_can_fail(), operator_new_is_not_ours);
    const auto who = std::make_shared<receipt>();
    {
        posted_replies all;
        all.expect(nullptr);
        all.expect(who);
        fail_allocation(1);
    }
    const bool failed = allocation_failed();
    fail_allocation(0);
    CHECK_FALSE(failed);
    const auto said = who->answer();
    REQUIRE(said);
    CHECK(said->cause() == errc::no_reply);
}

}  // namespace posted_replies_tests
