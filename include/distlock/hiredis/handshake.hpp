// How a conversation with a server begins: connecting, TLS, AUTH, SELECT, and what the server is.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <distlock/base/clock.hpp>
#include <distlock/base/error.hpp>
#include <distlock/detail/concat.hpp>
#include <distlock/hiredis/secure.hpp>
#include <distlock/hiredis/socket.hpp>
#include <distlock/hiredis/stream.hpp>
#include <distlock/net/uri.hpp>
#include <distlock/wire/command.hpp>
#include <distlock/wire/reply.hpp>
#include <distlock/wire/server_error.hpp>

namespace distlock::detail {

class handshake {
  public:
    struct opened {
        std::unique_ptr<stream> made;  ///< ready for commands, or null
        reply failure;                 ///< of null: not_sent, with the reason
        bool in_vain = false;          ///< the server was reached, and serves no socket just now
    };

    /// The role that the server must have. A server that does not name its role is taken to have it: its
    /// answers to commands will tell.
    enum class role { any, master, cluster_node };

    /// Effects: connects, starts TLS where `secure` is given, authenticates, selects the database, asks for
    /// the role; all before `deadline` and until `stop_fd` can be read (none: -1).
    [[gnu::cold]] static opened open(const uri& server, resolver& names, const secure_layer* secure,
                                     clock::time_point deadline, int stop_fd, role needed = role::any) {
        std::string failure;
        auto socket = stream_socket::connect(server, names, deadline, stop_fd, failure);
        if (!socket) return {nullptr, reply::not_sent(errc::unreachable, concat({"connect: ", failure}))};
        std::unique_ptr<stream> made(new stream(std::move(socket)));
        if (auto refused = greet(*made, server, secure, deadline, stop_fd, needed)) {
            const errc why = refused->cause();
            const bool may_pass =
                why == errc::unreachable || why == errc::unavailable || why == errc::read_only;
            return {nullptr, *std::move(refused), made->server_ended() || may_pass};
        }
        made->bytes_.socket().expect_timeout(server.command_timeout);
        return {std::move(made), {}};
    }

  private:
    // Effects: TLS, AUTH, SELECT, ROLE, as far as they are wanted. Returns: why the server cannot be used.
    [[gnu::cold]] static std::optional<reply> greet(stream& made, const uri& server,
                                                    const secure_layer* secure, clock::time_point deadline,
                                                    int stop_fd, role needed) {
        if (secure != nullptr) {
            if (auto refused = made.bytes_.start_tls(server, *secure, deadline, stop_fd)) return refused;
            // A TLS 1.3 server judges our certificate when the handshake is over for us: until it has
            // answered once, it may still refuse.
            if (server.password.empty()) {
                const reply answer = made.run({"PING"}, deadline, stop_fd);
                // Behind what ends TLS for it there may be a full server.
                if (!answer.answered() || made.turned_away()) return handshake_failure(answer, "PING");
            }
        }
        if (!server.password.empty()) {
            made.reader_.hide(server.password);
            const command auth = server.user.empty() ? command{"AUTH", server.password}
                                                     : command{"AUTH", server.user, server.password};
            // Servers echo the arguments of what they refuse: nothing of the answer's text may be shown.
            const reply answer = made.run(auth, deadline, stop_fd);
            if (auto refused = not_now(answer, "AUTH")) return refused;
            if (answer.is(reply_kind::error) && !is_protected(answer)) {
                const bool none = answer.said().find("without any password configured") != std::string::npos;
                return reply::not_sent(errc::authentication_failed,
                                       none ? "AUTH was refused: this server has no password, leave it out "
                                              "of the URI"
                                            : "AUTH was refused");
            }
            if (!answer.is_status("OK")) return handshake_failure(answer, "AUTH");
            if (auto surplus = not_alone(made, "AUTH")) return surplus;
        }
        if (server.database != 0) {
            const reply answer = made.run({"SELECT", concat({server.database})}, deadline, stop_fd);
            if (answer.said().find("DB index") != std::string::npos)
                return reply::not_sent(errc::invalid_uri, "SELECT was refused: no such database");
            if (answer.said().find("cluster mode") != std::string::npos)
                return reply::not_sent(
                    errc::invalid_uri,
                    concat({"SELECT was refused: this server is a node of a Cluster, which has one database; "
                            "leave its number out of the URI, and use ",
                            server.scheme == uri_scheme::tls ? "rediss+cluster://" : "redis+cluster://"}));
            if (!answer.is_status("OK")) return handshake_failure(answer, "SELECT");
            if (auto surplus = not_alone(made, "SELECT")) return surplus;
        }
        if (needed == role::master) {
            const reply answer = made.run({argument("ROLE")}, deadline, stop_fd);
            if (auto refused = no_master(answer)) return refused;
        }
        if (needed == role::cluster_node) {
            if (auto refused = no_cluster_node(made, deadline, stop_fd)) return refused;
        }
        if (made.reader_.has_leftover())
            return reply::not_sent(errc::protocol_error, "more replies than questions");
        if (made.broken_) return reply::not_sent(errc::unreachable, "the server closed the connection");
        return std::nullopt;
    }

    static bool is_protected(const reply& answer) { return first_word(answer.said()) == "DENIED"; }

    [[gnu::cold]] static reply handshake_failure(const reply& answer, const char* step,
                                                 std::string_view hint = "") {
        if (!answer.answered()) return reply::not_sent(answer.cause(), concat({step, ": ", answer.text()}));
        if (!answer.is(reply_kind::error)) return reply::not_sent(errc::protocol_error, step);
        if (is_protected(answer))
            return reply::not_sent(errc::server_error,
                                   "it is in protected mode, and refuses other machines: give its default "
                                   "user a password, or set protected-mode no");
        // Without the server's text: what it refuses it repeats, and this may be the answer to an AUTH.
        const auto [cause, transient, certain] = classify_error(answer.said());
        if (transient) hint = says_too_many_clients(answer.said()) ? no_room : first_word(answer.text());
        return reply::not_sent(cause, concat({step, " was refused", transient ? ": " : "", hint}));
    }

    // Returns: why the server cannot be used now, by its answer to a step; none: it was answered.
    [[gnu::cold]] static std::optional<reply> not_now(const reply& answer, const char* step) {
        const bool refused = answer.is(reply_kind::error) && classify_error(answer.said()).transient;
        return refused || !answer.answered() ? std::optional(handshake_failure(answer, step)) : std::nullopt;
    }

    // ["master", ...], or another role. A service that hides it refuses the command.
    [[gnu::cold]] static std::optional<reply> no_master(const reply& answer) {
        if (auto why = not_now(answer, "ROLE")) return why;
        if (answer.is(reply_kind::error)) return std::nullopt;
        const auto& parts = answer.elements();
        if (!parts.empty() && parts.front().is_string("master")) return std::nullopt;
        return reply::not_sent(errc::read_only, "ROLE: the server says that it is no master");
    }

    // Another server may have the port of a node that died or left, and would grant what others grant, too.
    // ASKING is of Clusters. It is for the next command, which must not be the caller's: a node that does not
    // have the slot yet would execute that. Where the user may not do ASKING, or the node refuses it for a
    // while though it would redirect, the question for the map tells a Cluster's node, too; while a script
    // keeps it from both, HELLO does.
    [[gnu::cold]] static std::optional<reply> no_cluster_node(stream& made, clock::time_point deadline,
                                                              int stop_fd) {
        const reply asking = made.run({argument("ASKING")}, deadline, stop_fd);
        if (!asking.answered() || made.turned_away()) return handshake_failure(asking, "ASKING");
        if (!asking.is(reply_kind::error)) {
            constexpr std::string_view of_no_script = "0000000000000000000000000000000000000000";
            const reply behind = made.run({"EVALSHA", of_no_script, "0"}, deadline, stop_fd);
            return behind.answered() ? std::nullopt : std::optional(handshake_failure(behind, "ASKING"));
        }
        if (auto none = of_no_cluster(asking)) return none;
        made.expect_a_list();
        const reply map = made.run({"CLUSTER", std::string_view("SLOTS")}, deadline, stop_fd);
        if (auto none = of_no_cluster(map)) return none;
        auto refused = not_now(map, "CLUSTER SLOTS");
        if (refused && map.is(reply_kind::error) && !made.turned_away() &&
            says_cluster(made.run({argument("HELLO")}, deadline, stop_fd)))
            return std::nullopt;
        return refused;
    }

    [[gnu::cold]] static std::optional<reply> of_no_cluster(const reply& answer) {
        const bool says_so = answer.is(reply_kind::error) && says_no_cluster(answer.said());
        return says_so ? std::optional(reply::not_sent(errc::unreachable, no_cluster_support)) : std::nullopt;
    }

    // ["server", "redis", ..., "mode", "cluster", ...]
    [[gnu::cold]] static bool says_cluster(const reply& hello) {
        return value_of(hello, "mode") == "cluster";
    }

    // Returns: what is wrong when more than one reply to a step came, or the server hung up after it.
    [[gnu::cold]] static std::optional<reply> not_alone(const stream& made, const char* step) {
        const io next = made.bytes_.socket().peek();
        if (made.reader_.has_leftover() || (next == io::done && !made.bytes_.over()))
            return reply::not_sent(errc::protocol_error, concat({step, " was answered twice"}));
        if (next == io::timed_out && !made.broken_) return std::nullopt;
        return reply::not_sent(errc::unreachable, concat({step, ": the server closed the connection"}));
    }
};

}  // namespace distlock::detail
