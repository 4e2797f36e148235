// The order in which every process takes its locks, and which of them are, or may be, one.
#include <string>

#include <distlock/engine/lock_place.hpp>
#include <distlock/testing/scripted_connection.hpp>

#include "support/catch.hpp"

namespace lock_place_tests {

using distlock::engine::lock_place;
using distlock::engine::place_of;
using distlock::testing::scripted_connection;

namespace {

struct told_connection {
    distlock::reply execute(const distlock::command&) { return distlock::reply::nil(); }
    std::string identity() const { return said; }
    std::string said;
};

std::string server_of(const std::string& identity) {
    told_connection c{identity};
    static const std::string name = "orders";
    return place_of(name, distlock::any_connection_of<told_connection>(c)).server;
}

// In whichever order.
bool may_be_one(const lock_place& a, const lock_place& b) { return a.may_be(b) && b.may_be(a); }

}  // namespace

TEST_CASE("locks are taken in the order of their names, and equal names in that of their servers") {
    const lock_place a1{"a", "one"}, a2{"a", "two"}, b1{"b", "one"};
    CHECK(a1.before(a2));
    CHECK(a2.before(b1));
    CHECK_FALSE(b1.before(a2));
    CHECK(may_be_one(a1, a1));
    CHECK_FALSE(a1.may_be(a2));
    CHECK_FALSE(a1.may_be(b1));
}

// Guards of them waited for each other in a circle: the order was that of the connection objects.
TEST_CASE("locks of one name over connections that do not say which server they lead to may be one") {
    const std::string name = "orders";
    scripted_connection one, two;
    const distlock::any_connection_of<scripted_connection> first(one), second(two);
    const auto a = place_of(name, first), b = place_of(name, second);
    CHECK(may_be_one(a, b));
    CHECK(may_be_one(a, lock_place{"orders", "one"}));
    CHECK_FALSE(a.may_be(lock_place{"payments", ""}));
    CHECK(a.shown() == "lock orders, over connections that have no identity()");
    CHECK(lock_place{"orders", "one"}.shown() == "lock orders");
}

// A guard of the same lock twice, by two users, waited for itself.
TEST_CASE("a server is the same for every user, and in whatever case its host is written") {
    CHECK(server_of("redis://alice@DB.Example:6379/0") == "redis://db.example:6379/0");
    CHECK(server_of("unix://a%40b@/Run/Redis@home.sock") == "unix:///Run/Redis@home.sock");
    CHECK(server_of("unix:///Run/Redis.sock?db=1") == "unix:///Run/Redis.sock?db=1");
    CHECK(server_of("redis+cluster://bob@N1:7000,n2:7000") == "redis+cluster://n1:7000,n2:7000");
    for (const char* theirs : {"Shard 7, of alice@home", "mem://ShardA", "mem://a@b"})
        CHECK(server_of(theirs) == theirs);
    CHECK(server_of("").empty());
}

}  // namespace lock_place_tests
