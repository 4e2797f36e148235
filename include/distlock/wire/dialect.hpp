// A dialect is the way to speak with the server about one lock: the commands, and the meaning of the replies.
//
//   concept dialect                  made of (name, options); name, lease, acquire, look, renew, release,
//       ... and D::inspector
//   concept queueing_dialect         and waiters are queued on the server, which hands the lock over
//   concept telling_dialect          and releases are told on a channel
//   concept lock_inspector           what operators ask: inspect, force_release, forced
//   check_dialect<D>()               says in a sentence what a type lacks
#pragma once

#include <chrono>
#include <concepts>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include <distlock/base/options.hpp>
#include <distlock/base/token.hpp>
#include <distlock/wire/command.hpp>
#include <distlock/wire/enter_mode.hpp>
#include <distlock/wire/outcome.hpp>
#include <distlock/wire/reply.hpp>
#include <distlock/wire/report.hpp>

namespace distlock {

class handoff;
class exclusive_handoff;

namespace detail {
template <class D>
concept dialect_of_ours = std::same_as<D, handoff> || std::same_as<D, exclusive_handoff>;
}  // namespace detail

/// The type is made of a lock's name and its options, and says what it was made of: name() is the
/// lock's key, lease() how long a grant may be believed. `stored_as` is the type of that key, as the
/// server's TYPE names it.
template <class D>
concept describes_a_lock = std::constructible_from<D, std::string, const lock_options&> &&
    requires(const D& d) {
    { d.name() } -> std::same_as<const std::string&>;
    { d.lease() } -> std::convertible_to<std::chrono::milliseconds>;
    { D::stored_as } -> std::convertible_to<std::string_view>;
};

/// acquire(token) takes the lock when it is free. look(token) does, too, and may be repeated: it finds an
/// earlier success of the same token, and says for how long another owner has the lock; acquire_is_script()
/// says that acquire() is a look() itself.
template <class D>
concept acquires_a_lock = requires(const D& d, const token& owner, const reply& answer) {
    { d.acquire(owner) } -> std::same_as<command>;
    { d.look(owner) } -> std::same_as<command>;
    { d.read_acquire(answer) } -> std::same_as<acquire_outcome>;
    { d.read_look(answer) } -> std::same_as<acquire_outcome>;
    { d.acquire_is_script() } -> std::convertible_to<bool>;
};

/// renew(token) gives the lock its whole lease again, if this token has it; release(token) frees it, or
/// hands it over. Both leave alone what another owner has, and may be repeated. release_minimal(token)
/// is the release that needs least of the server; it is sent where release() is refused and
/// read_release() says `minimal`.
template <class D>
concept keeps_a_lock = requires(const D& d, const token& owner, const reply& answer) {
    { d.renew(owner) } -> std::same_as<command>;
    { d.release(owner) } -> std::same_as<command>;
    { d.release_minimal(owner) } -> std::same_as<command>;
    { d.read_renew(answer) } -> std::same_as<renew_outcome>;
    { d.read_release(answer) } -> std::same_as<release_verdict>;
};

/// The questions about a lock that others may have: inspect() and force_release() by operators,
/// forced() by an owner that has lost it. Made of the lock's name, or by a static of_key() of its key,
/// where that is not the name.
template <class I>
concept lock_inspector = std::constructible_from<I, std::string> && std::move_constructible<I> &&
    requires(const I& about, const token& owner, const reply& answer) {
    { about.name() } -> std::convertible_to<std::string_view>;
    { about.inspect() } -> std::same_as<command>;
    { about.read_inspect(answer) } -> std::same_as<std::optional<lock_report>>;
    { about.force_release() } -> std::same_as<command>;
    { about.read_force_release(answer) } -> std::same_as<std::optional<bool>>;
    { about.forced() } -> std::same_as<command>;
    { about.was_forced(answer, owner) } -> std::convertible_to<bool>;
};

template <class D>
concept has_an_inspector = lock_inspector<typename D::inspector>;

/// How one lock is spoken about with the server. All functions are pure and may be called by any thread;
/// commands are views into the dialect and the token, which outlive them. A token that is used again must
/// never count twice: what is sent may arrive twice, and late.
///
/// Where it has `bool allows_local_fences() const`, and that is false, the threads of a process get every
/// fencing token from the server, instead of passing the lock on among themselves with one of their own.
///
/// Where it has `command renew(const token&, std::string_view milliseconds) const`, decimal digits that
/// outlive the command, the key of a lock that is kept for lock_options::hold_at_least ends with that time,
/// not with the lease.
///
/// Where it has `bool is_shared() const`, and that is true, a token is granted beside others: that a second
/// one of the same object is granted does not show that the first one was released. Such a one may have
/// `std::optional<command> acquire_unqueued(const token&, std::span<char> room) const`: see any_dialect.
///
/// Where it has `command exchange(const token& owner, const token& from) const`, that takes a lock for
/// `owner` which `from`, of the same object, has in another manner; answered as look(). `static constexpr
/// std::string_view noun` is what messages call it, where that is not "lock".
///
/// Those of `mutex` and `shared_mutex` are dialects also where they are only declared: a program that
/// compiles the engine separately need not see them.
template <class D>
concept dialect = (detail::dialect_of_ours<D> || describes_a_lock<D>)&&  // one a line: compilers
    (detail::dialect_of_ours<D> || acquires_a_lock<D>)&&                 // show that which fails
    (detail::dialect_of_ours<D> || keeps_a_lock<D>)&&                    //
    (detail::dialect_of_ours<D> || has_an_inspector<D>);

/// Waiters are queued on the server, while hands_over() is true, and the lock is handed to the first of them.
/// It is made with the channel on which the waiters of this process hear of that; messages begin with the
/// token. enter(token, mode) is a look() about a ticket, and release() removes the ticket.
template <class D>
concept queueing_dialect = dialect<D> &&
    std::constructible_from<D, std::string, const lock_options&, std::string_view> &&
    requires(const D& d, const token& owner, const reply& answer, std::string_view text) {
    { d.hands_over() } -> std::convertible_to<bool>;
    { d.enter(owner, enter_mode::join) } -> std::same_as<command>;
    { d.read_enter(answer) } -> std::same_as<acquire_outcome>;
    { D::read_message(text) } -> std::same_as<std::optional<handover>>;
    { D::name_in(text) } -> std::convertible_to<std::string_view>;
};

/// Releases are told on a channel to all who listen; what the message says does not matter.
template <class D>
concept telling_dialect = dialect<D> && requires(const D& d) {
    { d.channel() } -> std::convertible_to<std::string_view>;
};

namespace detail {

/// An argument for any parameter: finds a function whatever it takes.
struct anything {
    template <class T>
    operator T() const;
};

// Each: the function is as it must be, or there is none. The compiler asks in this order: a right one may be
// a template whose body knows nothing of `anything`.
template <class D>
concept allows_local_fences = requires(const D& d) {
    { d.allows_local_fences() } -> std::convertible_to<bool>;
};
template <class D>
concept may_allow_local_fences = allows_local_fences<D> || !requires(D & d) {
    d.allows_local_fences();
};

template <class D>
concept says_is_shared = requires(const D& d) {
    { d.is_shared() } -> std::convertible_to<bool>;
};
template <class D>
concept may_be_shared = says_is_shared<D> || !requires(D & d) {
    d.is_shared();
};

template <class D>
concept renews_for = requires(const D& d, const token& owner, std::string_view milliseconds) {
    { d.renew(owner, milliseconds) } -> std::same_as<command>;
};
template <class D>
concept may_renew_for = renews_for<D> || !requires(D & d, anything any) {
    d.renew(any, any);
};

template <class D>
concept acquires_unqueued = requires(const D& d, const token& owner, std::span<char> room) {
    { d.acquire_unqueued(owner, room) } -> std::same_as<std::optional<command>>;
};
template <class D>
concept may_acquire_unqueued = acquires_unqueued<D> || !requires(D & d, anything any) {
    d.acquire_unqueued(any, any);
};

template <class D>
concept exchanges = requires(const D& d, const token& owner, const token& from) {
    { d.exchange(owner, from) } -> std::same_as<command>;
};
template <class D>
concept may_exchange = exchanges<D> || !requires(D & d, anything any) {
    d.exchange(any, any);
};

}  // namespace detail

/// Compiles when D is a dialect, and else says what is missing. Put it beside your own: `static_assert(
/// distlock::check_dialect<my_dialect>());`
template <class D>
consteval bool check_dialect() {
    static_assert(
        std::constructible_from<D, std::string, const lock_options&>,
        "a dialect is made of a name and the options: `D(std::string, const distlock::lock_options&)`");
    static_assert(describes_a_lock<D>,
                  "a dialect says what its lock is: `const std::string& name() const`, "
                  "`std::chrono::milliseconds lease() const`, "
                  "`static constexpr std::string_view stored_as`, the type of the key");
    static_assert(acquires_a_lock<D>,
                  "a dialect acquires: `distlock::command acquire(const distlock::token&) const` and `look`, "
                  "`distlock::acquire_outcome read_acquire(const distlock::reply&) const` and `read_look`, "
                  "`bool acquire_is_script() const`");
    static_assert(keeps_a_lock<D>,
                  "a dialect renews and releases: `distlock::command renew(const distlock::token&) const`, "
                  "`release` and `release_minimal`, "
                  "`distlock::renew_outcome read_renew(const distlock::reply&) const`, "
                  "`distlock::release_verdict read_release(const distlock::reply&) const`");
    static_assert(
        has_an_inspector<D>,
        "a dialect has a type `inspector`, made of a name, with `inspect`, `force_release` and `forced`, and "
        "`read_inspect`, `read_force_release` and `was_forced`; see distlock::lock_inspector");
    // The engine leaves alone what is declared otherwise, and nobody would learn of it.
    static_assert(detail::may_allow_local_fences<D>,
                  "allows_local_fences must be `bool allows_local_fences() const`");
    static_assert(detail::may_be_shared<D>, "is_shared must be `bool is_shared() const`");
    static_assert(detail::may_renew_for<D>,
                  "renew for a time must be "
                  "`distlock::command renew(const distlock::token&, std::string_view milliseconds) const`");
    static_assert(detail::may_acquire_unqueued<D>,
                  "acquire_unqueued must be `std::optional<distlock::command> "
                  "acquire_unqueued(const distlock::token&, std::span<char>) const`");
    static_assert(detail::may_exchange<D>,
                  "exchange must be "
                  "`distlock::command exchange(const distlock::token&, const distlock::token&) const`");
    static_assert(
        !requires(const D& d, const token& owner) { d.enter(owner, enter_mode::join); } ||
            queueing_dialect<D>,
        "a dialect with `enter` queues waiters: it is made of a name, the options and a channel, and has "
        "`bool hands_over() const`, `distlock::command enter(const distlock::token&, distlock::enter_mode) "
        "const`, "
        "`distlock::acquire_outcome read_enter(const distlock::reply&) const`, and the static "
        "`std::optional<distlock::handover> read_message(std::string_view)` and "
        "`std::string_view name_in(std::string_view)`");
    static_assert(
        !requires(const D& d) { d.channel(); } || telling_dialect<D>,
        "channel must be `std::string_view channel() const`, on which releases are told");
    static_assert(
        !(queueing_dialect<D> && telling_dialect<D>),
        "a dialect hands locks over to waiters in a queue, or tells them all of a release, not both");
    return dialect<D>;
}

}  // namespace distlock
