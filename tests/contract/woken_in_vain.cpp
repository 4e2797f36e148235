// Waits that are woken again and again although the lock stays taken: their time is counted from the call, not from the last
// wake-up.
#include <atomic>
#include <chrono>
#include <cstddef>
#include <string>
#include <system_error>
#include <thread>

#include <distlock/interop.hpp>
#include <distlock/mutex.hpp>

#include "catch.hpp"
#include "support/rigs.hpp"
#include "support/slack.hpp"
#include "support/waiting.hpp"

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
    CHECK(distlock::clock::now() - began < 300ms + slack);
}

}  // namespace

TEST_CASE("a wait in line that somebody ends again and again is over when its time is up") {
    distlock::hiredis_connection redis{rigs::unix_server().uri()};
    const auto name = rigs::fresh_name();
    REQUIRE(rigs::unix_server().command({"SET", name, "somebody else's", "PX", "60000"}) == "OK");
    const auto end_all_waits = [] {
        const std::string clients = rigs::unix_server().command({"CLIENT", "LIST"});
        int ended = 0;
        for (std::size_t at = 0; (at = clients.find(" cmd=blpop", at)) != std::string::npos; ++at) {
            const auto id = clients.rfind("id=", clients.rfind(" addr=", at)) + 3;
            const auto who = clients.substr(id, clients.find(' ', id) - id);
            ended += rigs::unix_server().command({"CLIENT", "UNBLOCK", who}) == "1";
        }
        return ended;
    };
    distlock::mutex m{redis, name, {.recheck = 1h}};
    alarm_clock again(end_all_waits);
    wait_is_over_in_time(m);
    CHECK(again.woke() > 5);
}

TEST_CASE("a wait for a message is over when its time is up, however many messages come") {
    distlock::hiredis_connection redis{rigs::unix_server().uri()};
    const auto name = rigs::fresh_name();
    REQUIRE(rigs::unix_server().command({"HSET", name, "somebody:1", "1"}) == "1");
    REQUIRE(rigs::unix_server().command({"PEXPIRE", name, "60000"}) == "1");
    const auto tell = [&] {
        return rigs::unix_server().command({"PUBLISH", "redisson_lock__channel:{" + name + "}", "0"}) == "1";
    };
    distlock::mutex<distlock::hiredis_connection, distlock::redisson> m{redis, name, {.recheck = 1h}};
    alarm_clock again(tell);
    wait_is_over_in_time(m);
    CHECK(again.woke() > 5);
}
