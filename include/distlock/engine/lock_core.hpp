// The engine as mutexes and guards see it. They are templates; the engine behind this is not.
//
//   class lock_core { acquire, unlock, and what there is to know about the acquisition };
//   std::unique_ptr<lock_core> lock_core_of<Dialect, Clock>(Conn&, name, options, observer);
#pragma once

#include <chrono>
#include <concepts>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include <distlock/base/clock.hpp>
#include <distlock/base/error.hpp>
#include <distlock/base/observer.hpp>
#include <distlock/base/options.hpp>
#include <distlock/base/time_source.hpp>
#include <distlock/base/token.hpp>
#include <distlock/detail/separate.hpp>
#include <distlock/detail/stop_token.hpp>
#include <distlock/net/any_connection.hpp>
#include <distlock/net/connection.hpp>
#include <distlock/net/service_registry.hpp>
#include <distlock/wire/any_dialect.hpp>
#include <distlock/wire/channel_kind.hpp>
#include <distlock/wire/dialect.hpp>
#include <distlock/wire/outcome.hpp>

namespace distlock::engine {

class joint_executor;

/// Returns: the options that take effect. hold_at_least turns local_budget off: another thread of the process
/// would be another owner, and too early as any other.
inline lock_options in_effect(lock_options options) noexcept {
    if (options.hold_at_least.get().count() > 0) options.local_budget = std::chrono::milliseconds{0};
    return options;
}

/// One lock object, shared by threads. In a child after fork() every function says so, and the
/// destructor does nothing.
class lock_core {
  public:
    struct manner {
        bool once = false;     ///< do not wait for another owner
        bool guarded = false;  ///< a guard ends this acquisition, by its serial
        /// Of `once`: a token whose lock this acquisition takes over in one step.
        const token* in_exchange_for = nullptr;
        joint_executor* together = nullptr;  ///< of `once`: sends its command with those of other locks
        /// The trouble with the server of another thread that this one waited for; time_point::max(): none.
        clock::time_point failing_since = clock::time_point::max();
    };
    struct result {
        std::uint64_t serial = 0;  ///< of the acquisition; 0: none
        std::uint64_t fence = 0;
        errc cause = {};           ///< why there is none, where that is not taken()
        bool without_ttl = false;  ///< of a lock somebody else has
        std::string detail = {};
        /// With the server, where that is the cause.
        clock::time_point failing_since = clock::time_point::max();

        bool granted() const noexcept { return serial != 0; }
        /// Returns: whether somebody else has the lock, or waits for it.
        bool taken() const noexcept { return !granted() && cause == errc{}; }
    };

    /// An acquisition in whose place another lock is asked for.
    struct exchange {
        token from = {};           ///< empty: there is none
        std::uint64_t serial = 0;  ///< of the acquisition
        bool guarded = false;      ///< a guard ends it
    };

    lock_core() = default;
    lock_core(const lock_core&) = delete;
    lock_core& operator=(const lock_core&) = delete;
    /// Preconditions: no thread is in a member function.
    virtual ~lock_core() = default;

    virtual const std::string& name() const noexcept = 0;

    /// Throws: error(errc::no_entropy), error(errc::no_thread), std::bad_alloc; nothing is held then.
    virtual result acquire(clock::time_point until, manner how, const std::stop_token& stop) = 0;

    /// Effects: a guard ends what the calling thread has acquired without one, by its serial.
    /// Returns: that; no serial where it was lost, or was not there.
    virtual result adopt() noexcept = 0;

    /// As mutex::unlock().
    virtual release_outcome unlock() noexcept = 0;
    /// Effects: ends that acquisition and no other.
    virtual release_outcome unlock(std::uint64_t serial) noexcept = 0;
    /// Effects: as unlock(), 0: the calling thread's, of an acquisition that nobody has used, since others
    /// could not be had with it: lock_options::hold_at_least does not count.
    virtual void undo(std::uint64_t serial = 0) noexcept = 0;

    /// Returns: that acquisition, or the calling thread's; none where it is lost, or over. Until
    /// surrender() or end_exchange() what the server says of it is no loss, and a thread that ends it
    /// passes it on to no other.
    virtual exchange begin_exchange(std::uint64_t serial = 0) noexcept = 0;
    /// Effects: it is an acquisition as before.
    virtual void end_exchange(const exchange&) noexcept = 0;
    /// Effects: ends that acquisition and no other. Its token is released in the background. `in_vain`:
    /// nothing came of it: as after a loss, one unlock() of the calling thread is still to come.
    virtual void surrender(const exchange&, bool in_vain) noexcept = 0;

    /// Of the present acquisition, where none is named by its serial.
    virtual clock::time_point valid_until(std::uint64_t serial = 0) const noexcept = 0;
    virtual std::stop_token lost(std::uint64_t serial = 0) const = 0;
    virtual std::uint64_t fence(std::uint64_t serial = 0) const noexcept = 0;
    virtual clock::duration residual() const noexcept = 0;

    /// Returns: whether a release was posted that the server may not have had yet. By any thread.
    virtual bool unconfirmed() noexcept = 0;
    /// Effects: asks the server what became of it, until `by` or a moment longer. By any thread.
    virtual void confirm_posted(clock::time_point by, const std::stop_token& stop) noexcept = 0;

    /// Returns: whether it can be asked for in one command with others.
    virtual bool may_join() const = 0;
    virtual any_connection& connection() const noexcept = 0;

    /// Returns: whether this is a child after fork(), whose parent the lock belongs to.
    virtual bool in_forked_child() const noexcept = 0;
};

class background_io;

DISTLOCK_INLINE std::shared_ptr<background_io> make_background_io(std::unique_ptr<any_connection> connection,
                                                                  time_source time);
/// Returns: the one of a connection that has no place for it, which lives as long as somebody keeps it;
/// made of `with` where there is none. `kind` tells connections apart that have one address, one within
/// the other, and clocks.
DISTLOCK_INLINE std::shared_ptr<background_io> registered_background_io(const void* connection,
                                                                        const void* kind,
                                                                        std::unique_ptr<any_connection> with,
                                                                        time_source time);
/// Where the server finds the waiters of a lock.
struct waiters_channel {
    std::string name = {};
    channel_kind kind = channel_kind::ordinary;
};
/// Returns: that of this connection; an empty name where it cannot subscribe.
DISTLOCK_INLINE waiters_channel channel_of(const background_io& io, std::string_view lock);

/// Throws: error with errc::invalid_lease or errc::invalid_option, also for what this connection cannot do;
/// it names the lock.
DISTLOCK_INLINE void check_options(const background_io& io, std::string_view lock,
                                   const lock_options& options);

/// Preconditions: the options are checked.
DISTLOCK_INLINE std::unique_ptr<lock_core> make_lock_core(std::shared_ptr<background_io> io,
                                                          std::shared_ptr<const any_dialect> dialect,
                                                          const lock_options& options,
                                                          std::shared_ptr<lease_observer> observer);

/// The lock of most programs is compiled with the engine.
/// Throws: as lock_core_of().
DISTLOCK_INLINE std::unique_ptr<lock_core> make_handoff_core(std::shared_ptr<background_io> io,
                                                             std::string name, const lock_options& options,
                                                             std::shared_ptr<lease_observer> observer);

// The locks of one connection that read the same clock share it.
template <class Clock, class Conn>
struct background_io_key {
    static constexpr char value{};
};

/// Returns: the background I/O of `connection`: the one that lives in it, or one that lives as long
/// as somebody keeps it.
template <class Clock, connection Conn>
std::shared_ptr<background_io> background_io_of(Conn& connection) {
    constexpr time_source time = time_source::of<Clock>();
    using key = background_io_key<Clock, Conn>;
    const auto of_any_type = [&] { return std::make_unique<any_connection_of<Conn>>(connection); };
    if constexpr (service_hosting_connection<Conn>) {
        return connection.services().template get<background_io, key>(
            [&] { return make_background_io(of_any_type(), time); });
    } else {
        return registered_background_io(reinterpret_cast<const void*>(&connection), &key::value,
                                        of_any_type(), time);
    }
}

/// Throws: error with errc::invalid_name, errc::invalid_lease, errc::invalid_option or
/// errc::no_entropy; std::bad_alloc.
template <dialect Dialect, class Clock, connection Conn>
std::unique_ptr<lock_core> lock_core_of(Conn& connection, std::string name, const lock_options& options,
                                        std::shared_ptr<lease_observer> observer) {
    auto io = background_io_of<Clock>(connection);
    if constexpr (std::same_as<Dialect, handoff>) {
        return make_handoff_core(std::move(io), std::move(name), options, std::move(observer));
    } else {
        check_options(*io, name, options);
        std::shared_ptr<const any_dialect> about;
        if constexpr (queueing_dialect<Dialect> && subscribing_connection<Conn> &&
                      !sharded_connection<Conn>) {
            const auto channel = channel_of(*io, name);
            about = std::make_shared<const any_dialect_of<Dialect>>(std::move(name), options, channel.name);
        } else {
            about = std::make_shared<const any_dialect_of<Dialect>>(std::move(name), options);
        }
        return make_lock_core(std::move(io), std::move(about), options, std::move(observer));
    }
}

}  // namespace distlock::engine
