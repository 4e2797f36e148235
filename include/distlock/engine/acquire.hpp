// How a lock is taken, decided without a socket, a clock or a thread: what comes after the last step.
//
//   class acquire {
//     acquire(acquire_limits, std::uint64_t jitter_seed);
//     acquire_step begin(clock::time_point now, bool contended, bool acquire_is_script);
//     acquire_step on_outcome(const acquire_outcome&, time_point sent, time_point now, replicated);
//     acquire_step on_claim(const renew_outcome&, time_point sent, time_point now, replicated);
//     acquire_step on_wake(clock::time_point now);                       // the pause is over
//     acquire_step on_message(const handover&, clock::time_point now);   // ours, or a question
//     acquire_step on_subscribed(clock::time_point now);  // messages arrive, some may have been lost
//     acquire_step on_stop();                                            // the caller's stop_token fired
//     void subscribed(); void unheard(); void expect_no_messages();  // messages arrive; do not; never will
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
#include <distlock/detail/saturate.hpp>
#include <distlock/engine/acquire_step.hpp>
#include <distlock/engine/jitter.hpp>
#include <distlock/engine/place_in_queue.hpp>
#include <distlock/engine/poll_interval.hpp>
#include <distlock/wire/acknowledgement.hpp>
#include <distlock/wire/enter_mode.hpp>
#include <distlock/wire/outcome.hpp>

namespace distlock::engine {

/// One attempt to take a lock. Rules:
/// - it tries first, or joins the queue at once where the lock was taken the last time. A waiter in the queue
///   looks when the lock's TTL ends and every `recheck`, the farther back the less often; every 50 ms,
///   farther back later, while messages do not arrive. Without a queue it asks in jittered pauses that double
///   from 1 ms up to `recheck`, none past the holder's TTL;
/// - an answer that is missing leaves the outcome open: it asks again with the SAME token, through the script
///   that finds an earlier success; when it has to give up instead, it leaves by that token;
/// - a token by which a release was sent is dead, or that release would free what the next sending takes;
/// - validity counts from before the sending that was answered, by our clock; after a hand-over by message,
///   from the last sending whose answer spoke of the ticket, else from the first with this token; when less
///   than half is left by that count, the waiter asks first. A grant past its validity is given back;
/// - where replicas are to have the lock, a grant counts that is a write of ours with their acknowledgement;
///   an earlier success that is found, and what others hand over, are claimed first;
/// - contention is never reported while the last thing known is trouble.
class acquire {
    using kind = acquire_step::kind;

  public:
    acquire(const acquire_limits& limits, std::uint64_t jitter_seed) noexcept
        : limits_(limits), jitter_(jitter_seed), failure_{limits.failing_since} {}

    /// `contended`: the lock was taken the last time. The script then saves a round trip; else the
    /// plain command is cheaper.
    /// `acquire_is_script`: it is a look itself.
    acquire_step begin(clock::time_point now, bool contended, bool acquire_is_script = false) noexcept {
        now_ = now;
        looked_ = acquire_is_script;
        if (!contended) return send(kind::send_acquire);
        return again();
    }

    /// `replicated`: what became of it at the replicas; none: nobody asked.
    acquire_step on_outcome(const acquire_outcome& outcome, clock::time_point sent, clock::time_point now,
                            const std::optional<acknowledgement>& replicated = {}) noexcept {
        now_ = now;
        if (token_sent_ == clock::time_point{}) token_sent_ = sent;
        switch (outcome.what) {
            case acquire_outcome::kind::granted:
                ticket_ = ticket_state::none;
                return on_granted(sent, outcome.granted_for.value_or(limits_.lease), outcome.fence,
                                  replicated);
            case acquire_outcome::kind::busy:
                slowest_ = std::max(slowest_, now - sent);
                return on_busy(outcome, sent);
            case acquire_outcome::kind::later:
                return on_failure(outcome.cause);
            case acquire_outcome::kind::refused:
                if (outcome.broke_off()) left_ = std::max(left_, leftover::broken_off);
                if (outcome.cause == errc::server_error && !outcome.certain) left_ = leftover::in_doubt;
                return fail(outcome.cause);
            case acquire_outcome::kind::unknown:
                break;
        }
        const bool first_time = !in_doubt();
        left_ = leftover::in_doubt;
        if (outcome.cause == errc::cancelled) return on_stop();
        if (first_time && limits_.deadline > now_) {
            note_failure(outcome.cause);
            return again();
        }
        return on_failure(outcome.cause);
    }

    /// An earlier sending with the present token was not answered.
    [[gnu::cold]] void was_sent_before() noexcept { left_ = leftover::in_doubt; }

    /// `sent`: of the claim.
    acquire_step on_claim(const renew_outcome& outcome, clock::time_point sent, clock::time_point now,
                          const std::optional<acknowledgement>& replicated = {}) noexcept {
        now_ = now;
        if (outcome.what == renew_outcome::kind::kept) {
            const auto until = validity_end(sent, limits_.lease);
            if (now_ < until) return counts(sent, limits_.lease, until, replicated);
        }
        if (outcome.what != renew_outcome::kind::later) return lost_again(errc::lease_expired);
        return claim_later(outcome.cause);
    }

    acquire_step on_wake(clock::time_point now) noexcept {
        now_ = now;
        if (claims()) return now_ < claimed_until_ ? send(kind::send_claim) : lost_again(errc::no_reply);
        // At the deadline comes one last look: "taken" must not be said of a lock that became free meanwhile.
        if (now_ >= limits_.deadline && failing()) return fail(failure_.cause);
        // The server may grant a command of one key where it refuses one of several.
        if (failing() && queues() && !in_doubt() && ticket_ == ticket_state::none)
            return send(kind::send_acquire);
        return again();
    }

    acquire_step on_message(const handover& given, clock::time_point now) noexcept {
        now_ = now;
        const auto since = place_.now().ticket == given.ticket ? place_.said_at() : token_sent_;
        const auto until = validity_end(since, given.ttl);
        const bool complete = !given.asks() && (given.fence != 0 || !limits_.wants_fence);
        if (!complete || until - now_ < clock::duration(given.ttl) / 2) {
            if (given.watch) return watch();
            place_.heard();
            if (!given.asks()) note_unconfirmed();
            return enter(now_ >= limits_.deadline ? enter_mode::last : enter_mode::join);
        }
        ticket_ = ticket_state::none;
        return on_granted(since, given.ttl, given.fence, {});
    }

    acquire_step on_subscribed(clock::time_point now) noexcept {
        now_ = now;
        subscribed();
        if (ticket_ == ticket_state::none)
            return {.what = kind::pause, .at = pause_until_, .unheard_for = unheard_recheck};
        return again();
    }

    /// Effects: as on_subscribed(), between a step and its sending.
    void subscribed() noexcept { heard_ = ++subscriptions_; }
    /// Effects: until the next subscription, messages do not arrive, of what is sent next either.
    void unheard() noexcept { heard_ = 0; }

    /// Effects: the present token is a new one, whose ticket is served without a message.
    void expect_no_messages() noexcept {
        forget_token();
        unheard();
        deaf_ = true;
    }

    /// An outcome whose cause is errc::cancelled is a stop, too: the sending is in doubt then.
    acquire_step on_stop() noexcept { return fail(errc::cancelled); }

    /// Returns: whether a sending with the present token was not answered: it may still be on its way.
    bool in_doubt() const noexcept { return left_ == leftover::in_doubt; }
    /// Returns: whether the last thing known is trouble.
    bool failing() const noexcept { return failure_.cause != errc{}; }
    /// Returns: whether it has a ticket, as far as is known.
    bool in_queue() const noexcept { return ticket_ != ticket_state::none; }

  private:
    // Of the present token, as far as we know.
    enum class ticket_state { none, queued, leaving };

    // Keys that the server may have under the present token, besides a ticket.
    enum class leftover {
        none,
        broken_off,   // what a script wrote before it came to a command that it may not run
        unconfirmed,  // the lock: a message or a grant that is not believed, or not yet
        in_doubt,     // a sending was not answered: the lock or a ticket, now or later
    };

    struct failure {
        clock::time_point since = clock::time_point::max();
        errc cause{};  // errc{}: none
    };

    bool claims() const noexcept { return claimed_until_ != clock::time_point{}; }
    bool queues() const noexcept { return limits_.waits == waiting_manner::queues && !limits_.once; }

    acquire_step on_granted(clock::time_point since, std::chrono::milliseconds ttl, std::uint64_t fence,
                            const std::optional<acknowledgement>& replicated) noexcept {
        const auto until = validity_end(since, ttl);
        if (now_ >= until) return lost_again(errc::lease_expired);
        fence_ = fence;
        failure_ = {};
        const bool too_short = limits_.claims_lease && ttl < limits_.lease;
        const bool unasked = limits_.replicas > 0 && !replicated;
        if (!too_short && !unasked) return counts(since, ttl, until, replicated);
        claimed_until_ = until;
        note_unconfirmed();
        return send(kind::send_claim);
    }

    // The server says that the lock is ours.
    acquire_step counts(clock::time_point since, std::chrono::milliseconds ttl, clock::time_point until,
                        const std::optional<acknowledgement>& replicated) noexcept {
        using acknowledged = acknowledgement::kind;
        if (limits_.replicas == 0) return ours(since, ttl, until);
        const auto said = replicated.value_or(acknowledgement{});
        if (said.what == acknowledged::enough) return ours(since, ttl, until);
        note_unconfirmed();
        if (said.what != acknowledged::unknown) return fail(said.cause);
        if (said.cause == errc::cancelled) return on_stop();
        claimed_until_ = until;
        return claim_later(said.cause);
    }

    acquire_step claim_later(errc cause) noexcept {
        note_failure(cause);
        if (limits_.once || worn_out() || now_ >= std::min(claimed_until_, limits_.deadline))
            return lost_again(cause);
        acquire_step next = pause({});
        next.at = pause_until_ = std::min(next.at, claimed_until_);
        return next;
    }

    acquire_step ours(clock::time_point since, std::chrono::milliseconds ttl,
                      clock::time_point until) const noexcept {
        return {.what = kind::granted, .at = until, .ttl = ttl, .since = since, .fence = fence_};
    }

    // The grant is over before its owner could use it.
    acquire_step lost_again(errc cause) noexcept {
        note_unconfirmed();
        acquire_step next = on_failure(cause);
        if (next.what != kind::pause) return next;
        next.leave_first = next.fresh_token = true;
        next.in_doubt = in_doubt();
        forget_token();
        return next;
    }

    void forget_token() noexcept {
        ticket_ = ticket_state::none;
        place_ = {};
        token_sent_ = {};
        claimed_until_ = {};
        left_ = leftover::none;
    }

    acquire_step on_busy(const acquire_outcome& outcome, clock::time_point sent) noexcept {
        failure_ = {};
        without_ttl_ = outcome.without_ttl();
        const bool over = now_ >= limits_.deadline;
        if (ticket_ == ticket_state::leaving) {
            ticket_ = ticket_state::none;
            return give_up();
        }
        if (outcome.queued.ticket != 0) {
            if (!limits_.once) return on_queued(outcome, sent, over);
            note_unconfirmed();  // nobody asked for that: it is given back
        }
        ticket_ = ticket_state::none;
        // SET NX says "taken" of any key. One look tells a lock from a key of another type, nobody's lock.
        if (queues() && !over) return enter(enter_mode::join);
        if (!looked_) return send(kind::send_look);
        if (limits_.once || over) return give_up();
        return pause(outcome.ttl);
    }

    acquire_step on_queued(const acquire_outcome& outcome, clock::time_point sent, bool over) noexcept {
        const bool deaf = place_.move_to(outcome.queued, sent, now_, heard_);
        deaf_ = deaf_ || deaf;
        ticket_ = ticket_state::queued;
        acquire_step next = over ? enter(enter_mode::last) : poll_later(outcome.ttl);
        next.reconnect_first = deaf;
        return next;
    }

    acquire_step poll_later(std::optional<std::chrono::milliseconds> ttl) noexcept {
        poll_conditions now = place_.conditions(now_);
        now.recheck = limits_.recheck;
        now.lease = limits_.lease;
        now.ttl = ttl;
        now.hears = heard_ != 0;
        now.deaf = deaf_;
        const auto interval = poll_interval_of(now, jitter_);
        return pause_for(interval.span, interval.unheard);
    }

    // The lock was handed over to another just now.
    acquire_step watch() noexcept {
        place_.watch();
        const auto planned = pause_until_;
        acquire_step next = poll_later(std::min(longest_offer, limits_.lease));
        next.at = pause_until_ = std::min(planned, next.at);
        return next;
    }

    acquire_step on_failure(errc cause) noexcept {
        note_failure(cause);
        if (limits_.once || worn_out() || now_ >= limits_.deadline) return fail(cause);
        return pause({});
    }

    bool worn_out() const noexcept { return out_of_patience(limits_.patience, failure_.since, now_); }
    void note_failure(errc cause) noexcept { failure_ = {std::min(failure_.since, now_), cause}; }

    void note_unconfirmed() noexcept { left_ = std::max(left_, leftover::unconfirmed); }

    acquire_step again() noexcept {
        const bool over = now_ >= limits_.deadline;
        if (ticket_ != ticket_state::none) return enter(over ? enter_mode::last : enter_mode::join);
        return queues() && !over ? enter(enter_mode::join) : send(kind::send_look);
    }

    acquire_step enter(enter_mode mode) noexcept {
        if (mode == enter_mode::last) ticket_ = ticket_state::leaving;
        acquire_step next = send(kind::send_enter);
        next.mode = mode;
        return next;
    }

    acquire_step send(kind how) noexcept {
        looked_ = looked_ || how != kind::send_acquire;
        constexpr clock::duration longest = longest_answer_time;
        const auto answer_time =
            std::clamp(2 * std::min(slowest_, longest), clock::duration(shortest_answer_time), longest);
        const auto answer_by = std::max(limits_.deadline, detail::saturating_add(now_, answer_time));
        return {.what = how, .at = answer_by};
    }

    acquire_step pause(std::optional<std::chrono::milliseconds> ttl) noexcept {
        using namespace std::chrono_literals;
        const bool sleeps_well = limits_.waits == waiting_manner::woken && !failing();
        // A waiter that hears of what it waits for looks seldom, but hears nothing of the end of trouble.
        const auto longest = limits_.waits == waiting_manner::polls || sleeps_well
                                 ? limits_.recheck
                                 : std::min(limits_.recheck, unheard_recheck);
        clock::duration span = sleeps_well ? longest : std::min<clock::duration>(backoff_, longest);
        backoff_ = std::min<clock::duration>(backoff_ * 2, longest);
        span = span / 2 + jitter_.up_to(span / 2);
        // Compared in whole milliseconds: a server may claim any TTL, and nanoseconds cannot hold them all.
        if (ttl && ttl->count() >= 0 && *ttl < limits_.recheck)
            span = std::min<clock::duration>(span, *ttl + 1ms);
        return pause_for(span, unheard_recheck);
    }

    acquire_step pause_for(clock::duration span, clock::duration unheard) noexcept {
        pause_until_ = std::min(limits_.deadline, detail::saturating_add(now_, span));
        return {.what = kind::pause, .at = pause_until_, .unheard_for = unheard};
    }

    // A message that was not believed, or an answer that is missing, may have made us the owner.
    acquire_step give_up() const noexcept {
        // An exchange that is still on its way takes away what is to be exchanged.
        if (limits_.in_exchange_for != nullptr && in_doubt()) return fail(errc::no_reply);
        return {.what = kind::gave_up,
                .leave_first = left_ != leftover::none,
                .in_doubt = in_doubt(),
                .without_ttl = without_ttl_};
    }
    acquire_step fail(errc cause) const noexcept {
        return {.what = kind::failed,
                .cause = cause,
                .leave_first = left_ != leftover::none || ticket_ != ticket_state::none,
                .in_doubt = in_doubt(),
                .broke_off = left_ == leftover::broken_off && ticket_ == ticket_state::none};
    }

    acquire_limits limits_;
    clock::time_point now_{};
    jitter jitter_;
    clock::duration backoff_ = std::chrono::milliseconds{1};
    clock::duration slowest_{};  // of the answers that somebody else has it
    clock::time_point pause_until_{};
    clock::time_point claimed_until_{};
    clock::time_point token_sent_{};  // before the first sending with the present token
    place_in_queue place_;
    std::uint64_t subscriptions_ = 0;
    std::uint64_t heard_ = 0;  // which of them brings messages, as far as is known; 0: none does
    std::uint64_t fence_ = 0;
    ticket_state ticket_ = ticket_state::none;
    leftover left_ = leftover::none;
    failure failure_;      // of the last answers
    bool deaf_ = false;    // a ticket was gone without a message, or none brings one
    bool looked_ = false;  // the script was sent, which tells a lock from a key of another type
    bool without_ttl_ = false;
};

}  // namespace distlock::engine
