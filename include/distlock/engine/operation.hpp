// One attempt to take a lock as a resumable object: what happened goes in, what is to be done next comes out.
//
//   class operation {
//     operation(const any_dialect&, const acquire_limits&, bool contended);
//     action resume(const event&);
//     const grant& result() const;
//   };
//
//   auto op = operation(dialect, limits, contended);
//   for (action next = op.resume(event::started(now())); next.what != action::kind::done;) next =
//       op.resume(perform(next));
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <optional>
#include <utility>

#include <distlock/base/clock.hpp>
#include <distlock/base/error.hpp>
#include <distlock/base/token.hpp>
#include <distlock/detail/concat.hpp>
#include <distlock/engine/acquire.hpp>
#include <distlock/engine/action.hpp>
#include <distlock/engine/jitter.hpp>
#include <distlock/wire/acknowledgement.hpp>
#include <distlock/wire/any_dialect.hpp>
#include <distlock/wire/command.hpp>
#include <distlock/wire/enter_mode.hpp>
#include <distlock/wire/outcome.hpp>
#include <distlock/wire/reply.hpp>
#include <distlock/wire/wrong_type.hpp>

namespace distlock::engine {

/// Runs engine::acquire in the words of a dialect. Holds no thread and no socket, reads no
/// clock, and never waits.
///
/// Everything but `started` answers the last action; a stop may come instead of it, and there is none after
/// `done`. A command that was sent is answered before anything else.
class operation {
    using outcome_kind = acquire_outcome::kind;

  public:
    /// `contended`: the lock was found taken the last time. `dialect` must outlive the operation.
    /// Throws: error(errc::no_entropy).
    operation(const any_dialect& dialect, const acquire_limits& limits, bool contended)
        : operation(dialect, limits, contended, token::generate()) {}
    operation(const operation&) = delete;
    operation& operator=(const operation&) = delete;

    /// Effects: what it sent last had been sent before, and was not answered: that may still arrive.
    [[gnu::cold]] void was_sent_before() noexcept { machine_.was_sent_before(); }

    /// Effects: if it begins with the lock, not with the queue, it assumes that nobody waits for a free lock.
    void assume_unqueued() noexcept { unqueued_ = !contended_; }

    /// Throws: error(errc::no_entropy), std::bad_alloc; the operation is over then. If result() has a token,
    /// the server may have a lock or a ticket of it, which the caller has to release.
    action resume(const event& what) {
        action next;
        const phase before = std::exchange(phase_, phase::done);
        if (what.what == event::kind::stopped) {
            if (before != phase::done && before != phase::diagnosing) follow(machine_.on_stop(), what, next);
            return next;
        }
        switch (before) {
            case phase::acquiring:
                if (!std::exchange(unqueued_, false) || !what.answer->is(reply_kind::nil)) {
                    on_outcome(dialect_.read_acquire(*what.answer), what, next, read_replicated(what));
                    break;
                }
                [[fallthrough]];  // somebody has it: asked for as by any other
            case phase::ready:
                follow(machine_.begin(what.now, contended_, dialect_.acquire_is_script()), what, next);
                break;
            case phase::looking:
                on_outcome(dialect_.read_look(*what.answer), what, next);
                break;
            case phase::subscribing:
                on_subscription(what, next);
                break;
            case phase::entering:
                on_outcome(dialect_.read_enter(*what.answer), what, next);
                break;
            case phase::claiming:
                on_claim(what, next);
                break;
            case phase::listening:
                on_listening(what, next);
                break;
            case phase::waiting:
                on_wait(what, next);
                break;
            case phase::diagnosing:
                on_type(*what.answer);
                break;
            case phase::done:
                break;
        }
        return next;
    }

    /// Returns: how it ended, after `done`. Before, its token is the present one.
    const grant& result() const& noexcept { return result_; }
    grant&& result() && noexcept { return std::move(result_); }

  private:
    // What was asked for by the last action.
    enum class phase {
        ready,
        acquiring,
        looking,
        subscribing,  // before a ticket is asked for
        entering,
        claiming,
        listening,  // for releases, before a wait
        waiting,
        diagnosing,  // why a key is of another type
        done,
    };

    // Of messages for the present token, as far as is known.
    enum class hearing {
        nothing,  // nobody listens for them
        silence,  // they do not arrive
        messages,
    };

    operation(const any_dialect& dialect, const acquire_limits& limits, bool contended, const token& first)
        : dialect_(dialect),
          waits_(limits.waits),
          deadline_(limits.deadline),
          patience_(std::min(longest_offer, limits.lease) / 2),
          replicas_(limits.replicas),
          replica_timeout_(limits.replica_timeout),
          exchanged_(limits.in_exchange_for),
          contended_(contended || exchanged_ != nullptr),
          machine_(limits, seed_of(first)),
          scatter_(seed_of(first)) {
        result_.token = first;
    }

    // A token by which a release was sent is dead. Its successor is made when it is needed: that may fail,
    // and must not keep the release back.
    const token& live_token() {
        if (result_.token.empty()) result_.token = token::generate();
        return result_.token;
    }

    void leave(const token& of, bool in_doubt, bool broke_off, action& next) {
        next.leave = action::leaving{of, in_doubt, broke_off};
        result_.in_doubt = result_.in_doubt || in_doubt;
    }

    [[gnu::noinline]] void follow(const acquire_step& step, const event& last, action& next) {
        using kind = acquire_step::kind;
        if (step.leave_first) {
            leave(result_.token, step.in_doubt, step.broke_off, next);
            hearing_ = hearing::nothing;
        }
        if (step.fresh_token) result_.token = {};
        next.reconnect = step.reconnect_first;
        until_ = step.at;
        unheard_for_ = step.unheard_for;
        switch (step.what) {
            case kind::send_acquire:
                return send_replicated(phase::acquiring, acquire_command(), last.now, next);
            case kind::send_look:
                return send(phase::looking, look(live_token()), next);
            case kind::send_enter:
                return enter(step.mode, last.now, next);
            case kind::send_claim:
                return send_replicated(phase::claiming, dialect_.renew(result_.token), last.now, next);
            case kind::pause:
                return wait(last.now, next);
            case kind::granted:
            case kind::gave_up:
            case kind::failed:
                return end(step, last.now, next);
        }
    }

    command acquire_command() {
        const token& owner = live_token();
        const auto plain = unqueued_ ? dialect_.acquire_unqueued(owner, unqueued_room_) : std::nullopt;
        unqueued_ = plain.has_value();
        return plain ? *plain : dialect_.acquire(owner);
    }

    command look(const token& owner) const {
        return exchanged_ != nullptr ? dialect_.exchange(owner, *exchanged_) : dialect_.look(owner);
    }

    [[gnu::noinline]] void send(phase what, const command& cmd, action& next) {
        next.what = action::kind::send;
        next.command.emplace(cmd).until(until_);
        phase_ = what;
    }

    // Half of the time is left for the answer.
    [[gnu::noinline]] void send_replicated(phase what, const command& cmd, clock::time_point now,
                                           action& next) {
        send(what, cmd, next);
        if (replicas_ == 0) return;
        const auto left = std::chrono::floor<std::chrono::milliseconds>((until_ - now) / 2);
        wait_.emplace(replicas_, std::min(replica_timeout_, left));
        next.behind = wait_->behind(*next.command);
    }

    std::optional<acknowledgement> read_replicated(const event& what) const {
        if (!wait_ || what.replicated == nullptr) return std::nullopt;
        return wait_->read(*what.replicated);
    }

    // A process subscribes before it joins, and knows the token before it is sent. Without messages it joins
    // all the same, unless the subscription comes into force at once; half of the time is left to ask in.
    // Where the server refuses the subscription, the ticket says so. A waiter that has a ticket only looks.
    [[gnu::noinline]] void enter(enter_mode mode, clock::time_point now, action& next) {
        if (mode != enter_mode::join || hearing_ == hearing::messages || result_.token.expects_no_messages())
            return send(phase::entering, dialect_.enter(live_token(), mode), next);
        live_token();
        phase_ = phase::subscribing;
        next.what = action::kind::subscribe;
        next.until = machine_.failing() || machine_.in_queue()
                         ? now
                         : now + std::min<clock::duration>(longest_subscribing, (deadline_ - now) / 2);
    }

    // After `subscribe`. Returns: whether messages arrive.
    bool listens(const event& what) noexcept {
        const bool arrive = what.what == event::kind::subscribed;
        hearing_ = arrive ? hearing::messages : hearing::silence;
        return arrive;
    }

    void on_subscription(const event& what, action& next) {
        if (listens(what)) {
            machine_.subscribed();
        } else if (what.what == event::kind::refused) {
            // A ticket of the last token has a channel, also one that it may still get.
            if (machine_.in_queue() || machine_.in_doubt()) {
                const token fresh = token::generate();
                leave(std::exchange(result_.token, fresh), machine_.in_doubt(), false, next);
            }
            result_.token.expect_no_messages();
            machine_.expect_no_messages();
        } else {
            machine_.unheard();
        }
        send(phase::entering, dialect_.enter(result_.token, enter_mode::join), next);
    }

    [[gnu::noinline]] void on_outcome(const acquire_outcome& outcome, const event& what, action& next,
                                      const std::optional<acknowledgement>& replicated = {}) {
        const bool busy = outcome.what == outcome_kind::busy;
        result_.came = what.now;
        result_.contended = result_.contended || busy || outcome.awaited;
        result_.others_read = outcome.others_read;
        if (outcome.cause != errc::cancelled) {  // which says nothing about the server
            if (outcome.what != outcome_kind::granted && !busy) note_trouble(*what.answer);
            next.heard = outcome.without_ttl() ? errc::holder_without_ttl : outcome.cause;
        }
        if (outcome.what == outcome_kind::granted) note_too_few(replicated, what);
        follow(machine_.on_outcome(outcome, what.sent, what.now, replicated), what, next);
    }

    [[gnu::cold]] void on_claim(const event& what, action& next) {
        result_.came = what.now;
        if (what.answer->is(reply_kind::error) || !what.answer->answered()) note_trouble(*what.answer);
        const auto replicated = read_replicated(what);
        note_too_few(replicated, what);
        follow(machine_.on_claim(dialect_.read_renew(*what.answer), what.sent, what.now, replicated), what,
               next);
    }

    [[gnu::cold]] void note_too_few(const std::optional<acknowledgement>& replicated, const event& what) {
        using kind = acknowledgement::kind;
        if (!replicated || replicated->what == kind::enough) return;
        if (replicated->what != kind::too_few) return note_trouble(*what.replicated);
        result_.detail =
            distlock::detail::concat({replicated->replicas, " of ", replicas_, " replicas have it"});
    }

    // Other replies carry no error text.
    [[gnu::cold]] void note_trouble(const reply& answer) {
        const bool says_why = answer.is(reply_kind::error) || !answer.answered();
        result_.detail = says_why ? answer.text() : "the reply makes no sense";
    }

    void set_wait(clock::time_point now, action& next) {
        phase_ = phase::waiting;
        next.what = waits_ == waiting_manner::polls ? action::kind::pause : action::kind::wait;
        next.until = until_;
        next.unheard_for = unheard_for_;
        next.patience = std::min(deadline_, now + patience_);
    }

    [[gnu::noinline]] void wait(clock::time_point now, action& next) {
        set_wait(now, next);
        if (waits_ != waiting_manner::woken || hearing_ == hearing::messages) return;
        phase_ = phase::listening;
        next.what = action::kind::subscribe;
        next.until = now;
    }

    // A hand-over from before the subscription was in force is found by asking.
    void on_listening(const event& what, action& next) {
        if (listens(what)) return follow(machine_.on_wake(what.now), what, next);
        set_wait(what.now, next);
    }

    [[gnu::noinline]] void on_wait(const event& what, action& next) {
        if (what.what == event::kind::message) {
            if (waits_ == waiting_manner::woken) return scatter(what.now, next);
            // One that is too long to be kept: the server is asked what it said.
            if (what.text.empty()) return follow(machine_.on_message({}, what.now), what, next);
            const auto given = dialect_.read_own_message(what.text);
            if (given && given->owner == result_.token) {
                result_.came = what.now;
                next.heard = errc{};
                return follow(machine_.on_message(*given, what.now), what, next);
            }
        }
        if (what.what == event::kind::subscribed) {
            // Of a channel on which nobody listens for the present token, or not yet.
            if (hearing_ == hearing::nothing || result_.token.expects_no_messages())
                return wait(what.now, next);
            hearing_ = hearing::messages;
            if (waits_ == waiting_manner::queues) return follow(machine_.on_subscribed(what.now), what, next);
        }
        if (what.unheard && hearing_ == hearing::messages) {
            hearing_ = hearing::silence;
            machine_.unheard();
        }
        follow(machine_.on_wake(what.now), what, next);
    }

    // All waiters are told at once; a slower one, in another language or behind a longer way, is
    // to have its turn, too.
    void scatter(clock::time_point now, action& next) {
        constexpr std::chrono::milliseconds longest{1};
        phase_ = phase::waiting;
        next.what = action::kind::pause;
        next.until = std::min(until_, now + scatter_.up_to(longest));
    }

    [[gnu::noinline]] void end(const acquire_step& step, clock::time_point now, action& next) {
        result_.cause = step.cause;
        result_.without_ttl = step.without_ttl;
        if (step.what == acquire_step::kind::gave_up) result_.what = grant::kind::gave_up;
        result_.in_doubt = result_.in_doubt || (step.cause == errc::no_reply && step.leave_first);
        if (step.what == acquire_step::kind::granted) {
            result_.what = grant::kind::granted;
            result_.until = step.at;
            result_.ttl = step.ttl;
            result_.sent = step.since;
            result_.fence = step.fence;
            result_.in_doubt = machine_.in_doubt();
        }
        if (step.what == acquire_step::kind::failed && step.cause == errc::wrong_type)
            diagnose_type(now, next);
    }

    [[gnu::cold]] void diagnose_type(clock::time_point now, action& next) {
        constexpr std::chrono::seconds longest{1};
        until_ = std::max(now + shortest_answer_time, std::min(deadline_, now + longest));
        send(phase::diagnosing, {{"TYPE", dialect_.name()}, dialect_.name()}, next);
    }

    // Effects: says what the key holds, and what it should.
    [[gnu::cold]] void on_type(const reply& type) {
        if (!type.is(reply_kind::status)) return;
        result_.detail =
            distlock::detail::explain_wrong_type(type.text(), dialect_.stored_as(), result_.detail);
    }

    const any_dialect& dialect_;
    const waiting_manner waits_;
    const clock::time_point deadline_;
    const clock::duration patience_;  // while the lock may be handed over, and nobody hears of it
    const int replicas_;
    const std::chrono::milliseconds replica_timeout_;
    const token* const exchanged_;
    const bool contended_;
    grant result_;
    acquire machine_;
    jitter scatter_;
    phase phase_ = phase::ready;
    clock::time_point until_{};         // of what the machine asked for
    clock::duration unheard_for_{};     // of the same
    std::optional<replica_wait> wait_;  // the last one
    hearing hearing_ = hearing::nothing;
    bool unqueued_ = false;  // the next request is acquire_unqueued()
    std::array<char, 64> unqueued_room_{};
};

}  // namespace distlock::engine
