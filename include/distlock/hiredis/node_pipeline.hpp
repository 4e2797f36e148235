// The commands of a pipeline that go to one node of a Cluster, and their replies.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <distlock/base/error.hpp>
#include <distlock/hiredis/cluster_node.hpp>
#include <distlock/hiredis/node_pool.hpp>
#include <distlock/wire/command.hpp>
#include <distlock/wire/reply.hpp>

namespace distlock::detail {

/// Each command has ASKING before it, or none has.
struct node_pipeline {
    std::shared_ptr<cluster_node> to;
    bool asking;
    std::vector<std::size_t> which;        // the caller's number of each, but for ASKING
    std::vector<std::size_t> places = {};  // where each stands in `commands`
    std::vector<command> commands = {};
    std::vector<reply> replies = {};
    bool sent = true;

    void add(std::size_t i, const command& cmd) {
        if (asking && !cmd.bound_to_previous())
            commands.push_back(command{argument("ASKING")}.until(cmd.deadline()));
        which.push_back(i);
        places.push_back(commands.size());
        commands.push_back(cmd);
    }
    void distribute(std::span<reply> all) {
        for (std::size_t k = 0; k < which.size(); ++k) all[which[k]] = std::move(replies[places[k]]);
    }
    void mark_unsent(const reply& why) {
        sent = false;
        std::fill(replies.begin(), replies.end(), why);
    }
    void deliver() noexcept {
        if (!sent) return;
        try {
            to->pool.pipeline(commands, replies);
        } catch (...) {
            for (reply& one : replies) one = reply::no_answer(errc::no_reply, "no memory");
        }
    }
};

}  // namespace distlock::detail
