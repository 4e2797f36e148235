// Tools for testing code that uses locks; this project's tests use them, too. Link distlock::testing.
#pragma once

#include <distlock/testing/fault_proxy.hpp>
#include <distlock/testing/history.hpp>
#include <distlock/testing/manual_clock.hpp>
#include <distlock/testing/redis_server.hpp>
#include <distlock/testing/scripted_connection.hpp>
