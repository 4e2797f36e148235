// When the map of a Cluster is asked for again: by one caller at a time, and seldom, however
// many are redirected.
//
//   class refresh_schedule {
//     void invalidate() noexcept;                          // the map is wrong
//     bool begin(time_point now) noexcept;                 // whether the caller is to ask
//     void end(bool learned, duration jitter) noexcept;
//     void end_refused(duration jitter) noexcept;          // asking again will hardly help
//     void end_cut_short(duration jitter) noexcept;        // another caller is to ask
//     bool cut_short() const noexcept;                     // whether it ended so the last time
//     bool may_begin(time_point now) const noexcept;
//     bool running() const noexcept;
//     std::uint64_t questions_ended() const noexcept;      // so many
//     time_point next() const noexcept;                    // of begin(), at the earliest
//     static time_point some_of(now, until, longest);      // the time of a caller, but for a command
//     static duration some_jitter(now);
//   };
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

#include <distlock/base/clock.hpp>

namespace distlock::detail {

/// Not thread-safe. A map that was found wrong while it was asked for is asked for again: the
/// answer may be older.
class refresh_schedule {
  public:
    static constexpr std::chrono::milliseconds pause{100};
    static constexpr std::chrono::milliseconds longest_jitter{50};
    static constexpr std::chrono::seconds longest_pause{10};

    void invalidate() noexcept {
        if (phase_ == phase::current) phase_ = phase::due;
        if (phase_ == phase::running) phase_ = phase::running_and_due;
    }

    /// Returns: whether a refresh is due and may begin. The caller ends it.
    bool begin(clock::time_point now) noexcept {
        if (!may_begin(now)) return false;
        phase_ = phase::running;
        next_ = now + pause;
        return true;
    }

    /// Preconditions: begin() returned true, and 0 <= `jitter` <= longest_jitter.
    /// `learned`: whether there is a new map.
    void end(bool learned, clock::duration jitter) noexcept {
        phase_ = learned && phase_ == phase::running ? phase::current : phase::due;
        next_ += jitter;
        ++ended_;
        cut_short_ = false;
        if (learned) refused_pause_ = pause;
    }
    /// The same, where whoever was asked refuses to answer: the pause doubles, up to ten seconds,
    /// until there is a map.
    void end_refused(clock::duration jitter) noexcept {
        end(false, jitter);
        refused_pause_ = std::min<clock::duration>(2 * refused_pause_, longest_pause);
        next_ += refused_pause_ - pause;
    }
    /// The same, where the caller had no time for the answer, or no memory: that says
    /// nothing about the servers.
    void end_cut_short(clock::duration jitter) noexcept {
        end(false, jitter);
        cut_short_ = true;
    }
    bool cut_short() const noexcept { return cut_short_; }

    bool may_begin(clock::time_point now) const noexcept { return phase_ == phase::due && now >= next_; }
    bool running() const noexcept { return phase_ == phase::running || phase_ == phase::running_and_due; }

    std::uint64_t questions_ended() const noexcept { return ended_; }

    /// Returns: when a refresh may begin, at the earliest.
    clock::time_point next() const noexcept { return next_; }

    /// Returns: until when a caller who has time until then may do without the map, and still send a command
    /// that takes as long as `longest`, which is not negative; of little time, half is for the command.
    static clock::time_point some_of(clock::time_point now, clock::time_point until,
                                     clock::duration longest) noexcept {
        const auto left = std::max(until, now) - now;
        return now + std::max(left / 2, left - longest);
    }
    /// Processes that are redirected, or lose their master, together need not ask together.
    static clock::duration some_jitter(clock::time_point now) noexcept {
        return clock::duration(now.time_since_epoch().count() % clock::duration(longest_jitter).count());
    }

  private:
    enum class phase { current, due, running, running_and_due };

    phase phase_ = phase::due;
    clock::time_point next_ = clock::time_point::min();
    clock::duration refused_pause_ = pause;
    std::uint64_t ended_ = 0;
    bool cut_short_ = false;
};

}  // namespace distlock::detail
