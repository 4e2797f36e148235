// Runs an operation on the caller's thread, over a connection.
#pragma once

#include <algorithm>
#include <optional>
#include <stop_token>
#include <utility>

#include <distlock/base/clock.hpp>
#include <distlock/base/time_source.hpp>
#include <distlock/base/token.hpp>
#include <distlock/detail/function_ref.hpp>
#include <distlock/detail/saturate.hpp>
#include <distlock/engine/action.hpp>
#include <distlock/engine/inbox.hpp>
#include <distlock/engine/joint_executor.hpp>
#include <distlock/engine/operation.hpp>
#include <distlock/engine/remote_status.hpp>
#include <distlock/net/any_connection.hpp>
#include <distlock/net/subscription.hpp>
#include <distlock/wire/command.hpp>
#include <distlock/wire/reply.hpp>

namespace distlock::engine {

namespace detail {

inline event woken_event(const listener& mine, const inbox& messages, listener::woken by,
                         clock::time_point now) noexcept {
    switch (by) {
        case listener::woken::by_message:
            return event::message(mine.message(), now);
        case listener::woken::by_confirmation:
            return event::subscribed(now);
        case listener::woken::by_stop:
            return event::stopped();
        case listener::woken::by_refusal:
        case listener::woken::by_time:
            break;
    }
    return event::woke(now, !messages.in_force());
}

inline event pause_for(const std::stop_token& stop, clock::time_point until, time_source time) {
    distlock::detail::pause_until(stop, until, time);
    return stop.stop_requested() ? event::stopped() : event::woke(time.now());
}

inline event wait_for(const action& what, const std::stop_token& stop, inbox& messages, time_source time) {
    listener* const mine = messages.get();
    if (mine == nullptr) {
        const auto unheard_until = distlock::detail::saturating_add(time.now(), what.unheard_for);
        return pause_for(stop, std::min(what.until, unheard_until), time);
    }
    const auto by = mine->wait(what.until, stop, time, what.unheard_for, what.patience);
    return woken_event(*mine, messages, by, time.now());
}

// Only the first subscription is waited for.
inline event subscribe(const token& owner, clock::time_point until, const std::stop_token& stop,
                       inbox& messages, time_source time) {
    listener* const mine = messages.expect(owner);
    auto now = time.now();
    if (mine == nullptr) return event::refused(now);
    while (messages.worth_waiting() && now < until) {
        const auto before = now;
        if (mine->wait(until, stop, time) == listener::woken::by_stop) return event::stopped();
        now = time.now();
        messages.waited(now - before);
    }
    if (messages.refused()) return event::refused(time.now());
    return messages.in_force() ? event::subscribed(time.now()) : event::woke(time.now());
}

}  // namespace detail

/// Effects: runs `op`, which was not started, to its end or until `stop` is requested. `status` says at any
/// time what keeps the server from answering. `leave(leaving)`, which does not throw, is called
/// for every token under which the server may have, or may still get, a lock or a ticket that nobody wants.
/// `messages` keeps what comes for the present token; after a grant it has to until a release by that token
/// was sent. `together`: asks the server in its place, the first time.
/// Throws: as operation::resume(); the present token is left then.
/// Round trips: one when the lock is free; two when it is taken and this is a try; in the queue two until the
/// wait begins, one when the lock was found taken the last time, and none at its end; one more to name the
/// type of a key that is no lock.
inline grant run_blocking(any_connection& connection, time_source time, operation& op,
                          const std::stop_token& stop, remote_status& status, inbox& messages,
                          distlock::detail::function_ref<void(const action::leaving&)> leave,
                          joint_executor* together = nullptr) {
    const bool alone = together == nullptr;    // or an answer may speak of another lock
    std::optional<acknowledged_reply> answer;  // until the operation has seen it
    const auto perform = [&](action& what) {
        if (stop.stop_requested()) return event::stopped();
        switch (what.what) {
            case action::kind::send: {
                what.command->until(stop);
                const auto sent = time.now();
                if (what.behind) {
                    what.behind->until(stop);
                    answer.emplace(connection.execute_acknowledged(*what.command, *what.behind));
                    return event::answered(*answer, sent, time.now());
                }
                auto* const executor = std::exchange(together, nullptr);
                answer.emplace(acknowledged_reply{executor != nullptr ? executor->execute(*what.command)
                                                                      : connection.execute(*what.command),
                                                  reply::nil()});
                if (executor != nullptr && executor->asked_twice()) op.was_sent_before();
                return event::answered(answer->answer, sent, time.now());
            }
            case action::kind::subscribe:
                return detail::subscribe(op.result().token, what.until, stop, messages, time);
            case action::kind::wait:
                return detail::wait_for(what, stop, messages, time);
            case action::kind::pause:
                return detail::pause_for(stop, what.until, time);
            case action::kind::done:
                break;
        }
        return event::stopped();
    };
    try {
        for (event last = stop.stop_requested() ? event::stopped() : event::started(time.now());;) {
            action next = op.resume(last);
            answer.reset();  // its memory serves the next one
            if (next.heard && alone) status.answered(*next.heard, last.now);
            if (next.leave) {
                leave(*next.leave);
                messages.forget();
            }
            if (next.reconnect && messages.source() != nullptr) messages.source()->reconnect();
            if (next.what == action::kind::done) break;
            last = perform(next);
        }
    } catch (...) {
        // Without memory nobody looks on whether the server has something of this attempt.
        if (!op.result().token.empty()) leave({op.result().token, true});
        messages.forget();
        throw;
    }
    if (op.result().what != grant::kind::granted) messages.forget();
    return std::move(op).result();
}

}  // namespace distlock::engine
