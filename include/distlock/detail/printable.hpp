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

/// Returns: "lock orders:42", fit for a message.
[[gnu::cold]] inline std::string shown_lock(std::string_view name) { return "lock " + printable(name, 100); }

/// Returns: `why` behind the name of `server`, fit for a message; nothing where it is empty. A server's
/// answer does not name it, the text of a connection does, in front, as long as it is.
[[gnu::noinline, gnu::cold]] inline std::string behind_server(std::string_view server, std::string_view why) {
    constexpr std::size_t longest = 280;  // of an answer, and the place that is named behind it
    if (why.empty() || server.empty()) return printable(why, longest);
    const bool named = why.starts_with(server);
    if (named) why.remove_prefix(server.size());
    return printable(server, 60).append(named ? "" : ": ").append(printable(why, longest));
}

}  // namespace distlock::detail
