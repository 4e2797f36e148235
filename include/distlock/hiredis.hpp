// Only the connections, distlock::hiredis_connection and distlock::sentinel_connection: add <distlock/distlock.hpp>. Link
// distlock::hiredis.
#pragma once

#include <distlock/hiredis/connection.hpp>
#include <distlock/hiredis/sentinel_connection.hpp>
