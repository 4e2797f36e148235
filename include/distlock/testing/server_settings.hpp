// The words of a private server's command line, and the lines of its settings file.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include <distlock/testing/any_case.hpp>

namespace distlock::testing::impl {

/// Returns: `value` without the quotes that a server takes off.
inline std::string_view unquoted(std::string_view value) {
    const bool quoted =
        value.size() > 1 && value.front() == value.back() && (value.front() == '"' || value.front() == '\'');
    return quoted ? value.substr(1, value.size() - 2) : value;
}

/// Returns: the value of the option `name`, of several the last, as the server takes it; else empty. A `\` in
/// quotes is not read as the server does.
inline std::string value_of_option(std::span<const std::string> words, std::string_view name) {
    std::string value;
    for (std::size_t i = 0; i < words.size(); ++i) {
        const std::string_view one = words[i];
        if (!begins_in_any_case(one, name)) continue;
        if (one.size() == name.size()) {
            value = i + 1 < words.size() ? words[i + 1] : "";
        } else if (one[name.size()] == ' ') {
            value = unquoted(one.substr(name.size() + 1));
        }
    }
    return value;
}

/// Returns: whether these words may make the server a daemon, which would outlive the object that started it.
inline bool may_make_a_daemon(std::span<const std::string> words) {
    return std::any_of(words.begin(), words.end(), [](std::string_view one) {
        return begins_in_any_case(one, "--daemonize") || begins_in_any_case(one, "--include");
    });
}

/// Returns: `value` as a line of the server's settings file carries it.
inline std::string quoted(std::string_view value) {
    std::string text = "\"";
    for (const char c : value) {
        if (c == '"' || c == '\\') text += '\\';
        text += c;
    }
    return text += '"';
}

}  // namespace distlock::testing::impl
