// The questions of an examination, the permissions that a user needs, and the cost of each that is missing.
#pragma once

#include <array>
#include <cstddef>
#include <string_view>

#include <distlock/detail/separate.hpp>
#include <distlock/wire/diagnosis.hpp>
#include <distlock/wire/examined.hpp>
#include <distlock/wire/server_facts.hpp>

namespace distlock::detail {

namespace asked_for {

// The first round, in this order.
enum fact : std::size_t { time, info, role, maxmemory, min_replicas, append, save, who_am_i, cluster };
inline constexpr std::array<std::string_view, 9> facts{"TIME",
                                                       "INFO",
                                                       "ROLE",
                                                       "CONFIG GET maxmemory*",
                                                       "CONFIG GET min-replicas-*",
                                                       "CONFIG GET *append*",
                                                       "CONFIG GET save",
                                                       "ACL WHOAMI",
                                                       "CLUSTER INFO"};

enum class purpose {
    every_lock,
    waiting,
    fences,
    owner_info,
    acknowledgement,
    inspecting,
    counting,
    publishing,
    slot_map,
    asking
};

/// A permission that a user needs, as an ACL names it, and a command that shows whether it is permitted and
/// changes nothing: it finds no key, or stumbles over an argument, which comes after permissions. $K, $Q, $F,
/// $O: the keys of a lock; $C: a channel.
struct need {
    std::string_view name;
    purpose what;
    std::string_view words;
    enum class where { everywhere, single, sharded } at = where::everywhere;
    bool only_dry = false;  ///< the server would do something
};
inline constexpr std::array<need, 23> needs{{
    {"set", purpose::every_lock, "SET $K x XX PX 1"},
    {"get", purpose::every_lock, "GET $K"},
    {"del", purpose::every_lock, "DEL $K"},
    {"pttl", purpose::every_lock, "PTTL $K"},
    {"pexpire", purpose::every_lock, "PEXPIRE $K 1"},
    {"eval", purpose::every_lock, "EVAL ( 1 $K"},
    {"evalsha", purpose::every_lock, "EVALSHA 0000000000000000000000000000000000000000 1 $K"},
    {"zadd", purpose::waiting, "ZADD $Q x x"},
    {"zrange", purpose::waiting, "ZRANGE $Q 0 0"},
    {"zrank", purpose::waiting, "ZRANK $Q x"},
    {"zrem", purpose::waiting, "ZREM $Q x"},
    {"zscore", purpose::waiting, "ZSCORE $Q x"},
    {"time", purpose::waiting, "TIME"},
    {"incrby", purpose::fences, "INCRBY $F x"},
    {"get", purpose::owner_info, "GET $O"},
    {"wait", purpose::acknowledgement, "WAIT 0 0"},
    {"zcard", purpose::inspecting, "ZCARD $Q"},
    {"pubsub|numsub", purpose::counting, "PUBSUB NUMSUB $C", need::where::single},
    {"publish", purpose::publishing, "PUBLISH $C x", need::where::single},
    {"pubsub|shardnumsub", purpose::counting, "PUBSUB SHARDNUMSUB $C", need::where::sharded},
    {"spublish", purpose::publishing, "SPUBLISH $C x", need::where::sharded},
    {"cluster|slots", purpose::slot_map, "CLUSTER SLOTS", need::where::sharded, true},
    {"asking", purpose::asking, "ASKING", need::where::sharded},
}};

/// The cost of a permission that is missing.
struct consequence {
    purpose of;
    severity how;
    std::string_view text;
};
inline constexpr std::array<consequence, 10> consequences{{
    {purpose::every_lock, severity::problem,
     "locks cannot be taken, kept or released: errc::permission_denied or errc::unsupported_command"},
    {purpose::waiting, severity::problem,
     "waiters cannot queue: a lock that is taken fails instead of being waited for"},
    {purpose::fences, severity::warning,
     "with .fencing, a lock fails when its last token is ahead of the server's clock"},
    {purpose::owner_info, severity::warning, "mutexes with .owner_info fail"},
    {purpose::acknowledgement, severity::problem, "with .replicas, locks fail"},
    {purpose::inspecting, severity::warning, "inspect() reports no waiters"},
    {purpose::counting, severity::warning, "a dead waiter always costs the others two seconds"},
    {purpose::publishing, severity::warning, "a waiter finds at its next re-check that it has the lock"},
    {purpose::slot_map, severity::warning, "each slot is found by its first redirection"},
    {purpose::asking, severity::warning, "a lock whose slot moves is not found until it has arrived"},
}};

}  // namespace asked_for

DISTLOCK_INLINE bool examined::applies(std::size_t need) const noexcept {
    using where = asked_for::need::where;
    const auto& one = asked_for::needs[need];
    if (one.what == asked_for::purpose::acknowledgement && options.replicas <= 0) return false;
    return one.at == where::everywhere || (one.at == where::sharded) == can.shard;
}

DISTLOCK_INLINE examined::role examined::standing() const noexcept {
    const info_text info(facts[asked_for::info]);
    const auto& asked = facts[asked_for::role].elements();
    const auto said = asked.empty() ? info.field("role").value_or("") : std::string_view(asked[0].text());
    if (info.is("redis_mode", "sentinel") || said == "sentinel") return role::sentinel;
    return said == "master" ? role::master : said == "slave" ? role::replica : role::unknown;
}

}  // namespace distlock::detail
