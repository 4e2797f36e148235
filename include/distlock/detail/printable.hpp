// Text from outside made fit for a message: printable and short.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace distlock::detail {

/// Returns: at most `limit` bytes of `text` with everything but printable ASCII replaced by '?', and "..."
/// where it was cut. What a server or a caller sends must not reach a terminal or a log file as control
/// characters.
[[gnu::noinline, gnu::cold]] inline std::string printable(std::string_view text, std::size_t limit = 200) {
    std::string out(text.substr(0, limit));
    for (char& c : out) {
        if (c < ' ' || c > '~') c = '?';
    }
    if (text.size() > limit) out += "...";
    return out;
}

/// Returns: `why`, with the name of `server` in front, fit for a message, where it is not there yet: a server's
/// answer does not name it, the text of a connection does.
[[gnu::noinline, gnu::cold]] inline std::string behind_server(std::string_view server, std::string why) {
    if (why.empty() || server.empty() || why.starts_with(server)) return why;
    return printable(server, 60).append(": ").append(why);
}

}  // namespace distlock::detail
