// The locks, and inspect(): all but connections, testing.hpp, diagnose.hpp, and the dialects of other clients
// (interop.hpp). Needs only the standard library; include <distlock/hiredis.hpp> for a connection, or make
// one of your own.
#pragma once

#include <distlock/counting_semaphore.hpp>
#include <distlock/inspect.hpp>
#include <distlock/leader_election.hpp>
#include <distlock/mutex.hpp>
#include <distlock/net/uri.hpp>
#include <distlock/recursive_mutex.hpp>
#include <distlock/scoped_lock.hpp>
#include <distlock/shared_mutex.hpp>
#include <distlock/shared_scoped_lock.hpp>
#include <distlock/try_lock_for.hpp>
#include <distlock/version.hpp>
