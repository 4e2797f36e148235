// Bugs of servers that locks meet.
#pragma once

#include <array>
#include <string_view>

#include <distlock/wire/diagnosis.hpp>
#include <distlock/wire/server_facts.hpp>

namespace distlock::detail {

/// One bug in one branch of releases: in those from `first` on, up to the one before `mended`.
struct known_bug {
    bool valkey;
    server_version first, mended;
    severity how;
    std::string_view text;
    bool only_with_aof = false;
};
inline constexpr std::string_view too_old = "older than Redis 6.2: locks are not tested with it";
inline constexpr std::string_view no_check_in_scripts =  // redis/redis#10160; notes of 6.2.7
    "scripts ignore min-replicas-to-write (redis#9993, fixed in 6.2.7): an old master goes on granting and "
    "renewing locks";
inline constexpr std::string_view unsynced_rewrite =  // notes of 7.0.5
    "the end of an append-only file may not be on disk when it is rewritten (redis#11004, fixed in 7.0.5): "
    "a crash of the machine loses more locks than appendfsync says";
inline constexpr std::string_view lua_bug =
    "whoever may run EVAL, as each user of locks may, can run code on the server (CVE-2025-49844); a "
    "distribution may have mended it under the old number";
inline constexpr std::array<known_bug, 11> known_bugs{{
    {false, {{0, 0, 0}}, {{6, 2, 0}}, severity::problem, too_old},
    {false, {{0, 0, 0}}, {{6, 2, 7}}, severity::warning, no_check_in_scripts},
    {false, {{7, 0, 0}}, {{7, 0, 5}}, severity::warning, unsynced_rewrite, true},
    {false, {{0, 0, 0}}, {{6, 2, 20}}, severity::warning, lua_bug},
    {false, {{7, 0, 0}}, {{7, 2, 11}}, severity::warning, lua_bug},
    {false, {{7, 4, 0}}, {{7, 4, 6}}, severity::warning, lua_bug},
    {false, {{8, 0, 0}}, {{8, 0, 4}}, severity::warning, lua_bug},
    {false, {{8, 1, 0}}, {{8, 2, 2}}, severity::warning, lua_bug},
    {true, {{0, 0, 0}}, {{7, 2, 11}}, severity::warning, lua_bug},
    {true, {{8, 0, 0}}, {{8, 0, 6}}, severity::warning, lua_bug},
    {true, {{8, 1, 0}}, {{8, 1, 4}}, severity::warning, lua_bug},
}};

}  // namespace distlock::detail
