// What a server's answers say of itself, whatever it says.
#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include <distlock/wire/reply.hpp>
#include <distlock/wire/server_facts.hpp>

#include "support/catch.hpp"

namespace server_facts_tests {

using namespace std::chrono_literals;
using distlock::reply;
using namespace distlock::detail;

TEST_CASE("a field of INFO is found by its whole name at the beginning of a line") {
    const auto text = reply::string("# Memory\r\nxrole:1\r\nrole_x:2\r\nrole:master\r\nempty:\r\nlast:9");
    const info_text info(text);
    CHECK(info.field("role") == "master");
    CHECK(info.field("empty") == "");
    CHECK(info.number("last") == 9);
    CHECK_FALSE(info.field("rol"));
    CHECK_FALSE(info.field("# Memory"));
    CHECK_FALSE(info.number("role"));
    CHECK(info.is("xrole", "1"));
    CHECK_FALSE(info.is("none", ""));
    for (const reply& other :
         {reply::nil(), reply::error("role:master"), reply::array({reply::string("role:master")})})
        CHECK_FALSE(info_text(other).field("role"));
}

TEST_CASE("only what a server can count to is a number") {
    CHECK(count_in("0") == 0);
    CHECK(count_in("86400") == 86400);
    for (const char* none :
         {"", "-1", "+1", "1 ", " 1", "1.5", "9223372036854775807", "99999999999999999999"})
        CHECK_FALSE(count_in(none));
}

TEST_CASE("versions are read as far as they are numbers, and compared by them") {
    CHECK(read_version("7.0.15") == server_version{{7, 0, 15}});
    CHECK(read_version("8.1.0-rc1") == server_version{{8, 1, 0}});
    CHECK(read_version("8") == server_version{{8, 0, 0}});
    CHECK(read_version("6.2.20") > read_version("6.2.7"));
    for (const char* none : {"", "x", "7.x", ".1", "99999999999"}) CHECK_FALSE(read_version(none));
}

TEST_CASE("a setting is the value behind its name") {
    const auto all = reply::array(
        {reply::string("a"), reply::string("b"), reply::string("b"), reply::string("c"), reply::string("d")});
    CHECK(value_of(all, "a") == "b");
    CHECK(value_of(all, "b") == "c");
    CHECK_FALSE(value_of(all, "c"));
    CHECK_FALSE(value_of(all, "d"));
    CHECK_FALSE(value_of(reply::error("a"), "a"));
}

TEST_CASE("a replica that is being filled is not online") {
    for (const std::string state : {"wait_bgsave", "send_bulk", "send_bulk_and_stream"}) {
        INFO(state);
        const auto text = reply::string(
            "master_repl_offset:1000\r\nslave0:ip=10.0.0.2,port=6379,state=" + state + ",offset=0,lag=0\r\n");
        const auto seen = replicas_in(info_text(text));
        REQUIRE(seen.size() == 1);
        CHECK_FALSE(seen[0].online);
    }
}

TEST_CASE("replicas are read from INFO and from ROLE") {
    const auto text = reply::string(
        "master_repl_offset:1000\r\nslave0:ip=10.0.0.2,port=6379,state=online,offset=900,lag=1\r\n"
        "slave1:ip=10.0.0.3,port=6380,state=wait_bgsave,offset=0,lag=0,type=replica\r\nslave3:ip=x\r\n");
    const auto seen = replicas_in(info_text(text));
    REQUIRE(seen.size() == 2);
    CHECK(seen[0].where == "10.0.0.2:6379");
    CHECK((seen[0].online && seen[0].lag == 1 && seen[0].behind == 100));
    CHECK_FALSE(seen[1].online);

    const auto one = reply::array({reply::string("10.0.0.4"), reply::string("1"), reply::string("70")});
    const auto role =
        reply::array({reply::string("master"), reply::integer(75), reply::array({one, reply::nil()})});
    const auto by_role = replicas_in(role);
    REQUIRE(by_role.size() == 1);
    CHECK((by_role[0].where == "10.0.0.4:1" && by_role[0].behind == 5 && !by_role[0].lag));
    CHECK(
        replicas_in(reply::array({reply::string("slave"), reply::integer(75), reply::array({one})})).empty());
}

TEST_CASE("the time is microseconds, of texts or numbers") {
    CHECK(time_in(reply::array({reply::string("1700000000"), reply::string("5")})) ==
          wall_time(1'700'000'000s + 5us));
    CHECK(time_in(reply::array({reply::integer(2), reply::integer(3)})) == wall_time(2s + 3us));
    CHECK_FALSE(time_in(reply::array({reply::integer(-2), reply::integer(3)})));
    CHECK_FALSE(time_in(reply::array({reply::integer(INT64_MAX), reply::integer(3)})));
    CHECK_FALSE(time_in(reply::array({reply::integer(2)})));
    CHECK_FALSE(time_in(reply::error("NOPERM")));
}

}  // namespace server_facts_tests
