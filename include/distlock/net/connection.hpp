// What a connection must be: anything that executes one command, and two things it may be besides.
//
//   concept connection               c.execute(cmd) -> reply, or c(cmd) -> reply       (a lambda will do)
//   concept waiting_connection       and c.wait(cmd, deadline, stop) -> reply
//   concept posting_connection       and c.post(cmd) -> bool
//   concept timed_connection         and c.command_timeout() -> milliseconds
//   concept identified_connection    and c.identity() -> string_view
//   check_connection<C>()            says in a sentence what a type lacks
//   reply execute(C&, const command&)  one command, with a script's body sent when the server lacks it
#pragma once

#include <chrono>
#include <concepts>
#include <exception>
#include <stop_token>
#include <string_view>

#include <distlock/base/clock.hpp>
#include <distlock/base/error.hpp>
#include <distlock/detail/printable.hpp>
#include <distlock/wire/command.hpp>
#include <distlock/wire/reply.hpp>

namespace distlock {

/// The type has a member `reply execute(const command&)`.
template <class C>
concept executes_a_command = requires(C& c, const command& cmd) {
    { c.execute(cmd) } -> std::same_as<reply>;
};

/// The type is a function object `reply operator()(const command&)`.
template <class C>
concept is_called_with_a_command = requires(C& c, const command& cmd) {
    { c(cmd) } -> std::same_as<reply>;
};

/// Executes one Redis command, from any thread, any number at once. It returns what the server answered; when
/// there is no answer it returns reply::not_sent or reply::no_answer and keeps the two apart with care:
/// not_sent is a promise. An exception out of it counts as no answer.
template <class C>
concept connection = executes_a_command<C> || is_called_with_a_command<C>;

/// Can wait inside a blocking command (BLPOP) until the server answers, `deadline` passes or `stop` is
/// requested; for the two latter the answer is reply::no_answer with errc::no_reply or errc::cancelled.
template <class C>
concept waiting_connection = connection<C> &&
    requires(C& c, const command& cmd, clock::time_point deadline, std::stop_token stop) {
    { c.wait(cmd, deadline, stop) } -> std::same_as<reply>;
};

/// Can send a command without waiting for its reply. Posted commands are sent in order, before any later
/// execute of the same thread.
/// Returns: whether it was handed to the system.
template <class C>
concept posting_connection = connection<C> && requires(C& c, const command& cmd) {
    { c.post(cmd) } -> std::same_as<bool>;
};

/// Says how long it waits for an answer at most. A lease must be longer.
template <class C>
concept timed_connection = connection<C> && requires(const C& c) {
    { c.command_timeout() } -> std::convertible_to<std::chrono::milliseconds>;
};

/// Says which server it leads to: connections with equal texts lead to the same locks, in this process and in
/// others.
template <class C>
concept identified_connection = connection<C> && requires(const C& c) {
    { c.identity() } -> std::convertible_to<std::string_view>;
};

/// Compiles when C is a connection, and else says what is missing. Put it beside your own: `static_assert(
/// distlock::check_connection<my_connection>());`
template <class C>
consteval bool check_connection() {
    static_assert(
        executes_a_command<C> || is_called_with_a_command<C>,
        "a connection needs a member `distlock::reply execute(const distlock::command&)`, or must be "
        "callable as "
        "`distlock::reply(const distlock::command&)`; the result type must be exactly distlock::reply");
    static_assert(
        !requires(C & c, const command& cmd) { c.post(cmd); } || posting_connection<C>,
        "post must be `bool post(const distlock::command&)`");
    static_assert(
        !requires(C & c, const command& cmd) { c.wait(cmd, clock::time_point{}, std::stop_token{}); } ||
            waiting_connection<C>,
        "wait must be `distlock::reply wait(const distlock::command&, distlock::clock::time_point, "
        "std::stop_token)`");
    static_assert(
        !requires(const C& c) { c.command_timeout(); } || timed_connection<C>,
        "command_timeout must return something that converts to std::chrono::milliseconds");
    static_assert(
        !requires(const C& c) { c.identity(); } || identified_connection<C>,
        "identity must return something that converts to std::string_view");
    return connection<C>;
}

namespace detail {

template <connection C>
reply call(C& c, const command& cmd) noexcept {
    try {
        try {
            if constexpr (executes_a_command<C>) {
                return c.execute(cmd);
            } else {
                return c(cmd);
            }
        } catch (const std::exception& e) {
            return reply::no_answer(errc::no_reply, printable(e.what()));
        }
    } catch (...) {
        return reply::no_answer(errc::no_reply, "client threw");  // short: memory may be what is missing
    }
}

}  // namespace detail

/// Effects: executes `cmd`; when the server answers NOSCRIPT, executes it again with the script's body.
/// Returns: the last reply.
/// Round trips: one; two when the server does not have the script yet.
template <connection C>
reply execute(C& c, const command& cmd) noexcept {
    reply first = detail::call(c, cmd);
    if (!cmd.is_script() || !first.is(reply_kind::error) || !first.text().starts_with("NOSCRIPT"))
        return first;
    return detail::call(c, cmd.with_body());
}

}  // namespace distlock
