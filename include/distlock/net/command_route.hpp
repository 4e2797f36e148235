// The way of one command through a Cluster: what to do next, by what the last node said.
//
//   class command_route {
//     step on_answer(const reply&, const node_address& from, time_point now);
//   };
//
//   for (command_route route;;) {
//     reply answer = send(node, asking);
//     const auto next = route.on_answer(answer, node, now());
//     if (next.what == command_route::kind::done) return concluded(answer, node);
//     ...
//   }
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>
#include <utility>

#include <distlock/base/clock.hpp>
#include <distlock/base/error.hpp>
#include <distlock/net/node_address.hpp>
#include <distlock/net/redirection.hpp>
#include <distlock/wire/reply.hpp>
#include <distlock/wire/server_error.hpp>

namespace distlock::detail {

/// Holds no socket, reads no clock. A command that was redirected, or that no byte was sent of, was not
/// executed: it may be sent to another node. One that was not answered may have been, and is not sent again.
class command_route {
  public:
    /// So often a command is sent again.
    static constexpr int max_hops = 5;

    enum class kind {
        done,     ///< the answer is the caller's, once it is concluded()
        follow,   ///< send it to `to`
        reroute,  ///< get a new map, and send it to the node that it names, unless that is `from` again
        wait,     ///< at `at`, send it to the node that the map names
    };
    struct step {
        kind what = kind::done;
        std::optional<node_address> to = {};      ///< of follow
        bool asking = false;                      ///< of follow: behind ASKING
        clock::time_point at = {};                ///< of wait
        std::optional<std::uint16_t> moved = {};  ///< of follow: the slot is that node's from now on
        bool invalidates = false;                 ///< the map is wrong, or may be
    };

    step on_answer(const reply& answer, const node_address& from, clock::time_point now) {
        step next = judge(answer, from, now);
        if (next.what != kind::done && ++hops_ > max_hops) return {.invalidates = true};
        return next;
    }

  private:
    static constexpr std::chrono::milliseconds first_pause{10};
    static constexpr std::chrono::milliseconds longest_pause{80};

    step judge(const reply& answer, const node_address& from, clock::time_point now) {
        // The node may be gone for good: the next caller is to know.
        if (answer.is(reply_kind::no_answer)) return {.invalidates = answer.cause() != errc::cancelled};
        if (answer.is(reply_kind::not_sent)) return on_not_sent(answer.cause());
        if (!answer.is(reply_kind::error)) return {};
        if (auto there = read_redirection(answer.said(), from)) {
            const bool moved = there->what == redirection::kind::moved;
            if (!there->to) return {.what = kind::reroute, .invalidates = true};
            return {.what = kind::follow,
                    .to = std::move(there->to),
                    .asking = !moved,
                    .moved = moved ? std::optional(there->slot) : std::nullopt,
                    .invalidates = moved};
        }
        const auto word = first_word(unwrap_script_error(answer.said()));
        if (word == "TRYAGAIN") return pause(now, false);
        if (word == "CLUSTERDOWN") return pause(now, true);
        if (says_role_changed(answer.said())) return {.what = kind::reroute, .invalidates = true};
        return {};
    }

    // The caller knows better how long to try the same node.
    static step on_not_sent(errc cause) noexcept {
        const bool says_nothing_of_the_node = cause == errc::cancelled || cause == errc::wrong_process;
        if (says_nothing_of_the_node) return {};
        return {.what = kind::reroute, .invalidates = true};
    }

    // The server is between two nodes, or without one.
    step pause(clock::time_point now, bool invalidates) noexcept {
        const auto span = pause_;
        pause_ = std::min<clock::duration>(2 * pause_, longest_pause);
        return {.what = kind::wait, .at = now + span, .invalidates = invalidates};
    }

    int hops_ = 0;
    clock::duration pause_ = first_pause;
};

/// Returns: what the caller is told of an answer that nothing follows. A redirection that is not followed any
/// more is none: the command was not executed.
inline reply concluded(reply answer, const node_address& from) {
    if (!answer.is(reply_kind::error) || !read_redirection(answer.said(), from)) return answer;
    return reply::not_sent(errc::unavailable, "the cluster redirects again and again: " + answer.text());
}

}  // namespace distlock::detail
