// What can go wrong, in one enumeration: every message says what to do next.
//
//   enum class errc { ... };                       // distlock::errc, an error code enumeration
//   const std::error_category& error_category();   // "distlock"
//   std::error_code make_error_code(errc);
//   class error : public std::system_error;        // what every throwing function throws
#pragma once

#include <string>
#include <system_error>
#include <type_traits>

namespace distlock {

/// The ways a lock can fail. Contention is not among them: that somebody else holds a lock is an answer, not
/// an error. Values are stable; they compare equal to the `std::errc` named beside them where the standard
/// has one.
enum class errc {
    // The call itself was wrong; nothing was sent.
    invalid_name = 1,  ///< std::errc::invalid_argument
    invalid_lease,     ///< std::errc::invalid_argument
    invalid_option,    ///< std::errc::invalid_argument
    invalid_uri,       ///< std::errc::invalid_argument
    wrong_process,     ///< std::errc::operation_not_permitted: a child after fork() used its parent's lock
    no_entropy,        ///< std::errc::resource_unavailable_try_again
    cancelled,         ///< std::errc::operation_canceled: the stop_token ended the wait

    // The server was not reached, or did not answer.
    unreachable,      ///< std::errc::not_connected: nothing was sent
    no_reply,         ///< std::errc::timed_out: sent, and may have been applied
    protocol_error,   ///< std::errc::protocol_error
    reply_too_large,  ///< std::errc::message_size
    tls_unavailable,  ///< std::errc::protocol_not_supported
    tls_failed,       ///< std::errc::connection_refused

    // The server answered that it will not do it.
    authentication_failed,  ///< std::errc::permission_denied
    permission_denied,      ///< std::errc::permission_denied
    unavailable,            ///< std::errc::resource_unavailable_try_again: loading, busy, fail-over
    read_only,              ///< std::errc::read_only_file_system: a replica
    out_of_memory,          ///< std::errc::not_enough_memory, on the server
    writes_refused,         ///< std::errc::io_error: persistence or replication broken
    wrong_type,             ///< std::errc::invalid_argument: the key holds something else than a lock
    wrong_node,             ///< std::errc::not_supported: a cluster, asked through a single-server connection
    unsupported_command,    ///< std::errc::function_not_supported
    server_error,           ///< std::errc::io_error: any other error reply

    // The lock.
    deadlock,            ///< std::errc::resource_deadlock_would_occur: the same lock twice in one guard
    lease_expired,       ///< std::errc::timed_out: granted, but the answer came too late to be worth anything
    holder_without_ttl,  ///< std::errc::device_or_resource_busy: held under a key that will never expire

    // The testing annex.
    no_server,  ///< std::errc::no_such_file_or_directory: a private server could not be started

    // Later additions, at the end: values are stable.
    no_thread  ///< std::errc::resource_unavailable_try_again: none to renew or watch a lease
};

}  // namespace distlock

template <>
struct std::is_error_code_enum<distlock::errc> : std::true_type {};

namespace distlock {

namespace detail {

// Default visibility: in shared libraries built with hidden visibility each would else get a category object
// of its own, and equal codes would compare unequal.
class __attribute__((visibility("default"))) error_category_type final : public std::error_category {
  public:
    const char* name() const noexcept override { return "distlock"; }

    std::string message(int value) const override {
        switch (static_cast<errc>(value)) {
            case errc::invalid_name:
                return "the lock name cannot be used; give a name of 1 to 4096 bytes";
            case errc::invalid_lease:
                return "the lease cannot be used; give one from 10 ms to 24 h, longer than the command "
                       "time-out";
            case errc::invalid_option:
                return "an option has a value that cannot be used; give one that is in its range";
            case errc::invalid_uri:
                return "the URI cannot be used; write redis://user:password@host:port/database";
            case errc::wrong_process:
                return "this lock belongs to the parent process; after fork() make connections and locks "
                       "anew";
            case errc::no_entropy:
                return "the operating system gave no random bytes for an owner token; try again";
            case errc::cancelled:
                return "the wait was cancelled through its stop_token";
            case errc::unreachable:
                return "the server cannot be reached; check that it runs and that host and port are right";
            case errc::no_reply:
                return "the server did not answer in time; what was sent may have been applied and ends with "
                       "its lease";
            case errc::protocol_error:
                return "the answer makes no sense; check that this is a Redis or Valkey server";
            case errc::reply_too_large:
                return "the answer is larger than any a lock needs; check what listens there";
            case errc::tls_unavailable:
                return "TLS was asked for but is not built in; link distlock::hiredis_tls and pass a "
                       "distlock::tls";
            case errc::tls_failed:
                return "no trusted TLS session; check the certificate, its host name and the CA";
            case errc::authentication_failed:
                return "the server refused user or password; check both";
            case errc::permission_denied:
                return "the user may not run this command on this key; extend its ACL";
            case errc::unavailable:
                return "the server is up but cannot serve just now; try again";
            case errc::read_only:
                return "this server is a replica; connect to the master";
            case errc::out_of_memory:
                return "the server is out of memory; raise maxmemory or free some";
            case errc::writes_refused:
                return "the server refuses writes; look at its disk (MISCONF) or its replicas (NOREPLICAS)";
            case errc::wrong_type:
                return "the key holds no lock but another type; use another name or remove the key";
            case errc::wrong_node:
                return "this server is part of a cluster and does not own the key; connect to its node";
            case errc::unsupported_command:
                return "the server does not know or allow a command that locks need; enable it or use "
                       "another server";
            case errc::server_error:
                return "the server answered with an error; look up what it says";
            case errc::deadlock:
                return "the same lock was asked for twice and would wait for itself; name each lock once";
            case errc::lease_expired:
                return "the lock was granted too late to be used and was given back; take a longer lease";
            case errc::holder_without_ttl:
                return "the lock is held under a key without a TTL, which never expires by itself; ask its "
                       "owner or "
                       "remove the key";
            case errc::no_server:
                return "no private server could be started; install one (apt-get install redis-server)";
            case errc::no_thread:
                return "no thread could be started to watch the lease; raise the limit of threads, or set "
                       "renew "
                       "to false";
        }
        return "unknown error";
    }

    std::error_condition default_error_condition(int value) const noexcept override {
        switch (static_cast<errc>(value)) {
            case errc::invalid_name:
            case errc::invalid_lease:
            case errc::invalid_option:
            case errc::invalid_uri:
            case errc::wrong_type:
                return std::errc::invalid_argument;
            case errc::wrong_process:
                return std::errc::operation_not_permitted;
            case errc::no_entropy:
            case errc::no_thread:
            case errc::unavailable:
                return std::errc::resource_unavailable_try_again;
            case errc::cancelled:
                return std::errc::operation_canceled;
            case errc::unreachable:
                return std::errc::not_connected;
            case errc::no_reply:
            case errc::lease_expired:
                return std::errc::timed_out;
            case errc::protocol_error:
                return std::errc::protocol_error;
            case errc::reply_too_large:
                return std::errc::message_size;
            case errc::tls_unavailable:
                return std::errc::protocol_not_supported;
            case errc::tls_failed:
                return std::errc::connection_refused;
            case errc::authentication_failed:
            case errc::permission_denied:
                return std::errc::permission_denied;
            case errc::read_only:
                return std::errc::read_only_file_system;
            case errc::out_of_memory:
                return std::errc::not_enough_memory;
            case errc::writes_refused:
            case errc::server_error:
                return std::errc::io_error;
            case errc::wrong_node:
                return std::errc::not_supported;
            case errc::unsupported_command:
                return std::errc::function_not_supported;
            case errc::deadlock:
                return std::errc::resource_deadlock_would_occur;
            case errc::holder_without_ttl:
                return std::errc::device_or_resource_busy;
            case errc::no_server:
                return std::errc::no_such_file_or_directory;
        }
        return std::error_condition(value, *this);
    }
};

}  // namespace detail

/// Returns: the category of `errc`; one object in the whole program, shared libraries included.
__attribute__((visibility("default"))) inline const std::error_category& error_category() noexcept {
    static const detail::error_category_type category;
    return category;
}

/// Returns: the code of `e` in `error_category()`.
inline std::error_code make_error_code(errc e) noexcept { return {static_cast<int>(e), error_category()}; }

/// Thrown by every function that fails and has no `std::error_code&`. `what()` reads "<what was being done>:
/// <what is wrong>; <what to do>" and never holds a password.
class __attribute__((visibility("default"))) error : public std::system_error {
  public:
    error(errc code, const std::string& detail) : std::system_error(make_error_code(code), detail) {}
};

}  // namespace distlock
