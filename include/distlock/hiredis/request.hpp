// Commands in bytes, as servers read them: https://redis.io/docs/latest/develop/reference/protocol-spec/
#pragma once

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include <distlock/wire/command.hpp>

namespace distlock::detail {

/// Effects: writes `mark`, the number and the end of the line. Returns: the end of what was
/// written, 23 bytes at most.
inline char* write_header(char* at, char mark, std::size_t count) noexcept {
    *at++ = mark;
    at = std::to_chars(at, at + 20, count).ptr;
    *at++ = '\r';
    *at++ = '\n';
    return at;
}

/// Effects: appends an array of length-prefixed strings, so that any byte may stand in any argument. In one
/// go: this is most of what a command costs here.
[[gnu::noinline]] inline void append_request(std::string& out, const command& cmd) {
    constexpr std::size_t header_room = 1 + 20 + 2;  // mark, digits, end of line
    std::size_t room = header_room;
    for (const std::string_view argument : cmd.argv()) room += header_room + argument.size() + 2;
    // So that a command of some bytes more than those before needs no memory.
    constexpr std::size_t usual = 1024;
    if (out.capacity() < usual) out.reserve(usual);
    const std::size_t begin = out.size();
    out.resize(begin + room);
    char* at = write_header(out.data() + begin, '*', cmd.argv().size());
    for (const std::string_view argument : cmd.argv()) {
        at = write_header(at, '$', argument.size());
        at = std::copy(argument.begin(), argument.end(), at);
        *at++ = '\r';
        *at++ = '\n';
    }
    out.resize(static_cast<std::size_t>(at - out.data()));
}

struct sent_requests {
    std::size_t whole = 0;
    std::size_t begun = 0;
};
/// Effects: uses `room`.
/// Returns: how many of `commands` lie in the first `bytes` of their requests, whole or begun.
[[gnu::cold]] inline sent_requests count_sent(std::span<const command> commands, std::size_t bytes,
                                              std::string& room) {
    sent_requests count;
    room.clear();
    for (; count.begun < commands.size() && room.size() < bytes; ++count.begun) {
        append_request(room, commands[count.begun]);
        if (room.size() <= bytes) ++count.whole;
    }
    return count;
}

}  // namespace distlock::detail
