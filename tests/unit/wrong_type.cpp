// The message about a key that is not of the type that its lock needs.
#include <string>

#include <distlock/wire/wrong_type.hpp>

#include "support/catch.hpp"

using distlock::detail::explain_uninspected;
using distlock::detail::explain_wrong_type;

TEST_CASE("the message about a key of another type says whose it may be") {
    CHECK(explain_wrong_type("zset", "string", "WRONGTYPE x") ==
          "the key holds a zset where this lock needs a string: it may be a counting_semaphore's");
    CHECK(explain_wrong_type("string", "zset", "WRONGTYPE x") ==
          "the key holds a string where this lock needs a zset: it may be a mutex's or a shared_mutex's");
    CHECK(explain_wrong_type("hash", "string", "WRONGTYPE x") ==
          "the key holds a hash where this lock needs a string: Redisson's locks are hashes, and mutex<Conn, "
          "redisson> takes them");
    CHECK(explain_wrong_type("stream", "string", "WRONGTYPE x") ==
          "the key holds a stream where this lock needs a string");
}

TEST_CASE("the sibling keys are named as the server has them where the key's type is right, or it is gone") {
    for (const char* is : {"string", "none"}) {
        const std::string said = explain_wrong_type(is, "string", "WRONGTYPE x");
        CHECK_THAT(said, contains_text("{name}:distlock:*") && contains_text("name:distlock.:*"));
        CHECK_THAT(said, contains_text("(WRONGTYPE x)"));
    }
}

// Of a plain lock inspect<redisson> said that a sibling key was wrong; force_release() of a lock of
// Redisson's named another function.
TEST_CASE(
    "an operator who asks about a lock of another kind is told the kind of that lock, not of a sibling") {
    CHECK(explain_uninspected("string", "hash", true) ==
          " (the key holds a string where this kind of lock needs a hash)");
    CHECK(explain_uninspected("zset", "string", true) ==
          " (the key holds a zset where this kind of lock needs a string)");
    CHECK(explain_uninspected("list", "", true) == " (the key holds a list)");
    for (const char* wants : {"", "string", "zset"}) {
        const std::string said = explain_uninspected("hash", wants, true);
        CHECK_THAT(said, contains_text("inspect<redisson>") && contains_text("force_release<redisson>"));
    }
}

TEST_CASE(
    "an operator is told of sibling keys where the lock itself is of its type, and the server refused") {
    const auto siblings = contains_text("{name}:distlock:*");
    for (const char* is : {"string", "zset"}) {
        CHECK_THAT(explain_uninspected(is, "", true), siblings);
        CHECK_THAT(explain_uninspected(is, is, true), siblings);
        CHECK(explain_uninspected(is, is, false) == std::string(" (the key holds a ") + is + ")");
    }
    // Redisson's counter has another name.
    CHECK(explain_uninspected("hash", "hash", true) ==
          " (the key holds a hash; if that is the lock's, another key of it is of another type)");
    CHECK(explain_uninspected("hash", "string", false) == " (the key holds a hash)");
    CHECK(explain_uninspected("none", "string", true).empty());
    CHECK(explain_uninspected("st\nream", "string", true) ==
          " (the key holds a st?ream where this kind of lock needs a string)");
}
