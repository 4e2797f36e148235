// How a lock is taken, decided without a socket, a clock or a thread: what to do next, given what became of
// the last step.
//
//   class acquire {
//     acquire(acquire_limits, clock::time_point now, std::uint64_t jitter_seed);
//     acquire_step begin(bool contended);
//     acquire_step on_outcome(const acquire_outcome&, clock::time_point sent, clock::time_point now);
//     acquire_step on_wake(clock::time_point now);      // the pause is over
//     acquire_step on_stop();                           // the caller's stop_token fired
//   };
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>

#include <distlock/base/clock.hpp>
#include <distlock/base/error.hpp>
#include <distlock/base/lease.hpp>
#include <distlock/wire/outcome.hpp>

namespace distlock::engine {

/// What bounds an attempt to take a lock.
struct acquire_limits {
    std::chrono::milliseconds lease{};
    std::chrono::milliseconds recheck{};   ///< longest pause between two looks
    std::chrono::milliseconds patience{};  ///< longest trouble that is ridden out
    clock::time_point deadline =
        clock::time_point::max();  ///< of the whole attempt, every round trip included
    bool once = false;             ///< do not wait for another owner
};

struct acquire_step {
    enum class kind {
        send_acquire,  ///< the plain command
        send_look,     ///< the script that also finds an earlier success of ours
        pause,         ///< until `at`, or a stop request
        granted,       ///< the lock is ours until `at`
        gave_up,       ///< somebody else has it, and the time is up
        failed,        ///< with `cause`
    };

    kind what = kind::failed;
    clock::time_point at{};       ///< of pause and granted; of a sending, the deadline of its answer
    errc cause = errc::no_reply;  ///< of failed
    bool release_first = false;   ///< the token used so far may own the key: release by it, wait for nothing
    bool fresh_token = false;     ///< of a pause: the token used so far is dead, take another one
    bool without_ttl = false;     ///< of gave_up: the holder's key never expires
};

/// One attempt to take a lock. Rules:
/// - it tries first, then waits in jittered pauses that double from 1 ms up to `recheck`, none past the
///   holder's TTL;
/// - an answer that is missing leaves the outcome open: it asks again with the SAME token, through the script
///   that finds an
///   earlier success; when it has to give up instead, it releases by that token;
/// - a token by which a release was sent is dead: the next sending takes a new one, else the late release
///   would free it;
/// - validity counts from before the sending that was answered, and a grant that arrives after its validity
///   is given back;
/// - contention is never reported while the last thing known is trouble.
class acquire {
    using kind = acquire_step::kind;

  public:
    acquire(const acquire_limits& limits, clock::time_point now, std::uint64_t jitter_seed) noexcept
        : limits_(limits),
          patience_(distlock::detail::saturating_cast<clock::duration, distlock::detail::rounding::up>(
              limits.patience)),
          now_(now),
          random_(jitter_seed | 1U) {}

    /// `contended`: the lock was taken the last time. The script then saves a round trip; else the plain
    /// command is cheaper.
    acquire_step begin(bool contended) noexcept {
        return send(contended ? kind::send_look : kind::send_acquire);
    }

    acquire_step on_outcome(const acquire_outcome& outcome, clock::time_point sent,
                            clock::time_point now) noexcept {
        now_ = now;
        switch (outcome.what) {
            case acquire_outcome::kind::granted:
                return on_granted(sent);
            case acquire_outcome::kind::busy:
                return on_busy(outcome);
            case acquire_outcome::kind::later:
                return on_trouble(outcome.cause);
            case acquire_outcome::kind::refused:
                // An error nobody knows may come from something between us and the server, which did apply it.
                open_ = open_ || outcome.cause == errc::server_error;
                return fail(outcome.cause);
            case acquire_outcome::kind::unknown:
                break;
        }
        const bool first_time = !open_;
        open_ = true;
        if (first_time && limits_.deadline > now_) {
            note_trouble(outcome.cause);
            return send(kind::send_look);
        }
        return on_trouble(outcome.cause);
    }

    acquire_step on_wake(clock::time_point now) noexcept {
        now_ = now;
        // At the deadline comes one last look: "taken" must not be said of a lock that became free meanwhile.
        if (now_ >= limits_.deadline && in_trouble_) return fail(cause_);
        return send(kind::send_look);
    }

    acquire_step on_stop() noexcept { return fail(errc::cancelled); }

    /// Returns: whether a sending with the present token was not answered: it may still be on its way.
    bool open() const noexcept { return open_; }

  private:
    acquire_step on_granted(clock::time_point sent) noexcept {
        const auto until = validity_end(sent, limits_.lease);
        if (now_ < until) return {.what = kind::granted, .at = until};
        open_ = true;
        acquire_step next = on_trouble(errc::lease_expired);
        if (next.what == kind::pause) next.fresh_token = next.release_first = true;
        open_ = false;
        return next;
    }

    acquire_step on_busy(const acquire_outcome& outcome) noexcept {
        in_trouble_ = false;
        without_ttl_ = outcome.ttl && outcome.ttl->count() == -1;
        // SET NX says "taken" of any key. One look tells a lock from a key of another type, which is nobody's
        // lock.
        if (!looked_) return send(kind::send_look);
        if (limits_.once || now_ >= limits_.deadline) return give_up();
        return pause(outcome.ttl);
    }

    acquire_step on_trouble(errc cause) noexcept {
        note_trouble(cause);
        const bool worn_out = now_ - trouble_since_ >= patience_;
        if (limits_.once || worn_out || now_ >= limits_.deadline) return fail(cause);
        return pause({});
    }

    void note_trouble(errc cause) noexcept {
        if (!in_trouble_) trouble_since_ = now_;
        in_trouble_ = true;
        cause_ = cause;
    }

    acquire_step send(kind how) noexcept {
        looked_ = looked_ || how == kind::send_look;
        // Even a caller without time gets one honest answer: less than a round trip would make every try
        // fail.
        constexpr std::chrono::milliseconds shortest{50};
        const auto answer_by =
            std::max(limits_.deadline, detail::saturating_add(now_, clock::duration(shortest)));
        return {.what = how, .at = answer_by};
    }

    acquire_step pause(std::optional<std::chrono::milliseconds> ttl) noexcept {
        using namespace std::chrono_literals;
        clock::duration span = std::min<clock::duration>(backoff_, limits_.recheck);
        backoff_ = std::min<clock::duration>(backoff_ * 2, limits_.recheck);
        span = span / 2 + clock::duration(static_cast<clock::rep>(
                              next_random() % static_cast<std::uint64_t>(span.count() / 2 + 1)));
        // Compared in whole milliseconds: a server may claim any TTL, and nanoseconds cannot hold them all.
        if (ttl && ttl->count() >= 0 && *ttl < limits_.recheck)
            span = std::min<clock::duration>(span, *ttl + 1ms);
        return {.what = kind::pause, .at = std::min(limits_.deadline, now_ + span)};
    }

    acquire_step give_up() const noexcept {
        return {.what = kind::gave_up, .release_first = open_, .without_ttl = without_ttl_};
    }
    acquire_step fail(errc cause) const noexcept {
        return {.what = kind::failed, .cause = cause, .release_first = open_};
    }

    // xorshift64 (Marsaglia, "Xorshift RNGs", 2003): pauses need spreading, not secrecy.
    std::uint64_t next_random() noexcept {
        random_ ^= random_ << 13U;
        random_ ^= random_ >> 7U;
        random_ ^= random_ << 17U;
        return random_;
    }

    acquire_limits limits_;
    clock::duration patience_;
    clock::time_point now_;
    std::uint64_t random_;
    clock::duration backoff_ = std::chrono::milliseconds{1};
    clock::time_point trouble_since_{};
    errc cause_ = errc::no_reply;
    bool in_trouble_ = false;
    bool open_ = false;  // a sending with the present token was not answered
    bool looked_ = false;
    bool without_ttl_ = false;
};

}  // namespace distlock::engine
