// What the hand-off calls the commands it sends.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include <distlock/wire/handoff_scripts.hpp>
#include <distlock/wire/plain.hpp>

/// Returns: try, join, last, leave, free; else the command's own name.
inline std::string handoff_name_of(const std::vector<std::string>& command) {
    using namespace distlock::detail;
    const auto is = [&](const distlock::script& s) {
        return command.size() > 2 && (command[1] == s.sha1() || command[1] == s.text());
    };
    if (!command[0].starts_with("EVAL")) return command[0];
    if (is(handoff_enter)) return command.at(3 + std::stoul(command[2]) + 2);
    if (is(handoff_leave)) return "leave";
    if (is(plain_release)) return "free";
    return "another script";
}
