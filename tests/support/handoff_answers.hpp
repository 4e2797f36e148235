// What a server answers to the script `enter` of the hand-off.
#pragma once

#include <cstdint>

#include <distlock/wire/reply.hpp>

namespace handoff_answers {

using distlock::reply;

inline reply granted(const char* fence = "", std::int64_t ttl = 2000) {
    return reply::array({reply::integer(1), reply::string(fence), reply::integer(ttl)});
}
/// Somebody else has it; without a ticket of ours, unless it has a number.
inline reply taken(std::int64_t ttl = 20'000, std::int64_t ticket = 0, std::int64_t waited = 0,
                   std::int64_t appended = 0) {
    return reply::array({reply::integer(0), reply::integer(ttl), reply::integer(ticket),
                         reply::integer(waited), reply::integer(appended)});
}
inline reply queued(std::int64_t ticket = 7, bool appended = true) {
    return taken(20'000, ticket, 0, appended ? 1 : 0);
}

}  // namespace handoff_answers
