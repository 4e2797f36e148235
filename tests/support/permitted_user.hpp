// The user that a guide makes.
#pragma once

#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <distlock/testing.hpp>

#include "support/catch.hpp"

using words = std::vector<std::string>;

inline std::ifstream open_guide(const std::string& guide) {
    return std::ifstream(std::filesystem::path(__FILE__).parent_path() / "../.." / guide);
}

/// Returns: the words of the line with which that guide makes a user.
inline words user_in(const std::string& guide) {
    std::ifstream text = open_guide(guide);
    std::string line;
    while (std::getline(text, line) && !line.starts_with("ACL SETUSER worker reset ")) {}
    std::istringstream parts(line);
    words user;
    for (std::string one; parts >> one;) user.push_back(one);
    INFO(guide);
    REQUIRE(user.size() > 5);
    return user;
}

/// Returns: the words of the line with which SECURITY.md makes a user of a Cluster, by what it says that goes
/// and comes there.
inline words cluster_user() {
    std::ifstream text = open_guide(".github/SECURITY.md");
    std::string line, said;
    while (std::getline(text, line)) said += line + " ";
    const auto begin = said.find("- On a Cluster waiters listen");
    REQUIRE(begin != std::string::npos);
    std::istringstream quoted(said.substr(begin));
    const auto next = [&] {
        std::getline(quoted, line, '`');  // up to the quotation
        std::getline(quoted, line, '`');
        std::istringstream parts(line);
        return words{std::istream_iterator<std::string>(parts), {}};
    };
    words user = user_in(".github/SECURITY.md");
    for (const std::string& gone : next()) REQUIRE(std::erase(user, gone) == 1);
    for (int i = 0; i < 2; ++i) {
        for (std::string& comes : next()) user.push_back(std::move(comes));
    }
    return user;
}

inline void make(const distlock::testing::redis_server& server, const words& user) {
    REQUIRE(server.command(std::vector<std::string_view>(user.begin(), user.end())) == "OK");
}
