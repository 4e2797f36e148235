// The pause that a previous owner makes before it takes a lock again that others poll for.
//
//   class reacquire_backoff {
//     explicit reacquire_backoff(contenders, bool guesses = true);
//     void on_attempt(bool contended, time_point sent) noexcept;
//     void on_release(time_point at) noexcept;
//     std::optional<time_point> until() const noexcept;
//     bool contended() const noexcept;
//   };
#pragma once

#include <algorithm>
#include <chrono>
#include <optional>

#include <distlock/base/clock.hpp>

namespace distlock::engine {

/// The previous owner can always re-acquire before a poller notices the release, so it backs off briefly if
/// it saw contention; now and then if it did not, since a poller that never finds the lock free is never
/// seen. Not thread-safe.
class reacquire_backoff {
    using time_point = clock::time_point;

  public:
    /// How others learn that the lock is free.
    enum class contenders {
        queue,     ///< it is handed to them: no pause is needed
        are_told,  ///< by a message, all at once
        poll,      ///< by looking now and then
    };

    /// `guesses`: that somebody polls who was not seen: not where a test moves the clock, and waits for
    /// nobody.
    explicit reacquire_backoff(contenders how, bool guesses = true) noexcept
        : contenders_(how), guesses_(guesses) {}

    /// Effects: an attempt to take the lock ended, whose last command was sent at `sent`, or answered then if
    /// it was not granted; the pause is over.
    /// `contended`: somebody else was found to have it.
    void on_attempt(bool contended, time_point sent) noexcept {
        sent_ = sent;
        until_.reset();
        if (contended) {
            contended_at_ = sent;
            attempts_since_ = 0;
        } else {
            ++attempts_since_;
        }
    }

    /// Effects: the acquisition that the last attempt got was released.
    void on_release(time_point at) noexcept {
        if (contenders_ == contenders::queue) return;
        // The server saw the lock held for as long as from the request to the release. With a tenth of
        // that, a poller finds a lock free once in eleven looks; more gave nobody more turns beside real
        // clients of other languages.
        constexpr std::chrono::milliseconds longest{50};
        constexpr std::chrono::milliseconds way_of_a_message{2};
        const auto pause = contenders_ == contenders::are_told
                               ? way_of_a_message
                               : std::min<clock::duration>((at - sent_) / 10, longest);
        if (needed(pause)) until_ = at + pause;
    }

    /// Returns: when a caller that may wait is to ask for the lock again; none: at once.
    std::optional<time_point> until() const noexcept { return until_; }

    /// Returns: whether somebody else had the lock when it was last asked for.
    bool contended() const noexcept { return contended_at_ && attempts_since_ == 0; }

  private:
    // Pollers are seen only when they had the lock, and some pause for 250 ms.
    bool needed(clock::duration pause) noexcept {
        constexpr std::chrono::seconds remembered{10};
        constexpr unsigned at_least = 10;
        constexpr unsigned one_of = 4;
        if (contenders_ == contenders::are_told) return contended();
        if (contended_at_ && (attempts_since_ <= at_least || sent_ - *contended_at_ <= remembered))
            return true;
        // Into so short a one no look falls, and to sleep takes longer.
        constexpr std::chrono::microseconds shortest_guess{100};
        return guesses_ && pause >= shortest_guess && ++unseen_ % one_of == 0;
    }

    contenders contenders_;
    bool guesses_;
    time_point sent_{};                       // of the last attempt
    std::optional<time_point> contended_at_;  // when the last attempt was sent that was contended
    unsigned attempts_since_ = 0;
    unsigned unseen_ = 0;  // releases that nobody was seen to wait for
    std::optional<time_point> until_;
};

}  // namespace distlock::engine
