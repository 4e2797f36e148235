// The part of src.hpp that needs hiredis: the connections, and what the engine needs of their types. A
// program that compiles it in a file of its own includes src.hpp in another, with DISTLOCK_WITHOUT_HIREDIS.
#pragma once

#ifndef DISTLOCK_SEPARATE_COMPILATION
#error "define DISTLOCK_SEPARATE_COMPILATION in every source file of the program, see distlock/src.hpp"
#endif

#include <memory>

#include <distlock/base/clock.hpp>
#include <distlock/engine/lock_core.hpp>
#include <distlock/hiredis.hpp>
#include <distlock/hiredis/cluster_connection_impl.hpp>
#include <distlock/hiredis/connection_impl.hpp>
#include <distlock/hiredis/sentinel_connection_impl.hpp>

namespace distlock::engine {
template std::shared_ptr<background_io> background_io_of<clock>(cluster_connection&);
template std::shared_ptr<background_io> background_io_of<clock>(hiredis_connection&);
template std::shared_ptr<background_io> background_io_of<clock>(sentinel_connection&);
}  // namespace distlock::engine
