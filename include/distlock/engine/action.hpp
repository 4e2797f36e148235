// The events that an operation is told, the actions that it asks for, and its result. Plain data.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <distlock/base/clock.hpp>
#include <distlock/base/error.hpp>
#include <distlock/base/token.hpp>
#include <distlock/wire/command.hpp>
#include <distlock/wire/reply.hpp>

namespace distlock::engine {

/// How an attempt to take a lock ended.
struct grant {
    enum class kind {
        granted,
        gave_up,  ///< somebody else has the lock, and the time is up
        failed,   ///< with `cause`
    };

    kind what = kind::failed;
    distlock::token token;            ///< of granted
    clock::time_point until{};        ///< of granted: the end of validity
    std::uint64_t fence = 0;          ///< of granted: the fencing token; 0: none was asked for
    std::chrono::milliseconds ttl{};  ///< of granted: what it was granted for, at most the lease
    clock::time_point sent{};  ///< of granted: from when that counts, before the first byte of a command
    clock::time_point came{};  ///< when the last answer, or the message, had come
    bool in_doubt = false;     ///< of granted: an earlier sending was not answered, and may still be on its
                               ///< way; else: a sending may have the lock, now or later
    bool contended = false;
    bool others_read = false;     ///< of granted: to a reader; others have it, too
    bool without_ttl = false;     ///< of gave_up: the owner's key never expires
    errc cause = errc::no_reply;  ///< of failed
    std::string detail;           ///< of failed: what the connection or the server said last
};

/// Something that happened. It refers to what the caller keeps until resume() returns.
struct event {
    enum class kind { started, answered, woke, message, subscribed, refused, stopped };

    kind what;
    clock::time_point now{};
    clock::time_point sent{};
    const reply* answer = nullptr;
    std::string_view text = {};
    const reply* replicated = nullptr;  // the answer to action::behind
    bool unheard = false;

    static event started(clock::time_point now) noexcept { return {kind::started, now}; }
    /// `sent`: read before the first byte of the command was sent. A command that nobody waits for any longer
    /// is answered, too: by reply::no_answer.
    static event answered(const reply& answer, clock::time_point sent, clock::time_point now) noexcept {
        return {kind::answered, now, sent, &answer};
    }
    static event answered(const acknowledged_reply& both, clock::time_point sent,
                          clock::time_point now) noexcept {
        return {kind::answered, now, sent, &both.answer, {}, &both.replicated};
    }
    /// The time is up. `unheard`: messages do not arrive.
    static event woke(clock::time_point now, bool unheard = false) noexcept {
        return {.what = kind::woke, .now = now, .unheard = unheard};
    }
    static event message(std::string_view text, clock::time_point now) noexcept {
        return {kind::message, now, {}, nullptr, text};
    }
    /// Messages arrive from now on; some may have been lost.
    static event subscribed(clock::time_point now) noexcept { return {kind::subscribed, now}; }
    /// After `subscribe`: messages will not arrive, the server does not let us subscribe.
    static event refused(clock::time_point now) noexcept { return {.what = kind::refused, .now = now}; }
    /// The caller's stop_token fired before the action was begun, or ended a wait.
    static event stopped() noexcept { return {kind::stopped}; }
};

/// The caller does this next. First of all, and also where a stop is requested: `heard`, `leave` and
/// `reconnect`. Plain data.
struct action {
    enum class kind {
        /// `command`, whose deadline is set: until answered.
        send,
        /// Messages for result().token are kept from now on. Where they do not arrive, that is waited for
        /// until `until`: until subscribed, refused or woke.
        subscribe,
        /// Until message, subscribed, or woke: at `until`, or when messages have not
        /// arrived for `unheard_for`.
        wait,
        /// Until woke at `until`.
        pause,
        /// See result(). Messages for its token are kept on if the lock was granted, else not.
        done,
    };
    struct leaving {
        distlock::token token;
        bool in_doubt;           ///< a sending with that token was not answered, and may still arrive
        bool broke_off = false;  ///< see acquire_step
    };

    kind what = kind::done;
    clock::time_point until{};
    clock::duration unheard_for = clock::duration::max();
    /// Of wait: so late may it end where this thread opens the socket on which messages come.
    clock::time_point patience{};
    /// Of send. It may be used until the next resume().
    std::optional<distlock::command> command = {};
    /// Of send: goes right behind `command`, on the same socket, and is answered, too.
    std::optional<distlock::command> behind = {};
    /// The state of the server by its last answer; errc{} and errc::holder_without_ttl: it answers.
    std::optional<errc> heard = {};
    /// A lock or a ticket of that token is released, without waiting; messages for it are
    /// not kept any longer.
    std::optional<leaving> leave = {};
    /// Messages do not arrive: subscribe anew.
    bool reconnect = false;
};

}  // namespace distlock::engine
