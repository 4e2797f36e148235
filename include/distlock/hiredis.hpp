// Only the connections, distlock::hiredis_connection, sentinel_connection and cluster_connection: add <distlock/distlock.hpp>. Link
// distlock::hiredis.
#pragma once

#include <distlock/hiredis/cluster_connection.hpp>
#include <distlock/hiredis/connection.hpp>
#include <distlock/hiredis/sentinel_connection.hpp>
