// Only the connections, distlock::hiredis_connection, sentinel_connection and cluster_connection: add
// <distlock/distlock.hpp>. Link distlock::hiredis.
#pragma once

#include <memory>

#include <distlock/base/clock.hpp>
#include <distlock/engine/lock_core.hpp>
#include <distlock/hiredis/cluster_connection.hpp>
#include <distlock/hiredis/connection.hpp>
#include <distlock/hiredis/sentinel_connection.hpp>

#ifdef DISTLOCK_SEPARATE_COMPILATION
// src.hpp compiles once all that the engine has of a connection's type.
namespace distlock::engine {
extern template std::shared_ptr<background_io> background_io_of<clock>(cluster_connection&);
extern template std::shared_ptr<background_io> background_io_of<clock>(hiredis_connection&);
extern template std::shared_ptr<background_io> background_io_of<clock>(sentinel_connection&);
}  // namespace distlock::engine
#endif
