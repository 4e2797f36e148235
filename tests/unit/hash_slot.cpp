// The slot of a key, as the Redis Cluster specification has it, and of a command.
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

#include <distlock/net/hash_slot.hpp>
#include <distlock/wire/command.hpp>
#include <distlock/wire/script.hpp>

#include "support/catch.hpp"

namespace hash_slot_tests {

using distlock::command;
using distlock::hash_slot;

namespace {

inline constexpr distlock::script body{"return redis.call('DEL', KEYS[1])"};

static_assert(distlock::detail::crc16("123456789") == 0x31c3, "CRC-16/XMODEM, by its check value");
static_assert(distlock::detail::crc16("") == 0);
static_assert(hash_slot("foo") == 12182, "as CLUSTER KEYSLOT says");
static_assert(hash_slot("bar") == 5061);
static_assert(hash_slot("hello") == 866);
static_assert(hash_slot("") == 0);

}  // namespace

TEST_CASE("only the tag counts in a key that has a hash tag") {
    CHECK(hash_slot("{user1000}.following") == hash_slot("user1000"));
    CHECK(hash_slot("{user1000}.followers") == hash_slot("user1000"));
    CHECK(hash_slot("foo{bar}{zap}") == hash_slot("bar"));
    CHECK(hash_slot("foo{{bar}}zap") == hash_slot("{bar"));
}

TEST_CASE("an empty tag, or one without its end, is none") {
    CHECK(hash_slot("foo{}{bar}") == 8363);
    CHECK(hash_slot("foo{bar") == 15278);
    CHECK(hash_slot("foo}bar{") != hash_slot("bar"));
}

TEST_CASE("any byte may stand in a key") {
    CHECK(hash_slot(std::string_view("\xff\x00\x80", 3)) == 7915);
    CHECK(hash_slot("\xff") < distlock::slot_count);
}

TEST_CASE("a command belongs to the slot of its routing key, else of its first key") {
    const auto orders = std::optional(hash_slot("orders"));
    CHECK(hash_slot(command({"SET", "x", "v"}, "orders")) == orders);
    CHECK(hash_slot(command(body, {"orders", "{orders}:distlock:queue"}, {"token"})) == orders);
    CHECK(hash_slot(command({"GET", std::string_view("orders")})) == orders);
    CHECK(hash_slot(command({"EVAL", "return 1", "1", "orders", "token"})) == orders);
    CHECK(hash_slot(command({"EVALSHA", "abc", "2", "orders", "x"})) == orders);
}

TEST_CASE("a command without a key goes to any node") {
    CHECK_FALSE(hash_slot(command({distlock::argument("PING")})));
    CHECK_FALSE(hash_slot(command({"EVAL", "return 1", "0"})));
    CHECK_FALSE(hash_slot(command({"EVAL", "return 1", "0", "no key"})));
    CHECK_FALSE(hash_slot(command({"EVAL", "return 1", "1"})));
    CHECK_FALSE(hash_slot(command(body, std::initializer_list<distlock::argument>{}, {"token"})));
}

}  // namespace hash_slot_tests
