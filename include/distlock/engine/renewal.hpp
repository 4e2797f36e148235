// How long an acquisition may be believed, when to renew it, and why it is lost: decided without a socket,
// a clock or a thread.
//
//   class renewal {
//     renewal(lease_terms, milliseconds ttl, time_point sent, time_point granted, std::uint64_t jitter_seed);
//     time_point until() const;                       // the end of validity
//     void pass(time_point now);                      // another hold begins
//     time_point due() const;                         // of the next sending; max(): none
//     bool ready(time_point now) const;
//     bool on_master_change(time_point at);
//     news on_outcome(renew_outcome, time_point sent, time_point now);
//     std::optional<loss_reason> lost(time_point now) const;
//   };
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>

#include <distlock/base/clock.hpp>
#include <distlock/base/lease.hpp>
#include <distlock/base/observer.hpp>
#include <distlock/detail/saturate.hpp>
#include <distlock/engine/jitter.hpp>
#include <distlock/wire/outcome.hpp>

namespace distlock::engine {

/// What was agreed for an acquisition.
struct lease_terms {
    std::chrono::milliseconds lease{};
    bool renew = true;
    std::chrono::milliseconds max_hold{};  ///< zero: no limit
};

/// The lease of one acquisition. Rules:
/// - validity counts from before the sending that was answered, less the drift margin, and never goes back;
/// - once passed it is never revived: a renewal that succeeds late is none;
/// - a renewal whose answer is missing changes nothing, and is tried again until validity ends;
/// - "not yours" ends validity at once;
/// - what one server granted or renewed another may not have: when it takes its place, a renewal is due at
///   once, and again until one that was sent since was answered;
/// - renewals are due a third of the TTL after the grant, or after the last one that succeeded, was sent, or
///   up to a tenth of that earlier, so that many processes do not come at once.
class renewal {
    using time_point = clock::time_point;
    using duration = clock::duration;

  public:
    enum class news {
        none,
        at_risk,  ///< the first failure since a success
        lost,     ///< not ours any more
        too_late  ///< renewed on the server although validity is over: to be released
    };

    /// `ttl`: that the lock was granted for, at most the lease; `sent`: from when it counts, before the first
    /// byte of the granting command; `granted`: when its answer had come.
    renewal(const lease_terms& terms, std::chrono::milliseconds ttl, time_point sent, time_point granted,
            std::uint64_t jitter_seed) noexcept
        : lease_(terms.lease),
          ttl_(ttl),
          max_hold_(terms.max_hold),
          end_(end_of_hold(granted)),
          sent_(sent),
          until_(std::min(validity_end(sent_, ttl_), end_)),
          latest_expiry_(distlock::detail::saturating_add(granted, duration(ttl_))),
          jitter_(jitter_seed),
          renew_(terms.renew) {
        plan();
    }

    /// Preconditions: not lost.
    /// Effects: another hold begins under the same lease: the longest hold counts anew.
    void pass(time_point now) noexcept {
        if (max_hold_.count() == 0) return;
        end_ = end_of_hold(now);
        until_ = std::min(lease_end(), end_);
        if (due_ == time_point::max()) plan();
    }

    /// Effects: the server that is asked from now on took the place of another, at `at`.
    /// Returns: whether that is news, and the other one granted or renewed the lock last.
    [[gnu::cold]] bool on_master_change(time_point at) noexcept {
        if (at <= master_since_) return false;
        master_since_ = at;
        if (sent_ >= at) return false;
        pause_ = first_pause;
        plan();
        return true;
    }

    /// Returns: the TTL of the lock since it was granted or renewed last.
    std::chrono::milliseconds ttl() const noexcept { return ttl_; }

    /// Returns: the end of validity without regard to the longest hold.
    time_point lease_end() const noexcept { return validity_end(sent_, ttl_); }

    /// Returns: the instant until which the lock may be believed held.
    time_point until() const noexcept { return until_; }

    /// Returns: when the next renewal is to be sent; time_point::max() when none is.
    time_point due() const noexcept { return due_; }

    /// Returns: whether a renewal may be sent now; a little before due(), too, so that
    /// several can go together.
    bool ready(time_point now) const noexcept {
        return due_ != time_point::max() && now < until_ && now >= due_ - duration(ttl_) / 48;
    }

    /// Returns: when the server's key is gone at the latest, as far as it executed what was sent within the
    /// time its answer was waited for.
    time_point latest_expiry() const noexcept { return latest_expiry_; }

    /// `sent`: before the first byte of the renewal; `now`: when its answer had come, or was not
    /// waited for any longer.
    [[gnu::cold]] news on_outcome(const renew_outcome& outcome, time_point sent, time_point now) noexcept {
        using kind = renew_outcome::kind;
        const bool late = now >= until_;
        switch (outcome.what) {
            case kind::kept:
                latest_expiry_ = distlock::detail::saturating_add(now, duration(lease_));
                if (late) return stop(news::too_late);
                sent_ = std::max(sent_, sent);
                ttl_ = lease_;
                until_ = std::max(until_, std::min(lease_end(), end_));
                failing_ = false;
                plan();
                return news::none;
            case kind::gone:
            case kind::taken:
                if (!late) {
                    until_ = now;
                    reason_ = outcome.what == kind::taken ? loss_reason::taken : loss_reason::expired;
                }
                return stop(news::lost);
            case kind::later:
                break;
        }
        latest_expiry_ = distlock::detail::saturating_add(now, duration(lease_));  // it may have been applied
        if (late) return stop(news::none);
        const bool first = !failing_;
        if (first) pause_ = first_pause;
        failing_ = true;
        const duration longest = std::max<duration>(lease_ / 24, std::chrono::milliseconds{1});
        pause_ = std::min(pause_, longest);
        due_ = now + pause_ / 2 + jitter_.up_to(pause_ / 2);
        pause_ *= 2;
        return first ? news::at_risk : news::none;
    }

    /// Returns: why the lock is lost; none while it may be believed held.
    std::optional<loss_reason> lost(time_point now) const noexcept {
        if (now < until_) return std::nullopt;
        if (reason_) return reason_;
        return until_ == end_ ? loss_reason::max_hold : loss_reason::expired;
    }

  private:
    static constexpr std::chrono::milliseconds first_pause{10};

    news stop(news what) noexcept {
        due_ = time_point::max();
        return what;
    }

    time_point end_of_hold(time_point begun) const noexcept {
        if (max_hold_.count() == 0) return time_point::max();
        return distlock::detail::saturating_add(
            begun, distlock::detail::saturating_cast<duration, distlock::detail::rounding::down>(max_hold_));
    }

    void plan() noexcept {
        if (renew_ && sent_ < master_since_) {
            due_ = master_since_;
            return;
        }
        // Where validity reaches the end of the hold, there is nothing to be won.
        if (!renew_ || until_ >= end_) {
            due_ = time_point::max();
            return;
        }
        const duration third = duration(ttl_) / 3;
        due_ = distlock::detail::saturating_add(sent_, third - jitter_.up_to(third / 10));
    }

    std::chrono::milliseconds lease_;
    std::chrono::milliseconds ttl_;
    std::chrono::milliseconds max_hold_;
    time_point end_;    // of the longest hold
    time_point sent_;   // before the command that began the lease
    time_point until_;  // of validity
    time_point due_ = time_point::max();
    time_point master_since_ = time_point::min();  // the server that is asked now
    time_point latest_expiry_;                     // the end of the longest TTL that the server may have set
    jitter jitter_;
    duration pause_{};  // before the next try
    std::optional<loss_reason> reason_;
    bool renew_;
    bool failing_ = false;
};

}  // namespace distlock::engine
