// Which script a command calls, by its SHA-1 or by its text.
#pragma once

#include <distlock/wire/command.hpp>
#include <distlock/wire/script.hpp>

/// Preconditions: the command has an argument.
inline bool calls(const distlock::command& cmd, const distlock::script& what) {
    return cmd.argv()[1] == what.sha1() || cmd.argv()[1] == what.text();
}
