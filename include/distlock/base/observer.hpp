// The interface through which an owner hears about its lease.
//
//   enum class loss_reason { expired, taken, forced, max_hold };
//   class lease_observer {
//     virtual void at_risk(const std::string& name, clock::duration left);
//     virtual void lost(const std::string& name, loss_reason why);
//     virtual void master_changed(const std::string& name);
//   };
#pragma once

#include <string>
#include <string_view>

#include <distlock/base/clock.hpp>

namespace distlock {

/// Why a lock was lost before it was released.
enum class loss_reason {
    expired,   ///< its validity ran out, or the key is gone: not renewed in time, or the server lost its data
    taken,     ///< somebody else holds it
    forced,    ///< an operator took it away with force_release()
    max_hold,  ///< lock_options::max_hold was over
};

constexpr std::string_view to_string(loss_reason why) noexcept {
    constexpr std::string_view words[] = {"expired", "taken", "forced", "max_hold"};
    return words[static_cast<unsigned>(why)];
}

/// Derive from it and give it to the constructor of a mutex of any kind, or of a counting_semaphore. One may
/// watch many locks.
///
/// Its functions are called on a thread of the library that holds no lock of the library: they may block,
/// throw (which is ignored), and call anything, unlock() of the same lock and the end of its mutex included.
/// An unlock() in a callback ends the acquisition that the callback is about and no other of that lock; the
/// owner must still call unlock(), which returns `expired`. It does not stop lost(), and does not end a
/// reader's lock or that of a recursive_mutex. During the call owns_lock(), fencing_token() and the like
/// speak of that acquisition. A lock that the function itself takes is its own: it unlocks it, or leaves that
/// to another thread. A function that blocks delays neither other locks nor the std::stop_token of lost(),
/// and the next call by 5 ms: then another thread makes it. Two calls may run at once. A call may still come
/// shortly after the mutex was destroyed, but none after its connection was.
class lease_observer {
  public:
    lease_observer() = default;
    lease_observer(const lease_observer&) = delete;
    lease_observer& operator=(const lease_observer&) = delete;
    virtual ~lease_observer() = default;

    /// A renewal failed, for the first time since one succeeded. The library retries it until it succeeds or
    /// `left` is over; then the lock is lost. While the library asks a Cluster for its map, or Sentinels for
    /// the master, no renewal is sent: of a lease that is hardly longer than the time-outs only the loss is
    /// told then.
    virtual void at_risk(const std::string& /*name*/, clock::duration /*left*/) {}

    /// The lock is no longer ours. Called once for an acquisition whose loss is noticed before its unlock(),
    /// and never for one that was released in time.
    virtual void lost(const std::string& /*name*/, loss_reason /*why*/) {}

    /// Another server took the place of the master that granted the lock; only over a following_connection,
    /// and only for locks that are renewed. The lock is renewed on the new master at once; if it did not get
    /// there in time, lost() follows.
    virtual void master_changed(const std::string& /*name*/) {}
};

}  // namespace distlock
