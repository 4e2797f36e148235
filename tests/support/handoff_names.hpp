// What the hand-off calls the commands it sends.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include <distlock/wire/handoff_scripts.hpp>
#include <distlock/wire/plain.hpp>

/// Returns: try, join, stay, quit, adopt, release, look, leave, free; permission: may we UNBLOCK; else the command's own
/// name.
inline std::string handoff_name_of(const std::vector<std::string>& command) {
    using namespace distlock::detail;
    const auto is = [&](const distlock::script& s) {
        return command.size() > 2 && (command[1] == s.sha1() || command[1] == s.text());
    };
    const auto argument = [&](std::size_t at) {
        const auto first = 3 + std::stoul(command[2]);
        return first + at < command.size() ? command[first + at] : "";
    };
    if (command[0] == "CLIENT") return command.back() == "0" ? "permission" : command.at(1);
    if (!command[0].starts_with("EVAL")) return command[0];
    if (is(handoff_enter)) return argument(2);
    if (is(handoff_leave)) return "leave";
    if (is(plain_release)) return "free";
    if (is(handoff_pass)) return argument(3).empty() ? "release" : argument(3);
    return "another script";
}
