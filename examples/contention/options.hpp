// The command line of the contention demo.
#pragma once

#include <charconv>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

namespace contention {

inline constexpr std::string_view usage =
#include "usage.txt"
    ;

struct options {
    int processes = 4;
    int seconds = 4;
    std::optional<std::string> redis;  ///< URI of the user's own server
    bool help = false;
};

/// The arguments are wrong; what() says which and why.
struct usage_error : std::runtime_error {
    using std::runtime_error::runtime_error;
};

inline int number_from(std::string_view name, std::string_view text, int least, int most) {
    int number = 0;
    const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (failed != std::errc{} || end != text.data() + text.size() || number < least || number > most) {
        throw usage_error(std::string(name) + " takes a number from " + std::to_string(least) + " to " +
                          std::to_string(most) + ", not '" + std::string(text) + "'");
    }
    return number;
}

inline options parse(const std::vector<std::string_view>& arguments) {
    options parsed;
    for (std::size_t i = 0; i < arguments.size(); ++i) {
        std::string_view name = arguments[i];
        std::optional<std::string_view> attached;  // --name=value
        if (const std::size_t sign = name.find('='); sign != std::string_view::npos) {
            attached = name.substr(sign + 1);
            name = name.substr(0, sign);
        }
        const auto value = [&] {
            if (attached) return *attached;
            if (++i == arguments.size()) throw usage_error(std::string(name) + " needs a value");
            return arguments[i];
        };
        if (name == "--processes") {
            parsed.processes = number_from(name, value(), 2, 12);
        } else if (name == "--seconds") {
            parsed.seconds = number_from(name, value(), 1, 60);
        } else if (name == "--redis") {
            parsed.redis = value();
        } else if ((name == "--help" || name == "-h") && !attached) {
            parsed.help = true;
        } else {
            throw usage_error("there is no option '" + std::string(name) + "'");
        }
    }
    return parsed;
}

}  // namespace contention
