// The words of a command, to be compared with others.
#pragma once

#include <string_view>
#include <vector>

#include <distlock/wire/command.hpp>

template <class Word = std::string_view>
std::vector<Word> argv_of(const distlock::command& cmd) {
    return {cmd.argv().begin(), cmd.argv().end()};
}
