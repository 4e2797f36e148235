// Locks seen from outside: who holds one, and how an operator takes it away.
//
//   lock_report inspect(connection, name);      // changes nothing
//   bool force_release(connection, name);       // takes it from whoever holds it
//
// Both also accept a std::error_code& as the last argument, and do not throw then. Mutexes of handoff and
// plain, shared mutexes and semaphores need no template argument; locks of another dialect name it, with
// interop.hpp: inspect<redisson>(connection, name).
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include <distlock/base/error.hpp>
#include <distlock/detail/printable.hpp>
#include <distlock/detail/without_throwing.hpp>
#include <distlock/net/connection.hpp>
#include <distlock/wire/dialect.hpp>
#include <distlock/wire/family_inspector.hpp>
#include <distlock/wire/outcome.hpp>
#include <distlock/wire/reply.hpp>
#include <distlock/wire/report.hpp>
#include <distlock/wire/wrong_type.hpp>

namespace distlock {

namespace detail {

/// How much a caller is told of a failure.
enum class failure_detail { code_only, text };

template <connection Conn, class T>
T read_or_throw(Conn& c, failure_detail wanted, std::optional<T> said, const reply& answer, const char* doing,
                const std::string& name, std::string_view stored_as) {
    if (said) return *std::move(said);
    const errc cause = acquire_outcome::failure(answer).cause;
    if (wanted == failure_detail::code_only) throw error(cause, "");
    std::string what = doing + printable(name, 100);
    if (!answer.text().empty()) what += ": " + behind_server(identity_of(c), answer.text());
    if (cause == errc::wrong_type) {
        const reply type = distlock::execute(c, {{"TYPE", name}, name});
        const bool server_says = answer.said().find("WRONGTYPE Operation") != std::string::npos;
        what +=
            explain_uninspected(type.is(reply_kind::status) ? type.text() : "none", stored_as, server_says);
    }
    throw error(cause, what);
}

// `stored_as`: the type of the locks that `about` reads; empty: it reads mutexes and semaphores.
template <class Inspector, connection Conn>
lock_report inspect(Conn& c, failure_detail wanted, const Inspector& about, std::string_view stored_as = {}) {
    const reply answer = distlock::execute(c, about.inspect());
    return read_or_throw(c, wanted, about.read_inspect(answer), answer, "inspect ", about.name(), stored_as);
}
template <class Inspector, connection Conn>
bool force_release(Conn& c, failure_detail wanted, const Inspector& about, std::string_view stored_as = {}) {
    const reply answer = distlock::execute(c, about.force_release());
    return read_or_throw(c, wanted, about.read_force_release(answer), answer, "force_release ", about.name(),
                         stored_as);
}

}  // namespace detail

/// Effects: none on the server. A replica may be asked, and answers what it knows; where it refuses locks
/// just then, this may fail with the same error.
/// Returns: a snapshot, out of date on arrival: show it to people, do not decide by it. Host, process and
/// label belong to the token that holds the lock, or are empty. On an error, `ec` is set and the report
/// empty.
/// Throws: error; errc::invalid_name for what can be no lock's name, before anything is sent;
/// errc::wrong_type for a key that is no lock.
/// Round trips: one; a second one, where this throws errc::wrong_type, to say what the key holds.
template <connection Conn>
lock_report inspect(Conn& connection, std::string name) {
    return detail::inspect(connection, detail::failure_detail::text, family_inspector(std::move(name)));
}
template <connection Conn>
lock_report inspect(Conn& connection, std::string name, std::error_code& ec) noexcept {
    return detail::without_throwing(ec, [&] {
        return detail::inspect(connection, detail::failure_detail::code_only,
                               family_inspector(std::move(name)));
    });
}
template <dialect Dialect, connection Conn>
lock_report inspect(Conn& connection, std::string name) {
    return detail::inspect(connection, detail::failure_detail::text,
                           typename Dialect::inspector(std::move(name)), Dialect::stored_as);
}
template <dialect Dialect, connection Conn>
lock_report inspect(Conn& connection, std::string name, std::error_code& ec) noexcept {
    return detail::without_throwing(ec, [&] {
        return detail::inspect(connection, detail::failure_detail::code_only,
                               typename Dialect::inspector(std::move(name)), Dialect::stored_as);
    });
}

/// Effects: takes the lock away from its owner or from all its readers, or takes all permits, and hands it to
/// the first waiter of the queue at once; frees it if nobody is queued. If that waiter is dead, the others
/// wait some two seconds. Fencing tokens go on growing.
/// The owner is not stopped. It learns of the loss at its next renewal, as loss_reason::forced, or when it
/// releases confirmed, as release_outcome::expired or release_outcome::taken, and works on until then. A
/// posted release does not tell it. So stop the owner first, or be sure that it is dead. In four cases the
/// reason is loss_reason::expired, or loss_reason::taken where somebody else has the lock by then: over
/// Redisson; for a name that can have no sibling keys, such as "a}b"; for all holders of permits but the
/// first 1,900; and if force_release() takes the lock from the next owner, too, before the first one renews.
/// If only writers wait for a shared_mutex, the message that the first of them gets does not suffice: it asks
/// the server once more. force_release<shared_handoff>, of interop.hpp, spares it that.
/// Returns: whether somebody had it.
/// Throws: error; errc::no_reply if the answer was lost: the lock may have been freed. It is not sent again:
/// that could free the next owner's lock. errc::wrong_type for a key that is no lock, which stays.
/// Round trips: one; a second one, where this throws errc::wrong_type, to say what the key holds.
template <connection Conn>
bool force_release(Conn& connection, std::string name) {
    return detail::force_release(connection, detail::failure_detail::text, family_inspector(std::move(name)));
}
template <connection Conn>
bool force_release(Conn& connection, std::string name, std::error_code& ec) noexcept {
    return detail::without_throwing(ec, [&] {
        return detail::force_release(connection, detail::failure_detail::code_only,
                                     family_inspector(std::move(name)));
    });
}
template <dialect Dialect, connection Conn>
bool force_release(Conn& connection, std::string name) {
    return detail::force_release(connection, detail::failure_detail::text,
                                 typename Dialect::inspector(std::move(name)), Dialect::stored_as);
}
template <dialect Dialect, connection Conn>
bool force_release(Conn& connection, std::string name, std::error_code& ec) noexcept {
    return detail::without_throwing(ec, [&] {
        return detail::force_release(connection, detail::failure_detail::code_only,
                                     typename Dialect::inspector(std::move(name)), Dialect::stored_as);
    });
}

}  // namespace distlock
