// Which of several callers asks, and how long the others wait for it.
#include <chrono>
#include <condition_variable>
#include <future>
#include <mutex>

#include <distlock/base/clock.hpp>
#include <distlock/hiredis/turn_to_ask.hpp>
#include <distlock/net/refresh_schedule.hpp>
#include <distlock/net/sentinel_schedule.hpp>

#include "support/catch.hpp"

namespace turn_to_ask_tests {

using namespace std::chrono_literals;
using distlock::clock;
using distlock::detail::refresh_schedule;
using distlock::detail::sentinel_schedule;
using distlock::detail::wait_for_turn;

namespace {

// A question that is asked, and a caller that waits for its end, for a minute at most.
template <class Schedule>
class waiting_caller {
  public:
    explicit waiting_caller(Schedule& asked, clock::duration longest = 1min)
        : schedule_(asked), longest_(longest) {
        std::unique_lock lock(mutex_);
        waits_ = std::async(std::launch::async, [this] { return wait(); });
        begun_.wait(lock, [&] { return has_begun_; });
    }

    // Effects: `change()` in one step, which the caller is told of.
    template <class F>
    void tell(F change) {
        const std::lock_guard guard(mutex_);
        change();
        ended_.notify_all();
    }
    bool returns() const { return waits_.wait_for(20s) == std::future_status::ready; }
    bool is_to_ask() { return waits_.get(); }

  private:
    bool wait() {
        std::unique_lock lock(mutex_);
        has_begun_ = true;
        begun_.notify_all();
        return wait_for_turn(
            ended_, lock, schedule_, clock::now() + 1min, longest_, nullptr, [] { return false; },
            [this] { return !schedule_.running(); });
    }

    Schedule& schedule_;
    const clock::duration longest_;
    std::mutex mutex_;
    std::condition_variable begun_, ended_;
    bool has_begun_ = false;
    std::future<bool> waits_;
};

const clock::time_point start = clock::time_point{} + 1h;

}  // namespace

// Over a silent Cluster the next question began as soon as one had ended: callers waited for ten seconds.
TEST_CASE("a caller waits for the end of the question that is asked, and not of the next one") {
    SECTION("for the map of a Cluster") {
        refresh_schedule schedule;
        REQUIRE(schedule.begin(start));
        waiting_caller caller(schedule);
        caller.tell([&] {
            schedule.end(false, 0ms);
            REQUIRE(schedule.begin(start + 1h));
        });
        CHECK(caller.returns());
        caller.tell([&] { schedule.end(false, 0ms); });
        CHECK_FALSE(caller.is_to_ask());
    }
    SECTION("to Sentinels") {
        sentinel_schedule schedule;
        REQUIRE(schedule.begin(start, sentinel_schedule::caller::patient, false));
        waiting_caller caller(schedule);
        caller.tell([&] {
            schedule.end(sentinel_schedule::ending::in_vain, start, 0ms);
            REQUIRE(schedule.begin(start + 1h, sentinel_schedule::caller::patient, false));
        });
        CHECK(caller.returns());
        caller.tell([&] { schedule.end(sentinel_schedule::ending::in_vain, start + 1h, 0ms); });
        CHECK_FALSE(caller.is_to_ask());
    }
}

TEST_CASE("a caller asks where the one before it had no time for the answer") {
    refresh_schedule schedule;
    REQUIRE(schedule.begin(start));
    waiting_caller caller(schedule);
    caller.tell([&] { schedule.end_cut_short(0ms); });
    REQUIRE(caller.returns());
    CHECK(caller.is_to_ask());
}

// Threads with little time, one after the other, kept one that had it from its command.
TEST_CASE("a caller waits no longer than a question may take, whatever time it has") {
    refresh_schedule schedule;
    REQUIRE(schedule.begin(start));
    waiting_caller caller(schedule, 50ms);
    CHECK(caller.returns());
    caller.tell([&] { schedule.end(false, 0ms); });
    CHECK_FALSE(caller.is_to_ask());
}

}  // namespace turn_to_ask_tests
