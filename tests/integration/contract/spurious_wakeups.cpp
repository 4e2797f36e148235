// Waits that are woken again and again although the lock stays taken: their time is counted from the call,
// not from the last wake-up.
#include <atomic>
#include <chrono>
#include <string>
#include <system_error>
#include <thread>

#include <distlock/interop.hpp>
#include <distlock/mutex.hpp>
#include <distlock/wire/ticket.hpp>

#include "support/catch.hpp"
#include "support/connection_fixtures.hpp"
#include "support/lock_on_server.hpp"
#include "support/round_trip.hpp"
#include "support/waiting.hpp"

namespace spurious_wakeups_tests {

using namespace std::chrono_literals;

namespace {

/// Calls `wake()`, which says how many it woke, until it ends.
template <class Wake>
class alarm_clock {
  public:
    explicit alarm_clock(Wake wake) : wake_(wake) {}
    int woke() const { return woke_; }

  private:
    Wake wake_;
    std::atomic<int> woke_{0};
    std::jthread thread_{[this](const std::stop_token& end) {
        while (!end.stop_requested()) woke_ += wake_();
    }};
};

template <class Mutex>
void wait_is_over_in_time(Mutex& m) {
    const auto began = distlock::clock::now();
    std::error_code ec;
    CHECK_FALSE(m.try_lock_for(300ms, ec));
    CHECK_FALSE(ec);
    CHECK(distlock::clock::now() - began >= 300ms);
    CHECK(distlock::clock::now() - began < 300ms + round_trip_tolerance);
}

}  // namespace

TEST_CASE(
    "a wait in the queue that is told of a lock again and again, and has it not, is over when its time is "
    "up") {
    distlock::hiredis_connection redis{uri_of(connection_fixtures::unix_server())};
    const auto name = connection_fixtures::fresh_name();
    const lock_on_server seen(connection_fixtures::unix_server(), name);
    REQUIRE(seen.strangers("60000"));
    const auto tell = [&] {
        const std::string first =
            connection_fixtures::unix_server().command({"ZRANGE", seen.queue_key, "0", "0"});
        const auto ticket = distlock::detail::ticket::read(first);
        if (!ticket) return 0;
        const std::string lie = std::string(ticket->owner.view()) + " 1 2000 0 " + name;
        // Not believed where nothing was asked for that long; then it looks.
        return connection_fixtures::unix_server().command({"PUBLISH", ticket->channel, lie}) == "1" ? 1 : 0;
    };
    distlock::mutex m{redis, name, {.lease = 2s, .fencing = true, .recheck = 1h}};
    alarm_clock again(tell);
    wait_is_over_in_time(m);
    CHECK(again.woke() > 5);
    CHECK(seen.queued() == 0);
    CHECK(seen.holder() == "a stranger's token");
}

TEST_CASE("a wait whose subscription is killed again and again is over when its time is up") {
    distlock::hiredis_connection redis{uri_of(connection_fixtures::unix_server())};
    const auto name = connection_fixtures::fresh_name();
    const lock_on_server seen(connection_fixtures::unix_server(), name);
    REQUIRE(seen.strangers("60000"));
    const auto kill = [&] {
        return std::stoi(connection_fixtures::unix_server().command({"CLIENT", "KILL", "TYPE", "pubsub"}));
    };
    distlock::mutex m{redis, name, {.recheck = 1h}};
    alarm_clock again(kill);
    wait_is_over_in_time(m);
    CHECK(again.woke() > (round_trip() == 0ms ? 2 : 0));
    CHECK(seen.queued() == 0);
}

TEST_CASE("a wait for a message is over when its time is up, however many messages come") {
    distlock::hiredis_connection redis{uri_of(connection_fixtures::unix_server())};
    const auto name = connection_fixtures::fresh_name();
    REQUIRE(connection_fixtures::unix_server().command({"HSET", name, "somebody:1", "1"}) == "1");
    REQUIRE(connection_fixtures::unix_server().command({"PEXPIRE", name, "60000"}) == "1");
    const auto tell = [&] {
        return connection_fixtures::unix_server().command(
                   {"PUBLISH", "redisson_lock__channel:{" + name + "}", "0"}) == "1";
    };
    distlock::mutex<distlock::hiredis_connection, distlock::redisson> m{redis, name, {.recheck = 1h}};
    alarm_clock again(tell);
    wait_is_over_in_time(m);
    CHECK(again.woke() > 5);
}

}  // namespace spurious_wakeups_tests
