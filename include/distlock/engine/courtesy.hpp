// When a lock that was given back may be asked for again, where others want it who cannot stand in line.
//
//   class courtesy {
//     courtesy(others);
//     void on_attempt(bool contended, time_point sent) noexcept;
//     bool due() const noexcept;
//     void on_release(time_point at) noexcept;
//     std::optional<time_point> until() const noexcept;
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

    /// Effects: an attempt to take the lock ended, whose last command was sent at `sent`; nothing is left alone any more.
    /// `contended`: somebody else was found to have it.
    void on_attempt(bool contended, time_point sent) noexcept {
        sent_ = sent;
        until_.reset();
        if (contended) {
            seen_ = sent;
            since_ = 0;
        } else {
            ++since_;
        }
    }

    /// Returns: whether the lock is to be left alone when the acquisition that the last attempt got is released.
    bool due() const noexcept {
        // Those who poll are seen only when they had it, and some pause for 250 ms.
        constexpr std::chrono::seconds remembered{10};
        constexpr unsigned at_least = 10;
        if (!seen_ || others_ == others::stand_in_line) return false;
        if (others_ == others::are_told) return since_ == 0;
        return since_ <= at_least || sent_ - *seen_ <= remembered;
    }

    /// Preconditions: due(). Effects: the lock was released.
    void on_release(time_point at) noexcept {
        // The server saw it held for as long as from the request to the release. With a tenth of that, who polls finds a lock
        // free once in eleven looks; more gave nobody more turns beside real clients of other languages.
        constexpr std::chrono::milliseconds longest{50};
        constexpr std::chrono::milliseconds their_way{2};
        until_ = at + (others_ == others::are_told ? their_way
                                                   : std::min<clock::duration>((at - sent_) / 10, longest));
    }

    /// Returns: when the lock may be asked for again, by one who waits for it; none: at once.
    std::optional<time_point> until() const noexcept { return until_; }

  private:
    others others_;
    time_point sent_{};               // the last attempt
    std::optional<time_point> seen_;  // the last attempt that was contended
    unsigned since_ = 0;              // attempts since then
    std::optional<time_point> until_;
};

}  // namespace distlock::engine
