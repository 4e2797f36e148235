// Only the connections, distlock::hiredis_connection, sentinel_connection and cluster_connection: add <distlock/distlock.hpp>. Link
// distlock::hiredis.
#pragma once

#include <memory>
#include <string>

#include <distlock/base/clock.hpp>
#include <distlock/base/observer.hpp>
#include <distlock/base/options.hpp>
#include <distlock/engine/lock_core.hpp>
#include <distlock/hiredis/cluster_connection.hpp>
#include <distlock/hiredis/connection.hpp>
#include <distlock/hiredis/sentinel_connection.hpp>
#include <distlock/wire/dialect.hpp>

#ifdef DISTLOCK_SEPARATE_COMPILATION
// What the engine needs of a connection's type is compiled once, in src.hpp.
namespace distlock::engine {
extern template std::shared_ptr<background_io> background_io_of<clock>(cluster_connection&);
extern template std::unique_ptr<lock_core> lock_core_of<handoff, clock>(cluster_connection&, std::string,
                                                                        const lock_options&,
                                                                        std::shared_ptr<lease_observer>);
extern template std::shared_ptr<background_io> background_io_of<clock>(hiredis_connection&);
extern template std::unique_ptr<lock_core> lock_core_of<handoff, clock>(hiredis_connection&, std::string,
                                                                        const lock_options&,
                                                                        std::shared_ptr<lease_observer>);
extern template std::shared_ptr<background_io> background_io_of<clock>(sentinel_connection&);
extern template std::unique_ptr<lock_core> lock_core_of<handoff, clock>(sentinel_connection&, std::string,
                                                                        const lock_options&,
                                                                        std::shared_ptr<lease_observer>);
}  // namespace distlock::engine
#endif
