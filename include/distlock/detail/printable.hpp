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

}  // namespace distlock::detail
