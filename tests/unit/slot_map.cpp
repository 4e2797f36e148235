// What CLUSTER SLOTS answers, as servers say it and as nobody should.
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <distlock/net/redirection.hpp>
#include <distlock/net/slot_map.hpp>
#include <distlock/wire/reply.hpp>

#include "support/catch.hpp"

namespace slot_map_tests {

using distlock::node_address;
using distlock::reply;
using distlock::slot_map;

namespace {

const node_address asked{"10.0.0.9", 7000};

reply node(reply host, std::int64_t port) {
    return reply::array({std::move(host), reply::integer(port), reply::string("its id")});
}
reply node(const std::string& host, std::int64_t port) { return node(reply::string(host), port); }
reply node(reply host, std::int64_t port, const std::string& ip) {
    return reply::array({std::move(host), reply::integer(port), reply::string("its id"),
                         reply::array({reply::string("hostname"), reply::string("a"), reply::string("ip"),
                                       reply::string(ip)})});
}
reply range(std::int64_t first, std::int64_t last, reply master) {
    return reply::array(
        {reply::integer(first), reply::integer(last), std::move(master), node("its replica", 7003)});
}

std::optional<node_address> owner(const slot_map& map, std::uint16_t slot) {
    const auto place = map.owner(slot);
    return place ? std::optional(map.nodes()[*place]) : std::nullopt;
}
/// Returns: the owner of slot 7 in an answer of one range of all slots.
std::optional<node_address> only(reply master) {
    const auto map = slot_map::read(reply::array({range(0, 16383, std::move(master))}), asked);
    return map ? owner(*map, 7) : std::nullopt;
}

}  // namespace

TEST_CASE("each slot belongs to the master of its range, and no slot to a replica") {
    const auto map =
        slot_map::read(reply::array({range(0, 5460, node("a", 7000)), range(5461, 10922, node("b", 7001)),
                                     range(10923, 16383, node("c", 7002))}),
                       asked);
    REQUIRE(map);
    CHECK(map->nodes().size() == 3);
    for (std::size_t i = 0; i < 3; ++i) CHECK(map->place(map->nodes()[i]) == i);
    for (const char* const no_master : {"", "aa", "z"}) CHECK_FALSE(map->place({no_master, 7001}));
    CHECK(owner(*map, 0) == node_address{"a", 7000});
    CHECK(owner(*map, 5460) == node_address{"a", 7000});
    CHECK(owner(*map, 5461) == node_address{"b", 7001});
    CHECK(owner(*map, 10922) == node_address{"b", 7001});
    CHECK(owner(*map, 10923) == node_address{"c", 7002});
    CHECK(owner(*map, 16383) == node_address{"c", 7002});
}

TEST_CASE("a node with several ranges is one node, and a slot of none is unknown") {
    const auto map =
        slot_map::read(reply::array({range(5, 5, node("a", 7000)), range(7, 9, node("a", 7000))}), asked);
    REQUIRE(map);
    CHECK(map->nodes().size() == 1);
    CHECK_FALSE(map->owner(4));
    CHECK(map->owner(5));
    CHECK_FALSE(map->owner(6));
    CHECK(map->owner(9));
    CHECK_FALSE(map->owner(10));
}

TEST_CASE("a null host, or an empty one, is the host that was asked") {
    CHECK(only(node(reply::nil(), 7001)) == node_address{"10.0.0.9", 7001});
    CHECK(only(node("", 7001)) == node_address{"10.0.0.9", 7001});
}

TEST_CASE("a host that the server calls \"?\" is known by its address behind it, or not at all") {
    CHECK(only(node(reply::string("?"), 7001, "10.0.0.2")) == node_address{"10.0.0.2", 7001});
    CHECK_FALSE(only(node(reply::string("?"), 7001, "")));
    CHECK_FALSE(only(node("?", 7001)));
}

TEST_CASE("a name is preferred to the address behind it") {
    CHECK(only(node(reply::string("cache-1"), 7001, "10.0.0.2")) == node_address{"cache-1", 7001});
}

TEST_CASE("a range that makes no sense is left out, the others count") {
    const std::vector<reply> strange{
        reply::nil(),
        reply::integer(1),
        reply::string("0-16383"),
        reply::array({}),
        reply::array({reply::integer(0), reply::integer(16383)}),
        range(1, 0, node("b", 1)),
        range(-1, 16383, node("b", 1)),
        range(0, 16384, node("b", 1)),
        reply::array({reply::string("0"), reply::string("16383"), node("b", 1)}),
        range(0, 16383, reply::nil()),
        range(0, 16383, reply::array({})),
        range(0, 16383, reply::array({reply::string("b")})),
        range(0, 16383, node("b", 0)),
        range(0, 16383, node("b", -1)),
        range(0, 16383, node("b", 65536)),
        range(0, 16383, node(reply::integer(1), 1)),
        range(0, 16383, node("b\n", 1)),
        range(0, 16383, reply::array({reply::string("b"), reply::string("1")})),
    };
    for (const reply& one : strange) {
        CHECK_FALSE(slot_map::read(reply::array({one}), asked));
        const auto map = slot_map::read(reply::array({range(7, 7, node("a", 7000)), one}), asked);
        REQUIRE(map);
        CHECK(owner(*map, 7) == node_address{"a", 7000});
        CHECK(map->nodes().size() == 1);
    }
}

TEST_CASE("an answer without a range is no map") {
    for (const reply& answer :
         {reply::nil(), reply::integer(1), reply::array({}),
          reply::error("ERR This instance has cluster support disabled"),
          reply::not_sent(distlock::errc::unreachable, ""), reply::no_answer(distlock::errc::no_reply, "")}) {
        CHECK_FALSE(slot_map::read(answer, asked));
    }
}

TEST_CASE("the later of two ranges that overlap counts") {
    const auto map = slot_map::read(
        reply::array({range(0, 10, node("a", 7000)), range(5, 16383, node("b", 7001))}), asked);
    REQUIRE(map);
    CHECK(owner(*map, 4) == node_address{"a", 7000});
    CHECK(owner(*map, 5) == node_address{"b", 7001});
}

TEST_CASE("a slot that moved belongs to its new node alone, which may be a stranger") {
    slot_map map;
    CHECK(map.nodes().empty());
    CHECK_FALSE(map.owner(7));
    map.assign(7, {"a", 7000});
    CHECK(owner(map, 7) == node_address{"a", 7000});
    CHECK_FALSE(map.owner(8));
    map.assign(7, {"b", 7001});
    map.assign(8, {"a", 7000});
    CHECK(owner(map, 7) == node_address{"b", 7001});
    CHECK(owner(map, 8) == node_address{"a", 7000});
    CHECK(map.nodes().size() == 2);
}

TEST_CASE("a server that names ever more nodes does not make the map grow without end") {
    slot_map map;
    for (int i = 0; i < distlock::slot_count; ++i) map.assign(7, {"n" + std::to_string(i), 7000});
    CHECK(map.owner(7));
    map.assign(7, {"one too many", 7000});
    CHECK_FALSE(map.owner(7));
    CHECK(map.nodes().size() == distlock::slot_count);
    map.assign(7, {"n0", 7000});
    CHECK(map.owner(7) == 0);
}

}  // namespace slot_map_tests
