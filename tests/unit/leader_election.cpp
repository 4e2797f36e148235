// A candidate with a scripted connection.
#include <chrono>
#include <memory>
#include <stop_token>
#include <system_error>

#include <distlock/leader_election.hpp>
#include <distlock/testing/scripted_connection.hpp>

#include "support/catch.hpp"
#include "support/waiting.hpp"

namespace leader_election_tests {

using namespace std::chrono_literals;
using distlock::errc;
using distlock::reply;
using distlock::testing::scripted_connection;

TEST_CASE(
    "an error that trying again does not help is thrown though the candidate is told to stop meanwhile") {
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

TEST_CASE("a candidate that is refused stands again 100 ms later") {
    struct counting final : distlock::election_observer {
        void failed(std::error_code why) noexcept override {
            CHECK(why == errc::out_of_memory);
            if (++failures == 3) stop.request_stop();
        }
        int failures = 0;
        std::stop_source stop;
    };
    const auto refusing = [](const distlock::command&) { return reply::error("OOM command not allowed"); };
    const auto told = std::make_shared<counting>();
    distlock::leader_election election{refusing, "orders", {}, told};
    const auto run = [&] { election.run(told->stop.get_token(), [](const distlock::leadership&) {}); };
    CHECK(time_of(run) >= 200ms);
    CHECK(told->failures == 3);
}

}  // namespace leader_election_tests
