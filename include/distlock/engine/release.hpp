// How a lock is released, decided without a socket, a clock or a thread: what to send next, given
// what the server said.
//
//   class release {
//     release(certainty, clock::time_point latest_expiry);
//     form next() const;                                        // what to send now
//     clock::time_point on_verdict(const release_verdict&, clock::time_point now);
//         // when to send again; max(): it is over
//     bool answered() const;  // the whole one, the last time, by the server's word
//     bool confirmed() const;
//     release_outcome outcome(bool in_time) const;
//   };
#pragma once

#include <algorithm>
#include <chrono>
#include <utility>

#include <distlock/base/clock.hpp>
#include <distlock/wire/outcome.hpp>

namespace distlock::engine {

/// How sure it is that the server has a key under a token that nobody uses any more.
enum class certainty {
    granted,   ///< it has, unless that was released: its word that the key is not ours settles it
    in_doubt,  ///< a request for the lock may still arrive, whatever the server says now
};

/// One release by one token. Rules:
/// - it is repeated, in pauses of 50 ms at first and then of 100 ms, until the server confirms it or the
///   key has expired;
/// - the server's word that the key is not ours confirms it, too; of a token in doubt
///   only the expiry ends it, and where the server has answered the pauses double on;
/// - a server that lacks what the whole release needs is asked alternately for the minimal one, which frees
///   the lock by its key alone. Any other refusal is that of a busy server: there the whole release is
///   repeated, or a waiter would be overtaken; once also where a slot is on its way to another node, which
///   seldom takes longer;
/// - the minimal release leaves a ticket where it is, so only the whole one can say that
///   nothing of ours is left.
class release {
  public:
    enum class form { whole, minimal };

    release() = default;
    /// `latest_expiry`: when the key is gone in any case.
    release(certainty sure, clock::time_point latest_expiry) noexcept
        : latest_expiry_(latest_expiry), sure_(sure) {}

    form next() const noexcept { return next_; }
    clock::time_point latest_expiry() const noexcept { return latest_expiry_; }
    bool confirmed() const noexcept { return confirmed_; }
    bool in_doubt() const noexcept { return sure_ == certainty::in_doubt; }
    bool answered() const noexcept { return answered_; }

    /// Returns: when to send next(); time_point::max() when nothing is left to be done.
    clock::time_point on_verdict(const release_verdict& verdict, clock::time_point now) noexcept {
        last_ = verdict.what;
        answered_ = next_ == form::whole && verdict.executed();
        unanswered_ = unanswered_ || verdict.in_doubt;
        switch (verdict.what) {
            case release_outcome::refused:
                if (verdict.transient && !std::exchange(waited_, true)) return later(now, longest_pause);
                next_ = verdict.minimal && next_ == form::whole ? form::minimal : form::whole;
                return next_ == form::minimal && now < latest_expiry_ ? now : later(now, longest_pause);
            case release_outcome::unreachable:
                return later(now, longest_pause);
            case release_outcome::expired:
            case release_outcome::taken:
                if (next_ == form::minimal) {
                    next_ = form::whole;
                    return later(now, longest_pause);
                }
                [[fallthrough]];
            case release_outcome::released:
                // A late request is found when about as much time again has passed.
                if (sure_ == certainty::in_doubt) return later(now, latest_expiry_ - now);
                [[fallthrough]];
            default:
                confirmed_ = true;
                return clock::time_point::max();
        }
    }

    /// Returns: what to tell the caller of unlock(). `in_time`: validity had not ended when the
    /// release was sent first.
    release_outcome outcome(bool in_time) const noexcept {
        switch (last_) {
            case release_outcome::released:
                return in_time ? release_outcome::released : release_outcome::expired;
            case release_outcome::expired:
            case release_outcome::taken:
                // The answer that was lost may have been "released", and the next owner may be in already.
                return unanswered_ && in_time ? release_outcome::released : last_;
            default:
                return last_;
        }
    }

  private:
    clock::time_point later(clock::time_point now, clock::duration longest) noexcept {
        if (now >= latest_expiry_) return clock::time_point::max();
        const auto pause = std::min(pause_, longest);
        pause_ = 2 * pause;
        return std::min(now + pause, latest_expiry_);
    }

    // A waiter waits for this, too, once the server is itself again.
    static constexpr std::chrono::milliseconds longest_pause{100};

    clock::time_point latest_expiry_{};
    clock::duration pause_ = std::chrono::milliseconds{50};
    certainty sure_ = certainty::granted;
    form next_ = form::whole;
    release_outcome last_ = release_outcome::unreachable;
    bool unanswered_ = false;  // a sending may have been applied without our knowing
    bool answered_ = false;
    bool confirmed_ = false;
    bool waited_ = false;  // for a refusal to pass
};

}  // namespace distlock::engine
