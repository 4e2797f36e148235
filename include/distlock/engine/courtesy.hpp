// When a lock that was given back may be asked for again, where others want it who cannot stand in line.
//
//   class courtesy {
//     courtesy(others);
//     void on_attempt(bool contended, time_point at) noexcept;
//     bool due() const noexcept;
//     void on_release(time_point at) noexcept;
//     time_point until() const noexcept;
//   };
#pragma once

#include <algorithm>
#include <chrono>
#include <optional>

#include <distlock/base/clock.hpp>

namespace distlock::engine {

/// Who had a lock is nearest to it: asking again at once, it would have it every time, and those who poll or are on their way would
/// not. So it leaves the lock alone for a moment, if it saw that somebody else wants it. Not thread-safe.
class courtesy {
    using time_point = clock::time_point;

  public:
    /// What others do who want the lock.
    enum class others {
        stand_in_line,  ///< they are served by hand-over: no courtesy is due
        are_told,       ///< of the release, all at once
        poll,           ///< now and then
    };

    explicit courtesy(others what) noexcept : others_(what) {}

    /// Effects: an attempt to take the lock ended. `contended`: somebody else was found to have it.
    void on_attempt(bool contended, time_point at) noexcept {
        attempt_ = at;
        if (contended) seen_ = at;
    }

    /// Returns: whether the lock is to be left alone when the present acquisition, which is the last attempt, is released.
    bool due() const noexcept {
        // Those who poll are seen only when they had it: ten seconds are forty looks even of clients that pause for 250 ms.
        constexpr std::chrono::seconds remembered{10};
        if (!seen_ || others_ == others::stand_in_line) return false;
        return others_ == others::are_told ? *seen_ == attempt_ : attempt_ - *seen_ <= remembered;
    }

    /// Preconditions: due(). Effects: the lock was released.
    void on_release(time_point at) noexcept {
        // Who polls finds it free once in eleven looks, and next to nothing of its time is lost: beside real clients of other
        // languages a tenth gave everybody more turns than a quarter or all of it.
        constexpr std::chrono::milliseconds longest{50};
        constexpr std::chrono::milliseconds their_way{2};
        until_ =
            at + (others_ == others::are_told ? their_way
                                              : std::min<clock::duration>((at - attempt_) / 10, longest));
    }

    /// Returns: when the lock may be asked for again, by one who waits for it.
    time_point until() const noexcept { return until_; }

  private:
    others others_;
    time_point attempt_{};
    std::optional<time_point> seen_;
    time_point until_{};
};

}  // namespace distlock::engine
