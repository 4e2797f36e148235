// A call that is told to stop while the server stands still.
#pragma once

#include <chrono>
#include <stop_token>
#include <system_error>

#include <distlock/base/clock.hpp>
#include <distlock/base/error.hpp>
#include <distlock/testing/redis_server.hpp>

#include "support/catch.hpp"
#include "support/sleepers.hpp"
#include "support/timing_tolerance.hpp"

/// lock(stop) on a thread of its own.
class stoppable {
  public:
    template <class Mutex>
    explicit stoppable(Mutex& lock)
        : thread_([this, &lock] {
              got_ = lock.lock(source_.get_token(), ec_);
              ended_ = distlock::clock::now();
          }) {}

    ~stoppable() { source_.request_stop(); }  // a check may have thrown
    stoppable(const stoppable&) = delete;
    stoppable& operator=(const stoppable&) = delete;

    bool sleeps() const { return thread_.sleeps() && !thread_.done(); }
    /// Effects: requests the stop and checks that the call ends as it should.
    void stop() {
        const auto asked = distlock::clock::now();
        source_.request_stop();
        thread_.join();
        INFO("it took " << (ended_ - asked) / std::chrono::microseconds{1} << " us");
        CHECK(ended_ - asked < timing_tolerance);
        CHECK_FALSE(got_);
        CHECK(ec_ == distlock::errc::cancelled);
    }

  private:
    std::stop_source source_;
    std::error_code ec_;
    bool got_ = true;
    distlock::clock::time_point ended_;
    sleeper thread_;  // last: it uses the others
};

/// A server that goes on when this ends, so that nothing waits for it for ever.
struct standstill {
    explicit standstill(distlock::testing::redis_server& what) : server(what) { server.pause(); }
    standstill(const standstill&) = delete;
    standstill& operator=(const standstill&) = delete;
    ~standstill() { server.resume(); }
    distlock::testing::redis_server& server;
};
