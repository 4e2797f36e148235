// Where requests and replies begin and end in a stream of bytes (RESP2, and what RESP3 adds but streams).
#pragma once

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include <distlock/testing/any_case.hpp>

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

/// The first byte of a frame tells its kind: a line, a text of so many bytes, or so many elements.
enum class frame_kind { line, text, elements };
inline std::optional<frame_kind> kind_of(char first) {
    if (std::string_view("+-:_#,(").find(first) != std::string_view::npos) return frame_kind::line;
    if (std::string_view("$!=").find(first) != std::string_view::npos) return frame_kind::text;
    if (std::string_view("*~>%|").find(first) != std::string_view::npos) return frame_kind::elements;
    return std::nullopt;
}
/// Returns: how many frames follow the head of one of elements, which says `count`.
inline std::size_t elements_of(char first, long long count) {
    const auto n = static_cast<std::size_t>(std::max(count, 0LL));
    if (first == '%') return 2 * n;
    return first == '|' ? 2 * n + 1 : n;  // attributes are of the reply behind them
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
            if (at_ >= bytes.size()) return not_whole;
            const char first = bytes[at_];
            const auto kind = kind_of(first);
            if (!kind) return not_ours;
            const auto line_end = bytes.find("\r\n", std::max(at_, searched_));
            if (line_end == std::string_view::npos) {
                searched_ = bytes.size() - 1;
                return not_whole;
            }
            std::size_t end = line_end + 2;
            if (*kind != frame_kind::line) {
                const auto size = number_of(bytes.substr(at_, line_end - at_));
                if (!size) return not_ours;
                if (*kind == frame_kind::text && *size >= 0) end += static_cast<std::size_t>(*size) + 2;
                if (end > bytes.size()) return not_whole;
                if (*kind == frame_kind::elements) to_come_ += elements_of(first, *size);
            }
            at_ = end;
        }
        return at_;
    }

  private:
    std::size_t at_;
    std::size_t searched_ = 0;  // before that the line at `at_` does not end
    std::size_t to_come_ = 1;
};

/// Returns: the end of the array, or push, of nothing but strings that begins at `from`, as frame_end;
/// anything else is not ours. The strings are put into `strings`.
inline std::size_t framed(std::string_view bytes, std::size_t from, std::vector<std::string>& strings) {
    if (from < bytes.size() && bytes[from] != '*' && bytes[from] != '>') return not_ours;
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
    if (!reply.starts_with('*') && !reply.starts_with('>')) return false;
    const std::string_view rest = reply.substr(1);
    return (rest.starts_with("3\r\n$7\r\nmessage\r\n") || rest.starts_with("3\r\n$8\r\nsmessage\r\n")) &&
           framed(reply, 0, its) == reply.size();
}

/// `reply`: a whole one. Returns: whether it is a push that answers no command, as that of a key that a
/// client keeps.
inline bool is_unasked(std::string_view reply) {
    if (!reply.starts_with('>')) return false;
    const auto second = reply.find("\r\n") + 2;
    const auto text = reply.find("\r\n", second) + 2;
    return !reply.substr(text, reply.find("\r\n", text) - text).ends_with("subscribe");
}

/// Returns: whether messages may come behind this command.
inline bool subscribes(std::string_view word) {
    const auto is = [word](std::string_view name) {
        return word.size() == name.size() && begins_in_any_case(word, name);
    };
    return is("subscribe") || is("ssubscribe");
}

}  // namespace distlock::testing::impl
