// When the map of a Cluster is asked for again: by one caller at a time, and seldom, however many are redirected.
//
//   class refresh_schedule {
//     void invalidate() noexcept;                          // the map is wrong
//     bool begin(time_point now) noexcept;                 // whether the caller is to ask
//     bool waits(time_point now) const noexcept;           // whether somebody is to ask soon
//     void end(bool learned, duration jitter) noexcept;
//     bool running() const noexcept;
//     time_point next() const noexcept;                    // of begin(), at the earliest
//   };
#pragma once

#include <chrono>

#include <distlock/base/clock.hpp>

namespace distlock::detail {

/// Not thread-safe. A map that was found wrong while it was asked for is asked for again: the answer may be older.
class refresh_schedule {
  public:
    static constexpr std::chrono::milliseconds pause{100};
    static constexpr std::chrono::milliseconds longest_jitter{50};

    void invalidate() noexcept {
        if (phase_ == phase::current) phase_ = phase::due;
        if (phase_ == phase::running) phase_ = phase::running_and_due;
    }

    /// Returns: whether a refresh is due and may begin. The caller ends it.
    bool begin(clock::time_point now) noexcept {
        if (phase_ != phase::due || now < next_) return false;
        phase_ = phase::running;
        next_ = now + pause;
        return true;
    }

    /// Returns: whether a refresh is due, and is to wait for its time.
    bool waits(clock::time_point now) const noexcept { return phase_ == phase::due && now < next_; }

    /// Preconditions: begin() returned true, and 0 <= `jitter` <= longest_jitter.
    /// `learned`: whether there is a new map.
    void end(bool learned, clock::duration jitter) noexcept {
        phase_ = learned && phase_ == phase::running ? phase::current : phase::due;
        next_ += jitter;
    }

    bool running() const noexcept { return phase_ == phase::running || phase_ == phase::running_and_due; }

    /// Returns: when a refresh may begin, at the earliest.
    clock::time_point next() const noexcept { return next_; }

  private:
    enum class phase { current, due, running, running_and_due };

    phase phase_ = phase::due;
    clock::time_point next_ = clock::time_point::min();
};

}  // namespace distlock::detail
