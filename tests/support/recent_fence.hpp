// A fence that was given a moment ago.
#pragma once

#include <cstdint>
#include <string>

#include <distlock/testing/redis_server.hpp>

/// Effects: the last fence at `key` is the server's clock and so many microseconds.
/// Returns: that fence.
inline std::uint64_t set_recent_fence(const distlock::testing::redis_server& server, const std::string& key,
                                      int microseconds) {
    return std::stoull(
        server.command({"EVAL",
                        "local time = redis.call('time') "
                        "local fence = string.format('%.0f', time[1] * 1e6 + time[2] + ARGV[1]) "
                        "redis.call('set', KEYS[1], fence) "
                        "return fence",
                        "1", key, std::to_string(microseconds)}));
}
