// distlock::hiredis_connection: the connection for those who have none yet.
//
//   class hiredis_connection {
//     explicit hiredis_connection(where);                    // "redis://user:password@host:6379/0" or a uri
//     hiredis_connection(where, shared_ptr<const secure_layer>);
//         // rediss://, see <distlock/hiredis_tls.hpp>
//     reply execute(const command&);
//     acknowledged_reply execute_acknowledged(const command& write, const command& wait);
//     void pipeline(std::span<const command>, std::span<reply>);
//     bool post(const command&, std::shared_ptr<receipt> = nullptr);
//     void collect();
//     std::shared_ptr<subscription> subscribe(std::string_view channel);
//     service_registry& services() noexcept;
//     std::chrono::milliseconds command_timeout() const noexcept;
//     std::chrono::milliseconds connect_timeout() const noexcept;
//     std::string_view identity() const noexcept;
//   };
#pragma once

#include <chrono>
#include <memory>
#include <span>
#include <string_view>
#include <utility>

#include <distlock/detail/concat.hpp>
#include <distlock/detail/separate.hpp>
#include <distlock/hiredis/secure.hpp>
#include <distlock/net/connection.hpp>
#include <distlock/net/receipt.hpp>
#include <distlock/net/service_registry.hpp>
#include <distlock/net/subscription.hpp>
#include <distlock/net/uri.hpp>
#include <distlock/wire/command.hpp>
#include <distlock/wire/reply.hpp>

namespace distlock {

namespace detail {
class node_pool;
}

/// A connection to one server, for any number of threads. Sockets are opened when they are needed and kept,
/// the last used first, so that what one thread posts and then executes travels on one socket, in order. No
/// call outlasts its deadline: the command's own, and at most the URI's connect time-out and command
/// time-out.
///
/// A socket on which anything went wrong is aborted, never used again; what had been sent on it and not
/// delivered is dropped, except where a posted command without a receipt is among it. When the server says
/// that it is a replica or becomes one (READONLY, MASTERDOWN, UNBLOCKED), no socket that is open then is
/// used again: the next command resolves the name and connects anew, and so do the subscriptions. When a
/// command is not answered in time, the idle sockets on which the server has answered nothing since it was
/// sent are closed, too.
/// Of idle sockets that nobody needed for a second two are kept.
///
/// From the first pipeline on one socket is reserved for pipelines, in which locks are renewed: commands can
/// use up what the server or the system allows (maxclients, RLIMIT_NOFILE), but not that one. Commands use it
/// when no other can be opened, posted ones when no other is idle. No stop request and no time-out of a
/// command ends it: the answer is dropped when it comes. A pipeline opens a new socket rather than take the
/// last idle one, so that unlock() still finds one; also when another socket has fallen silent, since the
/// reserved one may have, too.
///
/// One more socket, from the first wait for a message on, is for all subscriptions. The connection has no
/// thread for it: the threads that wait read it (see message_reader).
///
/// After fork() the child can only destroy it.
class hiredis_connection {
  public:
    /// Effects: none on the network: the first command connects.
    /// Throws: error(errc::invalid_uri), also for a secure_layer without rediss://;
    /// error(errc::tls_unavailable) for rediss:// without a secure_layer.
    explicit hiredis_connection(std::string_view where);
    explicit hiredis_connection(const char* where) : hiredis_connection(detail::text_or_none(where)) {}
    explicit hiredis_connection(uri where);
    hiredis_connection(std::string_view where, std::shared_ptr<const secure_layer> secure);
    hiredis_connection(const char* where, std::shared_ptr<const secure_layer> secure)
        : hiredis_connection(detail::text_or_none(where), std::move(secure)) {}
    hiredis_connection(uri where, std::shared_ptr<const secure_layer> secure);

    hiredis_connection(const hiredis_connection&) = delete;
    hiredis_connection& operator=(const hiredis_connection&) = delete;
    ~hiredis_connection();

    /// Effects: executes one command and waits for its reply, until its stop request, which ends connecting,
    /// too. The socket is given up then, unless it is the one for pipelines.
    /// Returns: the reply; not_sent or no_answer, with a reason that names the server and holds no secret,
    /// when there is none.
    /// Round trips: one; on a new socket two more at most, for AUTH (or PING, over TLS) and SELECT.
    reply execute(const command& cmd);

    /// Effects: executes a write and, right behind it on the same socket, the command that waits for its
    /// replicas; otherwise as execute().
    /// Round trips: as execute(); the server answers when the replicas have it, or its time is up.
    acknowledged_reply execute_acknowledged(const command& write, const command& wait);

    /// Effects: executes all of `commands` in one pipeline on one socket, and waits for the replies until
    /// the last of the commands' deadlines, and no longer than the command time-out. They are read when
    /// all is sent: the server holds what the system's buffers do not. A failure ends the pipeline, but
    /// what was answered before stays answered; the others are not_sent, if no byte of the command was,
    /// or no_answer. So is a reply that may belong to another command, since there were more replies than
    /// commands. After the first one pipelines have a socket of their own: what was posted before need
    /// not arrive before them.
    /// Preconditions: as many replies as commands.
    /// Throws: std::bad_alloc; no reply counts then.
    /// Round trips: one; on a new socket more, as execute().
    void pipeline(std::span<const command> commands, std::span<reply> replies);

    /// Effects: sends one command and does not wait for its reply, which is noted in `wanted` when it is
    /// read, if there is one.
    /// Returns: whether it was handed to the system.
    bool post(const command& cmd, std::shared_ptr<receipt> wanted = nullptr);

    /// Effects: reads the replies to posted commands that have come, closes surplus sockets,
    /// and waits for nothing.
    void collect();

    /// Effects: from now on hears what is published on `channel`, and to its shard, as long as somebody has
    /// what is returned. Waits for nothing: the first thread that waits on a listener connects. This must
    /// outlive every such wait.
    /// Throws: error(errc::wrong_process), std::system_error when there is no descriptor to be
    /// had, std::bad_alloc.
    std::shared_ptr<subscription> subscribe(std::string_view channel);

    /// Returns: a place for what uses this connection until it ends.
    service_registry& services() noexcept { return services_; }

    /// Returns: the URI without its password: equal texts lead to the same locks.
    std::string_view identity() const noexcept;

    /// Returns: how long execute() waits for a reply at most.
    std::chrono::milliseconds command_timeout() const noexcept;
    /// Returns: how long execute() takes at most until a command is sent.
    std::chrono::milliseconds connect_timeout() const noexcept;

  private:
    const std::unique_ptr<detail::node_pool> pool_;
    service_registry services_;  // last: what lives there uses the others until it ends
};

}  // namespace distlock

#ifndef DISTLOCK_SEPARATE_COMPILATION
#include <distlock/hiredis/connection_impl.hpp>
#endif
