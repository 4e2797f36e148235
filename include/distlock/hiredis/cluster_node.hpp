// One node of a Cluster.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <stop_token>
#include <utility>

#include <distlock/base/clock.hpp>
#include <distlock/hiredis/handshake.hpp>
#include <distlock/hiredis/node_pool.hpp>
#include <distlock/hiredis/secure.hpp>
#include <distlock/net/node_address.hpp>
#include <distlock/net/uri.hpp>

namespace distlock::detail {

/// One node, and the sockets to it.
struct cluster_node {
    cluster_node(uri where, std::shared_ptr<const secure_layer> secure)
        : at{where.host, where.port},
          pool(std::move(where), std::move(secure), superseded.get_token(), handshake::role::cluster_node) {}
    /// Returns: whether it is in use, and may be of the Cluster.
    bool may_be_asked() const noexcept { return !superseded.stop_requested() && !of_no_cluster; }
    /// Something was heard from it.
    void answered() noexcept {
        silent = false;
        passed_over_until = clock::time_point{};
    }
    /// Returns: whether nothing was heard from it since it was silent.
    bool unheard() const noexcept { return silent || passed_over_until.load() != clock::time_point{}; }

    /// Effects: pipelines that pass it over do so for a while more.
    void silent_as_before() noexcept {
        if (passed_over_until.load() != clock::time_point{}) pass_over();
    }
    void pass_over() noexcept { passed_over_until = clock::now() + passed_over; }

    // A node of which nobody wants anything for so long is waited for once more.
    static constexpr std::chrono::seconds passed_over{2};

    const node_address at;
    // It has ended a socket, or did not answer, and nothing was heard from it since.
    std::atomic<bool> silent = false;
    // It said so, the last time it was asked for the map: another node is asked instead. Its sockets are
    // refused by the handshake.
    std::atomic<bool> of_no_cluster = false;
    // It has answered neither a pipeline nor a question since. Until then no pipeline waits for it.
    std::atomic<clock::time_point> passed_over_until{};
    std::atomic<bool> probed = false;  // a thread asks it just now
    std::stop_source superseded;
    node_pool pool;
};

}  // namespace distlock::detail
