// The message about a key that is not of the type that its lock needs.
#include <string>

#include <distlock/wire/wrong_type.hpp>

#include "support/catch.hpp"

using distlock::detail::explain_wrong_type;

TEST_CASE("of a key of another type it is said whose it may be") {
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

TEST_CASE("where the key's type is right, or it is gone, the sibling keys are named as the server has them") {
    for (const char* is : {"string", "none"}) {
        const std::string said = explain_wrong_type(is, "string", "WRONGTYPE x");
        CHECK_THAT(said, contains_text("{name}:distlock:*") && contains_text("name:distlock.:*"));
        CHECK_THAT(said, contains_text("(WRONGTYPE x)"));
    }
}
