// Text from outside: nothing but printable ASCII gets into a message, and not much of it.
#include <string>
#include <string_view>

#include <distlock/detail/printable.hpp>

#include "support/catch.hpp"

namespace printable_tests {

namespace {
using distlock::detail::behind_server;
using distlock::detail::printable;
}  // namespace

TEST_CASE("printable text stays as it is") {
    std::string all;
    for (char c = ' '; c <= '~'; ++c) all += c;
    CHECK(printable(all) == all);
    CHECK(printable("").empty());
}

TEST_CASE("every byte that is not printable ASCII becomes one question mark") {
    int replaced = 0;
    for (int value = 0; value < 256; ++value) {
        const std::string one(1, static_cast<char>(value));
        const auto shown = printable(one);
        if (value < 0x20 || value > 0x7e) {
            CHECK(shown == "?");
            ++replaced;
        } else {
            CHECK(shown == one);
        }
    }
    CHECK(replaced == 256 - 95);
    CHECK(printable(std::string_view("a\0b\r\n\x1b[2J", 9)) == "a?b???[2J");
}

TEST_CASE("long text is cut and says so") {
    CHECK(printable("abcdef", 6) == "abcdef");
    CHECK(printable("abcdefg", 6) == "abcdef...");
    CHECK(printable("a", 0) == "...");
    CHECK(printable(std::string(200, 'x')) == std::string(200, 'x'));
    CHECK(printable(std::string(70'000, '\x1b')) == std::string(200, '?') + "...");
}

// Of a connection to many nodes the name was repeated, and the reason behind it cut off.
TEST_CASE("the name of a server stands in front of what it answered, once, short, and hides nothing") {
    CHECK(behind_server("redis://one", "OOM no memory") == "redis://one: OOM no memory");
    CHECK(behind_server("redis://one", "redis://one: connect: refused") == "redis://one: connect: refused");
    CHECK(behind_server("", "OOM no memory") == "OOM no memory");
    CHECK(behind_server("redis://one", "").empty());
    const std::string many = "redis://" + std::string(300, 'n');
    CHECK(behind_server(many, many + ": the time-out is over") ==
          printable(many, 60) + ": the time-out is over");
    const std::string answer = printable(std::string(300, 'x')) + " (at 10.0.0.7:7003)";
    CHECK(behind_server("redis://one", answer) == "redis://one: " + answer);
    CHECK(behind_server("redis://one", "a\nb") == "redis://one: a?b");
}

}  // namespace printable_tests
