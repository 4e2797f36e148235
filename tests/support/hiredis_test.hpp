// The words that tests of hiredis connections have in common.
#pragma once

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include <distlock/distlock.hpp>
#include <distlock/hiredis.hpp>
#include <distlock/testing.hpp>

namespace hiredis_test {

using namespace std::chrono_literals;
using distlock::clock;
using distlock::command;
using distlock::errc;
using distlock::hiredis_connection;
using distlock::lock_options;
using distlock::release_outcome;
using distlock::reply;
using distlock::reply_kind;
using distlock::testing::redis_server;
using distlock::testing::redis_server_options;

/// Every command of a test is answered within this, or the machine is broken.
inline const std::string patient = "?connect_timeout=20s&command_timeout=20s";

/// Returns: a server's options with these arguments of its command line.
inline redis_server_options with(std::vector<std::string> arguments) {
    redis_server_options options;
    options.arguments = std::move(arguments);
    return options;
}

/// Returns: the server of all tests of the program that need none of their own.
inline const redis_server& common() {
    static const redis_server server;
    return server;
}

/// An unlock() that says what became of the lock.
inline constexpr lock_options confirmed{.release = distlock::confirmed};

}  // namespace hiredis_test
