// Words and numbers on a terminal or on plain paper: colours, columns, thousands. Pure.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdio>
#include <string>
#include <string_view>

namespace contention {

/// What the output can show.
struct style {
    bool rich = false;  ///< 256 colours and Unicode blocks; else nothing but ASCII
    std::size_t width = 80;

    std::string paint(std::string_view escape, std::string_view text) const {
        if (!rich || text.empty()) return std::string(text);
        return "\x1b[" + std::string(escape) + "m" + std::string(text) + "\x1b[0m";
    }
    std::string bold(std::string_view text) const { return paint("1", text); }
    std::string dim(std::string_view text) const { return paint("38;5;245", text); }
    std::string good(std::string_view text) const { return paint("1;38;5;77", text); }
    std::string bad(std::string_view text) const { return paint("1;38;5;203", text); }
    /// The colour of a process, as part of an escape sequence.
    std::string_view colour(std::size_t process) const {
        static constexpr std::string_view colours[] = {"38;5;39",  "38;5;214", "38;5;77",  "38;5;205",
                                                       "38;5;141", "38;5;228", "38;5;44",  "38;5;173",
                                                       "38;5;111", "38;5;149", "38;5;219", "38;5;180"};
        return colours[process % std::size(colours)];
    }
    std::string of_process(std::size_t process, std::string_view text) const {
        return paint(colour(process), text);
    }
};

inline std::string repeated(std::string_view text, std::size_t times) {
    std::string all;
    while (times-- > 0) all += text;
    return all;
}

/// For text in ASCII, before it is painted.
inline std::string padded_left(std::string text, std::size_t width) {
    return text.size() < width ? std::string(width - text.size(), ' ') + text : text;
}
inline std::string padded_right(std::string text, std::size_t width) {
    if (text.size() < width) text.append(width - text.size(), ' ');
    return text;
}

/// Returns: 1234567 as "1,234,567".
inline std::string grouped(long long number) {
    std::string text = std::to_string(number);
    for (std::size_t at = text.size(); at > 3 && text[at - 4] != '-';) text.insert(at -= 3, ",");
    return text;
}

inline std::string fixed(double number, int decimals) {
    char text[64];
    std::snprintf(text, sizeof text, "%.*f", decimals, number);
    return text;
}

/// Returns: a duration as a person says it: "0.42 ms", "7.3 ms", "1.2 s".
inline std::string spoken(std::chrono::nanoseconds duration) {
    const double ms = static_cast<double>(duration.count()) / 1e6;
    if (ms >= 1000) return fixed(ms / 1000, 1) + " s";
    return fixed(ms, ms < 1 ? 2 : 1) + " ms";
}

inline std::string percent(double share) { return fixed(share * 100, 0) + " %"; }

}  // namespace contention
