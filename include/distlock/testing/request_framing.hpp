// Where requests and replies begin and end in a stream of bytes (RESP2).
#pragma once

#include <charconv>
#include <cstddef>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

namespace distlock::testing::impl {

inline constexpr std::size_t not_whole = 0;
inline constexpr std::size_t not_ours = static_cast<std::size_t>(-1);

/// Returns: the size of the reply, or request, that begins at `from`, counted from the beginning of
/// `bytes`; not_whole or not_ours. `strings`: where to put those of an array of nothing but strings;
/// anything else is not ours then.
inline std::size_t framed(std::string_view bytes, std::size_t from, std::vector<std::string>* strings) {
    const auto line_end = bytes.find("\r\n", from);
    if (from < bytes.size() && std::string_view("+-:$*").find(bytes[from]) == std::string_view::npos)
        return not_ours;
    if (strings != nullptr && from < bytes.size() && bytes[from] != '*') return not_ours;
    if (line_end == std::string_view::npos) return not_whole;
    std::size_t end = line_end + 2;
    const char kind = bytes[from];
    if (kind != '$' && kind != '*') return end;
    long long count = 0;
    const char* const digits_end = bytes.data() + line_end;
    const auto [stop, wrong] = std::from_chars(bytes.data() + from + 1, digits_end, count);
    if (wrong != std::errc{} || stop != digits_end) return not_ours;
    if (kind == '$') {
        if (count >= 0) end += static_cast<std::size_t>(count) + 2;
        return end <= bytes.size() ? end : not_whole;
    }
    for (long long i = 0; i < count; ++i) {
        if (strings != nullptr && end < bytes.size() && bytes[end] != '$') return not_ours;
        const std::size_t next = framed(bytes, end, nullptr);
        if (next == not_whole || next == not_ours) return next;
        if (strings != nullptr) {
            const std::size_t text = bytes.find("\r\n", end) + 2;
            if (next < text + 2) return not_ours;  // nil
            strings->emplace_back(bytes.substr(text, next - 2 - text));
        }
        end = next;
    }
    return end;
}

/// `reply`: a whole one. Returns: whether it is a message of a subscription, and then its words.
inline bool is_message(std::string_view reply, std::vector<std::string>& its) {
    return (reply.starts_with("*3\r\n$7\r\nmessage\r\n") || reply.starts_with("*3\r\n$8\r\nsmessage\r\n")) &&
           framed(reply, 0, &its) == reply.size();
}

}  // namespace distlock::testing::impl
