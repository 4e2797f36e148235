// The errors, in one enumeration: each message names the fault, and a remedy where there is one.
//
//   enum class errc { ... };                       // distlock::errc, an error code enumeration
//   const std::error_category& error_category();   // "distlock"
//   std::error_code make_error_code(errc);
//   class error : public std::system_error;        // what every throwing function throws
#pragma once

#include <initializer_list>
#include <new>
#include <string>
#include <system_error>
#include <type_traits>

#include <distlock/detail/concat.hpp>
#include <distlock/detail/separate.hpp>

namespace distlock {

/// The ways a lock can fail. Contention is not among them: that somebody else holds a lock is an answer, not
/// an error. Values are stable; they compare equal to the `std::errc` named beside them where the standard
/// has one.
enum class errc {
    // On our side: the call was wrong, or it ended here.
    invalid_name = 1,  ///< std::errc::invalid_argument
    invalid_lease,     ///< std::errc::invalid_argument
    invalid_option,    ///< std::errc::invalid_argument
    invalid_uri,       ///< std::errc::invalid_argument
    wrong_process,     ///< std::errc::operation_not_permitted: a child after fork() used its parent's lock
    no_entropy,        ///< std::errc::resource_unavailable_try_again
    cancelled,         ///< std::errc::operation_canceled: the stop_token ended the wait

    // The server was not reached, or did not answer.
    unreachable,  ///< std::errc::not_connected: the last attempt was not sent
    no_reply,     ///< std::errc::timed_out: no answer in time, to AUTH or to a command, which may be applied
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
    wrong_type,             ///< std::errc::invalid_argument: the key, or a sibling key, is no lock's
    wrong_node,             ///< std::errc::not_supported: a cluster, asked through a single-server connection
    unsupported_command,    ///< std::errc::function_not_supported
    server_error,           ///< std::errc::io_error: any other error reply

    // The lock.
    deadlock,            ///< std::errc::resource_deadlock_would_occur: the same lock twice in one guard
    lease_expired,       ///< std::errc::timed_out: granted, but the lease ended before the call did
    holder_without_ttl,  ///< std::errc::device_or_resource_busy: held under a key that will never expire

    // testing.hpp.
    no_server,  ///< std::errc::no_such_file_or_directory: a private server could not be started

    // Later additions, at the end: values are stable.
    no_thread,       ///< std::errc::resource_unavailable_try_again: none to renew or watch a lease
    not_replicated,  ///< std::errc::resource_unavailable_try_again: too few replicas have the lock
    limit_mismatch,  ///< std::errc::invalid_argument: the semaphore on the server has another limit
    not_held         ///< std::errc::operation_not_permitted: the thread has not locked, or has lost it
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

    DISTLOCK_INLINE std::string message(int value) const override;
    DISTLOCK_INLINE std::error_condition default_error_condition(int value) const noexcept override;
};

}  // namespace detail

/// Returns: the category of `errc`; one object in the whole program, shared libraries included. A plug-in of
/// dlopen() has that of the program only if the program exports its symbols (-rdynamic, in CMake
/// ENABLE_EXPORTS); else compare with a std::errc what it throws.
__attribute__((visibility("default"))) inline const std::error_category& error_category() noexcept {
    // Never destroyed: what ends after main() may still ask for a message.
    alignas(detail::error_category_type) static unsigned char place[sizeof(detail::error_category_type)];
    static const auto* const category = ::new (static_cast<void*>(place)) detail::error_category_type;
    return *category;
}

/// Returns: the code of `e` in `error_category()`.
inline std::error_code make_error_code(errc e) noexcept { return {static_cast<int>(e), error_category()}; }

/// Thrown by functions that fail and have no `std::error_code&`; besides std::bad_alloc. `what()` reads
/// "<what was being done>: <what is wrong>; <what to do>" and never holds a password.
class __attribute__((visibility("default"))) error : public std::system_error {
  public:
    [[gnu::cold]] DISTLOCK_INLINE error(errc code, const std::string& detail);
};

namespace detail {
/// Throws: an error with the pieces as its detail.
[[noreturn, gnu::cold]] DISTLOCK_INLINE void throw_error(errc code, std::initializer_list<text_piece> detail);
}  // namespace detail

}  // namespace distlock

#ifndef DISTLOCK_SEPARATE_COMPILATION
#include <distlock/base/error_impl.hpp>
#endif
