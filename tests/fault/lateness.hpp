// How late the machine itself wakes a thread that only waits: what no program can be blamed for.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <poll.h>
#include <stop_token>
#include <thread>

#include <distlock/base/clock.hpp>

/// Of a hand-over, who looks, the server and who is served may each be late.
inline constexpr int chain = 3;

class lateness_probe {
    using clk = distlock::clock;

  public:
    /// Effects: begins anew.
    void reset() { worst_ = clk::duration::zero(); }
    /// Returns: the most since then, a wait that is not over included.
    clk::duration worst() const { return std::max(worst_.load(), late(clk::now())); }

  private:
    clk::duration late(clk::time_point now) const {
        return now - begun_.load() - std::chrono::milliseconds{1};
    }

    std::atomic<clk::duration> worst_{clk::duration::zero()};
    std::atomic<clk::time_point> begun_{clk::now()};
    std::jthread waiter_{[this](std::stop_token stop) {
        while (!stop.stop_requested()) {
            ::poll(nullptr, 0, 1);
            const auto now = clk::now();
            worst_ = std::max(worst_.load(), late(now));
            begun_ = now;
        }
    }};
};
