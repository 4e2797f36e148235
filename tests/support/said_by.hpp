// What a program writes.
#pragma once

#include <array>
#include <cstdio>
#include <memory>
#include <string>

#include "support/catch.hpp"

/// Returns: all that the shell's `command` writes, errors included.
inline std::string said_by(const std::string& command) {
    const std::unique_ptr<std::FILE, int (*)(std::FILE*)> said(::popen((command + " 2>&1").c_str(), "r"),
                                                               ::pclose);
    REQUIRE(said);
    std::string text;
    std::array<char, 256> some{};
    while (std::fgets(some.data(), some.size(), said.get()) != nullptr) text += some.data();
    return text;
}
