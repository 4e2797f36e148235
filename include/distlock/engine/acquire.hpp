// How a lock is taken, decided without a socket, a clock or a thread: what to do next, given what became of
// the last step.
//
//   class acquire {
//     acquire(acquire_limits, clock::time_point now, std::uint64_t jitter_seed);
//     acquire_step begin(bool contended);
//     acquire_step on_outcome(const acquire_outcome&, clock::time_point sent, clock::time_point now);
//     acquire_step on_wake(clock::time_point now);      // the pause is over
//     acquire_step on_waited(const acquire_outcome&, bool complete, clock::time_point now);   // the wait in line is over
//     void on_left();                                   // before that: somebody else leaves the line in our place
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
#include <distlock/base/token.hpp>
#include <distlock/wire/outcome.hpp>
#include <distlock/wire/place.hpp>

namespace distlock::engine {

/// What bounds an attempt to take a lock.
struct acquire_limits {
    std::chrono::milliseconds lease{};
    std::chrono::milliseconds recheck{};   ///< longest pause between two looks
    std::chrono::milliseconds patience{};  ///< longest trouble that is ridden out
    clock::time_point deadline =
        clock::time_point::max();  ///< of the whole attempt, every round trip included
    bool once = false;             ///< do not wait for another owner
    bool in_line = false;          ///< waits in line, to be served; else by asking again and again
    bool woken = false;            ///< pauses end when there is something to see: they need not be short
};

struct acquire_step {
    enum class kind {
        send_acquire,  ///< the plain command
        send_look,     ///< the script that also finds an earlier success of ours
        send_enter,    ///< the script that knows about places in line, with `where`
        wait,          ///< in line, until `at` or a stop request
        pause,         ///< until `at`, or a stop request
        granted,       ///< the lock is ours until `at`
        gave_up,       ///< somebody else has it, and the time is up
        failed,        ///< with `cause`
    };

    kind what = kind::failed;
    clock::time_point at{};       ///< of wait, pause and granted; of a sending, the deadline of its answer
    errc cause = errc::no_reply;  ///< of failed
    place where = place::none;    ///< of send_enter; adopt: by the token that was offered
    bool release_first = false;   ///< the token used so far may own the key: release by it, wait for nothing
    bool leave_first = false;     ///< get out of line
    bool fresh_token = false;     ///< the token used so far is dead, take another one
    bool without_ttl = false;     ///< of gave_up: the holder's key never expires
};

/// One attempt to take a lock. Rules:
/// - it tries first; then it waits in line where it can, and else in jittered pauses that double from 1 ms up to
///   `recheck`, none past the holder's TTL;
/// - an answer that is missing leaves the outcome open: it asks again with the SAME token, through the script
///   that finds an
///   earlier success; when it has to give up instead, it releases by that token;
/// - a token by which a release was sent is dead: the next sending takes a new one, else the late release
///   would free it;
/// - validity counts from before the sending that was answered, or for an offer, which cannot be older, from before
///   the sending that got us in line; an offer of which less than half is left is confirmed first. A grant that arrives
///   after its validity is given back;
/// - who gives up gets out of line;
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
        if (!contended) return send(kind::send_acquire);
        return again();
    }

    acquire_step on_outcome(const acquire_outcome& outcome, clock::time_point sent,
                            clock::time_point now) noexcept {
        now_ = now;
        switch (outcome.what) {
            case acquire_outcome::kind::granted:
                line_ = place::none;
                return on_granted(sent, limits_.lease);
            case acquire_outcome::kind::busy:
                slowest_ = std::max(slowest_, now - sent);
                return on_busy(outcome, sent);
            case acquire_outcome::kind::later:
                return on_trouble(outcome.cause);
            case acquire_outcome::kind::refused:
                // An error nobody knows may come from something between us and the server, which did apply it.
                open_ = open_ || outcome.cause == errc::server_error;
                if (line_ == place::join && outcome.cause == errc::server_error) line_ = place::stay;
                return fail(outcome.cause);
            case acquire_outcome::kind::unknown:
                break;
        }
        const bool first_time = !open_;
        open_ = true;
        // We may be in line now. To be counted twice would hand the lock to nobody; to be counted once too little costs us
        // one `recheck`.
        if (line_ == place::join) line_ = place::stay;
        if (first_time && limits_.deadline > now_) {
            note_trouble(outcome.cause);
            return again();
        }
        return on_trouble(outcome.cause);
    }

    acquire_step on_wake(clock::time_point now) noexcept {
        now_ = now;
        // At the deadline comes one last look: "taken" must not be said of a lock that became free meanwhile.
        if (now_ >= limits_.deadline && in_trouble_) return fail(cause_);
        // What needs one key may be granted where the server refuses what needs several.
        if (in_trouble_ && limits_.in_line && !open_ && line_ == place::none) return send(kind::send_acquire);
        return again();
    }

    /// `complete`: the offer, if there is one, gives all that is needed. After an offer the token used so far is not the
    /// owner's any more; if it was open, it is to be released.
    acquire_step on_waited(const acquire_outcome& outcome, bool complete, clock::time_point now) noexcept {
        now_ = now;
        const bool over = now_ >= limits_.deadline;
        switch (outcome.what) {
            case acquire_outcome::kind::granted: {
                open_ = false;
                const auto age = now_ - entered_;
                if (complete && age < clock::duration(limits_.lease) / 2) {
                    line_ = place::none;
                    return on_granted(entered_, outcome.offered->lease);
                }
                return enter(place::adopt);
            }
            case acquire_outcome::kind::busy:
                // A wait that ends before its time must not become a busy loop.
                return over ? quit() : pause({});
            case acquire_outcome::kind::refused: {
                // Who may not wait in line asks again and again.
                limits_.in_line = false;
                line_ = place::none;
                acquire_step next = pause({});
                next.leave_first = true;
                return next;
            }
            default:
                return over && outcome.cause == errc::no_reply ? quit() : on_trouble(outcome.cause);
        }
    }

    /// Effects: before on_waited(): somebody else leaves the line in our place.
    void on_left() noexcept { line_ = place::none; }

    acquire_step on_stop() noexcept { return fail(errc::cancelled); }

    /// Returns: whether a sending with the present token was not answered: it may still be on its way.
    bool open() const noexcept { return open_; }

  private:
    acquire_step on_granted(clock::time_point sent, std::chrono::milliseconds lease) noexcept {
        const auto until = validity_end(sent, lease);
        if (now_ < until) return {.what = kind::granted, .at = until};
        open_ = true;
        acquire_step next = on_trouble(errc::lease_expired);
        if (next.what == kind::pause) next.fresh_token = next.release_first = true;
        open_ = false;
        return next;
    }

    acquire_step on_busy(const acquire_outcome& outcome, clock::time_point sent) noexcept {
        in_trouble_ = false;
        without_ttl_ = outcome.ttl && outcome.ttl->count() == -1;
        const bool over = now_ >= limits_.deadline;
        if (line_ == place::join || line_ == place::stay) {
            line_ = place::stay;
            entered_ = sent;
            return over ? enter(place::quit) : acquire_step{.what = kind::wait, .at = limits_.deadline};
        }
        if (line_ == place::quit) {
            line_ = place::none;
            return give_up();
        }
        const bool was_offered = line_ == place::adopt;
        // A confirmation that was not answered may still take the lock for the token that was offered.
        const bool offer_open = was_offered && open_;
        line_ = place::none;
        if (offer_open) open_ = false;
        acquire_step next = on_taken(over, outcome.ttl);
        next.release_first = next.release_first || offer_open;
        // The token before the offer may be owed: to be held by it again would be to be released by it.
        next.fresh_token = was_offered && next.what == kind::send_enter;
        return next;
    }

    acquire_step on_taken(bool over, std::optional<std::chrono::milliseconds> ttl) noexcept {
        // SET NX says "taken" of any key. One look tells a lock from a key of another type, which is nobody's
        // lock.
        if (limits_.in_line && !over) return enter(place::join);
        if (!looked_) return send(kind::send_look);
        if (limits_.once || over) return give_up();
        return pause(ttl);
    }

    acquire_step on_trouble(errc cause) noexcept {
        note_trouble(cause);
        const bool worn_out = now_ - trouble_since_ >= patience_;
        if (line_ == place::join) line_ = place::none;
        if (limits_.once || worn_out || now_ >= limits_.deadline) return fail(cause);
        return pause({});
    }

    void note_trouble(errc cause) noexcept {
        if (!in_trouble_) trouble_since_ = now_;
        in_trouble_ = true;
        cause_ = cause;
    }

    acquire_step again() noexcept {
        switch (line_) {
            case place::stay:
            case place::quit:
                return enter(now_ >= limits_.deadline ? place::quit : place::stay);
            case place::adopt:
                return enter(place::adopt);
            default:
                return limits_.in_line && now_ < limits_.deadline ? enter(place::join)
                                                                  : send(kind::send_look);
        }
    }

    acquire_step quit() noexcept { return enter(line_ == place::none ? place::none : place::quit); }

    acquire_step enter(place where) noexcept {
        line_ = where;
        acquire_step next = send(kind::send_enter);
        next.where = where;
        return next;
    }

    acquire_step send(kind how) noexcept {
        looked_ = looked_ || how != kind::send_acquire;
        // Even a caller without time gets one honest answer: less than a round trip would make every try
        // fail.
        constexpr clock::duration shortest = std::chrono::milliseconds{50};
        constexpr clock::duration longest = std::chrono::milliseconds{200};
        const auto answer_time = std::clamp(2 * std::min(slowest_, longest), shortest, longest);
        const auto answer_by = std::max(limits_.deadline, detail::saturating_add(now_, answer_time));
        return {.what = how, .at = answer_by};
    }

    acquire_step pause(std::optional<std::chrono::milliseconds> ttl) noexcept {
        using namespace std::chrono_literals;
        const bool sleeps_well = limits_.woken && !in_trouble_;
        clock::duration span =
            sleeps_well ? limits_.recheck : std::min<clock::duration>(backoff_, limits_.recheck);
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
        const bool offered = line_ == place::adopt;
        return {.what = kind::failed,
                .cause = cause,
                .release_first = open_ || offered,
                .leave_first = line_ == place::stay || line_ == place::quit};
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
    clock::duration slowest_{};  // of the answers that somebody else has it
    clock::time_point trouble_since_{};
    clock::time_point entered_{};  // before the sending that got us in line
    place line_ = place::none;     // what the last sending about the line was; stay: we are in it
    errc cause_ = errc::no_reply;
    bool in_trouble_ = false;
    bool open_ = false;  // a sending with the present token was not answered
    bool looked_ = false;
    bool without_ttl_ = false;
};

}  // namespace distlock::engine
