// What a Sentinel's replies say, whatever it says.
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include <distlock/base/error.hpp>
#include <distlock/net/sentinel_answer.hpp>
#include <distlock/wire/reply.hpp>

#include "support/catch.hpp"

namespace sentinel_answer_tests {

namespace {

using distlock::errc;
using distlock::known_sentinel;
using distlock::node_address;
using distlock::read_sentinel_answer;
using distlock::reply;
using distlock::sentinel_answer;
using kind = sentinel_answer::kind;
using replies = std::array<reply, distlock::sentinel_questions>;

reply texts(const std::vector<std::string>& all) {
    std::vector<reply> made;
    for (const auto& one : all) made.push_back(reply::string(one));
    return reply::array(std::move(made));
}

reply address(const std::string& host, const std::string& port) { return texts({host, port}); }

replies usual() {
    return {address("10.0.0.1", "6379"),
            texts({"name", "m", "ip", "10.9.9.9", "port", "1", "flags", "master", "config-epoch", "7"}),
            reply::array({texts({"name", "x", "ip", "10.0.0.2", "port", "26379", "runid", "b0"}),
                          texts({"name", "y", "ip", "s3.internal", "port", "26380", "runid", "c0"})}),
            reply::string("a0")};
}

}  // namespace

TEST_CASE("a Sentinel names the master, its epoch, itself and the others") {
    const auto said = read_sentinel_answer(usual());
    CHECK(said.what == kind::names_master);
    CHECK(said.master == node_address{"10.0.0.1", 6379});
    CHECK(said.epoch == 7);
    CHECK(said.id == "a0");
    CHECK(said.others ==
          std::vector<known_sentinel>{{{"10.0.0.2", 26379}, "b0"}, {{"s3.internal", 26380}, "c0"}});
}

TEST_CASE("the questions are asked in the order in which the replies are read") {
    const auto words = [](std::size_t n) {
        const distlock::command question = distlock::sentinel_question(n, "m");
        std::string out;
        for (const auto one : question.argv()) out.append(one).append(" ");
        return out;
    };
    CHECK(words(0) == "SENTINEL GET-MASTER-ADDR-BY-NAME m ");
    CHECK(words(1) == "SENTINEL MASTER m ");
    CHECK(words(2) == "SENTINEL SENTINELS m ");
    CHECK(words(3) == "SENTINEL MYID ");
}

TEST_CASE("a Sentinel that may say nothing but the address is believed without the rest") {
    for (const char* const why : {"NOPERM this user has no permissions", "ERR unknown subcommand"}) {
        const auto said = read_sentinel_answer(
            replies{address("::1", "6379"), reply::error(why), reply::error(why), reply::error(why)});
        CHECK(said.what == kind::names_master);
        CHECK(said.master == node_address{"::1", 6379});
        CHECK(said.epoch == 0);
        CHECK(said.id == "");
        CHECK(said.others == std::vector<known_sentinel>{});
    }
}

TEST_CASE("a Sentinel that does not know the name is told from one that refuses the question") {
    auto said = usual();
    said[0] = reply::nil();
    said[1] = reply::error("ERR No such master with that name");
    CHECK(read_sentinel_answer(said).what == kind::unknown_name);

    struct refused_case {
        const char* text;
        errc cause;
    };
    for (const auto& [text, cause] :
         {refused_case{"NOAUTH Authentication required.", errc::authentication_failed},
          refused_case{"NOPERM no permissions", errc::permission_denied},
          refused_case{"ERR unknown command 'SENTINEL'", errc::unsupported_command}}) {
        said[0] = reply::error(text);
        CHECK(read_sentinel_answer(said).what == kind::refused);
        CHECK(read_sentinel_answer(said).cause == cause);
        CHECK(read_sentinel_answer(said).detail == text);
    }
}

TEST_CASE("a Sentinel that stops half-way is silent: without the epoch its address is worth nothing") {
    for (const std::size_t from : {0U, 1U}) {
        auto said = usual();
        for (std::size_t i = from; i < said.size(); ++i)
            said[i] = reply::no_answer(errc::no_reply, "no reply in time");
        CHECK(read_sentinel_answer(said).what == kind::silent);
        CHECK(read_sentinel_answer(said).cause == errc::no_reply);
        CHECK(read_sentinel_answer(said).detail == "no reply in time");
    }
}

TEST_CASE("an address that none can be is no answer") {
    const std::string long_name(254, 'h');
    for (const reply& one :
         {reply::array({}), texts({"10.0.0.1"}), texts({"10.0.0.1", "6379", "1"}), address("", "6379"),
          address("10.0.0.1", "0"), address("10.0.0.1", "65536"), address("10.0.0.1", "-1"),
          address("10.0.0.1", "6379x"), address("a b", "6379"), address("a@b", "6379"),
          address(std::string("a\0b", 3), "6379"), address("\x1b[2J", "6379"), address(long_name, "6379"),
          reply::string("10.0.0.1"), reply::integer(1), reply::status("OK")}) {
        auto said = usual();
        said[0] = one;
        CHECK(read_sentinel_answer(said).what == kind::refused);
        CHECK(read_sentinel_answer(said).cause == errc::protocol_error);
    }
}

TEST_CASE("a field that makes no sense beside the address is left out") {
    for (const char* const epoch : {"", "-1", "x", "18446744073709551616", "7 "}) {
        auto said = usual();
        said[1] = texts({"config-epoch", epoch});
        CHECK(read_sentinel_answer(said).epoch == 0);
    }
    auto said = usual();
    said[1] = texts({"config-epoch", "18446744073709551615"});
    CHECK(read_sentinel_answer(said).epoch == UINT64_MAX);
    said[1] = texts({"config-epoch"});
    CHECK(read_sentinel_answer(said).epoch == 0);
    said[2] = reply::array({texts({"ip", "x y", "port", "1", "runid", "b0"}), texts({"ip", "h", "port", "0"}),
                            texts({"ip", "h"}), reply::nil(), texts({"ip", "h", "port", "1"})});
    CHECK(read_sentinel_answer(said).others == std::vector<known_sentinel>{{{"h", 1}, ""}});
    said[3] = reply::string(std::string(65, 'a'));
    CHECK(read_sentinel_answer(said).id == "");
}

}  // namespace sentinel_answer_tests
