// any_connection without a pipeline, and for a server that lacks a script; compiled once where a program asks
// for that.
#pragma once

#include <cstddef>
#include <exception>
#include <span>
#include <utility>
#include <vector>

#include <distlock/base/error.hpp>
#include <distlock/detail/separate.hpp>
#include <distlock/net/any_connection.hpp>
#include <distlock/net/connection.hpp>
#include <distlock/wire/command.hpp>
#include <distlock/wire/reply.hpp>

namespace distlock {

namespace detail {

inline bool has_bound_wait(std::span<const command> commands, std::size_t i) noexcept {
    return i + 1 < commands.size() && commands[i + 1].bound_to_previous();
}

}  // namespace detail

[[gnu::cold]] DISTLOCK_INLINE void any_connection::execute_all(std::span<const command> commands,
                                                               std::span<reply> replies) noexcept {
    if (!can.pipeline) return one_by_one(commands, replies);
    call_all(commands, replies);
    try {
        call_with_bodies(commands, replies);
    } catch (const std::exception&) {  // no memory: the way that needs none
        for (std::size_t i = 0; i < commands.size(); ++i) {
            if (!detail::lacks_script(commands[i], replies[i])) continue;
            replies[i] = execute(commands[i].with_body());
            if (detail::has_bound_wait(commands, i))
                replies[i + 1] = reply::no_answer(errc::no_reply, "no memory");
        }
    }
}

DISTLOCK_INLINE acknowledged_reply any_connection::execute_acknowledged(const command& write,
                                                                        const command& wait) noexcept {
    if (can.acknowledge) {
        auto first = call_acknowledged(write, wait);
        if (!detail::lacks_script(write, first.answer)) return first;
        return call_acknowledged(write.with_body(), wait);
    }
    const command both[] = {write, wait};
    reply replies[2];
    execute_all(both, replies);
    return {std::move(replies[0]), std::move(replies[1])};
}

// A WAIT is never sent alone: on another socket it would be about another write.
[[gnu::cold]] DISTLOCK_INLINE void any_connection::one_by_one(std::span<const command> commands,
                                                              std::span<reply> replies) noexcept {
    for (std::size_t i = 0; i < commands.size(); ++i) {
        if (!detail::has_bound_wait(commands, i)) {
            replies[i] = execute(commands[i]);
        } else if (can.acknowledge) {
            auto both = execute_acknowledged(commands[i], commands[i + 1]);
            replies[i] = std::move(both.answer);
            replies[++i] = std::move(both.replicated);
        } else {
            replies[i] = execute(commands[i]);
            replies[++i] = reply::not_sent(errc::no_reply, "no pipeline");
        }
    }
}

[[gnu::cold]] DISTLOCK_INLINE void any_connection::call_with_bodies(std::span<const command> commands,
                                                                    std::span<reply> replies) {
    std::vector<command> full;
    for (std::size_t i = 0; i < commands.size(); ++i) {
        if (!detail::lacks_script(commands[i], replies[i])) continue;
        full.push_back(commands[i].with_body());
        if (detail::has_bound_wait(commands, i)) full.push_back(commands[i + 1]);
    }
    if (full.empty()) return;
    std::vector<reply> answers(full.size());
    call_all(full, answers);
    auto next = answers.begin();
    for (std::size_t i = 0; i < commands.size(); ++i) {
        if (!detail::lacks_script(commands[i], replies[i])) continue;
        replies[i] = std::move(*next++);
        if (detail::has_bound_wait(commands, i)) replies[i + 1] = std::move(*next++);
    }
}

}  // namespace distlock
