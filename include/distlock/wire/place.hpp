// The line of those who wait for a lock.
#pragma once

namespace distlock {

/// Where an attempt stands in that line.
enum class place {
    none,   ///< in no line
    join,   ///< gets in line when the lock is taken
    stay,   ///< is in line
    quit,   ///< is in line, and leaves it when the lock is taken
    adopt,  ///< the lock was offered to the token, which confirms that it takes it
};

}  // namespace distlock
