// MOVED and ASK, as servers say them and as nobody should.
#include <optional>
#include <string>
#include <string_view>

#include <distlock/net/redirection.hpp>

#include "support/catch.hpp"

namespace redirection_tests {

using distlock::node_address;
using distlock::read_redirection;
using distlock::redirection;

namespace {

const node_address from{"10.0.0.9", 7000};

redirection must_read(std::string_view text) {
    const auto read = read_redirection(text, from);
    REQUIRE(read);
    return *read;
}

}  // namespace

TEST_CASE("MOVED and ASK name a slot and a node") {
    const auto moved = must_read("MOVED 3999 127.0.0.1:6381");
    CHECK(moved.what == redirection::kind::moved);
    CHECK(moved.slot == 3999);
    CHECK(moved.to == node_address{"127.0.0.1", 6381});

    const auto ask = must_read("ASK 16383 cache-2.internal:6381");
    CHECK(ask.what == redirection::kind::ask);
    CHECK(ask.slot == 16383);
    CHECK(ask.to == node_address{"cache-2.internal", 6381});
}

TEST_CASE("the last colon ends an IPv6 address") {
    CHECK(must_read("MOVED 1 2001:db8::1:6381").to == node_address{"2001:db8::1", 6381});
    CHECK(must_read("MOVED 1 ::1:6381").to == node_address{"::1", 6381});
}

TEST_CASE("an empty host is the one that was asked, and \"?\" is not known") {
    CHECK(must_read("MOVED 1 :6381").to == node_address{"10.0.0.9", 6381});
    CHECK_FALSE(must_read("MOVED 1 ?:6381").to);
    CHECK(must_read("MOVED 1 ?:6381").slot == 1);
    CHECK_FALSE(must_read("MOVED 1 ?:0").to);
    CHECK_FALSE(must_read("MOVED 1 h:0").to);
}

TEST_CASE("a redirection out of a script counts, be there something behind it or before it") {
    CHECK(
        must_read("MOVED 1 h:6381 script: 545c9fe5539f5ec57c4fcc28d9ec5f8bbfc06fef, on @user_script:3.").to ==
        node_address{"h", 6381});
    CHECK(must_read("ERR Error running script (call to f_545c): @user_script:1: -MOVED 1 h:6381").to ==
          node_address{"h", 6381});
}

TEST_CASE("a text that makes no sense is no redirection") {
    for (const std::string text : {"",
                                   "MOVED",
                                   "MOVED ",
                                   "MOVED 1",
                                   "MOVED 1 ",
                                   "MOVED 1 h",
                                   "MOVED 1 h:",
                                   "MOVED 1 h:65536",
                                   "MOVED 1 h:-1",
                                   "MOVED 1 h:6381x",
                                   "MOVED x h:6381",
                                   "MOVED -1 h:6381",
                                   "MOVED 16384 h:6381",
                                   "MOVED 99999999999999999999 h:6381",
                                   "MOVED  1 h:6381",
                                   "MOVEDD 1 h:6381",
                                   "moved 1 h:6381",
                                   "ASK",
                                   "ASK 1",
                                   "ASKING 1 h:6381",
                                   "ERR MOVED 1 h:6381",
                                   "CLUSTERDOWN Hash slot not served",
                                   "TRYAGAIN Multiple keys request during rehashing of slot",
                                   "CROSSSLOT Keys in request don't hash to the same slot"}) {
        INFO(text);
        CHECK_FALSE(read_redirection(text, from));
    }
}

TEST_CASE("a host that cannot be one is not known") {
    CHECK_FALSE(must_read("MOVED 1 a\x01"
                          "b:6381")
                    .to);
    CHECK_FALSE(must_read("MOVED 1 h\xc3\xa4:6381").to);
    CHECK_FALSE(must_read("MOVED 1 " + std::string(301, 'h') + ":6381").to);
}

}  // namespace redirection_tests
