// The program on the first screen of the README, against a server.
#include <array>
#include <cstdio>
#include <memory>
#include <string>

#include <distlock/testing.hpp>

#include "support/catch.hpp"

namespace first_example_tests {

#ifdef DISTLOCK_FIRST_EXAMPLE

// It said "lost, or no server answers" after each release: a posted one is not `released` yet.
TEST_CASE("the README's first program ships all parts, and finds nothing wrong") {
    const distlock::testing::redis_server server;
    const auto call = std::string(DISTLOCK_FIRST_EXAMPLE) + " " + server.uri() + " 2>&1";
    const std::unique_ptr<std::FILE, int (*)(std::FILE*)> said(::popen(call.c_str(), "r"), ::pclose);
    REQUIRE(said);
    std::string text;
    std::array<char, 256> some{};
    while (std::fgets(some.data(), some.size(), said.get()) != nullptr) text += some.data();
    CHECK(text == "charged\nshipped part 0\nshipped part 1\nshipped part 2\n");
}

#endif

}  // namespace first_example_tests
