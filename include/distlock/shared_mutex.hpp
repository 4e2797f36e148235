// distlock::shared_mutex: a std::shared_timed_mutex for a fleet of processes.
//
//   template <connection Conn, class Clock = clock>
//   class shared_mutex : public mutex<Conn, exclusive_handoff, Clock> {
//       // a writer's side: lock(), unlock() and the rest
//     shared_mutex(Conn&, std::string name, lock_options = {}, std::shared_ptr<lease_observer> = {});
//     void lock_shared();
//     bool try_lock_shared();
//     bool try_lock_shared_for(duration);
//     bool try_lock_shared_until(time_point);     // of any clock
//     release_outcome unlock_shared() noexcept;
//     void downgrade();                           // from writing to reading, in one step
//     bool try_upgrade();                         // from reading to writing, if nobody else reads
//     time_point shared_until() const noexcept;   // of the calling thread
//     std::stop_token shared_lost() const;        // the same
//     std::uint64_t shared_fencing_token() const noexcept;   // the same
//   };
//
// The four that take the lock also accept, as last arguments, a std::stop_token, a std::error_code&, or both
// in this order. With an error_code they return bool and do not throw; so do downgrade() and try_upgrade().
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <stop_token>
#include <string>
#include <system_error>
#include <utility>

#include <distlock/base/clock.hpp>
#include <distlock/base/error.hpp>
#include <distlock/base/observer.hpp>
#include <distlock/base/options.hpp>
#include <distlock/detail/printable.hpp>
#include <distlock/engine/call_forms.hpp>
#include <distlock/engine/shared_core.hpp>
#ifndef DISTLOCK_SEPARATE_COMPILATION
#include <distlock/engine/shared_core_impl.hpp>
#endif
#include <distlock/mutex.hpp>
#include <distlock/net/connection.hpp>
#include <distlock/wire/dialect.hpp>
#include <distlock/wire/outcome.hpp>

namespace distlock {

/// A lock on a name that one writer has alone, or readers together. The writer's side is a mutex, with all
/// that a mutex promises: every client that takes a lock by SET NX PX on this name excludes writers and
/// readers, and is excluded by both. All distlock clients of the name should use shared_mutex: if one of them
/// uses a mutex, the lock stays exclusive, but readers lose their positions in the queue.
///
/// Waiters over a subscribing_connection are served in the order they came: readers that come later do not
/// overtake a writer that waits, and readers that stand together at the front enter together. All other
/// waiters poll; a writer that polls starves while readers keep coming. Each reader has a lease of its own,
/// renewed for as long as it reads: one that dies keeps writers out until its own lease ends, however many
/// others read.
///
/// The readers of one object that come together have one grant for all: a thousand threads cost the server
/// what one costs. They share it for lock_options::local_budget, or until a writer of this object waits; a
/// reader that comes then asks the server anew.
///
/// It meets the standard's SharedTimedLockable requirements: std::shared_lock, std::unique_lock,
/// std::scoped_lock work, and so do distlock::scoped_lock, which locks it for writing, and
/// distlock::shared_scoped_lock. As with std::shared_mutex, a thread that has it must not ask for it again,
/// and a reader calls unlock_shared() on the thread that locked.
///
/// A reader's fencing token is that of the last writer; its owner_info is not kept. A name with a `}` but no
/// `{hash tag}` is refused with errc::invalid_name.
///
/// All members may be called from several threads. `Conn` must outlive the shared_mutex.
template <connection Conn, class Clock = clock>
class shared_mutex : public mutex<Conn, exclusive_handoff, Clock> {
    using base = mutex<Conn, exclusive_handoff, Clock>;
    using typename base::manner;
    using typename base::result;

  public:
    using typename base::duration;
    using typename base::time_point;

    /// `observer` is told when a lease is at risk, and when it is lost: a writer's, or that
    /// of readers together.
    /// Effects: none on the server.
    /// Throws: error with errc::invalid_name, errc::invalid_lease, errc::invalid_option or
    /// errc::no_entropy; std::bad_alloc.
    shared_mutex(Conn& connection, const std::string& name, const lock_options& options = {},
                 std::shared_ptr<lease_observer> observer = {})
        : shared_mutex(engine::shared_core_of<Clock>(connection, name, options, std::move(observer))) {}

    /// Effects: waits until no writer has the lock and none stands before this reader, however long. Retries
    /// a server that is unreachable, loading, silent or a replica for lock_options::patience.
    /// Throws: error, as mutex::lock().
    /// Round trips: one if it may read; two in the queue, or one if its object found the lock taken the last
    /// time; and one for each re-check. None where other readers of this object have just entered.
    void lock_shared() { lock_shared(std::stop_token{}); }
    void lock_shared(std::stop_token stop) {
        engine::throw_on_error(readers_.acquire_shared(time_point::max(), {}, stop));
    }
    bool lock_shared(std::error_code& ec) noexcept { return lock_shared(std::stop_token{}, ec); }
    bool lock_shared(std::stop_token stop, std::error_code& ec) noexcept {
        return engine::taken_or_error(ec,
                                      [&] { return readers_.acquire_shared(time_point::max(), {}, stop); });
    }

    /// Effects: tries once, without waiting for another owner.
    /// Returns: whether the lock was taken; false only when a writer has it, or waits for it.
    /// Throws: error.
    /// Round trips: one, and more while a posted release of this object is not confirmed, as
    /// mutex::try_lock(). None where other readers of this object have just entered.
    [[nodiscard("unless the result is true, the lock was not taken")]] bool try_lock_shared() {
        return try_lock_shared(std::stop_token{});
    }
    [[nodiscard("unless the result is true, the lock was not taken")]] bool try_lock_shared(
        std::stop_token stop) {
        return engine::taken_or_throw(readers_.acquire_shared(time_point::max(), {.once = true}, stop));
    }
    [[nodiscard("unless the result is true, the lock was not taken")]] bool try_lock_shared(
        std::error_code& ec) noexcept {
        return try_lock_shared(std::stop_token{}, ec);
    }
    [[nodiscard("unless the result is true, the lock was not taken")]] bool try_lock_shared(
        std::stop_token stop, std::error_code& ec) noexcept {
        return engine::taken_or_error(
            ec, [&] { return readers_.acquire_shared(time_point::max(), {.once = true}, stop); });
    }

    /// Effects: as lock_shared(), for at most `timeout`; zero or less tries once.
    /// Returns: whether the lock was taken; false only as try_lock_shared(), and when the time is up.
    /// Throws: error.
    /// Round trips: as lock_shared(), and one when the time is up.
    template <class Rep, class Period>
    [[nodiscard("unless the result is true, the lock was not taken")]] bool try_lock_shared_for(
        std::chrono::duration<Rep, Period> timeout, std::stop_token stop = {}) {
        return engine::taken_or_throw(readers_.acquire_shared(engine::after<Clock>(timeout), {}, stop));
    }
    template <class Rep, class Period>
    [[nodiscard("unless the result is true, the lock was not taken")]] bool try_lock_shared_for(
        std::chrono::duration<Rep, Period> timeout, std::error_code& ec) noexcept {
        return try_lock_shared_for(timeout, std::stop_token{}, ec);
    }
    template <class Rep, class Period>
    [[nodiscard("unless the result is true, the lock was not taken")]] bool try_lock_shared_for(
        std::chrono::duration<Rep, Period> timeout, std::stop_token stop, std::error_code& ec) noexcept {
        return engine::taken_or_error(
            ec, [&] { return readers_.acquire_shared(engine::after<Clock>(timeout), {}, stop); });
    }

    /// Effects: as try_lock_shared_for, until `Other`, any clock, reaches `deadline`. If that clock is set
    /// back during the wait, the call waits longer; if it is set forward, the call does not notice.
    template <detail::any_clock Other, class Duration>
    [[nodiscard("unless the result is true, the lock was not taken")]] bool try_lock_shared_until(
        std::chrono::time_point<Other, Duration> deadline, std::stop_token stop = {}) {
        return engine::taken_or_throw(acquire_until(deadline, stop));
    }
    template <detail::any_clock Other, class Duration>
    [[nodiscard("unless the result is true, the lock was not taken")]] bool try_lock_shared_until(
        std::chrono::time_point<Other, Duration> deadline, std::error_code& ec) noexcept {
        return try_lock_shared_until(deadline, std::stop_token{}, ec);
    }
    template <detail::any_clock Other, class Duration>
    [[nodiscard("unless the result is true, the lock was not taken")]] bool try_lock_shared_until(
        std::chrono::time_point<Other, Duration> deadline, std::stop_token stop,
        std::error_code& ec) noexcept {
        return engine::taken_or_error(ec, [&] { return acquire_until(deadline, stop); });
    }

    /// Effects: ends the calling thread's read; if it lost a read and has locked again, the new one first.
    /// The last reader of a shared grant releases it, and the server hands the lock to a waiter.
    /// Returns: `released` while other readers share the grant; for the last one, what mutex::unlock()
    /// returns; `expired` after a loss; `not_held` when the thread does not read, or a shared_scoped_lock
    /// owns its read (nothing was sent).
    release_outcome unlock_shared() noexcept { return readers_.unlock_shared(); }

    /// Effects: the calling thread, which has the lock for writing, reads from now on: no other writer is let
    /// in between. Readers that wait at the front of the queue enter with it. This is a new acquisition, as
    /// that of try_upgrade() is: lock_options::max_hold and lock_options::hold_at_least count anew, and
    /// hold_at_least does not apply to the acquisition that it replaces, or fails to replace. A
    /// distlock::scoped_lock of that one ends the new one, and its owns_lock() and valid_until() speak of it,
    /// as does its lost() when it is asked anew; its fencing_token() does not fall. The guards of the
    /// standard must be told: release() them, and end it by unlock_shared().
    /// Postconditions: if it throws, the thread has the lock neither for writing nor for reading. A thread
    /// that had locked it without a distlock::scoped_lock then calls unlock() once more, as after a loss: it
    /// frees nothing and returns `expired`. So release() a guard of the standard only after this returned.
    /// Throws: error; errc::not_held when the thread has not locked it for writing, or has lost it, or its
    /// guard has ended on another thread meanwhile.
    /// Round trips: one; two with lock_options::replicas.
    void downgrade() {
        if (engine::taken_or_throw(readers_.downgrade())) return;
        throw error(errc::not_held, detail::shown_lock(this->name()));
    }
    bool downgrade(std::error_code& ec) noexcept {
        const bool done = engine::taken_or_error(ec, [&] { return readers_.downgrade(); });
        if (!done && !ec) ec = errc::not_held;
        return done;
    }

    /// Effects: if nobody else reads, the calling thread, which reads, has the lock for writing from now on:
    /// no other writer is let in between, not even one that waits already. It waits for nobody: two readers
    /// that waited for each other to finish would wait for ever.
    /// Returns: whether the thread has the lock for writing; if not, it still reads. Also false if the thread
    /// does not read, or has lost its read, or its guard has ended on another thread meanwhile, and while
    /// another thread of this object waits to write.
    /// Preconditions: the thread that locked a shared_scoped_lock does not end before the guard: the next
    /// thread may get the same std::thread::id.
    /// Postconditions: on true, a shared_scoped_lock of the read ends the write, unless another guard adopts
    /// it or the thread unlocks it; guards of the standard do not. If it throws, the thread has neither.
    /// Throws: error.
    /// Round trips: one, two with lock_options::replicas; none where another thread of this object reads by
    /// the same grant.
    [[nodiscard("unless the result is true, the lock is only read under")]] bool try_upgrade() {
        return engine::taken_or_throw(readers_.try_upgrade());
    }
    [[nodiscard("unless the result is true, the lock is only read under")]] bool try_upgrade(
        std::error_code& ec) noexcept {
        return engine::taken_or_error(ec, [&] { return readers_.try_upgrade(); });
    }

    /// Returns: until when the calling thread may rely on its read: each renewal moves it forward, only a
    /// loss moves it back. time_point{} if it does not read.
    time_point shared_until() const noexcept { return readers_.shared_until(); }

    /// Returns: a token that is stopped once the calling thread's read is lost; see mutex::lost(). If it does
    /// not read: a stopped one. Readers that share a grant share its token, so it may be stopped after this
    /// thread has ended its read, too.
    /// Throws: error(errc::no_thread), std::bad_alloc, on the first call for a grant.
    std::stop_token shared_lost() const { return readers_.shared_lost(); }

    /// Returns: the fencing token of the last writer before the calling thread began to read, also after a
    /// loss; 0 if it does not read, or without lock_options::fencing.
    std::uint64_t shared_fencing_token() const noexcept { return readers_.shared_fence(); }

  private:
    friend detail::guard_access;
    friend detail::joint_access;

    explicit shared_mutex(std::unique_ptr<engine::shared_core> made) : shared_mutex(*made, std::move(made)) {}
    shared_mutex(engine::shared_core& same, std::unique_ptr<engine::shared_core>&& made)
        : base(std::move(made)), readers_(same) {}

    template <detail::any_clock Other, class Duration>
    result acquire_until(std::chrono::time_point<Other, Duration> deadline, const std::stop_token& stop) {
        return engine::try_until(deadline, [&](auto left) {
            return readers_.acquire_shared(engine::after<Clock>(left), {}, stop);
        });
    }

    result acquire_shared_guarded(const std::stop_token& stop) {
        return engine::throw_on_error(
            readers_.acquire_shared(time_point::max(), manner{.guarded = true}, stop));
    }
    result adopt_shared() noexcept { return readers_.adopt_shared(); }
    engine::shared_core& readers() const noexcept { return readers_; }

    engine::shared_core& readers_;  // the base has it
};

template <connection Conn>
shared_mutex(Conn&, std::string) -> shared_mutex<Conn>;
template <connection Conn>
shared_mutex(Conn&, std::string, lock_options) -> shared_mutex<Conn>;
template <connection Conn>
shared_mutex(Conn&, std::string, lock_options, std::shared_ptr<lease_observer>) -> shared_mutex<Conn>;
template <class C, class Name, class... More>
shared_mutex(C&&, Name&&, More&&...) -> shared_mutex<detail::refused_connection_t<C>>;

}  // namespace distlock
