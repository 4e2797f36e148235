// hiredis.hpp, and distlock::tls for rediss://: add <distlock/distlock.hpp>. Link distlock::hiredis_tls.
#pragma once

#include <distlock/hiredis.hpp>
#include <distlock/hiredis/tls.hpp>
