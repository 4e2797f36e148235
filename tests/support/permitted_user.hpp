// The user that a guide makes.
#pragma once

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include <distlock/testing.hpp>

#include "support/catch.hpp"

using words = std::vector<std::string>;

/// Returns: the words of the line with which that guide makes a user.
inline words user_in(const std::string& guide) {
    std::ifstream text(std::filesystem::path(__FILE__).parent_path() / "../.." / guide);
    std::string line;
    while (std::getline(text, line) && !line.starts_with("ACL SETUSER worker reset ")) {}
    std::istringstream parts(line);
    words user;
    for (std::string one; parts >> one;) user.push_back(one);
    INFO(guide);
    REQUIRE(user.size() > 5);
    return user;
}

inline void make(const distlock::testing::redis_server& server, const words& user) {
    REQUIRE(server.command(std::vector<std::string_view>(user.begin(), user.end())) == "OK");
}
