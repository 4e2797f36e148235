// Where requests and replies begin and end in a stream of bytes (RESP2).
#pragma once

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

namespace distlock::testing::impl {

inline constexpr std::size_t not_whole = 0;
inline constexpr std::size_t not_ours = static_cast<std::size_t>(-1);

/// Returns: the number behind the first byte of `line`; none where it is none.
inline std::optional<long long> number_of(std::string_view line) {
    long long number = 0;
    const char* const end = line.data() + line.size();
    const auto [stop, wrong] = std::from_chars(line.data() + 1, end, number);
    return wrong == std::errc{} && stop == end ? std::optional(number) : std::nullopt;
}

/// The end of a reply, or request, that may come in pieces. It looks at each byte once.
class frame_end {
  public:
    /// `from`: where the reply begins.
    explicit frame_end(std::size_t from = 0) noexcept : at_(from) {}

    /// Preconditions: `bytes` begins with what it was the last time.
    /// Returns: the end, counted from the beginning of `bytes`; not_whole or not_ours.
    std::size_t in(std::string_view bytes) {
        for (; to_come_ > 0; --to_come_) {
            if (at_ < bytes.size() && std::string_view("+-:$*").find(bytes[at_]) == std::string_view::npos)
                return not_ours;
            const auto line_end = bytes.find("\r\n", at_);
            if (line_end == std::string_view::npos) return not_whole;
            std::size_t end = line_end + 2;
            const char kind = bytes[at_];
            if (kind == '$' || kind == '*') {
                const auto size = number_of(bytes.substr(at_, line_end - at_));
                if (!size) return not_ours;
                const auto count = static_cast<std::size_t>(std::max(*size, 0LL));
                if (kind == '$' && *size >= 0) end += count + 2;
                if (end > bytes.size()) return not_whole;
                if (kind == '*') to_come_ += count;
            }
            at_ = end;
        }
        return at_;
    }

  private:
    std::size_t at_;
    std::size_t to_come_ = 1;
};

/// Returns: the end of the array of nothing but strings that begins at `from`, as frame_end; anything else is
/// not ours. The strings are put into `strings`.
inline std::size_t framed(std::string_view bytes, std::size_t from, std::vector<std::string>& strings) {
    if (from < bytes.size() && bytes[from] != '*') return not_ours;
    const auto line_end = bytes.find("\r\n", from);
    if (line_end == std::string_view::npos) return not_whole;
    const auto count = number_of(bytes.substr(from, line_end - from));
    if (!count) return not_ours;
    std::size_t end = line_end + 2;
    for (long long i = 0; i < *count; ++i) {
        if (end < bytes.size() && bytes[end] != '$') return not_ours;
        const std::size_t next = frame_end(end).in(bytes);
        if (next == not_whole || next == not_ours) return next;
        const std::size_t text = bytes.find("\r\n", end) + 2;
        if (next < text + 2) return not_ours;  // nil
        strings.emplace_back(bytes.substr(text, next - 2 - text));
        end = next;
    }
    return end;
}

/// `reply`: a whole one. Returns: whether it is a message of a subscription, and then its words.
inline bool is_message(std::string_view reply, std::vector<std::string>& its) {
    return (reply.starts_with("*3\r\n$7\r\nmessage\r\n") || reply.starts_with("*3\r\n$8\r\nsmessage\r\n")) &&
           framed(reply, 0, its) == reply.size();
}

}  // namespace distlock::testing::impl
