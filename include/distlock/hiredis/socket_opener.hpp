// How a thread that reads from the nodes of a Cluster gets another socket without waiting for it.
#pragma once

#include <atomic>
#include <memory>
#include <stop_token>
#include <thread>
#include <utility>

#include <distlock/base/clock.hpp>
#include <distlock/detail/system.hpp>
#include <distlock/detail/system_io.hpp>
#include <distlock/hiredis/cluster_node.hpp>
#include <distlock/hiredis/cluster_nodes.hpp>
#include <distlock/hiredis/node_pool.hpp>
#include <distlock/hiredis/socket.hpp>
#include <distlock/hiredis/stream.hpp>

namespace distlock::detail {

/// A thread that connects to a node while another one goes on reading from the others. Where the map may be
/// wrong it is asked for first, and the socket has its time-out for itself.
template <class Lazy>
class socket_opener {
  public:
    /// `done` is set when it is.
    /// Throws: std::system_error.
    socket_opener(cluster_nodes<Lazy>& nodes, std::shared_ptr<cluster_node> to, wake_event& done) {
        const blocked_signals here;
        thread_ = std::jthread([this, &nodes, to = std::move(to), &done](const std::stop_token& stop) {
            open(nodes, to->pool, stop);
            over_ = true;
            done.set();
        });
    }

    bool over() const noexcept { return over_; }
    /// Preconditions: over(). Returns: the socket; null: the node was not reached.
    std::unique_ptr<stream> take() noexcept { return std::move(made_); }

  private:
    void open(cluster_nodes<Lazy>& nodes, node_pool& pool, const std::stop_token& stop) noexcept {
        try {
            const auto half = clock::now() + nodes.connect_timeout() / 2;
            nodes.refresh(cluster_nodes<Lazy>::when_running::wait, half, &stop);
            const wake_on_stop wake(stop);
            made_ = pool.connect(clock::now() + nodes.connect_timeout(), wake.fd());
        } catch (...) {
            // Memory or descriptors: there may be some later.
        }
    }

    std::unique_ptr<stream> made_;
    std::atomic<bool> over_ = false;
    std::jthread thread_;  // last: it uses the others, and is joined first
};

}  // namespace distlock::detail
