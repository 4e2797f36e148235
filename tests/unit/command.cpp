// Commands: arguments, routing key, deadline, and the two ways to run a script.
#include <chrono>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include <distlock/base/clock.hpp>
#include <distlock/wire/command.hpp>
#include <distlock/wire/script.hpp>

#include "support/argv_of.hpp"
#include "support/catch.hpp"

namespace command_tests {

namespace {

using distlock::clock;
using distlock::command;
using words = std::vector<std::string_view>;

inline constexpr distlock::script body{"return redis.call('DEL', KEYS[1])"};
constexpr std::string_view body_sha1 = "b0d697da25b13e49157b2c214a4033546aba2104";

static_assert(std::is_trivially_copyable_v<command>, "a command owns nothing");
static_assert(command::max_arguments == 16);
static_assert(command({"SET", "k", "v"}, "k").argv().size() == 3, "a command can be made at compile time");

}  // namespace

TEST_CASE("a command keeps its arguments in order and its routing key beside them") {
    const command set({"SET", "orders", "token", "NX", "PX", "30000"}, "orders");
    CHECK(argv_of(set) == words{"SET", "orders", "token", "NX", "PX", "30000"});
    CHECK(set.routing_key() == "orders");
    CHECK_FALSE(set.is_script());
    CHECK(set.deadline() == clock::time_point::max());
}

TEST_CASE("a command without a routing key goes to any server") {
    CHECK(command({"PING"}).routing_key().empty());
    CHECK(argv_of(command({"AUTH", "user", "password"})) == words{"AUTH", "user", "password"});
}

TEST_CASE("arguments of any bytes stay whole") {
    const std::string binary("a\0b\r\n", 5);
    CHECK(argv_of(command({"GET", binary, ""}, binary)) == words{"GET", binary, ""});
    CHECK(command({"GET", binary}, binary).routing_key().size() == 5);
}

// Two string literals in braces are also an iterator range, and a range of pointers into unrelated texts at
// that.
TEST_CASE("two literals in braces are two arguments, not the ends of one") {
    const command get{{"GET", "orders"}, "orders"};
    CHECK(get.routing_key() == "orders");
    REQUIRE(get.argv().size() == 2);
    REQUIRE(get.argv()[0].size() == 3);
    CHECK(argv_of(get) == words{"GET", "orders"});
}

TEST_CASE("sixteen arguments fit, seventeen are refused") {
    const std::string_view a = "a";
    CHECK(command({a, a, a, a, a, a, a, a, a, a, a, a, a, a, a, a}).argv().size() == 16);
    CHECK_THROWS_AS(command({a, a, a, a, a, a, a, a, a, a, a, a, a, a, a, a, a}), std::length_error);
}

TEST_CASE("a command may be made of arguments that were counted at run time") {
    std::vector<distlock::argument> all{"SET", "orders", "token"};
    const auto set = command::of(all, "orders");
    CHECK(argv_of(set) == words{"SET", "orders", "token"});
    CHECK(set.routing_key() == "orders");
    CHECK(command::of({}).argv().empty());
    all.resize(17, "a");
    CHECK_THROWS_AS(command::of(all), std::length_error);
}

TEST_CASE("a script is EVALSHA with its name, the number of keys, the keys and the arguments") {
    const command cmd(body, {"orders", "{orders}:b"}, {"token", "30000"});
    CHECK(argv_of(cmd) == words{"EVALSHA", body_sha1, "2", "orders", "{orders}:b", "token", "30000"});
    CHECK(cmd.routing_key() == "orders");
    CHECK(cmd.is_script());
}

TEST_CASE("a script without keys is routed nowhere and says so") {
    const command cmd(body, {}, {"token"});
    CHECK(argv_of(cmd) == words{"EVALSHA", body_sha1, "0", "token"});
    CHECK(cmd.routing_key().empty());
}

TEST_CASE("a script takes nine keys; more keys or arguments than fit are refused") {
    const std::string_view a = "a";
    CHECK(argv_of(command(body, {a, a, a, a, a, a, a, a, a}, {}))[2] == "9");
    CHECK(command(body, {a, a, a, a, a, a, a, a, a}, {a, a, a, a}).argv().size() == 16);
    CHECK_THROWS_AS(command(body, {a, a, a, a, a, a, a, a, a, a}, {}), std::length_error);
    CHECK_THROWS_AS(command(body, {a, a, a, a, a, a, a, a, a}, {a, a, a, a, a}), std::length_error);
    CHECK(command(body, {a}, {a, a, a, a, a, a, a, a, a, a, a, a}).argv().size() == 16);
    CHECK_THROWS_AS(command(body, {a}, {a, a, a, a, a, a, a, a, a, a, a, a, a}), std::length_error);
}

TEST_CASE("with_body changes the first two arguments and nothing else") {
    using namespace std::chrono_literals;
    command by_name(body, {"orders"}, {"token", "30000"});
    by_name.until(clock::time_point(7s));
    const command full = by_name.with_body();
    CHECK(argv_of(full) == words{"EVAL", body.text(), "1", "orders", "token", "30000"});
    CHECK(full.routing_key() == "orders");
    CHECK(full.deadline() == clock::time_point(7s));
    CHECK(full.is_script());
    CHECK(argv_of(by_name)[0] == "EVALSHA");
}

TEST_CASE("a deadline is kept, and the last one counts") {
    using namespace std::chrono_literals;
    command ping({"PING"});
    CHECK(&ping.until(clock::time_point(1s)) == &ping);
    CHECK(ping.deadline() == clock::time_point(1s));
    CHECK(ping.until(clock::time_point::max()).deadline() == clock::time_point::max());
}

TEST_CASE(
    "a command carries the caller's stop token, if it can ever be requested, with its body or without") {
    const std::stop_source source;
    const std::stop_token stop = source.get_token();
    const std::stop_token never;
    command look(body, {"orders"}, {"token"});
    CHECK(look.stop() == nullptr);
    CHECK_FALSE(look.stop_requested());
    CHECK(look.until(never).stop() == nullptr);
    CHECK(&look.until(stop) == &look);
    CHECK(look.stop() == &stop);
    CHECK(look.with_body().stop() == &stop);
    CHECK_FALSE(look.stop_requested());
    std::stop_source(source).request_stop();
    CHECK(look.stop_requested());
}

}  // namespace command_tests
