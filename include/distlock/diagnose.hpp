// For operators, and for services that start: what a server is like for locks.
//
//   diagnosis diagnose(connection, {.prefix = "orders:", .lease = 30s});
//
//   std::cout << distlock::diagnose(redis, {.prefix = "orders:"});
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <exception>
#include <memory>
#include <new>
#include <span>
#include <utility>
#include <vector>

#include <distlock/base/clock.hpp>
#include <distlock/base/token.hpp>
#include <distlock/detail/stop_token.hpp>
#include <distlock/net/any_connection.hpp>
#include <distlock/net/connection.hpp>
#include <distlock/net/subscription.hpp>
#include <distlock/wire/command.hpp>
#include <distlock/wire/diagnosis.hpp>
#include <distlock/wire/examination.hpp>
#include <distlock/wire/reply.hpp>

namespace distlock {

namespace detail {

inline wall_time our_wall_time() noexcept {
    return std::chrono::time_point_cast<std::chrono::microseconds>(std::chrono::system_clock::now());
}

template <connection C>
void ask_all(C& c, std::span<const command> commands, std::span<reply> replies) {
    if constexpr (pipelining_connection<C>) {
        distlock::execute_all(c, commands, replies);
    } else {
        // One time-out is enough.
        for (std::size_t i = 0; i < commands.size(); ++i) {
            replies[i] = i > 0 && !replies[i - 1].answered()
                             ? reply::not_sent(replies[i - 1].cause(), replies[i - 1].text())
                             : distlock::execute(c, commands[i]);
        }
    }
}

template <subscribing_connection C>
void try_to_subscribe(C& c, examination& asked) {
    std::chrono::milliseconds patience{500};
    if constexpr (timed_connection<C>) {
        constexpr std::chrono::milliseconds longest{std::chrono::minutes{1}};
        patience = 2 * std::min<std::chrono::milliseconds>(std::as_const(c).command_timeout(), longest);
    }
    try {
        const std::shared_ptr<subscription> messages = c.subscribe(asked.channel());
        if (!messages) return asked.on_subscribed(false, "the connection has none");
        const auto until = clock::now() + patience;
        listener here(messages, {});
        const auto decided = [&] { return messages->in_force() || messages->refused(); };
        while (!decided() && clock::now() < until) here.wait(until, std::stop_token());
        asked.on_subscribed(messages->in_force(),
                            messages->refused() ? "refused, or its socket ended" : "no answer in time");
    } catch (const std::bad_alloc&) {
        throw;
    } catch (const std::exception& e) {
        asked.on_subscribed(false, e.what());
    }
}

}  // namespace detail

/// Effects: asks the server that the connection leads to for its role, its settings and its clock, and what
/// the user is permitted. Leaves nothing on it: no lock is taken, no key written. If the server refuses ACL
/// DRYRUN, tries the permissions by commands that do nothing, on a key and a channel of its own; the server's
/// ACL LOG then has an entry for each that is refused. A connection that can subscribe subscribes to that
/// channel, on its socket for messages; the subscription ends with the connection at the latest. Of a Cluster
/// one node is asked: the one that has the slot of a key that begins with `options.prefix`.
/// Returns: the findings. A question that the server refuses is severity::unknown. If the server cannot be
/// reached, does not answer, or refuses the password, there is one finding, severity::problem; so there is
/// where the connection sends nothing just then, since a replica or a full server turned its sockets away.
/// Throws: std::bad_alloc; error(errc::invalid_name) for a prefix longer than 4055 bytes, or one with a '}'
/// but no `{hash tag}`; error(errc::no_entropy).
/// Round trips: three at most over a connection with pipelines, else one for each of some fifty questions;
/// and one for the subscription, which is waited for as long as two commands may take, two minutes at most;
/// for 500 ms over a connection that does not say how long that is. A server that does not answer is asked
/// nothing more.
template <connection Conn>
diagnosis diagnose(Conn& connection, const diagnose_options& options = {}) {
    detail::examination asked(options,
                              {.subscribe = subscribing_connection<Conn>,
                               .shard = sharded_connection<Conn>,
                               .follow = following_connection<Conn>},
                              token::generate().view());
    std::vector<reply> replies;
    for (auto commands = asked.questions(); !commands.empty(); commands = asked.questions()) {
        replies.assign(commands.size(), reply());
        const auto before = detail::our_wall_time();
        detail::ask_all(connection, commands, replies);
        asked.on_answers(replies, before, detail::our_wall_time());
    }
    if constexpr (subscribing_connection<Conn>) {
        if (asked.admitted()) detail::try_to_subscribe(connection, asked);
    }
    return asked.conclude();
}

}  // namespace distlock
