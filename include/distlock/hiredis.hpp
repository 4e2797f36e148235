// Only the connection, distlock::hiredis_connection: add <distlock/distlock.hpp>. Link distlock::hiredis.
#pragma once

#include <distlock/hiredis/connection.hpp>
