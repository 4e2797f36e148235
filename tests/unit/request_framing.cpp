// Where replies and requests end, for a proxy that cuts them.
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include <distlock/testing/request_framing.hpp>

#include "support/catch.hpp"

namespace request_framing_tests {

namespace impl = distlock::testing::impl;
using words = std::vector<std::string>;

TEST_CASE("a reply ends where its last element does, in whatever pieces it comes") {
    for (const std::string_view reply : {"+OK\r\n",
                                         "-ERR x\r\n",
                                         ":1\r\n",
                                         "_\r\n",
                                         "#t\r\n",
                                         ",1.5\r\n",
                                         "(12345678901234567890\r\n",
                                         "$3\r\na\r\n\r\n",
                                         "$-1\r\n",
                                         "$0\r\n\r\n",
                                         "!5\r\nERR x\r\n",
                                         "=7\r\ntxt:abc\r\n",
                                         "*-1\r\n",
                                         "*0\r\n",
                                         "*2\r\n:1\r\n*1\r\n$1\r\na\r\n",
                                         "~2\r\n:1\r\n:2\r\n",
                                         ">2\r\n+a\r\n+b\r\n",
                                         "%2\r\n+a\r\n:1\r\n+b\r\n:2\r\n",
                                         "|1\r\n+a\r\n:1\r\n+OK\r\n",
                                         "*1\r\n|1\r\n+a\r\n:1\r\n:2\r\n"}) {
        const std::string both = "before" + std::string(reply) + "+behind\r\n";
        const std::size_t end = 6 + reply.size();
        CHECK(impl::frame_end(6).in(both) == end);
        impl::frame_end in_pieces(6);
        for (std::size_t size = 6; size < end; ++size) {
            CHECK(in_pieces.in(std::string_view(both).substr(0, size)) == impl::not_whole);
        }
        CHECK(in_pieces.in(std::string_view(both).substr(0, end)) == end);
    }
}

TEST_CASE("bytes that begin no reply, or whose length is no number, are not ours") {
    for (const std::string_view bytes : {"x", "$a\r\n", "*1x\r\n", "*1\r\nx", "$\r\n"}) {
        CHECK(impl::frame_end().in(bytes) == impl::not_ours);
    }
}

TEST_CASE("a request is an array of strings, and nothing else is") {
    words its;
    CHECK(impl::framed("..*2\r\n$3\r\nGET\r\n$1\r\na\r\n*1\r\n", 2, its) == 22);
    CHECK(its == words{"GET", "a"});
    for (const std::string_view other : {"+OK\r\n", "*1\r\n:1\r\n", "*1\r\n$-1\r\n", "*x\r\n", "PING\r\n"}) {
        words none;
        CHECK(impl::framed(other, 0, none) == impl::not_ours);
    }
    for (const std::string_view part : {"", "*2", "*2\r\n", "*2\r\n$3\r\nGET\r\n", "*1\r\n$3\r\nGE"}) {
        words some;
        CHECK(impl::framed(part, 0, some) == impl::not_whole);
    }
}

TEST_CASE("a message of a subscription is told from other replies of three words") {
    for (const std::string_view kind : {"$7\r\nmessage", "$8\r\nsmessage"}) {
        for (const char first : {'*', '>'}) {
            const std::string whole = first + ("3\r\n" + std::string(kind)) + "\r\n$1\r\nc\r\n$2\r\nhi\r\n";
            words its;
            CHECK(impl::is_message(whole, its));
            CHECK(words(its.begin() + 1, its.end()) == words{"c", "hi"});
        }
    }
    for (const std::string_view other :
         {"*3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n", "*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n:1\r\n",
          "$7\r\nmessage\r\n", "~3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$2\r\nhi\r\n"}) {
        words its;
        CHECK_FALSE(impl::is_message(other, its));
    }
}

TEST_CASE("a push that confirms a subscription answers a command, any other none") {
    CHECK_FALSE(impl::is_unasked(">3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n"));
    CHECK_FALSE(impl::is_unasked(">3\r\n$12\r\nsunsubscribe\r\n$1\r\nc\r\n:0\r\n"));
    CHECK(impl::is_unasked(">2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\na\r\n"));
    CHECK_FALSE(impl::is_unasked("*2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\na\r\n"));
}

TEST_CASE("messages may come behind a subscription, however its name is written") {
    CHECK(impl::subscribes("SUBSCRIBE"));
    CHECK(impl::subscribes("sSubscribe"));
    CHECK_FALSE(impl::subscribes("subscribed"));
    CHECK_FALSE(impl::subscribes("unsubscribe"));
}

}  // namespace request_framing_tests
