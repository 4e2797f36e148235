// distlock::sentinel_connection: a connection to whatever server Sentinels name as the master.
//
//   class sentinel_connection {
//     explicit sentinel_connection(where);
//         // "redis+sentinel://user:password@s1:26379,s2:26379/mymaster", or a sentinel_uri
//     sentinel_connection(where, shared_ptr<const secure_layer>);   // rediss+sentinel://
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
#include <distlock/net/connection.hpp>
#include <distlock/net/master_listener.hpp>
#include <distlock/net/receipt.hpp>
#include <distlock/net/sentinel_uri.hpp>
#include <distlock/net/service_registry.hpp>
#include <distlock/net/subscription.hpp>
#include <distlock/wire/command.hpp>
#include <distlock/wire/reply.hpp>

namespace distlock {

namespace detail {
/// Throws: as the constructors of sentinel_connection.
template <class Lazy>
std::unique_ptr<connection_pool> make_master_pool(const sentinel_uri& where,
                                                  std::shared_ptr<const secure_layer> secure);
}  // namespace detail

/// A connection to the master of a group of Sentinels, for any number of threads: to each master what
/// hiredis_connection is to one server.
///
/// All Sentinels are asked at once, for no longer than the connect and the command time-out together. More
/// than half of them decide; else the newest configuration does, and none that is older than the last that
/// was believed. Sentinels that others name are asked, too, beside those of the URI. Every new socket to a
/// master is asked for its role first; a service that refuses ROLE is taken at its word until it answers a
/// command with READONLY.
///
/// The Sentinels are asked again when the server says that it is no master (READONLY, MASTERDOWN, UNBLOCKED)
/// or loads its data, or does not answer: by one caller at a time, for whom the others wait until their
/// deadlines, and ten times a second at most. A command that was not executed goes to the new master then;
/// one that may have been is not sent again.
///
/// When another server is the master, all sockets to the old one end at once, whoever uses them; all locks
/// that are held are renewed on the new one, in one pipeline, and the waiting threads enter its queue.
/// Replication is asynchronous: what did not get there is lost, and its owner is told then.
///
/// Host and port of a master are what the Sentinels say. It gets the URI's user and password, over TLS once
/// its certificate was verified; the Sentinels get sentinel_user and sentinel_password.
///
/// After fork() the child can only destroy it.
class sentinel_connection {
  public:
    /// Effects: none on the network: the first command asks the Sentinels.
    /// Throws: error(errc::invalid_uri), also for a secure_layer without rediss+sentinel://;
    /// error(errc::tls_unavailable) for rediss+sentinel:// without a secure_layer.
    // Templates: a program that makes no such connection compiles none of its code.
    template <class Lazy = void>
    explicit sentinel_connection(std::string_view where) : sentinel_connection(where, nullptr) {}
    template <class Lazy = void>
    explicit sentinel_connection(const char* where) : sentinel_connection(detail::text_or_none(where)) {}
    template <class Lazy = void>
    explicit sentinel_connection(const sentinel_uri& where) : sentinel_connection(where, nullptr) {}
    template <class Lazy = void>
    sentinel_connection(std::string_view where, std::shared_ptr<const secure_layer> secure)
        : sentinel_connection(parse_sentinel_uri(where), std::move(secure)) {}
    template <class Lazy = void>
    sentinel_connection(const char* where, std::shared_ptr<const secure_layer> secure)
        : sentinel_connection(detail::text_or_none(where), std::move(secure)) {}
    template <class Lazy = void>
    sentinel_connection(const sentinel_uri& where, std::shared_ptr<const secure_layer> secure)
        : pool_(detail::make_master_pool<Lazy>(where, std::move(secure))) {}

    sentinel_connection(const sentinel_connection&) = delete;
    sentinel_connection& operator=(const sentinel_connection&) = delete;
    ~sentinel_connection() = default;

    /// Effects: executes one command on the master, as hiredis_connection::execute() there.
    /// Returns: the reply. Where no master is found, not_sent: "no Sentinel answers" and "no Sentinel knows
    /// that name" are two messages.
    /// Round trips: one; on a new socket one more than hiredis_connection, for ROLE. Two to the Sentinels
    /// when they are asked.
    reply execute(const command& cmd) { return pool_->execute(cmd); }

    /// Effects: executes a write and, right behind it on the same socket, the command that waits for its
    /// replicas; otherwise as execute().
    /// Round trips: as execute(); the server answers when the replicas have it, or its time is up.
    acknowledged_reply execute_acknowledged(const command& write, const command& wait) {
        return pool_->execute_acknowledged(write, wait);
    }

    /// Effects: executes all of `commands` in one pipeline on the master, as hiredis_connection::pipeline()
    /// there. Commands that were not executed since the master changed are sent again to the new one.
    /// Preconditions: as many replies as commands.
    /// Throws: std::bad_alloc; no reply counts then.
    void pipeline(std::span<const command> commands, std::span<reply> replies) {
        pool_->pipeline(commands, replies);
    }

    /// Effects: sends one command to the master, if one is known, and does not wait for its reply, which is
    /// noted in `wanted` when it is read, if there is one.
    /// Returns: whether it was handed to the system.
    bool post(const command& cmd, std::shared_ptr<receipt> wanted = nullptr) {
        return pool_->post(cmd, std::move(wanted));
    }

    /// Effects: reads the replies to posted commands that have come, closes surplus sockets,
    /// and waits for nothing.
    void collect() { pool_->collect(); }

    /// Effects: from now on hears what is published on `channel` at the master, whichever it is, as long as
    /// somebody has what is returned. Waits for nothing: the first thread that waits on a listener connects.
    /// This must outlive every such wait.
    /// Throws: error(errc::wrong_process), std::system_error when there is no descriptor to be
    /// had, std::bad_alloc.
    std::shared_ptr<subscription> subscribe(std::string_view channel) { return pool_->subscribe(channel); }

    /// Effects: `who` is told when another server is the master, as long as it lives, after the last
    /// answer of the old one.
    /// Throws: std::bad_alloc.
    void on_master_change(std::weak_ptr<master_listener> who) { pool_->on_master_change(std::move(who)); }

    /// Effects: asks the Sentinels, if that is due, or if the server has ended a socket, or a Sentinel
    /// said +switch-master. Else waits for nothing. The thread that renews calls it ten times a second as
    /// long as a lock is held.
    void follow() { pool_->follow(); }

    /// Returns: a place for what uses this connection until it ends.
    service_registry& services() noexcept { return services_; }

    /// Returns: the URI without its passwords: equal texts lead to the same locks.
    std::string_view identity() const noexcept { return pool_->identity(); }

    /// Returns: how long execute() waits for the master's reply at most.
    std::chrono::milliseconds command_timeout() const noexcept { return pool_->command_timeout(); }
    /// Returns: how long execute() takes at most until a command is sent.
    std::chrono::milliseconds connect_timeout() const noexcept { return pool_->connect_timeout(); }

  private:
    const std::unique_ptr<detail::connection_pool> pool_;
    service_registry services_;  // last: what lives there uses the others until it ends
};

}  // namespace distlock

#ifndef DISTLOCK_SEPARATE_COMPILATION
#include <distlock/hiredis/sentinel_connection_impl.hpp>
#endif
