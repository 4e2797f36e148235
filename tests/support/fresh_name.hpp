// The names of locks that no other test of the program has used.
#pragma once

#include <string>

inline std::string fresh_name(const std::string& stem = "lock") {
    static int count = 0;
    return stem + ":" + std::to_string(++count);
}
