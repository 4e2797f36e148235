// What a connection must be: anything that executes one command, and what it may be besides.
//
//   concept connection               c.execute(cmd) -> reply, or c(cmd) -> reply       (a lambda will do)
//   concept pipelining_connection    and c.pipeline(commands, replies)
//   concept acknowledging_connection and c.execute_acknowledged(write, wait) -> acknowledged_reply
//   concept posting_connection       and c.post(cmd) -> bool
//   concept confirming_connection    and c.post(cmd, receipt) -> bool, c.collect()
//   concept subscribing_connection   and c.subscribe(channel) -> std::shared_ptr<subscription>
//   concept sharded_connection       and C::channels == channel_kind::sharded
//   concept following_connection     and c.on_master_change(listener), c.follow()
//   concept service_hosting_connection       and c.services() -> service_registry&
//   concept timed_connection         and c.command_timeout() -> milliseconds; perhaps c.connect_timeout(),
//       likewise
//   concept identified_connection    and c.identity() -> string_view
//   check_connection<C>()            says in a sentence what a type lacks
//   reply execute(C&, const command&)  one command, with a script's body sent when the server lacks it
//   bool post(C&, const command&)                 without waiting for its reply, where the connection can
#pragma once

#include <chrono>
#include <concepts>
#include <exception>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <distlock/base/error.hpp>
#include <distlock/detail/printable.hpp>
#include <distlock/net/master_listener.hpp>
#include <distlock/net/receipt.hpp>
#include <distlock/net/service_registry.hpp>
#include <distlock/net/subscription.hpp>
#include <distlock/wire/channel_kind.hpp>
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
///
/// It may give up at the command's deadline and at its stop request. A command given up for a stop
/// request is reply::no_answer(errc::cancelled), or not_sent with that cause; errc::cancelled is said for
/// no other reason. Where stop requests are not honoured, lock(stop) returns when the command in flight
/// is answered or given up.
template <class C>
concept connection = executes_a_command<C> || is_called_with_a_command<C>;

/// Executes many commands in one go: sends all of them on one socket, in order, without waiting for replies
/// in between, and fills the replies in that order; there are as many replies as commands. A command without
/// an answer is reply::not_sent or reply::no_answer, each command for itself: not_sent promises that no byte
/// of this one was sent. An exception out of it counts as no answer to any.
template <class C>
concept pipelining_connection = connection<C> &&
    requires(C& c, std::span<const command> commands, std::span<reply> replies) {
    { c.pipeline(commands, replies) } -> std::same_as<void>;
};

/// Executes a write and, right behind it on the same socket, the command that waits for its replicas.
/// Deadline and stop request end it as they end execute(). In pipeline(), too, a command that is bound to the
/// one before it goes wherever that one goes. A connection that can only pipeline does both in a pipeline.
template <class C>
concept acknowledging_connection = connection<C> &&
    requires(C& c, const command& write, const command& wait) {
    { c.execute_acknowledged(write, wait) } -> std::same_as<acknowledged_reply>;
};

/// Can send a command without waiting for its reply. Posted commands are sent in order, before any later
/// execute of the same thread.
/// Returns: whether it was handed to the system.
template <class C>
concept posting_connection = connection<C> && requires(C& c, const command& cmd) {
    { c.post(cmd) } -> std::same_as<bool>;
};

/// Says what became of a posted command: it notes the answer in a receipt when it reads it, or that there
/// will be none; collect() reads what has come by now, and waits for nothing.
template <class C>
concept confirming_connection = posting_connection<C> &&
    requires(C& c, const command& cmd, std::shared_ptr<receipt> wanted) {
    { c.post(cmd, wanted) } -> std::same_as<bool>;
    { c.collect() } -> std::same_as<void>;
};

/// Subscribes to any number of channels. subscribe() does not wait for the server; it may return null where
/// there is nothing to subscribe to. The connection calls confirm() of the subscription each time the server
/// has subscribed it, refuse() when it did not, and deliver() for each message. When its socket broke, it
/// subscribes again on a new one, as long as somebody has the subscription. Calls with equal channels may
/// return one subscription; those of a sharded_connection do, so that each message goes to one subscription.
/// Messages are read on a thread of the connection's own, or by the threads that wait (message_reader); in
/// the latter case the connection must outlive every wait.
template <class C>
concept subscribing_connection = connection<C> && requires(C& c, std::string_view channel) {
    { c.subscribe(channel) } -> std::same_as<std::shared_ptr<subscription>>;
};

/// Leads to a Cluster. It subscribes by SSUBSCRIBE on the node that has the slot of the channel, and hears
/// what SPUBLISH sends there.
template <class C>
concept sharded_connection = subscribing_connection<C> && requires {
    requires C::channels == channel_kind::sharded;
};

/// Leads to whatever server is the master, and calls master_changed(), or master_changed_of(), of its
/// listeners, as long as they live, when another server became the master. By then every command that was
/// sent to the old master is answered or given up, and the connection reads nothing from it any more.
/// follow() looks for signs of another master; only if it finds one, it asks which server that is, for no
/// longer than a command may take. The background calls follow() about ten times a second while it has work
/// scheduled, such as a renewal: between renewals an owner sends nothing that would show a new master.
template <class C>
concept following_connection = connection<C> && requires(C& c, std::weak_ptr<master_listener> who) {
    { c.on_master_change(who) } -> std::same_as<void>;
    { c.follow() } -> std::same_as<void>;
};

/// Has a place for what must live as long as the connection: a service_registry, its last member.
template <class C>
concept service_hosting_connection = connection<C> && requires(C& c) {
    { c.services() } -> std::same_as<service_registry&>;
};

/// Says how long it waits for an answer at most. A lease must be longer. Where it has connect_timeout(), that
/// is how long it takes at most until a command is sent.
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

// Whether these were meant as ours: clients have things of their own by these names.
template <class C>
concept means_our_pipeline = requires(C& c, std::span<command> commands, std::span<reply> replies) {
    c.pipeline(commands, replies);
}
|| requires(C& c, std::span<command> commands) { c.pipeline(commands); }
|| requires(C& c, const std::vector<command>& commands, std::vector<reply>& replies) {
    c.pipeline(commands, replies);
};
template <class T>
concept is_a_service_registry = std::same_as<std::remove_cvref_t<T>, service_registry>;
template <class C>
concept means_our_services = requires(C& c) {
    { c.services() } -> is_a_service_registry;
}
|| requires(C& c) {
    { *c.services() } -> is_a_service_registry;
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
    static_assert(
        !detail::means_our_services<C> || service_hosting_connection<C>,
        "services must be `distlock::service_registry& services()`, and return the same one at every call");
    static_assert(
        !requires(C & c, const command& cmd) { c.post(cmd); } || posting_connection<C>,
        "post must be `bool post(const distlock::command&)`");
    static_assert(
        !requires(C & c, const command& cmd, std::shared_ptr<receipt> wanted) { c.post(cmd, wanted); } ||
            confirming_connection<C>,
        "a connection that confirms what it posts has `bool post(const distlock::command&, "
        "std::shared_ptr<distlock::receipt>)`, `bool post(const distlock::command&)` and `void collect()`");
    static_assert(
        !requires(C & c, const std::string& channel) { c.subscribe(channel); } || subscribing_connection<C>,
        "subscribe must be `std::shared_ptr<distlock::subscription> subscribe(std::string_view channel)`");
    static_assert(
        !requires(C & c, const command& cmd) { c.execute_acknowledged(cmd, cmd); } ||
            acknowledging_connection<C>,
        "execute_acknowledged must be `distlock::acknowledged_reply execute_acknowledged(const "
        "distlock::command& write, const distlock::command& wait)`");
    static_assert(
        !requires(C & c, std::shared_ptr<master_listener> who) { c.on_master_change(who); } ||
            following_connection<C>,
        "a connection that follows its master has `void "
        "on_master_change(std::weak_ptr<distlock::master_listener>)` and `void follow()`");
    static_assert(
        !requires(C & c) { c.command_timeout(); } || timed_connection<C>,
        "command_timeout must be const, and return something that converts to std::chrono::milliseconds");
    static_assert(
        !requires(C & c) { c.connect_timeout(); } ||
            requires(const C& c) {
                { c.connect_timeout() } -> std::convertible_to<std::chrono::milliseconds>;
            },
        "connect_timeout must be const, and return something that converts to std::chrono::milliseconds");
    static_assert(
        !requires(C & c) { c.identity(); } || identified_connection<C>,
        "identity must be const, and return something that converts to std::string_view");
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
        for (reply& one : replies) one = reply::no_answer(errc::no_reply, why);
    };
    nothing_but("not filled");  // what an earlier call left there must not be taken for an answer
    try {
        try {
            c.pipeline(commands, replies);
        } catch (const std::exception& e) {
            for (reply& one : replies) one = reply::no_answer(errc::no_reply, printable(e.what()));
        }
    } catch (...) {
        nothing_but("client threw");
    }
}

template <acknowledging_connection C>
acknowledged_reply call_acknowledged(C& c, const command& write, const command& wait) noexcept {
    const auto neither = [](std::string why) {
        auto one = reply::no_answer(errc::no_reply, std::move(why));
        return acknowledged_reply{one, one};
    };
    try {
        try {
            return c.execute_acknowledged(write, wait);
        } catch (const std::exception& e) {
            return neither(printable(e.what()));
        }
    } catch (...) {
        return neither("client threw");
    }
}

/// Returns: what the connection says of its server; empty where it says nothing, or throws just now.
template <connection C>
std::string identity_of(const C& c) {
    try {
        if constexpr (identified_connection<C>) return std::string(std::string_view(c.identity()));
    } catch (const std::bad_alloc&) {
        throw;
    } catch (...) {
        // Then it has none, just now.
    }
    return {};
}

inline bool lacks_script(const command& cmd, const reply& answer) noexcept {
    return cmd.is_script() && answer.is(reply_kind::error) && answer.said().starts_with("NOSCRIPT");
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

namespace detail {

/// What a lock is made with in the place of a connection; says so in a sentence.
template <class C>
struct refused_connection {
    static_assert(
        connection<C>,
        "the first argument is no connection, or is const: make a distlock::hiredis_connection of the "
        "URI, and give that, then the name; check_connection<C>() says what your own one lacks");
    using type = C;
};

template <class C>
    requires(!connection<std::remove_reference_t<C>>)
using refused_connection_t = typename refused_connection<std::remove_reference_t<C>>::type;

}  // namespace detail

}  // namespace distlock
