// distlock::shared_scoped_lock: reads under a shared_mutex for as long as it lives.
//
//   template <class Mutex>
//   class shared_scoped_lock {
//     explicit shared_scoped_lock(Mutex&);                        // waits
//     shared_scoped_lock(Mutex&, std::stop_token);                // until stopped
//     shared_scoped_lock(std::adopt_lock_t, Mutex&) noexcept;     // the calling thread reads
//     shared_scoped_lock(shared_scoped_lock&&) noexcept;
//     shared_scoped_lock& operator=(shared_scoped_lock&&) noexcept;
//     ~shared_scoped_lock();                                      // reads no more; never throws
//     bool owns_lock() const noexcept;
//     time_point valid_until() const noexcept;
//     duration remaining() const noexcept;
//     std::stop_token lost() const;
//     std::uint64_t fencing_token() const noexcept;               // of the last writer
//     const std::string& name() const noexcept;
//   };
#pragma once

#include <algorithm>
#include <chrono>
#include <concepts>
#include <cstdint>
#include <mutex>
#include <string>
#include <utility>

#include <distlock/base/clock.hpp>
#include <distlock/detail/stop_token.hpp>
#include <distlock/scoped_lock.hpp>
#include <distlock/shared_mutex.hpp>

namespace distlock {

/// A guard releases only the read it acquired, on whatever thread it ends: if that lease was lost, its
/// destructor releases nothing.
template <class Mutex>
class shared_scoped_lock {
  public:
    using time_point = clock::time_point;
    using duration = clock::duration;

    /// Preconditions: the mutex outlives the guard.
    /// Effects: waits for its turn to read.
    /// Postconditions: owns_lock().
    /// Throws: error: what shared_mutex::lock_shared throws, errc::cancelled when `stop` is requested.
    /// Round trips: as shared_mutex::lock_shared().
    [[nodiscard("an unnamed guard releases the lock at once")]] explicit shared_scoped_lock(Mutex& mutex)
        : shared_scoped_lock(mutex, std::stop_token{}) {}
    [[nodiscard("an unnamed guard releases the lock at once")]] shared_scoped_lock(Mutex& mutex,
                                                                                   std::stop_token stop)
        : mutex_(&mutex) {
        static_assert(
            requires {
                typename Mutex::connection_type;
                mutex.lock_shared();
            },
            "a distlock::shared_scoped_lock reads under a distlock::shared_mutex, which is not const; for a "
            "mutex take a scoped_lock");
        const auto got = detail::guard_access::lock_shared(mutex, stop);
        serial_ = got.serial;
        fence_ = got.fence;
    }

    /// Preconditions: the mutex outlives the guard; the calling thread reads, and no other guard owns that
    /// read.
    /// Effects: the guard takes over the read. A read that was lost before is not held: see owns_lock().
    [[nodiscard("an unnamed guard releases the lock at once")]] shared_scoped_lock(std::adopt_lock_t,
                                                                                   Mutex& mutex) noexcept
        : mutex_(&mutex) {
        const auto has = detail::guard_access::adopt_shared(mutex);
        serial_ = has.serial;
        fence_ = has.fence;
    }

    template <class Rep, class Period>
    shared_scoped_lock(Mutex&, std::chrono::duration<Rep, Period>) {
        static_assert(!std::same_as<Rep, Rep>,
                      "a distlock::shared_scoped_lock waits as long as it takes; to wait no longer than a "
                      "time-out write if (m.try_lock_shared_for(timeout)), and adopt it then");
    }
    template <std::same_as<std::adopt_lock_t> Adopt>
    shared_scoped_lock(Mutex&, Adopt) {
        static_assert(!std::same_as<Adopt, std::adopt_lock_t>,
                      "to adopt a read write shared_scoped_lock guard{std::adopt_lock, m}");
    }

    shared_scoped_lock(shared_scoped_lock&& other) noexcept
        : mutex_(other.mutex_),
          serial_(std::exchange(other.serial_, 0)),
          fence_(std::exchange(other.fence_, 0)) {}
    /// Effects: ends what it has, then takes over what `other` has.
    shared_scoped_lock& operator=(shared_scoped_lock&& other) noexcept {
        if (this != &other) {
            end();
            mutex_ = other.mutex_;
            serial_ = std::exchange(other.serial_, 0);
            fence_ = std::exchange(other.fence_, 0);
        }
        return *this;
    }
    shared_scoped_lock(const shared_scoped_lock&) = delete;
    shared_scoped_lock& operator=(const shared_scoped_lock&) = delete;
    ~shared_scoped_lock() { end(); }

    /// Returns: whether it reads, and its lease has not run out. Local and cheap.
    bool owns_lock() const noexcept { return remaining() > duration::zero(); }

    /// Returns: until when the owner may rely on the read: each renewal moves it forward. Not after now once
    /// it is lost, time_point{} after a move.
    time_point valid_until() const noexcept {
        return serial_ == 0 ? time_point{} : detail::guard_access::shared_until(*mutex_, serial_);
    }

    /// Returns: how long it may still believe that it reads; zero when it does not.
    duration remaining() const noexcept {
        if (serial_ == 0) return duration::zero();
        return detail::left_until<typename Mutex::clock_type>(valid_until());
    }

    /// Returns: a token that is stopped once the lease is lost; see mutex::lost(). After a move: stopped.
    /// Throws: error(errc::no_thread), std::bad_alloc, on the first call.
    std::stop_token lost() const {
        return serial_ == 0 ? detail::stopped_token() : detail::guard_access::shared_lost(*mutex_, serial_);
    }

    /// Returns: the fencing token of the last writer before it, also after a loss; 0 after a move, or without
    /// lock_options::fencing. After shared_mutex::try_upgrade() the new writer's; after its loss perhaps the
    /// one before that.
    std::uint64_t fencing_token() const noexcept {
        if (serial_ == 0) return fence_;
        return std::max(fence_, detail::guard_access::shared_fence(*mutex_, serial_));
    }

    /// Returns: as mutex::name(). Preconditions: the mutex still exists.
    const std::string& name() const noexcept { return mutex_->name(); }

  private:
    void end() noexcept {
        if (serial_ != 0) detail::guard_access::unlock_shared(*mutex_, std::exchange(serial_, 0));
    }

    Mutex* mutex_;
    std::uint64_t serial_ = 0;  // 0: none
    std::uint64_t fence_ = 0;
};

template <class M>
shared_scoped_lock(M&) -> shared_scoped_lock<M>;
template <class M>
shared_scoped_lock(M&, std::stop_token) -> shared_scoped_lock<M>;
template <class M, class Rep, class Period>
shared_scoped_lock(M&, std::chrono::duration<Rep, Period>) -> shared_scoped_lock<M>;
template <class M>
shared_scoped_lock(std::adopt_lock_t, M&) -> shared_scoped_lock<M>;

}  // namespace distlock
