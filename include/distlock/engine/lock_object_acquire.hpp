// How a thread comes to the lock of a lock object: passed on by another thread, or from the server, which one
// thread at a time asks.
#pragma once

#include <algorithm>
#include <optional>
#include <stop_token>
#include <string>
#include <system_error>
#include <thread>

#include <distlock/base/error.hpp>
#include <distlock/base/lease.hpp>
#include <distlock/base/token.hpp>
#include <distlock/detail/saturate.hpp>
#include <distlock/detail/thread_safety.hpp>
#include <distlock/engine/acquire_step.hpp>
#include <distlock/engine/acquisition.hpp>
#include <distlock/engine/action.hpp>
#include <distlock/engine/blocking.hpp>
#include <distlock/engine/lock_object.hpp>
#include <distlock/engine/mutex_state.hpp>
#include <distlock/engine/operation.hpp>
#include <distlock/engine/releaser.hpp>
#include <distlock/engine/waiter_queue.hpp>
#include <distlock/wire/command.hpp>
#include <distlock/wire/reply.hpp>
#include <distlock/wire/server_error.hpp>

namespace distlock::engine {

inline acquire_limits lock_object::limits(time_point until, bool once) const {
    const auto usual = waits_ == waiting_manner::polls ? distlock::detail::polling_recheck
                                                       : distlock::detail::queued_recheck;
    return {.lease = dialect_->lease(),
            .recheck = options_.recheck.given() ? options_.recheck.get() : usual,
            .patience = options_.patience,
            .deadline = until,
            .once = once,
            .waits = waits_,
            .wants_fence = options_.fencing,
            .claims_lease = !options_.renew || holds_on(),
            .replicas = options_.replicas,
            .replica_timeout = replica_timeout()};
}

inline bool lock_object::start_remote_if_free() {
    const distlock::detail::annotated_lock guard(mutex_);
    if (!threads_.waiters().empty() || !may_go_remote()) return false;
    start_remote();
    return true;
}

inline void lock_object::start_remote() noexcept {
    status_.begin();
    auto lost = threads_.start_remote();
    if (!lost) return;
    const auto now = time_.now();
    lost->notify_loss(io_->callbacks(), now);
    if (too_early(*lost, now)) {
        keep(*lost, now);
        return;
    }
    // This releases it in the owner's place: after the longest hold the key has much of a lease before it.
    const auto expiry = lost->lease().latest_expiry();
    if (now < lost->late_until()) {
        releaser_.repeat(lost->owner(), certainty::in_doubt, std::max(expiry, lost->late_until()));
    } else if (expiry - now > duration(options_.lease.get()) / 8) {
        releaser_.repeat(lost->owner(), certainty::granted, expiry);
    }
}

inline std::optional<lock_object::result> lock_object::try_turn(duration longest, time_point until,
                                                                const std::stop_token& stop) {
    std::optional<errc> heard;  // cancelled: that thread has ended without an answer
    for (const auto by = std::min(until, distlock::detail::saturating_add(time_.now(), longest));;) {
        {
            const distlock::detail::annotated_lock guard(mutex_);
            if (may_go_remote()) {
                start_remote();
                return std::nullopt;
            }
            if (threads_.current_phase() == phase::held) return result{};
            if (status_.known()) heard = status_.last_error();
        }
        const bool taken = heard == errc{} || heard == errc::holder_without_ttl;
        if (taken) {
            const errc silent = confirm_taken(longest, stop);
            if (silent != errc{}) return failed(silent);
            return result{.without_ttl = heard == errc::holder_without_ttl};
        }
        if (heard && heard != errc::cancelled) return failed(*heard);
        const bool answered = status_.wait(by, stop, time_);
        if (stop.stop_requested()) return failed(errc::cancelled);
        if (!answered) return failed(errc::no_reply, "the server has not answered another thread yet");
        heard = status_.last_error();
    }
}

[[gnu::cold]] inline errc lock_object::confirm_taken(duration longest, const std::stop_token& stop) {
    // Of several at once nobody is told so; and without a time-out the question could last for ever.
    if (longest == duration::zero() || !io_->connection().command_timeout()) return {};
    const auto now = time_.now();
    const auto by = distlock::detail::saturating_add(now, std::max<duration>(longest, longest_answer_time));
    return status_.confirm(now - longest_answer_time, by, stop, time_, [&] {
        const token nobody = token::generate();
        command question = dialect_->renew(nobody).with_body();  // in one round trip, known or not
        question.until(by).until(stop);
        const reply answer = io_->connection().execute(question);
        if (!answer.answered()) return answer.cause();
        if (!answer.is(reply_kind::error)) return errc{};
        const errc refused = classify_error(answer.said()).cause;
        // An owner that does not renew needs no permission to.
        return refused == errc::permission_denied ? errc{} : refused;
    });
}

inline std::optional<lock_object::result> lock_object::queue_up(time_point until, manner& how,
                                                                const std::stop_token& stop) {
    if (start_remote_if_free()) return std::nullopt;
    waiter_queue::waiter mine(std::this_thread::get_id(), how.guarded);
    std::optional<std::stop_callback<recheck_on_stop>> on_stop;
    if (stop.stop_possible()) on_stop.emplace(stop, recheck_on_stop{mutex_, mine});
    const turn_end end = wait_for_turn(mine, until, stop);
    on_stop.reset();
    switch (end.what) {
        case turn_end::kind::granted:
            return result{.serial = mine.serial, .fence = mine.fence};
        case turn_end::kind::goes_remote:
            how.failing_since = end.failing_since;
            return std::nullopt;
        case turn_end::kind::cancelled:
            return failed(errc::cancelled);
        case turn_end::kind::failed:
            return failed(end.cause);
        case turn_end::kind::timed_out:
            break;
    }
    return try_turn(shortest_answer_time, time_point::max(), stop);
}

inline lock_object::turn_end lock_object::wait_for_turn(waiter_queue::waiter& mine, time_point until,
                                                        const std::stop_token& stop) noexcept {
    using kind = typename turn_end::kind;
    distlock::detail::annotated_lock guard(mutex_);
    const auto failures = failures_;
    const auto came = time_.now();
    auto& waiters = threads_.waiters();
    waiters.join(mine);
    for (;;) {
        if (!mine.dequeued()) {
            const bool goes = waiters.first() == &mine && may_go_remote();
            if (goes || stop.stop_requested() || reached(until)) {
                waiters.leave(mine);
                if (goes) {
                    start_remote();
                    return {kind::goes_remote};
                }
                waiters.recheck_first();
                return {stop.stop_requested() ? kind::cancelled : kind::timed_out};
            }
        }
        const auto* const held = threads_.held();
        const bool told = held == nullptr || waiters.first() != &mine || try_schedule_deadline();
        const auto longest = mine.prepare_sleep(told ? until : std::min(until, held->lease().until()), time_);
        guard.unlock();
        mine.sleep(longest);
        const wake why = mine.reason();
        if (why == wake::granted) return {kind::granted};
        guard.lock();
        if (why != wake::go_remote) continue;
        // The threads before us have spent some of our patience with the server, too, or all of it.
        const auto since =
            failures_ == failures ? time_point::max() : std::max(came, status_.failing_since());
        if (!out_of_patience(options_.patience, since, time_.now())) {
            start_remote();
            return {.what = kind::goes_remote, .failing_since = since};
        }
        end_remote();
        return {kind::failed, last_failure_};
    }
}

inline void lock_object::end_remote() noexcept {
    auto* const next = threads_.end_remote();
    if (next == nullptr) return status_.end();
    status_.begin();  // a try that waits for the first answer waits for that of the next thread
    next->wake_up();
}

inline lock_object::result lock_object::acquire_remotely(const acquire_limits& limits, const manner& how,
                                                         const std::stop_token& stop) {
    using kind = grant::kind;
    try {
        if (!limits.once) back_off(limits.deadline, stop);
        // A release of ours that was posted on another socket may come too late for a try, even if it is
        // heard of before the try's own answer.
        const bool short_of_time = limits.once || limits.deadline < distlock::detail::saturating_add(
                                                                        time_.now(), duration(answer_time()));
        const bool on_its_way = short_of_time && releaser_.unconfirmed();
        if (on_its_way && how.together != nullptr) releaser_.confirm_posted(limits.deadline, stop);
        grant got = ask(limits, stop, how.together);
        if (on_its_way && got.what == kind::gave_up && how.together == nullptr) {
            releaser_.confirm_posted(limits.deadline, stop);
            got = ask(limits, stop);
        }
        if (got.what == kind::granted) return hold(got, how.guarded, stop);
        return not_granted(got, how);
    } catch (...) {
        const distlock::detail::annotated_lock guard(mutex_);
        end_remote();
        throw;
    }
}

inline void lock_object::back_off(time_point until, const std::stop_token& stop) {
    const auto pause_end = backoff_.until();
    if (!pause_end) return;
    const auto now = time_.now();
    if (now < *pause_end && now < until)
        status_.pause(std::min(*pause_end, now + (until - now) / 2), stop, time_);
}

inline grant lock_object::ask(const acquire_limits& limits, const std::stop_token& stop,
                              joint_executor* together) {
    const auto leave = [&](const action::leaving& what) noexcept {
        if (what.broke_off) return releaser_.leave_once(what.token, stop);
        releaser_.leave(what.token, what.in_doubt ? certainty::in_doubt : certainty::granted, stop);
    };
    operation attempt(*dialect_, limits, backoff_.contended() || together != nullptr);
    if (unqueued_until_ != time_point{} && time_.now() < unqueued_until_) attempt.assume_unqueued();
    return run_blocking(io_->connection(), time_, attempt, stop, status_, messages_, leave, together);
}

inline lock_object::result lock_object::hold(const grant& got, bool guarded, const std::stop_token& stop) {
    try {
        const distlock::detail::annotated_lock guard(mutex_);
        return begin_hold(got, guarded);
    } catch (const std::system_error& e) {
        give_back(got, stop);
        throw no_thread(e);
    } catch (...) {
        give_back(got, stop);
        throw;
    }
}

inline lock_object::result lock_object::begin_hold(const grant& got, bool guarded) {
    auto& held =
        threads_.hold(got, {options_.lease, options_.renew, options_.max_hold}, std::this_thread::get_id(),
                      guarded, got.in_doubt ? releaser_.late_until(got.came) : time_point{});
    try {
        if (observer_) {
            held.observe(observer_, name(), io_->callbacks());
            schedule_deadline();
        }
        schedule_renewal(held.lease());
        // The server that granted it may have been replaced before it was listed.
        if (follow_master(held)) schedule_renewal(held.lease());
    } catch (...) {
        threads_.unhold();
        throw;
    }
    status_.end();
    releaser_.on_grant();
    backoff_.on_attempt(got.contended, got.sent);
    // Nobody else had it when this was sent, and no lease that began since can have ended within the shortest
    // one: if the lock is free until then, it was released, and handed to whoever waited.
    const bool only = dialect_->is_shared() && !got.contended && !got.others_read;
    unqueued_until_ = only ? got.sent + min_lease / 2 : time_point{};
    // The first waiter must hear when this lease ends.
    if (!threads_.waiters().empty() && !try_schedule_deadline()) threads_.waiters().recheck_first();
    return {.serial = held.held_by().serial, .fence = got.fence};
}

[[gnu::cold]] inline void lock_object::give_back(const grant& got, const std::stop_token& stop) noexcept {
    releaser_.confirm(got.token, got.until, got.came + options_.lease.get(), stop);
    if (got.in_doubt) releaser_.leave(got.token, certainty::in_doubt, {});
    messages_.forget();
}

[[gnu::cold]] inline std::string lock_object::reason_of(const grant& got) const {
    std::string why = distlock::detail::behind_server(io_->connection().identity(), got.detail);
    if (got.in_doubt && got.cause != errc::cancelled) {
        if (!why.empty()) why += "; ";
        why += "this request may lock it, for one lease at most";
    }
    return why;
}

inline lock_object::result lock_object::not_granted(const grant& got, const manner& how) {
    const auto cause = got.what == grant::kind::failed ? got.cause : errc{};
    // Made while this thread is the remote one: where there is no memory for it, the next
    // one's turn comes once.
    result told = cause != errc{} ? failed(cause, reason_of(got)) : result{.without_ttl = got.without_ttl};
    told.failing_since = status_.failing_since();
    {
        const distlock::detail::annotated_lock guard(mutex_);
        backoff_.on_attempt(got.contended, got.came);
        // The cause may be that of another one of several locks at once, or of their time.
        if (cause != errc{} && cause != errc::cancelled && how.together == nullptr) {
            ++failures_;
            last_failure_ = cause;
        }
        end_remote();
    }
    return told;
}

}  // namespace distlock::engine
