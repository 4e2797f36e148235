// What the owner of a lock can be told about its lease.
//
//   enum class loss_reason { expired, taken, forced, max_hold };
//   class lease_observer {
//     virtual void at_risk(const std::string& name, clock::duration left);
//     virtual void lost(const std::string& name, loss_reason why);
//     virtual void master_changed(const std::string& name);
//   };
#pragma once

#include <string>

#include <distlock/base/clock.hpp>

namespace distlock {

/// Why a lock was lost before it was released.
enum class loss_reason {
    expired,   ///< its validity ran out, or the key is gone: not renewed in time, or the server lost its data
    taken,     ///< somebody else holds it
    forced,    ///< an operator took it away with force_release()
    max_hold,  ///< lock_options::max_hold was over
};

/// Derive from it and give it to the constructor of a mutex. One may watch many locks.
///
/// Its functions are called on a thread of the library that holds no lock of the library: they may block,
/// throw (which is ignored), and call anything, unlock() of the same lock and the end of its mutex included.
/// That unlock() is in the owner's place: an owner whose guard is none of ours must not unlock after it.
/// One that blocks delays neither other locks nor std::stop_token of lost(). Two may run at once. A call may
/// come shortly after the mutex is gone, none after its connection is.
class lease_observer {
  public:
    lease_observer() = default;
    lease_observer(const lease_observer&) = delete;
    lease_observer& operator=(const lease_observer&) = delete;
    virtual ~lease_observer() = default;

    /// A renewal failed, for the first time since one succeeded. It is tried again until the lock is lost,
    /// for as long as `left`.
    virtual void at_risk(const std::string& /*name*/, clock::duration /*left*/) {}

    /// The lock is no longer ours. Once for an acquisition, and never for one that was released in time.
    virtual void lost(const std::string& /*name*/, loss_reason /*why*/) {}

    /// Another server took the place of the master that the lock was granted by, over a connection that
    /// follows it. The lock is renewed there at once; where it did not get there in time, lost() follows. Of
    /// locks that are renewed.
    virtual void master_changed(const std::string& /*name*/) {}
};

}  // namespace distlock
