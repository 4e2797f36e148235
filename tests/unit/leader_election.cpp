// A candidate with a scripted connection.
#include <stop_token>
#include <system_error>

#include <distlock/leader_election.hpp>
#include <distlock/testing/scripted_connection.hpp>

#include "support/catch.hpp"

namespace leader_election_tests {

using distlock::errc;
using distlock::reply;
using distlock::testing::scripted_connection;

TEST_CASE("what trying again does not help is thrown though the candidate is told to stop meanwhile") {
    scripted_connection redis;
    std::stop_source stop;
    redis.then([&] { stop.request_stop(); }, reply::error("NOPERM this user has no permissions"));
    distlock::leader_election election{redis, "orders"};
    std::error_code ec;
    bool led = false;
    try {
        election.run(stop.get_token(), [&](const distlock::leadership&) { led = true; });
    } catch (const distlock::error& e) {
        ec = e.code();
    }
    CHECK(ec == errc::permission_denied);
    CHECK_FALSE(led);
}

}  // namespace leader_election_tests
