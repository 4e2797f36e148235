// The words that start a private server.
#include <string>
#include <vector>

#include <distlock/testing/server_settings.hpp>

#include "support/catch.hpp"

namespace server_settings_tests {

using distlock::testing::impl::may_make_a_daemon;
using distlock::testing::impl::quoted;
using distlock::testing::impl::value_of_option;
using words = std::vector<std::string>;

TEST_CASE("the last value of an option that is given twice counts, as for the server") {
    CHECK(value_of_option(words{"--port", "1", "--port", "2"}, "--port") == "2");
    CHECK(value_of_option(words{"--port 1", "--PORT 2"}, "--port") == "2");
    CHECK(value_of_option(words{"--port", "1", "--port"}, "--port").empty());
}

TEST_CASE("an option's value is the rest of its word, or the next word, and only of that option") {
    CHECK(value_of_option(words{"--requirepass 'a b'"}, "--requirepass") == "a b");
    CHECK(value_of_option(words{"--requirepass \"a b\""}, "--requirepass") == "a b");
    CHECK(value_of_option(words{"--requirepass 'a"}, "--requirepass") == "'a");
    CHECK(value_of_option(words{"--requirepass", "'a'"}, "--requirepass") == "'a'");
    CHECK(value_of_option(words{"--ports", "1", "port", "2"}, "--port").empty());
    CHECK(value_of_option(words{}, "--port").empty());
}

TEST_CASE("words may make a server a daemon where one of them says so, or includes what may") {
    CHECK(may_make_a_daemon(words{"--port", "1", "--daemonize", "yes"}));
    CHECK(may_make_a_daemon(words{"--DAEMONIZE yes"}));
    CHECK(may_make_a_daemon(words{"--include", "/etc/redis.conf"}));
    CHECK(may_make_a_daemon(words{"--Include /etc/redis.conf"}));
    CHECK_FALSE(may_make_a_daemon(words{"--port", "1", "daemonize", "include"}));
    CHECK_FALSE(may_make_a_daemon(words{}));
}

TEST_CASE("a value in quotes keeps its quotes and backslashes") {
    CHECK(quoted("/tmp/a b") == "\"/tmp/a b\"");
    CHECK(quoted("a\"b\\") == "\"a\\\"b\\\\\"");
    CHECK(quoted("") == "\"\"");
}

}  // namespace server_settings_tests
