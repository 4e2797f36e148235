// The TLS component: distlock::tls, for rediss:// URIs. Link distlock::hiredis_tls.
#pragma once

#include <distlock/hiredis.hpp>
#include <distlock/hiredis/tls.hpp>
