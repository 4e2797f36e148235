// The texts of errors, compiled once where a program asks for that.
#pragma once

#include <initializer_list>
#include <string>
#include <system_error>

#include <distlock/base/error.hpp>
#include <distlock/detail/concat.hpp>
#include <distlock/detail/separate.hpp>

namespace distlock {

namespace detail {

// A std::string made in each case would be compiled thirty times.
[[gnu::cold]] constexpr const char* text_of(errc code) noexcept {
    switch (code) {
        case errc::invalid_name:
            return "the lock name cannot be used; give another one, of 1 to 4096 bytes";
        case errc::invalid_lease:
            return "the lease cannot be used; give one from 10 ms to 24 h, longer than the command "
                   "time-out";
        case errc::invalid_option:
            return "an option or an argument is out of its range; change it";
        case errc::invalid_uri:
            return "the URI cannot be used; include/distlock/net/README.md shows redis://host:6379, and "
                   "those of Sentinels and Clusters";
        case errc::wrong_process:
            return "this connection or lock belongs to the parent process; after fork() make both anew";
        case errc::no_entropy:
            return "the operating system gave no random bytes for an owner token; try again";
        case errc::cancelled:
            return "the wait was cancelled through its stop_token";
        case errc::unreachable:
            return "the server cannot be reached; check that it runs, and its host and port, or its socket";
        case errc::no_reply:
            return "no answer in time: a request that was sent may have been executed; check server and "
                   "network";
        case errc::protocol_error:
            return "the answer makes no sense; check that this is a Redis or Valkey server";
        case errc::reply_too_large:
            return "the answer is larger than any a lock needs; check what listens there";
        case errc::tls_unavailable:
            return "the URI asks for TLS; link distlock::hiredis_tls, and pass distlock::tls(options) to the "
                   "connection";
        case errc::tls_failed:
            return "no trusted TLS session; check the certificate, its host name and the CA, and whether the "
                   "server wants one of ours";
        case errc::authentication_failed:
            return "the server refused user or password; check both, or give them: "
                   "redis://user:password@host, or redis://:password@host";
        case errc::permission_denied:
            return "the user may not run this command on this key; extend its ACL by .github/SECURITY.md; "
                   "diagnose() says what mutexes lack";
        case errc::unavailable:
            return "the server is up but cannot serve just now; try again";
        case errc::read_only:
            return "this server is a replica; connect to the master";
        case errc::out_of_memory:
            return "the server is out of memory; raise maxmemory or free some";
        case errc::writes_refused:
            return "the server refuses writes; look at its disk (MISCONF) or its replicas (NOREPLICAS)";
        case errc::wrong_type:
            return "the key, or a sibling key, is no lock of this kind; use another name, or remove the key "
                   "if nobody needs it";
        case errc::wrong_node:
            return "this cluster node does not own the keys; use a cluster_connection; after CROSSSLOT give "
                   "all names one {hash tag}";
        case errc::unsupported_command:
            return "the server does not know or allow a command that locks need; enable it; if it is a "
                   "Sentinel, write redis+sentinel://";
        case errc::server_error:
            return "the server answered with an error; look up what it says";
        case errc::deadlock:
            return "the same lock was asked for twice and would wait for itself; name each lock once";
        case errc::lease_expired:
            return "the lease was over before the lock could be used; take a longer lease, or unlock() "
                   "a recursive_mutex's lost holds";
        case errc::holder_without_ttl:
            return "the lock's key has no TTL, so it never expires by itself; ask its owner, or stop it and "
                   "call force_release()";
        case errc::no_server:
            return "no private server could be started; install one (apt-get install redis-server), or mend "
                   "what its log says";
        case errc::no_thread:
            return "no thread could be started to watch the lease; raise the limit of threads of this user";
        case errc::not_replicated:
            return "too few replicas acknowledged the lock, so it was released; look at their lag, or lower "
                   "replicas";
        case errc::limit_mismatch:
            return "processes disagree on the limit of this semaphore; give all the same, or resize() it";
        case errc::not_held:
            return "this thread has not locked it, or has lost it; lock it first, and watch lost()";
    }
    return "unknown error";
}

}  // namespace detail

[[gnu::cold]] DISTLOCK_INLINE std::string detail::error_category_type::message(int value) const {
    return text_of(static_cast<errc>(value));
}

[[gnu::cold]] DISTLOCK_INLINE std::error_condition detail::error_category_type::default_error_condition(
    int value) const noexcept {
    switch (static_cast<errc>(value)) {
        case errc::invalid_name:
        case errc::invalid_lease:
        case errc::invalid_option:
        case errc::invalid_uri:
        case errc::wrong_type:
        case errc::limit_mismatch:
            return std::errc::invalid_argument;
        case errc::wrong_process:
        case errc::not_held:
            return std::errc::operation_not_permitted;
        case errc::no_entropy:
        case errc::no_thread:
        case errc::not_replicated:
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

DISTLOCK_INLINE error::error(errc code, const std::string& detail)
    : std::system_error(make_error_code(code), detail) {}

DISTLOCK_INLINE void detail::throw_error(errc code, std::initializer_list<text_piece> detail) {
    throw error(code, concat(detail));
}

}  // namespace distlock
