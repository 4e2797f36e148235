// The umbrella: everything but the annexes. It needs nothing beyond the standard library; a connection comes
// in through <distlock/hiredis.hpp> or is your own.
#pragma once

#include <distlock/inspect.hpp>
#include <distlock/mutex.hpp>
#include <distlock/net/uri.hpp>
#include <distlock/recursive_mutex.hpp>
#include <distlock/scoped_lock.hpp>
