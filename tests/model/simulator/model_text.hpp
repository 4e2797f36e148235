// Numbers as the server, and Lua inside it, read and write them; and the texts of its errors.
//
//   read_integer, read_score           // strictly, as commands do
//   score_text
//   lua_number, lua_text               // leniently, as Lua does
//   error_text                         // what redis 7.0 says
#pragma once

#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

#include <distlock/wire/reply.hpp>

namespace sim {

namespace error_text {
inline constexpr const char* wrong_type = "WRONGTYPE Operation against a key holding the wrong kind of value";
inline constexpr const char* not_an_integer = "ERR value is not an integer or out of range";
inline constexpr const char* overflow = "ERR increment or decrement would overflow";
inline constexpr const char* not_a_range = "ERR min or max is not a float";
inline constexpr const char* syntax = "ERR syntax error";
inline constexpr const char* not_positive = "ERR value is out of range, must be positive";
inline constexpr const char* no_script = "NOSCRIPT No matching script. Please use EVAL.";
inline constexpr const char* no_channel =
    "NOPERM this user has no permissions to access one of the channels used as arguments";
}  // namespace error_text

/// Returns: the number of a text that is exactly how this number is written: no sign but '-', no
/// blank, no leading zero.
inline std::optional<std::int64_t> read_integer(std::string_view text) {
    if (text.empty()) return std::nullopt;
    const std::string_view digits = text.substr(text[0] == '-' ? 1 : 0);
    if (digits.empty() || digits[0] < '0' || digits[0] > '9') return std::nullopt;
    if (digits[0] == '0' && text.size() > 1) return std::nullopt;
    std::int64_t value = 0;
    const auto [stop, failed] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (failed != std::errc{} || stop != text.data() + text.size()) return std::nullopt;
    return value;
}

/// Returns: the score of a member of a sorted set.
inline std::optional<double> read_score(std::string_view text) {
    const std::string copy(text);
    if (copy.empty() || std::isspace(static_cast<unsigned char>(copy[0])) != 0) return std::nullopt;
    char* stop = nullptr;
    const double value = std::strtod(copy.c_str(), &stop);
    if (stop != copy.c_str() + copy.size() || std::isnan(value)) return std::nullopt;
    return value;
}
inline std::string score_text(double score) {
    if (std::isinf(score)) return score > 0 ? "inf" : "-inf";
    std::array<char, 32> text{};
    const int size = std::snprintf(text.data(), text.size(), "%.17g", score);
    return {text.data(), static_cast<std::size_t>(size)};
}

/// Returns: what tonumber() makes of a string, and arithmetic too.
inline std::optional<double> lua_number(std::string_view text) {
    const std::string copy(text);  // what follows a NUL is not seen, as in Lua 5.1
    char* stop = nullptr;
    const double value = std::strtod(copy.c_str(), &stop);
    if (stop == copy.c_str()) return std::nullopt;
    while (std::isspace(static_cast<unsigned char>(*stop)) != 0) ++stop;
    if (*stop != '\0') return std::nullopt;
    return value;
}

/// How a server writes a script's number as an argument of redis.call: from 10^17 on with an exponent, and so
/// as no integer; or, since Redis 7.2, whole numbers up to 2^62 in full, and larger ones in the fewest digits
/// that mean them and up to seven zeros (its deps/fpconv).
enum class lua_spelling { with_exponent, in_full };

/// Returns: a number as an argument of redis.call.
inline std::string lua_text(double value, lua_spelling spelling) {
    constexpr double two_to_62 = 4611686018427387904.0;
    std::array<char, 32> text{};
    if (spelling == lua_spelling::in_full && std::trunc(value) == value) {
        if (std::abs(value) <= two_to_62) return std::to_string(static_cast<std::int64_t>(value));
        std::to_chars(text.data(), text.data() + text.size() - 1, value, std::chars_format::scientific);
        std::string digits(text.data(), std::strcspn(text.data(), "e"));
        auto zeros = std::atoi(text.data() + digits.size() + 1);
        if (const auto point = digits.find('.'); point != std::string::npos) {
            zeros -= static_cast<int>(digits.size() - point - 1);
            digits.erase(point, 1);
        }
        if (zeros <= 7) return digits + std::string(static_cast<std::size_t>(zeros), '0');
    }
    const int size = std::snprintf(text.data(), text.size(), "%.17g", value);
    return {text.data(), static_cast<std::size_t>(size)};
}
/// Returns: string.format('%.0f', value).
inline std::string whole_text(double value) {
    std::array<char, 320> text{};
    const int size = std::snprintf(text.data(), text.size(), "%.0f", value);
    return {text.data(), static_cast<std::size_t>(size)};
}

inline distlock::reply wrong_arguments(std::string_view command) {
    return distlock::reply::error("ERR wrong number of arguments for '" + std::string(command) + "' command");
}

/// Returns: the text in lower case.
inline std::string lower(std::string_view text) {
    std::string small(text);
    for (char& c : small) {
        if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    }
    return small;
}
inline bool same_word(std::string_view text, std::string_view lower_case) {
    if (text.size() != lower_case.size()) return false;
    for (std::size_t i = 0; i < text.size(); ++i) {
        const char c = text[i];
        if ((c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c) != lower_case[i]) return false;
    }
    return true;
}

}  // namespace sim
