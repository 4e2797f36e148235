// The hiredis annex: distlock::hiredis_connection. Link distlock::hiredis.
#pragma once

#include <distlock/hiredis/connection.hpp>
