// Commands in bytes: what a server reads is what was given, whatever bytes stand in it.
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

#include <distlock/hiredis/request.hpp>
#include <distlock/wire/command.hpp>

#include "support/catch.hpp"

namespace request_tests {

namespace {

using distlock::command;

std::string request_of(const command& cmd) {
    std::string out;
    distlock::detail::append_request(out, cmd);
    return out;
}

}  // namespace

TEST_CASE("a request is an array of strings, each behind its length") {
    CHECK(request_of({"GET", "orders"}) == "*2\r\n$3\r\nGET\r\n$6\r\norders\r\n");
    CHECK(request_of({"PING"}) == "*1\r\n$4\r\nPING\r\n");
    CHECK(request_of({"A", "B", "C", "D", "E", "F", "G", "H", "I", "J"}).starts_with("*10\r\n$1\r\nA\r\n"));
}

TEST_CASE("arguments without a byte, and with any, reach the server as they are") {
    using namespace std::string_view_literals;
    CHECK(request_of({"SET", ""}) == "*2\r\n$3\r\nSET\r\n$0\r\n\r\n");
    CHECK(request_of({"SET", "a\0b\r\n$1"sv}) == "*2\r\n$3\r\nSET\r\n$7\r\na\0b\r\n$1\r\n"sv);
    const std::string huge(100'000, 'x');
    CHECK(request_of({"SET", huge}) == "*2\r\n$3\r\nSET\r\n$100000\r\n" + huge + "\r\n");
}

TEST_CASE("requests stand one behind the other") {
    std::string out;
    distlock::detail::append_request(out, {"MULTI"});
    distlock::detail::append_request(out, {"EXEC"});
    CHECK(out == "*1\r\n$5\r\nMULTI\r\n*1\r\n$4\r\nEXEC\r\n");
}

TEST_CASE("a pipeline's commands are begun when a byte of them was sent, and whole when all of them were") {
    const command commands[] = {{"GET", "a"}, {"GET", "bb"}};
    std::string first;
    distlock::detail::append_request(first, commands[0]);
    std::string both = first;
    distlock::detail::append_request(both, commands[1]);
    std::string room;
    const auto sent = [&](std::size_t bytes) {
        const auto count = distlock::detail::count_sent(commands, bytes, room);
        return std::pair(count.whole, count.begun);
    };
    using counts = std::pair<std::size_t, std::size_t>;
    CHECK(sent(0) == counts(0, 0));
    CHECK(sent(1) == counts(0, 1));
    CHECK(sent(first.size() - 1) == counts(0, 1));
    CHECK(sent(first.size()) == counts(1, 1));
    CHECK(sent(first.size() + 1) == counts(1, 2));
    CHECK(sent(both.size() - 1) == counts(1, 2));
    CHECK(sent(both.size()) == counts(2, 2));
}

}  // namespace request_tests
