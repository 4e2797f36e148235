// distlock::cluster_connection: a connection to a Redis Cluster, whose slots move.
//
//   class cluster_connection {
//     explicit cluster_connection(where);
//         // "redis+cluster://user:password@n1:7000,n2:7000" or a cluster_uri
//     cluster_connection(where, shared_ptr<const secure_layer>);   // rediss+cluster://
//     void on_master_change(std::weak_ptr<master_listener>);  void follow();
//     and what hiredis_connection has
//   };
#pragma once

#include <chrono>
#include <memory>
#include <span>
#include <string_view>
#include <utility>

#include <distlock/detail/concat.hpp>
#include <distlock/detail/separate.hpp>
#include <distlock/hiredis/connection_pool.hpp>
#include <distlock/hiredis/secure.hpp>
#include <distlock/net/cluster_uri.hpp>
#include <distlock/net/connection.hpp>
#include <distlock/net/master_listener.hpp>
#include <distlock/net/receipt.hpp>
#include <distlock/net/service_registry.hpp>
#include <distlock/net/subscription.hpp>
#include <distlock/wire/channel_kind.hpp>
#include <distlock/wire/command.hpp>
#include <distlock/wire/reply.hpp>

namespace distlock {

namespace detail {
/// Throws: as the constructors of cluster_connection.
template <class Lazy>
std::unique_ptr<connection_pool> make_cluster_pool(const cluster_uri& where,
                                                   std::shared_ptr<const secure_layer> secure);
}  // namespace detail

/// A connection to the masters of a Cluster, for any number of threads: to each of them what
/// hiredis_connection is to one server. The nodes of the URI are asked which nodes there are; one that
/// answers is enough. A command goes to the node that has the slot of its key. Where a node says that
/// the slot is another's (MOVED, ASK), that nobody has it (CLUSTERDOWN), that it is on its way
/// (TRYAGAIN), or where nothing could be sent, the command goes where it belongs now: five times at
/// most, and not beyond its deadline. It was not executed until then. A command that is not answered may
/// have been, and is not sent again.
///
/// The map of slots is asked for again when it was wrong or a node did not answer: by one caller at a time,
/// and once in 100 ms at most. Nodes that left it are closed.
///
/// When a master has left the map, a replica took its place: all locks that are held in its slots are renewed
/// there, in one pipeline. Replication is asynchronous: what did not get there is lost, and its owner is told
/// then. A slot that moves to another master takes its locks along, and nothing is renewed for that.
///
/// The host and the port of a node are what the Cluster says; they get the URI's user and password, over TLS
/// once their certificate was verified.
///
/// Messages need Redis 7 or Valkey (SSUBSCRIBE): with an older server waiters get the lock in their turn, and
/// find that by looking.
///
/// After fork() the child can only destroy it.
class cluster_connection {
  public:
    /// Waiters of a lock listen on a channel of its own slot.
    static constexpr channel_kind channels = channel_kind::sharded;

    /// Effects: none on the network: the first command connects.
    /// Throws: error(errc::invalid_uri), also for a secure_layer without rediss+cluster://;
    /// error(errc::tls_unavailable) for rediss+cluster:// without a secure_layer.
    // Templates: a program that makes no such connection compiles none of its code.
    template <class Lazy = void>
    explicit cluster_connection(std::string_view where) : cluster_connection(where, nullptr) {}
    template <class Lazy = void>
    explicit cluster_connection(const char* where) : cluster_connection(detail::text_or_none(where)) {}
    template <class Lazy = void>
    explicit cluster_connection(const cluster_uri& where) : cluster_connection(where, nullptr) {}
    template <class Lazy = void>
    cluster_connection(std::string_view where, std::shared_ptr<const secure_layer> secure)
        : cluster_connection(parse_cluster_uri(where), std::move(secure)) {}
    template <class Lazy = void>
    cluster_connection(const char* where, std::shared_ptr<const secure_layer> secure)
        : cluster_connection(detail::text_or_none(where), std::move(secure)) {}
    template <class Lazy = void>
    cluster_connection(const cluster_uri& where, std::shared_ptr<const secure_layer> secure)
        : pool_(detail::make_cluster_pool<Lazy>(where, std::move(secure))) {}

    cluster_connection(const cluster_connection&) = delete;
    cluster_connection& operator=(const cluster_connection&) = delete;
    ~cluster_connection() = default;

    /// Effects: executes one command on the node of its key, as hiredis_connection::execute() there.
    /// Returns: the reply. A redirection that nobody follows any more is not_sent with errc::unavailable.
    /// Round trips: one; for each redirection one more. Now and then one for a new map. On a new socket two
    /// more than those of hiredis_connection, or three, to find out whether the server is of a Cluster.
    reply execute(const command& cmd) { return pool_->execute(cmd); }

    /// Effects: executes a write and, right behind it on the same socket, the command that waits for its
    /// replicas; otherwise as execute().
    /// Round trips: as execute(); the server answers when the replicas have it, or its time is up.
    acknowledged_reply execute_acknowledged(const command& write, const command& wait) {
        return pool_->execute_acknowledged(write, wait);
    }

    /// Effects: sends each command to the node of its key, to all nodes at once, one pipeline for each;
    /// as hiredis_connection::pipeline() there. Redirected commands are sent again in the same way.
    /// Returns when the last node has answered, or its time is over. A node that did not answer a
    /// pipeline is sent no other, and is not waited for, until it has answered a PING, or nobody wanted
    /// anything of it for two seconds.
    /// Preconditions: as many replies as commands.
    /// Throws: std::bad_alloc; no reply counts then.
    void pipeline(std::span<const command> commands, std::span<reply> replies) {
        pool_->pipeline(commands, replies);
    }

    /// Effects: sends one command to the node of its key and does not wait for its reply, which is noted in
    /// `wanted` when it is read, if there is one. A redirection is noted as it is: nobody follows it.
    /// Returns: whether it was handed to the system.
    bool post(const command& cmd, std::shared_ptr<receipt> wanted = nullptr) {
        return pool_->post(cmd, std::move(wanted));
    }

    /// Effects: reads the replies to posted commands that have come, closes surplus sockets,
    /// and waits for nothing.
    void collect() { pool_->collect(); }

    /// Effects: from now on hears what is published to the shard of `channel`, as long as somebody has what
    /// is returned, wherever its slot moves. Waits for nothing: the first thread that waits on a listener
    /// connects. This must outlive every such wait.
    /// Throws: error(errc::wrong_process), std::system_error when there is no descriptor to be
    /// had, std::bad_alloc.
    std::shared_ptr<subscription> subscribe(std::string_view channel) { return pool_->subscribe(channel); }

    /// Effects: `who` is told which slots have another master, as long as it lives, when
    /// theirs has left the map.
    /// Throws: std::bad_alloc.
    void on_master_change(std::weak_ptr<master_listener> who) { pool_->on_master_change(std::move(who)); }

    /// Effects: asks for the map, if that is due: it was found wrong, or a master has ended a socket or did
    /// not answer, and nothing was heard from it since; then twice a second. Else waits for nothing. The
    /// thread that renews calls it ten times a second as long as a lock is held.
    void follow() { pool_->follow(); }

    /// Returns: a place for what uses this connection until it ends.
    service_registry& services() noexcept { return services_; }

    /// Returns: the URI without its password: equal texts lead to the same locks.
    std::string_view identity() const noexcept { return pool_->identity(); }

    /// Returns: how long execute() waits for a node's reply at most.
    std::chrono::milliseconds command_timeout() const noexcept { return pool_->command_timeout(); }
    /// Returns: how long execute() takes at most until a command is sent.
    std::chrono::milliseconds connect_timeout() const noexcept { return pool_->connect_timeout(); }

  private:
    const std::unique_ptr<detail::connection_pool> pool_;
    service_registry services_;  // last: what lives there uses the others until it ends
};

}  // namespace distlock

#ifndef DISTLOCK_SEPARATE_COMPILATION
#include <distlock/hiredis/cluster_connection_impl.hpp>
#endif
