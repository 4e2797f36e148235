// Where the server is, from one line of configuration: redis://user:password@host:port/database?option=value
//
//   enum class uri_scheme { tcp, tls, unix_socket };
//   struct uri { scheme, user, password, host, port, path, database,
//                connect_timeout, command_timeout, max_idle };
//   uri parse_uri(std::string_view text);   // throws error(errc::invalid_uri), never repeating what it read
//   void check_uri(const uri& where);       // the same for one that was filled in by hand
//   std::string redacted(const uri& where); // for messages: without the password
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include <distlock/base/error.hpp>
#include <distlock/detail/separate.hpp>

namespace distlock {

/// How the server is spoken to: redis:// and valkey://, rediss:// and valkeys://, unix://.
enum class uri_scheme { tcp, tls, unix_socket };

/// A server's address, credentials and the time-outs of the connection to it; all texts are decoded.
struct uri {
    uri_scheme scheme = uri_scheme::tcp;
    std::string user{};              ///< empty: the server's default user
    std::string password{};          ///< empty: no authentication
    std::string host = "127.0.0.1";  ///< a name or an address; IPv6 without brackets, "%zone" if given
    std::uint16_t port = 6379;       ///< 1 to 65535
    std::string path{};              ///< of the unix socket, absolute; host and port mean nothing then
    int database = 0;                ///< 0 or more
    /// 1 ms to 1 h, for a new connection up to its first use.
    std::chrono::milliseconds connect_timeout{500};
    /// 1 ms to 1 h, from sending a command to the end of its reply.
    std::chrono::milliseconds command_timeout{200};
    /// 1 to 1024: how many sockets stay open while nobody uses them; once nobody has needed the others for a
    /// second, two of them, from the next command on. Besides, one is kept for pipelines (renewals) once
    /// there was one, and one for subscriptions.
    std::size_t max_idle = 16;

    friend bool operator==(const uri&, const uri&) = default;
};

namespace detail {
/// Returns: how a URI begins, without "://".
constexpr std::string_view scheme_name(uri_scheme of) noexcept {
    return of == uri_scheme::unix_socket ? "unix" : of == uri_scheme::tls ? "rediss" : "redis";
}
/// Returns: the same, of another place.
inline uri with_place(uri one, const std::string& host, std::uint16_t port) {
    one.host = host;
    one.port = port;
    return one;
}
/// Returns: whether two addresses differ in host and port at most.
inline bool alike_but_for_place(uri one, const uri& other) {
    return with_place(std::move(one), other.host, other.port) == other;
}
}  // namespace detail

/// Reads `redis://[[user]:password@]host[:port][/database][?options]`, the same with rediss:// for TLS,
/// valkey:// and valkeys://, or `unix://[[user]:password@]/path/to/socket[?options]`. Options:
/// connect_timeout=500ms, command_timeout=2s, max_idle=16, db=2. `redis://` and `redis:///2` mean
/// 127.0.0.1:6379. User, password, host and path are percent-decoded: what is not a letter, a digit or one of
/// "-._~" is best written %40 (for an '@') and so on.
///
/// A text that could be read in two ways is refused: one word before the '@' (some clients take it for the
/// user, some for the password), a second '@', a '#', a raw '/' or '?' in the password, an empty password,
/// credentials or a port without a host.
///
/// Returns: what `text` says, and the defaults of `uri` for what it leaves out.
/// Throws: error(errc::invalid_uri); `what()` names the part that is wrong and what a right one looks like,
/// and holds nothing of `text`, in which a password could stand anywhere.
[[nodiscard("what was read is lost")]] DISTLOCK_INLINE uri parse_uri(std::string_view text);

/// Throws: error(errc::invalid_uri) when a field of `where`, filled in by hand, cannot be used.
DISTLOCK_INLINE void check_uri(const uri& where);

/// Returns: `where` as redis://user@host:port/database or unix://user@/path?db=database, for messages and
/// logs: no password, no options, and nothing but printable ASCII. Not meant to be parsed again.
DISTLOCK_INLINE std::string redacted(const uri& where);

namespace detail {
/// Returns: the host and the port of `one`, fit for messages.
DISTLOCK_INLINE std::string shown_place(uri one);
/// Returns: the URI of several servers, without password and options; scheme and user are those of `whose`.
DISTLOCK_INLINE std::string shown_hosts(const uri& whose, std::string_view suffix,
                                        std::span<const uri> hosts);
}  // namespace detail

}  // namespace distlock

#ifndef DISTLOCK_SEPARATE_COMPILATION
#include <distlock/net/uri_impl.hpp>
#endif
