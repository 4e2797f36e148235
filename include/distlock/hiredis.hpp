// Only the connections, distlock::hiredis_connection and distlock::cluster_connection: add <distlock/distlock.hpp>. Link
// distlock::hiredis.
#pragma once

#include <distlock/hiredis/cluster_connection.hpp>
#include <distlock/hiredis/connection.hpp>
