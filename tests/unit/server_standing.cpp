// Whether a server serves, is a replica, or is full, by its answers.
#include <distlock/net/server_standing.hpp>
#include <distlock/wire/reply.hpp>

#include "support/catch.hpp"

namespace server_standing_tests {

using distlock::reply;
using distlock::detail::server_standing;

TEST_CASE("a server that has not answered is neither a replica nor full") {
    const server_standing of;
    CHECK_FALSE(of.answered());
    CHECK_FALSE(of.demoted());
    CHECK_FALSE(of.full());
}

TEST_CASE("any answer is one, and an error that is no matter of roles or room says nothing of them") {
    for (const reply& answer : {reply::status("OK"), reply::nil(), reply::error("OOM command not allowed"),
                                reply::error("LOADING Redis is loading the dataset in memory")}) {
        server_standing of;
        of.on_reply(answer);
        CHECK(of.answered());
        CHECK_FALSE(of.demoted());
        CHECK_FALSE(of.full());
    }
}

TEST_CASE("a server that says that it is a replica stays one, whatever it answers then") {
    for (const char* const text :
         {"READONLY You can't write against a read only replica.",
          "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set",
          "UNBLOCKED force unblock from blocking operation, instance state changed"}) {
        server_standing of;
        of.on_reply(reply::error(text));
        of.on_reply(reply::status("OK"));
        CHECK(of.demoted());
        CHECK_FALSE(of.full());
    }
}

TEST_CASE("a server that has no room says so in place of an answer, or of its own accord") {
    server_standing of;
    of.on_reply(reply::error("ERR max number of clients reached"));
    CHECK(of.full());
    server_standing unasked;
    unasked.on_no_room();
    CHECK(unasked.full());
    CHECK(unasked.answered());
}

}  // namespace server_standing_tests
