// What a connection must be: anything that executes one command, and what it may be besides.
//
//   concept connection               c.execute(cmd) -> reply, or c(cmd) -> reply       (a lambda will do)
//   concept pipelining_connection    and c.pipeline(commands, replies)
//   concept waiting_connection       and c.wait(cmd, deadline, stop) -> reply
//   concept posting_connection       and c.post(cmd) -> bool
//   concept confirming_connection    and c.post(cmd, receipt) -> bool, c.collect()
//   concept subscribing_connection   and c.subscribe(channel) -> std::shared_ptr<subscription>
//   concept hosting_connection       and c.host() -> companion&
//   concept timed_connection         and c.command_timeout() -> milliseconds
//   concept identified_connection    and c.identity() -> string_view
//   check_connection<C>()            says in a sentence what a type lacks
//   reply execute(C&, const command&)  one command, with a script's body sent when the server lacks it
//   bool post(C&, const command&)                 without waiting for its reply, where the connection can
//   reply wait(C&, const command&, deadline, stop)   one that may block on the server
//   void execute_all(C&, commands, replies)   the same for many, in one go where the connection can
#pragma once

#include <algorithm>
#include <chrono>
#include <concepts>
#include <cstddef>
#include <exception>
#include <memory>
#include <span>
#include <stop_token>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <distlock/base/clock.hpp>
#include <distlock/base/error.hpp>
#include <distlock/detail/printable.hpp>
#include <distlock/net/companion.hpp>
#include <distlock/net/receipt.hpp>
#include <distlock/net/subscription.hpp>
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

/// Executes many commands in one go: sends all of them on one socket, in order, without waiting for replies
/// in between, and fills the replies in that order; there are as many replies as commands. What got no answer
/// is reply::not_sent or reply::no_answer, each command for itself: not_sent promises that no byte of this
/// one was sent. An exception out of it counts as no answer to any.
template <class C>
concept pipelining_connection = connection<C> &&
    requires(C& c, std::span<const command> commands, std::span<reply> replies) {
    { c.pipeline(commands, replies) } -> std::same_as<void>;
};

/// Can wait inside a blocking command (BLPOP) until the server answers, `deadline` passes or `stop` is
/// requested; for the two latter the answer is reply::no_answer with errc::no_reply or errc::cancelled. What the
/// server gave by then is not dropped: a wait is ended on the server (CLIENT UNBLOCK), and its reply read. The last
/// argument of the command is its time-out in seconds, "0" for ever; who cannot end a wait on the server may put shorter
/// ones in its place, one after the other.
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

/// Says what became of a posted command: it notes the answer in a receipt when it reads it, or that there will be none;
/// collect() reads what has come by now, and waits for nothing.
template <class C>
concept confirming_connection = posting_connection<C> &&
    requires(C& c, const command& cmd, std::shared_ptr<receipt> wanted) {
    { c.post(cmd, wanted) } -> std::same_as<bool>;
    { c.collect() } -> std::same_as<void>;
};

/// Hears what is published on any number of channels, on one socket beside those of the commands. A connection that broke is
/// made again by itself, as long as somebody has the subscription; equal channels may share one. Does not wait for the server.
template <class C>
concept subscribing_connection = connection<C> && requires(C& c, std::string_view channel) {
    { c.subscribe(channel) } -> std::same_as<std::shared_ptr<subscription>>;
};

/// Goes on listening to a wait that was given up: where its answer may still come, `late` becomes a receipt for that. Who is
/// handed a lock while giving up can pass it on then.
template <class C>
concept attentive_connection = waiting_connection<C> && confirming_connection<C> &&
    requires(C& c, const command& cmd, clock::time_point deadline, std::stop_token stop,
             std::shared_ptr<receipt>& late) {
    { c.wait(cmd, deadline, stop, late) } -> std::same_as<reply>;
};

/// Has a place for what must live as long as the connection: a companion, its last member.
template <class C>
concept hosting_connection = connection<C> && requires(C& c) {
    { c.host() } -> std::same_as<companion&>;
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

namespace detail {

// Whether these were meant as ours: clients have things of their own by these names, above all the name of a
// host.
template <class C>
concept means_our_pipeline = requires(C& c, std::span<command> commands, std::span<reply> replies) {
    c.pipeline(commands, replies);
}
|| requires(C& c, std::span<command> commands) { c.pipeline(commands); };
template <class T>
concept is_a_companion = std::same_as<std::remove_cvref_t<T>, companion>;
template <class C>
concept means_our_host = requires(C& c) {
    { c.host() } -> is_a_companion;
}
|| requires(C& c) {
    { *c.host() } -> is_a_companion;
};

}  // namespace detail

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
        !detail::means_our_pipeline<C> || pipelining_connection<C>,
        "pipeline must be `void pipeline(std::span<const distlock::command>, std::span<distlock::reply>)`");
    static_assert(!detail::means_our_host<C> || hosting_connection<C>,
                  "host must be `distlock::companion& host()`, and return the same one at every call");
    static_assert(
        !requires(C & c, const command& cmd) { c.post(cmd); } || posting_connection<C>,
        "post must be `bool post(const distlock::command&)`");
    static_assert(
        !requires(C & c, const command& cmd) { c.wait(cmd, clock::time_point{}, std::stop_token{}); } ||
            waiting_connection<C>,
        "wait must be `distlock::reply wait(const distlock::command&, distlock::clock::time_point, "
        "std::stop_token)`");
    static_assert(
        !requires(C & c) { c.subscribe(std::string_view{}); } || subscribing_connection<C>,
        "subscribe must be `std::shared_ptr<distlock::subscription> subscribe(std::string_view channel)`");
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

template <pipelining_connection C>
void call_all(C& c, std::span<const command> commands, std::span<reply> replies) noexcept {
    const auto nothing_but = [&](const char* why) {
        std::generate(replies.begin(), replies.end(), [&] { return reply::no_answer(errc::no_reply, why); });
    };
    nothing_but("not filled");  // what an earlier call left there must not be taken for an answer
    try {
        try {
            c.pipeline(commands, replies);
        } catch (const std::exception& e) {
            std::fill(replies.begin(), replies.end(), reply::no_answer(errc::no_reply, printable(e.what())));
        }
    } catch (...) {
        nothing_but("client threw");
    }
}

inline bool lacks_script(const command& cmd, const reply& answer) noexcept {
    return cmd.is_script() && answer.is(reply_kind::error) && answer.text().starts_with("NOSCRIPT");
}

// Effects: executes again, with their bodies, the scripts that the server lacked.
template <pipelining_connection C>
void call_with_bodies(C& c, std::span<const command> commands, std::span<reply> replies) noexcept {
    std::vector<command> full;
    std::vector<reply> answers;
    try {
        for (std::size_t i = 0; i < commands.size(); ++i) {
            if (lacks_script(commands[i], replies[i])) full.push_back(commands[i].with_body());
        }
        if (full.empty()) return;
        answers.resize(full.size());
    } catch (const std::exception&) {  // no memory: the way that needs none
        for (std::size_t i = 0; i < commands.size(); ++i) {
            if (lacks_script(commands[i], replies[i])) replies[i] = call(c, commands[i].with_body());
        }
        return;
    }
    call_all(c, full, answers);
    auto next = answers.begin();
    for (std::size_t i = 0; i < commands.size(); ++i) {
        if (lacks_script(commands[i], replies[i])) replies[i] = std::move(*next++);
    }
}

}  // namespace detail

/// Effects: executes `cmd`; when the server answers NOSCRIPT, executes it again with the script's body.
/// Returns: the last reply.
/// Round trips: one; two when the server does not have the script yet.
template <connection C>
reply execute(C& c, const command& cmd) noexcept {
    reply first = detail::call(c, cmd);
    if (!detail::lacks_script(cmd, first)) return first;
    return detail::call(c, cmd.with_body());
}

/// Effects: posts `cmd` where the connection can.
/// Returns: whether it was handed to the system. An exception counts as not.
template <connection C>
bool post(C& c, const command& cmd) noexcept {
    if constexpr (posting_connection<C>) {
        try {
            return c.post(cmd);
        } catch (...) {
            return false;
        }
    }
    return false;
}

/// Effects: executes `cmd`, which may block on the server, until it answers, `deadline` passes or `stop` is requested.
/// `late` becomes a receipt where the connection can hear what comes after that, and it may.
template <waiting_connection C>
reply wait(C& c, const command& cmd, clock::time_point deadline, const std::stop_token& stop,
           [[maybe_unused]] std::shared_ptr<receipt>& late) noexcept {
    try {
        try {
            if constexpr (attentive_connection<C>) {
                return c.wait(cmd, deadline, stop, late);
            } else {
                return c.wait(cmd, deadline, stop);
            }
        } catch (const std::exception& e) {
            return reply::no_answer(errc::no_reply, detail::printable(e.what()));
        }
    } catch (...) {
        return reply::no_answer(errc::no_reply, "client threw");
    }
}

/// Effects: executes all of `commands`, in one pipeline where the connection can, else one after the other.
/// Those that the server answers with NOSCRIPT are executed again with the script's body; in a pipeline that
/// is after all others.
/// Preconditions: as many replies as commands.
/// Round trips: one, two when the server lacks a script; without a pipeline so many for each command.
template <connection C>
void execute_all(C& c, std::span<const command> commands, std::span<reply> replies) noexcept {
    if constexpr (pipelining_connection<C>) {
        detail::call_all(c, commands, replies);
        detail::call_with_bodies(c, commands, replies);
    } else {
        for (std::size_t i = 0; i < commands.size(); ++i) replies[i] = execute(c, commands[i]);
    }
}

}  // namespace distlock
