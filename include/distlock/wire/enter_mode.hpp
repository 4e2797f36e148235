// What a waiter asks of the queue besides the lock.
#pragma once

namespace distlock {

/// What becomes of the waiter when somebody else has the lock.
enum class enter_mode {
    try_once,  ///< it is not queued
    join,      ///< it has a ticket from then on, the one it had already if it was queued
    last,      ///< its ticket is removed
};

}  // namespace distlock
